// SPDX-License-Identifier: GPL-2.0

//! Path: an address of a link, the address of a peer, and the route between them.
//!
//! InfiniBand calls this an address handle. For UD the provider creates one for each peer of an
//! address vector; an RC QP has one to its peer. A path caches its route and looks it up again when
//! the cached one is not valid any more. It may outlive its link; then sending fails, which counts
//! as a lost packet.
//!
//! Addresses, links and routes change while a path is in use. [`Path::check`] tells whether packets
//! can be sent now, and if not, why. A caller that posts an operation asks that each time. As long
//! as nothing has changed, this looks nothing up and takes no lock.

use super::{
    generation::Checked,
    link::{
        Link,
        LinkState, //
    },
    packet,
    socket::{
        AddrPair,
        Inbound, //
    }, //
};
use crate::shim::{
    skb::{
        Room,
        TxSkb, //
    },
    udp::{
        Found,
        NextHop,
        Route, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_roce::{
    mtu::PathMtu,
    packet::Packet, //
};

/// The place to which a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Packets leave by the interface of the link.
    Network,
    /// The peer's address is that of a link of this host.
    ThisHost,
}

/// A path, see the module documentation.
#[pin_data]
pub(crate) struct Path {
    addrs: AddrPair,
    /// The traffic class of its packets; over IPv4, the type of service.
    class: u8,
    link: Arc<Link>,
    /// Packets leave by the interface of the link.
    to_network: Checked,
    /// The peer's address is that of a link of this host.
    to_this_host: Checked,
    /// The link has this end's address.
    has_own: Checked,
    #[pin]
    route: Route<Inbound>,
}

impl Path {
    /// The path from `from`, an address of `link`, to `to`, for packets without a traffic class.
    /// Fails as [`with_class`](Self::with_class). Sleeps.
    pub(crate) fn new(link: &Arc<Link>, from: IpAddr, to: IpAddr) -> Result<Arc<Self>> {
        Self::with_class(link, from, to, 0)
    }

    /// The path from `from`, an address of `link`, to `to`. Its packets have the traffic class
    /// `class`, over IPv4 as type of service; the route is the same for all classes.
    ///
    /// Fails with `EINVAL` if the addresses are of two families, or if `to` cannot be a peer's
    /// address (unspecified, multicast or broadcast); `ENOMEM`. Whether there is a route is not
    /// checked. Sleeps.
    pub(crate) fn with_class(
        link: &Arc<Link>,
        from: IpAddr,
        to: IpAddr,
        class: u8,
    ) -> Result<Arc<Self>> {
        let broadcast = match to {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(_) => false,
        };
        if broadcast || to.is_unspecified() || to.is_multicast() || from.is_ipv4() != to.is_ipv4() {
            return Err(EINVAL);
        }
        let vrf = link.vrf();
        let addrs = AddrPair { from, to, vrf };
        let ifindex = link.netdev().ifindex;
        let path = Arc::pin_init(
            pin_init!(Self {
                addrs,
                class,
                link: link.clone(),
                to_network: Checked::new(link),
                to_this_host: Checked::new(link),
                has_own: Checked::new(link),
                route <- Route::new(link.socket().clone(), ifindex, from, to),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // Only routing knows the broadcast address of a subnet.
        match path.route.find() {
            Err(error) if error == EADDRNOTAVAIL => Err(EINVAL),
            _ => Ok(path),
        }
    }

    /// The addresses of both ends. Any context.
    pub(crate) fn addrs(&self) -> &AddrPair {
        &self.addrs
    }

    /// The traffic class of its packets. Any context.
    pub(super) fn class(&self) -> u8 {
        self.class
    }

    /// Its link. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Where packets go that are sent along it now.
    ///
    /// # Errors
    ///
    /// - `EADDRNOTAVAIL`: its own address is not the link's any more.
    /// - `ENETUNREACH`: no route to the peer leaves by the interface of the link.
    /// - `EHOSTUNREACH`: the route is unreachable, prohibited or a blackhole; or the peer's address
    ///   is one of this host, and no link has it.
    /// - `ENODEV`: the link was removed.
    /// - `ENETDOWN`: the link is down, and has lost this end's address.
    /// - `ENOMEM`.
    ///
    /// Process context; does not sleep.
    #[inline]
    pub(crate) fn check(&self) -> Result<Reach> {
        let now = self.to_network.now();
        match self.known_reach(now) {
            Some(reach) if self.route.is_valid() => Ok(reach),
            _ => self.look_again(now).map(|(reach, _)| reach),
        }
    }

    /// Where packets go if that was found in the generation `now`.
    #[inline(always)]
    fn known_reach(&self, now: u64) -> Option<Reach> {
        if self.to_network.is_of(now) {
            Some(Reach::Network)
        } else if self.to_this_host.is_of(now) {
            Some(Reach::ThisHost)
        } else {
            None
        }
    }

    /// [`check`](Self::check) with look-ups. `now` is the generation that was read before. Returns
    /// the route.
    #[cold]
    #[inline(never)]
    fn look_again(&self, now: u64) -> Result<(Reach, Found)> {
        if self.link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        if !self.link.has_ip(self.addrs.from) {
            return Err(self.link.no_address());
        }
        let found = self.route.find_again().map_err(post_error)?;
        let socket = self.link.socket();
        if found.is_local {
            let here = socket.link_at(self.addrs.to, self.link.vrf());
            here.ok_or(EHOSTUNREACH)?;
            self.to_this_host.set(now);
            return Ok((Reach::ThisHost, found));
        }
        // The kernel adds an IPv6 address first and its local route later, without a report. Until
        // the route exists, each call looks again.
        if socket.find(self.addrs.to).is_none() {
            self.to_network.set(now);
        }
        Ok((Reach::Network, found))
    }

    /// Whether the link has lost this end's address. Requests of the peer are then dropped; they
    /// still arrive if another interface of the host has the address. Process context; does not
    /// sleep.
    #[inline]
    pub(super) fn has_lost_address(&self) -> bool {
        !self.has_own.still(|| self.link.has_ip(self.addrs.from))
    }

    /// The next hop, see [`Route::next_hop`]. Process context; does not sleep.
    pub(super) fn next_hop(&self, begin: bool) -> NextHop {
        self.route.next_hop(begin)
    }

    /// The largest path MTU that the route and the interface carry now. Fails as
    /// [`check`](Self::check); `EMSGSIZE` if they carry none. Process context; does not sleep.
    pub(crate) fn mtu(&self) -> Result<PathMtu> {
        let now = self.to_network.now();
        let found = match self.known_reach(now) {
            Some(_) => self.route.find().map_err(post_error)?,
            None => self.look_again(now)?.1,
        };
        PathMtu::of_interface(found.mtu.min(self.link.mtu())).ok_or(EMSGSIZE)
    }

    /// Looks the route up again, even if the cached one is valid. For tests. Does not sleep.
    #[cfg(kfi_kunit)]
    pub(super) fn look_up(&self) -> Result {
        self.route.find_again().map(|_| ())
    }

    /// Builds a packet for this path, see [`packet::build`].
    pub(super) fn build(
        &self,
        source: u16,
        id: u16,
        packet: &Packet,
        fill: impl FnOnce(&mut Room<'_>) -> Result,
    ) -> Result<TxSkb> {
        packet::build(&self.addrs, self.class, source, id, packet, fill)
    }

    /// Sends a packet that was built for this path. An error means that the packet is lost: see
    /// [`Route::send`]. Process context, no spin lock held that is taken in softirq.
    pub(super) fn send(&self, skb: TxSkb) -> Result {
        self.route.send(skb)
    }
}

/// The error of a post for an error of routing. Some of these have another meaning for a post:
/// `EACCES` (prohibited) and `EINVAL` (a blackhole).
fn post_error(routing: Error) -> Error {
    match routing {
        EHOSTUNREACH | EACCES | EINVAL | EADDRNOTAVAIL => EHOSTUNREACH,
        ENOMEM | ENOBUFS => ENOMEM,
        _ => ENETUNREACH,
    }
}
