// SPDX-License-Identifier: GPL-2.0

//! Socket: the door of a network namespace to the wire.
//!
//! Two UDP sockets, for IPv4 and IPv6, at port 4791 and all addresses. They are opened with the
//! first link of a namespace, whatever interface that is on, and closed with the last; without a
//! link the port is free for others. Somebody else who has it (in-tree rxe, for one) has it for the
//! whole namespace: then no link can be added there.
//!
//! With the socket come the numbers of its namespace's QPs ([`Inbound`]), because a packet says to
//! which QP it goes, but not to which link.
//!
//! # From the wire to a QP
//!
//! In softirq a packet is parsed and judged as far as that needs no lock, and appended to the inbox
//! of its QP, whose worker does the rest. Nothing is allocated, no lock is taken but the inbox's
//! own, and what is dropped is counted by its cause: with the QP and its link, or, if no QP was
//! found, with the socket.
//!
//! # QP numbers
//!
//! 24 bits: an index of 18 bits, given round and round from a random beginning, and above it 6
//! random bits. So a packet of an earlier QP hardly ever finds a later one at its number, and who
//! guesses numbers hits one in many. 0 and 1 are special QPs in InfiniBand: 0 is not used, 1 is
//! that of connection management. The upper half of the indices belongs to datagram endpoints,
//! whose numbers are to be known beforehand: [`DGRAM_QPN`] and the port.

use super::{
    cm::Slot,
    packet,
    qp::AnyQp,
    stats::{
        Figure,
        Figures, //
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
use kfi_core::{
    addr::DGRAM_QPN,
    roce::{
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
    }, //
};

/// See the module's story.
pub(crate) type Socket = UdpSockets<Inbound>;

/// Opens the sockets of `netns`. `EADDRINUSE` somebody else has UDP port 4791; `ENOMEM`. Sleeps; the
/// RTNL may be held.
pub(super) fn open(netns: &NetNs) -> Result<Arc<Socket>> {
    UdpSockets::open(netns, UDP_PORT, Inbound::new()?)
}

/// Bits of a QP's number that are its index.
const INDEX_BITS: u32 = 18;

/// Those bits.
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The first index behind those of the special QPs.
const INDEX_MIN: u32 = 2;

/// The last one before those of ports: so many QPs without a port, and no more, a namespace can
/// have, of all its users.
const INDEX_MAX: u32 = (1 << (INDEX_BITS - 1)) - 1;

kernel::static_assert!(DGRAM_QPN == INDEX_MAX + 1 && DGRAM_QPN + u16::MAX as u32 <= INDEX_MASK);

/// How many random indices are tried before the next free one is taken.
const RANDOM_TRIES: usize = 16;

/// Ports for those who do not ask for one: the dynamic range of RFC 6335.
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;

/// Which number a QP is to have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// One that nobody knows beforehand.
    Any,
    /// That of a port; of 0, a port that nobody has.
    Port(u16),
    /// That of connection management.
    Gsi,
}

/// What arrives in a namespace, and for whom.
#[pin_data]
pub(crate) struct Inbound {
    /// By index.
    #[pin]
    qps: RcuMap<AnyQp>,
    /// Where the search for a free port begins.
    next_port: Atomic<u32>,
    figures: Figures,
    /// Connection management.
    #[pin]
    cm: Slot,
}

impl Inbound {
    fn new() -> Result<Arc<Self>> {
        let figures = Figures::new()?;
        let begin = INDEX_MIN + random_u32() % (INDEX_MAX - INDEX_MIN);
        Arc::pin_init(
            pin_init!(Self {
                qps <- RcuMap::new(begin),
                next_port: Atomic::new(random_u32()),
                figures,
                cm <- Slot::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What arrived for no QP, and what connection management counts.
    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Connection management.
    pub(super) fn cm(&self) -> &Slot {
        &self.cm
    }

    /// Gives a QP its number. `EBUSY` somebody has it, or there are too many; `ENOMEM`. Sleeps.
    ///
    /// Packets find it when it knows the number itself.
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

    /// Gives a QP a random index that no other has, so that a stranger knows no QP's number from that of
    /// another.
    fn enter_anywhere(&self, qp: AnyQp) -> Result<u32> {
        for _ in 0..RANDOM_TRIES {
            let index = INDEX_MIN + random_u32() % (INDEX_MAX + 1 - INDEX_MIN);
            match self.qps.insert(index, qp.clone()) {
                Err(error) if error == EBUSY => {}
                entered => return entered.map(|()| index),
            }
        }
        // Nearly all are taken.
        self.qps.insert_next(INDEX_MIN, INDEX_MAX, qp)
    }

    fn enter_at(&self, qp: AnyQp, number: Qpn) -> Result<Qpn> {
        self.qps.insert(number.get(), qp)?;
        Ok(number)
    }

    /// Gives a QP the number of a port that nobody has, round and round.
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

    /// Takes the number from a QP. Its packets do not find it any more; the map's reference to it
    /// is dropped later. Process context.
    pub(super) fn leave(&self, number: Qpn) {
        self.qps.remove(number.get() & INDEX_MASK);
    }

    /// Calls `f` with each QP that has a number all the while. Process context; no lock is held.
    pub(super) fn for_each_qp(&self, mut f: impl FnMut(&AnyQp)) {
        let mut from = 0;
        while let Some((index, qp)) = self.qps.next(from) {
            f(&qp);
            from = index.wrapping_add(1);
        }
    }

    /// Judges a packet, and has it wait for its QP. One for which there is no QP is given back with
    /// the cause.
    fn admit(&self, skb: RxSkb) -> Result<(), (RxSkb, Figure)> {
        let mut buffer = [0; MAX_HEADERS];
        let packet = match Packet::parse(skb.head(&mut buffer), skb.len()) {
            Ok(packet) => packet,
            Err(malformed) => return Err((skb, malformed.into())),
        };
        if packet.payload_len() > PathMtu::Mtu4096.bytes() as usize {
            return Err((skb, Figure::DropTooLong));
        }
        let Some(way) = Way::of(skb.ip()) else {
            return Err((skb, Figure::DropIpOptions));
        };
        let number = packet.bth.dest_qp;
        let mut waiting = Some(skb);
        self.qps.with(number.get() & INDEX_MASK, |qp| {
            if qp.number() == number {
                if let Some(skb) = waiting.take() {
                    qp.arrive(&packet, &way, skb);
                }
            }
        });
        match waiting {
            Some(skb) => Err((skb, Figure::DropNoQp)),
            None => Ok(()),
        }
    }
}

impl Receive for Inbound {
    fn receive(&self, skb: RxSkb) {
        if let Err((skb, cause)) = self.admit(skb) {
            self.figures.add(cause, 1);
            packet::reject(skb, cause);
        }
    }
}

/// Where a packet came from and where it went to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Source address.
    pub(crate) from: IpAddr,
    /// Destination address.
    pub(crate) to: IpAddr,
}

impl Way {
    /// Reads an IP header; `None` if there is more to it than addresses and numbers.
    pub(super) fn of(ip: &[u8]) -> Option<Self> {
        if let Ok(ip) = <&[u8; IPV4_LEN]>::try_from(ip) {
            let [_, _, _, _, _, _, _, _, _, _, _, _, from @ .., t0, t1, t2, t3] = *ip;
            Some(Self {
                from: Ipv4Addr::from(from).into(),
                to: Ipv4Addr::new(t0, t1, t2, t3).into(),
            })
        } else {
            let ip = <&[u8; IPV6_LEN]>::try_from(ip).ok()?;
            let from: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
            let to: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
            Some(Self {
                from: Ipv6Addr::from(from).into(),
                to: Ipv6Addr::from(to).into(),
            })
        }
    }
}
