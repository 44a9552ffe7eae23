// SPDX-License-Identifier: GPL-2.0

//! Rundown: lets work pass until it is stopped, then waits until the last of it is through.
//!
//! An endpoint and a memory region are entered by every operation that touches them, from any
//! process. Closing must not return while such an operation still places bytes in the owner's
//! memory, and must keep new ones out. [`Rundown::enter`] is one atomic operation, leaving is one;
//! [`Rundown::stop`] sleeps until everybody has left.

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
/// enter: before [`Rundown::start`] and for ever after [`Rundown::stop`].
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

    /// Opens it. To be called once, and not after [`Rundown::stop`].
    pub(crate) fn start(&self) {
        let _ = self.state.fetch_add(Self::SHUT.wrapping_neg());
    }

    /// Enters, if it is open. Leaves when the result is dropped.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        // Who finds it shut leaves no trace. So however many knock and knock again, `stop` waits
        // for those only who had begun to enter when it shut it.
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
        // The last one to leave a shut rundown wakes whoever waits in `stop`.
        if self.state.fetch_add(u64::MAX) == Self::SHUT + 1 {
            self.emptied();
        }
    }

    #[cold]
    fn emptied(&self) {
        self.empty.wake_all();
    }

    /// Shuts it and waits until everybody has left; not interruptible, because work inside is
    /// bounded by the copying of one message. Returns whether it was open.
    pub(crate) fn stop(&self) -> bool {
        let mut seen = self.state.load();
        loop {
            if seen & Self::SHUT != 0 {
                break;
            }
            match self.state.compare_exchange(seen, seen | Self::SHUT) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        let was_open = seen & Self::SHUT == 0;
        self.empty.wait_uninterruptible(|| {
            // Those who were turned away in `enter` count for a moment, and leave like others.
            // Acquire: what they did inside is done.
            self.state.load_acquire() == Self::SHUT
        });
        was_open
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
