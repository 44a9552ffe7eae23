// SPDX-License-Identifier: GPL-2.0

//! Converts error numbers of `kfi_core`, including kfabric's own, to errors of the kernel.
//!
//! kfabric's numbers above 255 (`KFI_EAVAIL`, ...) are within the range of the kernel's [`Error`]
//! and reach user space unchanged.

use kernel::{
    bindings,
    prelude::*, //
};
use kfi_core::errno::Errno;

// The error numbers of the system in `kfi_core` equal the kernel's.
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

/// The kernel's error for an error of `kfi_core` or `kfi_roce`.
#[inline]
pub(crate) fn to_error(errno: impl Into<Errno>) -> Error {
    from_number(errno.into().number())
}

/// The kernel's error for a positive error number: one of errno.h, or a constant of
/// `<uapi/kfabric.h>` such as `KFI_ETRUNC`.
#[inline]
pub(crate) fn from_number(number: u32) -> Error {
    // A number out of range is a bug; `from_errno` reports it and returns EINVAL.
    Error::from_errno(0i32.saturating_sub_unsigned(number))
}

/// The positive number of an error, as in completions and `struct kfabric_post`.
#[inline]
pub(crate) fn number(error: Error) -> u32 {
    error.to_errno().unsigned_abs()
}
