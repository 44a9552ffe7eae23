// SPDX-License-Identifier: GPL-2.0

//! Error numbers of the core crate, and kfabric's own, as errors of the kernel.
//!
//! kfabric's numbers above 255 (`KFI_EAVAIL`, ...) are within what the kernel's
//! [`Error`] can hold and travel to user space unchanged.

use kernel::{
    bindings,
    prelude::*, //
};
use kfi_core::errno::Errno;

// The numbers of the system that the core crate has are the kernel's.
macro_rules! compare {
    ($($name:ident = $number:literal;)*) => {
        $(const _: () = assert!(
            bindings::$name == $number,
            concat!("kfi_core::errno: ", stringify!($name), " is another number")
        );)*
    };
}
kfi_core::system_errnos!(compare);
const _: () = assert!(bindings::MAX_ERRNO == Errno::MAX);

/// The kernel's error for an error number of the core crate, or an error of kfi_roce.
#[inline]
pub(crate) fn to_error(errno: impl Into<Errno>) -> Error {
    from_number(errno.into().number())
}

/// The kernel's error for a positive error number: one of errno.h, or a
/// constant of `<uapi/kfabric.h>` such as `KFI_ETRUNC`.
#[inline]
pub(crate) fn from_number(number: u32) -> Error {
    // A number out of range is a bug, which `from_errno` reports and makes EINVAL.
    Error::from_errno(0i32.saturating_sub_unsigned(number))
}

/// The positive number of an error, as completions and `kfabric_post` carry it.
#[inline]
pub(crate) fn number(error: Error) -> u32 {
    error.to_errno().unsigned_abs()
}
