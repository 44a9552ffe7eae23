// SPDX-License-Identifier: GPL-2.0

//! Drain: admits operations until it is shut, and counts the operations that are inside.
//!
//! Every operation that accesses an endpoint or a memory region enters its drain, from any process.
//! [`Drain::enter`] and leaving are one atomic operation each. Closing an object has two steps:
//!
//! - [`Drain::shut`] admits no further operation. It does not wait.
//! - [`Drain::wait`] sleeps until all operations have left, so that a close does not return while
//!   bytes are placed in the owner's memory. A fatal signal ends it, unless the caller is a kernel
//!   consumer.
//!
//! An object that grants access anew opens its drain again after that ([`Drain::reopen`]).
//!
//! An operation that is inside can belong to a task that is not scheduled for a long time. So only
//! a close by the owner waits, and that of a program only until it is killed. A close by force
//! shuts and does not wait: see [`Object`](super::object::Object).

#[cfg(kfi_kunit)]
#[path = "../../../kunit/drain.rs"]
mod kunit;

use kfi_core::word::Word;

use super::prelude::*;
use crate::shim::{
    wait::Signals,
    word::AtomicWord, //
};

/// A gate that operations enter and leave.
///
/// # Invariants
///
/// The low bits of `state` count the operations inside. [`Drain::SHUT`] is set while none may
/// enter: before [`Drain::start`], and after [`Drain::shut`] until [`Drain::reopen`].
#[pin_data]
pub(crate) struct Drain {
    state: AtomicWord,
    #[pin]
    empty: WaitQueue,
}

impl Drain {
    const SHUT: u64 = 1 << 62;

    /// Makes a drain that admits no operation before [`Drain::start`].
    pub(crate) fn new_shut() -> impl PinInit<Self> {
        // INVARIANT: No operation is inside, shut.
        pin_init!(Self {
            state: AtomicWord::new(Self::SHUT),
            empty <- new_wait_queue!("Drain::empty"),
        })
    }

    /// Makes an open drain.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: No operation is inside, open.
        pin_init!(Self {
            state: AtomicWord::new(0),
            empty <- new_wait_queue!("Drain::empty"),
        })
    }

    /// Opens it. Called once, and not after [`Drain::shut`].
    pub(crate) fn start(&self) {
        let _ = self.state.fetch_add(Self::SHUT.wrapping_neg());
    }

    /// Opens it again. Only the caller whose [`shut`](Self::shut) has shut it calls this, once, and
    /// makes sure that no other task is in [`wait`](Self::wait). Any context.
    pub(crate) fn reopen(&self) {
        // INVARIANT: It is shut, so this clears the bit. The count does not change.
        self.start();
    }

    /// Enters, if it is open. Dropping the result leaves.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<DrainGuard<'_>> {
        // A task that finds it shut does not change the state. So `wait` waits only for tasks that
        // began to enter before the shut, however many others try.
        if !self.is_open() {
            return None;
        }
        if self.state.fetch_add(1) & Self::SHUT != 0 {
            self.leave();
            return None;
        }
        Some(DrainGuard { drain: self })
    }

    #[inline]
    fn leave(&self) {
        // The last operation that leaves a shut drain wakes the tasks in `wait`.
        if self.state.fetch_add(u64::MAX) == Self::SHUT + 1 {
            self.emptied();
        }
    }

    #[cold]
    fn emptied(&self) {
        self.empty.wake_all();
    }

    /// Shuts it: no further operation enters. Returns whether it was open. Does not sleep.
    pub(crate) fn shut(&self) -> bool {
        let mut seen = self.state.load();
        loop {
            if seen & Self::SHUT != 0 {
                return false;
            }
            // INVARIANT: Shut. The count does not change.
            match self.state.compare_exchange(seen, seen | Self::SHUT) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Waits until all operations have left. It has been shut. Fails with `EINTR` if a signal ends
    /// the wait. Sleeps.
    pub(crate) fn wait(&self, signals: Signals) -> Result {
        let is_empty = || {
            // Tasks that `enter` turns away are counted for a short time and leave like others.
            // Acquire: all accesses of the operations inside are done.
            self.state.load_acquire() == Self::SHUT
        };
        self.empty.wait_for(signals, is_empty).map_err(|_| EINTR)
    }

    /// Whether it admits operations.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load() & Self::SHUT == 0
    }
}

/// An object that has a drain.
pub(crate) trait Drained {
    /// The drain. Any context.
    fn drain(&self) -> &Drain;
}

/// One operation inside the [`Drain`] of an object, to which it has a reference.
///
/// # Invariants
///
/// The operation is counted in the drain.
pub(crate) struct Inside<T: Drained>(Arc<T>);

impl<T: Drained> Inside<T> {
    /// Enters the drain of `object`, if it is open. Dropping the result leaves, and then drops the
    /// reference. Any context.
    pub(crate) fn enter(object: Arc<T>) -> Option<Self> {
        // INVARIANT: The guard has entered, and does not leave.
        core::mem::forget(object.drain().enter()?);
        Some(Self(object))
    }
}

impl<T: Drained> Drop for Inside<T> {
    fn drop(&mut self) {
        self.0.drain().leave();
    }
}

/// One operation inside a [`Drain`].
pub(crate) struct DrainGuard<'a> {
    drain: &'a Drain,
}

impl Drop for DrainGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.drain.leave();
    }
}
