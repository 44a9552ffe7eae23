// SPDX-License-Identifier: GPL-2.0
//! The raw interface: structures and constants of `include/uapi/kfabric.h`,
//! and its calls.
//!
//! Everything here with a lower-case `kfabric_`, or in capitals, is generated
//! from the header when the crate is built, with its comments; the compiler
//! checks sizes and offsets against what C has.  Each argument structure
//! implements [`Call`], which knows its command.
//!
//! Programs use the safe types of the crate.  These calls are for tests of the
//! interface and for what the safe types do not offer: [`call`] sends a
//! structure as it stands, [`call_raw`] sends anything at all.  Both are
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

    /// All zeros, but for the size.
    fn sized() -> Self;
}

/// A [`Call`] whose structure holds no address, so that the kernel touches
/// nothing but the structure.
pub(crate) trait Plain: Call {}

macro_rules! calls {
    ($($request:ident $arg:ident $($plain:ident)?;)*) => {
        $(
            // SAFETY: `request_numbers` in the tests compares the size that
            // is coded in the number.
            unsafe impl Call for $arg {
                const REQUEST: u32 = $request;
                const NAME: &'static str = stringify!($request);

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

calls! {
    KFABRIC_IOC_QUERY kfabric_query Plain;
    KFABRIC_IOC_NOP kfabric_nop Plain;
    KFABRIC_IOC_LINK_ADD kfabric_link_add Plain;
    KFABRIC_IOC_LINK_DEL kfabric_link_del Plain;
    KFABRIC_IOC_LINK_GET kfabric_link_get Plain;
    KFABRIC_IOC_GETINFO kfabric_getinfo;
    KFABRIC_IOC_STAT kfabric_stat Plain;
    KFABRIC_IOC_FIGURES kfabric_figures Plain;
    KFABRIC_IOC_CLOSE kfabric_close Plain;
    KFABRIC_IOC_GETWAIT kfabric_getwait Plain;
    KFABRIC_IOC_OPSFLAG kfabric_opsflag Plain;
    KFABRIC_IOC_BIND kfabric_bind Plain;
    KFABRIC_IOC_FABRIC_OPEN kfabric_fabric_open Plain;
    KFABRIC_IOC_DOMAIN_OPEN kfabric_domain_open Plain;
    KFABRIC_IOC_EQ_OPEN kfabric_eq_open Plain;
    KFABRIC_IOC_EQ_READ kfabric_eq_read;
    KFABRIC_IOC_EQ_READERR kfabric_eq_readerr;
    KFABRIC_IOC_EQ_WRITE kfabric_eq_write;
    KFABRIC_IOC_AV_OPEN kfabric_av_open Plain;
    KFABRIC_IOC_AV_INSERT kfabric_av_insert;
    KFABRIC_IOC_AV_INSERTSVC kfabric_av_insertsvc Plain;
    KFABRIC_IOC_AV_REMOVE kfabric_av_remove;
    KFABRIC_IOC_AV_LOOKUP kfabric_av_lookup Plain;
    KFABRIC_IOC_AV_STRADDR kfabric_av_straddr Plain;
    KFABRIC_IOC_MR_REG kfabric_mr_reg;
    KFABRIC_IOC_CQ_OPEN kfabric_cq_open Plain;
    KFABRIC_IOC_CQ_READ kfabric_cq_read;
    KFABRIC_IOC_CQ_READERR kfabric_cq_readerr Plain;
    KFABRIC_IOC_CQ_SIGNAL kfabric_cq_signal Plain;
    KFABRIC_IOC_CQ_STRERROR kfabric_cq_strerror Plain;
    KFABRIC_IOC_CNTR_OPEN kfabric_cntr_open Plain;
    KFABRIC_IOC_CNTR_READ kfabric_cntr_read Plain;
    KFABRIC_IOC_CNTR_MODIFY kfabric_cntr_modify Plain;
    KFABRIC_IOC_CNTR_WAIT kfabric_cntr_wait Plain;
    KFABRIC_IOC_WAIT_OPEN kfabric_wait_open Plain;
    KFABRIC_IOC_WAIT kfabric_wait Plain;
    KFABRIC_IOC_POLL_OPEN kfabric_poll_open Plain;
    KFABRIC_IOC_POLL_CHANGE kfabric_poll_change Plain;
    KFABRIC_IOC_POLL kfabric_poll;
    KFABRIC_IOC_EP_OPEN kfabric_ep_open Plain;
    KFABRIC_IOC_EP_ENABLE kfabric_ep_enable Plain;
    KFABRIC_IOC_EP_NAME kfabric_ep_name Plain;
    KFABRIC_IOC_EP_CANCEL kfabric_ep_cancel Plain;
    KFABRIC_IOC_EP_OPT kfabric_ep_opt Plain;
    KFABRIC_IOC_EP_QP kfabric_ep_qp Plain;
    KFABRIC_IOC_EP_CONNECT_QP kfabric_ep_connect_qp Plain;
    KFABRIC_IOC_POST kfabric_post;
    KFABRIC_IOC_PEP_OPEN kfabric_pep_open Plain;
    KFABRIC_IOC_PEP_LISTEN kfabric_pep_listen Plain;
    KFABRIC_IOC_PEP_REJECT kfabric_pep_reject;
    KFABRIC_IOC_EP_CONNECT kfabric_ep_connect;
    KFABRIC_IOC_EP_ACCEPT kfabric_ep_accept;
    KFABRIC_IOC_EP_SHUTDOWN kfabric_ep_shutdown Plain;
    KFABRIC_IOC_EP_PEER kfabric_ep_peer Plain;
}

/// `ioctl(2)` with a command that is only known at run time.
struct Request {
    request: u32,
    arg: *mut c_void,
}

// SAFETY: command and argument are passed on as they are; who makes a Request
// answers for them.
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
/// What the kernel wrote to `arg` is there afterwards, also when the call
/// failed: some calls say so.
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
/// Whatever the kernel writes to in answer must be valid for writes.  An
/// address that points nowhere is fine: the kernel answers `EFAULT`.
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
    fn request_numbers() {
        for (name, request, size) in CALLS {
            assert_eq!(*request, iowr(request & 0xff, *size), "{name}");
        }
        assert_eq!(KFABRIC_IOC_QUERY, iowr(0, size_of::<kfabric_query>()));
        assert_eq!(KFABRIC_IOC_POST, iowr(0x50, size_of::<kfabric_post>()));
    }

    #[test]
    fn request_numbers_are_what_rustix_computes() {
        type Op = kfabric_post;
        let opcode = ioctl::opcode::read_write::<Op>(KFABRIC_IOC_TYPE as u8, 0x50);
        assert_eq!(KFABRIC_IOC_POST as ioctl::Opcode, opcode);
    }

    /// Nothing in the header is without an entry here.
    #[test]
    fn every_command_of_the_header_has_a_call() {
        let header = include_str!("../../../../include/uapi/kfabric.h");
        let defined: Vec<&str> = header
            .lines()
            .filter_map(|line| line.strip_prefix("#define KFABRIC_IOC_"))
            .filter_map(|rest| rest.split_whitespace().next())
            .filter(|name| *name != "TYPE")
            .collect();
        let known: Vec<&str> = CALLS
            .iter()
            .filter_map(|(name, ..)| name.strip_prefix("KFABRIC_IOC_"))
            .collect();
        assert_eq!(defined, known);
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

    /// A descriptor that is no kfabric device answers with an error, not with
    /// a wrong result.
    #[test]
    fn another_file_gives_enotty() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut arg = kfabric_nop::sized();
        // SAFETY: the structure holds no address.
        assert_eq!(unsafe { call(&file, &mut arg) }, Err(Errno::ENOTTY));
    }
}
