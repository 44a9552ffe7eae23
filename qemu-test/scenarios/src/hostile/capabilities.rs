// SPDX-License-Identifier: GPL-2.0
//! Messages of a peer to endpoints that do not have the capability to receive them, as their
//! greetings have told the peer. The receives may be those of a shared context, for other
//! endpoints.

use super::atomics::Scene;
use crate::{
    harness::tests,
    host::{buffer, failure, until},
};
use kfi::{Caps, CqBind, Endpoint, Errno, PacketCounter};
use kfi_core::rdm::header::{Header, Message, RemoteAddr};

tests![
    messages_that_are_not_received_take_no_receive => 120,
];

const TAG: u64 = 0x7a67;

/// The first message of a peer, of 8 bytes.
fn first(tag: Option<u64>, finish: bool) -> Message {
    Message {
        id: 1,
        after: 0,
        tag,
        data: None,
        len: 8,
        finish,
        void: false,
    }
}

/// An endpoint of the victim with a shared receive context.
fn member(scene: &Scene, srx: &kfi::SharedRx, caps: Caps) -> Endpoint {
    let ep = scene.b.domain.endpoint().caps(caps).shared_rx();
    let ep = ep.open().expect("endpoint");
    ep.bind_srx(srx).expect("bind srx");
    ep.bind_cq(&scene.b.cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind cq");
    ep.bind_av(&scene.b.av).expect("bind av");
    ep.enable().expect("enable");
    ep
}

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
        let ep = member(&scene, &srx, caps);
        let port = ep.name().expect("name").port();
        for (header, bytes) in [
            (Header::Eager(first(tag, false)), &[9; 8][..]),
            (Header::Rts(first(tag, true), place), &[]),
        ] {
            let before = scene.count(PacketCounter::NakInvalidTx);
            let (mut peer, _) = scene.connect_to(port);
            peer.say(&mut scene.attacker, 0, &header, bytes);
            scene.hear(&mut peer, "a NAK", |peer, _| peer.is_dead());
            // The peer may see the NAK before it is counted.
            until(&format!("a NAK for {caps:?} {header:?}"), || {
                scene.count(PacketCounter::NakInvalidTx) > before
            });
            assert_eq!(scene.count(PacketCounter::NakInvalidTx), before + 1);
            scene.is_unharmed();
        }
        scene.b.expect_nothing();
    }
    // Both receives are still there.
    assert_eq!(into.to_vec(..), [0; 64]);
    let _last = member(&scene, &srx, Caps::MSG | Caps::TAGGED);
    for context in [1, 2] {
        srx.cancel(context).expect("cancel");
        let entry = failure(&scene.b.cq);
        assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, context));
    }
}
