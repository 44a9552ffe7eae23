// SPDX-License-Identifier: GPL-2.0

//! The part of a counter under the lock of the waiters: the waiters, their conditions and their
//! order.
//! [`crate::cntr`] describes the algorithm.

use super::{
    changes::{
        Changes,
        Unreleased, //
    },
    values::{
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
use core::ops::DerefMut;

/// A snapshot of a counter: its values, and the number of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Success value.
    pub value: u64,
    /// Error value.
    pub err: u64,
    pub(super) writes: u64,
}

/// The number of changes at the time when a thread entered a wait ([`Changes::entered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStart(pub(super) u64);

impl WaitStart {
    /// Returns the number for [`Self::again`]; not 0.
    pub fn number(self) -> u64 {
        // The number of changes never reaches 2^64.
        self.0.wrapping_add(1)
    }

    /// Continues an interrupted wait with the [`number`](Self::number) of its entry. A lower number
    /// can end this wait at once; with a higher one, the wait ignores changes before it armed.
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
/// Context: under the lock of the waiters. A `release` argument is called under that lock for each
/// waiter to be woken, in the order in which they became due. Work that is due is in the list of
/// the [`WorkMap`] when a call returns. A `changes` argument is the lock of the changes, or takes
/// it; `release` is called without it.
///
/// A caller that arms or removes a waiter or a work calls
/// [`release_changes`](Self::release_changes) before, under the same hold of the lock.
pub struct Waiters<M: DueMap, W: WorkMap = NoWork> {
    at_least: Due<M>,
    /// The waiters for any change, keyed by the value in their snapshot.
    any_change: Due<M>,
    /// The number of the last change whose waiters were released.
    released_change: u64,
    /// The number of the last of these that changed the error value.
    err_change: u64,
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
            released_change: 0,
            err_change: 0,
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
        let reached = values.with_sum();
        let waits = threshold > kind.of(reached);
        if !waits {
            self.works.release(reached.0, reached.1);
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
        let reached = values.with_sum();
        if threshold > kind.of(reached) {
            return false;
        }
        let waiting = self.works.len();
        self.works.release(reached.0, reached.1);
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

    /// Returns whether the error value has changed since a thread entered, as far as the waiters of
    /// changes were [released](Self::release_changes).
    pub fn err_changed(&self, since: WaitStart) -> bool {
        since.0 < self.err_change
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
            WaitCondition::AnyChange(seen) if values.seen() != seen => Some(Outcome::Reached),
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
    pub fn fire<G: DerefMut<Target = Changes>>(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        reached: ThresholdReached,
        changes: impl FnOnce() -> G,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        if reached.is_change() {
            let pass = |changes: &mut Changes| changes.pass(values, &reached);
            return self.change(values, changes(), pass, release);
        }
        // If the value has decreased since the add, a change has noted the waiters that were due.
        let value = values.read();
        self.release_reached(value, &mut release);
        // Releases all waiters with a smaller value in their snapshot. (No snapshot is smaller than
        // 0.)
        while let Some((_, token)) = value
            .checked_sub(1)
            .and_then(|less| self.any_change.pop_due(less))
        {
            release(token, Outcome::Reached);
        }
        if !self.works.is_empty() {
            let (value, sum) = values.with_sum();
            self.works.release(value, sum);
        }
        self.update_due(values);
    }

    /// Makes more of the works due whose thresholds are or were reached, after
    /// [`WorkMap::leave_rest`].
    pub fn release_rest(&mut self, values: &CounterValues<impl Word, impl Word>) {
        let (value, sum) = values.with_sum();
        self.works.release_rest(value, sum);
        if !self.works.has_rest() {
            // ORDERING: as in `arm`: `due` is written before the value is read, because adders did
            // not come to the lock while works were left.
            values.due.swap(self.bound(values));
            let (value, sum) = values.with_sum();
            self.works.leave_rest(value, sum);
        }
        self.update_due(values);
    }

    /// Sets the success value (kfi_cntr_set).
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        changes: impl DerefMut<Target = Changes>,
        value: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> Result {
        let set = |changes: &mut Changes| changes.set(values, value);
        self.change(values, changes, set, release)
    }

    /// Adds to the error value, as [`Changes::add_err`].
    pub fn add_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        changes: impl DerefMut<Target = Changes>,
        n: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> bool {
        let add = |changes: &mut Changes| changes.add_err(values, n);
        self.change(values, changes, add, release)
    }

    /// Sets the error value (kfi_cntr_seterr). Returns whether the error value changed.
    ///
    /// Errors: EINVAL if the value is above the counter's maximum; nothing is changed.
    pub fn set_err(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        changes: impl DerefMut<Target = Changes>,
        err: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> Result<bool> {
        let set = |changes: &mut Changes| changes.set_err(values, err);
        self.change(values, changes, set, release)
    }

    /// Makes a change, and releases what it and earlier changes have reached.
    #[inline(never)]
    fn change<R>(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        mut changes: impl DerefMut<Target = Changes>,
        change: impl FnOnce(&mut Changes) -> R,
        release: impl FnMut(M::Token, Outcome),
    ) -> R {
        let result = change(&mut changes);
        let left = changes.take(values);
        drop(changes);
        self.release(values, left, release);
        result
    }

    /// Returns whether all waiters and works that changes have reached were released. They were not
    /// if the task that made a change did not take the lock.
    #[inline]
    pub fn has_released_changes(&self, values: &CounterValues<impl Word, impl Word>) -> bool {
        // ORDERING: acquire: if the waiters of the changes were released, the values that are read
        // next are not older than the last one.
        self.released_change == values.writes.load_acquire()
    }

    /// Releases what changes without the lock of the waiters have reached, if there are any.
    pub fn release_changes<G: DerefMut<Target = Changes>>(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        changes: impl FnOnce() -> G,
        release: impl FnMut(M::Token, Outcome),
    ) {
        if !self.has_released_changes(values) {
            self.change(values, changes(), |_| (), release);
        }
    }

    /// Releases what changes have reached.
    fn release(
        &mut self,
        values: &CounterValues<impl Word, impl Word>,
        left: Unreleased,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        if left.writes == self.released_change {
            return;
        }
        self.released_change = left.writes;
        // ORDERING: fully ordered: after a change of the error value, a lower bound is written
        // before the value is read, see `arm`.
        values.due.swap(self.bound(values));
        let (value, sum) = values.with_sum();
        let value = left.value.max(value);
        // Success is checked before the error.
        self.release_reached(value, &mut release);
        while let Some((_, token)) = self.any_change.pop() {
            release(token, Outcome::Reached);
        }
        if left.err != 0 {
            self.err_change = left.err;
            while let Some((_, token)) = self.at_least.pop() {
                release(token, Outcome::ErrorChanged);
            }
        }
        self.works.release(value, left.sum.max(sum));
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
