// SPDX-License-Identifier: GPL-2.0
//! An endpoint of the simulation: receives, unexpected messages, buffers and sessions. The module's
//! endpoint has the same structure, with locks.

use std::{
    collections::{
        BTreeMap,
        BTreeSet, //
    },
    net::Ipv4Addr,
    sync::Arc, //
};

use kfi_core::{
    addr::SockAddr,
    auth_key::AuthKey,
    flags::Caps,
    matching::{
        posted::PostedSlot,
        unexpected::UnexpectedSlot,
        Envelope,
        Placement,
        Posted,
        Unexpected, //
    },
    rdm::{
        answer::Answer,
        header::{
            Message,
            RemoteAddr, //
        },
        inbound::Source,
        ops::{
            Rma,
            Send, //
        },
        session::Conn,
        times::COOKIE_PERIOD,
        unproven::Ends,
        Config,
        Cookie,
        Session,
        Store,
        Stores,
        Unproven, //
    }, //
};

use super::{
    plan::Plan,
    rng::Rng,
    Addr, //
};

/// The size of the memory that peers may access, in bytes.
pub(crate) const REGION: usize = 4096;
/// The key of this memory.
pub(crate) const KEY: u32 = 7;

/// A store in a tree.
pub(crate) struct Tree<V, S = ()>(BTreeMap<u64, (V, S)>);

impl<V, S> Store<V> for Tree<V, S> {
    type Slot = S;

    fn insert(&mut self, key: u64, value: V, slot: S) {
        let old = self.0.insert(key, (value, slot));
        assert!(old.is_none(), "a key comes twice");
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.0.get(&key).map(|(value, _)| value)
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.0.get_mut(&key).map(|(value, _)| value)
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        self.0.remove(&key).map(|(value, _)| value)
    }

    fn next(&self, from: u64) -> Option<u64> {
        self.0.range(from..).next().map(|(key, _)| *key)
    }
}

/// A share of the answers to a peer, from the creation of an answer to its end. The reference count
/// is the number of answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share(Arc<()>);

impl Share {
    /// Returns the number of answers, for the share of the endpoint.
    pub(crate) fn count(&self) -> u32 {
        Arc::strong_count(&self.0) as u32 - 1
    }
}

/// The types of the sessions of these endpoints.
pub(crate) struct Model;

impl Stores for Model {
    type Op = u64;
    type Receive = Answered;
    type Sends = Tree<Send<u64>>;
    type Rmas = Tree<Rma<u64>>;
    type Answers = Tree<Answer<Answered>, Share>;
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rx {
    pub(crate) id: u64,
    pub(crate) room: u32,
}

/// What belongs to an answer.
#[derive(Debug)]
pub(crate) enum Answered {
    Filling(Filling),
    /// The receive that a tagged read reads.
    Serving(Serving),
    /// The old values of an atomic.
    Values(Vec<u8>),
}

impl Answered {
    /// Returns the receive.
    pub(crate) fn filling(&mut self) -> &mut Filling {
        match self {
            Self::Filling(filling) => filling,
            Self::Serving(_) | Self::Values(_) => panic!("no receive is filled"),
        }
    }

    /// Returns the receive, if there is one.
    pub(crate) fn rx(&self) -> Option<Rx> {
        match self {
            Self::Filling(filling) => Some(filling.rx),
            Self::Serving(serving) => Some(serving.rx),
            Self::Values(_) => None,
        }
    }
}

/// A receive that is being filled by READs.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) rx: Rx,
    /// The operation of the message.
    pub(crate) op: u64,
    pub(crate) fit: Placement,
    pub(crate) bytes: Vec<u8>,
}

/// A receive that a tagged read reads.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) rx: Rx,
    pub(crate) op: u64,
    pub(crate) fit: Placement,
}

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) enum Held {
    Here {
        op: u64,
        bytes: Vec<u8>,
        fin: Option<(Conn, u64)>,
    },
    There {
        op: u64,
        conn: Conn,
        id: u64,
        addr_of_bytes: RemoteAddr,
    },
}

/// The destination of an incoming message.
#[derive(Debug)]
pub(crate) enum Where {
    Receive(Rx),
    Unexpected,
    /// The payload of an atomic.
    Atomic(Option<Share>),
    /// The old values of an atomic, or the bytes of a tagged read, of this endpoint.
    Values,
    /// No receive matches tagged RMA.
    Nowhere,
}

/// An incoming message.
#[derive(Debug)]
pub(crate) struct Placing {
    pub(crate) at: Where,
    pub(crate) op: u64,
    /// The message; `None` for the old values of an atomic.
    pub(crate) message: Option<Message>,
    pub(crate) source: Source,
    pub(crate) bytes: Vec<u8>,
}

impl Placing {
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

pub(crate) struct Pair {
    pub(crate) posted: Posted<Addr, Rx, Vec<PostedSlot<Addr, Rx>>>,
    pub(crate) unexpected: Unexpected<Addr, Held, Vec<UnexpectedSlot<Addr, Held>>>,
    /// The slots reserved for incoming messages.
    pub(crate) reserved: u32,
    pub(crate) room: u32,
}

impl Pair {
    fn new(plan: &Plan) -> Self {
        let mut posted = Vec::new();
        posted.resize_with(plan.rx_size, PostedSlot::new);
        let mut unexpected = Vec::new();
        unexpected.resize_with(plan.unexpected, UnexpectedSlot::new);
        Self {
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected, plan.budget),
            reserved: 0,
            room: plan.unexpected as u32,
        }
    }

    pub(crate) fn take(&mut self, envelope: &Envelope<Addr>) -> Option<Rx> {
        let found = self.posted.match_message(envelope)?;
        found.take().map(|taken| taken.token)
    }
}

/// An endpoint.
pub(crate) struct End {
    pub(crate) addr: Addr,
    pub(crate) incarnation: u64,
    pub(crate) config: Config,
    pub(crate) epoch: u64,
    pub(crate) sessions: BTreeMap<Addr, Session<Model>>,
    /// The requests without a valid cookie.
    unproven: Unproven,
    /// The answers to each peer.
    pub(crate) shares: BTreeMap<Addr, Share>,
    pub(crate) pairs: [Pair; 2],
    /// The operation for each number, by peer.
    pub(crate) numbers: BTreeMap<(Addr, u64), u64>,
    /// The peer and number of each operation that has not ended.
    pub(crate) open: BTreeMap<u64, (Addr, u64)>,
    pub(crate) memory: Vec<u8>,
    pub(crate) leaving: bool,
    /// The contexts that have claimed a message.
    pub(crate) claims: Vec<u64>,
    /// The posted receives.
    pub(crate) receives: BTreeSet<u64>,
    /// Whether the program only receives from now on.
    pub(crate) drains: bool,
}

impl End {
    pub(crate) fn new(addr: Addr, incarnation: u64, plan: &Plan, rng: &mut Rng) -> Self {
        let mut caps = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::SEND | Caps::RECV;
        caps |= Caps::REMOTE_READ;
        if !rng.one_in(20) {
            caps |= Caps::REMOTE_WRITE;
        }
        if !rng.one_in(20) {
            caps |= Caps::ATOMIC;
        }
        if plan.tagged == u64::MAX || !rng.one_in(20) {
            caps |= Caps::TAGGED_RMA;
        }
        Self {
            addr,
            incarnation,
            config: Config {
                incarnation,
                port: 1000 + addr as u16,
                name_port: 1000 + addr as u16,
                caps,
                auth_key: AuthKey::NONE,
                depth: plan.depth,
                reads: plan.reads,
                idle_time: plan.idle_time,
            },
            epoch: 0,
            sessions: BTreeMap::new(),
            unproven: Unproven::new(),
            shares: BTreeMap::new(),
            pairs: [Pair::new(plan), Pair::new(plan)],
            numbers: BTreeMap::new(),
            open: BTreeMap::new(),
            memory: vec![0; REGION],
            leaving: false,
            claims: Vec::new(),
            receives: BTreeSet::new(),
            drains: false,
        }
    }

    pub(crate) fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    pub(crate) fn session(&mut self, peer: Addr) -> &mut Session<Model> {
        let config = self.config;
        self.sessions.entry(peer).or_insert_with(|| {
            let (sends, rmas) = (Tree(BTreeMap::new()), Tree(BTreeMap::new()));
            Session::new(config, sends, rmas, Tree(BTreeMap::new()))
        })
    }

    /// Decides whether the request of a peer is handled. If `demands`, the limit is exceeded. The
    /// error is the cookie that the peer must repeat.
    pub(crate) fn check(
        &mut self,
        now: u64,
        plan: &Plan,
        from: Addr,
        cookie: Option<Cookie>,
        demands: bool,
    ) -> Result<(), Cookie> {
        let now = now.wrapping_mul(COOKIE_PERIOD / plan.cookie_time);
        let key = self.incarnation;
        let hash = |words: [u64; 4]| {
            let mix = |hash: u64, word: &u64| Rng::new(hash ^ word).next();
            words.iter().fold(key, mix)
        };
        let ends = Ends {
            peer: SockAddr::v4(Ipv4Addr::from_bits(from as u32), 1000 + from as u16),
            port: self.config.port,
        };
        while demands && self.unproven.check(now, &ends, None, false, hash).is_ok() {}
        self.unproven
            .check(now, &ends, cookie, false, hash)
            .map(|_| ())
    }

    /// Returns the number of answers to a peer that have not ended.
    pub(crate) fn answers(&self, peer: Addr) -> u32 {
        self.shares.get(&peer).map_or(0, Share::count)
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.sessions.values().filter_map(Session::deadline).min()
    }

    pub(crate) fn due(&self, now: u64) -> Vec<Addr> {
        let is_due = |session: &Session<Model>| session.deadline().is_some_and(|at| at <= now);
        self.sessions
            .iter()
            .filter(|(_, session)| is_due(session))
            .map(|(peer, _)| *peer)
            .collect()
    }

    /// Returns a part of the memory of this endpoint, if peers may access it.
    pub(crate) fn region(&mut self, key: u32, offset: u64, len: u32) -> Option<&mut [u8]> {
        let from = usize::try_from(offset).ok()?;
        let to = from.checked_add(len as usize)?;
        if key != KEY {
            return None;
        }
        self.memory.get_mut(from..to)
    }

    pub(crate) fn pair(&mut self, tagged: bool) -> &mut Pair {
        &mut self.pairs[usize::from(tagged)]
    }

    /// Returns the number of messages that wait for a receive.
    pub(crate) fn waiting(&self) -> u32 {
        self.pairs.iter().map(|pair| pair.unexpected.len()).sum()
    }

    /// Returns the number of receives that wait for a message.
    pub(crate) fn posted(&self, tagged: bool) -> u32 {
        self.pairs[usize::from(tagged)].posted.len()
    }

    pub(crate) fn check_idle(&self) {
        for (peer, session) in &self.sessions {
            assert!(
                session.is_spare(),
                "{}-{peer}: something is left, {:?}",
                self.addr,
                session.deadline()
            );
        }
        for pair in &self.pairs {
            assert_eq!(pair.reserved, 0);
            assert_eq!(pair.unexpected.charged(), 0);
        }
        assert!(self.open.is_empty(), "{:?}", self.open);
    }
}
