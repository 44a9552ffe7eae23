// SPDX-License-Identifier: GPL-2.0

//! Memory that can be registered: one piece of any kind, or a list.
//!
//! A [`MemRef`], also a gather list, can be accessed at any time. Memory that contains a DMA-BUF
//! must be opened for each access ([`Memory::open`]); see [`dma_buf`](super::dma_buf).

use super::{
    budget::Budget,
    dma_buf::DmaBuf,
    memref::MemRef,
    pinned::{
        Access,
        PINNED_MAX, //
    },
    segments::SEGMENTS_MAX, //
};
use crate::shim::{
    memory::kmalloc_array_size,
    sched::Resched, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Memory that can be registered.
pub(crate) enum Memory {
    /// Memory that can be accessed at any time.
    Open(MemRef),
    /// Memory that must be opened for each access.
    #[cfg_attr(not(kfi_kunit), expect(dead_code, reason = "for kernel consumers"))]
    DmaBuf(Arc<DmaBuf>),
    /// A list of several, none of them a list; at least one is a DMA-BUF.
    List(KVVec<Memory>),
}

impl From<MemRef> for Memory {
    fn from(memory: MemRef) -> Self {
        Self::Open(memory)
    }
}

impl Memory {
    /// The memory of `parts`, concatenated. Sleeps. Fails with `E2BIG` for more than
    /// [`SEGMENTS_MAX`] parts or segments; `EINVAL` for more than [`PINNED_MAX`] bytes, or if a
    /// part is a list with a DMA-BUF in it; `ENOMEM`.
    #[cfg_attr(not(kfi_kunit), expect(dead_code, reason = "for kernel consumers"))]
    pub(crate) fn gather(parts: KVVec<Memory>) -> Result<Self> {
        if parts.len() > SEGMENTS_MAX {
            return Err(E2BIG);
        }
        let mut open = KVVec::with_capacity(parts.len(), GFP_KERNEL_ACCOUNT)?;
        let mut len = 0usize;
        let mut resched = Resched::new();
        for part in parts.iter() {
            match part {
                Self::Open(memory) => open.push(memory.clone(), GFP_KERNEL_ACCOUNT)?,
                Self::DmaBuf(_) => {}
                Self::List(_) => return Err(EINVAL),
            }
            len = len.saturating_add(part.len());
            if len > PINNED_MAX {
                return Err(EINVAL);
            }
            resched.step();
        }
        if open.len() < parts.len() {
            return Ok(Self::List(parts));
        }
        Ok(Self::Open(MemRef::gather(&open)?))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Open(memory) => memory.len(),
            Self::DmaBuf(dma_buf) => dma_buf.len(),
            // The sum does not overflow: `gather` has checked it.
            Self::List(parts) => parts.iter().map(Self::len).sum(),
        }
    }

    /// Whether all of it may be written.
    pub(crate) fn writable(&self) -> bool {
        match self {
            Self::Open(memory) => memory.writable(),
            Self::DmaBuf(dma_buf) => dma_buf.writable(),
            Self::List(parts) => parts.iter().all(Self::writable),
        }
    }

    /// Bytes of kernel memory that mappings and the list of the parts use; not the segment lists.
    pub(crate) fn mapping_bytes(&self) -> usize {
        match self {
            Self::Open(_) => 0,
            Self::DmaBuf(dma_buf) => dma_buf.heap_bytes(),
            Self::List(parts) => {
                let list = kmalloc_array_size::<Self>(parts.capacity());
                parts
                    .iter()
                    .map(Self::mapping_bytes)
                    .fold(list, usize::saturating_add)
            }
        }
    }

    /// Charges `budget` for its segment lists as long as they live, see [`MemRef::charge_lists`].
    /// Fails with `ENOMEM`. Process context; does not sleep.
    pub(crate) fn charge_lists(&self, budget: &Budget) -> Result {
        match self {
            Self::Open(memory) => memory.charge_lists(budget),
            Self::DmaBuf(_) => Ok(()),
            Self::List(parts) => parts.iter().try_for_each(|part| part.charge_lists(budget)),
        }
    }

    /// Begins an access to `len` bytes at `offset`, clipped to the length of the memory; see
    /// [`DmaBuf::open`]. If a part fails, the parts opened before are closed again. For
    /// [`Memory::Open`] the call only takes a reference. Fails as [`DmaBuf::open`]; `E2BIG` if the
    /// parts have more than [`SEGMENTS_MAX`] segments. None for [`Memory::Open`]. Process context.
    /// May sleep, except for [`Memory::Open`].
    #[inline(always)]
    pub(crate) fn open(&self, offset: usize, len: usize, access: Access) -> Result<MemRef> {
        match self {
            Self::Open(memory) => Ok(memory.slice(offset, len)),
            Self::DmaBuf(dma_buf) => dma_buf.open(offset, len, access),
            Self::List(parts) => open_list(parts, offset, len, access),
        }
    }
}

/// Opens the parts of a list that contain bytes of the range.
#[cold]
fn open_list(
    parts: &[Memory],
    mut offset: usize,
    mut len: usize,
    access: Access,
) -> Result<MemRef> {
    let mut open = KVVec::new();
    let mut resched = Resched::new();
    for part in parts {
        resched.step();
        if len == 0 {
            break;
        }
        if offset >= part.len() {
            offset -= part.len();
            continue;
        }
        // If this fails, the parts in `open` are closed by dropping them.
        let memory = part.open(offset, len, access)?;
        offset = 0;
        len -= memory.len();
        open.push(memory, GFP_KERNEL_ACCOUNT)?;
    }
    match &*open {
        [] => Ok(MemRef::empty()),
        [only] => Ok(only.clone()),
        all => MemRef::gather(all),
    }
}
