// SPDX-License-Identifier: GPL-2.0

//! DMA-BUF: memory of an exporter, which a device may access as well.
//!
//! A [`DmaBuf`] holds a reference to a DMA-BUF and a mapping by its exporter (`dma_buf_vmap()`).
//! The mapping keeps the memory in place. The module's device is software and copies with the CPU,
//! so no device is attached. I/O memory (as `struct iosys_map` reports it) is refused.
//!
//! An exporter must know when the CPU begins and ends an access: it may have to wait for its device
//! or to flush caches, and both may fail. [`DmaBuf::open`] begins the access and returns the
//! memory; the access ends when the last reference to that memory is dropped. So every reference is
//! to bytes that may be accessed, and a caller that fails to begin has nothing to undo:
//!
//! - A local operation begins the access when it is posted and ends it when it has completed. If
//!   the exporter fails, the operation is refused with the exporter's error.
//! - Peers access a region at any time, also from contexts that may not sleep (READ responses are
//!   built with bottom halves disabled). So the access to a region that peers may access begins at
//!   registration, which fails with the exporter's error, and ends with the region.
//!
//! The access ends after the operation has completed. If ending it fails, the device may not see
//! the bytes of the operation; then the next access to the same DMA-BUF is refused with that error,
//! once.
//!
//! All functions of this file need process context and may sleep, dropping included.

use super::{
    backing::Backing,
    memref::MemRef,
    pinned::{
        Access,
        PINNED_MAX, //
    },
    Allowance,
    Budget, //
};
use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Full,
                Relaxed, //
            },
            Atomic, //
        },
        Arc, //
    },
    task, //
};

/// A part of a mapped DMA-BUF.
///
/// # Invariants
///
/// The object owns one reference to `dmabuf` and one mapping of it, at `map`. `offset` and `len`
/// lie within it.
pub(crate) struct DmaBuf {
    dmabuf: NonNull<bindings::dma_buf>,
    map: NonNull<u8>,
    /// Bytes that are mapped: the whole DMA-BUF.
    mapped: usize,
    offset: usize,
    len: usize,
    access: Access,
    /// The error with which an access ended and which was not reported yet; 0 if there is none.
    ended: Atomic<i32>,
}

// SAFETY: Any task may use and drop references and mappings of a DMA-BUF; the bytes are accessed by
// copying only.
unsafe impl Send for DmaBuf {}

// SAFETY: As above; `ended` is atomic.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Does the same as [`new`](Self::new) for the DMA-BUF of descriptor `fd` of the current
    /// process. The descriptor may be closed afterwards. The mapping is charged to `budget` before
    /// it is made. Fails as `new`, but the range may have any length; and with `EBADF` if the
    /// descriptor is not open; `EINVAL` if it is none of a DMA-BUF.
    pub(crate) fn of_fd(
        fd: i32,
        offset: usize,
        len: usize,
        access: Access,
        budget: &Budget,
    ) -> Result<(Arc<Self>, Allowance)> {
        task::might_sleep();
        let (mut dmabuf, mut size) = (core::ptr::null_mut(), 0);
        // SAFETY: `dmabuf` and `size` are outputs. Any descriptor is allowed.
        to_result(unsafe { shim::kfabric_shim_dma_buf_get(fd, &mut dmabuf, &mut size) })?;
        // It is not null when the call succeeds.
        let dmabuf = NonNull::new(dmabuf).ok_or(EBADF)?;
        let charge = budget.take(mapping_bytes(size) as u64);
        let mapped = charge.and_then(|charge| {
            // SAFETY: The reference that was just taken keeps it.
            let mapped = unsafe { Self::map(dmabuf, offset, len, access) };
            Ok((mapped?, charge))
        });
        // SAFETY: This is the reference that was just taken; `mapped` has one of its own.
        unsafe { shim::kfabric_shim_dma_buf_put(dmabuf.as_ptr()) };
        mapped
    }

    /// Takes a reference to `dmabuf` and maps it, for access to `len` bytes at `offset`. Fails with
    /// `EINVAL` if the range is empty, outside the DMA-BUF, or longer than [`PINNED_MAX`]; `EACCES`
    /// if the DMA-BUF may not be written; `EOPNOTSUPP` if the DMA-BUF cannot be mapped or is I/O
    /// memory, or the kernel has no DMA-BUF; an error of the exporter; `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `dmabuf` is valid during the call.
    #[cfg_attr(not(kfi_kunit), expect(dead_code, reason = "for kernel consumers"))]
    pub(crate) unsafe fn new(
        dmabuf: NonNull<bindings::dma_buf>,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Arc<Self>> {
        if len > PINNED_MAX {
            return Err(EINVAL);
        }
        // SAFETY: By the requirement above.
        unsafe { Self::map(dmabuf, offset, len, access) }
    }

    /// [`new`](Self::new) for a range of any length.
    ///
    /// # Safety
    ///
    /// As for `new`.
    unsafe fn map(
        dmabuf: NonNull<bindings::dma_buf>,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Arc<Self>> {
        task::might_sleep();
        let (mut map, mut mapped) = (core::ptr::null_mut(), 0);
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 {
            return Err(EINVAL);
        }
        let write = access == Access::Write;
        // SAFETY: `dmabuf` is valid by the requirement; `map` and `mapped` are outputs.
        to_result(unsafe {
            shim::kfabric_shim_dma_buf_map(dmabuf.as_ptr(), end, write, &mut map, &mut mapped)
        })?;
        // INVARIANT: Just referenced and mapped, and it has at least `end` bytes.
        let dma_buf = Self {
            dmabuf,
            // `map` is not null when mapping succeeds.
            map: NonNull::new(map.cast()).ok_or(EFAULT)?,
            mapped,
            offset,
            len,
            access,
            ended: Atomic::new(0),
        };
        Ok(Arc::new(dma_buf, GFP_KERNEL_ACCOUNT)?)
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    pub(crate) fn writable(&self) -> bool {
        self.access == Access::Write
    }

    /// Bytes of kernel memory that the mapping uses, approximately.
    pub(crate) fn heap_bytes(&self) -> usize {
        mapping_bytes(self.mapped)
    }

    /// Begins an access to `len` bytes at `offset`, clipped to the length of the memory. The access
    /// ends when the last reference to the result is dropped. Does nothing if no bytes are left.
    /// Fails with an error of the exporter, or the error with which an earlier access ended;
    /// `EACCES` if the DMA-BUF may not be written; `ENOMEM`.
    pub(crate) fn open(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<MemRef> {
        let offset = offset.min(self.len);
        let len = len.min(self.len - offset);
        if len == 0 {
            return Ok(MemRef::empty());
        }
        let write = access == Access::Write;
        if write && !self.writable() {
            return Err(EACCES);
        }
        if self.ended.load(Relaxed) != 0 {
            to_result(self.ended.xchg(0, Full))?;
        }
        // SAFETY: `dmabuf` is valid, by the type invariants.
        to_result(unsafe { shim::kfabric_shim_dma_buf_begin(self.dmabuf.as_ptr(), write) })?;
        let cpu_access = CpuAccess {
            dma_buf: self.clone(),
            write,
        };
        let addr = self.map.as_ptr().wrapping_add(self.offset + offset);
        // SAFETY: `cpu_access` keeps the mapping, which has these bytes by the type invariants.
        Ok(MemRef::new(unsafe {
            Backing::dma_buf(addr, len, access, cpu_access)?
        }))
    }
}

/// Bytes of kernel memory that the mapping of a DMA-BUF uses, approximately: a page table entry for
/// each page of the whole DMA-BUF, because the exporter maps all of it.
fn mapping_bytes(size: usize) -> usize {
    (size >> PAGE_SHIFT).saturating_mul(size_of::<u64>())
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        task::might_sleep();
        // SAFETY: Owned by the type invariants; nothing uses either any more.
        unsafe { shim::kfabric_shim_dma_buf_unmap(self.dmabuf.as_ptr(), self.map.as_ptr().cast()) }
    }
}

/// A CPU access to a DMA-BUF that has begun. It ends when this is dropped.
pub(super) struct CpuAccess {
    dma_buf: Arc<DmaBuf>,
    write: bool,
}

impl Drop for CpuAccess {
    fn drop(&mut self) {
        // SAFETY: `dmabuf` is valid, by the invariants of `DmaBuf`; the access was begun with the
        // same `write`.
        let ret =
            unsafe { shim::kfabric_shim_dma_buf_end(self.dma_buf.dmabuf.as_ptr(), self.write) };
        if ret < 0 {
            self.dma_buf.ended.store(ret, Relaxed);
        }
    }
}
