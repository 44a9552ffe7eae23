// SPDX-License-Identifier: GPL-2.0

//! Memory that a kernel consumer passes: kvec, bio_vec, scatterlist.
//!
//! A **kvec** contains kernel virtual addresses. The module uses them as they are. They may lie in
//! the direct map, in vmalloc or vmap space (including the stacks of other tasks), or in the data
//! of the kernel or of a module. User addresses, unmapped addresses and device memory are refused.
//! So is the stack of the current task, because an operation outlives the call that posts it.
//! Memory of the slab allocator has no reference count, so the consumer must keep all memory of a
//! kvec valid.
//!
//! A **bio_vec** and a **scatterlist** contain pages; each element is a run of pages. The module
//! takes a reference to each page, so the pages are not freed, although their owner may reuse them.
//! Pages of `kmalloc()`, and those after the first of a multi-page allocation without `__GFP_COMP`,
//! have no reference count. A list with such a page is treated as a kvec: the module takes no
//! reference to any of its pages, and the consumer must keep all of them. Device memory is refused
//! (`EOPNOTSUPP`), because the CPU may not be able to copy from it like from RAM. All pages are in
//! the direct map, because x86-64 has no high memory. So no access needs `kmap_local_page()`.
//!
//! The module does not charge the bytes again: they were charged when the consumer allocated them.
//! It charges the segment lists, see [`backing`](super::backing).
//!
//! # Context
//!
//! The functions take `may_sleep`. Without it they can be called in any context, but for NMIs: they
//! allocate with `GFP_ATOMIC`, and the result can be dropped in the same contexts. It has at most
//! [`ATOMIC_ELEMENTS`] elements, so that its list is memory of `kmalloc()`, which can be freed in
//! any context, and elements and pages are at most [`ATOMIC_PAGES`] in total, which limits the time
//! that the call takes. With `may_sleep` they sleep, and so may the drop of the result.
//!
//! The stack of an interrupt is not recognised as the stack of the caller.

use super::{
    backing::{
        Backing,
        MemoryOwner, //
    },
    memref::MemRef,
    pinned::{
        Access,
        PINNED_MAX, //
    },
    segments::{
        self,
        pages_of,
        Segment,
        SEGMENTS_MAX, //
    }, //
};
use crate::shim::{
    bindings as shim,
    sched::Resched, //
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

/// The largest number of elements of a list that is passed where the caller may not sleep.
pub(crate) const ATOMIC_ELEMENTS: usize = 256;

/// The largest number of elements of such a list and pages that they touch, in total.
pub(crate) const ATOMIC_PAGES: usize = 4096;

/// The largest number of elements of a list.
pub(crate) const fn most_elements(may_sleep: bool) -> usize {
    match may_sleep {
        true => SEGMENTS_MAX,
        false => ATOMIC_ELEMENTS,
    }
}

/// The steps of a call, each of which handles a page or an element.
enum Steps {
    /// The caller may sleep.
    Sleeping { elements: usize, resched: Resched },
    /// The caller may not sleep. So many steps are left.
    Atomic { left: usize },
}

impl Steps {
    /// Counts an element. Fails with `E2BIG` for too many.
    fn element(&mut self) -> Result {
        if let Self::Sleeping { elements, .. } = self {
            *elements += 1;
            if *elements > SEGMENTS_MAX {
                return Err(E2BIG);
            }
        }
        self.page()
    }

    /// Counts a page. Fails with `E2BIG` for too many.
    fn page(&mut self) -> Result {
        match self {
            Self::Sleeping { resched, .. } => resched.step(),
            Self::Atomic { left } => *left = left.checked_sub(1).ok_or(E2BIG)?,
        }
        Ok(())
    }
}

/// A segment list under construction.
struct Builder {
    memory: Backing,
    steps: Steps,
}

impl Builder {
    /// For a list of `elements`. Fails with `E2BIG` for too many where the caller may not sleep;
    /// `ENOMEM`.
    #[inline(always)]
    fn new(access: Access, owner: MemoryOwner, elements: usize, may_sleep: bool) -> Result<Self> {
        if may_sleep {
            task::might_sleep();
            let (memory, resched) = (Backing::new(access, owner), Resched::new());
            let elements = 0;
            let steps = Steps::Sleeping { elements, resched };
            return Ok(Self { memory, steps });
        }
        if elements > ATOMIC_ELEMENTS {
            return Err(E2BIG);
        }
        let mut memory = Backing::new(access, owner);
        memory.segments_mut().reserve_atomic(elements)?;
        let left = ATOMIC_PAGES;
        let steps = Steps::Atomic { left };
        Ok(Self { memory, steps })
    }

    /// Prepares for another element of `len` bytes. Fails with `E2BIG` for too many elements,
    /// `EINVAL` for too many bytes, `ENOMEM`.
    fn element(&mut self, len: usize) -> Result {
        self.steps.element()?;
        if len > PINNED_MAX - self.memory.len().min(PINNED_MAX) {
            return Err(EINVAL);
        }
        match self.steps {
            Steps::Sleeping { .. } => self.memory.segments_mut().reserve(1),
            // There is room for all elements.
            Steps::Atomic { .. } => Ok(()),
        }
    }

    /// Adds `len` bytes at the kernel virtual address `addr`.
    fn range(&mut self, addr: usize, len: usize) -> Result {
        self.element(len)?;
        if len == 0 {
            return Ok(());
        }
        let last = addr.checked_add(len - 1).ok_or(EFAULT)?;
        // SAFETY: Only compares addresses with those of the current task's stack.
        if unsafe { shim::kfabric_shim_on_stack(addr, last) } {
            return Err(EINVAL);
        }
        for page in 0..pages_of(addr, len) {
            self.steps.page()?;
            // SAFETY: The function takes any address.
            if !unsafe { shim::kfabric_shim_is_memory((addr & PAGE_MASK) + (page << PAGE_SHIFT)) } {
                return Err(EFAULT);
            }
        }
        let addr = core::ptr::with_exposed_provenance_mut(addr);
        // INVARIANT: The consumer keeps the bytes valid, as the requirement of `kvec` says.
        self.memory.segments_mut().push(addr, len, false);
        Ok(())
    }

    /// Adds `len` bytes from byte `offset` of `page` and the pages after it.
    ///
    /// # Safety
    ///
    /// `page` is null or the page of the element, which has `len` bytes from `offset` on. The
    /// consumer keeps them valid until the memory is dropped.
    unsafe fn pages(&mut self, page: *mut bindings::page, offset: usize, len: usize) -> Result {
        self.element(len)?;
        if len == 0 {
            return Ok(());
        }
        if page.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: `page` is a page, by the requirement. All pages are in the direct map.
        let base: *mut u8 = unsafe { shim::kfabric_shim_page_address(page) }.cast();
        let mut addr = base.wrapping_add(offset);
        let mut left = len;
        while left > 0 {
            self.steps.page()?;
            let in_page = (PAGE_SIZE - (addr.addr() & !PAGE_MASK)).min(left);
            // SAFETY: The function takes any address of the direct map.
            to_result(unsafe { shim::kfabric_shim_page_check(addr.cast()) })?;
            if self.memory.has_page_references()
                // SAFETY: The element has a page at this address, by the requirement.
                && !unsafe { shim::kfabric_shim_page_get(addr.cast()) }
            {
                // SAFETY: The consumer keeps all pages valid, by the requirement.
                unsafe { self.memory.put_page_references() };
            }
            // INVARIANT: The page has a reference for these bytes, or the consumer keeps it valid.
            let join = left < len;
            self.memory.segments_mut().push(addr, in_page, join);
            addr = addr.wrapping_add(in_page);
            left -= in_page;
        }
        Ok(())
    }

    // Inline, so that the backing is copied once.
    #[inline(always)]
    fn finish(mut self) -> Result<MemRef> {
        let flags = match self.steps {
            Steps::Sleeping { .. } => {
                self.memory.segments_mut().shrink();
                GFP_KERNEL_ACCOUNT
            }
            Steps::Atomic { .. } => segments::atomic_flags(),
        };
        Ok(MemRef::new(Arc::new(self.memory, flags)?))
    }
}

/// Memory at kernel virtual addresses, in the order of `list`. Fails with `EFAULT` if an address is
/// not mapped memory; `EINVAL` for the stack of the current task, or more than [`PINNED_MAX`]
/// bytes; `E2BIG` for more than [`SEGMENTS_MAX`] elements, or without `may_sleep` more than
/// [`ATOMIC_ELEMENTS`] or [`ATOMIC_PAGES`]; `ENOMEM`.
///
/// # Safety
///
/// Until the last reference to the result is dropped, the memory stays mapped at these addresses
/// and may be read, and with [`Access::Write`] written.
pub(crate) unsafe fn kvec(
    list: &[bindings::kvec],
    access: Access,
    may_sleep: bool,
) -> Result<MemRef> {
    let owner = MemoryOwner::Kernel { may_sleep };
    let mut builder = Builder::new(access, owner, list.len(), may_sleep)?;
    for element in list {
        builder.range(element.iov_base.expose_provenance(), element.iov_len)?;
    }
    builder.finish()
}

/// The bytes of pages, in the order of `list`. Fails with `EINVAL` for no page or more than
/// [`PINNED_MAX`] bytes; `EOPNOTSUPP` for device memory; `E2BIG` and `ENOMEM` as [`kvec`].
///
/// # Safety
///
/// Until the last reference to the result is dropped, the consumer keeps the pages and the bytes
/// may be read, and with [`Access::Write`] written.
pub(crate) unsafe fn bio_vec(
    list: &[bindings::bio_vec],
    access: Access,
    may_sleep: bool,
) -> Result<MemRef> {
    let owner = MemoryOwner::Pages { may_sleep };
    let mut builder = Builder::new(access, owner, list.len(), may_sleep)?;
    for element in list {
        let (offset, len) = (element.bv_offset as usize, element.bv_len as usize);
        // SAFETY: An element of the list, by the requirement.
        unsafe { builder.pages(element.bv_page, offset, len)? };
    }
    builder.finish()
}

/// The bytes of pages, in the order of `table`, as the CPU sees them (`orig_nents`). Fails as
/// [`bio_vec`] does.
///
/// # Safety
///
/// `table` is a valid table; otherwise as for [`bio_vec`].
pub(crate) unsafe fn sg_table(
    table: &bindings::sg_table,
    access: Access,
    may_sleep: bool,
) -> Result<MemRef> {
    let owner = MemoryOwner::Pages { may_sleep };
    let elements = table.orig_nents as usize;
    let mut builder = Builder::new(access, owner, elements, may_sleep)?;
    let mut next = table.sgl;
    for _ in 0..table.orig_nents {
        if next.is_null() {
            break;
        }
        let (mut page, mut offset, mut len) = (core::ptr::null_mut(), 0, 0);
        // SAFETY: An entry of the table, which is valid.
        next = unsafe { shim::kfabric_shim_sg(next, &mut page, &mut offset, &mut len) };
        // SAFETY: Page, offset and length of an entry, by the requirement.
        unsafe { builder.pages(page, offset, len)? };
    }
    builder.finish()
}

/// All memory of the kernel: the byte at address `n` is byte `n`, up to the last but one. It can be
/// dropped in any context. Sleeps. Fails with `ENOMEM`.
///
/// # Safety
///
/// A caller that uses a part of the result keeps its bytes mapped meanwhile, and may read and write
/// them.
pub(crate) unsafe fn kernel_space() -> Result<MemRef> {
    // SAFETY: By the requirement above.
    Ok(MemRef::new(unsafe { Backing::kernel_space()? }))
}

/// Puts the reference to each page of `segments`. With `may_sleep` it needs process context and
/// calls `cond_resched()`; otherwise any context but NMIs.
///
/// # Safety
///
/// Each page has a reference for its segment, which nothing needs any more.
pub(super) unsafe fn put_pages(segments: &[Segment], may_sleep: bool) {
    let mut resched = Resched::new();
    for segment in segments {
        let base = segment.addr.map_addr(|addr| addr & PAGE_MASK);
        for page in 0..pages_of(segment.addr.addr(), segment.len) {
            // SAFETY: By the requirement.
            unsafe { shim::kfabric_shim_page_put(base.wrapping_add(page << PAGE_SHIFT).cast()) };
            if may_sleep {
                resched.step();
            }
        }
    }
}
