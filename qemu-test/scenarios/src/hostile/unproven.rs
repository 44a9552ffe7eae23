// SPDX-License-Identifier: GPL-2.0
//! Messages of connection management from a sender that has not yet answered. Their source address
//! may be forged, so the module's answers may go to a host that has sent nothing.

use super::{
    A, B,
    packet::{Capture, RawSocket, Way, request, to_gsi},
    peer::{epoch, greeting},
};
use crate::{
    harness::tests,
    host::{Host, Options},
    networks::Wire,
    raw::ip,
    rng::Rng,
};
use kfi::Device;
use kfi_core::rdm::service_id;
use kfi_roce::cm::{Attribute, Body, CommId, Message, Private, Reason, Rep, Timeout};
use std::{
    net::{Ipv4Addr, UdpSocket},
    time::{Duration, Instant},
};

tests![
    one_request_brings_five_packets => 60,
    a_repeated_request_is_seldom_answered => 60,
    a_reply_to_the_connection_of_another_host_is_rejected => 60,
];

/// Another address of the host of `a`.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// A little more than the time after which a connection that was not confirmed is given up: 8.1 s.
const GIVEN_UP: Duration = Duration::from_secs(12);

/// Two hosts. That of `a` has no link, so that only the test answers there.
struct Scene {
    wire: Wire,
    socket: RawSocket,
    capture: Capture,
    b: Host,
    /// Keeps the kernel from answering with ICMP errors.
    _port: UdpSocket,
}

impl Scene {
    fn new() -> Self {
        let wire = Wire::new();
        let port = wire.a.run(|| {
            let device = Device::open().expect("device");
            device.link_del("roce0").expect("link_del");
            ip(&format!("address add {OTHER}/24 dev veth0"));
            UdpSocket::bind("0.0.0.0:4791").expect("bind")
        });
        let b = Wire::host(&wire.b, &Options::default());
        Self {
            socket: RawSocket::new(&wire.a),
            capture: Capture::arriving(&wire.a),
            wire,
            b,
            _port: port,
        }
    }

    /// Sends a REQ that `b` accepts.
    fn ask(&self) {
        let service = service_id(self.b.ep.name().expect("name").port());
        let greeting = greeting(epoch(&mut Rng::new(1)), 7471);
        let way = Way::new(A, B);
        let body = Body::Req(request(way, service, &greeting));
        self.socket.send(&to_gsi(way, 0, &Message { tid: 1, body }));
    }

    /// Calls `each` with each message to `to`, until that returns true or the time is over. Returns
    /// whether it has returned true.
    fn hear(
        &self,
        to: Ipv4Addr,
        time: Duration,
        mut each: impl FnMut(&Message<'_>) -> bool,
    ) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            while let Some(heard) = self.capture.next() {
                let message = heard.message().filter(|_| heard.way == Way::new(B, to));
                if message.is_some_and(|message| each(&message)) {
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// The communication ID of `b` for the connection that it has accepted.
    fn accepted(&self) -> CommId {
        let mut id = None;
        self.hear(A, Duration::from_secs(10), |message| {
            if let Body::Rep(rep) = &message.body {
                id = Some(rep.local_id);
            }
            id.is_some()
        });
        id.expect("a REP")
    }
}

fn one_request_brings_five_packets() {
    let scene = Scene::new();
    scene.ask();
    let mut heard = Vec::new();
    scene.hear(A, GIVEN_UP, |message| {
        heard.push(message.attribute());
        false
    });
    let [replies @ .., last] = &heard[..] else {
        panic!("nothing was heard");
    };
    assert_eq!((replies, last), (&[Attribute::Rep; 4][..], &Attribute::Rej));
}

fn a_repeated_request_is_seldom_answered() {
    let scene = Scene::new();
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < Duration::from_millis(500) {
        scene.ask();
        sent += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let intervals = begin.elapsed().as_millis() / 67;
    let mut replies = 0;
    scene.hear(A, Duration::from_millis(200), |_| {
        replies += 1;
        false
    });
    // The first REP, one in each interval of 67 ms, and one or two that the timer sends.
    assert!(
        sent > 20 && (intervals / 2..=intervals + 4).contains(&replies),
        "{replies} to {sent}"
    );
}

/// The ID in a REP is that of a connection with another host. The sender of the REP gets the same
/// answer as if there were no connection with this ID.
fn a_reply_to_the_connection_of_another_host_is_rejected() {
    let scene = Scene::new();
    scene.ask();
    let id = scene.accepted();
    let way = Way::new(OTHER, B);
    let rep = Rep {
        local_id: CommId(99),
        remote_id: id,
        qpn: kfi_roce::headers::Qpn::new(0x200),
        starting_psn: kfi_roce::psn::Psn::new(0),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: Timeout::new(0),
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 8,
        private: Private::NONE,
    };
    let body = Body::Rep(rep);
    scene
        .socket
        .send(&to_gsi(way, 1, &Message { tid: 5, body }));
    let rejected = scene.hear(OTHER, Duration::from_secs(10), |message| {
        let Body::Rej(rej) = &message.body else {
            panic!("{:?}", message.attribute());
        };
        assert_eq!((message.tid, rej.remote_id), (5, CommId(99)));
        assert_eq!((rej.local_id, rej.reason), (id, Reason::INVALID_COMM_ID));
        true
    });
    assert!(rejected, "no answer");
    // The connection with the other host goes on: its REP is sent again.
    assert_eq!(scene.accepted(), id);
    drop(scene.wire);
}
