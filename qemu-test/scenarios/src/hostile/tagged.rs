// SPDX-License-Identifier: GPL-2.0
//! Tagged RMA between a host and a peer that does not keep the protocol.

use super::{
    atomics::{MEMORY, Scene, packets_of, send},
    bad_atomics::{message, send_of},
    peer::Peer,
};
use crate::{
    harness::tests,
    host::{TRECEIVED, buffer},
};
use kfi::{Buffer, Errno, FiAddr, Op, PacketCounter};
use kfi_core::rdm::header::{FinStatus, Header, Message, RemoteAddr};
use kfi_roce::{headers::Syndrome, packet::Packet};
use std::{net::SocketAddr, time::Duration};

tests![
    invalid_tagged_rma_is_refused => 300,
    without_a_receive_it_is_answered => 60,
    a_read_gets_the_memory_of_the_receive_only => 60,
    bytes_that_were_not_requested_are_refused => 60,
    bytes_that_come_twice_are_refused => 60,
    no_byte_comes_after_a_fin => 60,
    a_fin_of_success_does_not_end_a_read => 60,
    a_fin_for_rma_does_not_end_a_message => 60,
];

pub(super) const TAG: u64 = 0x7a67;

/// The context of the victim's receive.
const RX: u64 = 9;

/// The place of bytes that the attacker does not give.
pub(super) const NOWHERE: RemoteAddr = RemoteAddr {
    va: 0x1000,
    rkey: 7,
};

/// The first message of a connection: tagged RMA of so many bytes.
fn first(len: u32) -> Message {
    message(1, Some(TAG), len, true)
}

/// A receive of the victim. No invalid packet may take it, or change its memory.
fn receive(scene: &Scene, memory: &Buffer) {
    memory.fill(0x5a);
    scene.b.ep.trecv(memory, TAG, 0, RX).expect("trecv");
}

/// Takes the receive back.
#[track_caller]
fn is_untouched(scene: &Scene, memory: &Buffer) {
    assert!(memory.to_vec(..).iter().all(|byte| *byte == 0x5a));
    scene.b.ep.cancel(RX).expect("cancel");
    let entry = scene.b.fails(RX, Errno::ECANCELED);
    assert_eq!(entry.flags, TRECEIVED, "{entry:?}");
}

/// The bytes of a header that are changed: their offset, and what they become.
type Change = (&'static str, usize, &'static [u8]);

/// Changes of both.
const CHANGES: &[Change] = &[
    ("version", 0, &[0xff]),
    ("no tag", 2, &[4]),
    ("no answer", 2, &[1]),
    ("an unknown flag", 2, &[0x15]),
    ("a status", 3, &[1]),
    ("more than 1 GiB", 4, &[0x40, 0, 0, 1]),
    ("4 GiB", 4, &[0xff; 4]),
    ("after itself", 16, &[0, 0, 0, 0, 0, 0, 0, 1]),
    ("after a later one", 16, &[0xff; 8]),
    ("CQ data without their flag", 32, &[0, 0, 0, 0, 0, 0, 0, 1]),
];

const CHANGES_OF_WRITES: &[Change] = &[
    ("an offset of more than 1 GiB", 52, &[0x40, 0, 0, 1]),
    ("the largest offset", 52, &[0xff; 4]),
];

const CHANGES_OF_READS: &[Change] = &[
    ("CQ data", 2, &[7]),
    ("an offset of more than 1 GiB", 40, &[0x40, 0, 0, 1]),
    ("the largest offset", 40, &[0xff; 4]),
    ("a reserved field", 44, &[0, 0, 0, 1]),
];

/// Invalid tagged RMA, with what is wrong. None of them can take a receive.
pub(super) fn invalid() -> Vec<(String, Vec<u8>)> {
    let [write, read] = requests(8, 0);
    let mut sends = Vec::new();
    for (good, changes) in [(write, CHANGES_OF_WRITES), (read, CHANGES_OF_READS)] {
        for (what, at, new) in CHANGES.iter().chain(changes) {
            let mut bytes = good.clone();
            bytes[*at..*at + new.len()].copy_from_slice(new);
            sends.push(((*what).to_owned(), bytes));
        }
        for len in [15, 16, 40, good.len() - 1] {
            sends.push((format!("{len} bytes only"), good[..len].to_vec()));
        }
    }
    sends
}

/// A write and a read of `len` bytes at an offset in the receive with [`TAG`].
pub(super) fn requests(len: u32, offset: u32) -> [Vec<u8>; 2] {
    [
        Header::TaggedWrite(first(len), NOWHERE, offset),
        Header::TaggedRead(first(len), offset),
    ]
    .map(|header| send_of(&header, &[]))
}

fn invalid_tagged_rma_is_refused() {
    let mut scene = Scene::new();
    let memory = buffer(64);
    receive(&scene, &memory);
    let mut sends = invalid();
    for good in requests(8, 0) {
        let long = [&good[..], &[0; 8]].concat();
        sends.push(("bytes behind the header".to_owned(), long));
    }
    for (what, bytes) in sends {
        let before = scene.count(PacketCounter::NakInvalidTx);
        let (mut peer, _) = scene.connect();
        send(&mut scene, &peer, 0, &packets_of(&bytes));
        scene.refuses(&mut peer, &what, before);
        assert_eq!(peer.acknowledged, 0, "{what}");
        scene.is_unharmed();
    }
    // Bytes behind a header are refused when they have come: the receive has been taken then.
    let mut taken = 0;
    while let Ok(Some(_)) | Err(kfi::Error::Completion(_)) =
        scene.b.cq.next(Duration::from_millis(200))
    {
        taken += 1;
    }
    assert_eq!(taken, 1);
    assert!(memory.to_vec(..).iter().all(|byte| *byte == 0x5a));
    receive(&scene, &memory);
    is_untouched(&scene, &memory);
}

/// The answer of the victim to a message of the attacker: a FIN or a RESULT, with its bytes.
fn answer(scene: &mut Scene, peer: &mut Peer) -> (Header, Vec<u8>) {
    let mut found = None;
    scene.hear(peer, "an answer", |_, heard| {
        let Some((captured, packet)) = heard else {
            return false;
        };
        let bytes = captured.body().get(packet.payload()).unwrap_or_default();
        if let Ok(header @ (Header::Fin { .. } | Header::Result { .. })) = Header::parse(bytes) {
            found = Some((header, bytes[header.len()..].to_vec()));
        }
        found.is_some()
    });
    found.expect("an answer")
}

fn without_a_receive_it_is_answered() {
    let mut scene = Scene::new();
    for header in [
        Header::TaggedRead(first(8), 0),
        Header::TaggedRead(first(1 << 30), 1 << 30),
        Header::TaggedWrite(first(8), NOWHERE, 0),
        Header::TaggedWrite(first(1 << 30), NOWHERE, 0),
    ] {
        let (mut peer, _) = scene.connect();
        peer.say(&mut scene.attacker, 0, &header, &[]);
        let fin = Header::Fin {
            id: 1,
            status: FinStatus::NoReceive,
        };
        assert_eq!(answer(&mut scene, &mut peer), (fin, Vec::new()));
        scene.is_unharmed();
    }
    scene.b.expect_nothing();
}

/// However much the attacker wants, it gets no other bytes.
fn a_read_gets_the_memory_of_the_receive_only() {
    let mut scene = Scene::new();
    let memory = buffer(64);
    for (len, offset, expected) in [
        (1 << 30, 0, 64),
        (1 << 30, 60, 4),
        (8, 64, 0),
        (1 << 30, 1 << 30, 0),
        (0, 0, 0),
    ] {
        receive(&scene, &memory);
        let (mut peer, _) = scene.connect();
        let header = Header::TaggedRead(first(len), offset);
        peer.say(&mut scene.attacker, 0, &header, &[]);
        let (header, bytes) = answer(&mut scene, &mut peer);
        let len = expected as u32;
        assert_eq!(header, Header::Result { id: 1, len });
        assert_eq!(bytes, vec![0x5a; expected]);
        // The attacker acknowledges nothing and goes: the receive ends with its connection.
        scene.hear(&mut peer, "the end", |peer, _| peer.is_dead());
        scene.b.fails(RX, Errno::ECONNRESET);
        scene.is_unharmed();
    }
}

/// Posts a tagged read of the victim. Returns its number, and its first packet.
fn post_read(scene: &mut Scene, peer: &mut Peer, to: SocketAddr, into: &Buffer) -> (u64, Packet) {
    let to = scene.b.av.insert_one(to).expect("av insert");
    scene.post_op(peer, Op::tread(to, into, TAG, 0))
}

fn bytes_that_were_not_requested_are_refused() {
    let mut scene = Scene::new();
    for len in [65, 4096, 1 << 30] {
        let (mut peer, addr) = scene.connect();
        let into = buffer(64);
        let (id, _) = post_read(&mut scene, &mut peer, addr, &into);
        let before = scene.count(PacketCounter::NakInvalidTx);
        let bytes = send_of(&Header::Result { id, len }, &[9; 2000]);
        send(&mut scene, &peer, 0, &packets_of(&bytes)[..1]);
        scene.refuses(&mut peer, "a NAK", before);
        assert_eq!(scene.result(), Err(Errno::EPROTO));
        assert_eq!(into.to_vec(..), [0; 64]);
        scene.is_unharmed();
    }
    // Fewer bytes are those of a short receive.
    let (mut peer, addr) = scene.connect();
    let into = buffer(64);
    let (id, request) = post_read(&mut scene, &mut peer, addr, &into);
    peer.answer(&mut scene.attacker, &request, Syndrome::ACK);
    let result = Header::Result { id, len: 4 };
    peer.say(&mut scene.attacker, 0, &result, &[9; 4]);
    assert_eq!(scene.result(), Err(Errno::EMSGSIZE));
    assert_eq!(into.to_vec(..5), [9, 9, 9, 9, 0]);
}

/// As the old values of an atomic.
fn bytes_that_come_twice_are_refused() {
    let mut scene = Scene::new();
    let (mut peer, addr) = scene.connect();
    let into = buffer(MEMORY);
    let posted = post_read(&mut scene, &mut peer, addr, &into);
    scene.hears_twice(&mut peer, posted, &into);
    scene.is_unharmed();
}

/// A FIN ends the read. The program uses the memory for something else, and the bytes come.
fn no_byte_comes_after_a_fin() {
    let mut scene = Scene::new();
    for status in [FinStatus::NoReceive, FinStatus::Withdrawn] {
        let (mut peer, addr) = scene.connect();
        let into = buffer(MEMORY);
        let (id, request) = post_read(&mut scene, &mut peer, addr, &into);
        let len = MEMORY as u32;
        let bytes = send_of(&Header::Result { id, len }, &vec![9; MEMORY]);
        let packets = packets_of(&bytes);
        peer.say(&mut scene.attacker, 0, &Header::Fin { id, status }, &[]);
        send(&mut scene, &peer, 1, &packets[..1]);
        peer.answer(&mut scene.attacker, &request, Syndrome::ACK);
        let result = scene.result();
        let ends = [Err(Errno::EPROTO), status.result().map_err(errno)];
        assert!(ends.contains(&result), "{result:?}");
        into.fill(7);
        send(&mut scene, &peer, 2, &packets[1..]);
        scene.hear(&mut peer, "the end of the connection", |peer, _| {
            peer.is_dead()
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(into.to_vec(..).iter().all(|byte| *byte == 7));
        scene.is_unharmed();
    }
}

/// An error number of the core, as the library has it.
fn errno(error: kfi_core::errno::Errno) -> Errno {
    Errno::from_raw(error.number() as i32)
}

fn a_fin_of_success_does_not_end_a_read() {
    let mut scene = Scene::new();
    for status in [FinStatus::Received, FinStatus::Truncated] {
        let (mut peer, addr) = scene.connect();
        let into = buffer(64);
        let (id, request) = post_read(&mut scene, &mut peer, addr, &into);
        peer.answer(&mut scene.attacker, &request, Syndrome::ACK);
        peer.say(&mut scene.attacker, 0, &Header::Fin { id, status }, &[]);
        assert_eq!(scene.result(), Err(Errno::EPROTO), "{status:?}");
        scene.is_unharmed();
    }
}

fn a_fin_for_rma_does_not_end_a_message() {
    let mut scene = Scene::new();
    let from = buffer(20_000);
    for status in [FinStatus::Truncated, FinStatus::NoReceive] {
        for (rma, result) in [
            (false, Err(Errno::EPROTO)),
            (true, status.result().map_err(errno)),
        ] {
            let (mut peer, addr) = scene.connect();
            let to: FiAddr = scene.b.av.insert_one(addr).expect("av insert");
            let op = if rma {
                Op::twrite(to, &from, TAG, 0)
            } else {
                Op::tsend(to, &from, TAG)
            };
            let (id, request) = scene.post_op(&mut peer, op);
            peer.answer(&mut scene.attacker, &request, Syndrome::ACK);
            peer.say(&mut scene.attacker, 0, &Header::Fin { id, status }, &[]);
            assert_eq!(scene.result(), result, "{status:?}, {rma}");
            scene.is_unharmed();
        }
    }
}
