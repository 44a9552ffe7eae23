// SPDX-License-Identifier: GPL-2.0
//! The raw interface: structures and constants of `include/uapi/kfabric.h`,
//! and its calls.
//!
//! Everything here with a lower-case `kfabric_`, or in capitals, is generated
//! from the header when the crate is built, with its comments; the compiler
//! checks sizes and offsets against those of C.  Each argument structure
//! implements [`Call`], which has the number of its command.
//!
//! Programs use the safe types of the crate.  These calls are for tests of the
//! interface and for functions that the safe types do not offer: [`call`] sends
//! a structure as it stands, [`call_raw`] sends anything at all.  Both are
//! unsafe, because many structures hold addresses that the kernel writes to.
//!
//! ```no_run
//! use kfi::{Errno, abi::{self, Call}};
//!
//! let device = kfi::Device::open()?;
//! let mut bad = abi::kfabric_close { handle: 12345, ..Call::sized() };
//! // SAFETY: the structure holds no address.
//! let answer = unsafe { abi::call(&device, &mut bad) };
//! assert_eq!(answer, Err(Errno::EBADF));
//! # Ok::<(), kfi::Error>(())
//! ```

use std::{ffi::c_void, os::fd::AsFd};

use rustix::ioctl;

use crate::errno::Errno;

pub(crate) mod calls;
#[cfg(test)]
mod names;

#[expect(
    missing_docs,
    non_camel_case_types,
    reason = "as in the header, which documents its fields together"
)]
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "zeros are valid in structures of numbers"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/kfabric.rs"));
}
pub use generated::*;

/// An argument structure of a call.
///
/// # Safety
///
/// The command's number belongs to this structure: the kernel writes no more
/// than `size_of::<Self>()` bytes to it when `size` says so.
pub unsafe trait Call: Copy + Default {
    /// The command, `KFABRIC_IOC_*`.
    const REQUEST: u32;
    /// The command's name.
    const NAME: &'static str;
    /// Whether no field of the structure is a pointer.
    const PLAIN: bool;

    /// All zeros, but for the size.
    fn sized() -> Self;
}

/// A [`Call`] whose structure holds no address, so that the kernel touches
/// nothing but the structure.
pub(crate) trait Plain: Call {}

macro_rules! calls {
    ($($request:ident $arg:ident $($plain:ident)?;)*) => {
        $(
            // Clang has computed the number, with the size that is coded in it.
            const _: () = assert!(($request >> 16) & 0x3fff == size_of::<$arg>() as u32);

            // SAFETY: The number has the size of this structure, see above.
            unsafe impl Call for $arg {
                const REQUEST: u32 = $request;
                const NAME: &'static str = stringify!($request);
                const PLAIN: bool = {
                    let plain: &[&str] = &[$(stringify!($plain))?];
                    !plain.is_empty()
                };

                fn sized() -> Self {
                    Self {
                        size: size_of::<Self>() as u32,
                        ..Self::default()
                    }
                }
            }
            $(impl $plain for $arg {})?
        )*

        /// Name, number and size of the argument structure of every call.
        pub const CALLS: &[(&str, u32, usize)] =
            &[$((stringify!($request), $request, size_of::<$arg>()),)*];
    };
}

// The calls of the header, in its order.
include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// `ioctl(2)` with a command that is only known at run time.
struct Request {
    request: u32,
    arg: *mut c_void,
}

// SAFETY: command and argument are passed on as they are; the implementation of
// Request guarantees that they match.
unsafe impl ioctl::Ioctl for Request {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> ioctl::Opcode {
        self.request as ioctl::Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.arg
    }

    unsafe fn output_from_ptr(
        _ret: ioctl::IoctlOutput,
        _arg: *mut c_void,
    ) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Makes the call that `arg` belongs to, with `arg` as it stands.
///
/// Values that the kernel wrote to `arg` are there afterwards, also when the
/// call failed: the descriptions of some calls say so.
///
/// # Errors
///
/// The call's answer.
///
/// # Safety
///
/// `arg.size` is at most `size_of::<C>()`.  Addresses in `arg` are null, or
/// point to memory that is valid for what the call does with it, during the
/// call and for as long as operations that it starts are under way.
pub unsafe fn call<C: Call>(fd: impl AsFd, arg: &mut C) -> Result<(), Errno> {
    let arg: *mut C = arg;
    // SAFETY: `arg` is valid for reads and writes of its size; the rest is
    // promised by the caller.
    unsafe { call_raw(fd, C::REQUEST, arg.cast()) }
}

/// Makes any call with any argument: for tests with malformed input.
///
/// # Errors
///
/// The call's answer.
///
/// # Safety
///
/// All memory that the kernel writes to in answer must be valid for writes.  An
/// invalid address is allowed: the kernel answers `EFAULT`.
pub unsafe fn call_raw(fd: impl AsFd, request: u32, arg: *mut c_void) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    unsafe { ioctl::ioctl(fd, Request { request, arg }) }.map_err(Errno::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_IOWR(KFABRIC_IOC_TYPE, nr, size)` by hand, as the headers define it.
    const fn iowr(nr: u32, size: usize) -> u32 {
        (3 << 30) | ((size as u32) << 16) | (KFABRIC_IOC_TYPE << 8) | nr
    }

    /// The numbers, which clang computed from the header, carry the size of
    /// the structure that `calls!` pairs them with.
    #[test]
    fn request_numbers_contain_the_size_of_the_structure() {
        for (name, request, size) in CALLS {
            assert_eq!(*request, iowr(request & 0xff, *size), "{name}");
        }
        assert_eq!(KFABRIC_IOC_QUERY, iowr(0, size_of::<kfabric_query>()));
        assert_eq!(KFABRIC_IOC_POST, iowr(0x50, size_of::<kfabric_post>()));
    }

    #[test]
    fn request_numbers_equal_those_of_rustix() {
        type Op = kfabric_post;
        let opcode = ioctl::opcode::read_write::<Op>(KFABRIC_IOC_TYPE as u8, 0x50);
        assert_eq!(KFABRIC_IOC_POST as ioctl::Opcode, opcode);
    }

    /// Structures whose comments in the header say "pointer to" are not plain; the scenario
    /// `abi_shape::the_table_is_the_header` compares all of them.
    #[test]
    fn structures_with_pointers_are_not_plain() {
        assert_eq!([kfabric_close::PLAIN, kfabric_query::PLAIN], [true, true]);
        assert_eq!(
            [
                kfabric_post::PLAIN,
                kfabric_eq_read::PLAIN,
                kfabric_getinfo::PLAIN
            ],
            [false, false, false]
        );
    }

    #[test]
    fn sized_sets_the_size_only() {
        let arg = kfabric_close::sized();
        assert_eq!(arg.size, 8);
        assert_eq!(kfabric_close { size: 0, ..arg }, kfabric_close::default());
    }

    #[test]
    fn every_structure_is_a_multiple_of_eight_bytes() {
        for (name, _, size) in CALLS {
            assert_eq!(size % 8, 0, "{name}");
        }
    }

    /// A descriptor of another device answers with an error, not with a wrong
    /// result.
    #[test]
    fn a_file_of_another_kind_gives_enotty() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut arg = kfabric_nop::sized();
        // SAFETY: the structure holds no address.
        assert_eq!(unsafe { call(&file, &mut arg) }, Err(Errno::ENOTTY));
    }
}
