// SPDX-License-Identifier: GPL-2.0

//! Checks that several calls share: converts input to types without invalid values.

use kernel::{
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::UserSlice, //
};

use kfi_core::{
    addr::{
        SockAddr,
        AF_INET,
        AF_INET6,
        RAW_LEN, //
    },
    enums,
    wait::Deadline, //
};

use super::prelude::*;
use crate::{
    mem::UserRange,
    provider::wait::{
        WaitObj,
        WaitSet, //
    },
    shim::{
        bindings::{
            kfabric_iov,
            kfabric_sockaddr, //
        },
        sched::now_ns, //
    }, //
};

/// Checks reserved fields, and the flags of calls that have none. Fails with `EINVAL` if one is not
/// zero.
pub(super) fn must_be_zero<T: Copy + PartialEq + Default>(fields: &[T]) -> Result {
    if fields.iter().any(|field| *field != T::default()) {
        return Err(EINVAL);
    }
    Ok(())
}

/// A boolean field, 0 or 1. Fails with `EINVAL` for any other value.
pub(super) fn yes_or_no(field: u32) -> Result<bool> {
    match field {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

/// The text in a fixed-size field, without its NUL. Fails with `EINVAL` if there is no NUL.
pub(super) fn text(field: &[u8]) -> Result<&[u8]> {
    let len = field.iter().position(|&c| c == 0).ok_or(EINVAL)?;
    field.get(..len).ok_or(EINVAL)
}

/// Stores `words` in a fixed-size field: truncated if they do not fit, NUL-terminated and padded
/// with zeros.
pub(super) fn put_text(field: &mut [u8], words: &[u8]) {
    field.fill(0);
    let room = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().take(room).zip(words) {
        *to = *from;
    }
}

/// The length of an iov list. Fails with `EINVAL` for 0, or more than the limit.
pub(super) fn check_count(count: u32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count @ 1..=limits::MAX_IOV) => Ok(count),
        _ => Err(EINVAL),
    }
}

/// `count` elements of type `T` at the program's address `addr`. Fails with `EFAULT` if they cannot
/// be in its address space.
pub(super) fn user_slice<T>(addr: u64, count: usize) -> Result<UserSlice> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    let bytes = count.checked_mul(size_of::<T>()).ok_or(EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(addr), bytes))
}

/// Reads an array of `count` `struct kfabric_iov` at `addr`; also returns the sum of their lengths.
///
/// Fails with `EINVAL` if the count is not valid or the lengths overflow, `EFAULT`, `ENOMEM`.
pub(super) fn user_ranges(addr: u64, count: u32) -> Result<(KVec<UserRange>, u64)> {
    let count = check_count(count)?;
    let mut ranges = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let mut reader = user_slice::<kfabric_iov>(addr, count)?.reader();
    let mut sum = 0u64;
    for _ in 0..count {
        let kfabric_iov { addr, len } = reader.read()?;
        sum = sum.checked_add(len).ok_or(EINVAL)?;
        ranges.push(UserRange { addr, len }, GFP_KERNEL_ACCOUNT)?;
    }
    Ok((ranges, sum))
}

/// The wait object of an object that is being opened. `wait_set` is ignored unless `wait_obj` is
/// `KFI_WAIT_SET`. Fails with `EINVAL` for an unknown wait object, or `KFI_WAIT_SET` without a wait
/// set; `EBADF` if the handle names no wait set.
pub(super) fn wait_obj(file: &OpenFile, wait_obj: u32, wait_set: u32) -> Result<WaitObj> {
    let set = match enums::WaitObj::try_from(wait_obj) {
        Ok(enums::WaitObj::Set) => file.optional::<WaitSet>(wait_set)?,
        _ => None,
    };
    WaitObj::new(wait_obj, set)
}

/// The deadline of a call. With 0, or a time that has passed, the call polls.
#[inline]
pub(super) fn deadline(deadline: u64) -> Deadline {
    Deadline::from_abi(deadline, if deadline == 0 { 0 } else { now_ns() })
}

/// The result of a read of events that waited until `limit`, which the program passed as
/// `deadline`. A poll that finds nothing fails with `EAGAIN`, a call whose deadline has passed with
/// `ETIMEDOUT`.
#[inline]
pub(super) fn timed<T>(deadline: u64, limit: Deadline, result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error == EAGAIN && limit == Deadline::Poll && deadline != 0 => Err(ETIMEDOUT),
        result => result,
    }
}

/// An address from the program, which need not be valid. Fails with `EFAULT` if it exceeds a
/// pointer.
pub(super) fn user_ptr(addr: u64) -> Result<UserPtr> {
    Ok(UserPtr::from_addr(
        usize::try_from(addr).map_err(|_| EFAULT)?,
    ))
}

/// The deadline of a call. `began` is not 0 if the call was restarted. A restarted wait whose time
/// is over ends like one that was not interrupted.
#[inline]
pub(super) fn restarted_deadline(deadline: u64, began: u64) -> Deadline {
    if began == 0 {
        self::deadline(deadline)
    } else {
        Deadline::from_abi(deadline, 0)
    }
}

/// Reads the private data of a connection, `len` bytes at the program's address `addr`, into
/// `room`. Fails with `EINVAL` if they do not fit, `EFAULT`.
pub(super) fn private(room: &mut [u8], addr: u64, len: u32) -> Result<&[u8]> {
    let private = room.get_mut(..len as usize).ok_or(EINVAL)?;
    user_slice::<u8>(addr, private.len())?
        .reader()
        .read_slice(private)?;
    Ok(private)
}

/// Converts an address; `None` if it is all zero. Fails with `EINVAL` if the family is neither IPv4
/// nor IPv6, or if a field that must be 0 is not.
pub(super) fn sockaddr_or_none(addr: &kfabric_sockaddr) -> Result<Option<SockAddr>> {
    SockAddr::from_raw_or_none(raw(addr)?).map_err(to_error)
}

/// Converts an address. Fails as [`sockaddr_or_none`], and with `EINVAL` if it is all zero.
pub(super) fn sockaddr(addr: &kfabric_sockaddr) -> Result<SockAddr> {
    SockAddr::from_raw(raw(addr)?).map_err(to_error)
}

/// Converts an address for a local object; `None` if it is all zero. Fails as [`sockaddr_or_none`],
/// and with `EINVAL` if it contains a QP number, which callers cannot choose.
pub(super) fn own_sockaddr_or_none(addr: &kfabric_sockaddr) -> Result<Option<SockAddr>> {
    let addr = sockaddr_or_none(addr)?;
    match addr {
        Some(addr) if addr.is_qp() => Err(EINVAL),
        addr => Ok(addr),
    }
}

/// Converts an address for a local object. Fails as [`own_sockaddr_or_none`], and with `EINVAL` if
/// it is all zero.
pub(super) fn own_sockaddr(addr: &kfabric_sockaddr) -> Result<SockAddr> {
    own_sockaddr_or_none(addr)?.ok_or(EINVAL)
}

// The crate `kfi_core` repeats the size and the families, because it does not use the headers.
kernel::static_assert!(size_of::<kfabric_sockaddr>() == RAW_LEN);
kernel::static_assert!(kernel::bindings::AF_INET == AF_INET as u32);
kernel::static_assert!(kernel::bindings::AF_INET6 == AF_INET6 as u32);

fn raw(addr: &kfabric_sockaddr) -> Result<&[u8; RAW_LEN]> {
    addr.as_bytes().try_into().map_err(|_| EINVAL)
}

/// Converts an address to the structure of the interface; all zero for `None`.
pub(super) fn put_sockaddr(addr: Option<SockAddr>) -> kfabric_sockaddr {
    addr.and_then(|addr| kfabric_sockaddr::from_bytes_copy(&addr.to_raw()))
        .unwrap_or_default()
}
