// SPDX-License-Identifier: GPL-2.0
//! Endpoints of every type that call a peer, and passive endpoints that get requests.

use super::PEER;
use crate::{
    abi_threads::NetNs,
    host::{
        FETCHED, Host, Options, SENT, SOON, WROTE, buffer, domain_on, errno, exchange, holding,
    },
    networks::{connect_with, dgram, msg},
};
use kfi::{
    AtomicOp, Buffer, Caps, ConnectionEvent, CqBind, CqFormat, Datatype, Device, Eq, Errno,
    EventKind, Fabric, FiAddr, PassiveEndpoint, QpAddr, QpOption, Remote, Side, Wait,
};
use std::{net::SocketAddr, time::Duration};

/// ACK timeout of connections: 4.096 us * 2^17, which is 0.54 s.
const TIMEOUT: u64 = 17;

/// How often a datagram is sent that may be lost, and how long each is waited for.
const TRIES: usize = 50;
pub(super) const WHILE: Duration = Duration::from_millis(100);

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

pub(crate) const KINDS: [Kind; 4] = [Kind::Rdm, Kind::Dgram, Kind::Connect, Kind::ConnectQp];

impl Kind {
    pub(crate) fn options(self) -> Options {
        let mut options = match self {
            Self::Rdm => Options::default(),
            Self::Dgram => return dgram(),
            Self::Connect | Self::ConnectQp => msg(),
        };
        options.caps |= Caps::ATOMIC;
        options
    }
}

/// An endpoint that has no peer yet.
pub(crate) struct Caller {
    pub(super) kind: Kind,
    pub(super) host: Host,
    eq: Eq,
}

impl Caller {
    pub(crate) fn new(kind: Kind, netns: &NetNs, at: SocketAddr) -> Self {
        Self::on(kind, netns, "roce0", at)
    }

    pub(crate) fn on(kind: Kind, netns: &NetNs, link: &str, at: SocketAddr) -> Self {
        netns.run(|| {
            let (fabric, domain) = domain_on(link);
            let eq = fabric.eq().wait(Wait::Queue).open().expect("eq");
            let host = Host::prepared(&domain, &kind.options(), Some(at), |ep| {
                if matches!(kind, Kind::Connect | Kind::ConnectQp) {
                    ep.bind_eq(&eq).expect("bind eq");
                }
            });
            Self { kind, host, eq }
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

/// The next event, which must be of this kind.
#[track_caller]
fn event(eq: &Eq, kind: EventKind) -> ConnectionEvent {
    let event = eq.read(SOON).expect("event").expect("in time");
    assert_eq!(event.kind, kind);
    event.connection().expect("an event of a connection")
}

/// A passive endpoint that listens.
pub(crate) struct Listener {
    pub(super) fabric: Fabric,
    pub(super) eq: Eq,
    pub(super) pep: PassiveEndpoint,
}

impl Listener {
    pub(crate) fn new(netns: &NetNs, at: SocketAddr) -> Self {
        netns.run(|| {
            let fabric = Device::open().expect("device").fabric().expect("fabric");
            let eq = fabric.eq().wait(Wait::Queue).open().expect("eq");
            let pep = fabric.passive_endpoint(at).open().expect("pep");
            pep.bind_eq(&eq).expect("bind eq");
            pep.listen().expect("listen");
            Self { fabric, eq, pep }
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.pep.name().expect("name").port()
    }

    /// The next request.
    #[track_caller]
    pub(super) fn asked(&self) -> ConnectionEvent {
        event(&self.eq, EventKind::ConnReq)
    }

    /// An endpoint on `link` that may accept a request.
    pub(super) fn host(&self, link: &str, at: SocketAddr) -> Host {
        let domain = self.fabric.domain(link).open().expect("domain");
        Host::prepared(&domain, &Kind::Connect.options(), Some(at), |ep| {
            ep.bind_eq(&self.eq).expect("bind eq");
        })
    }

    /// Accepts a request of `caller`. Both are told.
    #[track_caller]
    pub(super) fn accept(&self, asked: &ConnectionEvent, host: &Host, caller: &Caller) {
        let timeout = host.ep.set_qp_option(QpOption::Timeout, TIMEOUT);
        timeout.expect("option");
        let accepted = host.ep.accept(&self.pep, asked.connreq, b"");
        accepted.expect("accept");
        for eq in [&caller.eq, &self.eq] {
            event(eq, EventKind::Connected);
        }
    }

    /// Connects `caller`, which calls the passive endpoint `to`. The request comes on `link`.
    #[track_caller]
    pub(crate) fn serve(&self, caller: &Caller, to: SocketAddr, link: &str) -> Host {
        caller.host.ep.connect(to, b"").expect("connect");
        let asked = self.asked();
        assert_eq!((asked.local, asked.link.as_str()), (to, link));
        let host = self.host(link, asked.local);
        self.accept(&asked, &host, caller);
        host
    }
}

pub(crate) fn addr(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// The addresses of both hosts of a wire, by family.
pub(crate) const ENDS: [(&str, &str); 2] =
    [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

/// Two hosts that reach each other by `kind`, at these addresses, and what the first one calls the
/// second.
pub(crate) fn meet(kind: Kind, at: [(&NetNs, &str, SocketAddr); 2]) -> (Host, FiAddr, Host) {
    if kind == Kind::Connect {
        return meet_by_request(at);
    }
    let [a, b] = at.map(|(netns, link, addr)| {
        netns.run(|| Host::at(&domain_on(link).1, &kind.options(), Some(addr)))
    });
    let to_b = match kind {
        Kind::Rdm | Kind::Dgram => a.meet(&b),
        Kind::ConnectQp => {
            connect_with(&a, &b, TIMEOUT, 0);
            PEER
        }
        Kind::Connect => unreachable!("connected above"),
    };
    (a, to_b, b)
}

/// [`meet`] by a request for a connection.
fn meet_by_request(at: [(&NetNs, &str, SocketAddr); 2]) -> (Host, FiAddr, Host) {
    let [(near, link, from), (far, far_link, to)] = at;
    let listener = Listener::new(far, to);
    let caller = Caller::on(Kind::Connect, near, link, from);
    let timeout = caller.host.ep.set_qp_option(QpOption::Timeout, TIMEOUT);
    timeout.expect("option");
    let to = SocketAddr::new(to.ip(), listener.port());
    let b = listener.serve(&caller, to, far_link);
    (caller.host, PEER, b)
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

/// A transmit context of a scalable endpoint.
pub(super) fn transmit_context(netns: &NetNs, at: SocketAddr) -> Host {
    netns.run(|| {
        let (_, domain) = domain_on("roce0");
        let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
        let cq = cq.open().expect("cq");
        let av = domain.av().open().expect("av");
        let sep = domain.scalable_endpoint().addr(at);
        let sep = sep.caps(Kind::Rdm.options().caps & !Caps::MULTI_RECV);
        let sep = sep.open().expect("scalable endpoint");
        sep.bind_av(&av).expect("bind av");
        sep.enable().expect("enable");
        let ep = sep.context(Side::Transmit, 0).open().expect("context");
        ep.bind_cq(&cq, CqBind::empty()).expect("bind cq");
        ep.enable().expect("enable");
        Host { domain, cq, av, ep }
    })
}

/// Every transmit is refused with this error, and makes no completion.
#[track_caller]
pub(super) fn transmits_are_refused(
    kind: Kind,
    a: &Host,
    to: FiAddr,
    remote: Remote,
    error: Errno,
) {
    let (ep, bytes) = (&a.ep, holding(b"refused!"));
    let (word, sum) = (Datatype::Uint64, AtomicOp::Sum);
    let mut results = vec![
        ("send", ep.send(to, &bytes, 3)),
        ("inject", ep.inject(to, b"x")),
    ];
    if kind != Kind::Dgram {
        let old = buffer(8);
        let swap = AtomicOp::Cswap;
        results.extend([
            ("read", ep.read(to, &bytes, remote, 3)),
            ("write", ep.write(to, &bytes, remote, 3)),
            ("inject_write", ep.inject_write(to, b"x", remote)),
            ("atomic", ep.atomic(to, &bytes, remote, word, sum, 3)),
            (
                "fetch_atomic",
                ep.fetch_atomic(to, &bytes, &old, remote, word, sum, 3),
            ),
            (
                "compare_atomic",
                ep.compare_atomic(to, &bytes, &bytes, &old, remote, word, swap, 3),
            ),
        ]);
    }
    if kind == Kind::Rdm {
        results.push(("tsend", ep.tsend(to, &bytes, 1, 3)));
    }
    for (what, result) in results {
        assert_eq!(errno(result), Some(error), "{what}, {kind:?}");
    }
    a.expect_nothing();
}

/// Writes to the peer's memory and adds to it, unless the kind has no RMA.
#[track_caller]
pub(super) fn memory_is_reached(kind: Kind, a: &Host, to: FiAddr, remote: Remote, memory: &Buffer) {
    if kind == Kind::Dgram {
        return;
    }
    memory.fill(0);
    let (one, old) = (holding(&1u64.to_ne_bytes()), holding(&[9; 8]));
    a.ep.write(to, &one, remote, 4).expect("write");
    a.expect(WROTE, 4);
    let (word, sum) = (Datatype::Uint64, AtomicOp::Sum);
    let added = a.ep.fetch_atomic(to, &one, &old, remote, word, sum, 5);
    added.expect("fetch_atomic");
    a.expect(FETCHED, 5);
    assert_eq!(old.to_vec(..), 1u64.to_ne_bytes());
    assert_eq!(memory.to_vec(..), 2u64.to_ne_bytes());
}
