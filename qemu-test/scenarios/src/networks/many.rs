// SPDX-License-Identifier: GPL-2.0
//! Broadcast and multicast addresses belong to no peer: programs cannot connect to them, and the
//! module sends no packets to them.

use super::{PEER, Wire, dgram, errno, first_message, msg};
use crate::{
    harness::tests,
    host::{Host, Options, domain_on, exchange, link_packets, netns_packets, until},
};
use kfi::{Buffer, Errno, FiAddr, PacketCounter, QpAddr, Remote};
use std::net::{IpAddr, SocketAddr};

tests![
    many_hosts_are_no_peer,
    datagrams_are_not_sent_to_many_hosts,
    reliable_datagrams_are_not_sent_to_many_hosts,
];

/// Addresses of an endpoint, and those of many hosts that it could reach: of its subnet, of all
/// hosts, of groups.
const ADDRESSES: [(&str, &[&str]); 2] = [
    (
        "192.0.2.1:0",
        &["192.0.2.255", "255.255.255.255", "224.0.0.1", "239.1.2.3"],
    ),
    ("[2001:db8::1]:0", &["ff02::1", "ff0e::101"]),
];

/// An endpoint of `options` at each address, each with addresses of many hosts.
fn each(wire: &Wire, options: &Options, run: impl Fn(&Host, IpAddr)) {
    for (own, many) in ADDRESSES {
        let own = own.parse().expect("address");
        let host = wire.a.run(|| {
            let (_fabric, domain) = domain_on("roce0");
            Host::at(&domain, options, Some(own))
        });
        for ip in many {
            run(&host, ip.parse().expect("address"));
        }
    }
}

/// Packets that the first host has sent.
fn sent(wire: &Wire) -> u64 {
    wire.a.run(|| {
        let all = [link_packets(), netns_packets()];
        let sent = |packets: &kfi::Packets| packets.get(PacketCounter::TxPackets);
        all.iter().map(sent).sum()
    })
}

fn many_hosts_are_no_peer() {
    let wire = Wire::new();
    each(&wire, &msg(), |host, ip| {
        let to = QpAddr {
            host: SocketAddr::new(ip, 0),
            qpn: 0x55,
        };
        let refused = errno(host.ep.connect_qp(to, 1));
        assert_eq!(refused, Some(Errno::EINVAL), "{ip}");
    });
    assert_eq!(sent(&wire), 0);
    let (a, b) = wire.pair();
    exchange(&a, PEER, &b, 8);
}

/// An address in the endpoint's AV.
fn known(host: &Host, ip: IpAddr) -> FiAddr {
    let addr = SocketAddr::new(ip, 0x55);
    host.av.insert_one(addr).expect("insert")
}

fn datagrams_are_not_sent_to_many_hosts() {
    let wire = Wire::new();
    each(&wire, &dgram(), |host, ip| {
        let to = known(host, ip);
        let buffer = Buffer::new(8).expect("buffer");
        let unreachable = Some(Errno::EHOSTUNREACH);
        assert_eq!(errno(host.ep.send(to, &buffer, 1)), unreachable, "{ip}");
        assert_eq!(errno(host.ep.inject(to, b"x")), unreachable, "{ip}");
        let data = host.ep.senddata(to, &buffer, 5, 1);
        assert_eq!(errno(data), unreachable, "{ip}");
        host.expect_nothing();
    });
    assert_eq!(sent(&wire), 0);
    // A datagram to one host is sent.
    let [a, b] = [&wire.a, &wire.b].map(|netns| Wire::host(netns, &dgram()));
    let to_b = a.meet(&b);
    a.ep.inject(to_b, b"x").expect("inject");
    until("a datagram", || sent(&wire) == 1);
}

fn reliable_datagrams_are_not_sent_to_many_hosts() {
    let wire = Wire::new();
    each(&wire, &Options::default(), |host, ip| {
        let to = known(host, ip);
        let buffer = Buffer::new(8).expect("buffer");
        let remote = Remote::new(0, 1);
        for (what, posted) in [
            ("send", host.ep.send(to, &buffer, 1)),
            ("tsend", host.ep.tsend(to, &buffer, 7, 1)),
            ("inject", host.ep.inject(to, b"x")),
            ("read", host.ep.read(to, &buffer, remote, 1)),
            ("write", host.ep.write(to, &buffer, remote, 1)),
        ] {
            let refused = errno(posted);
            assert_eq!(refused, Some(Errno::EHOSTUNREACH), "{what} {ip}");
        }
        host.expect_nothing();
    });
    assert_eq!(sent(&wire), 0);
    first_message(&wire);
}
