// SPDX-License-Identifier: GPL-2.0

//! mmap(2) of the device: maps the ring of a CQ (read and write) or the values of a counter
//! (read-only).
//!
//! The offset selects the object: each handle has its own range of offsets, so an offset needs no
//! allocation and reveals nothing. Offsets are below 2^44, which 32-bit programs can still pass.
//!
//! ```text
//!   44            24          0
//!    |   handle    |     0    |
//! ```

use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SHIFT,
    prelude::*, //
};

use super::{
    file::OpenFile,
    objects::Entry, //
};
use crate::mem::MapAccess;

/// Bits of an offset below the handle. The largest ring, 65536 entries of 64 bytes and its head, is
/// smaller than 2^24 bytes.
const WINDOW_BITS: u32 = 24;

/// The offset at which the memory of the object `handle` is mapped.
pub(super) fn offset_of(handle: u64) -> u64 {
    handle << WINDOW_BITS
}

/// Maps the memory that the offset of `vma` selects, from its first byte.
///
/// Fails with `EINVAL` if the offset selects no object that can be mapped, if the mapping is longer
/// than its memory, or if the mapping of a CQ is not shared; `EACCES` if the mapping is executable,
/// or writable for a counter. Process context, with the caller's `mmap_lock` held.
pub(super) fn map(file: &OpenFile, vma: &VmaNew) -> Result {
    // SAFETY: `vma` is a valid area that is being created, and nothing else uses it yet.
    let pages = unsafe { (*vma.as_ptr()).vm_pgoff } as u64;
    let window = WINDOW_BITS - PAGE_SHIFT as u32;
    let handle = u32::try_from(pages >> window).map_err(|_| EINVAL)?;
    if pages & ((1 << window) - 1) != 0 {
        return Err(EINVAL);
    }
    match file.entry(handle).map_err(|_| EINVAL)? {
        Entry::Cq(cq) => cq.ring().map(vma, MapAccess::ReadWrite),
        Entry::Cntr(cntr) => cntr.page().map(vma, MapAccess::ReadOnly),
        _ => Err(EINVAL),
    }
}
