// SPDX-License-Identifier: GPL-2.0
//! Receives of reliable datagrams whose message has come in part when its sender violates the
//! protocol.

use super::{
    atomics::{Scene, packets_of, send},
    bad_atomics::send_of,
};
use crate::{
    harness::tests,
    host::{buffer, until},
};
use kfi::{Errno, PacketCounter};
use kfi_core::rdm::header::{Header, Message, RemoteAddr};
use kfi_roce::headers::Headers;

tests![
    a_message_that_is_longer_than_announced_ends_its_receive => 60,
    an_invalid_send_ends_a_receive_whose_bytes_are_read => 60,
];

/// The first message of a peer, of `len` bytes.
fn message(len: u32, finish: bool) -> Message {
    Message {
        id: 1,
        after: 0,
        tag: None,
        data: None,
        len,
        finish,
        void: false,
    }
}

fn a_message_that_is_longer_than_announced_ends_its_receive() {
    let mut scene = Scene::new();
    let (mut peer, _) = scene.connect();
    let into = buffer(4096);
    scene.b.ep.recv(&into, 5).expect("recv");
    let bytes = send_of(&Header::Eager(message(1100, false)), &[1; 2500]);
    send(&mut scene, &peer, 0, &packets_of(&bytes));
    scene.hear(&mut peer, "a NAK", |peer, _| peer.is_dead());
    assert_eq!(scene.result(), Err(Errno::EPROTO));
    until("the NAK is counted", || {
        scene.count(PacketCounter::NakInvalidTx) == 1
    });
    assert_eq!(into.to_vec(1100..), [0; 2996]);
    scene.is_unharmed();
}

/// The peer does not answer the READ of the message's bytes.
fn an_invalid_send_ends_a_receive_whose_bytes_are_read() {
    let mut scene = Scene::new();
    let (mut peer, _) = scene.connect();
    let into = buffer(65536);
    scene.b.ep.recv(&into, 5).expect("recv");
    let place = RemoteAddr {
        va: 0x1000,
        rkey: 0x77,
    };
    let rts = send_of(&Header::Rts(message(65536, true), place), &[]);
    let next = send(&mut scene, &peer, 0, &packets_of(&rts));
    scene.hear(&mut peer, "a READ", |_, heard| {
        heard.is_some_and(|(_, packet)| matches!(packet.headers(), Headers::ReadRequest(_)))
    });
    send(&mut scene, &peer, next, &packets_of(&[0xff; 16]));
    scene.hear(&mut peer, "a NAK", |peer, _| peer.is_dead());
    assert_eq!(scene.result(), Err(Errno::EPROTO));
    until("the NAK is counted", || {
        scene.count(PacketCounter::NakInvalidTx) == 1
    });
    scene.is_unharmed();
}
