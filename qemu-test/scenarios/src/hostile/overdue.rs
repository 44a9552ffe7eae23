// SPDX-License-Identifier: GPL-2.0
//! A peer that keeps the victim's operations open: it acknowledges or refuses each packet, and
//! never sends what ends an operation. The victim's transmit contexts can be closed nevertheless.

use super::{
    field::{Attacker, Field, crowd},
    packet::Captured,
    peer::{Peer, epoch, greeting},
};
use crate::{
    harness::tests,
    host::{buffer, domain_on, errno, is_refused},
    rng::Rng,
};
use kfi::{
    AtomicOp, Buffer, Caps, Cq, CqBind, Datatype, Domain, Endpoint, Errno, Error, FiAddr, Op,
    Remote, ScalableEndpoint, Side, Wait,
};
use kfi_core::rdm::{
    header::{FinStatus, Header, RemoteAddr},
    times::{ANSWER_TIME, CHECK_TIME},
};
use kfi_roce::{
    headers::{Headers, Reth, RnrTimer, Syndrome},
    packet::Packet,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

tests![
    a_peer_that_answers_nothing_does_not_keep_contexts_open => 300,
];

/// The port of each address of the attacker.
const PORT: u16 = 1000;

const TAG: u64 = 0x7a67;

/// Bytes of a long message.
const LONG: usize = 20_000;

/// The time in which everything that is not delayed happens.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How an address of the attacker behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It acknowledges each request.
    Acknowledges,
    /// It acknowledges each request, and reads a part of a message.
    ReadsAPart,
    /// It refuses each request (RNR NAK).
    Refuses,
}

/// A connection of the attacker.
struct Foe {
    addr: Ipv4Addr,
    way: Way,
    peer: Option<Peer>,
    /// The number of its requests.
    requests: u32,
    /// The message or atomic that has come.
    id: Option<u64>,
    cancels: u32,
}

impl Foe {
    /// Takes a packet of the victim.
    fn hear(&mut self, attacker: &mut Attacker, rng: &mut Rng, captured: &Captured) {
        if self.peer.is_none() {
            let private = greeting(epoch(rng), PORT);
            self.peer = Peer::accept(attacker, rng, captured, &private);
            return;
        }
        let Some(peer) = &mut self.peer else {
            return;
        };
        let packet = peer.receive(attacker, captured);
        if let Some(packet) = packet.filter(|packet| !packet.opcode().is_response()) {
            self.answer(attacker, captured, &packet);
        }
    }

    fn answer(&mut self, attacker: &mut Attacker, captured: &Captured, packet: &Packet) {
        let syndrome = match self.way {
            Way::Refuses => Syndrome::Rnr(RnrTimer::at_least(20_000_000)),
            _ => Syndrome::ACK,
        };
        if let Some(peer) = &self.peer {
            peer.answer(attacker, packet, syndrome);
        }
        let bytes = captured.body().get(packet.payload());
        match bytes.map(Header::parse) {
            Some(Ok(Header::Rts(message, place))) => {
                if self.id.replace(message.id).is_none() && self.way == Way::ReadsAPart {
                    self.read(attacker, place);
                }
            }
            Some(Ok(Header::Atomic(message, _) | Header::TaggedRead(message, _))) => {
                self.id = Some(message.id);
            }
            Some(Ok(Header::Cancel { .. })) => self.cancels += 1,
            _ if self.way == Way::Refuses => self.id = Some(0),
            _ => {}
        }
    }

    /// Reads a part of a message.
    fn read(&mut self, attacker: &mut Attacker, RemoteAddr { va, rkey }: RemoteAddr) {
        let reth = Reth { va, rkey, len: 500 };
        if let Some(peer) = &self.peer {
            peer.request(attacker, self.requests, Headers::ReadRequest(reth), &[]);
            self.requests += 1;
        }
    }

    /// Sends a header.
    fn say(&mut self, attacker: &mut Attacker, header: &Header) {
        if let Some(peer) = &self.peer {
            peer.say(attacker, self.requests, header, &[]);
            self.requests += 1;
        }
    }
}

/// A transmit context of the victim, its operation, and the end of that.
struct Context {
    ep: Endpoint,
    cq: Cq,
    memory: Buffer,
    foe: Foe,
    end: Option<(Result<(), Errno>, Instant)>,
}

impl Context {
    /// Takes the end of its operation, if it has ended.
    fn look(&mut self) {
        let result = match self.cq.next(Duration::ZERO) {
            Ok(None) => return,
            Ok(Some(_)) => Ok(()),
            Err(Error::Completion(entry)) => Err(entry.err),
            Err(error) if error.errno() == Some(Errno::EAGAIN) => return,
            Err(error) => panic!("{error}"),
        };
        assert!(self.end.is_none(), "it ends twice: {result:?}");
        self.end = Some((result, Instant::now()));
    }
}

/// The victim and the attacker.
struct Siege {
    attacker: Attacker,
    rng: Rng,
    contexts: Vec<Context>,
    _sep: ScalableEndpoint,
    _field: Field,
}

impl Siege {
    /// A victim with a transmit context for each way.
    fn new(ways: &[Way]) -> (Self, Vec<FiAddr>) {
        let field = Field::new();
        let (_fabric, domain) = field.b.run(|| domain_on("roce0"));
        let mut attacker = Attacker::new(&field);
        attacker.is_silent = false;
        let mut rng = Rng::new(1);
        let av = domain.av().open().expect("av");
        let sep = domain
            .scalable_endpoint()
            .contexts(ways.len() as u32, 1)
            .caps(Caps::MSG | Caps::RMA | Caps::ATOMIC | Caps::TAGGED | Caps::TAGGED_RMA)
            .open()
            .expect("scalable endpoint");
        sep.bind_av(&av).expect("bind");
        sep.enable().expect("enable");
        let mut peers = Vec::new();
        let contexts = (0..).zip(ways).map(|(index, way)| {
            let addr = crowd(0, &mut rng);
            let name = SocketAddr::from((addr, PORT));
            peers.push(av.insert_one(name).expect("av insert"));
            context(&domain, &sep, index, addr, *way)
        });
        let contexts = contexts.collect();
        let siege = Self {
            attacker,
            rng,
            contexts,
            _sep: sep,
            _field: field,
        };
        (siege, peers)
    }

    /// Lets the attacker act until `done` returns true. Returns whether that was within `limit`.
    fn act(&mut self, limit: Duration, mut done: impl FnMut(&[Context]) -> bool) -> bool {
        let begin = Instant::now();
        while !done(&self.contexts) {
            if begin.elapsed() > limit {
                return false;
            }
            match self.attacker.receive() {
                None => std::thread::sleep(Duration::from_millis(1)),
                Some(captured) => {
                    let mut foes = self.contexts.iter_mut().map(|context| &mut context.foe);
                    if let Some(foe) = foes.find(|foe| foe.addr == captured.way.to) {
                        foe.hear(&mut self.attacker, &mut self.rng, &captured);
                    }
                }
            }
            self.contexts.iter_mut().for_each(Context::look);
        }
        true
    }
}

/// Opens transmit context `index`, which has a CQ of its own.
fn context(
    domain: &Domain,
    sep: &ScalableEndpoint,
    index: u32,
    addr: Ipv4Addr,
    way: Way,
) -> Context {
    let cq = domain.cq().wait(Wait::Queue).open().expect("cq");
    let ep = sep.context(Side::Transmit, index).open().expect("context");
    ep.bind_cq(&cq, CqBind::empty()).expect("bind");
    ep.enable().expect("enable");
    let foe = Foe {
        addr,
        way,
        peer: None,
        requests: 0,
        id: None,
        cancels: 0,
    };
    Context {
        ep,
        cq,
        memory: buffer(LONG),
        foe,
        end: None,
    }
}

/// The operations of the test, by the index of their contexts.
const CANCELLED: usize = 0;
const READ_IN_PART: usize = 1;
const REFUSED: usize = 2;
const ATOMIC: usize = 3;
const TAGGED: usize = 4;
const WAITING: usize = 5;

fn a_peer_that_answers_nothing_does_not_keep_contexts_open() {
    let mut ways = [Way::Acknowledges; 6];
    ways[READ_IN_PART] = Way::ReadsAPart;
    ways[REFUSED] = Way::Refuses;
    let (mut siege, peers) = Siege::new(&ways);
    let operand = buffer(8);
    for (index, (context, to)) in siege.contexts.iter().zip(&peers).enumerate() {
        let (memory, to) = (&context.memory, *to);
        let small = memory.slice(..8);
        let op = match index {
            REFUSED => Op::write(to, memory, Remote::new(0, 1)),
            ATOMIC => {
                let (remote, read) = (Remote::new(0, 1), AtomicOp::AtomicRead);
                Op::fetch_atomic(to, &operand, small, remote, Datatype::Uint64, read)
            }
            TAGGED => Op::tread(to, memory, TAG, 0),
            _ => Op::send(to, memory),
        };
        context.ep.post_one(&op.context(5)).expect("post");
    }
    let all_have_come = |contexts: &[Context]| contexts.iter().all(|it| it.foe.id.is_some());
    assert!(siege.act(AT_ONCE, all_have_come));
    let begin = Instant::now();
    siege.contexts[CANCELLED].ep.cancel(5).expect("cancel");
    let is_cancelled = |contexts: &[Context]| contexts[CANCELLED].foe.cancels > 0;
    assert!(siege.act(AT_ONCE, is_cancelled));
    for index in [REFUSED, ATOMIC] {
        let cancelled = siege.contexts[index].ep.cancel(5);
        assert_eq!(errno(cancelled), Some(Errno::ENOENT), "{index}");
    }
    for context in &siege.contexts {
        is_refused(context.ep.clone().close(), Errno::EBUSY);
    }
    // Each ends in its time. A message that no receive has taken waits longer.
    let time = Duration::from_nanos(ANSWER_TIME + CHECK_TIME) + AT_ONCE;
    let have_ended = |contexts: &[Context]| {
        contexts[..WAITING]
            .iter()
            .all(|context| context.end.is_some())
    };
    let have_all = siege.act(time, have_ended);
    for (index, context) in siege.contexts.iter().enumerate() {
        let after = context.end.map(|(_, end)| end - begin);
        println!(
            "# {index}: {:?} {after:?}",
            context.end.map(|(result, _)| result)
        );
    }
    assert!(have_all);
    for (index, context) in siege.contexts[..WAITING].iter().enumerate() {
        let (result, end) = context.end.expect("the end");
        assert_eq!(result, Err(Errno::ETIMEDOUT), "{index}");
        let after = end - begin + AT_ONCE;
        assert!(
            after >= Duration::from_nanos(ANSWER_TIME),
            "{index}: {after:?}"
        );
    }
    let waiting = &mut siege.contexts[WAITING];
    assert!(waiting.end.is_none() && waiting.foe.cancels == 0);
    // It can be cancelled, if the peer answers.
    waiting.ep.cancel(5).expect("cancel");
    let is_cancelled = |contexts: &[Context]| contexts[WAITING].foe.cancels > 0;
    assert!(siege.act(AT_ONCE, is_cancelled));
    let Siege {
        contexts, attacker, ..
    } = &mut siege;
    let foe = &mut contexts[WAITING].foe;
    let fin = Header::Fin {
        id: foe.id.expect("a message"),
        status: FinStatus::Withdrawn,
    };
    foe.say(attacker, &fin);
    assert!(siege.act(AT_ONCE, |contexts| contexts[WAITING].end.is_some()));
    let result = siege.contexts[WAITING].end.map(|(result, _)| result);
    assert_eq!(result, Some(Err(Errno::ECANCELED)));
    for context in &siege.contexts {
        context.ep.clone().close().expect("close");
    }
}
