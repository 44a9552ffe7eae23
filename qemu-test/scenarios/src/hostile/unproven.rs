// SPDX-License-Identifier: GPL-2.0
//! Messages of connection management from a sender that has not yet answered. Their source address
//! may be forged, so the module's answers may go to a host that has sent nothing.

use super::{
    A, B,
    attacks::ip_header,
    packet::{Capture, RawSocket, Way, request, to_gsi},
    peer::{cookie_of, epoch, greeting, with_cookie, with_key},
};
use crate::{
    harness::tests,
    host::{Host, Options, SOON, domain_on, exchange, netns_count, until},
    networks::Wire,
    raw::ip,
    rng::Rng,
};
use kfi::{Device, EventKind, FiAddr, PacketCounter, Wait};
use kfi_core::{
    auth_key::AuthKey,
    rdm::{
        Cookie,
        hello::Refusal,
        service_id,
        times::{UNPROVEN_BURST, UNPROVEN_INTERVAL},
    },
};
use kfi_roce::{
    cm::{
        Attribute, Body, CommId, Message, Private, Reason, Regarding, Rej, Rep, ServiceId, Timeout,
    },
    headers::Qpn,
};
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

tests![
    one_request_brings_five_packets => 60,
    a_repeated_request_is_seldom_answered => 60,
    a_reply_to_the_connection_of_another_host_is_rejected => 60,
    requests_beyond_a_rate_need_a_cookie => 60,
    hosts_connect_beside_forged_requests => 120,
    a_request_with_the_qp_of_a_connection_does_not_end_it => 60,
    a_request_with_another_key_does_not_end_a_connection => 60,
    a_rejection_without_the_id_of_a_connection_does_not_end_it => 60,
    a_request_to_a_passive_endpoint_does_not_end_another_connection => 60,
];

/// Another address of the host of `a`.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// The address of no host.
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);

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
        let port = self.b.ep.name().expect("name").port();
        send_request(&self.socket, (A, 7471), port, 1, None);
    }

    /// Sends a REQ of the endpoint at `from`, which has not sent any. Returns the cookie that the
    /// endpoint asks for; `None` if it accepts.
    fn ask_as(&self, from: (Ipv4Addr, u16), id: u32, cookie: Option<Cookie>) -> Option<Cookie> {
        let port = self.b.ep.name().expect("name").port();
        send_request(&self.socket, from, port, id, cookie);
        let mut demand = None;
        let answered = self.receive(from.0, Duration::from_secs(10), |message| {
            match &message.body {
                Body::Rep(rep) => rep.remote_id == CommId(id),
                Body::Rej(rej) if rej.remote_id == CommId(id) => {
                    assert_eq!(rej.reason, Reason::CONSUMER_DEFINED);
                    demand = Some(cookie_of(rej.private.get()).expect("a cookie"));
                    true
                }
                _ => false,
            }
        });
        assert!(answered, "no answer");
        demand
    }

    /// Calls `each` with each message to `to`, until that returns true or the time is over. Returns
    /// whether it has returned true.
    fn receive(
        &self,
        to: Ipv4Addr,
        time: Duration,
        mut each: impl FnMut(&Message<'_>) -> bool,
    ) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            while let Some(captured) = self.capture.next() {
                let message = captured
                    .message()
                    .filter(|_| captured.way == Way::new(B, to));
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
        self.receive(A, Duration::from_secs(10), |message| {
            if let Body::Rep(rep) = &message.body {
                id = Some(rep.local_id);
            }
            id.is_some()
        });
        id.expect("a REP")
    }
}

/// Sends a REQ of the endpoint at `from` to the endpoint at `port` of `b`, with communication ID
/// `id`.
fn send_request(
    socket: &RawSocket,
    from: (Ipv4Addr, u16),
    port: u16,
    id: u32,
    cookie: Option<Cookie>,
) {
    let greeting = greeting(epoch(&mut Rng::new(id.into())), from.1);
    let greeting = match cookie {
        Some(cookie) => with_cookie(&greeting, cookie),
        None => greeting,
    };
    let way = Way::new(from.0, B);
    let mut req = request(way, service_id(port), &greeting);
    req.local_id = CommId(id);
    req.ca_guid = id.into();
    let (tid, body) = (id.into(), Body::Req(req));
    socket.send(&to_gsi(way, id, &Message { tid, body }));
}

fn one_request_brings_five_packets() {
    let scene = Scene::new();
    scene.ask();
    let mut captured = Vec::new();
    let mut hear = |time| {
        scene.receive(A, time, |message| {
            captured.push(message.attribute());
            message.attribute() == Attribute::Rej
        })
    };
    assert!(hear(GIVEN_UP), "it was not given up");
    // Nothing follows.
    assert!(!hear(Duration::from_secs(1)));
    let [replies @ .., last] = &captured[..] else {
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
    scene.receive(A, Duration::from_millis(200), |_| {
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
        qpn: Qpn::new(0x200),
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
    let rejected = scene.receive(OTHER, Duration::from_secs(10), |message| {
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

fn requests_beyond_a_rate_need_a_cookie() {
    let scene = Scene::new();
    let refused = || netns_count(&scene.wire.b, PacketCounter::CmUnproven);
    let begin = Instant::now();
    let (mut accepted, mut cookies) = (0, Vec::new());
    for id in 1..=100 {
        let from = (A, 1000 + id as u16);
        match scene.ask_as(from, id, None) {
            Some(cookie) => cookies.push((from, cookie)),
            None => accepted += 1,
        }
    }
    let refilled = begin.elapsed().as_nanos() / u128::from(UNPROVEN_INTERVAL);
    let most = u128::from(UNPROVEN_BURST) + refilled + 1;
    assert!(
        (UNPROVEN_BURST..=most as u32).contains(&accepted),
        "{accepted} accepted, at most {most} expected"
    );
    assert_eq!(refused(), cookies.len() as u64);
    // A cookie is of no use to another host, or to another endpoint of the host. A few of these
    // requests may need no cookie.
    let mut ids = 200..;
    let mut demands = |from, cookie| {
        let id = ids.next().expect("a number");
        scene.ask_as(from, id, Some(cookie)).is_some()
    };
    let others = |port| [(OTHER, port), (A, port + 1000)];
    for which in 0..2 {
        let mut tries = cookies.iter().take(10);
        assert!(tries.any(|((_, port), cookie)| demands(others(*port)[which], *cookie)));
    }
    // It is of use to its own endpoint, whatever the number of other requests.
    for (from, cookie) in cookies.iter().rev().take(10) {
        assert!(!demands(*from, *cookie));
    }
}

/// A thousand forged requests per second do not keep hosts from connecting.
fn hosts_connect_beside_forged_requests() {
    let wire = Wire::new();
    let b = Wire::host(&wire.b, &Options::default());
    let port = b.ep.name().expect("name").port();
    let refused = || netns_count(&wire.b, PacketCounter::CmUnproven);
    let socket = RawSocket::new(&wire.a);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 1.. {
                send_request(&socket, (NOBODY, 1 + (id % 50_000) as u16), port, id, None);
                thread::sleep(Duration::from_millis(1));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        until("refused requests", || refused() >= 10);
        for _ in 0..10 {
            let before = refused();
            let a = Wire::host(&wire.a, &Options::default());
            let to_b = a.meet(&b);
            let begin = Instant::now();
            exchange(&a, to_b, &b, 64);
            let time = begin.elapsed();
            assert!(time < Duration::from_secs(4), "{time:?}");
            until("more refused requests", || refused() > before);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Two connected endpoints, and what the host of the first one could be made to say in its name.
struct Victims {
    wire: Wire,
    hosts: [Host; 2],
    addr: FiAddr,
    captures: [Capture; 2],
    socket: RawSocket,
    /// The GUID, the QP and the communication ID in the REQ of the first endpoint.
    known: (u64, Qpn, CommId),
}

impl Victims {
    fn new() -> Self {
        let wire = Wire::new();
        let hosts = [&wire.a, &wire.b].map(|netns| Wire::host(netns, &Options::default()));
        let captures = [&wire.a, &wire.b].map(Capture::arriving);
        let mut victims = Self {
            addr: hosts[0].meet(&hosts[1]),
            socket: RawSocket::new(&wire.a),
            known: (0, Qpn::new(0), CommId(0)),
            wire,
            hosts,
            captures,
        };
        victims.exchange();
        let heard = std::iter::from_fn(|| victims.captures[1].next());
        let known = heard
            .filter_map(|heard| match heard.message()?.body {
                Body::Req(req) => Some((req.ca_guid, req.qpn, req.local_id)),
                _ => None,
            })
            .last();
        victims.known = known.expect("the REQ of the first endpoint");
        victims
    }

    /// A message arrives, over the same connection.
    fn exchange(&self) {
        let [a, b] = &self.hosts;
        exchange(a, self.addr, b, 64);
        while let Some(heard) = self.captures[0].next() {
            let message = heard.message().map(|message| message.body);
            assert!(
                !matches!(message, Some(Body::Dreq(_))),
                "the connection ends"
            );
        }
    }

    /// Sends a message in the name of the first endpoint.
    fn send(&self, psn: u32, body: Body<'_>) {
        let tid = psn.into();
        self.socket
            .send(&to_gsi(Way::new(A, B), psn, &Message { tid, body }));
    }

    /// Sends a REQ of that endpoint's device for a service, with private data.
    fn ask(&self, psn: u32, service: ServiceId, private: &[u8], qpn: Qpn, id: CommId) {
        let mut req = request(Way::new(A, B), service, private);
        (req.local_id, req.ca_guid, req.qpn) = (id, self.known.0, qpn);
        self.send(psn, Body::Req(req));
    }

    /// Sends 100 REQs of the first endpoint to the second, with the QP or the communication ID of
    /// the connection, and with what `private` makes of a greeting.
    fn forge(&self, private: impl Fn(u32, &[u8]) -> Vec<u8>) {
        let (_, qpn, id) = self.known;
        let ports = self.hosts.each_ref();
        let ports = ports.map(|host| host.ep.name().expect("name").port());
        let service = service_id(ports[1]);
        for number in 1..=50 {
            let greeting = greeting(epoch(&mut Rng::new(number.into())), ports[0]);
            let private = private(number, &greeting);
            self.ask(number, service, &private, qpn, CommId(number));
            self.ask(number, service, &private, Qpn::new(0x1000 + number), id);
        }
    }

    /// Waits until the second host has rejected so many REQs, all of them for this reason. It
    /// processes messages one after the other.
    fn rejects(&self, count: usize, reason: Reason) {
        self.rejects_with(count, |rej| {
            assert_eq!(rej.reason, reason);
            let cookie = cookie_of(rej.private.get());
            assert_eq!(cookie.is_some(), reason == Reason::CONSUMER_DEFINED);
        });
    }

    /// As [`rejects`](Self::rejects), with a check of each rejection.
    fn rejects_with(&self, count: usize, check: impl Fn(&Rej<'_>)) {
        let mut rejected = 0;
        until("a rejection of each request", || {
            while let Some(heard) = self.captures[0].next() {
                match heard.message().map(|message| message.body) {
                    Some(Body::Rej(rej)) => {
                        check(&rej);
                        rejected += 1;
                    }
                    Some(Body::Dreq(_)) => panic!("the connection ends"),
                    _ => {}
                }
            }
            rejected == count
        });
    }
}

/// A host that knows the GUID of another one, and guesses a QP number or a communication ID, can
/// forge such a request. It would end the connection, as if the other host had lost its state.
fn a_request_with_the_qp_of_a_connection_does_not_end_it() {
    let victims = Victims::new();
    victims.forge(|_, greeting| greeting.to_vec());
    victims.rejects(100, Reason::CONSUMER_DEFINED);
    victims.exchange();
}

/// Requests with guessed keys, in the name of the connection's peer. They are refused before a
/// cookie is made, and take no place of those that have the key.
fn a_request_with_another_key_does_not_end_a_connection() {
    let victims = Victims::new();
    let count = |counter| netns_count(&victims.wire.b, counter);
    let before = (
        count(PacketCounter::CmKey),
        count(PacketCounter::CmUnproven),
    );
    victims
        .forge(|number, greeting| with_key(greeting, AuthKey::new(number.to_be_bytes())).to_vec());
    victims.rejects_with(100, |rej| {
        assert_eq!(rej.reason, Reason::CONSUMER_DEFINED);
        let refusal = Refusal::parse(rej.private.get());
        assert_eq!(refusal, Some(Refusal::Key));
    });
    assert_eq!(count(PacketCounter::CmKey) - before.0, 100);
    assert_eq!(count(PacketCounter::CmUnproven), before.1);
    victims.exchange();
}

/// A peer that gives up names its request by GUID and communication ID, because it does not know
/// the other end's ID. After the connection was established, it does.
fn a_rejection_without_the_id_of_a_connection_does_not_end_it() {
    let victims = Victims::new();
    let (guid, _, id) = victims.known;
    let guid = guid.to_be_bytes();
    victims.send(
        1,
        Body::Rej(Rej {
            local_id: id,
            remote_id: CommId(0),
            regarding: Regarding::Other,
            reason: Reason::TIMEOUT,
            info: Private::new(&guid).expect("a GUID"),
            private: Private::NONE,
        }),
    );
    // Processed after it: nobody offers this service.
    let service = ServiceId::new(0);
    victims.ask(2, service, &[], Qpn::new(0x1000), CommId(!id.0));
    victims.rejects(1, Reason::INVALID_SERVICE_ID);
    victims.exchange();
}

/// A passive endpoint asks for no cookies. Anyone can open one.
fn a_request_to_a_passive_endpoint_does_not_end_another_connection() {
    let victims = Victims::new();
    let (fabric, _domain) = victims.wire.b.run(|| domain_on("roce0"));
    let eq = fabric.eq().wait(Wait::Queue).open().expect("eq");
    let open = fabric.passive_endpoint(SocketAddr::from((B, 0))).open();
    let pep = open.expect("passive endpoint");
    pep.bind_eq(&eq).expect("bind");
    pep.listen().expect("listen");
    let port = pep.name().expect("name").port();
    let (_, qpn, id) = victims.known;
    let private = ip_header(Way::new(A, B), 1);
    let service = ServiceId::tcp(port);
    victims.ask(1, service, &private, qpn, CommId(1));
    victims.ask(2, service, &private, Qpn::new(0x1000), id);
    let event = eq.read(SOON).expect("read").expect("an event");
    assert_eq!(event.kind, EventKind::ConnReq);
    // Two connections cannot have one ID.
    victims.rejects(1, Reason::STALE_CONN);
    victims.exchange();
}
