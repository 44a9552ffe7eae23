// SPDX-License-Identifier: GPL-2.0

//! Error numbers: the system's and kfabric's.
//!
//! Every call of kfabric that can fail gives a negative error number. Below 256
//! they are the system's (`EINVAL`), with the numbers of asm-generic/errno.h;
//! from 256 on they are kfabric's own (`KFI_EAVAIL`), as `enum` in
//! `<uapi/kfabric.h>`. Both worlds have an `ENOKEY`, so the prefix stays.
//! kfabric's `KFI_Exxx` of a system error is that error: `KFI_EAGAIN` is
//! [`Errno::EAGAIN`].
//!
//! An [`Errno`] is one of the numbers of the table below and nothing else, so a
//! success or a stray number cannot travel as an error.
//!
//! Source: fi_errno(3), kfi_errno.h of kfabric 1.7.

use core::{
    ffi::CStr,
    fmt,
    num::NonZeroU16, //
};

/// Result of what can fail with an [`Errno`].
pub type Result<T = (), E = Errno> = core::result::Result<T, E>;

/// An error number. Kept positive; the ABI wants it negative ([`Self::to_i32`])
/// as a result, positive in entries and events ([`Self::number`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroU16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(
                #[doc = concat!("Error ", stringify!($number), ", `", stringify!($name), "`.")]
                pub const $name: Errno = match NonZeroU16::new($number) {
                    Some(number) => Errno(number),
                    // At compile time only.
                    None => panic!("an error number cannot be 0"),
                };
            )*

            /// The error with this positive number, if it is one.
            pub const fn from_number(number: u32) -> Option<Errno> {
                match number {
                    $($number => Some(Errno::$name),)*
                    _ => None,
                }
            }

            /// Name and text.
            const fn words(self) -> (&'static str, &'static CStr) {
                match self.0.get() {
                    $($number => (stringify!($name), $text),)*
                    // INVARIANT of `Errno`: one of the table.
                    _ => ("?", c"Unknown error"),
                }
            }
        }

        /// Every error number there is, in order.
        pub const ALL: &[Errno] = &[$(Errno::$name),*];
    };
}

errnos! {
    EPERM = 1, c"Operation not permitted";
    ENOENT = 2, c"No such entry";
    ESRCH = 3, c"No such process";
    EINTR = 4, c"Interrupted by a signal";
    EIO = 5, c"Input or output error";
    ENXIO = 6, c"No such device or address";
    E2BIG = 7, c"Argument too large";
    ENOEXEC = 8, c"Not an executable";
    EBADF = 9, c"Bad handle";
    ECHILD = 10, c"No child processes";
    EAGAIN = 11, c"Try again";
    ENOMEM = 12, c"Out of memory";
    EACCES = 13, c"Access denied";
    EFAULT = 14, c"Bad address";
    ENOTBLK = 15, c"Not a block device";
    EBUSY = 16, c"In use";
    EEXIST = 17, c"Exists already";
    EXDEV = 18, c"Crosses devices";
    ENODEV = 19, c"No such device";
    ENOTDIR = 20, c"Not a directory";
    EISDIR = 21, c"Is a directory";
    EINVAL = 22, c"Invalid argument";
    ENFILE = 23, c"Too many open files in the system";
    EMFILE = 24, c"Too many open files";
    ENOTTY = 25, c"No such call on this device";
    ETXTBSY = 26, c"Executable in use";
    EFBIG = 27, c"File too large";
    ENOSPC = 28, c"No space left";
    ESPIPE = 29, c"Cannot seek";
    EROFS = 30, c"Read-only file system";
    EMLINK = 31, c"Too many links";
    EPIPE = 32, c"Broken pipe";
    EDOM = 33, c"Argument out of domain";
    ERANGE = 34, c"Result out of range";
    EDEADLK = 35, c"Would deadlock";
    ENAMETOOLONG = 36, c"Name too long";
    ENOLCK = 37, c"No locks available";
    ENOSYS = 38, c"Not implemented";
    ENOTEMPTY = 39, c"Not empty";
    ELOOP = 40, c"Too many symbolic links";
    ENOMSG = 42, c"No such message";
    EIDRM = 43, c"Identifier removed";
    ECHRNG = 44, c"Channel number out of range";
    EL2NSYNC = 45, c"Level 2 not synchronised";
    EL3HLT = 46, c"Level 3 halted";
    EL3RST = 47, c"Level 3 reset";
    ELNRNG = 48, c"Link number out of range";
    EUNATCH = 49, c"Protocol driver not attached";
    ENOCSI = 50, c"No CSI structure available";
    EL2HLT = 51, c"Level 2 halted";
    EBADE = 52, c"Invalid exchange";
    EBADR = 53, c"Invalid request descriptor";
    EXFULL = 54, c"Exchange full";
    ENOANO = 55, c"No anode";
    EBADRQC = 56, c"Invalid request code";
    EBADSLT = 57, c"Invalid slot";
    EBFONT = 59, c"Bad font file format";
    ENOSTR = 60, c"Not a stream";
    ENODATA = 61, c"No data available";
    ETIME = 62, c"Timer expired";
    ENOSR = 63, c"Out of stream resources";
    ENONET = 64, c"Not on the network";
    ENOPKG = 65, c"Package not installed";
    EREMOTE = 66, c"Object is remote";
    ENOLINK = 67, c"Link severed";
    EADV = 68, c"Advertise error";
    ESRMNT = 69, c"Mount error";
    ECOMM = 70, c"Communication error on send";
    EPROTO = 71, c"Protocol error";
    EMULTIHOP = 72, c"Multihop attempted";
    EDOTDOT = 73, c"RFS error";
    EBADMSG = 74, c"Not a data message";
    EOVERFLOW = 75, c"Value too large for its type";
    ENOTUNIQ = 76, c"Name not unique on the network";
    EBADFD = 77, c"File descriptor in a bad state";
    EREMCHG = 78, c"Remote address changed";
    ELIBACC = 79, c"Shared library not accessible";
    ELIBBAD = 80, c"Shared library corrupted";
    ELIBSCN = 81, c"Library section corrupted";
    ELIBMAX = 82, c"Too many shared libraries";
    ELIBEXEC = 83, c"Cannot execute a shared library";
    EILSEQ = 84, c"Illegal byte sequence";
    ERESTART = 85, c"Call should be restarted";
    ESTRPIPE = 86, c"Stream pipe error";
    EUSERS = 87, c"Too many users";
    ENOTSOCK = 88, c"Not a socket";
    EDESTADDRREQ = 89, c"Destination address required";
    EMSGSIZE = 90, c"Message too long";
    EPROTOTYPE = 91, c"Wrong protocol for the socket";
    ENOPROTOOPT = 92, c"Option not available";
    EPROTONOSUPPORT = 93, c"Protocol not supported";
    ESOCKTNOSUPPORT = 94, c"Socket type not supported";
    EOPNOTSUPP = 95, c"Operation not supported";
    EPFNOSUPPORT = 96, c"Protocol family not supported";
    EAFNOSUPPORT = 97, c"Address family not supported";
    EADDRINUSE = 98, c"Address in use";
    EADDRNOTAVAIL = 99, c"Address not available";
    ENETDOWN = 100, c"Network is down";
    ENETUNREACH = 101, c"Network unreachable";
    ENETRESET = 102, c"Network dropped the connection";
    ECONNABORTED = 103, c"Connection aborted";
    ECONNRESET = 104, c"Connection reset by the peer";
    ENOBUFS = 105, c"No buffer space";
    EISCONN = 106, c"Connected already";
    ENOTCONN = 107, c"Not connected";
    ESHUTDOWN = 108, c"Endpoint shut down";
    ETOOMANYREFS = 109, c"Too many references";
    ETIMEDOUT = 110, c"Timed out";
    ECONNREFUSED = 111, c"Connection refused";
    EHOSTDOWN = 112, c"Host is down";
    EHOSTUNREACH = 113, c"No route to the host";
    EALREADY = 114, c"Under way already";
    EINPROGRESS = 115, c"Now under way";
    ESTALE = 116, c"Stale handle";
    EUCLEAN = 117, c"Structure needs cleaning";
    ENOTNAM = 118, c"Not a named type file";
    ENAVAIL = 119, c"No semaphores available";
    EISNAM = 120, c"Is a named type file";
    EREMOTEIO = 121, c"Error at the remote side";
    EDQUOT = 122, c"Quota exceeded";
    ENOMEDIUM = 123, c"No medium";
    EMEDIUMTYPE = 124, c"Wrong medium type";
    ECANCELED = 125, c"Operation cancelled";
    ENOKEY = 126, c"Required key not available";
    EKEYEXPIRED = 127, c"Key expired";
    EKEYREVOKED = 128, c"Key revoked";
    EKEYREJECTED = 129, c"Key rejected";
    EOWNERDEAD = 130, c"Owner died";
    ENOTRECOVERABLE = 131, c"State not recoverable";
    ERFKILL = 132, c"Radio switched off";
    EHWPOISON = 133, c"Memory page has a hardware error";
    KFI_EOTHER = 256, c"Unspecified error";
    KFI_ETOOSMALL = 257, c"Buffer too small";
    KFI_EOPBADSTATE = 258, c"Not allowed in this state";
    KFI_EAVAIL = 259, c"An error entry is to be read";
    KFI_EBADFLAGS = 260, c"Flags not supported";
    KFI_ENOEQ = 261, c"Missing or unavailable event queue";
    KFI_EDOMAIN = 262, c"Invalid domain";
    KFI_ENOCQ = 263, c"Missing or unavailable completion queue";
    KFI_ECRC = 264, c"Checksum error";
    KFI_ETRUNC = 265, c"Truncated";
    KFI_ENOKEY = 266, c"Key not available or in use";
    KFI_ENOAV = 267, c"Missing or unavailable address vector";
    KFI_EOVERRUN = 268, c"Queue overrun: entries were lost";
    ERESTARTSYS = 512, c"Interrupted, to be restarted";
}

impl Errno {
    /// The number as a call returns it: negative.
    pub const fn to_i32(self) -> i32 {
        -(self.0.get() as i32)
    }

    /// The number as entries and events carry it: positive.
    pub const fn number(self) -> u32 {
        self.0.get() as u32
    }

    /// The error that a call returned as a negative number; `None` for a
    /// success or a number that is not in the table.
    pub const fn from_i32(ret: i32) -> Option<Errno> {
        if ret >= 0 {
            return None;
        }
        Self::from_number(ret.unsigned_abs())
    }

    /// The name in C, `"KFI_EAVAIL"`.
    pub const fn name(self) -> &'static str {
        self.words().0
    }

    /// What it means, in a few words of English.
    pub fn as_str(self) -> &'static str {
        self.as_c_str().to_str().unwrap_or("")
    }

    /// [`Self::as_str`] for C: what `kfi_strerror()` returns.
    pub const fn as_c_str(self) -> &'static CStr {
        self.words().1
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_errno))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_abi() {
        assert_eq!(Errno::EPERM.to_i32(), -1);
        assert_eq!(Errno::EAGAIN.to_i32(), -11);
        assert_eq!(Errno::ETIMEDOUT.to_i32(), -110);
        assert_eq!(Errno::ECANCELED.number(), 125);
        assert_eq!(Errno::ENOKEY.number(), 126);
        assert_eq!(Errno::KFI_EOTHER.number(), 256);
        assert_eq!(Errno::KFI_EAVAIL.to_i32(), -259);
        assert_eq!(Errno::KFI_ENOKEY.number(), 266);
        assert_eq!(Errno::KFI_EOVERRUN.to_i32(), -268);
        assert_eq!(Errno::ERESTARTSYS.to_i32(), -512);
    }

    #[test]
    fn every_number_leads_back() {
        let mut last = 0;
        for errno in ALL {
            assert!(errno.number() > last);
            last = errno.number();
            assert_eq!(Errno::from_number(last), Some(*errno));
            assert_eq!(Errno::from_i32(errno.to_i32()), Some(*errno));
            assert!(!errno.as_str().is_empty());
            assert!(errno.name().contains('E'));
        }
    }

    #[test]
    fn other_numbers_are_not_errors() {
        assert_eq!(Errno::from_i32(0), None);
        assert_eq!(Errno::from_i32(11), None);
        assert_eq!(Errno::from_i32(-41), None);
        assert_eq!(Errno::from_i32(-269), None);
        assert_eq!(Errno::from_i32(i32::MIN), None);
        assert_eq!(Errno::from_number(0), None);
    }

    #[test]
    fn names_and_texts() {
        assert_eq!(Errno::KFI_EAVAIL.name(), "KFI_EAVAIL");
        assert_eq!(Errno::EAGAIN.name(), "EAGAIN");
        assert_eq!(Errno::EAGAIN.as_str(), "Try again");
        assert_eq!(Errno::EAGAIN.as_c_str(), c"Try again");
    }
}
