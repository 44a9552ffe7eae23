// SPDX-License-Identifier: GPL-2.0

//! Words of a program's memory that the module writes: the copies of a completion counter's values.
//!
//! A [`PinnedWord`] is one aligned 64-bit word, in a page of the program or in a DMA-BUF. It keeps
//! the memory in place and valid, whatever becomes of the program's mapping, its descriptor or the
//! program itself: a page is pinned and charged to `RLIMIT_MEMLOCK`; a DMA-BUF is referenced,
//! mapped, and open for access by the CPU. The word can be written in any context.
//!
//! The program can write to the word, so its value means nothing to the module and is never read.

use core::ptr::NonNull;

use kernel::prelude::*;

use kfi_core::{
    comp_cntr::ExternalWord,
    word::Word, //
};

use super::{
    dma_buf::DmaBuf,
    memref::MemRef,
    payload,
    pinned::{
        Access,
        Pinned,
        UserRange, //
    },
    Allowance,
    Budget, //
};
use crate::shim::word::AtomicWord;

/// Bytes of a word.
const LEN: usize = size_of::<u64>();

/// A word of a program's memory.
///
/// **Dropping may sleep**: do it in process context, with no spin lock held.
///
/// # Invariants
///
/// `word` is aligned and lies in `memory`, which is valid for writes.
pub(crate) struct PinnedWord {
    word: NonNull<u64>,
    _memory: MemRef,
    /// The charge for the mapping of a DMA-BUF.
    _mapping: Option<Allowance>,
}

// SAFETY: The word is only stored to, atomically, and any task may release its memory.
unsafe impl Send for PinnedWord {}

// SAFETY: As above.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// Pins the word at `addr` of the current process. Process context, of the process whose memory
    /// it is; may sleep. Fails with `EINVAL` if the address is 0 or not a multiple of 8; `EFAULT`
    /// if it is not mapped for writing; `ENOMEM`, also if `RLIMIT_MEMLOCK` would be exceeded;
    /// `EINTR` if the process is being killed.
    pub(crate) fn at(addr: u64) -> Result<Self> {
        if addr == 0 || addr % LEN as u64 != 0 {
            return Err(EINVAL);
        }
        let range = UserRange {
            addr,
            len: LEN as u64,
        };
        let pinned = Pinned::new(&[range], Access::Write)?;
        Self::new(MemRef::pinned(pinned), None)
    }

    /// Maps the word at byte `offset` of the DMA-BUF of descriptor `fd` of the current process, and
    /// charges the mapping to `budget`. Process context; may sleep. Fails with `EBADF` if the
    /// descriptor is not open; `EINVAL` if it is none of a DMA-BUF, or the offset is not a multiple
    /// of 8 or outside the DMA-BUF; `EACCES` if the DMA-BUF may not be written; `EOPNOTSUPP` if it
    /// cannot be mapped; an error of the exporter; `ENOMEM`.
    pub(crate) fn in_dma_buf(fd: i32, offset: u64, budget: &Budget) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| EINVAL)?;
        if offset % LEN != 0 {
            return Err(EINVAL);
        }
        let (dma_buf, mapping) = DmaBuf::of_fd(fd, offset, LEN, Access::Write, budget)?;
        Self::new(dma_buf.open(0, LEN, Access::Write)?, Some(mapping))
    }

    /// A word of memory that is open for writing. Fails with `EINVAL` if it is not one aligned
    /// word.
    pub(crate) fn new(memory: MemRef, mapping: Option<Allowance>) -> Result<Self> {
        let word: *const AtomicWord = payload::word(&memory).ok_or(EINVAL)?;
        // INVARIANT: `payload::word` returns an aligned word of the memory, which is writable.
        Ok(Self {
            word: NonNull::new(word.cast_mut().cast()).ok_or(EINVAL)?,
            _memory: memory,
            _mapping: mapping,
        })
    }

    /// Whether both are the same word in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl ExternalWord for PinnedWord {
    #[inline]
    fn store_release(&self, value: u64) {
        // SAFETY: By the type invariants the word is valid and aligned while `self` lives. The
        // module accesses it by this store only; a program or a device accesses an aligned word as
        // a whole, and any value is valid.
        let word = unsafe { AtomicWord::from_ptr(self.word.as_ptr()) };
        word.store_release(value);
    }
}
