// SPDX-License-Identifier: GPL-2.0

//! Page lists: memory of the kernel that a list of pages names, for fast registration.
//!
//! A [`PageList`] has room for a number of pages, which is allocated when it is made. So a caller
//! that may not sleep can fill it ([`PageList::set`]), again and again. While it is a [`MemRef`],
//! it does not change. When that and all its clones but one have gone, the last one becomes a
//! `PageList` again.
//!
//! [`detached`] makes a reference that does not keep the list, for users that may have it for
//! longer.

use core::pin::Pin;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    }, //
};

use super::{
    backing::{
        Backing,
        MemoryOwner, //
    },
    memref::MemRef,
    pinned::Access,
    segments::Segment, //
};
use crate::shim::memory::kmalloc_array_size;

/// A list of pages that nothing else refers to. It is dropped in process context.
pub(crate) struct PageList {
    backing: Pin<UniqueArc<Backing>>,
}

impl PageList {
    /// A list without pages that has room for `most`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(most: usize) -> Result<Self> {
        let mut backing = Backing::new(Access::Write, MemoryOwner::Kernel { may_sleep: false });
        backing.segments_mut().reserve(most)?;
        Ok(Self {
            backing: UniqueArc::new(backing, GFP_KERNEL_ACCOUNT)?.into(),
        })
    }

    /// Bytes of kernel memory of a list with room for `most` pages.
    pub(crate) fn bytes(most: usize) -> usize {
        kmalloc_array_size::<Segment>(most).saturating_add(size_of::<Backing>())
    }

    /// Replaces the memory by `len` bytes from byte `offset` of the first page on. Each page has
    /// `page_size` bytes from its address on. There are no more than the list has room for. Any
    /// context.
    ///
    /// Fails with `EINVAL` if the pages do not have these bytes, or there are none; then the list
    /// has no memory.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, and may be read and written, while there is a reference to them.
    pub(crate) unsafe fn set(
        &mut self,
        pages: &[u64],
        page_size: u32,
        offset: u32,
        len: u64,
    ) -> Result {
        // SAFETY: Nothing in a `Backing` relies on being pinned but its charge, which stays where
        // it is.
        let backing = unsafe { self.backing.as_mut().get_unchecked_mut() };
        let segments = backing.segments_mut();
        segments.clear();
        let size = u64::from(page_size);
        let end = u64::from(offset).checked_add(len).ok_or(EINVAL)?;
        let there = size.saturating_mul(pages.len() as u64);
        if len == 0 || u64::from(offset) >= size || end > there {
            return Err(EINVAL);
        }
        let (mut skip, mut left) = (u64::from(offset), len);
        for page in pages {
            let here = left.min(size.saturating_sub(skip));
            let addr = page.wrapping_add(skip) as usize;
            // INVARIANT: Valid by the requirement of this function.
            segments.push(
                core::ptr::with_exposed_provenance_mut(addr),
                here as usize,
                true,
            );
            (skip, left) = (0, left.saturating_sub(here));
        }
        Ok(())
    }

    /// A reference to its memory. Any context.
    pub(crate) fn into_memory(self) -> MemRef {
        MemRef::new(Arc::from(self.backing))
    }

    /// The list of `memory`, which [`into_memory`](Self::into_memory) has made and of which no
    /// clone or part exists any more. `None` if one does. Process context.
    pub(crate) fn of_memory(mut memory: MemRef) -> Option<Self> {
        let backing = memory.take_backing()?;
        Some(Self {
            backing: Arc::into_unique_or_drop(backing)?,
        })
    }
}

/// The same bytes as those of `memory`, which is that of a [`PageList`] or a part of it, with a
/// list of their own. Fails with `ENOMEM`. Process context; sleeps, and so may the drop of the
/// result.
///
/// # Safety
///
/// The bytes stay mapped, and may be read and written, while there is a reference to them.
pub(crate) unsafe fn detached(memory: &MemRef) -> Result<MemRef> {
    let mut count = 0;
    let mut cursor = memory.cursor(0);
    while cursor.left() > 0 {
        count += 1;
        cursor.advance(cursor.here());
    }
    let mut backing = Backing::new(Access::Write, MemoryOwner::Kernel { may_sleep: true });
    let segments = backing.segments_mut();
    segments.reserve(count)?;
    let mut cursor = memory.cursor(0);
    while cursor.left() > 0 {
        // INVARIANT: Valid by the requirement of this function.
        segments.push(cursor.addr(), cursor.here(), false);
        cursor.advance(cursor.here());
    }
    Ok(MemRef::new(Arc::new(backing, GFP_KERNEL_ACCOUNT)?))
}
