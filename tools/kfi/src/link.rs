// SPDX-License-Identifier: GPL-2.0
//! Links: the software device on a network interface.

use std::net::SocketAddr;

use crate::{
    abi::{self, Call, calls},
    device::Device,
    enums::LinkState,
    errno::Errno,
    error::Result,
};

/// A link and its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Number of the link; each new link has a higher one.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Name of its network interface.
    pub netdev: String,
    /// State.
    pub state: LinkState,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// First IPv4 address, with port 0.
    pub ipv4: Option<SocketAddr>,
    /// First IPv6 address, with port 0.
    pub ipv6: Option<SocketAddr>,
    /// Domains that are open on it.
    pub domains: u32,
    /// Endpoints that are enabled on it.
    pub endpoints: u32,
    /// Operations that its endpoints sent.
    pub tx_ops: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Operations that arrived for its endpoints.
    pub rx_ops: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

impl Link {
    /// An address: IPv4 before IPv6.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.ipv4.or(self.ipv6)
    }

    /// Whether it is on the loopback interface, which only this host can reach.
    pub fn is_loopback(&self) -> bool {
        self.netdev == "lo"
    }

    /// The first of these that is up and has an address; one on the loopback interface only if
    /// there is no other.
    pub fn first(links: &[Self]) -> Option<&Self> {
        let mut usable =
            { links.iter() }.filter(|link| link.state == LinkState::Up && link.addr().is_some());
        let first = usable.clone().find(|link| !link.is_loopback());
        first.or_else(|| usable.next())
    }
}

impl From<&abi::kfabric_link_get> for Link {
    fn from(raw: &abi::kfabric_link_get) -> Self {
        Self {
            id: raw.after,
            name: calls::text(&raw.name),
            netdev: calls::text(&raw.netdev),
            state: LinkState::from_raw(raw.state),
            mtu: raw.mtu,
            ipv4: raw.ipv4.to_std(),
            ipv6: raw.ipv6.to_std(),
            domains: raw.domains,
            endpoints: raw.endpoints,
            tx_ops: raw.tx_ops,
            tx_bytes: raw.tx_bytes,
            rx_ops: raw.rx_ops,
            rx_bytes: raw.rx_bytes,
        }
    }
}

/// The links of the network namespace; from [`Device::links`].
///
/// Ends after the last one, or after an error.
#[derive(Debug)]
pub struct Links {
    device: Device,
    after: Option<u32>,
}

impl Links {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            after: Some(0),
        }
    }
}

impl Iterator for Links {
    type Item = Result<Link>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut arg = abi::kfabric_link_get {
            after: self.after.take()?,
            ..Call::sized()
        };
        match calls::plain(&self.device, &mut arg) {
            Ok(()) => {
                self.after = Some(arg.after);
                Some(Ok(Link::from(&arg)))
            }
            Err(error) if error.is(Errno::ENOENT) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for Links {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_lo_is_the_last_choice() {
        let link = |name: &str, netdev: &str, state, addr: &str| {
            Link::from(&abi::kfabric_link_get {
                name: calls::chars("", name).unwrap(),
                netdev: calls::chars("", netdev).unwrap(),
                state,
                ipv4: addr.parse::<SocketAddr>().ok().into(),
                ..Default::default()
            })
        };
        let up = abi::KFABRIC_LINK_UP;
        let lo = link("lo", "lo", up, "127.0.0.1:0");
        let down = link("a", "eth0", abi::KFABRIC_LINK_DOWN, "10.0.0.1:0");
        let empty = link("b", "eth1", up, "");
        let good = link("c", "eth2", up, "10.0.2.1:0");
        let first = |links: &[Link]| Link::first(links).map(|link| link.name.clone());
        let all = [lo, down, empty, good];
        assert_eq!(first(&all).as_deref(), Some("c"));
        assert_eq!(first(&all[..3]).as_deref(), Some("lo"));
        assert_eq!(first(&all[1..3]), None);
    }

    #[test]
    fn from_the_interface() {
        let raw = abi::kfabric_link_get {
            after: 3,
            name: calls::chars("", "roce0").unwrap(),
            netdev: calls::chars("", "lo").unwrap(),
            state: abi::KFABRIC_LINK_UP,
            mtu: 1500,
            ipv6: Some("[::1]:0".parse::<SocketAddr>().unwrap()).into(),
            tx_ops: 4,
            ..Default::default()
        };
        let link = Link::from(&raw);
        assert_eq!((link.id, &*link.name, &*link.netdev), (3, "roce0", "lo"));
        assert_eq!(link.state, LinkState::Up);
        assert_eq!((link.ipv4, link.addr()), (None, link.ipv6));
        assert_eq!(link.addr().unwrap().to_string(), "[::1]:0");
        assert_eq!(link.tx_ops, 4);
    }
}
