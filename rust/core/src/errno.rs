// SPDX-License-Identifier: GPL-2.0

//! Error numbers: the system's and kfabric's.
//!
//! Every call of kfabric that can fail returns a negative error number. Numbers below 256 are those
//! of the system (`EINVAL`), as in asm-generic/errno.h. Numbers from 256 on are kfabric's own
//! (`KFI_EAVAIL`), as in the `enum` of `<uapi/kfabric.h>`. Both have an `ENOKEY`, so kfabric's
//! names keep their prefix. A `KFI_Exxx` of kfabric for a system error is that error: `KFI_EAGAIN`
//! is [`Errno::EAGAIN`].
//!
//! The constants are the system errors that this crate or the module returns, and all errors of
//! kfabric. The module compares them with the kernel's and the header's numbers when it is built.
//! An [`Errno`] can also hold any other number that the kernel returns ([`Errno::from_i32`]); such
//! a number has no name here. Error texts are not part of this crate: programs get them from the C
//! library and the library `kfi`.
//!
//! Source: fi_errno(3), kfi_errno.h of kfabric 1.7.

use core::{
    fmt,
    num::NonZeroU16, //
};

/// Result of a function that can fail with an [`Errno`].
pub type Result<T = (), E = Errno> = core::result::Result<T, E>;

/// An error number, 1 to [`Errno::MAX`]. It is stored as a positive number. The ABI uses negative
/// numbers as results ([`Self::from_i32`]) and positive ones in entries and events
/// ([`Self::number`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroU16);

/// Calls the macro `$then` with the system errors, as `NAME = number;` each.
#[macro_export]
macro_rules! system_errnos {
    ($then:ident) => {
        $then! {
            ENOENT = 2;
            EIO = 5;
            EAGAIN = 11;
            ENOMEM = 12;
            EACCES = 13;
            EFAULT = 14;
            EBUSY = 16;
            ENODEV = 19;
            EINVAL = 22;
            ENOSPC = 28;
            ENOSYS = 38;
            ENOMSG = 42;
            ENODATA = 61;
            EPROTO = 71;
            EMSGSIZE = 90;
            ENOPROTOOPT = 92;
            EPROTONOSUPPORT = 93;
            EOPNOTSUPP = 95;
            EADDRNOTAVAIL = 99;
            ECONNRESET = 104;
            ENOTCONN = 107;
            ETIMEDOUT = 110;
            ECONNREFUSED = 111;
            EHOSTUNREACH = 113;
            EALREADY = 114;
            EREMOTEIO = 121;
            ECANCELED = 125;
            EKEYREJECTED = 129;
        }
    };
}

/// Defines the constants of a group and the table of their names.
macro_rules! group {
    ($names:ident: $($name:ident = $number:literal;)*) => {
        impl Errno {
            $(
                #[doc = concat!("Error ", stringify!($number), ", `", stringify!($name), "`.")]
                pub const $name: Errno = match NonZeroU16::new($number) {
                    Some(number) => Errno(number),
                    // This is evaluated at compile time only.
                    None => panic!("an error number cannot be 0"),
                };
            )*
        }

        /// The constants of the group with their names, in order.
        const $names: &[(Errno, &str)] = &[$((Errno::$name, stringify!($name)),)*];
    };
}

macro_rules! system {
    ($($row:tt)*) => {
        group! { SYSTEM: $($row)* }
    };
}
system_errnos!(system);

group! {
    KFABRIC:
    KFI_EOTHER = 256;
    KFI_ETOOSMALL = 257;
    KFI_EOPBADSTATE = 258;
    KFI_EAVAIL = 259;
    KFI_EBADFLAGS = 260;
    KFI_ENOEQ = 261;
    KFI_EDOMAIN = 262;
    KFI_ENOCQ = 263;
    KFI_ECRC = 264;
    KFI_ETRUNC = 265;
    KFI_ENOKEY = 266;
    KFI_ENOAV = 267;
    KFI_EOVERRUN = 268;
}

impl Errno {
    /// The highest number that the kernel returns as an error (`MAX_ERRNO`).
    pub const MAX: u32 = 4095;

    /// Returns the error with this positive number; `None` for 0 and for numbers above
    /// [`Self::MAX`].
    pub const fn from_number(number: u32) -> Option<Errno> {
        if number > Self::MAX {
            return None;
        }
        match NonZeroU16::new(number as u16) {
            Some(number) => Some(Errno(number)),
            None => None,
        }
    }

    /// Returns the number in the form of entries and events: positive.
    pub const fn number(self) -> u32 {
        self.0.get() as u32
    }

    /// Returns the error of a negative result; `None` for a success or for a number that is not an
    /// error.
    pub const fn from_i32(ret: i32) -> Option<Errno> {
        if ret >= 0 {
            return None;
        }
        Self::from_number(ret.unsigned_abs())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = SYSTEM.iter().chain(KFABRIC);
        match all.find(|(errno, _)| errno == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.number()),
        }
    }
}

/// Converts an error of kfi_roce to an error number.
impl From<kfi_roce::Error> for Errno {
    fn from(error: kfi_roce::Error) -> Self {
        match error {
            kfi_roce::Error::Invalid => Errno::EINVAL,
            kfi_roce::Error::Full => Errno::ENOMEM,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_errno))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_abi() {
        assert_eq!(Errno::ENOENT.number(), 2);
        assert_eq!(Errno::EAGAIN.number(), 11);
        assert_eq!(Errno::ETIMEDOUT.number(), 110);
        assert_eq!(Errno::ECANCELED.number(), 125);
        assert_eq!(Errno::KFI_EOTHER.number(), 256);
        assert_eq!(Errno::KFI_EAVAIL.number(), 259);
        assert_eq!(Errno::KFI_ENOKEY.number(), 266);
        assert_eq!(Errno::KFI_EOVERRUN.number(), 268);
    }

    #[test]
    fn every_number_converts_back() {
        let mut last = 0;
        for (errno, name) in SYSTEM.iter().chain(KFABRIC) {
            assert!(errno.number() > last);
            last = errno.number();
            assert_eq!(Errno::from_number(last), Some(*errno));
            assert_eq!(Errno::from_i32(-(last as i32)), Some(*errno));
            assert_eq!(name.starts_with("KFI_"), last > 255);
        }
    }

    #[test]
    fn an_error_of_the_kernel_without_a_constant_keeps_its_number() {
        let unreachable = Errno::from_i32(-101);
        assert_eq!(unreachable.map(Errno::number), Some(101));
        assert_eq!(Errno::from_i32(-4095).map(Errno::number), Some(Errno::MAX));
    }

    #[test]
    fn other_numbers_are_not_errors() {
        assert_eq!(Errno::from_i32(0), None);
        assert_eq!(Errno::from_i32(11), None);
        assert_eq!(Errno::from_i32(-4096), None);
        assert_eq!(Errno::from_i32(i32::MIN), None);
        assert_eq!(Errno::from_number(0), None);
        assert_eq!(Errno::from_number(65_536 + 11), None);
    }
}
