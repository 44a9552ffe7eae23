// SPDX-License-Identifier: GPL-2.0

//! Structures of the ABI from and to user space.
//!
//! The rules of extensible structures (`copy_struct_from_user()`): a caller may
//! know a shorter structure, which is filled up with zeros, or a longer one,
//! which is taken if what this module does not know is zero. The size is read
//! once; what comes back has that size in it, whatever the caller's other
//! threads do to the memory meanwhile.
//!
//! Process context; all of this can fault and sleep.

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

/// While it lives, an access of this task's to user memory that is not there fails with `EFAULT`
/// and does not wait for the memory: for copying under a lock that others wait for.
pub(crate) struct NoFaults(NotThreadSafe);

impl NoFaults {
    /// From now on.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: Undone when this is dropped, by the same task, as it cannot be sent.
        unsafe { bindings::kfabric_shim_pagefault_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for NoFaults {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Undoes what `new` did.
        unsafe { bindings::kfabric_shim_pagefault_enable() };
    }
}

/// Writes zeros where results of this call are to be written, and thereby brings that memory in, as long
/// as that takes: it may go again at any time.
///
/// # Errors
///
/// `EFAULT` it cannot be written.
pub(crate) fn clear(ptr: UserPtr, len: usize) -> Result {
    task::might_sleep();
    // SAFETY: A user pointer may be anything: it is checked, and faults are errors.
    if unsafe { bindings::kfabric_shim_clear_user(ptr.as_const_ptr().cast(), len) } {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Reads a structure that begins with its size.
///
/// Returns the structure, and its size as the caller knows it, which
/// [`write_struct`] asks for.
///
/// # Errors
///
/// `EFAULT`; `EINVAL` the size is below that of the first version; `E2BIG` it is
/// above a page, or what lies beyond this module's knowledge is not zero.
#[inline]
pub(crate) fn read_struct<T: Versioned>(ptr: UserPtr) -> Result<(T, usize)> {
    let mut value = T::default();
    // Mostly both know the same, so the size is read with all the rest. If not, nothing of this
    // first look is used.
    if T::IN_WORDS && get_words(ptr, &mut value) && value.size() as usize == size_of::<T>() {
        return Ok((value, size_of::<T>()));
    }
    let size: u32 = UserSlice::new(ptr, size_of::<u32>()).reader().read()?;
    let user_size = usize::try_from(size)?;
    read_sized(ptr, user_size, T::V1_SIZE, &mut value)?;
    value.set_size(size);
    Ok((value, user_size))
}

/// Writes a structure back to where [`read_struct`] read it: as many bytes as
/// both sides know.
///
/// # Errors
///
/// `EFAULT`.
#[inline]
pub(crate) fn write_struct<T: Versioned>(ptr: UserPtr, value: &T, user_size: usize) -> Result {
    if T::IN_WORDS && user_size == size_of::<T>() {
        let words: *const T = value;
        // No slice of words: a structure of integers of 32 bits is aligned to 4 bytes.
        // SAFETY: So many bytes, all of them initialised (`AsBytes`).
        return unsafe { put_words(ptr, words.cast(), T::WORDS) };
    }
    let bytes = value.as_bytes();
    let len = bytes.len().min(user_size);
    let known = bytes.get(..len).ok_or(EINVAL)?;
    UserSlice::new(ptr, len).writer().write_slice(known)
}

/// Reads element `index` of an array whose elements are `stride` bytes long, as
/// the caller knows them, by the rules of [`read_struct`]; `v1_size` is the size
/// of an element's first version.  What is in `into` after an error is of no use.
///
/// # Errors
///
/// As [`read_struct`]; `EFAULT` also where the address wraps.
#[inline]
pub(crate) fn read_element<T: Abi>(
    array: UserPtr,
    index: usize,
    stride: usize,
    v1_size: usize,
    into: &mut T,
) -> Result {
    let offset = index.checked_mul(stride).ok_or(EFAULT)?;
    read_sized(array.wrapping_byte_add(offset), stride, v1_size, into)
}

/// Reads bytes: all of `into`, which is initialized then.
///
/// # Errors
///
/// `EFAULT`.
#[inline]
pub(crate) fn read_bytes(ptr: UserPtr, into: &mut [MaybeUninit<u8>]) -> Result {
    let (to, len) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: `to` is `len` bytes to be written. A user pointer may be anything: it is checked, and
    // faults are errors.
    let read = unsafe { bindings::kfabric_shim_get_bytes(to, ptr.as_const_ptr().cast(), len) };
    if read {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Writes a few words.
///
/// # Errors
///
/// `EFAULT`.
#[inline]
pub(crate) fn write_words(ptr: UserPtr, words: &[u64]) -> Result {
    // SAFETY: That many words.
    unsafe { put_words(ptr, words.as_ptr().cast(), words.len()) }
}

/// Writes `words` words.
///
/// # Safety
///
/// `from` is valid for reads of as many; it need not be aligned.
#[inline]
unsafe fn put_words(ptr: UserPtr, from: *const c_void, words: usize) -> Result {
    // SAFETY: By the requirements. A user pointer may be anything: it is checked, and faults are
    // errors.
    if unsafe { bindings::kfabric_shim_put_words(ptr.as_mut_ptr(), from, words) } {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Reads the words of a structure; `false` if one cannot be read.
#[inline]
fn get_words<T: Abi>(ptr: UserPtr, into: &mut T) -> bool {
    let into: *mut T = into;
    // SAFETY: `into` is that many words that may take any value (`FromBytes`), aligned or not. A user
    // pointer may be anything: it is checked, and faults are errors.
    unsafe { bindings::kfabric_shim_get_words(into.cast(), ptr.as_const_ptr(), T::WORDS) }
}

/// Reads a structure of `user_size` bytes.
#[inline]
fn read_sized<T: Abi>(ptr: UserPtr, user_size: usize, v1_size: usize, into: &mut T) -> Result {
    if user_size < v1_size {
        return Err(EINVAL);
    }
    if user_size > PAGE_SIZE {
        return Err(E2BIG);
    }
    if user_size == size_of::<T>() && T::IN_WORDS {
        return if get_words(ptr, into) {
            Ok(())
        } else {
            Err(EFAULT)
        };
    }
    let into: *mut T = into;
    // SAFETY: `into` is `size_of::<T>()` bytes that may take any value (`FromBytes`). A user pointer
    // may be anything: it is checked, and faults are errors.
    to_result(unsafe {
        bindings::kfabric_shim_copy_struct_from_user(
            into.cast(),
            size_of::<T>(),
            ptr.as_const_ptr(),
            user_size,
        )
    })
}
