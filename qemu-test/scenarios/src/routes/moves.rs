// SPDX-License-Identifier: GPL-2.0
//! A service address that moves to another host, or to another interface of this one.

use super::{
    PEER,
    ends::{Caller, Kind, Listener, WHILE, addr, meet, reaches},
    lost_address::{change_address, change_address_of},
};
use crate::{
    abi_threads::NetNs,
    connected::open_region,
    host::{Host, RECEIVED, SENT, buffer, buffer_of, domain_on, holding, is_refused, until},
    networks::Wire,
};
use kfi::{AtomicOp, Buffer, Cntr, CntrBind, Datatype, Errno, FiAddr, Mr, PacketCounter};
use std::net::SocketAddr;

/// Where a service address moves.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The host.
    pub(super) netns: &'a NetNs,
    pub(super) link: &'static str,
    /// The interface of the link.
    pub(super) netdev: &'static str,
}

impl Place<'_> {
    /// Whether it is on the first host.
    fn is_on_first(self, wire: &Wire) -> bool {
        std::ptr::eq(self.netns, &wire.a)
    }
}

/// Moves the service address from the first interface to `place`.
fn move_there(wire: &Wire, service: SocketAddr, place: Place<'_>) {
    let moving = host_prefix(service);
    change_address(&wire.a, "del", &moving);
    change_address_of(place.netns, place.netdev, "add", &moving);
}

/// Moves it back.
fn move_back(wire: &Wire, service: SocketAddr, place: Place<'_>) {
    let moving = host_prefix(service);
    change_address_of(place.netns, place.netdev, "del", &moving);
    change_address(&wire.a, "add", &moving);
}

pub(super) fn host_prefix(addr: SocketAddr) -> String {
    format!("{}/{}", addr.ip(), if addr.is_ipv6() { 128 } else { 32 })
}

/// Datagrams reach the host or the interface that has the address now, and the old endpoint again
/// when it is back.
pub(super) fn datagrams_follow(
    kind: Kind,
    wire: &Wire,
    [near, mut service]: [SocketAddr; 2],
    port: u16,
    place: Place<'_>,
) {
    service.set_port(port);
    let here = [(&wire.a, "roce0", near), (&wire.a, "roce0", service)];
    let (sender, to, old) = meet(kind, here);
    let back = old.meet(&sender);
    reaches(kind, &sender, to, &old);

    move_there(wire, service, place);
    let into = Buffer::new(8).expect("buffer");
    old.ep.recv(&into, 9).expect("recv");
    let this_host = place.is_on_first(wire);
    let mut there = service;
    if this_host {
        // The old endpoint has the port.
        there.set_port(0);
        match kind {
            Kind::Rdm => is_refused(sender.ep.inject(to, b"x"), Errno::EHOSTUNREACH),
            _ => sender.ep.inject(to, b"x").expect("inject"),
        }
    }
    let open = || Host::at(&domain_on(place.link).1, &kind.options(), Some(there));
    let new = place.netns.run(open);
    let to_new = if this_host { sender.meet(&new) } else { to };
    reaches(kind, &sender, to_new, &new);
    reaches(kind, &sender, to_new, &new);
    old.expect_nothing();
    is_refused(old.ep.inject(back, b"x"), Errno::EADDRNOTAVAIL);

    // Back, without a new endpoint.
    drop(new);
    move_back(wire, service, place);
    sender.ep.inject(to, b"home").expect("inject");
    old.expect(RECEIVED, 9);
    reaches(kind, &old, back, &sender);
}

/// A connection does not follow. A message to another host waits until the address is back, and new
/// connections are made at its new place.
pub(super) fn connections_wait(
    kind: Kind,
    wire: &Wire,
    [near, service]: [SocketAddr; 2],
    place: Place<'_>,
) {
    let here = [(&wire.a, "roce0", near), (&wire.a, "roce0", service)];
    let (sender, to, old) = meet(kind, here);
    reaches(kind, &sender, to, &old);
    reaches(kind, &old, PEER, &sender);

    move_there(wire, service, place);
    let (from, into) = (holding(b"patience"), buffer(8));
    let to_other_host = !place.is_on_first(wire);
    old.ep.recv(&into, 9).expect("recv");
    is_refused(old.ep.send(PEER, &from, 3), Errno::EADDRNOTAVAIL);
    let new_place = (place.netns, place.link, service);
    let there = [(&wire.a, "roce0", near), new_place];
    let (other, to_new, new) = meet(kind, there);
    reaches(kind, &other, to_new, &new);
    reaches(kind, &new, PEER, &other);
    if to_other_host {
        // Not earlier: the retries last some seconds.
        sender.ep.send(to, &from, 8).expect("send");
    }
    let early = old.cq.next(WHILE).expect("next");
    assert!(early.is_none(), "{kind:?}: received without the address");
    sender.expect_nothing();

    move_back(wire, service, place);
    if !to_other_host {
        sender.ep.send(to, &from, 8).expect("send");
    }
    old.expect(RECEIVED, 9);
    sender.expect(SENT, 8);
    assert_eq!(into.to_vec(..), b"patience");
    reaches(kind, &old, PEER, &sender);
    is_refused(new.ep.send(PEER, &from, 3), Errno::EADDRNOTAVAIL);
}

/// Requests reach a passive endpoint by the link that has its address now. If another host has the
/// address, they reach that host.
pub(super) fn requests_follow(wire: &Wire, [near, service]: [&str; 2], place: Place<'_>) {
    let caller = || Caller::new(Kind::Connect, &wire.a, addr(near, 0));
    change_address(&wire.a, "add", &host_prefix(addr(service, 0)));
    let listener = Listener::new(&wire.a, addr(service, 0));
    let to = addr(service, listener.port());
    let asking = caller();
    let b = listener.serve(&asking, to, "roce0");
    reaches(Kind::Connect, &asking.host, PEER, &b);

    let early = listener.host("roce0", to);
    move_there(wire, to, place);
    let asking = caller();
    if place.is_on_first(wire) {
        asking.host.ep.connect(to, b"").expect("connect");
        let asked = listener.asked();
        assert_eq!((asked.local, asked.link.as_str()), (to, place.link));
        // `early` is on the link that had the address.
        is_refused(
            early.ep.accept(&listener.pep, asked.connreq, b""),
            Errno::EADDRNOTAVAIL,
        );
        let b = listener.host(place.link, asked.local);
        listener.accept(&asked, &b, &asking);
        reaches(Kind::Connect, &asking.host, PEER, &b);
    } else {
        let there = Listener::new(place.netns, to);
        let b = there.serve(&asking, to, place.link);
        reaches(Kind::Connect, &asking.host, PEER, &b);
        assert!(listener.eq.read(WHILE).expect("read").is_none());
    }

    move_back(wire, to, place);
    let asking = caller();
    asking.host.ep.connect(to, b"").expect("connect");
    let asked = listener.asked();
    assert_eq!((asked.local, asked.link.as_str()), (to, "roce0"));
    listener.accept(&asked, &early, &asking);
    reaches(Kind::Connect, &asking.host, PEER, &early);
    change_address(&wire.a, "del", &host_prefix(to));
}

/// An endpoint whose address has moved to another interface of its host receives nothing, and its
/// memory is not accessed. What a connected one has sent before still completes. When the address is
/// back, the operations succeed; datagrams are lost.
pub(super) fn the_old_link_receives_nothing(
    kind: Kind,
    wire: &Wire,
    sender: (&NetNs, &str, SocketAddr),
    service: &str,
) {
    let place = Place {
        netns: &wire.a,
        link: "roce1",
        netdev: "other",
    };
    let service = addr(service, 0);
    change_address(&wire.a, "add", &host_prefix(service));
    let (sender, to, old) = meet(kind, [sender, (&wire.a, "roce0", service)]);
    reaches(kind, &sender, to, &old);
    let words = Words::of(&old);
    // Reliable datagrams have no statistics of their endpoint.
    let dropped = |why| match kind {
        Kind::Rdm => None,
        _ => Some(wire.a.run(|| old.count(why))),
    };
    let by_address = || dropped(PacketCounter::DropDestination);
    let without_receive = dropped(PacketCounter::DropNoReceive);

    let (from, into, before) = (holding(b"patience"), buffer(8), by_address());
    let is_connected = matches!(kind, Kind::Connect | Kind::ConnectQp);
    let own = buffer(8);
    if is_connected {
        old.ep.send(PEER, &from, 4).expect("send");
    }
    move_there(wire, service, place);
    old.ep.recv(&into, 9).expect("recv");
    sender.ep.send(to, &from, 8).expect("send");
    if kind != Kind::Dgram {
        words.access(&sender, to);
    }
    let early = old.cq.next(2 * WHILE).expect("next");
    assert!(
        early.is_none(),
        "{kind:?}: received on a link without the address"
    );
    words.have([1, 2, 3], [0, 0]);
    if is_connected {
        sender.ep.recv(&own, 10).expect("recv");
        sender.expect(RECEIVED, 10);
        old.expect(SENT, 4);
    }
    if kind == Kind::Dgram {
        sender.expect(SENT, 8);
    } else {
        sender.expect_nothing();
    }
    assert!(kind == Kind::Rdm || by_address() > before, "{kind:?}");
    assert_eq!(dropped(PacketCounter::DropNoReceive), without_receive);
    move_back(wire, service, place);
    if kind == Kind::Dgram {
        reaches(kind, &sender, to, &old);
    } else {
        old.expect(RECEIVED, 9);
        assert_eq!(into.to_vec(..), b"patience");
        let mut done = [(); 4].map(|()| sender.completion().op_context);
        done.sort_unstable();
        assert_eq!(done, [5, 6, 7, 8], "{kind:?}");
        words.have([10, 12, 3], [1, 2]);
        assert_eq!(words.fetched.to_vec(..), 2u64.to_ne_bytes());
        assert_eq!(words.read.to_vec(..), 3u64.to_ne_bytes());
    }
    change_address(&wire.a, "del", &host_prefix(service));
}

/// Three words of an endpoint, and the memory of a peer that accesses them.
struct Words {
    region: Mr,
    /// The accesses: those that write, and those that return a value.
    counts: [Cntr; 2],
    ten: Buffer,
    fetched: Buffer,
    read: Buffer,
}

impl Words {
    fn of(host: &Host) -> Self {
        let region = open_region(host, &buffer_of(&[1u64, 2, 3]), 1);
        let counts = [CntrBind::REMOTE_WRITE, CntrBind::REMOTE_READ].map(|kind| {
            let cntr = host.domain.cntr().open().expect("cntr");
            region.bind_cntr(&cntr, kind).expect("bind cntr");
            cntr
        });
        Self {
            region,
            counts,
            ten: buffer_of(&[10u64]),
            fetched: buffer(8),
            read: buffer(8),
        }
    }

    /// Writes 10 to the first word, adds 10 to the second one, and reads the third one.
    fn access(&self, from: &Host, to: FiAddr) {
        let [first, second, third] = [0, 8, 16].map(|offset| self.region.remote(offset));
        let (ep, word, sum) = (&from.ep, Datatype::Uint64, AtomicOp::Sum);
        ep.write(to, &self.ten, first, 7).expect("write");
        let added = ep.fetch_atomic(to, &self.ten, &self.fetched, second, word, sum, 6);
        added.expect("fetch_atomic");
        ep.read(to, &self.read, third, 5).expect("read");
    }

    /// The words have these values, and so many accesses were counted.
    #[track_caller]
    fn have(&self, words: [u64; 3], counts: [u64; 2]) {
        let bytes = words.map(u64::to_ne_bytes).concat();
        assert_eq!(self.region.buffer().to_vec(..), bytes);
        until("the counts", || {
            self.counts.each_ref().map(Cntr::value) == counts
        });
    }
}
