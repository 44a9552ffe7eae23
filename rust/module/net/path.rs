// SPDX-License-Identifier: GPL-2.0

//! Path: how packets get from an address of a link to a peer.
//!
//! What InfiniBand calls an address handle: for UD the provider makes one for each peer of an
//! address vector, an RC QP has one to its peer. A path remembers its route and asks routing again
//! when that no longer holds. It may outlive its link; sending fails then, as on any network a
//! packet is lost.

use super::{
    link::Link,
    packet,
    socket::{
        Inbound,
        Way, //
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

/// See the module's story.
#[pin_data]
pub(crate) struct Path {
    way: Way,
    link: Arc<Link>,
    #[pin]
    route: Route<Inbound>,
}

impl Path {
    /// The path from `from`, an address of `link`, to `to`.
    ///
    /// `EINVAL` the addresses are of two families, or `to` is no peer's: unspecified, multicast or
    /// broadcast; `ENOMEM`. Sleeps.
    pub(crate) fn new(link: &Arc<Link>, from: IpAddr, to: IpAddr) -> Result<Arc<Self>> {
        let nobody = match to {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(_) => false,
        };
        if nobody || to.is_unspecified() || to.is_multicast() || from.is_ipv4() != to.is_ipv4() {
            return Err(EINVAL);
        }
        let way = Way { from, to };
        let ifindex = link.netdev().ifindex;
        let path = Arc::pin_init(
            pin_init!(Self {
                way,
                link: link.clone(),
                route <- Route::new(link.socket().clone(), ifindex, from, to),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // The broadcast address of a subnet is known to routing only.
        if path.route.is_of_many() {
            return Err(EINVAL);
        }
        Ok(path)
    }

    /// Its two addresses. Any context.
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// Its link. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The largest path MTU that the way and the interface carry now; `None` if there is no way, or
    /// they carry none. Process context.
    pub(crate) fn mtu(&self) -> Option<PathMtu> {
        PathMtu::of_interface(self.route.mtu()?.min(self.link.mtu()))
    }

    /// Looks the route up anew, whether or not the cached one is valid. For tests. Does not sleep.
    #[cfg(kfi_kunit)]
    pub(super) fn look_up(&self) -> Result {
        self.route.look_up()
    }

    /// Builds a packet for it, see [`packet::build`].
    pub(super) fn build(
        &self,
        source: u16,
        id: u16,
        packet: &Packet,
        fill: impl FnOnce(&mut Room<'_>) -> Result,
    ) -> Result<TxSkb> {
        packet::build(&self.way, source, id, packet, fill)
    }

    /// Sends a packet that was built for it. An error means that it is lost: see [`Route::send`].
    /// Process context, no spin lock that is taken in softirq.
    pub(super) fn send(&self, skb: TxSkb) -> Result {
        self.route.send(skb)
    }
}
