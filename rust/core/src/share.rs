// SPDX-License-Identifier: GPL-2.0
//! The shares of sources in what peers fill.
//!
//! Peers fill tables and memory of this host: connections, requests, answers, kept messages. Each
//! has a limit for all peers together, and each [`Source`] has a share of it: it leaves free a
//! quarter of what it has ([`left`]). So one source alone gets four fifths, or two thirds with an
//! IPv6 address that has a network. Sources that all take what they can end up with equal shares,
//! and another one finds a fifth of such a share.
//!
//! # IPv6 networks
//!
//! A host usually controls the lower 64 bits of its IPv6 address. So it has a share for each of
//! 2^64 addresses, and could take everything. The addresses of a /64 network cannot be one source
//! instead: the hosts of a fabric usually are in one such network, and one of them could take the
//! share of all others. It would not help either to ask whether an address is on the link: on the
//! link a host can use any address of the network, and hosts of one network can be behind routers
//! (loopback addresses of a routed fabric).
//!
//! So both count. A source leaves a quarter of what it has itself, and in addition a quarter of
//! what its [network](Source::network) has. The hosts of one network have shares as without it,
//! which are smaller by a sixth at most. The whole network leaves at least a fifth to all others,
//! with any number of addresses.
//!
//! IPv4 addresses have no network, because a host cannot choose among many. Neither have link-local
//! addresses, which all hosts of a link share a network of, and those of this host (loopback).

use core::net::{
    IpAddr,
    Ipv6Addr, //
};

/// A source leaves free what it has, divided by this.
const LEFT: u64 = 4;

/// What has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The host at an address; for a link-local address, with the index of the interface, else 0.
    Host(IpAddr, u32),
    /// The hosts of an IPv6 network: the first 64 bits of their addresses.
    Network(u64),
    /// A user of this host.
    User(u32),
}

impl Source {
    /// The host at `ip`. `scope` is an interface index, which is dropped unless `ip` is link-local.
    pub const fn host(ip: IpAddr, scope: u32) -> Self {
        match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Self::Host(ip, scope),
            _ => Self::Host(ip, 0),
        }
    }

    /// The network that the source is in, if it has one.
    pub const fn network(&self) -> Option<Self> {
        match self {
            Self::Host(IpAddr::V6(ip), _) => match is_global(ip) {
                true => Some(Self::Network((ip.to_bits() >> 64) as u64)),
                false => None,
            },
            _ => None,
        }
    }

    /// The source, and its network.
    pub fn with_network(self) -> impl Iterator<Item = Self> {
        core::iter::once(self).chain(self.network())
    }
}

/// Whether a host has chosen the address in a network of its own link: it is neither loopback,
/// link-local, nor an IPv4 address in another form.
const fn is_global(ip: &Ipv6Addr) -> bool {
    // `::/64` has `::`, `::1` and the mapped IPv4 addresses.
    !ip.is_unicast_link_local() && ip.to_bits() >> 64 != 0
}

/// Returns what a source that has `of_source` leaves free, in a network that has `of_network`, both
/// with what the source has; 0: it has no network.
pub const fn left(of_source: u64, of_network: u64) -> u64 {
    of_source
        .div_ceil(LEFT)
        .saturating_add(of_network.div_ceil(LEFT))
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_share))]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const LIMIT: u64 = 1024;

    fn v6(prefix: u16, host: u16) -> Source {
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, prefix, 0, 0, 0, host);
        Source::host(ip.into(), 7)
    }

    #[test]
    fn a_host_is_its_address() {
        assert_eq!(v6(1, 2), v6(1, 2));
        assert!(v6(1, 2) != v6(1, 3));
        // The interface counts for link-local addresses only.
        let ip = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(Source::host(ip, 1), Source::host(ip, 2));
        let ip = IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
        assert!(Source::host(ip, 1) != Source::host(ip, 2));
    }

    #[test]
    fn ipv6_hosts_have_networks_of_64_bits() {
        assert_eq!(v6(1, 2).network(), v6(1, 3).network());
        assert_eq!(
            v6(1, 2).network(),
            Some(Source::Network(0x2001_0db8_0000_0001))
        );
        assert!(v6(1, 2).network() != v6(2, 2).network());
        let unique_local = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        assert!(Source::host(unique_local.into(), 0).network().is_some());
    }

    #[test]
    fn other_sources_have_no_network() {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        for ip in [link_local, mapped, Ipv6Addr::LOCALHOST] {
            assert_eq!(Source::host(ip.into(), 1).network(), None);
        }
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(Source::host(v4.into(), 0).network(), None);
        assert_eq!(v6(1, 2).network().and_then(|it| it.network()), None);
        assert_eq!(Source::User(0).network(), None);
    }

    /// Takes what the hosts can have, in turns. Returns what each gets. Hosts with the same first
    /// number have one network, and those with 0 have none.
    fn take<const N: usize>(hosts: [u16; N], has: [u64; N]) -> [u64; N] {
        let mut has = has;
        loop {
            let mut took = false;
            for (index, network) in hosts.into_iter().enumerate() {
                let of = |wanted: u16| {
                    let of_it = hosts.iter().zip(&has).filter(|(it, _)| **it == wanted);
                    of_it.fold(0, |sum, (_, has)| sum + has)
                };
                let of_network = if network == 0 { 0 } else { of(network) };
                let all = has.iter().sum::<u64>();
                let Some(own) = has.get_mut(index) else {
                    continue;
                };
                if all + left(*own, of_network) < LIMIT {
                    *own += 1;
                    took = true;
                }
            }
            if !took {
                return has;
            }
        }
    }

    #[test]
    fn a_source_alone_leaves_a_fifth() {
        assert_eq!(take([0], [0]), [819]);
        // One more finds a fifth of the rest, and so on.
        assert_eq!(take([0, 0], [819, 0]), [819, 164]);
        assert_eq!(left(0, 0), 0);
        assert_eq!(left(1, 0), 1);
    }

    #[test]
    fn sources_have_equal_shares() {
        assert_eq!(take([0, 0], [0, 0]), [455, 455]);
    }

    #[test]
    fn a_network_leaves_a_fifth_with_any_number_of_addresses() {
        let taken = take([1; 16], [0; 16]);
        let all = taken.iter().sum::<u64>();
        assert!((770..=820).contains(&all));
        let mut hosts = [1; 17];
        hosts[16] = 2;
        let mut has = [0; 17];
        has[..16].copy_from_slice(&taken);
        // A host elsewhere finds room.
        assert!(take(hosts, has)[16] >= LIMIT / 8);
    }

    #[test]
    fn the_hosts_of_a_network_have_shares_in_it() {
        let alone = take([1], [0])[0];
        assert_eq!(alone, 682);
        // A neighbour of one that has taken what it can.
        assert!(take([1, 1], [alone, 0])[1] >= LIMIT / 10);
    }
}
