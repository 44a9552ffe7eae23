// SPDX-License-Identifier: GPL-2.0
//! A service address that moves to another host, or to another interface of this one.

use super::{
    PEER,
    ends::{Caller, Kind, Listener, WHILE, addr, meet, reaches},
    lost_address::{change_address, change_address_of},
};
use crate::{
    abi_threads::NetNs,
    host::{Host, RECEIVED, SENT, buffer, domain_on, holding, is_refused},
    networks::Wire,
};
use kfi::{Buffer, Errno};
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
    if to_other_host {
        sender.ep.send(to, &from, 8).expect("send");
    }
    is_refused(old.ep.send(PEER, &from, 3), Errno::EADDRNOTAVAIL);
    let new_place = (place.netns, place.link, service);
    let there = [(&wire.a, "roce0", near), new_place];
    let (other, to_new, new) = meet(kind, there);
    reaches(kind, &other, to_new, &new);
    reaches(kind, &new, PEER, &other);
    old.expect_nothing();
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

/// A message to an endpoint whose address has moved to another interface of its host arrives when
/// the address is back, and not before.
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

    move_there(wire, service, place);
    let (from, into) = (holding(b"patience"), buffer(8));
    old.ep.recv(&into, 9).expect("recv");
    sender.ep.send(to, &from, 8).expect("send");
    let early = old.cq.next(2 * WHILE).expect("next");
    assert!(
        early.is_none(),
        "{kind:?}: received on a link without the address"
    );
    move_back(wire, service, place);
    old.expect(RECEIVED, 9);
    sender.expect(SENT, 8);
    assert_eq!(into.to_vec(..), b"patience");
    change_address(&wire.a, "del", &host_prefix(service));
}
