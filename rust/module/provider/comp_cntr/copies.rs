// SPDX-License-Identifier: GPL-2.0

//! The copies of a completion counter's values in external memory.
//!
//! [`kfi_core::comp_cntr`] has the rule for writing them, and why the last value that is written is
//! the last value of the counter.
//!
//! # Locks
//!
//! `Copies::words` is a spin lock and a leaf: its holder reads one value and stores it. A task that
//! holds it is not preempted, so a copy does not lag behind because of a task that is not
//! scheduled.

use kfi_core::{
    comp_cntr::ExternalValues,
    enums::CompCntrEntry, //
};

use crate::{
    mem::PinnedWord,
    provider::prelude::*, //
};

/// The copies, until they are released.
#[pin_data]
pub(super) struct Copies {
    #[pin]
    words: SpinLock<Option<ExternalValues<PinnedWord>>>,
}

impl Copies {
    /// Writes 0 to both words.
    pub(super) fn new(comp: PinnedWord, err: PinnedWord) -> impl PinInit<Self> {
        let words = ExternalValues::new(comp, err);
        pin_init!(Self {
            words <- new_spinlock!(Some(words), "Copies::words"),
        })
    }

    /// Writes the copy of a value that was changed before the call; `value` reads it. Does nothing
    /// after [`release`](Self::release). Does not sleep.
    #[inline]
    pub(super) fn write(&self, entry: CompCntrEntry, value: impl FnOnce() -> u64) {
        if let Some(words) = &mut *self.words.lock() {
            words.write(entry, value);
        }
    }

    /// Releases the memory. It is not written afterwards. Idempotent. Sleeps.
    pub(super) fn release(&self) {
        let words = self.words.lock().take();
        // This unpins pages, so it is not done under the lock.
        drop(words);
    }
}
