// SPDX-License-Identifier: GPL-2.0
//! GIDs: the InfiniBand form of IP addresses.
//!
//! In RoCEv2 a GID is an IPv6 address; an IPv4 address is written as `::ffff:a.b.c.d`.
//!
//! Source: InfiniBand specification, volume 1, annex A17.

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

/// A GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; Self::LEN]);

impl Gid {
    /// The length of a GID in bytes.
    pub const LEN: usize = 16;

    /// Returns the address. A mapped IPv4 address is returned as IPv4 address.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Self(ip.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_gid))]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_gids() {
        let v4 = Ipv4Addr::new(10, 0, 0, 1);
        let gid = Gid::from(IpAddr::from(v4));
        assert_eq!(
            gid.0,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]
        );
        assert_eq!(gid.ip(), v4);
        let v6 = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4);
        let gid = Gid::from(IpAddr::from(v6));
        assert_eq!(gid.0, v6.octets());
        assert_eq!(gid.ip(), v6);
    }
}
