// SPDX-License-Identifier: GPL-2.0
//! The victims: endpoints at host b to which the attacker can connect. The open endpoint accepts
//! every peer and takes all messages. The keeper accepts every peer, too, and receives nothing. The
//! listener accepts every request and sends the first message.

use super::{
    B,
    field::{Facts, Field},
    tagged::TAG,
};
use crate::{
    host::{BOTH, Host, Options, REMOTE, buffer, domain_on, register},
    networks::Wire,
};
use kfi::{
    Access, Buffer, Caps, Cntr, CntrBind, CompFlags, Cq, CqBind, CqFormat, Deadline, Domain,
    Endpoint, EpType, Eq, Errno, Error, EventKind, Fabric, FiAddr, PassiveEndpoint,
    ScalableEndpoint, Side, Wait,
};
use std::{
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The key of the open endpoint's memory, and its bytes.
const KEY: u64 = 0x1234;
pub(super) const MEMORY: usize = 256 << 10;

/// The key of a region of the same memory that may be read only.
pub(super) const READ_ONLY: u64 = 0x1300;

/// Receives that are posted at the open endpoint, and their bytes.
const RECEIVES: usize = 16;
const RECEIVE: usize = 8 << 10;

/// Tagged receives besides.
const TAGGED: usize = 4;

/// Contexts of each side of a scalable endpoint.
const CONTEXTS: u32 = 2;

/// Time that the threads wait for an event before they check whether to end.
const LOOK: Duration = Duration::from_millis(20);

/// The accesses that the listener counts.
const ACCESSES: [CntrBind; 2] = [CntrBind::REMOTE_READ, CntrBind::REMOTE_WRITE];

/// Connections that the listener has at most.
const CONNECTIONS: usize = 256;

/// The size of the queues of a connection of the listener.
const QUEUE: u32 = 8;

/// Longest time until a peer confirms that it is connected.
const CONFIRMED: Duration = Duration::from_secs(3);

/// Longest time that a message with one retry waits for its acknowledgement. Whatever the peer
/// requests, the ACK timeout is at most 4.3 s the first time, and twice that the second time: 13 s.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// The threads of the victims.
pub(super) struct Victims {
    stop: Arc<AtomicBool>,
    /// Connections over which a message was sent, and those whose peer was given up.
    greeted: Arc<AtomicU64>,
    given_up: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    _scalable: Contexts,
    _keeper: Host,
}

impl Victims {
    /// Starts the victims, and adds their addresses to the attacker's facts.
    pub(super) fn begin(field: &Field, facts: &mut Facts) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let given_up = Arc::new(AtomicU64::new(0));
        let options = Options::default();
        let open = Wire::host(
            &field.b,
            &Options {
                caps: options.caps | Caps::ATOMIC | Caps::TAGGED_RMA,
                ..options
            },
        );
        facts.open = open.ep.name().expect("name").port();
        facts.key = KEY as u32;
        facts.tag = TAG;
        let keeper = Wire::host(&field.b, &Options::default());
        facts.keeper = keeper.ep.name().expect("name").port();
        let scalable = Contexts::new(field);
        facts.contexts = scalable.ports();
        let greeted = Arc::new(AtomicU64::new(0));
        let listener = Listener::new(field, greeted.clone(), given_up.clone());
        facts.listener = listener.pep.name().expect("name").port();
        let (one, other) = (stop.clone(), stop.clone());
        Self {
            stop,
            greeted,
            given_up,
            threads: vec![
                std::thread::spawn(move || take_all(&open, &one)),
                std::thread::spawn(move || listener.run(&other)),
            ],
            _scalable: scalable,
            _keeper: keeper,
        }
    }

    /// The failure, if a victim has failed.
    pub(super) fn failure(&self) -> Option<String> {
        let ended = self.threads.iter().any(JoinHandle::is_finished);
        ended.then(|| "a victim has ended; its message is above".to_owned())
    }

    /// Ends them. Returns the number of peers to which a message was sent, and the number of those
    /// that were given up because they did not acknowledge it.
    pub(super) fn end(&mut self) -> Result<[u64; 2], String> {
        self.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| "a victim panicked".to_owned())??;
        }
        Ok([&self.greeted, &self.given_up].map(|count| count.load(SeqCst)))
    }
}

/// A scalable endpoint, whose contexts wait for peers.
struct Contexts {
    _domain: Domain,
    sep: ScalableEndpoint,
    _contexts: Vec<(Endpoint, Cq)>,
}

impl Contexts {
    fn new(field: &Field) -> Self {
        let (_fabric, domain) = field.b.run(|| domain_on("roce0"));
        let av = domain.av().rx_ctx_bits(8).open().expect("av");
        let sep = domain.scalable_endpoint().contexts(CONTEXTS, CONTEXTS);
        let sep = sep.caps(Options::default().caps).open();
        let sep = sep.expect("scalable endpoint");
        sep.bind_av(&av).expect("bind");
        sep.enable().expect("enable");
        let context = |index| {
            let cq = domain.cq().format(CqFormat::Tagged).open().expect("cq");
            let ep = sep.context(Side::Recv, index).open().expect("context");
            ep.bind_cq(&cq, CqBind::empty()).expect("bind");
            ep.enable().expect("enable");
            (ep, cq)
        };
        Self {
            _contexts: (0..CONTEXTS).map(context).collect(),
            _domain: domain.clone(),
            sep,
        }
    }

    /// The ports of its contexts, which follow each other.
    fn ports(&self) -> Range<u16> {
        let first = self.sep.name().expect("name").port();
        first..first + CONTEXTS as u16
    }
}

/// Runs the open endpoint: takes all messages, and checks that its memory is not written.
fn take_all(host: &Host, stop: &AtomicBool) -> Result<(), String> {
    let memory = buffer(MEMORY);
    let _regions = [(KEY, REMOTE), (READ_ONLY, Access::REMOTE_READ)]
        .map(|(key, access)| register(&host.domain, &memory, access, key));
    let into: Vec<_> = (0..RECEIVES + TAGGED).map(|_| buffer(RECEIVE)).collect();
    // The last ones are tagged, for tagged RMA.
    let post = |context: u64| {
        let into = &into[context as usize];
        let result = if context < RECEIVES as u64 {
            host.ep.recv(into, context)
        } else {
            host.ep.trecv(into, TAG, 0, context)
        };
        result.expect("recv");
    };
    (0..into.len() as u64).for_each(post);
    while !stop.load(SeqCst) {
        match host.cq.next(LOOK) {
            Ok(Some(entry)) => {
                // No WRITE with data is executed.
                assert!(
                    !entry.flags.contains(CompFlags::REMOTE_CQ_DATA),
                    "{entry:?}"
                );
                post(entry.op_context);
            }
            // The sender's connection has failed.
            Err(Error::Completion(entry)) => post(entry.op_context),
            Ok(None) => {}
            Err(error) => panic!("cq: {error:?}"),
        }
    }
    let bytes = memory.to_vec(..);
    match bytes.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of the open memory was written")),
    }
}

/// An accepted connection.
struct Accepted {
    cq: Cq,
    ep: Endpoint,
    since: Instant,
    /// The time at which the message was posted.
    posted: Option<Instant>,
}

/// The state of the message that was sent over a connection.
enum Outcome {
    Waits,
    /// The peer has not acknowledged it.
    GivenUp,
    Other,
}

impl Accepted {
    fn outcome(&self) -> Outcome {
        match self.cq.next(Deadline::POLL) {
            Ok(None) => Outcome::Waits,
            Err(Error::Completion(entry)) if entry.err == Errno::ETIMEDOUT => Outcome::GivenUp,
            _ => Outcome::Other,
        }
    }
}

struct Listener {
    _fabric: Fabric,
    domain: Domain,
    eq: Eq,
    pep: PassiveEndpoint,
    accepted: Vec<Accepted>,
    hello: Buffer,
    /// Count the accesses of all peers. There is no region, so none counts.
    accesses: [Cntr; 2],
    greeted: Arc<AtomicU64>,
    given_up: Arc<AtomicU64>,
}

impl Listener {
    fn new(field: &Field, greeted: Arc<AtomicU64>, given_up: Arc<AtomicU64>) -> Self {
        let (fabric, domain) = field.b.run(|| domain_on("roce0"));
        let eq = fabric.eq().entries(512).wait(Wait::Queue).open();
        let eq = eq.expect("eq");
        let pep = fabric
            .passive_endpoint(SocketAddr::from((B, 0)))
            .open()
            .expect("passive endpoint");
        pep.bind_eq(&eq).expect("bind");
        pep.listen().expect("listen");
        let accesses = [(); 2].map(|()| domain.cntr().open().expect("cntr"));
        Self {
            _fabric: fabric,
            domain,
            accesses,
            eq,
            pep,
            accepted: Vec::new(),
            hello: buffer(64),
            greeted,
            given_up,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), String> {
        let result = loop {
            if stop.load(SeqCst) && self.accepted.is_empty() {
                break Ok(());
            }
            self.next_event(stop);
            if let Err(why) = self.look() {
                break Err(why);
            }
        };
        if let Err(why) = &result {
            eprintln!("listener: {why}");
        }
        result
    }

    fn next_event(&mut self, stop: &AtomicBool) {
        let event = match self.eq.read(LOOK) {
            Ok(Some(event)) => event,
            Ok(None) => return,
            // A connection that was not established.
            Err(_) => {
                let _ = self.eq.readerr();
                return;
            }
        };
        let Some(connection) = event.connection() else {
            return;
        };
        match event.kind {
            EventKind::ConnReq if stop.load(SeqCst) || self.accepted.len() == CONNECTIONS => {
                let _ = self.pep.reject(connection.connreq, b"");
            }
            EventKind::ConnReq => self.accept(connection.local, connection.connreq),
            EventKind::Connected => {
                let mut accepted = self.accepted.iter_mut();
                let it = accepted.find(|end| end.ep.handle() == connection.handle);
                if let Some(end) = it
                    && end.ep.send(FiAddr::UNSPEC, &self.hello, 1).is_ok()
                {
                    end.posted = Some(Instant::now());
                    self.greeted.fetch_add(1, SeqCst);
                }
            }
            _ => {
                let given_up = &self.given_up;
                self.accepted.retain(|end| {
                    let ended = end.ep.handle() == connection.handle;
                    if ended && matches!(end.outcome(), Outcome::GivenUp) {
                        given_up.fetch_add(1, SeqCst);
                    }
                    !ended
                });
            }
        }
    }

    /// Accepts a request, or rejects it if that fails. The queues are as small as the few messages
    /// need: there may be [`CONNECTIONS`] of them within the limit of the user.
    fn accept(&mut self, local: SocketAddr, connreq: u32) {
        let accept = || -> kfi::Result<Accepted> {
            let cq = self.domain.cq().format(CqFormat::Tagged).entries(QUEUE);
            let cq = cq.open()?;
            let ep = self.domain.endpoint().ep_type(EpType::Msg).addr(local);
            let ep = ep.tx_size(QUEUE).rx_size(QUEUE);
            let ep = ep.caps(Caps::MSG | Caps::RMA).open()?;
            ep.bind_cq(&cq, BOTH)?;
            ep.bind_eq(&self.eq)?;
            for (cntr, kind) in self.accesses.iter().zip(ACCESSES) {
                ep.bind_cntr(cntr, kind)?;
            }
            ep.accept(&self.pep, connreq, b"")?;
            Ok(Accepted {
                cq,
                ep,
                since: Instant::now(),
                posted: None,
            })
        };
        match accept() {
            Ok(accepted) => self.accepted.push(accepted),
            Err(_) => {
                let _ = self.pep.reject(connreq, b"");
            }
        }
    }

    /// Removes connections that have ended. Fails if one has not ended in time, or if an access was
    /// counted.
    fn look(&mut self) -> Result<(), String> {
        let accesses = self.accesses.each_ref().map(Cntr::value);
        if accesses != [0; 2] {
            return Err(format!(
                "READs and WRITEs that access nothing: {accesses:?} counted"
            ));
        }
        let mut late = None;
        let given_up = &self.given_up;
        self.accepted.retain(|end| match end.posted {
            None => end.since.elapsed() < CONFIRMED,
            Some(posted) => match end.outcome() {
                Outcome::Waits => {
                    if posted.elapsed() > GIVEN_UP {
                        late = Some(posted.elapsed());
                    }
                    true
                }
                Outcome::GivenUp => {
                    given_up.fetch_add(1, SeqCst);
                    false
                }
                Outcome::Other => false,
            },
        });
        late.map_or(Ok(()), |time| {
            Err(format!(
                "a message has waited for its acknowledgement for {time:?}"
            ))
        })
    }
}
