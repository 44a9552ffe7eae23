// SPDX-License-Identifier: GPL-2.0

//! DMA-BUF: memory of an exporter, which a device may access as well.
//!
//! A [`DmaBuf`] holds a reference to a DMA-BUF and has it mapped by its exporter (`dma_buf_vmap()`),
//! which keeps the memory where it is. The device of the module is software, so it attaches no device:
//! the CPU copies. What is in memory that only a device reaches (`iosys_map` of I/O memory) is refused.
//!
//! An exporter has to be told when the CPU accesses the memory, from when until when: it may have to
//! wait for its device or to flush caches, and either may fail. [`DmaBuf::open`] tells it and gives the
//! memory; when the last reference to that has gone, the access ends. So there is no reference to bytes
//! that may not be accessed, and whoever fails to begin has nothing yet to undo:
//!
//! - A local operation begins when it is posted and ends when it has completed. If beginning fails, the
//!   operation is refused with the exporter's error.
//! - Peers access a region without a word to its owner, at times where nothing may sleep (the answers to
//!   READs are built with bottom halves disabled). So the access to a region that peers may access
//!   begins at registration, which fails with the exporter's error, and ends with the region.
//!
//! Ending comes after completion. If it fails, the operation's bytes may not be seen by the device: the
//! next access of the same DMA-BUF is refused with that error, once.
//!
//! Process context throughout, and all of it may sleep; so may dropping.

use super::{
    backing::Backing,
    memref::MemRef,
    pinned::{
        Access,
        PINNED_MAX, //
    }, //
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
/// `dmabuf` is a DMA-BUF to which one reference is ours, mapped at `map` once for us; `offset` and `len`
/// lie within it.
pub(crate) struct DmaBuf {
    dmabuf: NonNull<bindings::dma_buf>,
    map: NonNull<u8>,
    offset: usize,
    len: usize,
    access: Access,
    /// The error with which an access has ended and that nobody was told yet; 0: none.
    ended: Atomic<i32>,
}

// SAFETY: References and mappings of a DMA-BUF may be used and dropped by any task; its bytes are
// accessed by copying only.
unsafe impl Send for DmaBuf {}

// SAFETY: As above; `ended` is atomic.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Takes a reference to `dmabuf`, and has it mapped for access to `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` bytes that it does not have, or more than [`PINNED_MAX`]; `EACCES` it may not be
    /// written; `EOPNOTSUPP` it cannot be mapped or is not in memory, or the kernel has no DMA-BUF;
    /// what the exporter fails with; `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `dmabuf` is valid during the call.
    pub(crate) unsafe fn new(
        dmabuf: NonNull<bindings::dma_buf>,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Arc<Self>> {
        task::might_sleep();
        let mut map = core::ptr::null_mut();
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || len > PINNED_MAX {
            return Err(EINVAL);
        }
        let write = access == Access::Write;
        // SAFETY: Valid by the requirement; `map` is written to.
        to_result(unsafe {
            shim::kfabric_shim_dma_buf_map(dmabuf.as_ptr(), end, write, &mut map)
        })?;
        // INVARIANT: Referenced and mapped just now, with at least `end` bytes.
        let mapped = Self {
            dmabuf,
            // It is not null when mapping succeeds.
            map: NonNull::new(map.cast()).ok_or(EFAULT)?,
            offset,
            len,
            access,
            ended: Atomic::new(0),
        };
        Ok(Arc::new(mapped, GFP_KERNEL_ACCOUNT)?)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    pub(crate) fn writable(&self) -> bool {
        self.access == Access::Write
    }

    /// Bytes of kernel memory that its mapping takes, about: an entry in a page table for each page.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.len >> PAGE_SHIFT).saturating_mul(size_of::<u64>())
    }

    /// Begins to access `len` bytes at `offset`, as many of them as there are. The access ends when the
    /// last reference to the result goes. No bytes: does nothing.
    ///
    /// # Errors
    ///
    /// What the exporter fails with; what an earlier access has ended with; `EACCES` it may not be
    /// written; `ENOMEM`.
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
        // SAFETY: Valid, by the type invariants.
        to_result(unsafe { shim::kfabric_shim_dma_buf_begin(self.dmabuf.as_ptr(), write) })?;
        let window = Window {
            of: self.clone(),
            write,
        };
        let addr = self.map.as_ptr().wrapping_add(self.offset + offset);
        // SAFETY: The window keeps the mapping, which has these bytes by the type invariants.
        Ok(MemRef::new(unsafe {
            Backing::dma_buf(addr, len, access, window)?
        }))
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        task::might_sleep();
        // SAFETY: By the type invariants; neither is used any more.
        unsafe { shim::kfabric_shim_dma_buf_unmap(self.dmabuf.as_ptr(), self.map.as_ptr().cast()) }
    }
}

/// CPU access to a DMA-BUF that has begun; it ends when this is dropped.
pub(super) struct Window {
    of: Arc<DmaBuf>,
    write: bool,
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: Valid, by the invariants of `DmaBuf`; begun for the same access.
        let ret = unsafe { shim::kfabric_shim_dma_buf_end(self.of.dmabuf.as_ptr(), self.write) };
        if ret < 0 {
            self.of.ended.store(ret, Relaxed);
        }
    }
}
