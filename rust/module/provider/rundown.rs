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

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    }, //
};

use crate::shim::wait::{
    new_wait_queue,
    WaitQueue, //
};

/// See the module's story.
///
/// # Invariants
///
/// The low bits of `state` count who is inside; [`Rundown::SHUT`] is set as long as nobody may
/// enter: before [`Rundown::start`] and for ever after [`Rundown::stop`].
#[pin_data]
pub(crate) struct Rundown {
    state: Atomic<i64>,
    #[pin]
    empty: WaitQueue,
}

impl Rundown {
    const SHUT: i64 = 1 << 62;

    /// A rundown that lets nobody in before [`Rundown::start`].
    pub(crate) fn new_shut() -> impl PinInit<Self> {
        // INVARIANT: Nobody inside, shut.
        pin_init!(Self {
            state: Atomic::new(Self::SHUT),
            empty <- new_wait_queue!("Rundown::empty"),
        })
    }

    /// A rundown that is open.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: Nobody inside, open.
        pin_init!(Self {
            state: Atomic::new(0),
            empty <- new_wait_queue!("Rundown::empty"),
        })
    }

    /// Opens it. To be called once, and not after [`Rundown::stop`].
    pub(crate) fn start(&self) {
        let _ = self.state.fetch_sub(Self::SHUT, Full);
    }

    /// Enters, if it is open. Leaves when the result is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        // Who finds it shut leaves no trace. So however many knock and knock again, `stop` waits
        // for those only who had begun to enter when it shut it.
        if !self.is_open() {
            return None;
        }
        if self.state.fetch_add(1, Full) & Self::SHUT != 0 {
            self.leave();
            return None;
        }
        Some(Inside { rundown: self })
    }

    #[inline]
    fn leave(&self) {
        // The last one to leave a shut rundown wakes whoever waits in `stop`.
        if self.state.fetch_sub(1, Full) == Self::SHUT + 1 {
            self.empty.wake_all();
        }
    }

    /// Shuts it and waits until everybody has left; not interruptible, because work inside is
    /// bounded by the copying of one message. Returns whether it was open.
    pub(crate) fn stop(&self) -> bool {
        let mut seen = self.state.load(Relaxed);
        loop {
            if seen & Self::SHUT != 0 {
                break;
            }
            match self.state.cmpxchg(seen, seen | Self::SHUT, Full) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        let was_open = seen & Self::SHUT == 0;
        self.empty.wait_uninterruptible(|| {
            // Those who were turned away in `enter` count for a moment, and leave like others.
            // Acquire: what they did inside is done.
            self.state.load(Acquire) == Self::SHUT
        });
        was_open
    }

    /// Whether it lets work in.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Relaxed) & Self::SHUT == 0
    }
}

/// Being inside a [`Rundown`].
pub(crate) struct Inside<'a> {
    rundown: &'a Rundown,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.rundown.leave();
    }
}
