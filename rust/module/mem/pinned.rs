// SPDX-License-Identifier: GPL-2.0

//! Pinned pages of a program.
//!
//! [`Pinned`] holds the pages of one or several ranges of the caller's memory, concatenated: byte 0
//! is the first byte of the first range. The pages stay in place (`FOLL_LONGTERM`) even if the
//! program changes its mappings, and are charged to `RLIMIT_MEMLOCK` until the last reference is
//! dropped. Memory that the program may only read can be pinned for reading.
//!
//! Only the addresses of the pages in the direct map are kept, as [`Segment`]s. Pages that are
//! adjacent there form one segment, so a huge page is one segment and is copied at once.
//!
//! Pages are pinned in small steps, so that a process that is being killed does not pin a gigabyte
//! first.
//!
//! Pages that will be written are marked dirty when they are pinned, in a task of the process whose
//! pages they are. That needs the lock of the page. They are often unpinned in a task of a peer,
//! which must not wait for a lock that the process can hold. The kernel cleans a pinned page only
//! for MADV_FREE, see `kfabric_shim_unpin`.
//!
//! Segments of different ranges are not joined, even if they are adjacent. So each page of a
//! segment is pinned exactly once for that segment, and unpinned from that segment alone.

use super::{
    backing::{
        Backing,
        MemoryOwner, //
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
    error::to_result,
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc,
    task, //
};

/// The largest number of bytes pinned for a message of kfabric: the length of the largest one.
pub(crate) const PINNED_MAX: usize = shim::KFABRIC_MAX_MSG_SIZE as usize;

/// Pages that are pinned in one step.
const STEP: usize = 64;

/// Pages that are unpinned in one step.
const UNPIN_STEP: usize = 512;

/// A range of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserRange {
    /// The first address.
    pub(crate) addr: u64,
    /// Bytes; 0 is allowed.
    pub(crate) len: u64,
}

/// How an operation accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// It is written, and may be read too. The caller must have the right to write.
    Write,
}

/// Pinned pages of a program's memory, to make a [`MemRef`](super::MemRef) from.
///
/// **Dropping the last reference may sleep**: do it in process context, with no spin lock held.
pub(crate) struct Pinned(Arc<Backing>);

impl Pinned {
    /// Pins `ranges` of the current process, concatenated, for a message. Fails as
    /// [`up_to`](Self::up_to) with a limit of [`PINNED_MAX`]. Process context, of the process whose
    /// memory it is; may sleep.
    pub(crate) fn new(ranges: &[UserRange], access: Access) -> Result<Self> {
        Self::up_to(PINNED_MAX, ranges, access)
    }

    /// Pins `ranges` of the current process, concatenated, which have at most `most` bytes. Process
    /// context, of the process whose memory it is; may sleep. Fails with `EINVAL` if a range wraps,
    /// or all together are longer than `most`; `ENOMEM` if there is no memory, or `RLIMIT_MEMLOCK`
    /// would be exceeded; `EFAULT` if an address is not mapped, does not allow the access, or
    /// cannot be pinned (device memory); `EINTR` if the process is being killed.
    pub(crate) fn up_to(most: usize, ranges: &[UserRange], access: Access) -> Result<Self> {
        task::might_sleep();
        let mut pages = 0usize;
        let mut bytes = 0usize;
        for range in ranges {
            let (addr, len) = range.check()?;
            bytes = bytes.checked_add(len).ok_or(EINVAL)?;
            if bytes > most {
                return Err(EINVAL);
            }
            pages += pages_of(addr, len);
        }
        let charge = Charge::current(pages)?;
        let mut memory = Backing::new(access, MemoryOwner::Pinned { _charge: charge });
        for range in ranges {
            pin(&mut memory, range)?;
        }
        memory.segments_mut().shrink();
        Ok(Self(Arc::new(memory, GFP_KERNEL_ACCOUNT)?))
    }

    /// Length in bytes.
    #[cfg(kfi_kunit)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it may be written.
    #[cfg(kfi_kunit)]
    pub(crate) fn writable(&self) -> bool {
        self.0.access() == Access::Write
    }

    /// The pinned memory.
    #[inline]
    pub(super) fn into_backing(self) -> Arc<Backing> {
        self.0
    }
}

/// Pins one more range.
fn pin(memory: &mut Backing, range: &UserRange) -> Result {
    let (mut addr, mut left) = range.check()?;
    let memory_is_written = memory.access() == Access::Write;
    let mut flags = bindings::FOLL_LONGTERM;
    if memory_is_written {
        flags |= bindings::FOLL_WRITE;
    }
    let segments = memory.segments_mut();
    let mut join = false;
    while left > 0 {
        sched::cond_resched();
        if sched::fatal_signal_pending() {
            return Err(EINTR);
        }
        let want = pages_of(addr, left).min(STEP);
        // Reserve before pinning: afterwards each page must find room for its segment.
        segments.reserve(want)?;
        let mut pages = [core::ptr::null_mut(); STEP];
        // SAFETY: `pages` has room for `want` pointers. Any address is allowed.
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
        for page in pages.iter().copied().take(got) {
            let offset = addr & !PAGE_MASK;
            let len = (PAGE_SIZE - offset).min(left);
            // SAFETY: The page is pinned, so it is valid. It is in the direct map (shim.c does not
            // compile where some pages are not).
            let base: *mut u8 = unsafe { shim::kfabric_shim_page_address(page) }.cast();
            // INVARIANT: The page is pinned once for these bytes of it.
            segments.push(base.wrapping_add(offset), len, join);
            join = true;
            addr += len;
            left -= len;
        }
        if memory_is_written {
            for page in pages.into_iter().take(got) {
                // SAFETY: The page is pinned for writing; process context.
                to_result(unsafe { shim::kfabric_shim_mark_dirty(page) })?;
            }
        }
    }
    Ok(())
}

/// Unpins the pages of `segments`, in bounded steps; `written` says whether they were pinned for
/// writing. Takes no lock of a page. Process context; may sleep.
///
/// # Safety
///
/// Each page is pinned once for its segment, and the segments are not used again.
pub(super) unsafe fn unpin(segments: &[Segment], written: bool) {
    for segment in segments {
        let mut addr = segment.addr.map_addr(|addr| addr & PAGE_MASK);
        let mut left = pages_of(segment.addr.addr(), segment.len);
        while left > 0 {
            let pages = left.min(UNPIN_STEP);
            // SAFETY: By the requirement these pages are adjacent in the direct map, and each has a
            // pin for this segment.
            unsafe {
                let page = shim::kfabric_shim_virt_to_page(addr.cast());
                shim::kfabric_shim_unpin(page, pages, written);
            }
            addr = addr.wrapping_add(pages << PAGE_SHIFT);
            left -= pages;
            sched::cond_resched();
        }
    }
}

impl UserRange {
    /// Address and length, if the range does not wrap; otherwise `EINVAL`.
    fn check(&self) -> Result<(usize, usize)> {
        let (addr, len) = (usize::try_from(self.addr)?, usize::try_from(self.len)?);
        addr.checked_add(len)
            .and_then(kernel::page::page_align)
            .ok_or(EINVAL)?;
        Ok((addr, len))
    }
}

/// Translates an error of `pin_user_pages_fast()`.
fn pin_error(ret: c_int) -> Error {
    let error = Error::from_errno(ret);
    if error == ENOMEM {
        ENOMEM
    } else if error == EINTR || error == ERESTARTSYS {
        EINTR
    } else {
        // Memory that exists but cannot be pinned gives other error numbers.
        EFAULT
    }
}
