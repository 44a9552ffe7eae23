// SPDX-License-Identifier: GPL-2.0
//! Endpoints of every type, and passive endpoints, whose link loses their address and gets it back,
//! or is removed; and answers to requests, when the answer is lost.

use super::{
    PEER,
    ends::{
        Caller, ENDS, KINDS, Kind, Listener, addr, meet, memory_is_reached, reaches,
        transmit_context, transmits_are_refused,
    },
};
use crate::{
    abi_threads::NetNs,
    connected::open_region,
    host::{BOTH, Host, RECEIVED, SOON, buffer, domain_on, errno, holding, is_refused, until},
    networks::Wire,
    raw::ip,
};
use kfi::{
    Buffer, ConnectionEvent, CqBind, Endpoint, EpType, ErrEvent, Errno, FiAddr, Mr,
    PassiveEndpoint, ScalableEndpoint, Side,
};
use std::net::{Ipv6Addr, SocketAddr};

/// Adds or deletes an address of a host.
pub(crate) fn change_address(netns: &NetNs, what: &str, ip_and_len: &str) {
    change_address_of(netns, "veth0", what, ip_and_len);
}

/// The same, on this interface.
pub(super) fn change_address_of(netns: &NetNs, dev: &str, what: &str, ip_and_len: &str) {
    let nodad = if what == "add" && ip_and_len.contains(':') {
        "nodad"
    } else {
        ""
    };
    netns.run(|| {
        ip(&format!("address {what} {ip_and_len} dev {dev} {nodad}"));
        if !nodad.is_empty() {
            let (added, _) = ip_and_len.split_once('/').expect("a length");
            until_local(added.parse().expect("an address"));
        }
    });
}

/// Waits until this thread's namespace has the local route of an IPv6 address, which the kernel
/// adds after the address.
fn until_local(ip: Ipv6Addr) {
    const RTF_LOCAL: u32 = 1 << 31;
    let start = format!("{:032x} 80 ", ip.to_bits());
    until("a local route", || {
        let table = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").expect("routes");
        let mut routes = table.lines().filter(|line| line.starts_with(&start));
        routes.any(|line| {
            let flags = line.split_whitespace().nth(8).expect("flags");
            u32::from_str_radix(flags, 16).expect("a number") & RTF_LOCAL != 0
        })
    });
}

/// The kind of an endpoint, the endpoint, the address that it has for its peer, and the peer.
type Sender = (Kind, Host, FiAddr, Host);

/// A sender of each kind at `here`, and a transmit context of a scalable endpoint. Their peers are
/// on the other host.
fn senders(wire: &Wire, here: SocketAddr, far: SocketAddr) -> Vec<Sender> {
    let at = [(&wire.a, "roce0", here), (&wire.b, "roce0", far)];
    let mut senders: Vec<_> = KINDS
        .map(|kind| {
            let (a, to_b, b) = meet(kind, at);
            (kind, a, to_b, b)
        })
        .into();
    let context = transmit_context(&wire.a, here);
    let target = wire.b.run(|| {
        let domain = domain_on("roce0").1;
        Host::at(&domain, &Kind::Rdm.options(), Some(far))
    });
    let to_target = context.meet(&target);
    senders.push((Kind::Rdm, context, to_target, target));
    senders
}

/// Each sender reaches its peer, and the memory of the peer.
fn peers_are_reached(senders: &[Sender], regions: &[Mr]) {
    for ((kind, a, to_b, b), region) in senders.iter().zip(regions) {
        reaches(*kind, a, *to_b, b);
        memory_is_reached(*kind, a, *to_b, region.remote(0), region.buffer());
    }
}

/// A request of the second host that waits at a passive endpoint of the first one, and an endpoint
/// that may accept it.
struct Request {
    listener: Listener,
    asking: Caller,
    asked: ConnectionEvent,
    answer: Host,
}

impl Request {
    fn new(wire: &Wire, here: SocketAddr, far: SocketAddr) -> Self {
        let listener = Listener::new(&wire.a, here);
        let asking = Caller::new(Kind::Connect, &wire.b, far);
        let to = SocketAddr::new(here.ip(), listener.port());
        assert_eq!(asking.call(to), None);
        let asked = listener.asked();
        let answer = listener.host("roce0", asked.local);
        Self {
            listener,
            asking,
            asked,
            answer,
        }
    }

    fn accept_by(&self, ep: &Endpoint) -> kfi::Result<()> {
        ep.accept(&self.listener.pep, self.asked.connreq, b"")
    }

    /// The error event of the endpoint that has accepted.
    fn failure(&self) -> ErrEvent {
        let eq = &self.listener.eq;
        let event = eq.read(SOON);
        assert_eq!(errno(event), Some(Errno::KFI_EAVAIL));
        eq.readerr().expect("readerr").expect("an error")
    }
}

/// What there is at an address of the first host.
struct Ends {
    here: SocketAddr,
    /// The address of the other host.
    far: SocketAddr,
    callers: [Caller; KINDS.len()],
    senders: Vec<Sender>,
    /// The regions of the senders' peers.
    regions: Vec<Mr>,
    /// An endpoint that sends to another one at the same address.
    local: Host,
    to_neighbour: FiAddr,
    neighbour: Host,
    /// The buffer of a receive of the neighbour.
    into: Buffer,
    /// Endpoints that are not enabled yet.
    unbound: Endpoint,
    scalable: ScalableEndpoint,
    /// Endpoints that get the address later.
    nameless: (Endpoint, ScalableEndpoint),
    request: Request,
    /// Another endpoint for the request, which is not enabled yet.
    late: Endpoint,
    /// A passive endpoint that listens later.
    silent: PassiveEndpoint,
}

impl Ends {
    fn new(wire: &Wire, near: &str, far: &str) -> Self {
        let (here, far) = (addr(near, 0), addr(far, 0));
        let callers = KINDS.map(|kind| Caller::new(kind, &wire.a, here));
        let senders = senders(wire, here, far);
        let regions = senders.iter().map(|(.., b)| open_region(b, &buffer(8), 1));
        let regions: Vec<_> = regions.collect();
        peers_are_reached(&senders, &regions);
        let (local, to_neighbour, neighbour) = meet(Kind::Rdm, [(&wire.a, "roce0", here); 2]);
        reaches(Kind::Rdm, &local, to_neighbour, &neighbour);
        let domain = &local.domain;
        let unbound = domain.endpoint().addr(here).open().expect("endpoint");
        unbound.bind_cq(&local.cq, BOTH).expect("bind");
        unbound.bind_av(&local.av).expect("bind");
        let scalable = domain.scalable_endpoint().addr(here).open();
        let scalable = scalable.expect("scalable endpoint");
        scalable.bind_av(&local.av).expect("bind");
        let nameless = (
            domain.endpoint().open().expect("endpoint"),
            domain
                .scalable_endpoint()
                .open()
                .expect("scalable endpoint"),
        );
        let request = Request::new(wire, here, far);
        let (eq, answer) = (&request.listener.eq, &request.answer);
        let late = answer.domain.endpoint().ep_type(EpType::Msg);
        let late = late.addr(request.asked.local).open().expect("endpoint");
        late.bind_cq(&answer.cq, BOTH).expect("bind");
        late.bind_eq(eq).expect("bind");
        let silent = request.listener.fabric.passive_endpoint(here).open();
        let silent = silent.expect("passive endpoint");
        silent.bind_eq(eq).expect("bind");
        Self {
            here,
            far: SocketAddr::new(far.ip(), 7471),
            callers,
            senders,
            regions,
            local,
            to_neighbour,
            neighbour,
            into: Buffer::new(100).expect("buffer"),
            unbound,
            scalable,
            nameless,
            request,
            late,
            silent,
        }
    }

    /// Requests and answers fail with this error.
    fn connections_are_refused(&self, error: Errno) {
        for caller in &self.callers {
            let got = caller.call(self.far);
            assert_eq!(got, Some(error), "{:?} {}", caller.kind, self.here);
        }
        let request = &self.request;
        for ep in [&request.answer.ep, &self.late] {
            is_refused(request.accept_by(ep), error);
        }
    }

    /// So do transmits of all endpoints, to other hosts and to this one.
    fn transmits_are_refused(&self, error: Errno) {
        for ((kind, a, to_b, _), region) in self.senders.iter().zip(&self.regions) {
            let before = region.buffer().to_vec(..);
            transmits_are_refused(*kind, a, *to_b, region.remote(0), error);
            assert_eq!(region.buffer().to_vec(..), before);
        }
        let ep = &self.local.ep;
        is_refused(ep.send(self.to_neighbour, &holding(b"refused!"), 3), error);
    }

    fn all_are_refused(&self) {
        let gone = Errno::EADDRNOTAVAIL;
        self.connections_are_refused(gone);
        self.transmits_are_refused(gone);
        // Its receives wait for the address.
        self.neighbour.ep.recv(&self.into, 9).expect("recv");
        is_refused(self.unbound.enable(), gone);
        is_refused(self.scalable.enable(), gone);
        let context = self.scalable.context(Side::Transmit, 0);
        let context = context.open().expect("context");
        context
            .bind_cq(&self.local.cq, CqBind::empty())
            .expect("bind");
        is_refused(context.enable(), gone);
        let domain = &self.local.domain;
        is_refused(domain.endpoint().addr(self.here).open(), gone);
        is_refused(domain.scalable_endpoint().addr(self.here).open(), gone);
        let (ep, sep) = &self.nameless;
        is_refused(ep.set_name(self.here), gone);
        is_refused(sep.set_name(self.here), gone);
        is_refused(self.silent.listen(), gone);
        let request = &self.request;
        let name = request.answer.ep.name().expect("name");
        assert_eq!(name, request.asked.local);
    }

    fn all_succeed(&self) {
        let injected = self.local.ep.inject(self.to_neighbour, b"again");
        injected.expect("inject");
        self.neighbour.expect(RECEIVED, 9);
        self.unbound.enable().expect("enable");
        self.scalable.enable().expect("enable");
        let (ep, sep) = &self.nameless;
        ep.set_name(self.here).expect("set_name");
        sep.set_name(self.here).expect("set_name");
        self.silent.listen().expect("listen");
        // The refused answers have not taken the request.
        let Request {
            listener,
            asking,
            asked,
            answer,
        } = &self.request;
        listener.accept(asked, answer, asking);
        reaches(Kind::Connect, answer, PEER, &asking.host);
        peers_are_reached(&self.senders, &self.regions);
        for caller in &self.callers {
            assert_eq!(caller.call(self.far), None, "{:?}", caller.kind);
        }
    }
}

/// Transmits, requests, answers and binding of an endpoint fail while its link has lost the
/// address, and succeed when it is back.
pub(super) fn an_endpoint_without_its_address_is_told() {
    let wire = Wire::new();
    for (near, far) in ENDS {
        let own = format!("{near}/{}", if near.contains(':') { 64 } else { 24 });
        let ends = Ends::new(&wire, near, far);
        change_address(&wire.a, "del", &own);
        ends.all_are_refused();
        change_address(&wire.a, "add", &own);
        ends.all_succeed();
    }
}

/// If the link that has lost the address is down or was removed, that is the error. An interface that
/// is down has no IPv6 addresses.
pub(super) fn a_link_without_the_address_is_down_or_removed() {
    let wire = Wire::new();
    let ends = ENDS.map(|(near, far)| Ends::new(&wire, near, far));
    wire.a.run(|| ip("link set veth0 down"));
    change_address(&wire.a, "del", &format!("{}/24", ENDS[0].0));
    for ends in &ends {
        ends.connections_are_refused(Errno::ENETDOWN);
        ends.transmits_are_refused(Errno::ENETDOWN);
    }
    wire.a.run(|| ip("link del veth0"));
    for ends in &ends {
        ends.connections_are_refused(Errno::ENODEV);
    }
}

/// EP_ACCEPT looks neither at the route nor at the state of the interface. An event tells that the
/// answer was lost.
pub(super) fn an_endpoint_is_told_that_its_answer_was_lost() {
    let wire = Wire::new();
    // An interface that is down has no IPv6 addresses.
    for ((near, far), lose, restore) in [
        (
            ENDS[1],
            "-6 route add unreachable 2001:db8::2/128",
            "-6 route del unreachable 2001:db8::2/128",
        ),
        (
            ENDS[0],
            "route add unreachable 192.0.2.2/32",
            "route del unreachable 192.0.2.2/32",
        ),
        (ENDS[0], "link set veth0 down", "link set veth0 up"),
    ] {
        let request = Request::new(&wire, addr(near, 0), addr(far, 0));
        wire.a.run(|| ip(lose));
        let ep = &request.answer.ep;
        request.accept_by(ep).expect("accept");
        let told = request.failure();
        let expected = (ep.handle(), Errno::ETIMEDOUT, 0);
        assert_eq!((told.handle, told.err, told.prov_errno), expected, "{lose}");
        wire.a.run(|| ip(restore));
    }
}

pub(super) fn an_answer_by_a_removed_link_is_refused() {
    let wire = Wire::new();
    let requests = ENDS.map(|(near, far)| Request::new(&wire, addr(near, 0), addr(far, 0)));
    wire.a.run(|| ip("link del veth0"));
    for request in &requests {
        is_refused(request.accept_by(&request.answer.ep), Errno::ENODEV);
    }
}
