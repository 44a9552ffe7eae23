// SPDX-License-Identifier: GPL-2.0

//! The module's own provider: endpoints of every type on the links of a network namespace.
//!
//! It offers the links that are up, in the order in which they were added. Each link is offered at its
//! first IPv4 and its first IPv6 address, and at another of its addresses if the caller names that as
//! its own address. At each address reliable datagrams come first. An interface whose MTU is too small
//! for any path MTU offers only reliable datagrams, to peers on this host.

use kernel::prelude::*;

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    info::{
        Info,
        Kind,
        Name,
        Offer,
        Request, //
    }, //
};
use kfi_roce::mtu::PathMtu;

use super::{
    Provider,
    VERSION, //
};
use crate::{
    net::{
        self,
        Link,
        LinkState,
        NetNsId, //
    },
    provider::fabric::Fabric,
    shim::errno::to_error, //
};

/// The module's own provider.
pub(super) struct BuiltinProvider;

impl BuiltinProvider {
    /// The name of the provider.
    const NAME: &'static [u8] = b"kfabric";

    /// The endpoint types of `link` and their attributes.
    fn kinds(link: &Link) -> impl Iterator<Item = Kind> {
        let mtu = PathMtu::of_interface(link.mtu());
        let dgram = mtu.map(|mtu| Kind {
            max_msg_size: u64::from(mtu.bytes()),
            ..Kind::DGRAM
        });
        [Some(Kind::RDM), mtu.map(|_| Kind::MSG), dgram]
            .into_iter()
            .flatten()
    }

    /// The offer of `link` at `addr` for endpoints of `kind`.
    fn offer(link: &Link, addr: SockAddr, kind: Kind) -> Result<Offer, Errno> {
        Ok(Offer {
            fabric_name: Name::new(Fabric::NAME.as_bytes())?,
            prov_name: Name::new(Self::NAME)?,
            prov_version: VERSION,
            ..Offer::new(kind, addr, Name::new(link.name().as_bytes())?)
        })
    }
}

impl Provider for BuiltinProvider {
    fn getinfo(
        &self,
        netns: NetNsId,
        request: &Request,
        hints: &Info,
        found: &mut dyn FnMut(&Info) -> Result,
    ) -> Result {
        let named = request.own_addr(hints).map(|addr| addr.with_port(0));
        let mut after = 0;
        // Links are added and removed meanwhile; ids are never reused, so each link is found at
        // most once.
        while let Ok(link) = net::next(netns, after) {
            after = link.id();
            if link.state() != LinkState::Up {
                continue;
            }
            let (v4, v6) = (link.first_ipv4(), link.first_ipv6());
            let other = named
                .filter(|addr| Some(*addr) != v4 && Some(*addr) != v6 && link.has_address(addr));
            for addr in [v4, v6, other].into_iter().flatten() {
                for kind in Self::kinds(&link) {
                    let offer = Self::offer(&link, addr, kind).map_err(to_error)?;
                    if let Ok(info) = offer.negotiate(request, hints) {
                        found(&info)?;
                    }
                }
            }
        }
        Ok(())
    }
}
