// SPDX-License-Identifier: GPL-2.0

//! The kinds of memory: what a [`MemRef`](super::MemRef) refers to.
//!
//! A [`Backing`] is a segment list and a [`MemoryOwner`], which keeps the bytes valid.
//!
//! | kind ([`MemoryOwner`]) | segments | what keeps the bytes valid | charged to |
//! |---|---|---|---|
//! | pinned ([`pinned`]) | direct map | a pin of each page | `RLIMIT_MEMLOCK` |
//! | buffer | one, slab or vmalloc | the backing owns it | memory cgroup, account |
//! | kvec ([`consumer`](super::consumer)) | as given | the consumer | as the consumer has charged it |
//! | bio_vec, scatterlist ([`consumer`](super::consumer)) | direct map | a reference to each page, or the consumer | as kvec |
//! | DMA-BUF ([`dma_buf`](super::dma_buf)) | one, where the exporter maps it | a reference to the DMA-BUF and its mapping | its exporter |
//! | gather list | those of its parts | its parts | as its parts |
//!
//! The list itself is charged to the memory cgroup of the task that creates it. The list of a
//! region, or of an operation that does not end in its call, is also charged to the account of its
//! owner ([`Backing::charge_lists`]).

use super::{
    budget::{
        Allowance,
        Budget, //
    },
    consumer,
    dma_buf::CpuAccess,
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
    memory::kmalloc_array_size,
    sched::Resched, //
};
use core::ptr::NonNull;
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
    task, //
};

/// Keeps the bytes of a [`Backing`] valid.
pub(super) enum MemoryOwner {
    /// Each page of a segment is pinned once for the segment, and charged.
    Pinned { _charge: Charge },
    /// The only segment, if there is one, is the result of `kfabric_shim_buffer_alloc`.
    Buffer,
    /// The kernel consumer that passed the memory keeps it valid.
    Kernel { may_sleep: bool },
    /// Each page of a segment has a reference for the segment.
    Pages { may_sleep: bool },
    /// CPU access to a mapped DMA-BUF.
    DmaBuf { _access: CpuAccess },
    /// The parts of a gather list. None of them is a gather list itself.
    Gather(KVVec<MemRef>),
}

/// Memory of one kind.
///
/// Shared in an [`Arc`]. **Dropping the last reference may sleep**: do it in process context, with
/// no spin lock held. The exceptions are a buffer, and memory of a kernel consumer that was made
/// where its caller may not sleep: those can be dropped in any context, unless their lists have a
/// charge ([`charge_lists`](Self::charge_lists)). The last [`Allowance`] of an account is dropped
/// in process context.
///
/// # Invariants
///
/// As long as `owner` keeps the segments valid, as its variant says, they are valid for reads, and
/// for writes if `access` is [`Access::Write`]. Others may read and write them at any time, so the
/// module accesses them only by copying in C or as atomic words.
pub(super) struct Backing {
    segments: Segments,
    access: Access,
    owner: MemoryOwner,
    /// The charge for the lists. Dropped after them.
    charge: SetOnce<Allowance>,
}

// SAFETY: Any task may release what the owner has and the charge, and the bytes are accessed by
// copying only.
unsafe impl Send for Backing {}

// SAFETY: As above; only `charge`, which synchronizes by itself, changes while it is shared.
unsafe impl Sync for Backing {}

impl Backing {
    /// Memory that `owner` keeps valid, without segments so far.
    pub(super) fn new(access: Access, owner: MemoryOwner) -> Self {
        // INVARIANT: No segments.
        Self {
            segments: Segments::new(),
            access,
            charge: SetOnce::new(),
            owner,
        }
    }

    /// Charges `budget` for its lists as long as they live, unless they are charged. Fails with
    /// `ENOMEM`. Any context; see [`MemRef::charge_lists`] for the drop.
    #[inline(always)]
    pub(super) fn charge_lists(&self, budget: &Budget) -> Result {
        if !self.segments.has_allocated() && !matches!(self.owner, MemoryOwner::Gather(_)) {
            return Ok(());
        }
        self.charge_allocated(budget)
    }

    /// [`charge_lists`](Self::charge_lists) of memory that has allocated lists.
    #[inline(never)]
    fn charge_allocated(&self, budget: &Budget) -> Result {
        let bytes = self.heap_bytes();
        if bytes == 0 || self.charge.as_ref().is_some() {
            return Ok(());
        }
        // If another task has set a charge meanwhile, this one is dropped.
        self.charge.populate(budget.take(bytes as u64)?);
        Ok(())
    }

    /// A buffer of `len` bytes, not 0, whose bytes are not set yet. `flags` are used to allocate
    /// the [`Arc`]. Process context with `may_sleep`, otherwise any context. Fails with `ENOMEM`.
    pub(super) fn buffer(len: usize, flags: Flags, may_sleep: bool) -> Result<Arc<Self>> {
        // SAFETY: Allocates memory, and sleeps only if the caller may.
        let memory = unsafe { shim::kfabric_shim_buffer_alloc(len, may_sleep) };
        Self::of_buffer(memory, len, flags)
    }

    /// The same for a message that can stay with its sender, see `kfabric_shim_message_alloc`.
    /// Sleeps.
    pub(super) fn message(len: usize, flags: Flags) -> Result<Arc<Self>> {
        // SAFETY: Allocates memory; the caller may sleep.
        let memory = unsafe { shim::kfabric_shim_message_alloc(len) };
        Self::of_buffer(memory, len, flags)
    }

    /// `memory` is NULL, or `len` bytes of `kfabric_shim_buffer_alloc` or
    /// `kfabric_shim_message_alloc` that the result owns.
    fn of_buffer(memory: *mut c_void, len: usize, flags: Flags) -> Result<Arc<Self>> {
        let memory = NonNull::new(memory).ok_or(ENOMEM)?;
        let mut buffer = Self::new(Access::Write, MemoryOwner::Buffer);
        // INVARIANT: The buffer was just allocated, and is freed with the backing.
        buffer.segments = Segments::one(memory.as_ptr().cast(), len);
        Ok(Arc::new(buffer, flags)?)
    }

    /// All addresses of the kernel: byte `n` is that at address `n`. The result can be dropped in
    /// any context. Sleeps. Fails with `ENOMEM`.
    ///
    /// # Safety
    ///
    /// A caller that uses a part of the result keeps its bytes mapped meanwhile, and may read and
    /// write them.
    pub(super) unsafe fn kernel_space() -> Result<Arc<Self>> {
        let mut memory = Self::new(Access::Write, MemoryOwner::Kernel { may_sleep: false });
        // INVARIANT: By the requirement of this function.
        memory.segments = Segments::one(core::ptr::with_exposed_provenance_mut(0), usize::MAX);
        Ok(Arc::new(memory, GFP_KERNEL_ACCOUNT)?)
    }

    /// `len` bytes at `addr` of a mapped DMA-BUF.
    ///
    /// # Safety
    ///
    /// The bytes are valid for `access` as long as `cpu_access` lives.
    pub(super) unsafe fn dma_buf(
        addr: *mut u8,
        len: usize,
        access: Access,
        cpu_access: CpuAccess,
    ) -> Result<Arc<Self>> {
        let mut memory = Self::new(
            access,
            MemoryOwner::DmaBuf {
                _access: cpu_access,
            },
        );
        // INVARIANT: By the requirement of this function.
        memory.segments = Segments::one(addr, len);
        Ok(Arc::new(memory, GFP_KERNEL_ACCOUNT)?)
    }

    /// The bytes of `parts`, concatenated; writable if all parts are. Sleeps. Fails with `E2BIG`
    /// for more than [`SEGMENTS_MAX`] segments or parts; `EINVAL` for more than `most` bytes;
    /// `ENOMEM`.
    pub(super) fn gather(most: usize, parts: &[MemRef]) -> Result<Arc<Self>> {
        let access = if parts.iter().all(MemRef::writable) {
            Access::Write
        } else {
            Access::Read
        };
        let mut segments = Segments::new();
        let mut kept = KVVec::with_capacity(parts.len(), GFP_KERNEL_ACCOUNT)?;
        let mut resched = Resched::new();
        let mut steps = 0;
        for part in parts {
            let mut cursor = part.cursor(0);
            while cursor.left() > 0 {
                segments.reserve(1)?;
                // INVARIANT: The part keeps these bytes valid, and `kept` keeps the part.
                segments.push(cursor.addr(), cursor.here(), true);
                cursor.advance(cursor.here());
                steps += 1;
                if steps > SEGMENTS_MAX {
                    return Err(E2BIG);
                }
                resched.step();
            }
            if segments.len() > most {
                return Err(EINVAL);
            }
            match part.backing() {
                None => {}
                // Keep the parts of a nested list instead of the list, so that dropping does not
                // recurse.
                Some(Self {
                    owner: MemoryOwner::Gather(inner),
                    ..
                }) => {
                    for part in inner.iter() {
                        kept.push(part.clone(), GFP_KERNEL_ACCOUNT)?;
                        if kept.len() > SEGMENTS_MAX {
                            return Err(E2BIG);
                        }
                        resched.step();
                    }
                }
                Some(_) => kept.push(part.clone(), GFP_KERNEL_ACCOUNT)?,
            }
        }
        segments.shrink();
        let mut memory = Self::new(access, MemoryOwner::Gather(kept));
        memory.segments = segments;
        Ok(Arc::new(memory, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether each page of a segment has a reference for the segment.
    pub(super) fn has_page_references(&self) -> bool {
        matches!(self.owner, MemoryOwner::Pages { .. })
    }

    /// Puts the references to pages, before the memory is shared. Context as for a drop.
    ///
    /// # Safety
    ///
    /// The kernel consumer that passed the pages keeps all of them valid until the memory is
    /// dropped.
    pub(super) unsafe fn put_page_references(&mut self) {
        if let MemoryOwner::Pages { may_sleep } = self.owner {
            // SAFETY: By the invariants each page has a reference for its segment. By the
            // requirement the segments are valid without.
            unsafe { consumer::put_pages(self.segments.as_slice(), may_sleep) };
            self.owner = MemoryOwner::Kernel { may_sleep };
        }
    }

    /// The segments, to be filled before the memory is shared. The owner must keep each of them
    /// valid for the access, as its variant says.
    pub(super) fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    /// The segments, in order.
    #[inline]
    pub(super) fn segments(&self) -> &[Segment] {
        self.segments.as_slice()
    }

    /// Length in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// The permitted access.
    #[inline]
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Bytes of kernel memory that the segment list and the list of parts use.
    pub(super) fn heap_bytes(&self) -> usize {
        let parts = match &self.owner {
            MemoryOwner::Gather(parts) => kmalloc_array_size::<MemRef>(parts.capacity()),
            _ => 0,
        };
        self.segments.heap_bytes().saturating_add(parts)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let MemoryOwner::Buffer = self.owner {
            if let [buffer] = self.segments.as_slice() {
                // SAFETY: By the invariants it was allocated by `kfabric_shim_buffer_alloc`;
                // nothing uses it any more.
                unsafe { shim::kfabric_shim_buffer_free(buffer.addr.cast()) }
            }
            return;
        }
        if !matches!(
            self.owner,
            MemoryOwner::Kernel { may_sleep: false } | MemoryOwner::Pages { may_sleep: false }
        ) {
            task::might_sleep();
        }
        match &mut self.owner {
            // SAFETY: By the invariants each page is pinned once for its segment; nothing uses it
            // any more.
            MemoryOwner::Pinned { .. } => unsafe {
                pinned::unpin(self.segments.as_slice(), self.access == Access::Write);
            },
            // SAFETY: By the invariants each page has a reference for its segment; nothing uses it
            // any more.
            MemoryOwner::Pages { may_sleep } => unsafe {
                consumer::put_pages(self.segments.as_slice(), *may_sleep);
            },
            MemoryOwner::Gather(parts) => {
                let mut resched = Resched::new();
                while parts.pop().is_some() {
                    resched.step();
                }
            }
            // The access to a DMA-BUF ends when the `CpuAccess` is dropped.
            MemoryOwner::DmaBuf { .. } | MemoryOwner::Kernel { .. } | MemoryOwner::Buffer => {}
        }
    }
}
