// SPDX-License-Identifier: GPL-2.0
//! The addresses of a symmetric insertion (fi_av(3), fi_av_insertsym): consecutive nodes with
//! consecutive services each.

use crate::{
    addr::SockAddr,
    errno::Errno,
    limits, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

/// The addresses that `nodecnt` consecutive IP addresses and `svccnt` consecutive ports make, from
/// a first address on. All ports of an IP address come before the next IP address.
#[derive(Clone, Copy, Debug)]
pub struct Symmetric {
    first: SockAddr,
    services: u32,
    count: u32,
}

impl Symmetric {
    /// Makes the row that begins with `first`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a count is 0, or there are more than [`limits::MAX_AV`] addresses; the last port
    /// is above 65535; the last IP address is above that of its family, or it is an IPv4 address
    /// mapped into IPv6; or `first` has a QP number.
    pub fn new(first: SockAddr, nodecnt: usize, svccnt: usize) -> Result<Self, Errno> {
        let max = limits::MAX_AV as usize;
        let count = nodecnt.checked_mul(svccnt).ok_or(Errno::EINVAL)?;
        if count == 0 || count > max || first.is_qp() {
            return Err(Errno::EINVAL);
        }
        // At most `MAX_AV`.
        let row = Self {
            first,
            services: svccnt as u32,
            count: count as u32,
        };
        // The others are between this one and the first.
        row.get(row.count.wrapping_sub(1)).ok_or(Errno::EINVAL)?;
        Ok(row)
    }

    /// Returns the number of addresses.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns the address with this index; `None` if there are not so many, or no such address
    /// exists.
    pub fn get(&self, index: u32) -> Option<SockAddr> {
        if index >= self.count {
            return None;
        }
        let node = index.checked_div(self.services)?;
        let service = index.checked_rem(self.services)?;
        let port = u32::from(self.first.port()).checked_add(service)?;
        let ip = match self.first.ip() {
            IpAddr::V4(ip) => {
                let bits = u32::from(ip).checked_add(node)?;
                IpAddr::V4(Ipv4Addr::from(bits))
            }
            IpAddr::V6(ip) => {
                let bits = u128::from(ip).checked_add(u128::from(node))?;
                IpAddr::V6(Ipv6Addr::from(bits))
            }
        };
        SockAddr::new(ip, u16::try_from(port).ok()?, self.first.scope()).ok()
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_av_symmetric))]
mod tests {
    use super::*;

    fn first(node: &str, service: &str) -> SockAddr {
        SockAddr::parse(node.as_bytes(), service.as_bytes())
            .unwrap_or(SockAddr::v4(Ipv4Addr::UNSPECIFIED, 0))
    }

    fn row(node: &str, nodecnt: usize, service: &str, svccnt: usize) -> Result<usize, Errno> {
        Symmetric::new(first(node, service), nodecnt, svccnt).map(|row| row.len())
    }

    #[test]
    fn all_ports_of_a_node_come_first() {
        // The example of the manual page.
        let row = Symmetric::new(first("10.1.1.1", "5000"), 2, 2).ok();
        let wanted = [
            ("10.1.1.1", "5000"),
            ("10.1.1.1", "5001"),
            ("10.1.1.2", "5000"),
            ("10.1.1.2", "5001"),
        ];
        for (index, (node, service)) in (0..).zip(wanted) {
            let addr = row.and_then(|row| row.get(index));
            assert_eq!(addr, Some(first(node, service)));
        }
        assert_eq!(row.and_then(|row| row.get(4)), None);
        assert_eq!(row.map(|row| row.len()), Some(4));
    }

    #[test]
    fn nodes_carry() {
        let last = |node, nodecnt| {
            let row = Symmetric::new(first(node, "1"), nodecnt, 1).ok()?;
            row.get(row.len() as u32 - 1)
        };
        assert_eq!(last("10.1.255.255", 2), Some(first("10.2.0.0", "1")));
        assert_eq!(last("fd00::ffff", 2), Some(first("fd00::1:0", "1")));
        assert_eq!(last("fe80::1", 3), Some(first("fe80::3", "1")));
    }

    #[test]
    fn rows_have_limits() {
        assert_eq!(row("10.0.0.1", 1, "65535", 1), Ok(1));
        assert_eq!(row("10.0.0.1", 1, "65535", 2), Err(Errno::EINVAL));
        assert_eq!(row("10.0.0.1", 1, "1", 65_535), Ok(65_535));
        assert_eq!(row("10.0.0.1", 1, "1", 65_536), Err(Errno::EINVAL));
        assert_eq!(row("255.255.255.255", 1, "1", 2), Ok(2));
        assert_eq!(row("255.255.255.255", 2, "1", 1), Err(Errno::EINVAL));
        assert_eq!(row("::ffff:ffff:ffff", 1, "1", 1), Ok(1));
        // The next one is mapped.
        assert_eq!(row("::fffe:ffff:ffff", 2, "1", 1), Err(Errno::EINVAL));
        for (nodecnt, svccnt) in [(0, 1), (1, 0), (usize::MAX, 2), (1 << 32, 1 << 32)] {
            assert_eq!(row("10.0.0.1", nodecnt, "1", svccnt), Err(Errno::EINVAL));
        }
        let most = limits::MAX_AV as usize;
        assert_eq!(row("10.0.0.1", most, "1", 1), Ok(most));
        assert_eq!(row("10.0.0.1", most + 1, "1", 1), Err(Errno::EINVAL));
        let qp = SockAddr::v4(Ipv4Addr::LOCALHOST, 0).with_qpn(5);
        let row = qp.and_then(|qp| Symmetric::new(qp, 1, 1));
        assert_eq!(row.err(), Some(Errno::EINVAL));
    }
}
