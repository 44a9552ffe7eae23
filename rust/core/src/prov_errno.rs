// SPDX-License-Identifier: GPL-2.0
//! The provider's error numbers: `prov_errno` of an error entry.
//!
//! | number | meaning |
//! |---|---|
//! | 0 | no further information |
//! | 256.. | [`WIRE`] plus the status of a work request, as in `enum ibv_wc_status` |
//!
//! A transmit that ends with "local length" has the error `EMSGSIZE` ([`of_transmit`]).
//!
//! A refusal by a peer on the same host has the same number as over the wire ([`REFUSED`]).
//!
//! | status | error |
//! |---|---|
//! | flushed | `ECANCELED` |
//! | local length | `KFI_ETRUNC` |
//! | remote access | `EACCES` |
//! | remote invalid request, remote operation | `EREMOTEIO` |
//! | retry exceeded, RNR retry exceeded | `ETIMEDOUT` |
//! | local protection, local access | `EFAULT` |
//! | any other | `EIO` |

use crate::errno::Errno;
use core::ffi::CStr;
use kfi_roce::rc::Status;

/// The first number of the wire.
pub const WIRE: u32 = 256;

/// The peer refused access to its memory. The peer does not give the reason.
pub const REFUSED: u32 = WIRE | Status::RemoteAccess as u32;

/// Returns the error and the `prov_errno` of a status; `None` for success.
pub const fn of_status(status: Status) -> Option<(Errno, u32)> {
    let errno = match status {
        Status::Success => return None,
        Status::Flushed => Errno::ECANCELED,
        Status::LocalLength => Errno::KFI_ETRUNC,
        Status::RemoteAccess => Errno::EACCES,
        Status::RemoteInvalidRequest | Status::RemoteOperation => Errno::EREMOTEIO,
        Status::RetryExceeded | Status::RnrRetryExceeded => Errno::ETIMEDOUT,
        Status::LocalProtection | Status::LocalAccess => Errno::EFAULT,
        Status::LocalOperation | Status::BadResponse => Errno::EIO,
    };
    Some((errno, WIRE | status as u32))
}

/// Returns the error and the `prov_errno` of a work request that sends. "Local length" means that
/// its packets are longer than the present path MTU to the peer (`EMSGSIZE`).
pub const fn of_transmit(status: Status) -> Option<(Errno, u32)> {
    match (status, of_status(status)) {
        (Status::LocalLength, Some((_, number))) => Some((Errno::EMSGSIZE, number)),
        (_, other) => other,
    }
}

/// Returns the text of a `prov_errno` (kfi_cq_strerror()).
pub const fn text(prov_errno: u32) -> &'static CStr {
    const LOCAL_LENGTH: u32 = WIRE | Status::LocalLength as u32;
    const LOCAL_OPERATION: u32 = WIRE | Status::LocalOperation as u32;
    const LOCAL_PROTECTION: u32 = WIRE | Status::LocalProtection as u32;
    const FLUSHED: u32 = WIRE | Status::Flushed as u32;
    const BAD_RESPONSE: u32 = WIRE | Status::BadResponse as u32;
    const LOCAL_ACCESS: u32 = WIRE | Status::LocalAccess as u32;
    const REMOTE_INVALID_REQUEST: u32 = WIRE | Status::RemoteInvalidRequest as u32;
    const REMOTE_OPERATION: u32 = WIRE | Status::RemoteOperation as u32;
    const RETRY_EXCEEDED: u32 = WIRE | Status::RetryExceeded as u32;
    const RNR_RETRY_EXCEEDED: u32 = WIRE | Status::RnrRetryExceeded as u32;
    match prov_errno {
        0 => c"No more is known",
        LOCAL_LENGTH => {
            c"The message is longer than the receive, or its packets than the path carries"
        }
        LOCAL_OPERATION => c"An error inside the device",
        LOCAL_PROTECTION => c"The local memory could not be reached",
        FLUSHED => c"The connection ended before",
        BAD_RESPONSE => c"The peer's answer makes no sense",
        LOCAL_ACCESS => c"The local memory could not be written",
        REMOTE_INVALID_REQUEST => c"The peer refused the request as invalid",
        REFUSED => c"The peer refused access to its memory",
        REMOTE_OPERATION => c"The peer could not do it",
        RETRY_EXCEEDED => c"The peer did not answer",
        RNR_RETRY_EXCEEDED => c"The peer had no receive",
        _ => c"Unknown error",
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_prov_errno))]
mod tests {
    use super::*;

    const ALL: [Status; 12] = [
        Status::Success,
        Status::LocalLength,
        Status::LocalOperation,
        Status::LocalProtection,
        Status::Flushed,
        Status::BadResponse,
        Status::LocalAccess,
        Status::RemoteInvalidRequest,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
    ];

    #[test]
    fn every_failure_has_a_number_and_a_text() {
        assert_eq!(of_status(Status::Success), None);
        for status in ALL {
            if let Some((errno, number)) = of_status(status) {
                assert_eq!(number, 256 + status as u32);
                assert!(errno != Errno::EAGAIN);
                assert!(text(number) != text(u32::MAX));
            }
        }
        assert_eq!(
            of_status(Status::RemoteAccess),
            Some((Errno::EACCES, REFUSED))
        );
        for status in ALL {
            let result = of_transmit(status);
            match status {
                Status::LocalLength => assert_eq!(result, Some((Errno::EMSGSIZE, 257))),
                _ => assert_eq!(result, of_status(status)),
            }
        }
        assert_eq!(text(0), c"No more is known");
        assert_eq!(text(256), text(4));
    }
}
