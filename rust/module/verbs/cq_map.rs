// SPDX-License-Identifier: GPL-2.0

//! The entries of a CQ in memory that its program maps and reads without a call.
//!
//! The layout is that of `include/uapi/rdma/kfabric-abi.h`: the words of
//! [`kfi_core::ring`](kfi_core::ring), then the entries. The module writes entries and the tail.
//! The program writes the head, which is accepted only between the last one and the tail, and may
//! overwrite the entries, which the module never acts on.
//!
//! The functions do not sleep, but for [`MappedRing::new`]; the caller holds the lock of the CQ.

use core::mem::{
    offset_of,
    size_of, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::ring::{
    Producer,
    Words, //
};

use super::{
    cq_ring::{
        Entry,
        PIECE, //
    },
    raw::{
        self,
        kfabric_ib_cq_ring,
        kfabric_ib_cqe, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        Budget,
        SharedPages,
        SharedWord, //
    },
    shim::errno::to_error, //
};

/// Words of an entry that are written.
const WORDS: usize = 5;

// `Entry::words` is the layout of the interface.
const _: () = {
    assert!(offset_of!(kfabric_ib_cqe, wr_id) == 0);
    assert!(offset_of!(kfabric_ib_cqe, status) == 8);
    assert!(offset_of!(kfabric_ib_cqe, opcode) == 12);
    assert!(offset_of!(kfabric_ib_cqe, qp_num) == 16);
    assert!(offset_of!(kfabric_ib_cqe, src_qp) == 20);
    assert!(offset_of!(kfabric_ib_cqe, byte_len) == 24);
    assert!(offset_of!(kfabric_ib_cqe, imm_or_key) == 28);
    assert!(offset_of!(kfabric_ib_cqe, wc_flags) == 32);
    // No entry crosses a page.
    assert!(size_of::<kfabric_ib_cqe>() == 64 && size_of::<kfabric_ib_cq_ring>() % 64 == 0);
};

impl Entry {
    /// The words of `struct kfabric_ib_cqe`.
    fn words(&self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut flags = self.flags & (raw::KFABRIC_VERBS_WC_GRH | raw::KFABRIC_VERBS_WC_WITH_IMM);
        if self.flags & raw::KFABRIC_VERBS_WC_WITH_INVALIDATE != 0 {
            flags |= raw::KFABRIC_IB_WC_WITH_INV;
        }
        [
            self.wr_id,
            pair(self.status as u32, self.opcode as u32),
            pair(self.qpn, self.src_qp),
            pair(self.byte_len, self.imm_or_key),
            pair(flags, 0),
        ]
    }
}

/// The entries of a mapped CQ.
pub(super) struct MappedRing {
    pages: Arc<SharedPages>,
    ring: Producer<SharedWord>,
}

impl MappedRing {
    /// Memory for `entries` entries, rounded up to a power of two, charged to `budget` until no
    /// program maps it. Fails with `EINVAL` if there is no such power, `ENOMEM`. Sleeps.
    pub(super) fn new(budget: &Budget, entries: u32) -> Result<Self> {
        let size = entries.checked_next_power_of_two().ok_or(EINVAL)?;
        let bytes = (size as usize)
            .checked_mul(size_of::<kfabric_ib_cqe>())
            .and_then(|bytes| bytes.checked_add(size_of::<kfabric_ib_cq_ring>()))
            .ok_or(EINVAL)?;
        let memory: Allowance = budget.take(SharedPages::bytes_taken(bytes) as u64)?;
        let pages = SharedPages::new(bytes)?;
        pages.keep(memory);
        let ring = Producer::new(words(&pages)?, size).map_err(to_error)?;
        Ok(Self { pages, ring })
    }

    /// The memory, for mapping.
    pub(super) fn pages(&self) -> &Arc<SharedPages> {
        &self.pages
    }

    /// The number of entries for which there is room.
    pub(super) fn size(&self) -> u32 {
        self.ring.size()
    }

    /// The number of entries that the program has not taken. Reads the head.
    pub(super) fn len(&mut self) -> u32 {
        // If the head is invalid, the last valid one counts.
        let _ = self.ring.observe();
        self.ring.queued()
    }

    /// Adds an entry. Returns whether there was room.
    pub(super) fn push(&mut self, entry: &Entry) -> bool {
        if self.ring.queued() >= self.ring.size() {
            let _ = self.ring.observe();
        }
        let (pages, size) = (&self.pages, self.ring.size());
        self.ring.push(|slot| {
            let stored = pages.write_words(offset(slot.into(), size), &entry.words());
            debug_assert!(stored.is_ok());
        })
    }

    /// Copies the next piece of the entries that the program has not taken, from number `from` on,
    /// to a ring that is not mapped yet. Returns whether it was the last piece: the other ring has
    /// them all then. Fails with `EINVAL` if more entries wait than have room there.
    pub(super) fn copy_piece(&mut self, from: &mut u64, to: &mut Self) -> Result<bool> {
        let waiting = u64::from(self.len());
        let (size, tail) = (to.ring.size(), self.ring.tail());
        if waiting > u64::from(size) {
            return Err(EINVAL);
        }
        let head = tail.wrapping_sub(waiting);
        // What the program has taken since need not be copied.
        let copied = from.wrapping_sub(head);
        let first = if copied > waiting { head } else { *from };
        let end = first.wrapping_add(PIECE.min(tail.wrapping_sub(first)));
        let mut number = first;
        while number != end {
            let entry: [u64; WORDS] = self.pages.read_words(offset(number, self.ring.size()))?;
            to.pages.write_words(offset(number, size), &entry)?;
            number = number.wrapping_add(1);
        }
        *from = end;
        if end != tail {
            return Ok(false);
        }
        to.ring = Producer::holding(words(&to.pages)?, size, head, tail).map_err(to_error)?;
        Ok(true)
    }
}

/// The byte at which entry `number` of a ring of `size` entries, a power of two, is in its memory.
fn offset(number: u64, size: u32) -> usize {
    // CAST: The mask leaves at most 32 bits.
    let slot = (number & u64::from(size.wrapping_sub(1))) as usize;
    size_of::<kfabric_ib_cq_ring>() + slot * size_of::<kfabric_ib_cqe>()
}

/// The words of a ring. Programs do not use the reserved ones.
fn words(pages: &Arc<SharedPages>) -> Result<Words<SharedWord>> {
    let word = |offset| pages.word(offset).ok_or(EINVAL);
    let reserved =
        |number: usize| word(offset_of!(kfabric_ib_cq_ring, reserved) + number * size_of::<u64>());
    Ok(Words {
        tail: word(offset_of!(kfabric_ib_cq_ring, tail))?,
        head: word(offset_of!(kfabric_ib_cq_ring, head))?,
        errors: reserved(0)?,
        overruns: reserved(1)?,
        reported: reserved(2)?,
    })
}
