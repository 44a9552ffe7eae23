// SPDX-License-Identifier: GPL-2.0

//! What the provider of this module offers: getinfo.
//!
//! The provider has endpoints of every type on the links of a network namespace. [`getinfo`] makes
//! the entries that fit the caller's request and hints.
//!
//! Process context. No lock is held while an entry is passed on.

use kernel::prelude::*;

use kfi_core::{
    addr::SockAddr,
    enums::EpType,
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

/// The name of the provider.
pub(crate) const NAME: &[u8] = b"kfabric";

/// Passes every entry in `netns` that fits `request` and `hints` to `found`, as kfi_getinfo().
///
/// It offers the links that are up, in the order in which they were added. Each link is offered at
/// its first IPv4 and its first IPv6 address, and at another of its addresses if the caller names
/// that as its own address. At each address reliable datagrams come first. An interface whose MTU
/// is too small for any path MTU offers only reliable datagrams, to peers on this host.
///
/// Fails with `ENODATA` if nothing fits, or with the error that `found` returns. Sleeps.
pub(crate) fn getinfo(
    netns: NetNsId,
    request: &Request,
    hints: &Info,
    mut found: impl FnMut(&Info) -> Result,
) -> Result {
    let named = request.own_addr(hints).map(|addr| addr.with_port(0));
    let (mut after, mut any) = (0, false);
    // Links are added and removed meanwhile; ids are never reused, so each link is found at most
    // once.
    while let Ok(link) = net::next(netns, after) {
        after = link.id();
        if link.state() != LinkState::Up {
            continue;
        }
        let (v4, v6) = (link.first_ipv4(), link.first_ipv6());
        let other =
            named.filter(|addr| Some(*addr) != v4 && Some(*addr) != v6 && link.has_address(addr));
        for addr in [v4, v6, other].into_iter().flatten() {
            for kind in kinds(&link) {
                let offer = offer(&link, addr, kind).map_err(to_error)?;
                if let Ok(info) = offer.negotiate(request, hints) {
                    any = true;
                    found(&info)?;
                }
            }
        }
    }
    any.then_some(()).ok_or(ENODATA)
}

/// The endpoint type of an entry that [`getinfo`] made.
pub(crate) fn kind_of(entry: &Info) -> &'static Kind {
    Kind::of(EpType::try_from(entry.ep.ep_type).unwrap_or(EpType::Unspec))
}

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
        prov_name: Name::new(NAME)?,
        prov_version: VERSION,
        ..Offer::new(kind, addr, Name::new(link.name().as_bytes())?)
    })
}
