// SPDX-License-Identifier: GPL-2.0

//! What a consumer can read and set of an endpoint of any class: its name, its options and its
//! default flags. kfi_getname(), kfi_setname() of fi_cm(3); kfi_getopt(), kfi_setopt() and
//! kfi_control() of fi_endpoint(3).
//!
//! # Context
//!
//! The operations of this file need process context and may sleep.

use core::ptr;

use kernel::prelude::*;

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    flags::{
        OpFlags,
        KFI_RECV,
        KFI_TRANSMIT, //
    },
    op::Side, //
};

use super::{
    code,
    info::{
        put_sockaddr,
        sockaddr, //
    },
    object::{
        inner,
        Head, //
    },
    raw::{
        self,
        kfid,
        kfid_t, //
    }, //
};
use crate::{
    provider::ep::options::Opt,
    shim::errno::to_error, //
};

/// An object with a name.
pub(super) trait HasName {
    /// Its name. Fails with `KFI_EOPBADSTATE` if it has none yet.
    fn name(&self) -> Result<SockAddr>;

    /// Sets its name. Fails with `EADDRNOTAVAIL` if the link does not have the address;
    /// `KFI_EOPBADSTATE` if it cannot be changed any more; `EINVAL` if it is not the object's own.
    fn set_name(&self, addr: SockAddr) -> Result;
}

/// An object with options.
pub(super) trait HasOptions {
    /// The value of an option. Fails with `ENOPROTOOPT` if the object does not have it.
    fn opt(&self, opt: Opt) -> Result<u64>;

    /// Sets an option. Fails with `ENOPROTOOPT` if the object does not have it, or it cannot be
    /// set.
    fn set_opt(&self, opt: Opt, value: u64) -> Result;
}

/// An object with default flags of operations.
pub(super) trait HasOpFlags {
    /// The default flags of a side.
    fn op_flags(&self, side: Side) -> OpFlags;

    /// Sets the default flags of a side. Fails with `EINVAL` for a flag that is unknown or cannot
    /// be a default; `EOPNOTSUPP` for KFI_TRIGGER without the capability.
    fn set_op_flags(&self, side: Side, flags: u64) -> Result;
}

/// kfi_setname().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn setname<H: Head>(
    fid: kfid_t,
    addr: *mut c_void,
    len: usize,
) -> c_int
where
    H::Inner: HasName,
{
    let set = || {
        // SAFETY: By the interface, `fid` is an open object of this class, and there are `len`
        // bytes.
        let (object, addr) = unsafe { (inner::<H>(fid.cast()), sockaddr(addr, len)) };
        object.set_name(addr.map_err(|_| EINVAL)?.ok_or(EINVAL)?)
    };
    code(set())
}

/// kfi_getname().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn getname<H: Head>(
    fid: *mut kfid,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int
where
    H::Inner: HasName,
{
    // SAFETY: By the interface, `fid` is an open object of this class.
    let name = unsafe { inner::<H>(fid.cast()) }.name();
    // SAFETY: By the interface, `len` and `addr` can be written.
    code(name.and_then(|name| unsafe { put_sockaddr(&name, addr, len) }))
}

/// The option with a level and a name. Fails with `ENOPROTOOPT` if there is none.
fn option(level: c_int, name: c_int) -> Result<Opt> {
    match (u32::try_from(level), u32::try_from(name)) {
        (Ok(raw::KFI_OPT_ENDPOINT), Ok(raw::KFI_OPT_MIN_MULTI_RECV)) => Ok(Opt::MinMultiRecv),
        (Ok(raw::KFI_OPT_ENDPOINT), Ok(raw::KFI_OPT_CM_DATA_SIZE)) => Ok(Opt::CmDataSize),
        _ => Err(to_error(Errno::ENOPROTOOPT)),
    }
}

/// Stores the value of an option. Fails with `EINVAL` for a null pointer, `KFI_ETOOSMALL`.
///
/// # Safety
///
/// Each pointer is null or can be written; there is room for `*len` bytes at `to`.
unsafe fn put_option(value: u64, to: *mut c_void, len: *mut usize) -> Result {
    if to.is_null() || len.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    let room = unsafe { ptr::replace(len, size_of::<usize>()) };
    if room < size_of::<usize>() {
        return Err(to_error(Errno::KFI_ETOOSMALL));
    }
    // CAST: A usize has 64 bits.
    // SAFETY: By the requirement above.
    unsafe { to.cast::<usize>().write_unaligned(value as usize) };
    Ok(())
}

/// The value of an option that a consumer sets: a `size_t`. Fails with `EINVAL` for a null pointer
/// or a larger length; `KFI_ETOOSMALL`.
///
/// # Safety
///
/// `value` is null, or points to `len` bytes.
unsafe fn given_option(value: *const c_void, len: usize) -> Result<u64> {
    if value.is_null() || len > size_of::<usize>() {
        return Err(EINVAL);
    }
    if len < size_of::<usize>() {
        return Err(to_error(Errno::KFI_ETOOSMALL));
    }
    // CAST: A usize has 64 bits.
    // SAFETY: By the requirement above.
    Ok(unsafe { value.cast::<usize>().read_unaligned() } as u64)
}

/// kfi_getopt().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn getopt<H: Head>(
    fid: *mut kfid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int
where
    H::Inner: HasOptions,
{
    let get = || {
        let opt = option(level, name)?;
        // SAFETY: By the interface, `fid` is an open object of this class.
        let found = unsafe { inner::<H>(fid.cast()) }.opt(opt)?;
        // SAFETY: By the interface, the value and its length can be written.
        unsafe { put_option(found, value, len) }
    };
    code(get())
}

/// kfi_setopt().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn setopt<H: Head>(
    fid: *mut kfid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int
where
    H::Inner: HasOptions,
{
    let set = || {
        let opt = option(level, name)?;
        // SAFETY: By the interface, `value` is null or points to `len` bytes.
        let value = unsafe { given_option(value, len) }?;
        // SAFETY: By the interface, `fid` is an open object of this class.
        unsafe { inner::<H>(fid.cast()) }.set_opt(opt, value)
    };
    code(set())
}

/// The flags that name a side.
const SIDES: u64 = KFI_TRANSMIT | KFI_RECV;

/// The side that flags name, and the other flags. Fails with `EINVAL` for neither side or both.
pub(super) fn side_of(flags: u64) -> Result<(Side, u64)> {
    match flags & SIDES {
        KFI_TRANSMIT => Ok((Side::Transmit, flags & !SIDES)),
        KFI_RECV => Ok((Side::Receive, flags & !SIDES)),
        _ => Err(EINVAL),
    }
}

/// kfi_control() with KFI_GETOPSFLAG: stores the default flags, without the side. Fails with
/// `EINVAL` for a null pointer, or flags that name neither side or both.
///
/// # Safety
///
/// `flags` is null or can be written.
pub(super) unsafe fn get_op_flags(object: &impl HasOpFlags, flags: *mut u64) -> Result {
    // SAFETY: By the requirement above.
    let flags = unsafe { flags.as_mut() }.ok_or(EINVAL)?;
    let (side, _) = side_of(*flags)?;
    *flags = object.op_flags(side).bits();
    Ok(())
}

/// kfi_control() with KFI_SETOPSFLAG. Fails with `EINVAL` for a null pointer, or flags that name
/// neither side or both; and as [`HasOpFlags::set_op_flags`].
///
/// # Safety
///
/// `flags` is null or can be read.
pub(super) unsafe fn set_op_flags(object: &impl HasOpFlags, flags: *const u64) -> Result {
    // SAFETY: By the requirement above.
    let flags = unsafe { flags.as_ref() }.ok_or(EINVAL)?;
    let (side, flags) = side_of(*flags)?;
    object.set_op_flags(side, flags)
}
