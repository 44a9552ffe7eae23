// SPDX-License-Identifier: GPL-2.0

//! What is behind a [`MemRef`](super::MemRef): a segment list, and what keeps its bytes there.
//!
//! | kind ([`Keeper`]) | segments | what keeps the bytes | charged to |
//! |---|---|---|---|
//! | pinned ([`pinned`]) | direct map | a pin of each page | `RLIMIT_MEMLOCK` |
//! | buffer | one, slab or vmalloc | it is the module's own | memory cgroup, account |
//! | kvec ([`consumer`](super::consumer)) | as given | the consumer | the consumer had it before |
//! | bio_vec, scatterlist ([`consumer`](super::consumer)) | direct map | a reference to each page | as kvec |
//! | DMA-BUF ([`dma_buf`](super::dma_buf)) | one, where the exporter maps it | a reference to the DMA-BUF and its mapping | its exporter |
//! | gather list | those of its parts | its parts | with its parts |
//!
//! The list itself is charged to the memory cgroup of the task that makes it; that of a region is
//! also charged to the account of the region's owner ([`Backing::heap_bytes`]).

use super::{
    consumer,
    dma_buf::Window,
    memref::MemRef,
    pinned::{
        self,
        Access, //
    },
    segments::{
        Segment,
        Segments,
        SEGMENTS_MAX, //
    }, //
};
use crate::shim::{
    bindings as shim,
    cred::Charge,
    sched, //
};
use core::ptr::NonNull;
use kernel::{
    alloc::Flags,
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

/// Parts of a gather list that are dealt with in one step.
const PARTS_STEP: usize = 256;

/// What keeps the bytes of a [`Backing`] there.
pub(super) enum Keeper {
    /// Each page under a segment is pinned once for it, and charged.
    Pinned { _charge: Charge },
    /// The only segment, if any, is what `kfabric_shim_buffer_alloc` gave.
    Buffer,
    /// The kernel consumer that named the memory keeps it.
    Kernel,
    /// Each page under a segment has a reference for it.
    Pages,
    /// CPU access to a DMA-BUF, which is mapped.
    DmaBuf { _window: Window },
    /// The parts of a gather list, none of which is one.
    Gather(KVVec<MemRef>),
}

/// Memory of one kind.
///
/// Shared in an [`Arc`]. **Dropping the last reference may sleep**: it is never
/// dropped under a spinlock, nor outside process context.
///
/// # Invariants
///
/// The segments are valid for reads, and for writes if `access` is [`Access::Write`], as long as
/// `keeper` keeps them, as its variant says. They may be read and written by others at any time, so they
/// are accessed by copying in C or as atomic words only.
pub(super) struct Backing {
    segments: Segments,
    access: Access,
    /// Whether anything was written, so that pages are dirty.
    written: Atomic<bool>,
    keeper: Keeper,
}

// SAFETY: What keeps the bytes may be released by any task, and they are accessed by copying only.
unsafe impl Send for Backing {}

// SAFETY: As above; nothing but `written` changes once it is shared.
unsafe impl Sync for Backing {}

impl Backing {
    /// Memory without segments yet, kept as `keeper` says.
    pub(super) fn new(access: Access, keeper: Keeper) -> Self {
        // INVARIANT: No segments.
        Self {
            segments: Segments::new(),
            access,
            written: Atomic::new(false),
            keeper,
        }
    }

    /// A buffer of `len` bytes, which is not 0, whose bytes are yet to be set. `flags`: how the
    /// reference is allocated. `ENOMEM`. Sleeps.
    pub(super) fn buffer(len: usize, flags: Flags) -> Result<Arc<Self>> {
        // SAFETY: Allocates; may sleep, as the caller may.
        let memory = unsafe { shim::kfabric_shim_buffer_alloc(len) };
        let memory = NonNull::new(memory).ok_or(ENOMEM)?;
        let mut buffer = Self::new(Access::Write, Keeper::Buffer);
        // INVARIANT: It was allocated just now, and is freed with the buffer.
        buffer.segments = Segments::one(memory.as_ptr().cast(), len);
        Ok(Arc::new(buffer, flags)?)
    }

    /// `len` bytes at `addr` of a mapped DMA-BUF.
    ///
    /// # Safety
    ///
    /// They are valid for `access` as long as `window` lives.
    pub(super) unsafe fn dma_buf(
        addr: *mut u8,
        len: usize,
        access: Access,
        window: Window,
    ) -> Result<Arc<Self>> {
        let mut memory = Self::new(access, Keeper::DmaBuf { _window: window });
        // INVARIANT: By the requirement.
        memory.segments = Segments::one(addr, len);
        Ok(Arc::new(memory, GFP_KERNEL_ACCOUNT)?)
    }

    /// The bytes of `parts`, one after the other; writable if all of them are.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `E2BIG` more than [`SEGMENTS_MAX`] segments; `EINVAL` more bytes than a region has at most;
    /// `ENOMEM`.
    pub(super) fn gather(parts: &[MemRef]) -> Result<Arc<Self>> {
        let writable = parts.iter().all(MemRef::writable);
        let access = if writable {
            Access::Write
        } else {
            Access::Read
        };
        let mut segments = Segments::new();
        let mut kept = KVVec::with_capacity(parts.len(), GFP_KERNEL_ACCOUNT)?;
        let mut steps = 0;
        for part in parts {
            let mut cursor = part.cursor(0);
            while cursor.left() > 0 {
                segments.reserve(1)?;
                // INVARIANT: The part keeps these bytes, and is kept below.
                segments.push(cursor.addr(), cursor.here(), true);
                cursor.advance(cursor.here());
                steps += 1;
                if steps > SEGMENTS_MAX {
                    return Err(E2BIG);
                }
                if steps % PARTS_STEP == 0 {
                    sched::cond_resched();
                }
            }
            if segments.len() > pinned::PINNED_MAX {
                return Err(EINVAL);
            }
            match part.backing() {
                None => {}
                // Its parts instead of itself, so that dropping lists of lists needs no deep stack.
                Some(Self {
                    keeper: Keeper::Gather(inner),
                    ..
                }) => {
                    for (index, part) in inner.iter().enumerate() {
                        kept.push(part.clone(), GFP_KERNEL_ACCOUNT)?;
                        if kept.len() > SEGMENTS_MAX {
                            return Err(E2BIG);
                        }
                        if index % PARTS_STEP == 0 {
                            sched::cond_resched();
                        }
                    }
                }
                Some(_) => kept.push(part.clone(), GFP_KERNEL_ACCOUNT)?,
            }
        }
        segments.shrink();
        let mut memory = Self::new(access, Keeper::Gather(kept));
        memory.segments = segments;
        Ok(Arc::new(memory, GFP_KERNEL_ACCOUNT)?)
    }

    /// The segments, to be filled while the memory is not shared yet. Each must be kept by the
    /// keeper, as its variant says, and be valid for the access.
    pub(super) fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    /// The segments, in order.
    #[inline]
    pub(super) fn segments(&self) -> &[Segment] {
        self.segments.as_slice()
    }

    /// Bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// What may be done with it.
    #[inline]
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Bytes of kernel memory that the lists take.
    pub(super) fn heap_bytes(&self) -> usize {
        let parts = match &self.keeper {
            Keeper::Gather(parts) => parts.capacity().saturating_mul(size_of::<MemRef>()),
            _ => 0,
        };
        self.segments.heap_bytes().saturating_add(parts)
    }

    /// Notes that the memory is about to be written.
    #[inline]
    pub(super) fn mark_written(&self) {
        // Most often it is noted already, and a store would only move the cache line about.
        if !self.written.load(Relaxed) {
            self.written.store(true, Relaxed);
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let written = self.written.load(Relaxed);
        if let Keeper::Buffer = self.keeper {
            if let [buffer] = self.segments.as_slice() {
                // SAFETY: By the invariants it was allocated for this, and is not used any more.
                unsafe { shim::kfabric_shim_buffer_free(buffer.addr.cast()) }
            }
            return;
        }
        task::might_sleep();
        match &mut self.keeper {
            // SAFETY: By the invariants each page is pinned for its segment, which is not used any
            // more.
            Keeper::Pinned { .. } => unsafe { pinned::unpin(self.segments.as_slice(), written) },
            // SAFETY: By the invariants each page has a reference for its segment, which is not
            // used any more.
            Keeper::Pages => unsafe { consumer::put_pages(self.segments.as_slice()) },
            Keeper::Gather(parts) => {
                let mut steps = 0;
                while let Some(part) = parts.pop() {
                    if written {
                        part.mark_written();
                    }
                    steps += 1;
                    if steps % PARTS_STEP == 0 {
                        sched::cond_resched();
                    }
                }
            }
            // The window closes when it is dropped.
            Keeper::DmaBuf { .. } | Keeper::Kernel | Keeper::Buffer => {}
        }
    }
}
