// SPDX-License-Identifier: GPL-2.0

//! Rundown: admits operations until it is shut, and counts those that are inside.
//!
//! An endpoint and a memory region are entered by every operation that touches them, from any
//! process. [`Rundown::enter`] is one atomic operation, leaving is one. Closing an object has two
//! steps:
//!
//! - [`Rundown::shut`] lets no operation in any more. It does not wait.
//! - [`Rundown::wait`] sleeps until all operations have left, so that a close does not return while
//!   bytes are placed in the owner's memory. A fatal signal ends it.
//!
//! An operation that is inside can belong to a task that is not scheduled for a long time. So only
//! a close that its owner has asked for waits, and only until its owner is killed. A close by force
//! shuts, and does not wait: see [`Object`](super::object::Object).

#[cfg(kfi_kunit)]
#[path = "../../../kunit/rundown.rs"]
mod kunit;

use kernel::prelude::*;

use kfi_core::word::Word;

use crate::shim::{
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
    word::AtomicWord, //
};

/// See the module's story.
///
/// # Invariants
///
/// The low bits of `state` count who is inside; [`Rundown::SHUT`] is set as long as nobody may
/// enter: before [`Rundown::start`] and for ever after [`Rundown::shut`].
#[pin_data]
pub(crate) struct Rundown {
    state: AtomicWord,
    #[pin]
    empty: WaitQueue,
}

impl Rundown {
    const SHUT: u64 = 1 << 62;

    /// A rundown that lets nobody in before [`Rundown::start`].
    pub(crate) fn new_shut() -> impl PinInit<Self> {
        // INVARIANT: Nobody inside, shut.
        pin_init!(Self {
            state: AtomicWord::new(Self::SHUT),
            empty <- new_wait_queue!("Rundown::empty"),
        })
    }

    /// A rundown that is open.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: Nobody inside, open.
        pin_init!(Self {
            state: AtomicWord::new(0),
            empty <- new_wait_queue!("Rundown::empty"),
        })
    }

    /// Opens it. To be called once, and not after [`Rundown::shut`].
    pub(crate) fn start(&self) {
        let _ = self.state.fetch_add(Self::SHUT.wrapping_neg());
    }

    /// Enters, if it is open. Leaves when the result is dropped.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        // Who finds it shut leaves no trace. So however many tasks try again and again, `wait` waits
        // only for those that had begun to enter before.
        if !self.is_open() {
            return None;
        }
        if self.state.fetch_add(1) & Self::SHUT != 0 {
            self.leave();
            return None;
        }
        Some(Inside { rundown: self })
    }

    #[inline]
    fn leave(&self) {
        // The last one to leave a shut rundown wakes whoever waits for that.
        if self.state.fetch_add(u64::MAX) == Self::SHUT + 1 {
            self.emptied();
        }
    }

    #[cold]
    fn emptied(&self) {
        self.empty.wake_all();
    }

    /// Shuts it: nobody enters any more. Returns whether it was open. Does not sleep.
    pub(crate) fn shut(&self) -> bool {
        let mut seen = self.state.load();
        loop {
            if seen & Self::SHUT != 0 {
                return false;
            }
            // INVARIANT: Shut, for ever. The count stays.
            match self.state.compare_exchange(seen, seen | Self::SHUT) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Waits until everybody has left it, which has been shut. `EINTR` the current task is being
    /// killed. Sleeps.
    pub(crate) fn wait(&self) -> Result {
        let is_empty = || {
            // Those who were turned away in `enter` count for a moment, and leave like others.
            // Acquire: what they did inside is done.
            self.state.load_acquire() == Self::SHUT
        };
        self.empty.wait_killable(is_empty).map_err(|_| EINTR)
    }

    /// Whether it lets work in.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load() & Self::SHUT == 0
    }
}

/// Being inside a [`Rundown`].
pub(crate) struct Inside<'a> {
    rundown: &'a Rundown,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.rundown.leave();
    }
}
