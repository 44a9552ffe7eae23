// SPDX-License-Identifier: GPL-2.0
//! The service ID on which an endpoint for reliable datagrams listens.
//!
//! The IDs `0x026b_6669_0001_pppp` are in the space that the local operating system assigns (first
//! byte 0x02), so they differ from all registered IDs. The letters `kfi` follow, then the version
//! of the protocol, then the endpoint's service number. An endpoint of KFI_EP_MSG listens in the
//! RDMA CM's port space for TCP ([`ServiceId::tcp`]), so the two kinds of endpoints can use the
//! same port.

use kfi_roce::cm::ServiceId;

/// The service IDs of version 1 of the protocol.
const SPACE: ServiceId = ServiceId::new(0x026b_6669_0001_0000);

/// Returns the service ID of the reliable datagram endpoint with this service number.
pub const fn service_id(port: u16) -> ServiceId {
    SPACE.with_port(port)
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_service))]
mod tests {
    use super::*;

    #[test]
    fn each_service_number_has_its_id() {
        for port in [0, 1, 7471, u16::MAX] {
            let id = service_id(port);
            assert_eq!(id.get(), 0x026b_6669_0001_0000 + u64::from(port));
            assert_eq!(id.port_in(SPACE), Some(port));
            assert_eq!(id.tcp_port(), None);
        }
    }

    #[test]
    fn other_service_ids_belong_to_no_endpoint() {
        for id in [0x026b_6669_0000_0001, 0x026b_6669_0002_0001, 0x0106_0001, 0] {
            assert_eq!(ServiceId::new(id).port_in(SPACE), None);
        }
    }
}
