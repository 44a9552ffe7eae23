// SPDX-License-Identifier: GPL-2.0
//! Receives of reliable datagrams whose message has come in part when its sender violates the
//! protocol.

use super::{
    atomics::{Scene, packets_of, send},
    bad_atomics::{message, send_of},
};
use crate::{harness::tests, host::buffer};
use kfi::Errno;
use kfi_core::rdm::header::{Header, RemoteAddr};
use kfi_roce::headers::Headers;

tests![
    a_message_that_is_longer_than_announced_ends_its_receive => 60,
    an_invalid_send_ends_a_receive_whose_bytes_are_read => 60,
];

fn a_message_that_is_longer_than_announced_ends_its_receive() {
    let mut scene = Scene::new();
    let (mut peer, _) = scene.connect();
    let into = buffer(4096);
    scene.b.ep.recv(&into, 5).expect("recv");
    let bytes = send_of(&Header::Eager(message(1, None, 1100, false)), &[1; 2500]);
    send(&mut scene, &peer, 0, &packets_of(&bytes));
    scene.refuses(&mut peer, "a NAK", 0);
    assert_eq!(scene.result(), Err(Errno::EPROTO));
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
    let rts = send_of(&Header::Rts(message(1, None, 65536, true), place), &[]);
    let next = send(&mut scene, &peer, 0, &packets_of(&rts));
    scene.hear(&mut peer, "a READ", |_, heard| {
        heard.is_some_and(|(_, packet)| matches!(packet.headers(), Headers::ReadRequest(_)))
    });
    send(&mut scene, &peer, next, &packets_of(&[0xff; 16]));
    scene.refuses(&mut peer, "a NAK", 0);
    assert_eq!(scene.result(), Err(Errno::EPROTO));
    scene.is_unharmed();
}
