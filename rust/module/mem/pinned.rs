// SPDX-License-Identifier: GPL-2.0

//! Pages of a program, pinned where they are.
//!
//! [`Pinned`] holds the pages under one or several ranges of the caller's memory,
//! end to end: byte 0 is the first byte of the first range. The pages stay in
//! place (`FOLL_LONGTERM`), whatever the program does with its mappings, and are
//! charged to `RLIMIT_MEMLOCK` until the last reference goes. A range over memory
//! that the program may only read can be pinned for reading only.
//!
//! What is kept of the pages is their place in the direct map, as [`Segment`]s:
//! pages that follow each other there are one segment, so that a huge page is one
//! segment and a copy of it is one copy.
//!
//! Pinning goes in steps of a few pages, so that a process that is being killed
//! does not first pin a gigabyte.
//!
//! Segments are made from the ranges separately, even where they would join: the
//! pages of a segment are then each pinned exactly once by it, and are unpinned
//! from it alone.

use super::{
    backing::{
        Backing,
        Keeper, //
    },
    segments::{
        pages_of,
        Segment, //
    }, //
};
use crate::shim::{
    bindings as shim,
    cred::Charge,
    sched, //
};
use kernel::{
    bindings,
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc,
    task, //
};

/// Bytes that can be pinned together: those of the largest message.
pub(crate) const PINNED_MAX: usize = shim::KFABRIC_MAX_MSG_SIZE as usize;

/// Pages that are pinned in one step.
const STEP: usize = 64;

/// Pages that are unpinned in one step.
const UNPIN_STEP: usize = 512;

/// A range of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserRange {
    /// Where it begins.
    pub(crate) addr: u64,
    /// Bytes; 0 is allowed.
    pub(crate) len: u64,
}

/// What will be done with pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// It is written, and may be read: the caller must have the right to write.
    Write,
}

/// Pinned pages under ranges of a program's memory: what a [`MemRef`](super::MemRef) of them is made
/// from.
///
/// **Dropping the last reference may sleep**: it is never dropped under a spinlock, nor outside process
/// context.
pub(crate) struct Pinned(Arc<Backing>);

impl Pinned {
    /// Pins `ranges` of the current process, end to end.
    ///
    /// Process context, of the process whose memory it is; may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` a range wraps, or all are longer than [`PINNED_MAX`]; `ENOMEM` no
    /// memory, or over `RLIMIT_MEMLOCK`; `EFAULT` memory that is not there, cannot
    /// be accessed in this way, or cannot be pinned (that of a device); `EINTR`
    /// the process is being killed.
    pub(crate) fn new(ranges: &[UserRange], access: Access) -> Result<Self> {
        task::might_sleep();
        let mut pages = 0usize;
        let mut bytes = 0usize;
        for range in ranges {
            let (addr, len) = range.check()?;
            bytes = bytes.checked_add(len).ok_or(EINVAL)?;
            if bytes > PINNED_MAX {
                return Err(EINVAL);
            }
            pages += pages_of(addr, len);
        }
        let charge = Charge::current(pages)?;
        let mut memory = Backing::new(access, Keeper::Pinned { _charge: charge });
        for range in ranges {
            pin(&mut memory, range)?;
        }
        memory.segments_mut().shrink();
        Ok(Self(Arc::new(memory, GFP_KERNEL_ACCOUNT)?))
    }

    /// Bytes.
    #[cfg(kfi_kunit)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it may be written.
    #[cfg(kfi_kunit)]
    pub(crate) fn writable(&self) -> bool {
        self.0.access() == Access::Write
    }

    /// The memory.
    #[inline]
    pub(super) fn into_backing(self) -> Arc<Backing> {
        self.0
    }
}

/// Pins one more range.
fn pin(memory: &mut Backing, range: &UserRange) -> Result {
    let (mut addr, mut left) = range.check()?;
    let flags = match memory.access() {
        Access::Read => bindings::FOLL_LONGTERM,
        Access::Write => bindings::FOLL_LONGTERM | bindings::FOLL_WRITE,
    };
    let segments = memory.segments_mut();
    let mut join = false;
    while left > 0 {
        sched::cond_resched();
        if sched::fatal_signal_pending() {
            return Err(EINTR);
        }
        let want = pages_of(addr, left).min(STEP);
        // Before the pages are pinned: afterwards each must find its place.
        segments.reserve(want)?;
        let mut pages = [core::ptr::null_mut(); STEP];
        // SAFETY: `pages` has room for `want` pointers. The address may be anything.
        let got = unsafe {
            bindings::pin_user_pages_fast(
                addr & PAGE_MASK,
                // CAST: At most `STEP`.
                want as c_int,
                flags,
                pages.as_mut_ptr(),
            )
        };
        let got = usize::try_from(got).map_err(|_| pin_error(got))?;
        if got == 0 {
            return Err(EFAULT);
        }
        for page in pages.into_iter().take(got) {
            let offset = addr & !PAGE_MASK;
            let len = (PAGE_SIZE - offset).min(left);
            // SAFETY: The page is pinned, so it is valid, and in the direct map (shim.c refuses
            // to be built where not all pages are).
            let base: *mut u8 = unsafe { shim::kfabric_shim_page_address(page) }.cast();
            // INVARIANT: The page is pinned once for these bytes, which lie in it.
            segments.push(base.wrapping_add(offset), len, join);
            join = true;
            addr += len;
            left -= len;
        }
    }
    Ok(())
}

/// Unpins the pages under `segments`; `dirty`: they were written. In bounded steps; process context,
/// may sleep.
///
/// # Safety
///
/// Each page is pinned once for its segment, which is not used again.
pub(super) unsafe fn unpin(segments: &[Segment], dirty: bool) {
    for segment in segments {
        let mut addr = segment.addr.map_addr(|addr| addr & PAGE_MASK);
        let mut left = pages_of(segment.addr.addr(), segment.len);
        while left > 0 {
            let pages = left.min(UNPIN_STEP);
            // SAFETY: By the requirement these pages follow each other in the direct map, and one
            // pin of each is the segment's.
            unsafe {
                let page = shim::kfabric_shim_virt_to_page(addr.cast());
                bindings::unpin_user_page_range_dirty_lock(page, pages, dirty);
            }
            addr = addr.wrapping_add(pages << PAGE_SHIFT);
            left -= pages;
            sched::cond_resched();
        }
    }
}

impl UserRange {
    /// Address and length, of a range that does not wrap. Fails with `EINVAL`.
    fn check(&self) -> Result<(usize, usize)> {
        let (addr, len) = (usize::try_from(self.addr)?, usize::try_from(self.len)?);
        addr.checked_add(len)
            .and_then(kernel::page::page_align)
            .ok_or(EINVAL)?;
        Ok((addr, len))
    }
}

/// The error for what `pin_user_pages_fast()` returned instead of a count.
fn pin_error(ret: c_int) -> Error {
    let error = Error::from_errno(ret);
    if error == ENOMEM {
        ENOMEM
    } else if error == EINTR || error == ERESTARTSYS {
        EINTR
    } else {
        // Memory that is there but cannot be pinned has errors of its own.
        EFAULT
    }
}
