// SPDX-License-Identifier: GPL-2.0

//! Memory that a kernel consumer names: kvec, bio_vec, scatterlist.
//!
//! A **kvec** names kernel virtual addresses. They are used as they are: in the direct map, vmalloc and
//! vmap (the stacks of tasks are there as well), or a module's or the kernel's own data. What is not
//! mapped memory is refused: addresses of user space, of nothing, of devices. The stack of the
//! current task is refused as well, as an operation outlives the call that posts it. Memory of the slab
//! allocator has no references that could be counted, so the consumer keeps all of it.
//!
//! A **bio_vec** and a **scatterlist** name pages, each element a run of them. A reference to each page is
//! taken, so the pages stay, though not what they are used for. A page without a reference count of its
//! own is refused: one of the slab allocator, or of an allocation of several pages without
//! `__GFP_COMP`; such memory is named by a kvec. So is memory of a device (`EOPNOTSUPP`), which a
//! processor may not copy from like memory. All pages are in the direct map: shim.c refuses to be built
//! where high memory is, so nothing has to be mapped (`kmap_local_page()`) at each access.
//!
//! The bytes are charged to nobody anew: the consumer had them charged when it allocated them. The
//! segment lists are, see [`backing`](super::backing).

use super::{
    backing::{
        Backing,
        Keeper, //
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

/// Pages that are looked at, or put, before others may run.
const PAGES_STEP: usize = 256;

/// A list that is being made.
struct Builder {
    memory: Backing,
    elements: usize,
    /// Pages since others could run.
    pages: usize,
}

impl Builder {
    fn new(access: Access, keeper: Keeper) -> Self {
        task::might_sleep();
        Self {
            memory: Backing::new(access, keeper),
            elements: 0,
            pages: 0,
        }
    }

    /// Another element, of `len` bytes. `E2BIG` too many elements, `EINVAL` too many bytes.
    fn element(&mut self, len: usize) -> Result {
        self.elements += 1;
        if self.elements > SEGMENTS_MAX {
            return Err(E2BIG);
        }
        if len > PINNED_MAX - self.memory.len().min(PINNED_MAX) {
            return Err(EINVAL);
        }
        self.step();
        self.memory.segments_mut().reserve(1)
    }

    fn step(&mut self) {
        self.pages += 1;
        if self.pages % PAGES_STEP == 0 {
            sched::cond_resched();
        }
    }

    /// Adds `len` bytes at `addr`, kernel virtual addresses.
    fn range(&mut self, addr: usize, len: usize) -> Result {
        self.element(len)?;
        if len == 0 {
            return Ok(());
        }
        let last = addr.checked_add(len - 1).ok_or(EFAULT)?;
        // SAFETY: Compares addresses with those of the current task's stack.
        if unsafe { shim::kfabric_shim_on_stack(addr, last) } {
            return Err(EINVAL);
        }
        for page in 0..pages_of(addr, len) {
            self.step();
            // SAFETY: Any address may be given.
            if !unsafe { shim::kfabric_shim_is_memory((addr & PAGE_MASK) + (page << PAGE_SHIFT)) } {
                return Err(EFAULT);
            }
        }
        let addr = core::ptr::with_exposed_provenance_mut(addr);
        // INVARIANT: The consumer keeps it, as it promised to `kvec`.
        self.memory.segments_mut().push(addr, len, false);
        Ok(())
    }

    /// Adds `len` bytes at byte `offset` of pages that follow `page`.
    ///
    /// # Safety
    ///
    /// `page` is null or that of the element, which has `len` bytes from `offset` on.
    unsafe fn pages(&mut self, page: *mut bindings::page, offset: usize, len: usize) -> Result {
        self.element(len)?;
        if len == 0 {
            return Ok(());
        }
        if page.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: A page, by the requirement; all pages are in the direct map.
        let base: *mut u8 = unsafe { shim::kfabric_shim_page_address(page) }.cast();
        let mut addr = base.wrapping_add(offset);
        let mut left = len;
        while left > 0 {
            self.step();
            let in_page = (PAGE_SIZE - (addr.addr() & !PAGE_MASK)).min(left);
            // SAFETY: A page of the element, which has one there by the requirement.
            to_result(unsafe { shim::kfabric_shim_page_get(addr.cast()) })?;
            // INVARIANT: It has a reference for these bytes of it.
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

/// Memory at kernel virtual addresses, in the order of `list`.
///
/// Process context, may sleep.
///
/// # Errors
///
/// `EFAULT` an address that is not mapped memory; `EINVAL` the stack of the current task, or more bytes
/// than [`PINNED_MAX`]; `E2BIG` more than [`SEGMENTS_MAX`] elements; `ENOMEM`.
///
/// # Safety
///
/// Until the last reference to the result goes, the memory stays mapped where it is, may be read,
/// and with [`Access::Write`] written.
pub(crate) unsafe fn kvec(list: &[bindings::kvec], access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, Keeper::Kernel);
    for element in list {
        builder.range(element.iov_base.expose_provenance(), element.iov_len)?;
    }
    builder.finish()
}

/// The bytes of pages, in the order of `list`.
///
/// Process context, may sleep.
///
/// # Errors
///
/// `EINVAL` no page, a page without a reference count, or more bytes than [`PINNED_MAX`];
/// `EOPNOTSUPP` memory of a device; `E2BIG` more than [`SEGMENTS_MAX`] elements; `ENOMEM`.
///
/// # Safety
///
/// The caller keeps the pages during the call. The bytes may be read, and with [`Access::Write`]
/// written, until the last reference to the result goes.
pub(crate) unsafe fn bio_vec(list: &[bindings::bio_vec], access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, Keeper::Pages);
    for element in list {
        let (offset, len) = (element.bv_offset as usize, element.bv_len as usize);
        // SAFETY: An element, by the requirement.
        unsafe { builder.pages(element.bv_page, offset, len)? };
    }
    builder.finish()
}

/// The bytes of pages, in the order of `table`, as the CPU sees them (`orig_nents`).
///
/// Process context, may sleep. Errors as [`bio_vec`].
///
/// # Safety
///
/// `table` is a valid table; else as [`bio_vec`].
pub(crate) unsafe fn sg_table(table: &bindings::sg_table, access: Access) -> Result<MemRef> {
    let mut builder = Builder::new(access, Keeper::Pages);
    let mut next = table.sgl;
    for _ in 0..table.orig_nents {
        if next.is_null() {
            break;
        }
        let (mut page, mut offset, mut len) = (core::ptr::null_mut(), 0, 0);
        // SAFETY: An entry of the table, which is valid.
        next = unsafe { shim::kfabric_shim_sg(next, &mut page, &mut offset, &mut len) };
        // SAFETY: An entry's page, offset and length, by the requirement.
        unsafe { builder.pages(page, offset, len)? };
    }
    builder.finish()
}

/// Puts the reference to each page under `segments`, in bounded steps. Process context, may sleep.
///
/// # Safety
///
/// Each has a reference for its segment, which is not used again.
pub(super) unsafe fn put_pages(segments: &[Segment]) {
    let mut steps = 0;
    for segment in segments {
        let base = segment.addr.map_addr(|addr| addr & PAGE_MASK);
        for page in 0..pages_of(segment.addr.addr(), segment.len) {
            // SAFETY: By the requirement.
            unsafe { shim::kfabric_shim_page_put(base.wrapping_add(page << PAGE_SHIFT).cast()) };
            steps += 1;
            if steps % PAGES_STEP == 0 {
                sched::cond_resched();
            }
        }
    }
}
