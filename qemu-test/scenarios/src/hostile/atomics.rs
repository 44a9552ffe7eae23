// SPDX-License-Identifier: GPL-2.0
//! Atomics of reliable datagrams between a host and a peer that does not keep the protocol. The
//! peer has made its connection as any other does.

use super::{
    B,
    bad_atomics::{self, BadSend, Target, addition, send_of},
    field::{Attacker, Field, crowd},
    packet::{Captured, Way},
    peer::{Peer, epoch, greeting},
};
use crate::{
    harness::tests,
    host::{FETCHED, Host, Options, REMOTE, buffer, buffer_of, link_count, register, until},
    networks::Wire,
    rng::Rng,
};
use kfi::{
    Access, AtomicOp, Buffer, Caps, Datatype, EpType, Errno, Error, FiAddr, Mr, Op, PacketCounter,
};
use kfi_core::rdm::{
    header::{FinStatus, Header},
    service_id,
};
use kfi_roce::{
    headers::{Headers, SendEnd, Syndrome},
    packet::Packet,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

tests![
    invalid_atomics_are_refused => 300,
    atomics_that_do_not_come_in_turn_are_not_executed => 60,
    values_that_come_twice_are_refused => 60,
    values_of_another_length_are_refused => 60,
    a_fin_does_not_end_an_atomic => 60,
];

const KEY: u64 = 0x1234;
const READ_ONLY: u64 = 0x1235;

/// Bytes of the open memory.
pub(super) const MEMORY: usize = 4096;

/// Bytes of a packet over a connection of the attacker.
const MTU: usize = 1024;

/// The longest time until an answer to a packet.
const ANSWERED: Duration = Duration::from_secs(10);

/// The victim at `b`, a good peer of it at `a`, and the attacker.
pub(super) struct Scene {
    field: Field,
    pub(super) attacker: Attacker,
    rng: Rng,
    pub(super) b: Host,
    /// The memory of `b`, with a region for all accesses and one for reading.
    memory: Buffer,
    _regions: [Mr; 2],
    a: Host,
    to_b: FiAddr,
    added: u64,
}

impl Scene {
    pub(super) fn new() -> Self {
        let field = Field::new();
        let options = Options::of(
            EpType::Rdm,
            Caps::MSG | Caps::RMA | Caps::ATOMIC | Caps::TAGGED | Caps::TAGGED_RMA,
        );
        let [a, b] = [&field.a, &field.b].map(|netns| Wire::host(netns, &options));
        let memory = buffer(MEMORY);
        let regions = [(KEY, REMOTE), (READ_ONLY, Access::REMOTE_READ)]
            .map(|(key, access)| register(&b.domain, &memory, access, key));
        let mut attacker = Attacker::new(&field);
        attacker.is_silent = false;
        let mut scene = Self {
            to_b: a.meet(&b),
            attacker,
            rng: Rng::new(1),
            field,
            b,
            memory,
            _regions: regions,
            a,
            added: 0,
        };
        scene.is_unharmed();
        scene
    }

    const TARGET: Target = Target {
        key: KEY as u32,
        len: MEMORY as u64,
        read_only: READ_ONLY as u32,
    };

    /// A counter of the victim's link.
    pub(super) fn count(&self, counter: PacketCounter) -> u64 {
        self.field.b.run(|| link_count(counter))
    }

    /// The good peer adds to the last word of the memory, whose other bytes are 0.
    #[track_caller]
    pub(super) fn is_unharmed(&mut self) {
        let last = MEMORY - 8;
        let one = buffer_of(&[1u64]);
        let before = buffer(8);
        let at = self._regions[0].remote(last as u64);
        let (datatype, sum) = (Datatype::Uint64, AtomicOp::Sum);
        let op = Op::fetch_atomic(self.to_b, &one, &before, at, datatype, sum);
        self.a.ep.post_one(&op.context(1)).expect("fetch_atomic");
        self.a.expect(FETCHED, 1);
        assert_eq!(before.elements::<u64>(), [self.added]);
        self.added += 1;
        assert!(self.memory.to_vec(..last).iter().all(|byte| *byte == 0));
        assert_eq!(self.memory.to_vec(last..), self.added.to_ne_bytes());
    }

    /// A connection of the attacker to the victim, of an endpoint at its address, which is
    /// returned.
    pub(super) fn connect(&mut self) -> (Peer, SocketAddr) {
        let port = self.b.ep.name().expect("name").port();
        self.connect_to(port)
    }

    /// [`connect`](Self::connect) to the victim's endpoint at this port.
    pub(super) fn connect_to(&mut self, victim: u16) -> (Peer, SocketAddr) {
        let way = Way::new(crowd(0, &mut self.rng), B);
        let port = 1 + self.rng.below(0xffff) as u16;
        let private = greeting(epoch(&mut self.rng), port);
        let service = service_id(victim);
        let (attacker, rng) = (&mut self.attacker, &mut self.rng);
        let mut peer = Peer::ask(attacker, rng, way, service, &private, |_| ());
        self.hear(&mut peer, "a connection", |peer, _| peer.is_up());
        (peer, SocketAddr::from((way.from, port)))
    }

    /// Passes packets to the attacker's end of a connection until `done` returns true. It is called
    /// at first, and with each packet to its QP.
    #[track_caller]
    pub(super) fn hear(
        &mut self,
        peer: &mut Peer,
        what: &str,
        mut done: impl FnMut(&mut Peer, Option<(&Captured, &Packet)>) -> bool,
    ) {
        let begin = Instant::now();
        while !done(peer, None) {
            assert!(
                begin.elapsed() < ANSWERED,
                "{what}: not within {ANSWERED:?}"
            );
            match self.attacker.receive() {
                None => std::thread::sleep(Duration::from_millis(1)),
                Some(captured) if peer.is_for(&captured) => {
                    if let Some(packet) = peer.receive(&mut self.attacker, &captured)
                        && done(peer, Some((&captured, &packet)))
                    {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Posts an atomic of the victim to the attacker, which reads `into.len()` bytes. Returns its
    /// number, and its first packet, which is not acknowledged.
    fn post(&mut self, peer: &mut Peer, to: SocketAddr, into: &Buffer) -> (u64, Packet) {
        let to = self.b.av.insert_one(to).expect("av insert");
        let remote = kfi::Remote::new(0, 1);
        let none = buffer(into.len());
        let (datatype, read) = (Datatype::Uint64, AtomicOp::AtomicRead);
        let op = Op::fetch_atomic(to, &none, into, remote, datatype, read);
        self.post_op(peer, op)
    }

    /// Posts an operation of the victim to the attacker that begins with a SEND. Returns its
    /// number, and its first packet, which is not acknowledged.
    pub(super) fn post_op(&mut self, peer: &mut Peer, op: Op<'_>) -> (u64, Packet) {
        self.b.ep.post_one(&op.context(5)).expect("post");
        let mut found = None;
        self.hear(peer, "an operation", |_, heard| {
            let Some((captured, packet)) = heard else {
                return false;
            };
            let header = captured.body().get(packet.payload()).map(Header::parse);
            if let Some(Ok(
                Header::Atomic(message, _)
                | Header::Rts(message, _)
                | Header::TaggedWrite(message, ..)
                | Header::TaggedRead(message, _),
            )) = header
            {
                found = Some((message.id, *packet));
            }
            found.is_some()
        });
        found.expect("an operation")
    }

    /// The peer begins to send the bytes that an operation of the victim reads for the second time.
    /// The operation may complete, and then the program uses the memory for something else. No byte
    /// of the second time arrives there.
    pub(super) fn hears_twice(
        &mut self,
        peer: &mut Peer,
        (id, request): (u64, Packet),
        into: &Buffer,
    ) {
        let len = MEMORY as u32;
        let bytes = |byte| send_of(&Header::Result { id, len }, &vec![byte; MEMORY]);
        let (first, second) = (bytes(1), bytes(2));
        let (first, second) = (packets_of(&first), packets_of(&second));
        // The operation cannot complete before it is acknowledged.
        let next = send(self, peer, 0, &first);
        let next = send(self, peer, next, &second[..1]);
        // All of it has been processed before the acknowledgement, which comes behind it.
        peer.answer(&mut self.attacker, &request, Syndrome::ACK);
        let result = self.result();
        // A connection that fails ends operations that were not acknowledged.
        assert!(matches!(result, Ok(()) | Err(Errno::EPROTO)), "{result:?}");
        into.fill(7);
        send(self, peer, next, &second[1..]);
        self.hear(peer, "the end of the connection", |peer, _| peer.is_dead());
        std::thread::sleep(Duration::from_millis(200));
        let changed = into.to_vec(..).iter().filter(|byte| **byte != 7).count();
        assert_eq!(changed, 0, "bytes were changed after the end: {result:?}");
    }

    /// The victim refuses what `peer` has sent, and counts one NAK of an invalid request more than
    /// `before`.
    #[track_caller]
    pub(super) fn refuses(&mut self, peer: &mut Peer, what: &str, before: u64) {
        self.hear(peer, what, |peer, _| peer.is_dead());
        let naks = || self.count(PacketCounter::NakInvalidTx);
        // The peer may see the NAK before it is counted.
        until(what, || naks() > before);
        assert_eq!(naks(), before + 1, "{what}");
    }

    /// The result of the victim's operation, which has context 5.
    pub(super) fn result(&self) -> Result<(), Errno> {
        match self.b.cq.next(ANSWERED) {
            Ok(Some(entry)) => {
                assert_eq!(entry.op_context, 5);
                Ok(())
            }
            Err(Error::Completion(entry)) => {
                assert_eq!(entry.op_context, 5);
                Err(entry.err)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The packets of a SEND.
pub(super) fn packets_of(bytes: &[u8]) -> Vec<(Headers, &[u8])> {
    let count = bytes.len().div_ceil(MTU).max(1);
    let end = SendEnd::Plain;
    let headers = |index| match (index, count) {
        (_, 1) => Headers::SendOnly(end),
        (0, _) => Headers::SendFirst,
        (index, count) if index + 1 == count => Headers::SendLast(end),
        _ => Headers::SendMiddle,
    };
    let part = |index| &bytes[index * MTU..bytes.len().min((index + 1) * MTU)];
    (0..count)
        .map(|index| (headers(index), part(index)))
        .collect()
}

/// Sends packets, of which the first is `number` behind the first of the connection. Returns the
/// number of the next packet.
pub(super) fn send(
    scene: &mut Scene,
    peer: &Peer,
    number: u32,
    packets: &[(Headers, &[u8])],
) -> u32 {
    let mut number = number;
    for (headers, payload) in packets {
        peer.request(&mut scene.attacker, number, *headers, payload);
        number += 1;
    }
    number
}

fn invalid_atomics_are_refused() {
    let mut scene = Scene::new();
    for bad in bad_atomics::all(&Scene::TARGET) {
        let BadSend {
            what,
            bytes,
            counter,
        } = bad;
        let naks = [
            PacketCounter::NakInvalidTx,
            PacketCounter::NakAccessTx,
            PacketCounter::NakOperationTx,
        ];
        let before = naks.map(|counter| scene.count(counter));
        let (mut peer, _) = scene.connect();
        send(&mut scene, &peer, 0, &packets_of(&bytes));
        scene.hear(&mut peer, &what, |peer, _| peer.is_dead());
        assert_eq!(peer.acknowledged, 0, "{what}");
        let expected = naks.map(|nak| u64::from(nak == counter));
        let grown = || {
            let after = naks.map(|counter| scene.count(counter));
            [0, 1, 2].map(|nak| after[nak] - before[nak])
        };
        // The NAK is counted after it was sent.
        until(&what, || grown() != [0; 3]);
        assert_eq!(grown(), expected, "{what}");
        scene.is_unharmed();
        scene.b.expect_nothing();
    }
}

/// Atomics that are void, that were executed before, or whose number is not the next one.
fn atomics_that_do_not_come_in_turn_are_not_executed() {
    let mut scene = Scene::new();
    let (mut peer, _) = scene.connect();
    let word = [Scene::TARGET.word(0)];
    let sends = [
        addition(2, true, &word, &[100]),
        addition(1, false, &word, &[1]),
        addition(1, false, &word, &[100]),
        addition(1, true, &word, &[100]),
        addition(3, false, &word, &[100]),
        addition(2, false, &word, &[2]),
        addition(2, false, &word, &[100]),
    ];
    for (number, bytes) in (0..).zip(&sends) {
        send(&mut scene, &peer, number, &packets_of(bytes));
    }
    let all = sends.len() as u32;
    scene.hear(&mut peer, "acknowledgements", |peer, _| {
        peer.acknowledged == all
    });
    assert!(peer.is_up());
    assert_eq!(scene.memory.to_vec(..8), 3u64.to_ne_bytes());
    scene.memory.write_at(0, &[0; 8]);
    scene.is_unharmed();
}

fn values_that_come_twice_are_refused() {
    let mut scene = Scene::new();
    let (mut peer, addr) = scene.connect();
    let into = buffer(MEMORY);
    let posted = scene.post(&mut peer, addr, &into);
    scene.hears_twice(&mut peer, posted, &into);
    assert_eq!(scene.count(PacketCounter::NakInvalidTx), 1);
    scene.is_unharmed();
}

fn values_of_another_length_are_refused() {
    let mut scene = Scene::new();
    for len in [0, 56, 72, 4096] {
        let (mut peer, addr) = scene.connect();
        let into = buffer(64);
        let (id, _) = scene.post(&mut peer, addr, &into);
        let before = scene.count(PacketCounter::NakInvalidTx);
        let bytes = vec![9; len];
        let len = len as u32;
        let bytes = send_of(&Header::Result { id, len }, &bytes);
        send(&mut scene, &peer, 0, &packets_of(&bytes)[..1]);
        scene.refuses(&mut peer, "a NAK", before);
        assert_eq!(scene.result(), Err(Errno::EPROTO));
        assert_eq!(into.to_vec(..), [0; 64]);
        scene.is_unharmed();
    }
}

/// A FIN ends messages. An atomic that returns values ends with them: the peer breaks the protocol.
fn a_fin_does_not_end_an_atomic() {
    let mut scene = Scene::new();
    for status in [FinStatus::Received, FinStatus::Withdrawn] {
        let (mut peer, addr) = scene.connect();
        let into = buffer(64);
        let (id, request) = scene.post(&mut peer, addr, &into);
        peer.answer(&mut scene.attacker, &request, Syndrome::ACK);
        peer.say(&mut scene.attacker, 0, &Header::Fin { id, status }, &[]);
        assert_eq!(scene.result(), Err(Errno::EPROTO), "{status:?}");
        scene.is_unharmed();
    }
}
