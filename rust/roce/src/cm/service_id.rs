// SPDX-License-Identifier: GPL-2.0
//! Service IDs, which name the service that a connection request is for.
//!
//! A service ID has 64 bits; its first byte says which authority assigns it. Consumers that are
//! identified by a port have a range (space) of IDs whose last 16 bits are the port:
//!
//! | space | ID | assigned by |
//! |---|---|---|
//! | [`tcp`](ServiceId::tcp) | `0x0000_0000_0106_pppp` | the RDMA CM: its TCP port space, port `pppp` |
//! | [`with_port`](ServiceId::with_port) | first byte 0x02 | the local operating system |
//!
//! Source: InfiniBand specification, volume 1, annex A3 (service IDs), annex A11 (RDMA IP CM
//! service).

use core::fmt;

/// A service ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(u64);

/// The RDMA CM's port space for TCP.
const TCP: ServiceId = ServiceId(0x0000_0000_0106_0000);

/// The bits of a service ID that hold the port.
const PORT: u64 = 0xffff;

impl ServiceId {
    /// Returns the service ID with this number.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the ID of a port in the space of this ID.
    pub const fn with_port(self, port: u16) -> Self {
        Self(self.0 & !PORT | port as u64)
    }

    /// Returns the port if the ID lies in `space`.
    pub const fn port_in(self, space: Self) -> Option<u16> {
        if self.0 & !PORT == space.0 & !PORT {
            Some((self.0 & PORT) as u16)
        } else {
            None
        }
    }

    /// Returns the ID of a port in the RDMA CM's TCP port space.
    pub const fn tcp(port: u16) -> Self {
        TCP.with_port(port)
    }

    /// Returns the port if the ID lies in the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        self.port_in(TCP)
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({:#018x})", self.0)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_service_id))]
mod tests {
    use super::*;

    /// A space of IDs that the local operating system assigns.
    const LOCAL: ServiceId = ServiceId::new(0x0200_0000_0001_0000);

    #[test]
    fn each_space_has_its_ports() {
        for port in [0, 1, 7471, u16::MAX] {
            let tcp = ServiceId::tcp(port);
            assert_eq!(tcp.get(), 0x0106_0000 + u64::from(port));
            assert_eq!(tcp.tcp_port(), Some(port));
            assert_eq!(tcp.port_in(LOCAL), None);
            let local = LOCAL.with_port(port);
            assert_eq!(local.get(), 0x0200_0000_0001_0000 + u64::from(port));
            assert_eq!(local.port_in(LOCAL), Some(port));
            assert_eq!(local.port_in(local), Some(port));
            assert_eq!(local.tcp_port(), None);
        }
    }

    #[test]
    fn neighbouring_ids_are_in_no_space() {
        for id in [
            0x0105_ffff,
            0x0107_0000,
            0x0111_0001,
            0x0001_0000_0106_0001,
            0x0200_0000_0000_0001,
            0x0200_0000_0002_0001,
            0,
            u64::MAX,
        ] {
            let id = ServiceId::new(id);
            assert_eq!(id.tcp_port(), None);
            assert_eq!(id.port_in(LOCAL), None);
        }
    }
}
