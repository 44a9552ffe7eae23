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
//! segment and a copy of it is one copy. Two segments, which is what a small
//! buffer has at most, need no memory of their own.
//!
//! Pinning goes in steps of a few pages, so that a process that is being killed
//! does not first pin a gigabyte.
//!
//! Segments are made from the ranges separately, even where they would join: the
//! pages of a segment are then each pinned exactly once by it, and are unpinned
//! from it alone.

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
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    task, //
};

/// Bytes that can be pinned together: those of the largest message.
pub(crate) const PINNED_MAX: usize = shim::KFABRIC_MAX_MSG_SIZE as usize;

/// Pages that are pinned in one step.
const STEP: usize = 64;

/// Pages that are unpinned in one step.
const UNPIN_STEP: usize = 512;

/// Segments that need no memory of their own.
const FEW: usize = 2;

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

/// Bytes that follow each other in the direct map.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// The first byte.
    pub(super) addr: *mut u8,
    /// Bytes of this segment and all before it.
    pub(super) end: usize,
    /// Bytes of this segment.
    pub(super) len: usize,
}

impl Segment {
    /// No bytes.
    const NONE: Self = Self {
        addr: core::ptr::null_mut(),
        end: 0,
        len: 0,
    };
}

/// Segments in order; a few in place, more in memory of their own.
enum Segments {
    Few { list: [Segment; FEW], count: usize },
    Many(KVVec<Segment>),
}

impl Segments {
    const fn new() -> Self {
        Self::Few {
            list: [Segment::NONE; FEW],
            count: 0,
        }
    }

    fn as_slice(&self) -> &[Segment] {
        match self {
            Self::Few { list, count } => list.get(..*count).unwrap_or_default(),
            Self::Many(list) => list,
        }
    }

    fn last_mut(&mut self) -> Option<&mut Segment> {
        match self {
            Self::Few { list, count } => list.get_mut(..*count)?.last_mut(),
            Self::Many(list) => list.last_mut(),
        }
    }

    /// Makes room for `more` segments. Fails with `ENOMEM`.
    fn reserve(&mut self, more: usize) -> Result {
        match self {
            Self::Few { count, .. } if *count + more <= FEW => {}
            Self::Few { list, count } => {
                let mut many = KVVec::with_capacity(*count + more, GFP_KERNEL_ACCOUNT)?;
                many.extend_from_slice(list.get(..*count).unwrap_or_default(), GFP_KERNEL_ACCOUNT)?;
                *self = Self::Many(many);
            }
            Self::Many(list) => list.reserve(more, GFP_KERNEL_ACCOUNT)?,
        }
        Ok(())
    }

    /// Adds a segment for which there is room.
    fn push(&mut self, segment: Segment) {
        match self {
            Self::Few { list, count } => {
                if let Some(slot) = list.get_mut(*count) {
                    *slot = segment;
                    *count += 1;
                }
            }
            // Reserved, so this cannot fail.
            Self::Many(list) => drop(list.push_within_capacity(segment)),
        }
    }

    /// Gives memory back that turned out not to be needed.
    fn shrink(&mut self) {
        if let Self::Many(list) = self {
            // Failing to leaves things as they are.
            let _ = list.shrink_to(0, GFP_KERNEL_ACCOUNT);
        }
    }
}

/// Pinned pages under ranges of a program's memory.
///
/// Shared in an [`Arc`]. **Dropping the last reference may sleep**: it is never
/// dropped under a spinlock, nor outside process context.
///
/// # Invariants
///
/// Each of `segments` lies in the direct map, over pages that are pinned once
/// for it; with write access if `access` is [`Access::Write`]. The segments hold
/// `len` bytes.
pub(crate) struct Pinned {
    segments: Segments,
    len: usize,
    access: Access,
    /// Whether anything was written, so that the pages are dirty.
    written: Atomic<bool>,
    _charge: Charge,
}

// SAFETY: Pins may be undone by any task, and the memory is accessed by copying only.
unsafe impl Send for Pinned {}

// SAFETY: As above; nothing but `written` changes.
unsafe impl Sync for Pinned {}

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
    pub(crate) fn new(ranges: &[UserRange], access: Access) -> Result<Arc<Self>> {
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
        // INVARIANT: No segments yet.
        let mut pinned = Self {
            segments: Segments::new(),
            len: 0,
            access,
            written: Atomic::new(false),
            _charge: Charge::current(pages)?,
        };
        for range in ranges {
            pinned.pin(range)?;
        }
        pinned.segments.shrink();
        Ok(Arc::new(pinned, GFP_KERNEL_ACCOUNT)?)
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    #[inline]
    pub(crate) fn writable(&self) -> bool {
        self.access == Access::Write
    }

    /// The segments, in order.
    #[inline]
    pub(super) fn segments(&self) -> &[Segment] {
        self.segments.as_slice()
    }

    /// Notes that the memory is about to be written.
    #[inline]
    pub(super) fn mark_written(&self) {
        // Most often it is noted already, and a store would only move the cache line about.
        if !self.written.load(Relaxed) {
            self.written.store(true, Relaxed);
        }
    }

    /// Pins one more range.
    fn pin(&mut self, range: &UserRange) -> Result {
        let (mut addr, mut left) = range.check()?;
        let flags = match self.access {
            Access::Read => bindings::FOLL_LONGTERM,
            Access::Write => bindings::FOLL_LONGTERM | bindings::FOLL_WRITE,
        };
        let mut join = false;
        while left > 0 {
            sched::cond_resched();
            if sched::fatal_signal_pending() {
                return Err(EINTR);
            }
            let want = pages_of(addr, left).min(STEP);
            // Before the pages are pinned: afterwards each must find its place.
            self.segments.reserve(want)?;
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
                self.push(base.wrapping_add(offset), len, join);
                join = true;
                addr += len;
                left -= len;
            }
        }
        Ok(())
    }

    /// Adds `len` bytes at `addr`; `join`: to the last segment, if they follow it.
    fn push(&mut self, addr: *mut u8, len: usize, join: bool) {
        self.len += len;
        if join {
            if let Some(last) = self.segments.last_mut() {
                if last.addr.wrapping_add(last.len) == addr {
                    last.len += len;
                    last.end += len;
                    return;
                }
            }
        }
        self.segments.push(Segment {
            addr,
            end: self.len,
            len,
        });
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        task::might_sleep();
        let dirty = self.written.load(Relaxed);
        for segment in self.segments() {
            let mut addr = segment.addr.map_addr(|addr| addr & PAGE_MASK);
            let mut left = pages_of(segment.addr.addr(), segment.len);
            while left > 0 {
                let pages = left.min(UNPIN_STEP);
                // SAFETY: By the type invariants these pages follow each other in the direct map,
                // and one pin of each is ours, which is not used again.
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

/// Pages under `len` bytes at `addr`, which do not wrap.
fn pages_of(addr: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    ((addr & !PAGE_MASK) + len).div_ceil(PAGE_SIZE)
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
