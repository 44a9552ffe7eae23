// SPDX-License-Identifier: GPL-2.0

//! Copying structures of the ABI from and to user space.
//!
//! The functions implement the rules of extensible structures (`copy_struct_from_user()`). A caller
//! may pass a shorter structure, which is padded with zeros, or a longer one, if the bytes that
//! this module does not know are zero. The size is read once; the result has that size, even if
//! other threads of the caller change the memory meanwhile.
//!
//! Process context; all functions can fault and sleep.

use crate::shim::{
    abi::{
        Abi,
        Versioned, //
    },
    bindings, //
};
use core::mem::MaybeUninit;
use kernel::{
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    task,
    types::NotThreadSafe,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// Makes accesses of this task to user memory that is not present fail with `EFAULT`, instead of
/// waiting for the page, until it is dropped. For copying under a lock that others wait for.
pub(crate) struct PagefaultDisabled(NotThreadSafe);

impl PagefaultDisabled {
    /// Disables page faults.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: The same task undoes it when this is dropped, because the value cannot be sent.
        unsafe { bindings::kfabric_shim_pagefault_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for PagefaultDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Undoes the call in `new`.
        unsafe { bindings::kfabric_shim_pagefault_enable() };
    }
}

/// `EFAULT` unless user memory was accessed.
#[inline]
fn accessed(done: bool) -> Result {
    done.then_some(()).ok_or(EFAULT)
}

/// Writes zeros to the memory for results of this call, which faults the memory in. The pages may
/// be swapped out again at any time. Fails with `EFAULT` if the memory cannot be written.
pub(crate) fn clear(ptr: UserPtr, len: usize) -> Result {
    task::might_sleep();
    // SAFETY: Any user pointer is allowed: it is checked, and faults are errors.
    accessed(unsafe { bindings::kfabric_shim_clear_user(ptr.as_const_ptr().cast(), len) })
}

/// Reads a structure that begins with its size.
///
/// Returns the structure, and its size as the caller knows it, which [`write_struct`] needs. Fails
/// with `EFAULT`; `EINVAL` if the size is below that of the first version; `E2BIG` if the size is
/// above a page, or bytes that this module does not know are not zero.
#[inline]
pub(crate) fn read_struct<T: Versioned>(ptr: UserPtr) -> Result<(T, usize)> {
    let mut value = T::default();
    // Usually both know the same version, so read the size together with the rest. Otherwise
    // nothing of this first read is used.
    if T::IN_WORDS {
        // SAFETY: It is a reference.
        let is_read = unsafe { get_words(ptr, &mut value) };
        if is_read && value.size() as usize == size_of::<T>() {
            return Ok((value, size_of::<T>()));
        }
    }
    let user_size = read_other_version(ptr, &mut value)?;
    Ok((value, user_size))
}

/// [`read_struct`] for a caller that knows another version. Returns the size.
#[cold]
#[inline(never)]
fn read_other_version<T: Versioned>(ptr: UserPtr, value: &mut T) -> Result<usize> {
    let size: u32 = UserSlice::new(ptr, size_of::<u32>()).reader().read()?;
    let user_size = usize::try_from(size)?;
    *value = *read_sized::<T>(ptr, user_size, T::V1_SIZE, &mut MaybeUninit::uninit())?;
    value.set_size(size);
    Ok(user_size)
}

/// Writes a structure back to where [`read_struct`] read it: the bytes that both sides know. Fails
/// with `EFAULT`.
#[inline]
pub(crate) fn write_struct<T: Versioned>(ptr: UserPtr, value: &T, user_size: usize) -> Result {
    if T::IN_WORDS && user_size == size_of::<T>() {
        let words: *const T = value;
        // This cannot use a slice of words: a structure of 32-bit integers is aligned to 4 bytes.
        // SAFETY: `value` has that many bytes, all of them initialised (`AsBytes`).
        return unsafe { put_words(ptr, words.cast(), T::WORDS) };
    }
    let bytes = value.as_bytes();
    let len = bytes.len().min(user_size);
    let known = bytes.get(..len).ok_or(EINVAL)?;
    UserSlice::new(ptr, len).writer().write_slice(known)
}

/// Reads element `index` of an array whose elements have a size of `stride` bytes, as the caller
/// knows them, by the rules of [`read_struct`]. `v1_size` is the size of an element's first
/// version. Returns the element, which is in `into`. Fails as [`read_struct`]; also `EFAULT` if the
/// address wraps.
#[inline]
pub(crate) fn read_element<T: Abi>(
    array: UserPtr,
    index: usize,
    stride: usize,
    v1_size: usize,
    into: &mut MaybeUninit<T>,
) -> Result<&T> {
    let offset = index.checked_mul(stride).ok_or(EFAULT)?;
    read_sized(array.wrapping_byte_add(offset), stride, v1_size, into)
}

/// Writes element `index` of an array of elements as [`read_element`] reads them: the bytes that
/// both sides know, and zeros in place of those that only the caller knows. Fails with `EFAULT`.
pub(crate) fn write_element<T: Abi>(
    array: UserPtr,
    index: usize,
    stride: usize,
    value: &T,
) -> Result {
    let offset = index.checked_mul(stride).ok_or(EFAULT)?;
    let at = array.wrapping_byte_add(offset);
    let (known, unknown) = match stride.checked_sub(size_of::<T>()) {
        Some(unknown) => (size_of::<T>(), unknown),
        None => (stride, 0),
    };
    let bytes = value.as_bytes().get(..known).ok_or(EFAULT)?;
    UserSlice::new(at, known).writer().write_slice(bytes)?;
    match unknown {
        0 => Ok(()),
        _ => clear(at.wrapping_byte_add(known), unknown),
    }
}

/// Reads bytes to all of `into`, which is initialised afterwards. Fails with `EFAULT`.
#[inline]
pub(crate) fn read_bytes(ptr: UserPtr, into: &mut [MaybeUninit<u8>]) -> Result {
    let (to, len) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: `to` is valid for writes of `len` bytes. Any user pointer is allowed: it is checked,
    // and faults are errors.
    accessed(unsafe { bindings::kfabric_shim_get_bytes(to, ptr.as_const_ptr().cast(), len) })
}

/// Writes a few words. Fails with `EFAULT`.
#[inline]
pub(crate) fn write_words(ptr: UserPtr, words: &[u64]) -> Result {
    // SAFETY: `words` has that many words.
    unsafe { put_words(ptr, words.as_ptr().cast(), words.len()) }
}

/// Writes `words` words.
///
/// # Safety
///
/// `from` is valid for reads of that many words; it need not be aligned.
#[inline]
unsafe fn put_words(ptr: UserPtr, from: *const c_void, words: usize) -> Result {
    // SAFETY: By the requirements. Any user pointer is allowed: it is checked, and faults are
    // errors.
    accessed(unsafe { bindings::kfabric_shim_put_words(ptr.as_mut_ptr(), from, words) })
}

/// Reads the words of a structure to all of `into`; `false` if one cannot be read.
///
/// # Safety
///
/// `into` is valid for writes.
#[inline]
unsafe fn get_words<T: Abi>(ptr: UserPtr, into: *mut T) -> bool {
    // SAFETY: `into` has that many words, which may have any value (`FromBytes`), with any
    // alignment. Any user pointer is allowed: it is checked, and faults are errors.
    unsafe { bindings::kfabric_shim_get_words(into.cast(), ptr.as_const_ptr(), T::WORDS) }
}

/// Reads a structure of `user_size` bytes. Returns it; it is in `into`.
#[inline]
fn read_sized<T: Abi>(
    ptr: UserPtr,
    user_size: usize,
    v1_size: usize,
    into: &mut MaybeUninit<T>,
) -> Result<&T> {
    if user_size < v1_size {
        return Err(EINVAL);
    }
    if user_size > PAGE_SIZE {
        return Err(E2BIG);
    }
    if user_size == size_of::<T>() && T::IN_WORDS {
        // SAFETY: It is a reference.
        accessed(unsafe { get_words(ptr, into.as_mut_ptr()) })?;
    } else {
        // SAFETY: `into` has `size_of::<T>()` bytes that may have any value (`FromBytes`). Any user
        // pointer is allowed: it is checked, and faults are errors.
        to_result(unsafe {
            bindings::kfabric_shim_copy_struct_from_user(
                into.as_mut_ptr().cast(),
                size_of::<T>(),
                ptr.as_const_ptr(),
                user_size,
            )
        })?;
    }
    // SAFETY: Both functions have written all bytes of `into`; those that the caller does not know
    // are zero. They may have any value (`FromBytes`).
    Ok(unsafe { into.assume_init_ref() })
}
