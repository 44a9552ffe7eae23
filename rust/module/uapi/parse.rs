// SPDX-License-Identifier: GPL-2.0

//! Checks that several calls share: from what a program says to values that cannot be bad.

use kernel::{
    prelude::*,
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
    limits,
    wait::Deadline, //
};

use super::file::OpenFile;
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
        errno::to_error,
        sched::now_ns, //
    }, //
};

/// Checks reserved fields and flags of calls that have none: `EINVAL` if one is not zero.
pub(super) fn zero<T: Copy + PartialEq + Default>(fields: &[T]) -> Result {
    if fields.iter().any(|field| *field != T::default()) {
        return Err(EINVAL);
    }
    Ok(())
}

/// A field that says 0 for no and 1 for yes: `EINVAL` anything else.
pub(super) fn yes_or_no(field: u32) -> Result<bool> {
    match field {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

/// Text in a fixed field, without its NUL: `EINVAL` if there is no NUL.
pub(super) fn text(field: &[u8]) -> Result<&[u8]> {
    let len = field.iter().position(|&c| c == 0).ok_or(EINVAL)?;
    field.get(..len).ok_or(EINVAL)
}

/// Puts `words` into a fixed field as text, cut where it would not fit, NUL-terminated and filled
/// up with zeros.
pub(super) fn put_text(field: &mut [u8], words: &[u8]) {
    field.fill(0);
    let room = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().take(room).zip(words) {
        *to = *from;
    }
}

/// A number of list elements: `EINVAL` none, or more than an iov list may have.
pub(super) fn check_count(count: u32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count @ 1..=limits::MAX_IOV) => Ok(count),
        _ => Err(EINVAL),
    }
}

/// `count` elements of type `T` at the program's `addr`: `EFAULT` if they cannot be there.
pub(super) fn user_slice<T>(addr: u64, count: usize) -> Result<UserSlice> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    let bytes = count.checked_mul(size_of::<T>()).ok_or(EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(addr), bytes))
}

/// Reads an array of `count` `struct kfabric_iov` at `addr`, and the sum of their lengths.
///
/// `EINVAL` the count, or lengths that wrap; `EFAULT`, `ENOMEM`.
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

/// The wait object of an object that is being opened: `EINVAL` unknown, or `KFI_WAIT_SET` without a
/// wait set; `EBADF` no wait set of that number. `wait_set` is ignored unless it is `KFI_WAIT_SET`.
pub(super) fn wait_obj(file: &OpenFile, wait_obj: u32, wait_set: u32) -> Result<WaitObj> {
    let set = match enums::WaitObj::try_from(wait_obj) {
        Ok(enums::WaitObj::Set) => file.optional::<WaitSet>(wait_set)?,
        _ => None,
    };
    WaitObj::new(wait_obj, set)
}

/// The deadline of a call: 0, and any time that has passed, polls.
#[inline]
pub(super) fn deadline(deadline: u64) -> Deadline {
    Deadline::from_abi(deadline, if deadline == 0 { 0 } else { now_ns() })
}

/// The result of a call that had the time `limit`, which the program gave as `deadline`: a poll that
/// finds nothing ends with `EAGAIN`, one because the deadline has passed with `ETIMEDOUT`.
#[inline]
pub(super) fn timed<T>(deadline: u64, limit: Deadline, result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error == EAGAIN && limit == Deadline::Poll && deadline != 0 => Err(ETIMEDOUT),
        result => result,
    }
}

/// A program's address, which may be anything: `EFAULT` if it is no address.
pub(super) fn user_ptr(addr: u64) -> Result<UserPtr> {
    Ok(UserPtr::from_addr(
        usize::try_from(addr).map_err(|_| EFAULT)?,
    ))
}

/// The deadline of a call that may be a restart, of which `began` tells: an interrupted wait whose
/// time is over ends as one that was not interrupted does.
#[inline]
pub(super) fn restarted_deadline(deadline: u64, began: u64) -> Deadline {
    if began == 0 {
        self::deadline(deadline)
    } else {
        Deadline::from_abi(deadline, 0)
    }
}

/// Reads the private data of a connection, `len` bytes at the program's `addr`, into `room`: `EINVAL`
/// more than fit, `EFAULT`.
pub(super) fn private(room: &mut [u8], addr: u64, len: u32) -> Result<&[u8]> {
    let private = room.get_mut(..len as usize).ok_or(EINVAL)?;
    user_slice::<u8>(addr, private.len())?
        .reader()
        .read_slice(private)?;
    Ok(private)
}

/// An address of the interface, none if it is all zero: `EINVAL` a family that is neither IPv4 nor
/// IPv6, a field that must be 0 and is not.
pub(super) fn sockaddr_or_none(addr: &kfabric_sockaddr) -> Result<Option<SockAddr>> {
    SockAddr::from_raw_or_none(raw(addr)?).map_err(to_error)
}

/// An address of the interface: `EINVAL` as [`sockaddr_or_none`], and none at all.
pub(super) fn sockaddr(addr: &kfabric_sockaddr) -> Result<SockAddr> {
    SockAddr::from_raw(raw(addr)?).map_err(to_error)
}

/// An address that something here shall have, none if it is all zero: `EINVAL` as
/// [`sockaddr_or_none`], and the number of a QP, which is nobody's to choose.
pub(super) fn own_sockaddr_or_none(addr: &kfabric_sockaddr) -> Result<Option<SockAddr>> {
    let addr = sockaddr_or_none(addr)?;
    match addr {
        Some(addr) if addr.is_qp() => Err(EINVAL),
        addr => Ok(addr),
    }
}

/// An address that something here shall have: `EINVAL` as [`own_sockaddr_or_none`], and none at
/// all.
pub(super) fn own_sockaddr(addr: &kfabric_sockaddr) -> Result<SockAddr> {
    own_sockaddr_or_none(addr)?.ok_or(EINVAL)
}

// The core crate knows the structure and the families without the headers.
kernel::static_assert!(size_of::<kfabric_sockaddr>() == RAW_LEN);
kernel::static_assert!(kernel::bindings::AF_INET == AF_INET as u32);
kernel::static_assert!(kernel::bindings::AF_INET6 == AF_INET6 as u32);

fn raw(addr: &kfabric_sockaddr) -> Result<&[u8; RAW_LEN]> {
    addr.as_bytes().try_into().map_err(|_| EINVAL)
}

/// An address as the interface has it; all zero for none.
pub(super) fn put_sockaddr(addr: Option<SockAddr>) -> kfabric_sockaddr {
    addr.and_then(|addr| kfabric_sockaddr::from_bytes_copy(&addr.to_raw()))
        .unwrap_or_default()
}
