// SPDX-License-Identifier: GPL-2.0
//! Connections that are refused, invalid requests, and the limits of requests.

use super::{
    CONSUMER, End, INVALID_SERVICE_ID, NO_RESOURCES, QUIET, Server, cancelled, event, failure,
    padded, passive, queue, quiet, refused,
};
use crate::{
    abi_threads::as_user,
    harness::tests,
    host::{BOTH, SOON, buffer, device, domain, until},
};
use kfi::{Deadline, Endpoint, EpType, Errno, EventKind, Wait};
use std::time::{Duration, Instant};

tests![
    a_rejection_has_its_reason,
    a_request_without_a_listener_is_refused,
    the_backlog_is_bounded,
    a_full_event_queue_refuses_requests,
    closing_the_passive_endpoint_rejects,
    invalid_connects_are_refused,
    invalid_accepts_are_refused,
    invalid_listens_are_refused,
    ports_below_1024_need_a_capability,
    a_burst_of_requests_is_answered => 120,
];

fn a_rejection_has_its_reason() {
    let server = Server::new();
    let a = End::new(42);
    let into = buffer(8);
    a.ep.enable().expect("enable");
    a.ep.recv(&into, 9).expect("recv");
    a.ep.connect(server.addr(), b"").expect("connect");
    let asked = server.asked();
    server
        .pep
        .reject(asked.connreq, b"not today")
        .expect("reject");
    let error = failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
    assert_eq!((error.handle, error.context), (a.ep.handle(), 42));
    assert_eq!(error.private, padded(b"not today", 148));
    cancelled(&a, 9);
    // A request is answered once; an endpoint is connected once.
    refused(server.pep.reject(asked.connreq, b""), Errno::ENOENT);
    let b = server.end_for(&asked);
    let late = b.ep.accept(&server.pep, asked.connreq, b"");
    refused(late, Errno::ENOENT);
    refused(a.ep.connect(server.addr(), b""), Errno::EISCONN);
    refused(a.ep.recv(&into, 9), Errno::ESHUTDOWN);
    refused(a.ep.peer(), Errno::ENOTCONN);
}

fn a_request_without_a_listener_is_refused() {
    let a = End::new(0);
    let to = "127.0.0.2:9".parse().unwrap();
    a.ep.connect(to, b"").expect("connect");
    failure(&a.eq, Errno::ECONNREFUSED, INVALID_SERVICE_ID);
    // A passive endpoint does not listen before the call, nor after it is closed.
    let server = Server::new();
    let addr = server.addr();
    server.pep.close().expect("close");
    let a = End::new(0);
    a.ep.connect(addr, b"").expect("connect");
    failure(&a.eq, Errno::ECONNREFUSED, INVALID_SERVICE_ID);
}

fn the_backlog_is_bounded() {
    let server = Server::at("127.0.0.2:0", 2);
    let asking: Vec<End> = (0..3)
        .map(|number| {
            let a = server.asker(number);
            if number < 2 {
                // In this order.
                until("a request", || {
                    server.eq.peek(Deadline::POLL).expect("peek").is_some()
                });
                std::thread::sleep(QUIET);
            }
            a
        })
        .collect();
    failure(&asking[2].eq, Errno::ECONNREFUSED, NO_RESOURCES);
    let asked = server.asked();
    let _b = server.accept(&asked, b"");
    let _a = server.asker(3);
    server.asked();
    server.asked();
    quiet(&server.eq);
}

fn a_full_event_queue_refuses_requests() {
    let (fabric, _domain) = domain();
    let eq = fabric.eq().entries(1).wait(Wait::Queue).open().expect("eq");
    let pep = passive(&fabric, "127.0.0.2:0");
    pep.bind_eq(&eq).expect("bind");
    pep.listen().expect("listen");
    let (a, b) = (End::new(0), End::new(1));
    a.ep.connect(pep.name().expect("name"), b"")
        .expect("connect");
    until("a request", || {
        eq.peek(Deadline::POLL).expect("peek").is_some()
    });
    // The program would never get events of this one.
    b.ep.connect(pep.name().expect("name"), b"")
        .expect("connect");
    failure(&b.eq, Errno::ECONNREFUSED, NO_RESOURCES);
    let asked = event(&eq, EventKind::ConnReq);
    // It has lost nothing: the peer knows.
    assert!(eq.read(Deadline::POLL).expect("read").is_none());
    pep.reject(asked.connreq, b"").expect("reject");
    failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
}

fn closing_the_passive_endpoint_rejects() {
    let server = Server::new();
    let a = server.asker(0);
    server.asked();
    server.pep.close().expect("close");
    failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
}

fn invalid_connects_are_refused() {
    let server = Server::new();
    let (fabric, domain) = domain();
    // Without an event queue.
    let cq = domain.cq().open().expect("cq");
    let ep = domain.endpoint().ep_type(EpType::Msg).open().expect("ep");
    ep.bind_cq(&cq, BOTH).expect("bind");
    refused(ep.connect(server.addr(), b""), Errno::KFI_ENOEQ);
    // Another type of endpoint.
    let rdm = domain.endpoint().open().expect("ep");
    refused(rdm.connect(server.addr(), b""), Errno::EOPNOTSUPP);
    // Without a CQ.
    let bare = domain.endpoint().ep_type(EpType::Msg).open().expect("ep");
    refused(bare.connect(server.addr(), b""), Errno::KFI_ENOCQ);
    // Another family, or an address of no host.
    let a = End::on(&domain, &queue(&fabric), None, 0);
    for nobody in ["[::1]:5", "0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5"] {
        refused(a.ep.connect(nobody.parse().unwrap(), b""), Errno::EINVAL);
    }
    // It can still connect to others.
    server.connect(&a);
}

fn invalid_accepts_are_refused() {
    let server = Server::new();
    let a = server.asker(0);
    let asked = server.asked();
    let b = server.end_for(&asked);
    refused(
        b.ep.accept(&server.pep, asked.connreq + 1, b""),
        Errno::ENOENT,
    );
    // Another address of the link.
    let elsewhere = Some("127.0.0.3:0".parse().unwrap());
    let c = End::on(&server.domain, &server.eq, elsewhere, 0);
    refused(c.ep.accept(&server.pep, asked.connreq, b""), Errno::EINVAL);
    let rdm = server.domain.endpoint().open().expect("ep");
    refused(
        rdm.accept(&server.pep, asked.connreq, b""),
        Errno::EOPNOTSUPP,
    );
    // The request is still valid after these refusals.
    b.ep.accept(&server.pep, asked.connreq, b"")
        .expect("accept");
    event(&a.eq, EventKind::Connected);
}

fn invalid_listens_are_refused() {
    let (fabric, _domain) = domain();
    let eq = queue(&fabric);
    let open = |addr| passive(&fabric, addr);
    let pep = open("127.0.0.2:7471");
    refused(pep.listen(), Errno::KFI_ENOEQ);
    pep.bind_eq(&eq).expect("bind");
    refused(pep.bind_eq(&eq), Errno::EINVAL);
    pep.listen().expect("listen");
    refused(pep.listen(), Errno::KFI_EOPBADSTATE);
    refused(pep.bind_eq(&eq), Errno::KFI_EOPBADSTATE);
    for (addr, errno) in [
        ("127.0.0.2:7471", Errno::EADDRINUSE),
        ("0.0.0.0:7471", Errno::EADDRINUSE),
        ("192.0.2.9:7471", Errno::EADDRNOTAVAIL),
    ] {
        let other = open(addr);
        other.bind_eq(&eq).expect("bind");
        refused(other.listen(), errno);
    }
    // Another address, port or family.
    for addr in ["127.0.0.3:7471", "127.0.0.2:7472", "[::]:7471"] {
        let other = open(addr);
        other.bind_eq(&eq).expect("bind");
        other.listen().expect("listen");
    }
    // An event queue of another fabric.
    let other = device().fabric().expect("fabric");
    let late = open("127.0.0.4:1");
    refused(late.bind_eq(&queue(&other)), Errno::EINVAL);
    let long = fabric.passive_endpoint("127.0.0.2:1".parse().unwrap());
    refused(long.backlog(4097).open(), Errno::EINVAL);
    // The port is free again.
    pep.close().expect("close");
    let pep = open("127.0.0.2:7471");
    pep.bind_eq(&eq).expect("bind");
    pep.listen().expect("listen");
}

/// The task that listens or connects needs it.
fn ports_below_1024_need_a_capability() {
    let (fabric, domain) = domain();
    let eq = queue(&fabric);
    let open = |addr: &str| {
        let pep = passive(&fabric, addr);
        pep.bind_eq(&eq).expect("bind");
        pep
    };
    let (pep, other) = (open("127.0.0.2:445"), open("127.0.0.2:1024"));
    let ends = ["127.0.0.3:1023", "127.0.0.3:1024"]
        .map(|addr| End::on(&domain, &eq, Some(addr.parse().unwrap()), 0));
    let to = "127.0.0.2:445".parse().unwrap();
    as_user(|| {
        refused(pep.listen(), Errno::EACCES);
        other.listen().expect("listen");
        refused(ends[0].ep.connect(to, b""), Errno::EACCES);
    });
    pep.listen().expect("listen");
    as_user(|| {
        refused(ends[0].ep.connect(to, b""), Errno::EACCES);
        // The port of the peer needs no right.
        ends[1].ep.connect(to, b"").expect("connect");
    });
    ends[0].ep.connect(to, b"").expect("connect");
    event(&eq, EventKind::ConnReq);
    event(&eq, EventKind::ConnReq);
}

fn a_burst_of_requests_is_answered() {
    const ASKERS: u64 = 400;
    let server = Server::at("127.0.0.2:0", 32);
    let (fabric, domain) = domain();
    let eq = queue(&fabric);
    let cq = domain.cq().open().expect("cq");
    let askers: Vec<Endpoint> = (0..ASKERS)
        .map(|number| {
            let ep = domain
                .endpoint()
                .ep_type(EpType::Msg)
                .context(number)
                .tx_size(1)
                .rx_size(1)
                .open()
                .expect("endpoint");
            ep.bind_cq(&cq, BOTH).expect("bind");
            ep.bind_eq(&eq).expect("bind");
            ep.connect(server.addr(), b"").expect("connect");
            ep
        })
        .collect();
    // Each gets an answer: it is refused for want of room, or it waits and is rejected.
    let mut refusals = 0;
    let mut ended = 0;
    let begin = Instant::now();
    while ended < ASKERS {
        assert!(begin.elapsed() < 3 * SOON, "{ended} of {ASKERS}");
        while let Some(error) = eq.readerr().expect("readerr") {
            // On a slow machine the last ones give up before they have an answer.
            assert!(matches!(error.err, Errno::ECONNREFUSED | Errno::ETIMEDOUT));
            refusals += u64::from(error.prov_errno == NO_RESOURCES);
            ended += 1;
        }
        while let Some(event) = server.eq.read(Deadline::POLL).expect("read") {
            let asked = event.connection().expect("a request");
            server.pep.reject(asked.connreq, b"").expect("reject");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{refusals} of {ASKERS} refused for want of room");
    drop(askers);
    // Requests of those that gave up may still be there, and take the places.
    while let Some(event) = server.eq.read(QUIET).expect("read") {
        let asked = event.connection().expect("a request");
        server.pep.reject(asked.connreq, b"").expect("reject");
    }
    // A new request is accepted.
    server.connect(&End::new(0));
}
