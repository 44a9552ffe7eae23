// SPDX-License-Identifier: GPL-2.0

//! Path: an address of a link, the address of a peer, and the route between them.
//!
//! InfiniBand calls this an address handle. For UD the provider creates one for each peer of an
//! address vector; an RC QP has one to its peer. A path caches its route and looks it up again when
//! the cached one is not valid any more. It may outlive its link; then sending fails, which counts
//! as a lost packet.

use super::{
    link::Link,
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
    udp::Route, //
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

/// A path, see the module documentation.
#[pin_data]
pub(crate) struct Path {
    addrs: AddrPair,
    link: Arc<Link>,
    #[pin]
    route: Route<Inbound>,
}

impl Path {
    /// The path from `from`, an address of `link`, to `to`.
    ///
    /// Fails with `EINVAL` if the addresses are of two families, or if `to` cannot be a peer's
    /// address (unspecified, multicast or broadcast); `ENOMEM`. Sleeps.
    pub(crate) fn new(link: &Arc<Link>, from: IpAddr, to: IpAddr) -> Result<Arc<Self>> {
        let broadcast = match to {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(_) => false,
        };
        if broadcast || to.is_unspecified() || to.is_multicast() || from.is_ipv4() != to.is_ipv4() {
            return Err(EINVAL);
        }
        let addrs = AddrPair { from, to };
        let ifindex = link.netdev().ifindex;
        let path = Arc::pin_init(
            pin_init!(Self {
                addrs,
                link: link.clone(),
                route <- Route::new(link.socket().clone(), ifindex, from, to),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // Only routing knows the broadcast address of a subnet.
        if path.route.is_of_many() {
            return Err(EINVAL);
        }
        Ok(path)
    }

    /// The addresses of both ends. Any context.
    pub(crate) fn addrs(&self) -> &AddrPair {
        &self.addrs
    }

    /// Its link. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The largest path MTU that the route and the interface carry now; `None` if there is no
    /// route, or if they carry none. Process context.
    pub(crate) fn mtu(&self) -> Option<PathMtu> {
        PathMtu::of_interface(self.route.mtu()?.min(self.link.mtu()))
    }

    /// Looks the route up again, even if the cached one is valid. For tests. Does not sleep.
    #[cfg(kfi_kunit)]
    pub(super) fn look_up(&self) -> Result {
        self.route.look_up()
    }

    /// Builds a packet for this path, see [`packet::build`].
    pub(super) fn build(
        &self,
        source: u16,
        id: u16,
        packet: &Packet,
        fill: impl FnOnce(&mut Room<'_>) -> Result,
    ) -> Result<TxSkb> {
        packet::build(&self.addrs, source, id, packet, fill)
    }

    /// Sends a packet that was built for this path. An error means that the packet is lost: see
    /// [`Route::send`]. Process context, no spin lock held that is taken in softirq.
    pub(super) fn send(&self, skb: TxSkb) -> Result {
        self.route.send(skb)
    }
}
