// SPDX-License-Identifier: GPL-2.0

//! Socket: the UDP sockets of a network namespace, its QP numbers, and its links.
//!
//! There are two UDP sockets, for IPv4 and IPv6, at port 4791 and all addresses. They are opened
//! with the first link of a namespace, on whatever interface it is, and closed with the last;
//! without a link the port is free for others. For each VRF with a link there are two more
//! ([`Socket::set_vrf`]). A packet is for the links of the VRF that it came from, or for those in
//! none: two VRFs may have the same addresses. Another user of the port (in-tree rxe, for example)
//! has it in the whole namespace: then no link can be added there.
//!
//! The socket finds the namespace's QPs by number ([`Inbound`]), because a packet contains the
//! number of its QP but not its link. It also finds the namespace's links by the index of their
//! interface, because connection management needs the link of the address to which a packet was
//! sent.
//!
//! # From the wire to a QP
//!
//! In softirq a packet is parsed and checked as far as that needs no lock, and appended to the
//! inbox of its QP; a run of the QP does the rest. Nothing is allocated, no lock is taken except
//! the inbox's own. A dropped packet is counted by its cause: at the QP and its link or, if no QP
//! was found, at the socket.
//!
//! # QP numbers
//!
//! A number has 24 bits: an index of 18 bits, and above it 6 random bits. So a packet of an earlier
//! QP hardly ever finds a later one at its number, and few guesses of a number hit a QP. InfiniBand
//! reserves the numbers 0 and 1 for special QPs: 0 is not used, 1 is that of connection management.
//! Indices in the lower half are chosen at random ([`Inbound::enter`]). Those in the upper half
//! belong to datagram endpoints, whose numbers peers must know in advance: [`DGRAM_QPN`] plus the
//! port.

use super::{
    cm::{
        self,
        CmSlot, //
    },
    generation::Generation,
    link::Link,
    packet,
    qp::AnyQp,
    stats::{
        LinkStats,
        Stat, //
    }, //
};
use crate::shim::{
    net::NetNs,
    random::random_u32,
    rcu::RcuMap,
    sched::cond_resched,
    skb::RxSkb,
    udp::{
        Receive,
        UdpSockets, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use kfi_core::addr::{
    SockAddr,
    DGRAM_QPN, //
};
use kfi_roce::{
    headers::{
        Qpn,
        MAX_HEADERS, //
    },
    icrc::{
        IPV4_LEN,
        IPV6_LEN, //
    },
    mtu::PathMtu,
    packet::{
        Packet,
        UDP_PORT, //
    }, //
};

/// The UDP sockets of a namespace, see the module documentation.
pub(crate) type Socket = UdpSockets<Inbound>;

/// Opens the sockets of `netns`, and starts connection management there. Fails with `EADDRINUSE` if
/// UDP port 4791 is in use, `ENOMEM`. Sleeps; the RTNL may be held.
pub(super) fn open(netns: &NetNs) -> Result<Arc<Socket>> {
    let socket = UdpSockets::open(netns, UDP_PORT, Inbound::new()?)?;
    cm::begin(&socket)?;
    Ok(socket)
}

/// Closes sockets without links, and ends their connection management. Sleeps; the RTNL may be
/// held.
pub(super) fn close(socket: &Socket) {
    socket.close();
    socket.receiver().cm().link_gone(true);
}

/// Bits of a QP's number that are its index.
const INDEX_BITS: u32 = 18;

/// The mask of those bits.
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The first index after those of the special QPs.
const INDEX_MIN: u32 = 2;

/// The last index before those of ports. It limits the QPs without a port of all users of a
/// namespace.
const INDEX_MAX: u32 = (1 << (INDEX_BITS - 1)) - 1;

kernel::static_assert!(DGRAM_QPN == INDEX_MAX + 1 && DGRAM_QPN + u16::MAX as u32 <= INDEX_MASK);

/// The number of random indices that are tried before the next free one is used.
const RANDOM_TRIES: usize = 16;

/// Ports for endpoints that do not ask for one: the dynamic range of RFC 6335.
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;

/// The requested number of a QP.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// A number that peers cannot know in advance.
    Any,
    /// The number of a port; for 0, of any free port.
    Port(u16),
    /// The number of connection management.
    Gsi,
}

/// The receive side of a namespace: finds the QP of a packet, and the link of an address.
#[pin_data]
pub(crate) struct Inbound {
    /// QPs by index.
    #[pin]
    qps: RcuMap<AnyQp>,
    /// The links that have not gone, by the index of their interface. Each has a reference to the
    /// socket, so each must be removed.
    #[pin]
    links: RcuMap<Arc<Link>>,
    /// The start of the search for a free port.
    next_port: Atomic<u32>,
    stats: LinkStats,
    /// The generation of the namespace's addresses.
    generation: Arc<Generation>,
    /// Connection management.
    #[pin]
    cm: CmSlot,
}

impl Inbound {
    fn new() -> Result<Arc<Self>> {
        let stats = LinkStats::new()?;
        let generation = Generation::new()?;
        let begin = INDEX_MIN + random_u32() % (INDEX_MAX - INDEX_MIN);
        Arc::pin_init(
            pin_init!(Self {
                qps <- RcuMap::new(begin),
                links <- RcuMap::new(0),
                next_port: Atomic::new(random_u32()),
                stats,
                generation,
                cm <- CmSlot::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Counts packets for which no QP was found, and events of connection management.
    pub(crate) fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The generation of the namespace's addresses.
    pub(super) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Connection management.
    pub(super) fn cm(&self) -> &CmSlot {
        &self.cm
    }

    /// Inserts a link, so that packets find it. Fails with `ENOMEM`. Sleeps; the RTNL is held.
    pub(super) fn enter_link(&self, link: &Arc<Link>) -> Result {
        self.links.insert(link.netdev().ifindex, link.clone())
    }

    /// Removes a link. Returns whether it was the last one. Does not sleep; the RTNL is held.
    pub(super) fn leave_link(&self, link: &Link) -> bool {
        self.links.remove(link.netdev().ifindex);
        self.links.next(0).is_none()
    }

    /// The link on the interface with `ifindex`. Any context.
    pub(super) fn link(&self, ifindex: u32) -> Option<Arc<Link>> {
        self.links.get(ifindex)
    }

    /// The first link that is `wanted`, in the order of interface indices. Any context.
    fn find_link(&self, wanted: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
        let mut from = 0;
        loop {
            let (ifindex, link) = self.links.next(from)?;
            if wanted(&link) {
                return Some(link);
            }
            from = ifindex.checked_add(1)?;
        }
    }

    /// Gives a QP its number. Fails with `EBUSY` if the number is taken or there are too many QPs,
    /// `ENOMEM`. Sleeps.
    ///
    /// Packets find the QP when it has stored the number itself.
    pub(super) fn enter(&self, qp: AnyQp, number: Number) -> Result<Qpn> {
        match number {
            Number::Any => {
                let index = self.enter_anywhere(qp)?;
                Ok(Qpn::new(random_u32() << INDEX_BITS | index))
            }
            Number::Port(0) => self.enter_dynamic(qp),
            Number::Port(port) => self.enter_at(qp, Qpn::new(DGRAM_QPN | u32::from(port))),
            Number::Gsi => self.enter_at(qp, Qpn::GSI),
        }
    }

    /// Gives a QP a random free index, so that the number of one QP does not reveal that of
    /// another.
    fn enter_anywhere(&self, qp: AnyQp) -> Result<u32> {
        for _ in 0..RANDOM_TRIES {
            let index = INDEX_MIN + random_u32() % (INDEX_MAX + 1 - INDEX_MIN);
            match self.qps.insert(index, qp.clone()) {
                Err(error) if error == EBUSY => {}
                entered => return entered.map(|()| index),
            }
        }
        // Nearly all indices are taken.
        self.qps.insert_next(INDEX_MIN, INDEX_MAX, qp)
    }

    fn enter_at(&self, qp: AnyQp, number: Qpn) -> Result<Qpn> {
        self.qps.insert(number.get(), qp)?;
        Ok(number)
    }

    /// Gives a QP the number of a free port; the search starts at the next port each time.
    fn enter_dynamic(&self, qp: AnyQp) -> Result<Qpn> {
        let begin = self.next_port.fetch_add(1, Relaxed) as usize % DYNAMIC_PORTS.len();
        for port in DYNAMIC_PORTS.cycle().skip(begin).take(DYNAMIC_PORTS.len()) {
            match self.enter_at(qp.clone(), Qpn::new(DGRAM_QPN | u32::from(port))) {
                Err(error) if error == EBUSY => cond_resched(),
                entered => return entered,
            }
        }
        Err(EBUSY)
    }

    /// Removes the number of a QP. Packets do not find it any more; the map's reference to it is
    /// dropped later. Process context.
    pub(super) fn leave(&self, number: Qpn) {
        self.qps.remove(number.get() & INDEX_MASK);
    }

    /// Calls `f` with each QP that has a number throughout the call. Process context; no lock is
    /// held.
    pub(super) fn for_each_qp(&self, mut f: impl FnMut(&AnyQp)) {
        let mut from = 0;
        while let Some((index, qp)) = self.qps.next(from) {
            f(&qp);
            from = index.wrapping_add(1);
        }
    }

    /// Checks a packet, and queues it at its QP. Returns a packet for which there is no QP, with
    /// the cause.
    fn admit(&self, skb: RxSkb) -> Result<(), (RxSkb, Stat)> {
        let mut buffer = [0; MAX_HEADERS];
        let packet = match Packet::parse(skb.head(&mut buffer), skb.len()) {
            Ok(packet) => packet,
            Err(malformed) => return Err((skb, malformed.into())),
        };
        if packet.payload_len() > PathMtu::Mtu4096.bytes() as usize {
            return Err((skb, Stat::DropTooLong));
        }
        let Some(addrs) = AddrPair::of(&skb) else {
            return Err((skb, Stat::DropIpOptions));
        };
        let number = packet.bth.dest_qp;
        let mut unclaimed = Some(skb);
        self.qps.with(number.get() & INDEX_MASK, |qp| {
            if qp.number() == number {
                if let Some(skb) = unclaimed.take() {
                    qp.arrive(&packet, &addrs, skb);
                }
            }
        });
        unclaimed.map_or(Ok(()), |skb| Err((skb, Stat::DropNoQp)))
    }
}

impl Socket {
    /// The link in `vrf` (0: in none) that has the address `ip`. A link-local `ip` matches on every
    /// interface that has it. Process context or softirq; takes no lock.
    pub(super) fn link_at(&self, ip: IpAddr, vrf: u32) -> Option<Arc<Link>> {
        self.find_link(ip, self.find(ip), |link| {
            link.vrf() == vrf && link.has_ip(ip)
        })
    }

    /// The link that has `addr`, whatever its port. Process context or softirq; takes no lock.
    pub(super) fn link_with(&self, addr: &SockAddr) -> Option<Arc<Link>> {
        let first = match addr.scope() {
            0 => self.find(addr.ip()),
            ifindex => Some(ifindex),
        };
        self.find_link(addr.ip(), first, |link| link.has_address(addr))
    }

    /// The link that has the address `ip`, which `has` checks. Usually it is the one on the
    /// interface `first`, which the kernel's look-up returned. It may be another one if several
    /// interfaces have the address, or if the interface belongs to a VRF: then all links of the
    /// namespace are checked, at most as many as the module parameter `max_links` allows.
    fn find_link(
        &self,
        ip: IpAddr,
        first: Option<u32>,
        has: impl Fn(&Link) -> bool,
    ) -> Option<Arc<Link>> {
        // No packet is delivered to an IPv4 address that the kernel does not find, and no link has
        // a multicast address.
        if ip.is_multicast() || (ip.is_ipv4() && first.is_none()) {
            return None;
        }
        let links = self.receiver();
        let found = first.and_then(|ifindex| links.link(ifindex));
        found
            .filter(|link| has(link))
            .or_else(|| links.find_link(has))
    }

    /// Opens the sockets of `new`, the VRF of a link, and closes those of `old`, its former VRF, if
    /// no other link is in it; 0 is none. Fails with `EADDRINUSE` if another socket has the port in
    /// the new one, `ENOMEM`; then those of `old` are closed all the same. Sleeps; the RTNL is
    /// held.
    pub(super) fn set_vrf(&self, link: &Link, old: u32, new: u32) -> Result {
        let opened = match new {
            0 => Ok(()),
            new => self.open_vrf(new),
        };
        let has_other = || {
            let is_it = |other: &Link| other.id() != link.id() && other.vrf() == old;
            self.receiver().find_link(is_it).is_some()
        };
        if old != 0 && old != new && !has_other() {
            self.close_vrf(old);
        }
        opened
    }
}

impl Receive for Inbound {
    fn receive(&self, skb: RxSkb) {
        if let Err((skb, cause)) = self.admit(skb) {
            self.stats.add(cause, 1);
            packet::reject(skb, cause);
        }
    }

    fn addrs_changed(&self) {
        self.generation.advance();
    }
}

/// The source and destination address of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AddrPair {
    /// Source address.
    pub(crate) from: IpAddr,
    /// Destination address.
    pub(crate) to: IpAddr,
    /// The index of the VRF in which they are addresses; 0: in none.
    pub(crate) vrf: u32,
}

impl AddrPair {
    /// Those of a received packet; `None` if its IP header has options or extension headers.
    pub(super) fn of(skb: &RxSkb) -> Option<Self> {
        let (ip, vrf) = (skb.ip(), skb.vrf());
        if let Ok(ip) = <&[u8; IPV4_LEN]>::try_from(ip) {
            let [_, _, _, _, _, _, _, _, _, _, _, _, from @ .., t0, t1, t2, t3] = *ip;
            Some(Self {
                from: Ipv4Addr::from(from).into(),
                to: Ipv4Addr::new(t0, t1, t2, t3).into(),
                vrf,
            })
        } else {
            let ip = <&[u8; IPV6_LEN]>::try_from(ip).ok()?;
            let from: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
            let to: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
            Some(Self {
                from: Ipv6Addr::from(from).into(),
                to: Ipv6Addr::from(to).into(),
                vrf,
            })
        }
    }
}
