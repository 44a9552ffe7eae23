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
//! A page without a reference count of its own is refused: a slab page, or a page of a multi-page
//! allocation without `__GFP_COMP`. A kvec can describe such memory. Device memory is refused
//! (`EOPNOTSUPP`), because the CPU may not be able to copy from it like from RAM. All pages are in
//! the direct map, because x86-64 has no high memory. So no access needs `kmap_local_page()`.
//!
//! The module does not charge the bytes again: they were charged when the consumer allocated them.
//! It charges the segment lists, see [`backing`](super::backing).

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

/// A segment list under construction.
struct Builder {
    memory: Backing,
    elements: usize,
    resched: Resched,
}

impl Builder {
    fn new(access: Access, owner: MemoryOwner) -> Self {
        task::might_sleep();
        Self {
            memory: Backing::new(access, owner),
            elements: 0,
            resched: Resched::new(),
        }
    }

    /// Prepares for another element of `len` bytes. Fails with `E2BIG` for too many elements,
    /// `EINVAL` for too many bytes, `ENOMEM`.
    fn element(&mut self, len: usize) -> Result {
        self.elements += 1;
        if self.elements > SEGMENTS_MAX {
            return Err(E2BIG);
        }
        if len > PINNED_MAX - self.memory.len().min(PINNED_MAX) {
            return Err(EINVAL);
        }
        self.resched.step();
        self.memory.segments_mut().reserve(1)
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
            self.resched.step();
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
    /// `page` is null or the page of the element, which has `len` bytes from `offset` on.
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
            self.resched.step();
            let in_page = (PAGE_SIZE - (addr.addr() & !PAGE_MASK)).min(left);
            // SAFETY: The element has a page at this address, by the requirement.
            to_result(unsafe { shim::kfabric_shim_page_get(addr.cast()) })?;
            // INVARIANT: The page has a reference for these bytes.
            let join = left < len;
            self.memory.segments_mut().push(addr, in_page, join);
            addr = addr.wrapping_add(in_page);
            left -= in_page;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<MemRef> {
        self.memory.segments_mut().shrink();
        Ok(MemRef::new(Arc::new(self.memory, GFP_KERNEL_ACCOUNT)?))
    }
}

/// Memory at kernel virtual addresses, in the order of `list`. Sleeps. Fails with `EFAULT` if an
/// address is not mapped memory; `EINVAL` for the stack of the current task, or more than
/// [`PINNED_MAX`] bytes; `E2BIG` for more than [`SEGMENTS_MAX`] elements; `ENOMEM`.
///
/// # Safety
///
/// Until the last reference to the result is dropped, the memory stays mapped at these addresses
/// and may be read, and with [`Access::Write`] written.
pub(crate) unsafe fn kvec(list: &[bindings::kvec], access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, MemoryOwner::Kernel);
    for element in list {
        builder.range(element.iov_base.expose_provenance(), element.iov_len)?;
    }
    builder.finish()
}

/// The bytes of pages, in the order of `list`. Sleeps. Fails with `EINVAL` for no page, a page
/// without a reference count, or more than [`PINNED_MAX`] bytes; `EOPNOTSUPP` for device memory;
/// `E2BIG` for more than [`SEGMENTS_MAX`] elements; `ENOMEM`.
///
/// # Safety
///
/// The caller keeps the pages valid during the call. The bytes may be read, and with
/// [`Access::Write`] written, until the last reference to the result is dropped.
pub(crate) unsafe fn bio_vec(list: &[bindings::bio_vec], access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, MemoryOwner::Pages);
    for element in list {
        let (offset, len) = (element.bv_offset as usize, element.bv_len as usize);
        // SAFETY: An element of the list, by the requirement.
        unsafe { builder.pages(element.bv_page, offset, len)? };
    }
    builder.finish()
}

/// The bytes of pages, in the order of `table`, as the CPU sees them (`orig_nents`). Sleeps. Fails
/// as [`bio_vec`] does.
///
/// # Safety
///
/// `table` is a valid table; otherwise as for [`bio_vec`].
pub(crate) unsafe fn sg_table(table: &bindings::sg_table, access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, MemoryOwner::Pages);
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

/// Puts the reference to each page of `segments`, in bounded steps. Process context; may sleep.
///
/// # Safety
///
/// Each page has a reference for its segment, and the segments are not used again.
pub(super) unsafe fn put_pages(segments: &[Segment]) {
    let mut resched = Resched::new();
    for segment in segments {
        let base = segment.addr.map_addr(|addr| addr & PAGE_MASK);
        for page in 0..pages_of(segment.addr.addr(), segment.len) {
            // SAFETY: By the requirement.
            unsafe { shim::kfabric_shim_page_put(base.wrapping_add(page << PAGE_SHIFT).cast()) };
            resched.step();
        }
    }
}
