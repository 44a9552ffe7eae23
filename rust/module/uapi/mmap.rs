// SPDX-License-Identifier: GPL-2.0

//! mmap(2) of the device: the ring of a CQ, read and written; the values of a counter, read-only.
//!
//! Which of them is meant is coded in the offset: each handle has a window of its own, so that an
//! offset tells nothing and costs nothing to make. Offsets stay below 2^44, which 32-bit programs
//! can still give.
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

/// Bits of an offset below the handle. The largest ring, 65536 entries of 64 bytes and its head,
/// is far below what they span.
const WINDOW_BITS: u32 = 24;

/// The offset that maps the memory of the object `handle`.
pub(super) fn offset_of(handle: u64) -> u64 {
    handle << WINDOW_BITS
}

/// Maps what the offset of `vma` names, from its beginning.
///
/// `EINVAL` the offset names nothing that can be mapped, or the mapping is longer than that;
/// `EACCES` a counter is to be written to. Process context, the caller's `mmap_lock` held.
pub(super) fn map(file: &OpenFile, vma: &VmaNew) -> Result {
    // SAFETY: `vma` is a valid area in the making, of which this is the only user.
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
