// SPDX-License-Identifier: GPL-2.0
//! Addresses and routes that are missing, that change, and that lead elsewhere. Each post follows
//! routing as a UDP packet would: it is delivered, or fails at once. Every type of endpoint is
//! tested, over IPv4 and IPv6.

use crate::{
    abi_threads::NetNs,
    harness::tests,
    host::{
        BOTH, Host, Options, RECEIVED, SENT, domain_on, errno, exchange, holding, is_refused, until,
    },
    networks::{Wire, connect_with, dgram, msg},
    raw::ip,
};
use kfi::{Buffer, Device, Eq, Errno, FiAddr, QpAddr, Wait};
use std::{
    net::{SocketAddr, SocketAddrV6},
    time::Duration,
};

tests![
    a_route_decides_about_a_post => 120,
    routes_change_under_connections => 120,
    an_endpoint_without_its_address_is_told => 120,
    a_service_address_moves => 120,
    links_of_one_host_reach_each_other => 120,
    link_local_addresses_have_a_scope => 120,
    an_interface_below_every_path_mtu_is_refused => 120,
];

/// Ignored by connected endpoints.
pub(crate) const PEER: FiAddr = FiAddr::UNSPEC;

/// How often a datagram is sent that may be lost, and how long each is waited for.
const TRIES: usize = 50;
const WHILE: Duration = Duration::from_millis(100);

/// The way in which an endpoint turns to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A reliable datagram.
    Rdm,
    /// A datagram.
    Dgram,
    /// A request for a connection.
    Connect,
    /// A connection by hand.
    ConnectQp,
}

const KINDS: [Kind; 4] = [Kind::Rdm, Kind::Dgram, Kind::Connect, Kind::ConnectQp];

impl Kind {
    pub(crate) fn options(self) -> Options {
        match self {
            Self::Rdm => Options::default(),
            Self::Dgram => dgram(),
            Self::Connect | Self::ConnectQp => msg(),
        }
    }
}

/// An endpoint that has no peer yet.
pub(crate) struct Caller {
    kind: Kind,
    host: Host,
    _eq: Eq,
}

impl Caller {
    pub(crate) fn new(kind: Kind, netns: &NetNs, at: SocketAddr) -> Self {
        netns.run(|| {
            let (fabric, domain) = domain_on("roce0");
            let eq = fabric.eq().wait(Wait::Queue).open().expect("eq");
            let host = Host::prepared(&domain, &kind.options(), Some(at), |ep| {
                if matches!(kind, Kind::Connect | Kind::ConnectQp) {
                    ep.bind_eq(&eq).expect("bind eq");
                }
            });
            Self {
                kind,
                host,
                _eq: eq,
            }
        })
    }

    /// The error at once; `None`: the post or the request was accepted.
    pub(crate) fn call(&self, to: SocketAddr) -> Option<Errno> {
        let ep = &self.host.ep;
        match self.kind {
            Kind::Rdm | Kind::Dgram => {
                let to = self.host.av.insert_one(to).expect("insert");
                errno(ep.inject(to, b"x"))
            }
            Kind::Connect => errno(ep.connect(to, b"")),
            Kind::ConnectQp => {
                let mut host = to;
                host.set_port(0);
                let qpn = 0x12_3456;
                errno(ep.connect_qp(QpAddr { host, qpn }, 0))
            }
        }
    }
}

pub(crate) fn addr(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// The addresses of both hosts of a [`Wire`], by family.
pub(crate) const ENDS: [(&str, &str); 2] =
    [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

/// Two hosts that reach each other by `kind`, at these addresses, and what the first one calls the
/// second.
pub(crate) fn meet(kind: Kind, at: [(&NetNs, &str, SocketAddr); 2]) -> (Host, FiAddr, Host) {
    let [a, b] = at.map(|(netns, link, addr)| {
        netns.run(|| Host::at(&domain_on(link).1, &kind.options(), Some(addr)))
    });
    let to_b = match kind {
        Kind::Rdm | Kind::Dgram => a.meet(&b),
        Kind::Connect | Kind::ConnectQp => {
            connect_with(&a, &b, 16, 0);
            PEER
        }
    };
    (a, to_b, b)
}

/// Sends a message, which arrives. A datagram may be lost while its neighbour is looked for.
#[track_caller]
pub(crate) fn reaches(kind: Kind, a: &Host, to: FiAddr, b: &Host) {
    if kind != Kind::Dgram {
        return exchange(a, to, b, 100);
    }
    let (from, into) = (holding(b"anybody?"), Buffer::new(8).expect("buffer"));
    b.ep.recv(&into, 2).expect("recv");
    for _ in 0..TRIES {
        a.ep.send(to, &from, 1).expect("send");
        a.expect(SENT, 1);
        if b.cq.next(WHILE).expect("next").is_some() {
            return;
        }
    }
    panic!("nothing has arrived");
}

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
        for kind in [Kind::Rdm, Kind::Dgram, Kind::ConnectQp] {
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

/// Adds or deletes an address of the first host.
pub(crate) fn change_address(netns: &NetNs, what: &str, ip_and_len: &str) {
    let nodad = if what == "add" && ip_and_len.contains(':') {
        "nodad"
    } else {
        ""
    };
    netns.run(|| ip(&format!("address {what} {ip_and_len} dev veth0 {nodad}")));
}

/// Its transmits, its requests and its binding fail, and it works again when the address is back.
fn an_endpoint_without_its_address_is_told() {
    let wire = Wire::new();
    for (near, far) in ENDS {
        let own = format!("{near}/{}", if near.contains(':') { 64 } else { 24 });
        let callers = KINDS.map(|kind| Caller::new(kind, &wire.a, addr(near, 0)));
        let at = [
            (&wire.a, "roce0", addr(near, 0)),
            (&wire.b, "roce0", addr(far, 0)),
        ];
        let connected = [Kind::Rdm, Kind::Dgram, Kind::ConnectQp].map(|kind| {
            let (a, to_b, b) = meet(kind, at);
            reaches(kind, &a, to_b, &b);
            (kind, a, to_b, b)
        });
        let at_home = [(&wire.a, "roce0", addr(near, 0)); 2];
        let (local, to_neighbour, neighbour) = meet(Kind::Rdm, at_home);
        reaches(Kind::Rdm, &local, to_neighbour, &neighbour);
        let domain = &local.domain;
        let unbound = domain.endpoint().addr(addr(near, 0)).open();
        let unbound = unbound.expect("endpoint");
        unbound.bind_cq(&local.cq, BOTH).expect("bind");
        unbound.bind_av(&local.av).expect("bind");

        change_address(&wire.a, "del", &own);
        let gone = Errno::EADDRNOTAVAIL;
        let buffer = holding(b"refused!");
        for caller in &callers {
            let got = caller.call(addr(far, 7471));
            assert_eq!(got, Some(gone), "{:?} {near}", caller.kind);
        }
        for (_, a, to_b, _) in &connected {
            is_refused(a.ep.send(*to_b, &buffer, 3), gone);
            a.expect_nothing();
        }
        is_refused(local.ep.send(to_neighbour, &buffer, 3), gone);
        // Its receives wait for the address.
        let into = Buffer::new(100).expect("buffer");
        neighbour.ep.recv(&into, 9).expect("recv");
        is_refused(unbound.enable(), gone);
        is_refused(domain.endpoint().addr(addr(near, 0)).open(), gone);

        change_address(&wire.a, "add", &own);
        local.ep.inject(to_neighbour, b"again").expect("inject");
        neighbour.expect(RECEIVED, 9);
        unbound.enable().expect("enable");
        for (kind, a, to_b, b) in &connected {
            reaches(*kind, a, *to_b, b);
        }
        for caller in &callers {
            assert_eq!(caller.call(addr(far, 7471)), None, "{:?}", caller.kind);
        }
    }
}

/// A message goes to the host that has the address now, and to no endpoint that had it before.
fn a_service_address_moves() {
    let wire = Wire::new();
    for (near, service, len) in [
        ("192.0.2.1", "192.0.2.100", 24),
        ("2001:db8::1", "2001:db8::100", 64),
    ] {
        let moving = format!("{service}/{len}");
        for (port, kind) in (5000..).zip([Kind::Rdm, Kind::Dgram]) {
            change_address(&wire.a, "add", &moving);
            let here = [
                (&wire.a, "roce0", addr(near, 0)),
                (&wire.a, "roce0", addr(service, port)),
            ];
            let (sender, to, old) = meet(kind, here);
            let back = old.meet(&sender);
            reaches(kind, &sender, to, &old);

            change_address(&wire.a, "del", &moving);
            change_address(&wire.b, "add", &moving);
            let there = Some(addr(service, port));
            let new = wire
                .b
                .run(|| Host::at(&domain_on("roce0").1, &kind.options(), there));
            let into = Buffer::new(8).expect("buffer");
            old.ep.recv(&into, 9).expect("recv");
            reaches(kind, &sender, to, &new);
            reaches(kind, &sender, to, &new);
            old.expect_nothing();
            is_refused(old.ep.inject(back, b"x"), Errno::EADDRNOTAVAIL);

            // Back, without a new endpoint.
            drop(new);
            change_address(&wire.b, "del", &moving);
            change_address(&wire.a, "add", &moving);
            sender.ep.inject(to, b"home").expect("inject");
            old.expect(RECEIVED, 9);
            reaches(kind, &old, back, &sender);
            change_address(&wire.a, "del", &moving);
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
        for kind in [Kind::Rdm, Kind::Dgram, Kind::ConnectQp] {
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
    let (near, far) = ENDS[0];
    wire.a.run(|| ip("link set veth0 mtu 250"));
    for kind in KINDS {
        let caller = Caller::new(kind, &wire.a, addr(near, 0));
        let got = caller.call(addr(far, 7471));
        assert_eq!(got, Some(Errno::EMSGSIZE), "{kind:?}");
    }
}
