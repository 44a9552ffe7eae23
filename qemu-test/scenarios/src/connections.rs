// SPDX-License-Identifier: GPL-2.0
//! Connections made by connection management: listening, connecting, and their ends.
//!
//! In this file both ends are on one host. Its modules have connections to other hosts (`wire`),
//! requests that are refused (`refused`), processes that are killed, and threads that are preempted
//! (`slow`).

pub(crate) mod killed;
pub(crate) mod refused;
pub(crate) mod slow;
pub(crate) mod wire;

use crate::{
    harness::tests,
    host::{
        BOTH, RECEIVED, SENT, SOON, buffer, domain, expect, fails, holding, is_refused as refused,
        pattern, until,
    },
};
use kfi::{
    CompFlags, ConnectionEvent, Cq, CqFormat, Domain, Endpoint, EpType, Eq, ErrEvent, Errno,
    EventKind, Fabric, FiAddr, PassiveEndpoint, PeerAddr, QpOption, QpState, Remote, Wait,
};
use std::{net::SocketAddr, time::Duration};

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// Reasons of a rejection, as InfiniBand numbers them.
const NO_RESOURCES: u32 = 3;
const GAVE_UP: u32 = 4;
const INVALID_SERVICE_ID: u32 = 8;
const INVALID_MTU: u32 = 26;
const CONSUMER: u32 = 28;

/// The time during which no event may come.
const QUIET: Duration = Duration::from_millis(200);

tests![
    a_connection_from_beginning_to_end,
    connections_work_over_ipv6,
    a_passive_endpoint_can_listen_at_all_addresses,
    private_data_have_any_length => 120,
    an_accepted_connection_outlives_the_passive_endpoint,
    a_request_of_a_closed_endpoint_cannot_be_accepted,
    closing_disconnects,
    closing_removes_events,
    receives_can_be_posted_before_the_connection,
    options_are_agreed_upon,
    passive_endpoints_have_names,
    the_attributes_of_the_qps_follow_their_connection,
];

/// An event queue on the fabric of the loopback link.
fn queue(fabric: &Fabric) -> Eq {
    fabric
        .eq()
        .entries(512)
        .wait(Wait::Queue)
        .open()
        .expect("eq")
}

/// A passive endpoint that does not listen.
fn passive(fabric: &Fabric, addr: &str) -> PassiveEndpoint {
    let pep = fabric.passive_endpoint(addr.parse().expect("address"));
    pep.open().expect("passive endpoint")
}

/// An endpoint with its queues, not enabled.
struct End {
    _domain: Domain,
    eq: Eq,
    cq: Cq,
    ep: Endpoint,
}

impl End {
    fn on(domain: &Domain, eq: &Eq, addr: Option<SocketAddr>, context: u64) -> Self {
        Self::sized(domain, eq, addr, context, 0)
    }

    /// With room for so many receives; 0: the usual number.
    fn sized(
        domain: &Domain,
        eq: &Eq,
        addr: Option<SocketAddr>,
        context: u64,
        receives: u32,
    ) -> Self {
        let cq = domain.cq().entries(2 * receives).format(CqFormat::Tagged);
        let cq = cq.wait(Wait::Queue).open().expect("cq");
        let mut ep = domain.endpoint().ep_type(EpType::Msg).context(context);
        ep = ep.rx_size(receives);
        if let Some(addr) = addr {
            ep = ep.addr(addr);
        }
        let ep = ep.open().expect("endpoint");
        ep.bind_cq(&cq, BOTH).expect("bind");
        ep.bind_eq(eq).expect("bind");
        Self {
            _domain: domain.clone(),
            eq: eq.clone(),
            cq,
            ep,
        }
    }

    /// An endpoint of its own on the loopback link.
    fn new(context: u64) -> Self {
        let (fabric, domain) = domain();
        Self::on(&domain, &queue(&fabric), None, context)
    }

    fn next(&self, flags: CompFlags, context: u64) -> kfi::Entry {
        expect(&self.cq, flags, context)
    }
}

/// The next event, which must be of this kind.
#[track_caller]
fn event(eq: &Eq, kind: EventKind) -> ConnectionEvent {
    let event = eq.read(SOON).expect("event").expect("in time");
    assert_eq!(event.kind, kind);
    event.connection().expect("an event of a connection")
}

/// The next error, which must be this one.
#[track_caller]
fn failure(eq: &Eq, err: Errno, prov_errno: u32) -> ErrEvent {
    failure_within(SOON, eq, err, prov_errno)
}

#[track_caller]
fn failure_within(time: Duration, eq: &Eq, err: Errno, prov_errno: u32) -> ErrEvent {
    let error = any_failure_within(time, eq);
    assert_eq!((error.err, error.prov_errno), (err, prov_errno));
    error
}

#[track_caller]
fn any_failure_within(time: Duration, eq: &Eq) -> ErrEvent {
    match eq.read(time) {
        Err(error) if error.is(Errno::KFI_EAVAIL) => {}
        other => panic!("no error: {other:?}"),
    }
    eq.readerr().expect("readerr").expect("an error")
}

/// Waits for an event, and leaves it. `None`: it is an error.
#[track_caller]
fn first(eq: &Eq) -> Option<EventKind> {
    match eq.peek(SOON) {
        Err(error) if error.is(Errno::KFI_EAVAIL) => None,
        event => Some(event.expect("event").expect("in time").kind),
    }
}

#[track_caller]
fn quiet(eq: &Eq) {
    let event = eq.read(QUIET).expect("read");
    assert!(event.is_none(), "{event:?}");
}

/// A passive endpoint that listens on the loopback link.
struct Server {
    fabric: Fabric,
    domain: Domain,
    eq: Eq,
    pep: PassiveEndpoint,
}

impl Server {
    fn at(addr: &str, backlog: u32) -> Self {
        Self::on(domain(), addr, backlog)
    }

    fn on((fabric, domain): (Fabric, Domain), addr: &str, backlog: u32) -> Self {
        let eq = queue(&fabric);
        let pep = fabric
            .passive_endpoint(addr.parse().unwrap())
            .backlog(backlog)
            .context(77)
            .open()
            .expect("passive endpoint");
        pep.bind_eq(&eq).expect("bind");
        pep.listen().expect("listen");
        Self {
            fabric,
            domain,
            eq,
            pep,
        }
    }

    fn new() -> Self {
        Self::at("127.0.0.2:0", 0)
    }

    fn addr(&self) -> SocketAddr {
        self.pep.name().expect("name")
    }

    /// An endpoint that has asked for a connection.
    fn asker(&self, context: u64) -> End {
        let end = End::new(context);
        end.ep.connect(self.addr(), b"").expect("connect");
        end
    }

    fn asked(&self) -> ConnectionEvent {
        event(&self.eq, EventKind::ConnReq)
    }

    /// An endpoint that can accept a request, with an event queue of its own.
    fn end_for(&self, asked: &ConnectionEvent) -> End {
        End::on(&self.domain, &queue(&self.fabric), Some(asked.local), 5)
    }

    fn accept(&self, asked: &ConnectionEvent, private: &[u8]) -> End {
        let end = self.end_for(asked);
        end.ep
            .accept(&self.pep, asked.connreq, private)
            .expect("accept");
        end
    }

    /// Connects `end`; returns the other end.
    fn connect(&self, end: &End) -> End {
        end.ep.connect(self.addr(), b"").expect("connect");
        let other = self.accept(&self.asked(), b"");
        event(&end.eq, EventKind::Connected);
        event(&other.eq, EventKind::Connected);
        other
    }
}

fn exchange(a: &End, b: &End, len: usize) {
    let bytes = pattern(len, len as u64);
    let from = holding(&bytes);
    let into = buffer(len);
    b.ep.recv(&into, 2).expect("recv");
    a.ep.send(PEER, &from, 1).expect("send");
    assert_eq!(b.next(RECEIVED, 2).len as usize, len);
    assert!(into.to_vec(..) == bytes, "length {len}");
    a.next(SENT, 1);
}

/// A receive of `end` has ended because its connection has.
#[track_caller]
fn cancelled(end: &End, context: u64) {
    fails(&end.cq, context, Errno::ECANCELED);
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len, 0);
    padded
}

/// The state, the peer's number and the path MTU of a QP as ibv_query_qp(3) has them, from before
/// its connection until after it. Options that were not chosen are the defaults throughout; after
/// the connection they can be read, and not set.
fn the_attributes_of_the_qps_follow_their_connection() {
    const OPTIONS: [(QpOption, u64); 4] = [
        (QpOption::RetryCnt, 7),
        (QpOption::RnrRetry, 7),
        (QpOption::MinRnrTimer, 12),
        (QpOption::Timeout, 14),
    ];
    let server = Server::new();
    let a = End::new(3);
    refused(a.ep.qp(), Errno::KFI_EOPBADSTATE);
    a.ep.enable().expect("enable");
    let before = a.ep.qp().expect("qp");
    let found = (before.state, before.dest_qpn, before.path_mtu);
    assert_eq!(found, (QpState::Init, None, None));
    let b = server.connect(&a);
    let qps = [&a, &b].map(|end| end.ep.qp().expect("qp"));
    assert_eq!((qps[0].qpn, qps[0].psn), (before.qpn, before.psn));
    for (qp, other) in [(&qps[0], &qps[1]), (&qps[1], &qps[0])] {
        assert_eq!((qp.state, qp.dest_qpn), (QpState::Rts, Some(other.qpn)));
        assert_eq!(qp.path_mtu, Some(4096));
    }
    for end in [&a, &b] {
        for (option, value) in OPTIONS {
            assert_eq!(end.ep.qp_option(option).expect("get"), value, "{option:?}");
            let set = end.ep.set_qp_option(option, value);
            refused(set, Errno::KFI_EOPBADSTATE);
        }
    }
    exchange(&a, &b, 5000);
    a.ep.shutdown().expect("shutdown");
    event(&b.eq, EventKind::Shutdown);
    for (end, qp) in [&a, &b].into_iter().zip(&qps) {
        until("the QP in error", || {
            end.ep.qp().expect("qp").state == QpState::Error
        });
        assert_eq!(end.ep.qp().expect("qp").qpn, qp.qpn);
        refused(end.ep.connect(server.addr(), b""), Errno::EISCONN);
    }
}

fn a_connection_from_beginning_to_end() {
    let server = Server::new();
    let a = End::new(3);
    a.ep.connect(server.addr(), b"may I?").expect("connect");
    refused(a.ep.connect(server.addr(), b""), Errno::EALREADY);
    let into = buffer(8);
    refused(a.ep.send(PEER, &into, 1), Errno::ENOTCONN);

    let asked = server.asked();
    assert_eq!((asked.handle, asked.context), (server.pep.handle(), 77));
    assert_eq!(asked.local, server.addr());
    assert_eq!(asked.peer.ip(), a.ep.name().expect("name").ip());
    assert_eq!(asked.link, crate::host::LINK);
    assert_eq!(asked.private, padded(b"may I?", 56));
    let b = server.accept(&asked, b"you may");

    let connected = event(&a.eq, EventKind::Connected);
    assert_eq!(
        (connected.handle, connected.connreq, connected.context),
        (a.ep.handle(), 0, 3)
    );
    assert_eq!(connected.peer, server.addr());
    assert_eq!(connected.private, padded(b"you may", 196));
    let connected = event(&b.eq, EventKind::Connected);
    assert_eq!((connected.handle, connected.context), (b.ep.handle(), 5));
    assert!(connected.private.is_empty());
    refused(b.ep.accept(&server.pep, asked.connreq, b""), Errno::EISCONN);
    assert_eq!(a.ep.peer().expect("peer"), PeerAddr::Socket(server.addr()));
    assert_eq!(b.ep.qp().expect("qp").state, QpState::Rts);
    refused(a.ep.connect(server.addr(), b""), Errno::EISCONN);

    for len in [1, 4096, 100_000] {
        exchange(&a, &b, len);
        exchange(&b, &a, len);
    }
    a.ep.recv(&into, 8).expect("recv");
    b.ep.recv(&into, 9).expect("recv");
    a.ep.shutdown().expect("shutdown");
    cancelled(&a, 8);
    refused(a.ep.shutdown(), Errno::ENOTCONN);
    let over = event(&b.eq, EventKind::Shutdown);
    assert_eq!((over.handle, over.context), (b.ep.handle(), 5));
    cancelled(&b, 9);
    refused(b.ep.send(PEER, &into, 1), Errno::ESHUTDOWN);
    quiet(&a.eq);
    quiet(&b.eq);
}

fn connections_work_over_ipv6() {
    let server = Server::at("[::1]:0", 0);
    let (fabric, domain) = domain();
    let local = "[::1]:0".parse().unwrap();
    let a = End::on(&domain, &queue(&fabric), Some(local), 0);
    let b = server.connect(&a);
    exchange(&a, &b, 10_000);
    exchange(&b, &a, 1);
}

fn a_passive_endpoint_can_listen_at_all_addresses() {
    let server = Server::at("0.0.0.0:0", 0);
    for host in ["127.0.0.1", "127.1.2.3"] {
        let a = End::new(0);
        let to = SocketAddr::new(host.parse().unwrap(), server.addr().port());
        a.ep.connect(to, b"").expect("connect");
        let asked = server.asked();
        assert_eq!(asked.local, to);
        let b = server.accept(&asked, b"");
        event(&a.eq, EventKind::Connected);
        exchange(&a, &b, 100);
    }
}

fn private_data_have_any_length() {
    let server = Server::new();
    let bytes = pattern(300, 1);
    for len in [0, 1, 55, 56] {
        let a = End::new(0);
        a.ep.connect(server.addr(), &bytes[..len]).expect("connect");
        let asked = server.asked();
        assert_eq!(asked.private, padded(&bytes[..len], 56));
        server.pep.reject(asked.connreq, b"").expect("reject");
        let error = failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
        assert_eq!(error.private, [0; 148]);
    }
    for len in [1, 195, 196] {
        let a = server.asker(0);
        let _b = server.accept(&server.asked(), &bytes[..len]);
        let connected = event(&a.eq, EventKind::Connected);
        assert_eq!(connected.private, padded(&bytes[..len], 196));
    }
    for len in [1, 147, 148] {
        let a = server.asker(0);
        let asked = server.asked();
        server
            .pep
            .reject(asked.connreq, &bytes[..len])
            .expect("reject");
        let error = failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
        assert_eq!(error.private, padded(&bytes[..len], 148));
    }
    // One byte too many of each; then the request continues.
    let a = End::new(0);
    refused(a.ep.connect(server.addr(), &bytes[..57]), Errno::EINVAL);
    a.ep.connect(server.addr(), b"").expect("connect");
    let asked = server.asked();
    let b = server.end_for(&asked);
    let long = b.ep.accept(&server.pep, asked.connreq, &bytes[..197]);
    refused(long, Errno::EINVAL);
    let long = server.pep.reject(asked.connreq, &bytes[..149]);
    refused(long, Errno::EINVAL);
    b.ep.accept(&server.pep, asked.connreq, b"")
        .expect("accept");
    event(&a.eq, EventKind::Connected);
    assert_eq!(a.ep.cm_data_size().expect("cm_data_size"), 56);
}

fn an_accepted_connection_outlives_the_passive_endpoint() {
    let server = Server::new();
    let a = End::new(0);
    let b = server.connect(&a);
    let Server { pep, eq, .. } = server;
    refused(eq.clone().close(), Errno::EBUSY);
    pep.close().expect("close");
    eq.close().expect("close");
    exchange(&a, &b, 1000);
}

fn a_request_of_a_closed_endpoint_cannot_be_accepted() {
    let server = Server::new();
    let a = server.asker(0);
    let asked = server.asked();
    drop(a);
    std::thread::sleep(QUIET);
    let b = server.end_for(&asked);
    let late = b.ep.accept(&server.pep, asked.connreq, b"");
    refused(late, Errno::ECONNABORTED);
    // The request is over, and the endpoint cannot be used again.
    let late = server.pep.reject(asked.connreq, b"");
    refused(late, Errno::ENOENT);
    refused(b.ep.connect(server.addr(), b""), Errno::EISCONN);
}

fn closing_disconnects() {
    let server = Server::new();
    let (a, c) = (End::new(0), End::new(0));
    let (b, d) = (server.connect(&a), server.connect(&c));
    drop(a);
    event(&b.eq, EventKind::Shutdown);
    drop(d);
    event(&c.eq, EventKind::Shutdown);
}

/// The events and errors of an endpoint that is closed, and of a passive one, are not read.
fn closing_removes_events() {
    let (server, a) = (Server::new(), End::new(0));
    let b = server.connect(&a);
    drop(a);
    assert_eq!(first(&b.eq), Some(EventKind::Shutdown));
    let End { ep, eq, .. } = b;
    ep.close().expect("close");
    quiet(&eq);

    let c = server.asker(0);
    assert_eq!(first(&server.eq), Some(EventKind::ConnReq));
    let Server { pep, eq, .. } = server;
    pep.close().expect("close");
    quiet(&eq);
    // The close has rejected the request.
    assert_eq!(first(&c.eq), None);
    let End { ep, eq, .. } = c;
    ep.close().expect("close");
    quiet(&eq);
}

fn receives_can_be_posted_before_the_connection() {
    let server = Server::new();
    let a = server.asker(0);
    let asked = server.asked();
    let b = server.end_for(&asked);
    b.ep.enable().expect("enable");
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    b.ep.accept(&server.pep, asked.connreq, b"")
        .expect("accept");
    event(&a.eq, EventKind::Connected);
    let from = holding(b"at once!");
    a.ep.send(PEER, &from, 1).expect("send");
    b.next(RECEIVED, 2);
    assert_eq!(into.to_vec(..), b"at once!");
    event(&b.eq, EventKind::Connected);
}

fn options_are_agreed_upon() {
    let server = Server::new();
    let a = End::new(0);
    a.ep.set_qp_option(QpOption::PathMtu, 512).expect("option");
    a.ep.connect(server.addr(), b"").expect("connect");
    refused(
        a.ep.set_qp_option(QpOption::PathMtu, 256),
        Errno::KFI_EOPBADSTATE,
    );
    let asked = server.asked();
    let b = server.end_for(&asked);
    // Both ends use the same path MTU.
    b.ep.set_qp_option(QpOption::PathMtu, 256).expect("option");
    let other = b.ep.accept(&server.pep, asked.connreq, b"");
    refused(other, Errno::EINVAL);
    b.ep.set_qp_option(QpOption::PathMtu, 0).expect("option");
    b.ep.set_qp_option(QpOption::DestRdAtomic, 0)
        .expect("option");
    b.ep.accept(&server.pep, asked.connreq, b"")
        .expect("accept");
    event(&a.eq, EventKind::Connected);
    for end in [&a, &b] {
        assert_eq!(end.ep.qp().expect("qp").path_mtu, Some(512));
    }
    // Operations that the peer does not support cannot be posted.
    let into = buffer(8);
    let read = a.ep.read(PEER, &into, Remote::new(0, 1), 1);
    refused(read, Errno::EOPNOTSUPP);
    exchange(&a, &b, 5000);
}

fn passive_endpoints_have_names() {
    let (fabric, _domain) = domain();
    let pep = passive(&fabric, "127.0.0.2:0");
    assert_eq!(pep.name().expect("name"), "127.0.0.2:0".parse().unwrap());
    pep.set_name("127.0.0.3:0".parse().unwrap())
        .expect("set_name");
    pep.bind_eq(&queue(&fabric)).expect("bind");
    pep.listen().expect("listen");
    let name = pep.name().expect("name");
    assert_eq!(name.ip(), "127.0.0.3".parse::<std::net::IpAddr>().unwrap());
    assert!(name.port() >= 49152);
    refused(pep.set_name(name), Errno::KFI_EOPBADSTATE);
}
