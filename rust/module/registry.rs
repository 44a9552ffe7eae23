// SPDX-License-Identifier: GPL-2.0

//! The registry: the providers and getinfo.
//!
//! [`getinfo`] asks the providers in order; each makes the entries that fit the caller's request
//! and hints. There is one provider, the module's own ([`BuiltinProvider`]). Providers of other
//! modules, which will register through the C interface, will be asked after it through the same
//! trait.
//!
//! Process context. No lock is held while a provider is asked or an entry is passed on.

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

/// `KFI_VERSION(1, 0)`: the version of the module and of its provider.
pub(crate) const VERSION: u32 = 1 << 16;

/// A provider of endpoints.
trait Provider: Sync {
    /// Passes each entry that fits to `found`, best first; stops with the error that `found`
    /// returns. Sleeps.
    fn getinfo(
        &self,
        netns: NetNsId,
        request: &Request,
        hints: &Info,
        found: &mut dyn FnMut(&Info) -> Result,
    ) -> Result;
}

/// The providers, in the order in which they are asked.
static PROVIDERS: [&dyn Provider; 1] = [&BuiltinProvider];

/// Passes every entry in `netns` that fits `request` and `hints` to `found`, as kfi_getinfo().
///
/// Fails with `ENODATA` if nothing fits, or with the error that `found` returns. Sleeps.
pub(crate) fn getinfo(
    netns: NetNsId,
    request: &Request,
    hints: &Info,
    mut found: impl FnMut(&Info) -> Result,
) -> Result {
    let mut any = false;
    for provider in PROVIDERS {
        provider.getinfo(netns, request, hints, &mut |info| {
            any = true;
            found(info)
        })?;
    }
    if any {
        Ok(())
    } else {
        Err(ENODATA)
    }
}

/// The module's own provider: endpoints of every type on the links of a network namespace.
///
/// It offers the links that are up, in the order in which they were added. Each link is offered at
/// its first IPv4 and its first IPv6 address, and at another of its addresses if the caller names
/// that as its own address. At each address reliable datagrams come first. An interface whose MTU
/// is too small for any path MTU offers only reliable datagrams, to peers on this host.
struct BuiltinProvider;

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
