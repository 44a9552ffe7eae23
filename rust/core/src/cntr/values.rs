// SPDX-License-Identifier: GPL-2.0

//! The lock-free part of a counter: its values and the lowest threshold. [`crate::cntr`] describes
//! the algorithm.

use super::waiters::Seen;
use crate::word::Word;

#[cfg(doc)]
use super::{
    Changes,
    Waiters, //
};

/// The value of `due` without a waiter. A threshold of the same value is represented by one less:
/// `due` may be below the lowest threshold, never above.
pub(super) const NO_WAITER: u64 = u64::MAX;

/// The values of a counter and the lowest threshold of its waiters.
///
/// `V` is a word that user space may map read-only; `D` is private to the module.
pub struct CounterValues<V: Word, D: Word> {
    pub(super) value: V,
    pub(super) err: V,
    pub(super) due: D,
    /// The number of [changes](Changes) so far. Written under their lock, before the value.
    pub(super) writes: D,
    max: u64,
}

/// The result of an add that reached a threshold, or that must be executed under the lock of the
/// changes. The caller passes it to [`Waiters::fire`].
#[must_use = "the waiters that are due are not released otherwise"]
#[derive(Debug, PartialEq, Eq)]
pub struct ThresholdReached(pub(super) AddOutcome);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddOutcome {
    /// The value reached `due`.
    Reached,
    /// The value wrapped past 2^64 - 1, which passes every threshold.
    Wrapped,
    /// This amount is still to be added, because it would wrap at the counter's maximum.
    ToAdd(u64),
}

impl ThresholdReached {
    /// Returns the result that stands for all adds and changes without the lock of the waiters, for
    /// the task that releases their waiters after [`Waiters::release_changes`].
    pub fn of_unlocked() -> Self {
        Self(AddOutcome::Reached)
    }

    /// Returns whether [`Changes::pass`] has something to do: the add has passed the maximum, or is
    /// still to be executed.
    pub fn is_change(&self) -> bool {
        self.0 != AddOutcome::Reached
    }
}

/// An add that [`CounterValues::begin_unlocked`] has begun.
#[must_use = "an add that is not below has not ended"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlockedAdd {
    /// The value has changed and is below every threshold: nothing is left to do.
    Below,
    /// The value has changed, and a threshold may be reached. The value before.
    Passed(u64),
    /// The counter has a maximum of its own, and the value has not changed yet.
    Bounded,
}

impl<V: Word, D: Word> CounterValues<V, D> {
    /// Makes a counter with the values (0, 0) that wraps after `max`. `max` 0 means 2^64 - 1, like
    /// `max_value` of KFABRIC_IOC_CNTR_OPEN. Writes all four words.
    pub fn new(value: V, err: V, [due, writes]: [D; 2], max: u64) -> Self {
        value.store(0);
        err.store(0);
        due.store(NO_WAITER);
        writes.store(0);
        Self {
            value,
            err,
            due,
            writes,
            max: if max == 0 { u64::MAX } else { max },
        }
    }

    /// Returns the largest value; the value after it is 0.
    #[inline]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the success value. Everything before the add of a value is visible after this read.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read(&self) -> u64 {
        self.value.load_acquire()
    }

    /// Returns the error value, with the same ordering.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read_err(&self) -> u64 {
        self.err.load_acquire()
    }

    /// Adds to the success value. The caller passes the result, usually `None`, to
    /// [`Waiters::fire`] under the lock of the waiters without delay.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn add(&self, n: u64) -> Option<ThresholdReached> {
        if self.max != u64::MAX {
            return self.add_bounded(n);
        }
        // ORDERING: fully ordered. A reader of the value sees everything before the add; and the
        // value is written before `due` is read, see `Waiters::arm` for the other side.
        let old = self.value.fetch_add(n);
        let due = self.due.load();
        // One compare covers all cases. If `due` is above the old value, the distance is `due -
        // old`, and a wrap exceeds it. If `due` is at or below the old value, another adder is
        // about to take the lock. This adder takes it too, because thresholds between both values
        // are not in `due` yet.
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::reached(old, n, due)
    }

    /// Does the part of [`Self::add`] that is always needed, for a caller that may be unable to
    /// take the lock. With any result but [`UnlockedAdd::Below`] the caller calls
    /// [`Self::finish_unlocked`] at once. It may keep that call out of its fast path.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn begin_unlocked(&self, n: u64) -> UnlockedAdd {
        if self.max != u64::MAX {
            return UnlockedAdd::Bounded;
        }
        // ORDERING: as in `add`.
        let old = self.value.fetch_add(n);
        if n < self.due.load().saturating_sub(old) {
            return UnlockedAdd::Below;
        }
        UnlockedAdd::Passed(old)
    }

    /// Ends what [`Self::begin_unlocked`] of `n` has begun, with the result of [`Self::add`]. A
    /// caller that cannot take the lock passes the result to [`Changes::pass`] without delay. The
    /// value has changed then.
    ///
    /// Context: any, no lock.
    pub fn finish_unlocked(&self, n: u64, begun: UnlockedAdd) -> Option<ThresholdReached> {
        match begun {
            UnlockedAdd::Below => None,
            // `due` may have changed since. A waiter that came reads the new value itself, and is
            // searched for in vain. If all waiters are gone, the lock has released them.
            UnlockedAdd::Passed(old) => Self::reached(old, n, self.due.load()),
            UnlockedAdd::Bounded => self.add_bounded(n),
        }
    }

    #[cold]
    fn reached(old: u64, n: u64, due: u64) -> Option<ThresholdReached> {
        // There was no waiter, and later waiters read the new value.
        if due == NO_WAITER || n == 0 {
            return None;
        }
        Some(ThresholdReached(match old.checked_add(n) {
            Some(_) => AddOutcome::Reached,
            None => AddOutcome::Wrapped,
        }))
    }

    /// Like [`Self::add`], but modulo `max + 1`: uses compare and exchange, and leaves a wrap to
    /// the lock. Kept out of the path of counters of the full width.
    #[cold]
    fn add_bounded(&self, n: u64) -> Option<ThresholdReached> {
        let mut old = self.value.load();
        loop {
            if n > self.max.wrapping_sub(old) {
                return Some(ThresholdReached(AddOutcome::ToAdd(n)));
            }
            // ORDERING: fully ordered, like `fetch_add` above.
            match self.value.compare_exchange(old, old.wrapping_add(n)) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        let due = self.due.load();
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::reached(old, n, due)
    }

    /// Returns the success value, and the sum of both values for the works that compare with it.
    ///
    /// A change that is in progress may be between the reads of the values, and their sum was never
    /// reached then. The sum is that of the success value alone in this case. It is enough: the
    /// change notes the sum that was reached before it, and is released later.
    #[inline]
    pub(super) fn with_sum(&self) -> (u64, u64) {
        // ORDERING: acquire: the values are read between two reads of the number, and a thread that
        // reads the value of a change also reads its number. So if the numbers are equal, at most
        // one change has written meanwhile, and to one of the values. The sum was reached before or
        // after it.
        let before = self.writes.load_acquire();
        let (value, err) = (self.read(), self.read_err());
        if self.writes.load() == before {
            (value, value.saturating_add(err))
        } else {
            (value, value)
        }
    }

    /// Returns the values and the number of changes. Under the lock of the changes it is a
    /// snapshot.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            value: self.read(),
            err: self.read_err(),
            writes: self.writes.load(),
        }
    }

    /// Adds modulo `max + 1`. Returns whether the value wrapped.
    pub(super) fn add_modulo(&self, n: u64) -> bool {
        let mut old = self.value.load();
        loop {
            let (new, wrapped) = self.sum(old, n);
            match self.value.compare_exchange(old, new) {
                Ok(_) => return wrapped,
                Err(now) => old = now,
            }
        }
    }

    /// Returns `old + n` modulo `max + 1`, and whether the sum wrapped. `old <= max`.
    pub(super) fn sum(&self, old: u64, n: u64) -> (u64, bool) {
        let room = self.max.wrapping_sub(old);
        if n <= room {
            return (old.wrapping_add(n), false);
        }
        // n > room: subtract the steps to the maximum and the one to 0.
        let rest = n.wrapping_sub(room).wrapping_sub(1);
        match self.max.checked_add(1) {
            Some(modulus) => (rest.checked_rem(modulus).unwrap_or(0), true),
            None => (rest, true),
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_cntr_values))]
mod tests {
    use super::{
        super::Changes,
        *, //
    };
    use crate::testing::Plain;

    fn values(max: u64, value: u64, due: u64) -> CounterValues<Plain, Plain> {
        let values = CounterValues::new(
            Plain::new(8),
            Plain::new(8),
            [Plain::new(8), Plain::new(8)],
            max,
        );
        assert_eq!(
            (values.read(), values.read_err(), values.due.load()),
            (0, 0, NO_WAITER)
        );
        values.value.store(value);
        values.due.store(due);
        values
    }

    const REACHED: Option<ThresholdReached> = Some(ThresholdReached(AddOutcome::Reached));
    const WRAPPED: Option<ThresholdReached> = Some(ThresholdReached(AddOutcome::Wrapped));

    #[test]
    fn an_add_below_due_needs_no_lock() {
        let values = values(0, 0, 3);
        assert_eq!(values.max(), u64::MAX);
        assert_eq!(values.add(1), None);
        assert_eq!(values.add(1), None);
        assert_eq!(values.add(1), REACHED);
        assert_eq!(values.read(), 3);
        // The value is above `due`, which was not raised yet.
        assert_eq!(values.add(1), REACHED);
        assert_eq!(values.add(0), None);
    }

    #[test]
    fn the_full_width_wraps() {
        let past = values(0, u64::MAX - 1, u64::MAX - 1);
        assert_eq!(past.add(3), WRAPPED);
        assert_eq!(past.read(), 1);
        let up_to = values(0, 5, u64::MAX - 1);
        assert_eq!(up_to.add(u64::MAX - 5), REACHED);
        assert_eq!(up_to.read(), u64::MAX);
        let all = values(0, u64::MAX, u64::MAX - 1);
        assert_eq!(all.add(u64::MAX), WRAPPED);
        assert_eq!(all.read(), u64::MAX - 1);
    }

    #[test]
    fn the_value_for_no_waiter_is_never_due() {
        let values = values(0, u64::MAX - 1, NO_WAITER);
        assert_eq!(values.add(1), None);
        assert_eq!(values.add(1), None);
        assert_eq!(values.read(), 0);
        assert_eq!(values.add(u64::MAX), None);
        assert_eq!(values.add(u64::MAX), None);
        assert_eq!(values.read(), u64::MAX - 1);
    }

    #[test]
    fn a_counter_with_a_maximum_wraps_under_the_lock() {
        let values = values(9, 7, NO_WAITER);
        assert_eq!(values.add(2), None);
        assert_eq!(values.read(), 9);
        assert_eq!(values.add(1), Some(ThresholdReached(AddOutcome::ToAdd(1))));
        assert_eq!(values.read(), 9);
        assert!(values.add_modulo(1));
        assert_eq!(values.read(), 0);
        assert!(!values.add_modulo(9));
        assert_eq!(values.read(), 9);
        assert!(values.add_modulo(10));
        assert_eq!(values.read(), 9);
        assert_eq!(
            values.add(u64::MAX),
            Some(ThresholdReached(AddOutcome::ToAdd(u64::MAX)))
        );
        assert!(values.add_modulo(u64::MAX));
        // 2^64 - 1 is 5 modulo 10.
        assert_eq!(values.read(), 4);
        values.due.store(6);
        assert_eq!(values.add(1), None);
        assert_eq!(values.add(1), REACHED);
    }

    #[test]
    fn an_unlocked_add_changes_the_value_at_once() {
        let add = |values: &CounterValues<Plain, Plain>, changes: &mut Changes, n| {
            let begun = values.begin_unlocked(n);
            let reached = values.finish_unlocked(n, begun);
            if let Some(reached) = &reached {
                changes.pass(values, reached);
            }
            reached.is_some()
        };
        let (values, mut changes) = (values(9, 7, NO_WAITER), Changes::new());
        // Any wrap is a change, also without a waiter.
        assert!(add(&values, &mut changes, 5));
        assert_eq!((values.read(), values.writes.load()), (2, 1));
        values.due.store(4);
        assert!(!add(&values, &mut changes, 1));
        assert!(add(&values, &mut changes, 1));
        assert_eq!((values.read(), values.writes.load()), (4, 1));
        assert!(add(&values, &mut changes, 10));
        assert_eq!((values.read(), values.writes.load()), (4, 2));
        let left = changes.take(&values);
        assert_eq!((left.writes, left.value, left.sum), (2, 9, 9));
        let full = self::values(0, u64::MAX, u64::MAX - 1);
        assert!(add(&full, &mut changes, 2));
        assert_eq!((full.read(), full.writes.load()), (1, 1));
        assert_eq!(changes.take(&full).value, u64::MAX);
        assert_eq!(changes.take(&full).value, 0);
    }

    #[test]
    fn sums_at_the_edges() {
        let full = values(0, 0, NO_WAITER);
        assert_eq!(full.sum(u64::MAX, 0), (u64::MAX, false));
        assert_eq!(full.sum(u64::MAX, 1), (0, true));
        assert_eq!(full.sum(u64::MAX, u64::MAX), (u64::MAX - 1, true));
        let one = values(1, 0, NO_WAITER);
        assert_eq!(one.sum(1, 0), (1, false));
        assert_eq!(one.sum(1, 1), (0, true));
        assert_eq!(one.sum(1, 2), (1, true));
        let almost = values(u64::MAX - 1, 0, NO_WAITER);
        assert_eq!(almost.sum(u64::MAX - 1, 1), (0, true));
        assert_eq!(almost.sum(u64::MAX - 1, u64::MAX), (u64::MAX - 1, true));
    }
}
