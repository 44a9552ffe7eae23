// SPDX-License-Identifier: GPL-2.0
//! Addresses and routes that are missing, that change, and that lead elsewhere. Each post follows
//! routing as a UDP packet would: it is delivered, or fails at once. Every type of endpoint is
//! tested, over IPv4 and IPv6.

mod ends;
mod lost_address;
mod moves;

pub(crate) use self::{
    ends::{Caller, ENDS, KINDS, Kind, Listener, addr, meet, reaches},
    lost_address::change_address,
};
use self::{
    lost_address::{
        a_link_without_the_address_is_down_or_removed, an_answer_by_a_removed_link_is_refused,
        an_endpoint_is_told_that_its_answer_was_lost, an_endpoint_without_its_address_is_told,
    },
    moves::{
        Place, connections_wait, datagrams_follow, host_prefix, requests_follow,
        the_old_link_receives_nothing,
    },
};
use crate::{
    harness::tests,
    host::{Host, domain_on, holding, is_refused, until},
    networks::Wire,
    raw::ip,
};
use kfi::{Device, Errno, FiAddr, QpAddr};
use std::net::{SocketAddr, SocketAddrV6};

tests![
    a_route_decides_about_a_post => 120,
    routes_change_under_connections => 180,
    an_endpoint_without_its_address_is_told => 180,
    an_endpoint_is_told_that_its_answer_was_lost => 180,
    an_answer_by_a_removed_link_is_refused,
    a_link_without_the_address_is_down_or_removed,
    a_service_address_moves => 300,
    links_of_one_host_reach_each_other => 120,
    link_local_addresses_have_a_scope => 120,
    an_interface_below_every_path_mtu_is_refused => 120,
];

/// Ignored by connected endpoints.
pub(crate) const PEER: FiAddr = FiAddr::UNSPEC;

/// One row: the destinations, by family, and the errors of reliable datagrams and of the others.
type Row = (&'static str, [&'static str; 2], Errno, Errno);

const ROWS: [Row; 6] = [
    (
        "no route",
        ["198.18.0.1", "2001:db8:ffff::1"],
        Errno::EHOSTUNREACH,
        Errno::ENETUNREACH,
    ),
    (
        "unreachable",
        ["198.18.1.1", "2001:db8:1::1"],
        Errno::EHOSTUNREACH,
        Errno::EHOSTUNREACH,
    ),
    (
        "prohibited",
        ["198.18.2.1", "2001:db8:2::1"],
        Errno::EHOSTUNREACH,
        Errno::EHOSTUNREACH,
    ),
    (
        "a blackhole",
        ["198.18.3.1", "2001:db8:3::1"],
        Errno::EHOSTUNREACH,
        Errno::EHOSTUNREACH,
    ),
    (
        "by another interface",
        ["198.18.4.2", "2001:db8:4::2"],
        Errno::EHOSTUNREACH,
        Errno::ENETUNREACH,
    ),
    (
        "an own address without a link",
        ["198.18.4.1", "2001:db8:4::1"],
        Errno::EHOSTUNREACH,
        Errno::EHOSTUNREACH,
    ),
];

/// The interface `other`, with addresses, and the routes of the rows.
fn add_routes(wire: &Wire) {
    wire.a.run(|| {
        add_other();
        for (number, kind) in (1..).zip(["unreachable", "prohibit", "blackhole"]) {
            ip(&format!("route add {kind} 198.18.{number}.0/24"));
            ip(&format!("-6 route add {kind} 2001:db8:{number}::/64"));
        }
    });
}

pub(crate) fn add_other() {
    ip("link add other type dummy");
    ip("link set other up");
    ip("address add 198.18.4.1/24 dev other");
    ip("address add 2001:db8:4::1/64 dev other nodad");
}

/// The addresses of the first host of a [`Wire`] on its link and on `other`, by family.
pub(crate) const WITH_OTHER: [(&str, &str); 2] = [
    ("192.0.2.1", "198.18.4.1"),
    ("2001:db8::1", "2001:db8:4::1"),
];

/// Adds a link in the caller's namespace.
pub(crate) fn add_link(name: &str, netdev: &str) {
    let device = Device::open().expect("device");
    device.link_add(name, netdev).expect("link_add");
}

fn a_route_decides_about_a_post() {
    let wire = Wire::new();
    add_routes(&wire);
    let mut wrong = Vec::new();
    for (family, (near, far)) in ENDS.into_iter().enumerate() {
        for kind in KINDS {
            let caller = Caller::new(kind, &wire.a, addr(near, 0));
            for (what, to, rdm, other) in ROWS {
                let expected = if kind == Kind::Rdm { rdm } else { other };
                let got = caller.call(addr(to[family], 7471));
                if got != Some(expected) {
                    wrong.push(format!("{what}, {kind:?}, {near}: {got:?}"));
                }
            }
            // A refusal leaves nothing behind: the next one succeeds.
            let got = caller.call(addr(far, 7471));
            if got.is_some() {
                wrong.push(format!("a route, {kind:?}, {near}: {got:?}"));
            }
            let at = [
                (&wire.a, "roce0", addr(near, 0)),
                (&wire.b, "roce0", addr(far, 0)),
            ];
            let (a, to_b, b) = meet(kind, at);
            reaches(kind, &a, to_b, &b);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A post to a connected peer asks for the route, too.
fn routes_change_under_connections() {
    let wire = Wire::new();
    for (family, (near, far)) in ENDS.into_iter().enumerate() {
        let len = [32, 128][family];
        for kind in KINDS {
            let at = [
                (&wire.a, "roce0", addr(near, 0)),
                (&wire.b, "roce0", addr(far, 0)),
            ];
            let (a, to_b, b) = meet(kind, at);
            reaches(kind, &a, to_b, &b);
            let buffer = holding(b"refused");
            for route in ["unreachable", "prohibit", "blackhole"] {
                let change = |what: &str| {
                    let words = format!("-{} route {what} {route} {far}/{len}", [4, 6][family]);
                    wire.a.run(|| ip(&words));
                };
                change("add");
                is_refused(a.ep.send(to_b, &buffer, 3), Errno::EHOSTUNREACH);
                a.expect_nothing();
                change("del");
                reaches(kind, &a, to_b, &b);
            }
        }
    }
}

/// A message goes to where the address is now, another host or another interface of this one, and
/// to no endpoint that had it before.
fn a_service_address_moves() {
    let wire = Wire::new();
    wire.a.run(|| {
        add_other();
        add_link("roce1", "other");
    });
    let places = [
        Place {
            netns: &wire.b,
            link: "roce0",
            netdev: "veth0",
        },
        Place {
            netns: &wire.a,
            link: "roce1",
            netdev: "other",
        },
    ];
    for ((near, far), service) in ENDS.into_iter().zip(["192.0.2.100", "2001:db8::100"]) {
        let moving = host_prefix(addr(service, 0));
        for place in places {
            for (port, kind) in (5000..).zip(KINDS) {
                change_address(&wire.a, "add", &moving);
                let ends = [near, service].map(|ip| addr(ip, 0));
                match kind {
                    Kind::Rdm | Kind::Dgram => datagrams_follow(kind, &wire, ends, port, place),
                    Kind::Connect | Kind::ConnectQp => connections_wait(kind, &wire, ends, place),
                }
                change_address(&wire.a, "del", &moving);
            }
            requests_follow(&wire, [near, service], place);
        }
        for (kind, netns, from) in [
            (Kind::ConnectQp, &wire.a, near),
            (Kind::ConnectQp, &wire.b, far),
            (Kind::Connect, &wire.b, far),
            (Kind::Rdm, &wire.b, far),
            (Kind::Dgram, &wire.b, far),
        ] {
            let sender = (netns, "roce0", addr(from, 0));
            the_old_link_receives_nothing(kind, &wire, sender, service);
        }
    }
}

fn links_of_one_host_reach_each_other() {
    let wire = Wire::new();
    wire.a.run(|| {
        add_other();
        add_link("roce1", "other");
    });
    for (near, other) in WITH_OTHER {
        for kind in KINDS {
            let one = (&wire.a, "roce0", addr(near, 0));
            let two = (&wire.a, "roce1", addr(other, 0));
            for at in [[one, two], [two, one]] {
                let (a, to_b, b) = meet(kind, at);
                reaches(kind, &a, to_b, &b);
            }
        }
        // Without the second link, nothing of this host has its address.
        let caller = Caller::new(Kind::Connect, &wire.a, addr(near, 0));
        wire.a.run(|| {
            let device = Device::open().expect("device");
            until("the link is free", || device.link_del("roce1").is_ok());
        });
        let got = caller.call(addr(other, 7471));
        assert_eq!(got, Some(Errno::EHOSTUNREACH));
        wire.a.run(|| add_link("roce1", "other"));
    }
    // An endpoint receives while its link is down and has its address, which IPv6 does not keep.
    let (near, other) = WITH_OTHER[0];
    let at = [
        (&wire.a, "roce0", addr(near, 0)),
        (&wire.a, "roce1", addr(other, 0)),
    ];
    let (a, to_b, b) = meet(Kind::Rdm, at);
    let to_a = b.meet(&a);
    wire.a.run(|| ip("link set other down"));
    reaches(Kind::Rdm, &a, to_b, &b);
    is_refused(b.ep.inject(to_a, b"x"), Errno::ENETDOWN);
}

/// The index of the interface of this thread's namespace that has the link-local address with this
/// last byte.
fn scope_of(last: u8) -> u32 {
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").expect("addresses");
    let wanted = format!("fe80{:024x}{:04x}", 0, last);
    let mut found = table.lines().filter(|line| line.starts_with(&wanted));
    let line = found.next().expect("the address");
    let index = line.split_whitespace().nth(1).expect("the index");
    u32::from_str_radix(index, 16).expect("a number")
}

fn link_local_addresses_have_a_scope() {
    let wire = Wire::new();
    let scoped = |last: u8, port, scope| -> SocketAddr {
        let ip = format!("fe80::{last:x}").parse().expect("address");
        SocketAddrV6::new(ip, port, 0, scope).into()
    };
    let [in_a, in_b] = [(&wire.a, 0xa1), (&wire.b, 0xb1)].map(|(netns, last)| {
        change_address(netns, "add", &format!("fe80::{last:x}/64"));
        netns.run(|| scope_of(last))
    });
    for kind in KINDS {
        let [a, b] = [
            (&wire.a, scoped(0xa1, 0, in_a)),
            (&wire.b, scoped(0xb1, 0, in_b)),
        ]
        .map(|(netns, at)| {
            netns.run(|| Host::at(&domain_on("roce0").1, &kind.options(), Some(at)))
        });
        let to_b = match kind {
            Kind::Rdm | Kind::Dgram => {
                let port = b.ep.name().expect("name").port();
                a.av.insert_one(scoped(0xb1, port, in_a)).expect("insert")
            }
            Kind::Connect | Kind::ConnectQp => {
                let qp = |host: &Host, last, scope| {
                    let (at, psn) = host.qp();
                    let host = scoped(last, 0, scope);
                    (QpAddr { host, ..at }, psn)
                };
                let (to_a, to_b) = (qp(&a, 0xa1, in_b), qp(&b, 0xb1, in_a));
                a.ep.connect_qp(to_b.0, to_b.1).expect("connect");
                b.ep.connect_qp(to_a.0, to_a.1).expect("connect");
                PEER
            }
        };
        reaches(kind, &a, to_b, &b);
        // Another interface, which may have a neighbour with that address.
        let caller = Caller::new(kind, &wire.a, scoped(0xa1, 0, in_a));
        let expected = match kind {
            Kind::Rdm => Errno::EHOSTUNREACH,
            _ => Errno::ENETUNREACH,
        };
        let got = caller.call(scoped(0xb1, 7471, in_a + 100));
        assert_eq!(got, Some(expected), "{kind:?}");
    }
}

fn an_interface_below_every_path_mtu_is_refused() {
    let wire = Wire::new();
    let too_small = Errno::EMSGSIZE;
    // The kernel takes IPv6 away from an interface with less than 1,280 bytes.
    for (family, change, undo, expected) in [
        (
            0,
            "link set veth0 mtu 250",
            "link set veth0 mtu 1500",
            too_small,
        ),
        (
            1,
            "link set veth0 mtu 1279",
            "link set veth0 mtu 1500",
            Errno::EADDRNOTAVAIL,
        ),
        (
            0,
            "route add 192.0.2.2/32 dev veth0 mtu 250",
            "route del 192.0.2.2/32 dev veth0",
            too_small,
        ),
        (
            1,
            "-6 route add 2001:db8::2/128 dev veth0 mtu 250",
            "-6 route del 2001:db8::2/128 dev veth0",
            too_small,
        ),
    ] {
        let (near, far) = ENDS[family];
        let callers = KINDS.map(|kind| Caller::new(kind, &wire.a, addr(near, 0)));
        wire.a.run(|| ip(change));
        for caller in &callers {
            let got = caller.call(addr(far, 7471));
            assert_eq!(got, Some(expected), "{:?}, {change}", caller.kind);
        }
        wire.a.run(|| ip(undo));
        if change.starts_with("link") {
            change_address(&wire.a, "add", &format!("{}/64", ENDS[1].0));
        }
        for caller in &callers {
            let got = caller.call(addr(far, 7471));
            assert_eq!(got, None, "{:?}, {undo}", caller.kind);
        }
    }
}
