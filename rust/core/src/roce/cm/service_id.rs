// SPDX-License-Identifier: GPL-2.0
//! Service IDs: what a connection request asks for.
//!
//! A service ID has 64 bits; its first byte says who gives such IDs out. Two kinds are used here:
//!
//! | kind | ID | who listens |
//! |---|---|---|
//! | [`tcp`](ServiceId::tcp) | `0x0000_0000_0106_pppp` | KFI_EP_MSG: the RDMA CM's TCP port space, port `pppp` |
//! | [`rdm`](ServiceId::rdm) | `0x026b_6669_0001_pppp` | KFI_EP_RDM: the endpoint with service number `pppp` |
//!
//! The second kind is of the space that the local operating system administers (first byte 0x02),
//! so it cannot meet an assigned ID; the letters `kfi` and the version of what is spoken on the
//! connection follow. A listener of KFI_EP_MSG and an endpoint of KFI_EP_RDM can therefore have the
//! same port, as those of TCP and UDP can.
//!
//! Source: InfiniBand specification, volume 1, annex A3 (service IDs), annex A11 (RDMA IP CM
//! service).

use core::fmt;

/// A service ID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(u64);

/// The RDMA CM's port space for TCP.
const TCP: u64 = 0x0000_0000_0106_0000;

/// The project's own port space, version 1.
const RDM: u64 = 0x026b_6669_0001_0000;

/// The bits of a port.
const PORT: u64 = 0xffff;

impl ServiceId {
    /// Takes the number from the wire.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the ID of a port in the RDMA CM's TCP port space.
    pub const fn tcp(port: u16) -> Self {
        Self(TCP | port as u64)
    }

    /// Returns the ID of reliable datagrams to the endpoint with this service number.
    pub const fn rdm(port: u16) -> Self {
        Self(RDM | port as u64)
    }

    /// Returns the port, if the ID is one of the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        self.port_in(TCP)
    }

    /// Returns the service number, if the ID is one of reliable datagrams.
    pub const fn rdm_port(self) -> Option<u16> {
        self.port_in(RDM)
    }

    const fn port_in(self, space: u64) -> Option<u16> {
        if self.0 & !PORT == space {
            Some((self.0 & PORT) as u16)
        } else {
            None
        }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({:#018x})", self.0)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_roce_cm_service_id))]
mod tests {
    use super::*;

    #[test]
    fn each_space_has_its_ports() {
        for port in [0, 1, 7471, u16::MAX] {
            let tcp = ServiceId::tcp(port);
            assert_eq!(tcp.get(), 0x0106_0000 + u64::from(port));
            assert_eq!(tcp.tcp_port(), Some(port));
            assert_eq!(tcp.rdm_port(), None);
            let rdm = ServiceId::rdm(port);
            assert_eq!(rdm.get(), 0x026b_6669_0001_0000 + u64::from(port));
            assert_eq!(rdm.rdm_port(), Some(port));
            assert_eq!(rdm.tcp_port(), None);
        }
    }

    #[test]
    fn neighbours_are_none_of_ours() {
        for id in [
            0x0105_ffff,
            0x0107_0000,
            0x0111_0001,
            0x0001_0000_0106_0001,
            0x026b_6669_0000_0001,
            0x026b_6669_0002_0001,
            0,
            u64::MAX,
        ] {
            let id = ServiceId::new(id);
            assert_eq!(id.tcp_port(), None);
            assert_eq!(id.rdm_port(), None);
        }
    }
}
