// SPDX-License-Identifier: GPL-2.0

//! The part of a counter under the lock: the waiters, their conditions and their order.
//! [`crate::cntr`] describes the algorithm.

use super::{
    values::{
        AddOutcome,
        CounterValues,
        ThresholdReached,
        NO_WAITER, //
    },
    work::{
        Compared,
        NoWork,
        WorkMap,
        Works, //
    }, //
};
use crate::{
    due::{
        Due,
        DueMap,
        Key, //
    },
    errno::{
        Errno,
        Result, //
    },
    word::Word, //
};

/// A snapshot of a counter: its values, and the number of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Success value.
    pub value: u64,
    /// Error value.
    pub err: u64,
    writes: u64,
}

/// The number of changes of the error value at the time when a thread entered a wait
/// ([`Waiters::entered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStart(u64);

impl WaitStart {
    /// Returns the number for [`Self::again`]; not 0.
    pub fn number(self) -> u64 {
        // The number of changes never reaches 2^64.
        self.0.wrapping_add(1)
    }

    /// Continues an interrupted wait with the [`number`](Self::number) of its entry. Any other
    /// number can only end this wait, and at once.
    pub fn again(number: u64) -> Self {
        Self(number.wrapping_sub(1))
    }
}

/// The condition of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    /// The success value reaches this threshold, or the error value changes after the thread
    /// entered. A threshold above the counter's maximum is never reached.
    AtLeast(u64, WaitStart),
    /// The counter differs from this snapshot.
    AnyChange(Seen),
}

/// The reason for which a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition holds.
    Reached,
    /// The error value changed since the thread entered.
    ErrorChanged,
}

impl Outcome {
    /// Returns the result of kfi_cntr_wait(): KFI_EAVAIL for a changed error value.
    pub const fn into_result(self) -> Result {
        match self {
            Self::Reached => Ok(()),
            Self::ErrorChanged => Err(Errno::KFI_EAVAIL),
        }
    }
}

/// An armed waiter, for [`Waiters::disarm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    kind: WaitKind,
    key: Key,
}

/// The map that contains a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitKind {
    AtLeast,
    AnyChange,
}

/// The result of arming a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// The wait is over. The slot is returned.
    Over(Outcome, S),
    /// The thread sleeps until its token is released.
    Waiting(Waiter),
}

/// The waiters and the work of a counter. There is one for each [`CounterValues`]; each call must
/// be given the same values.
///
/// Context: under the counter's lock. A `release` argument is called under that lock for each
/// waiter to be woken, in the order in which they became due. Work that is due is in the list of
/// the [`WorkMap`] when a call returns.
pub struct Waiters<M: DueMap, W: WorkMap = NoWork> {
    at_least: Due<M>,
    /// The waiters for any change, keyed by the value in their snapshot.
    any_change: Due<M>,
    /// The number of set calls and of changes of the error value.
    writes: u64,
    /// The number of changes of the error value.
    err_changes: u64,
    works: Works<W>,
}

impl<M: DueMap> Waiters<M> {
    /// Makes an empty set of waiters, without work. Both maps must be empty.
    pub const fn new(at_least: M, any_change: M) -> Self {
        Self::with_work(at_least, any_change, NoWork)
    }
}

impl<M: DueMap, W: WorkMap> Waiters<M, W> {
    /// Makes an empty set of waiters and works. The maps must be empty.
    pub const fn with_work(at_least: M, any_change: M, works: W) -> Self {
        Self {
            at_least: Due::new(at_least),
            any_change: Due::new(any_change),
            writes: 0,
            err_changes: 0,
            works: Works::new(works),
        }
    }

    /// Returns the works.
    pub fn works(&self) -> &Works<W> {
        &self.works
    }

    /// Returns the works.
    pub fn works_mut(&mut self) -> &mut Works<W> {
        &mut self.works
    }

    /// Queues a work. If its threshold is reached, it is due when the call returns, after the works
    /// of this counter that were due before. Returns its key, and whether it waits. O(log n).
    ///
    /// Returns the slot while works are in the map whose thresholds were reached
    /// ([`WorkMap::leave_rest`]). The caller calls [`release_rest`](Self::release_rest) and tries
    /// again.
    pub fn queue(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        kind: Compared,
        threshold: u64,
        slot: W::Slot,
    ) -> core::result::Result<(Key, bool), W::Slot> {
        if self.works.has_rest() {
            return Err(slot);
        }
        let key = self.works.insert(kind, threshold, slot);
        // ORDERING: as in `arm`: `due` is written before the value is read.
        values.due.swap(self.bound(values));
        let waits = !Works::<W>::is_reached(kind, threshold, values);
        if !waits {
            self.release_work(values, values.read());
            self.update_due(values);
        }
        Ok((key, waits))
    }

    /// Makes works due that the values reach, which an adder may be about to do, and returns
    /// whether a work with this threshold would be due at once. O(log n) for each.
    pub fn is_reached(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        kind: Compared,
        threshold: u64,
    ) -> bool {
        if !Works::<W>::is_reached(kind, threshold, values) {
            return false;
        }
        let waiting = self.works.len();
        self.release_work(values, values.read());
        if self.works.len() != waiting {
            self.update_due(values);
        }
        true
    }

    /// Removes a work that waits. Returns `None` if there is none with this key, because it was
    /// removed or is due. O(log n).
    pub fn cancel(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        kind: Compared,
        key: &Key,
    ) -> Option<W::Token> {
        let token = self.works.remove(kind, key)?;
        self.update_due(values);
        Some(token)
    }

    /// Notes that the caller has taken `count` works out of the map.
    pub fn taken(&mut self, values: &CounterValues<impl Word, impl Word>, count: u32) {
        self.works.forget(count);
        self.update_due(values);
    }

    /// Records that a thread enters a wait. Every change of the error value from now on ends the
    /// wait, even before the thread has armed.
    pub fn entered(&self) -> WaitStart {
        WaitStart(self.err_changes)
    }

    /// Returns whether the error value has changed since a thread entered.
    pub fn err_changed(&self, since: WaitStart) -> bool {
        since.0 != self.err_changes
    }

    /// Arms a waiter, unless its condition holds. O(log n).
    pub fn arm(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        cond: WaitCondition,
        slot: M::Slot,
    ) -> Armed<M::Slot> {
        let threshold = match cond {
            WaitCondition::AtLeast(threshold, _) => threshold,
            WaitCondition::AnyChange(seen) => beyond(seen.value),
        };
        // ORDERING: fully ordered: `due` is written before the value is read. An adder writes the
        // value before it reads `due`, so either it sees the threshold or its value is seen here.
        // This is done even if `due` already has a lower threshold; arming is not the fast path.
        values.due.swap(self.bound(values).min(due_of(threshold)));
        let over = match cond {
            WaitCondition::AtLeast(threshold, _) if values.read() >= threshold => {
                Some(Outcome::Reached)
            }
            WaitCondition::AtLeast(_, since) if self.err_changed(since) => {
                Some(Outcome::ErrorChanged)
            }
            WaitCondition::AnyChange(seen) if self.changed(values, &seen) => Some(Outcome::Reached),
            WaitCondition::AtLeast(..) | WaitCondition::AnyChange(_) => None,
        };
        if let Some(outcome) = over {
            self.update_due(values);
            return Armed::Over(outcome, slot);
        }
        let (kind, key) = match cond {
            WaitCondition::AtLeast(..) => {
                (WaitKind::AtLeast, self.at_least.insert(threshold, slot))
            }
            WaitCondition::AnyChange(seen) => (
                WaitKind::AnyChange,
                self.any_change.insert(seen.value, slot),
            ),
        };
        Armed::Waiting(Waiter { kind, key })
    }

    /// Removes a waiter after a timeout or a signal. Returns `None` if the waiter was released
    /// before; the outcome of the release counts then. O(log n).
    pub fn disarm(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        waiter: &Waiter,
    ) -> Option<M::Token> {
        let token = match waiter.kind {
            WaitKind::AtLeast => self.at_least.remove(&waiter.key),
            WaitKind::AnyChange => self.any_change.remove(&waiter.key),
        };
        self.update_due(values);
        token
    }

    /// Releases the waiters that are due after an add. O(log n) for each.
    // Always: each link of a chain of works comes here, and the calls cost as much as the rest.
    #[inline(always)]
    pub fn fire(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        reached: ThresholdReached,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        let wrapped = match reached.0 {
            AddOutcome::Reached => false,
            AddOutcome::Wrapped => true,
            AddOutcome::ToAdd(n) => values.add_modulo(n),
        };
        let reached = if wrapped {
            // The value passed all thresholds that a counter with this maximum can reach.
            self.writes = self.writes.wrapping_add(1);
            self.release_reached(values.max(), &mut release);
            self.release_any_change(&mut release);
            values.max()
        } else {
            // The value has not decreased since the add; otherwise a set has released the waiters
            // that were due.
            let value = values.read();
            self.release_reached(value, &mut release);
            // Releases all waiters with a smaller value in their snapshot. (No snapshot is smaller
            // than 0.)
            while let Some((_, token)) = value
                .checked_sub(1)
                .and_then(|less| self.any_change.pop_due(less))
            {
                release(token, Outcome::Reached);
            }
            value
        };
        let sum = reached.saturating_add(values.err.load());
        self.works.release(reached, sum);
        self.update_due(values);
    }

    /// Makes more of the works due whose thresholds are or were reached, after
    /// [`WorkMap::leave_rest`].
    pub fn release_rest(&mut self, values: &CounterValues<impl Word, impl Word>) {
        let (value, err) = (values.read(), values.err.load());
        self.works.release_rest(value, value.saturating_add(err));
        if !self.works.has_rest() {
            // ORDERING: as in `arm`: `due` is written before the value is read, because adders did
            // not come to the lock while works were left.
            values.due.swap(self.bound(values));
            let value = values.read();
            self.works.leave_rest(value, value.saturating_add(err));
        }
        self.update_due(values);
    }

    /// Sets the success value (kfi_cntr_set).
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        value: u64,
        mut release: impl FnMut(M::Token, Outcome),
    ) -> Result {
        if value > values.max() {
            return Err(Errno::EINVAL);
        }
        // ORDERING: an exchange, so that every earlier add is seen. The waiters that it made due
        // are released here, whatever its adder finds later. Ordered before the next access of the
        // caller, like an add.
        let old = values.value.swap(value);
        self.writes = self.writes.wrapping_add(1);
        self.release_reached(old.max(value), &mut release);
        self.release_any_change(&mut release);
        self.release_work(values, old.max(value));
        self.update_due(values);
        Ok(())
    }

    /// Adds to the error value (kfi_cntr_adderr, and each failed operation). The value wraps to 0
    /// after its maximum. Returns whether the value changed; an add of 0 or of a full cycle does
    /// not change it.
    pub fn add_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        n: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> bool {
        let old = values.err.load();
        let (err, _) = values.sum(old, n);
        if err == old {
            return false;
        }
        self.write_err(values, err, release);
        true
    }

    /// Sets the error value (kfi_cntr_seterr). Returns whether the error value changed.
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        err: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> Result<bool> {
        if err > values.max() {
            return Err(Errno::EINVAL);
        }
        if err == values.err.load() {
            return Ok(false);
        }
        self.write_err(values, err, release);
        Ok(true)
    }

    fn write_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        err: u64,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        let old = values.err.load();
        // ORDERING: release: a reader of the error value sees all earlier accesses. The lock
        // excludes other writers.
        values.err.store_release(err);
        self.writes = self.writes.wrapping_add(1);
        self.err_changes = self.err_changes.wrapping_add(1);
        // Success is checked before the error.
        self.release_reached(values.read(), &mut release);
        self.release_any_change(&mut release);
        while let Some((_, token)) = self.at_least.pop() {
            release(token, Outcome::ErrorChanged);
        }
        // ORDERING: fully ordered: a lower bound is written before the value is read, see `arm`.
        values.due.swap(self.bound(values));
        let value = values.read();
        self.works
            .release(value, value.saturating_add(err.max(old)));
        self.update_due(values);
    }

    /// Releases all waiters, because the counter is closed by force. The values do not change.
    pub fn release_all(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        mut release: impl FnMut(M::Token),
    ) {
        while let Some((_, token)) = self.at_least.pop() {
            release(token);
        }
        while let Some((_, token)) = self.any_change.pop() {
            release(token);
        }
        self.update_due(values);
    }

    /// Returns a snapshot of the counter.
    pub fn seen(&self, values: &CounterValues<impl Word, impl Word>) -> Seen {
        Seen {
            value: values.read(),
            err: values.read_err(),
            writes: self.writes,
        }
    }

    /// Returns whether the counter differs from a snapshot. poll(2) on the counter's file
    /// descriptor and poll sets use this.
    pub fn changed(&self, values: &CounterValues<impl Word, impl Word>, since: &Seen) -> bool {
        self.seen(values) != *since
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> u32 {
        self.at_least.len().wrapping_add(self.any_change.len())
    }

    /// Returns whether there is no waiter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lowest threshold of a waiter for *at least*.
    pub fn lowest(&self) -> Option<u64> {
        self.at_least.lowest()
    }

    fn release_reached(&mut self, reached: u64, release: &mut impl FnMut(M::Token, Outcome)) {
        while let Some((_, token)) = self.at_least.pop_due(reached) {
            release(token, Outcome::Reached);
        }
    }

    fn release_any_change(&mut self, release: &mut impl FnMut(M::Token, Outcome)) {
        while let Some((_, token)) = self.any_change.pop() {
            release(token, Outcome::Reached);
        }
    }

    /// Makes works due that a success value reaches with the present error value.
    #[inline(never)]
    fn release_work(&mut self, values: &CounterValues<impl Word, impl Word>, success: u64) {
        let err = values.err.load();
        self.works.release(success, success.saturating_add(err));
    }

    /// Returns the value of `due` for the present waiters and works.
    #[inline]
    fn bound(&self, values: &CounterValues<impl Word, impl Word>) -> u64 {
        let at_least = self.at_least.lowest().map_or(NO_WAITER, due_of);
        let waiters = match self.any_change.lowest() {
            None => at_least,
            Some(seen) => at_least.min(due_of(beyond(seen))),
        };
        waiters.min(self.works.bound(values.err.load()))
    }

    /// Updates `due` after a waiter was removed.
    fn update_due(&self, values: &CounterValues<impl Word, impl Word>) {
        // ORDERING: none needed. This raises `due`, at most to the lowest threshold; an adder that
        // still reads the lower value takes the lock in vain. Each waiter has written its own
        // threshold to `due` in `arm`.
        values.due.store(self.bound(values));
    }
}

/// Returns the representation of a threshold in `due`, where the largest value means that there is
/// no waiter.
#[inline]
fn due_of(threshold: u64) -> u64 {
    threshold.min(NO_WAITER.wrapping_sub(1))
}

/// Returns the lowest threshold that any increase of this value reaches. There is none above 2^64 -
/// 1, but `due` never has that value: an add to it takes the lock.
fn beyond(seen: u64) -> u64 {
    seen.saturating_add(1)
}

#[cfg(any(test, kfi_kunit))]
mod tests;
