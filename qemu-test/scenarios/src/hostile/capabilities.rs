// SPDX-License-Identifier: GPL-2.0
//! Messages of a peer to endpoints that do not have the capability to receive them, as their
//! greetings have told the peer. The receives may be those of a shared context, for other
//! endpoints.

use super::{atomics::Scene, bad_atomics::message};
use crate::{harness::tests, host::buffer};
use kfi::{Caps, EpType, Errno, PacketCounter};
use kfi_core::rdm::header::{Header, RemoteAddr};

tests![
    messages_that_are_not_received_take_no_receive => 120,
];

const TAG: u64 = 0x7a67;

fn messages_that_are_not_received_take_no_receive() {
    let mut scene = Scene::new();
    let srx = scene.b.domain.srx().open().expect("srx");
    let into = buffer(64);
    srx.recv(&into, 1).expect("recv");
    srx.trecv(&into, TAG, 0, 2).expect("trecv");
    let place = RemoteAddr {
        va: 0x1000,
        rkey: 7,
    };
    for (caps, tag) in [
        (Caps::MSG, Some(TAG)),
        (Caps::TAGGED, None),
        (Caps::MSG | Caps::TAGGED | Caps::SEND, None),
        (Caps::MSG | Caps::TAGGED | Caps::SEND, Some(TAG)),
        (Caps::RMA, Some(TAG)),
    ] {
        let ep = scene.b.sharing(&srx, EpType::Rdm, caps);
        let port = ep.name().expect("name").port();
        for (header, bytes) in [
            (Header::Eager(message(1, tag, 8, false)), &[9; 8][..]),
            (Header::Rts(message(1, tag, 8, true), place), &[]),
        ] {
            let before = scene.count(PacketCounter::NakInvalidTx);
            let (mut peer, _) = scene.connect_to(port);
            peer.say(&mut scene.attacker, 0, &header, bytes);
            scene.refuses(&mut peer, &format!("a NAK for {caps:?} {header:?}"), before);
            scene.is_unharmed();
        }
        scene.b.expect_nothing();
    }
    // Both receives are still there.
    assert_eq!(into.to_vec(..), [0; 64]);
    let _last = scene.b.sharing(&srx, EpType::Rdm, Caps::MSG | Caps::TAGGED);
    for context in [1, 2] {
        srx.cancel(context).expect("cancel");
        scene.b.fails(context, Errno::ECANCELED);
    }
}
