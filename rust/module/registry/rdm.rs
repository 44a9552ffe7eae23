// SPDX-License-Identifier: GPL-2.0

//! The module's own provider: reliable datagrams on the links of a network namespace.
//!
//! It offers each link that is up, in the order in which they were added, at its first IPv4 and
//! its first IPv6 address, and at another one of its addresses if that is what the caller names as
//! its own.

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

/// See the module's story.
pub(super) struct Rdm;

impl Rdm {
    /// The name of the provider.
    const NAME: &'static [u8] = b"kfabric";

    /// What `link` offers at `addr`.
    fn offer(link: &Link, addr: SockAddr) -> Result<Offer, Errno> {
        Ok(Offer {
            fabric_name: Name::new(Fabric::NAME.as_bytes())?,
            prov_name: Name::new(Self::NAME)?,
            prov_version: VERSION,
            ..Offer::new(Kind::RDM, addr, Name::new(link.name().as_bytes())?)
        })
    }
}

impl Provider for Rdm {
    fn getinfo(
        &self,
        netns: NetNsId,
        request: &Request,
        hints: &Info,
        found: &mut dyn FnMut(&Info) -> Result,
    ) -> Result {
        let named = request.own_addr(hints).map(|addr| addr.with_port(0));
        let mut after = 0;
        // Links come and go meanwhile; ids are never given twice, so each is met at most once.
        while let Ok(link) = net::next(netns, after) {
            after = link.id();
            if link.state() != LinkState::Up {
                continue;
            }
            let (v4, v6) = (link.first_ipv4(), link.first_ipv6());
            let other = named
                .filter(|addr| Some(*addr) != v4 && Some(*addr) != v6 && link.has_address(addr));
            for addr in [v4, v6, other].into_iter().flatten() {
                let offer = Self::offer(&link, addr).map_err(to_error)?;
                if let Ok(info) = offer.negotiate(request, hints) {
                    found(&info)?;
                }
            }
        }
        Ok(())
    }
}
