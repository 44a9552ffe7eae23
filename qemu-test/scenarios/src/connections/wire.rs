// SPDX-License-Identifier: GPL-2.0
//! Connections between two namespaces: the CM's messages on a wire, which may be lost.

use super::{
    CONSUMER, End, INVALID_MTU, Server, any_failure_within, event, exchange, failure, passive,
    queue, quiet, refused,
};
use crate::{
    harness::tests,
    host::{SOON, domain_on, netns_count},
    networks::Wire,
    raw::{ip, program},
};
use kfi::{Device, Errno, EventKind, PacketCounter, QpOption};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

tests![
    namespaces_connect,
    different_mtus_are_negotiated,
    connecting_survives_lost_messages => 400,
    a_peer_without_a_link_times_out => 60,
    a_removed_link_ends_its_connections,
    broadcast_and_multicast_addresses_are_refused,
];

/// An end in a namespace, and the listener in another.
pub(super) fn across(wire: &Wire, addr: &str) -> (Server, End) {
    let server = wire.b.run(|| Server::on(domain_on("roce0"), addr, 0));
    (server, end_in_a(wire, addr.starts_with('[')))
}

fn end_in_a(wire: &Wire, ipv6: bool) -> End {
    wire.a.run(|| {
        let (fabric, domain) = domain_on("roce0");
        let addr = ipv6.then(|| "[2001:db8::1]:0".parse().unwrap());
        End::on(&domain, &queue(&fabric), addr, 0)
    })
}

fn namespaces_connect() {
    let wire = Wire::new();
    for addr in [
        "192.0.2.2:0",
        "[2001:db8::2]:0",
        "0.0.0.0:7471",
        "[::]:7471",
    ] {
        let (server, a) = across(&wire, addr);
        let host = if addr.starts_with('[') {
            "2001:db8::2"
        } else {
            "192.0.2.2"
        };
        let to = SocketAddr::new(host.parse().unwrap(), server.addr().port());
        a.ep.connect(to, b"hello").expect("connect");
        let asked = server.asked();
        assert_eq!((asked.local, asked.link.as_str()), (to, "roce0"));
        assert!(asked.private.starts_with(b"hello\0"));
        let b = server.accept(&asked, b"");
        event(&a.eq, EventKind::Connected);
        event(&b.eq, EventKind::Connected);
        exchange(&a, &b, 100_000);
        exchange(&b, &a, 1);
        b.ep.shutdown().expect("shutdown");
        event(&a.eq, EventKind::Shutdown);
    }
}

/// Each end uses the lesser values of both. An end with a fixed path MTU is refused if the other
/// cannot have it.
fn different_mtus_are_negotiated() {
    let wire = Wire::new();
    for (of_a, of_b, path) in [(9000, 1500, 1024), (1500, 9000, 1024), (9000, 600, 512)] {
        for (netns, mtu) in [(&wire.a, of_a), (&wire.b, of_b)] {
            netns.run(|| ip(&format!("link set veth0 mtu {mtu}")));
        }
        let (server, a) = across(&wire, "192.0.2.2:0");
        let b = server.connect(&a);
        for end in [&a, &b] {
            assert_eq!(end.ep.qp().expect("qp").path_mtu, Some(path));
        }
        exchange(&a, &b, 100_000);
        exchange(&b, &a, 100_000);
    }
    let (server, a) = across(&wire, "192.0.2.2:0");
    a.ep.set_qp_option(QpOption::PathMtu, 4096).expect("option");
    a.ep.connect(server.addr(), b"").expect("connect");
    failure(&a.eq, Errno::ECONNREFUSED, INVALID_MTU);
    quiet(&server.eq);
}

/// Makes the network lose `percent` of the packets of either end.
fn lose(wire: &Wire, percent: u32) {
    for netns in [&wire.a, &wire.b] {
        let words = format!("qdisc replace dev veth0 root netem loss {percent}%");
        netns.run(|| program("tc", &words));
    }
}

fn connecting_survives_lost_messages() {
    let wire = Wire::new();
    let (server, first) = across(&wire, "192.0.2.2:0");
    // The hosts know each other's link-layer addresses before.
    server.connect(&first);
    lose(&wire, 10);
    let (mut refused, mut unconfirmed) = (0, 0);
    for round in 0..20 {
        let a = end_in_a(&wire, false);
        a.ep.connect(server.addr(), b"").expect("connect");
        let asked = server.asked();
        if round % 4 == 3 {
            server.pep.reject(asked.connreq, b"no").expect("reject");
            // A peer that got an MRA waits 18 s before it asks again for an answer that was lost,
            // and gives up if too many are lost.
            let error = any_failure_within(3 * SOON, &a.eq);
            match (error.err, error.prov_errno) {
                (Errno::ECONNREFUSED, CONSUMER) => refused += 1,
                (Errno::ETIMEDOUT, _) => {}
                other => panic!("{other:?}"),
            }
            continue;
        }
        let b = server.accept(&asked, b"");
        event(&a.eq, EventKind::Connected);
        // A REP is sent at most four times. If the RTU is lost each time, the connection times out.
        match b.eq.read(SOON) {
            Ok(event) => assert_eq!(event.expect("in time").kind, EventKind::Connected),
            Err(error) => {
                assert!(error.is(Errno::KFI_EAVAIL), "{error:?}");
                let error = b.eq.readerr().expect("readerr").expect("an error");
                assert_eq!(error.err, Errno::ETIMEDOUT);
                unconfirmed += 1;
                continue;
            }
        }
        drop(a);
        event(&b.eq, EventKind::Shutdown);
    }
    assert!(refused > 0, "not one of five was told");
    assert!(unconfirmed < 2, "{unconfirmed} of 15 were not confirmed");
    let resent = |netns| netns_count(netns, PacketCounter::CmResent);
    assert!(resent(&wire.a) + resent(&wire.b) > 0, "no message was lost");
    quiet(&server.eq);
}

fn a_peer_without_a_link_times_out() {
    let wire = Wire::new();
    wire.b.run(|| {
        let device = Device::open().expect("device");
        device.link_del("roce0").expect("link_del");
    });
    let a = end_in_a(&wire, false);
    let begin = Instant::now();
    a.ep.connect("192.0.2.2:5".parse().unwrap(), b"")
        .expect("connect");
    failure(&a.eq, Errno::ETIMEDOUT, 0);
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(5) && took < SOON, "{took:?}");
}

fn a_removed_link_ends_its_connections() {
    let wire = Wire::new();
    let (server, a) = across(&wire, "0.0.0.0:0");
    let to = SocketAddr::new("192.0.2.2".parse().unwrap(), server.addr().port());
    a.ep.connect(to, b"").expect("connect");
    let b = server.accept(&server.asked(), b"");
    event(&a.eq, EventKind::Connected);
    event(&b.eq, EventKind::Connected);
    // Another request waits, and a third one goes to an address without a host.
    let (c, d) = (end_in_a(&wire, false), end_in_a(&wire, false));
    c.ep.connect(to, b"").expect("connect");
    server.asked();
    d.ep.connect("192.0.2.77:5".parse().unwrap(), b"")
        .expect("connect");
    wire.a.run(|| ip("link delete veth0"));
    event(&a.eq, EventKind::Shutdown);
    event(&b.eq, EventKind::Shutdown);
    failure(&c.eq, Errno::ENODEV, 0);
    failure(&d.eq, Errno::ENODEV, 0);
    // No request can arrive any more.
    failure(&server.eq, Errno::ENODEV, 0);
    let pep = passive(&server.fabric, "0.0.0.0:0");
    pep.bind_eq(&server.eq).expect("bind");
    refused(pep.listen(), Errno::ENODEV);
}

/// Nothing is sent to broadcast and multicast addresses, and the endpoint can connect to a host
/// afterwards.
fn broadcast_and_multicast_addresses_are_refused() {
    for (host, many) in [
        (
            "192.0.2.2:0",
            &["192.0.2.255:5", "255.255.255.255:5", "239.1.2.3:5"][..],
        ),
        ("[2001:db8::2]:0", &["[ff02::1]:5", "[ff0e::101]:5"]),
    ] {
        let wire = Wire::new();
        let sent = || netns_count(&wire.a, PacketCounter::TxPackets);
        let (server, a) = across(&wire, host);
        let before = sent();
        for to in many {
            refused(a.ep.connect(to.parse().unwrap(), b""), Errno::EINVAL);
        }
        assert_eq!(sent(), before);
        let b = server.connect(&a);
        exchange(&a, &b, 100);
    }
}
