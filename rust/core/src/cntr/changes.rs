// SPDX-License-Identifier: GPL-2.0

//! The changes of a counter other than adds that stay below its maximum: a set, a change of the
//! error value, and a wrap. [`crate::cntr`] describes the algorithm.
//!
//! # Two locks
//!
//! [`Changes`] is under a lock of its own, the lock of the changes. It is held for a few
//! instructions, and may be taken in interrupts. The lock of the waiters is taken before it, never
//! after it. A caller that may not take the lock of the waiters changes a value under the lock of
//! the changes alone. A task that may take it releases the waiters soon after
//! ([`Waiters::release_changes`]).
//!
//! [`Changes`] notes the highest values that the changes have found or made. Changes exclude each
//! other, so a change that lowers a value notes what earlier adds and changes have reached. A
//! holder of the waiters' lock takes the notes and releases the waiters with them.
//!
//! # No waiter is released for a change before it
//!
//! A change has a number, which is written before the value. A thread that knows of the change has
//! seen its value, so it sees its number, too. It releases the waiters of the change before it arms
//! a waiter, so the notes of the change do not apply to that waiter.

use super::{
    values::{
        AddOutcome,
        CounterValues,
        ThresholdReached, //
    },
    waiters::{
        Seen,
        WaitStart, //
    },
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    word::Word, //
};

#[cfg(doc)]
use super::Waiters;

/// The changes of a counter. There is one for each [`CounterValues`]; each call must be given the
/// same values.
///
/// A caller that does not hold the lock of the waiters has a task call [`Waiters::release_changes`]
/// and then [`Waiters::fire`] of [`ThresholdReached::of_unlocked`] soon.
///
/// Context: under the lock of the changes, which may be taken in interrupts. O(1).
#[derive(Default)]
pub struct Changes {
    left: Unreleased,
}

/// What changes have reached whose waiters and works were not released yet.
#[must_use = "the waiters that are due are not released otherwise"]
#[derive(Default)]
pub(super) struct Unreleased {
    /// The number of the last change so far.
    pub(super) writes: u64,
    /// The highest success value.
    pub(super) value: u64,
    /// The highest sum of the values.
    pub(super) sum: u64,
    /// The number of the last change of the error value; 0 for none.
    pub(super) err: u64,
}

impl Changes {
    /// Makes the changes of a new counter.
    pub const fn new() -> Self {
        Self {
            left: Unreleased {
                writes: 0,
                value: 0,
                sum: 0,
                err: 0,
            },
        }
    }

    /// Sets the success value (kfi_cntr_set).
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set(&mut self, values: &CounterValues<impl Word, impl Word>, value: u64) -> Result {
        if value > values.max() {
            return Err(Errno::EINVAL);
        }
        Self::begin(values);
        // ORDERING: fully ordered. Every earlier add is seen, and what it made due is noted here,
        // whatever its adder finds later. Ordered before the next access of the caller, like an
        // add.
        let top = values.value.swap(value).max(value);
        self.note(top, top.saturating_add(values.err.load()));
        Ok(())
    }

    /// Adds to the error value (kfi_cntr_adderr, and each failed operation). The value wraps to 0
    /// after its maximum. Returns whether the value changed; an add of 0 or of a full cycle does
    /// not change it.
    pub fn add_err(&mut self, values: &CounterValues<impl Word, impl Word>, n: u64) -> bool {
        let (err, _) = values.sum(values.err.load(), n);
        self.write_err(values, err)
    }

    /// Sets the error value (kfi_cntr_seterr). Returns whether the error value changed.
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        err: u64,
    ) -> Result<bool> {
        if err > values.max() {
            return Err(Errno::EINVAL);
        }
        Ok(self.write_err(values, err))
    }

    fn write_err(&mut self, values: &CounterValues<impl Word, impl Word>, err: u64) -> bool {
        let old = values.err.load();
        if err == old {
            return false;
        }
        self.left.err = Self::begin(values);
        // ORDERING: fully ordered: a reader of the error value sees all earlier accesses, and the
        // error value is written before the success value is read. So an add before this change is
        // counted with the old error value.
        values.err.swap(err);
        self.note(0, values.read().saturating_add(err.max(old)));
        true
    }

    /// Notes that an add of a caller that does not take the lock of the waiters has passed the
    /// maximum, and executes it if it was [left](CounterValues::add) to the lock. Does nothing if
    /// the add has only reached a threshold.
    pub fn pass(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        reached: &ThresholdReached,
    ) {
        let to_add = match reached.0 {
            AddOutcome::Reached => return,
            AddOutcome::Wrapped => None,
            AddOutcome::ToAdd(n) => Some(n),
        };
        Self::begin(values);
        if to_add.is_none_or(|n| values.add_modulo(n)) {
            // The value passed all thresholds that a counter with this maximum can reach.
            let max = values.max();
            self.note(max, max.saturating_add(values.err.load()));
        }
    }

    /// Takes what was not released. The caller holds the lock of the waiters, and releases it under
    /// the same hold.
    pub(super) fn take(&mut self, values: &CounterValues<impl Word, impl Word>) -> Unreleased {
        self.left.writes = values.writes.load();
        core::mem::take(&mut self.left)
    }

    /// Records that a thread enters a wait. Every change of the error value from now on ends the
    /// wait, even before the thread has armed.
    pub fn entered(&self, values: &CounterValues<impl Word, impl Word>) -> WaitStart {
        WaitStart(values.writes.load())
    }

    /// Returns a snapshot of the counter.
    pub fn seen(&self, values: &CounterValues<impl Word, impl Word>) -> Seen {
        values.seen()
    }

    /// Begins a change that the counter's values allow. Returns its number, from 1.
    fn begin(values: &CounterValues<impl Word, impl Word>) -> u64 {
        let number = values.writes.load().wrapping_add(1);
        // ORDERING: none needed. The write of the value, which follows, is fully ordered. A wrap of
        // the full width has written it before: see `crate::cntr`.
        values.writes.store(number);
        number
    }

    fn note(&mut self, value: u64, sum: u64) {
        self.left.value = self.left.value.max(value);
        self.left.sum = self.left.sum.max(sum);
    }
}
