// SPDX-License-Identifier: GPL-2.0

//! The half of a counter without a lock: its values and the lowest threshold.
//!
//! The story is in [`crate::cntr`].

use crate::word::Word;

#[cfg(doc)]
use super::Waiters;

/// `due` while nobody waits. A threshold of the same value is announced as one
/// less: `due` may stand below the lowest threshold, never above.
pub(super) const NOBODY: u64 = u64::MAX;

/// The values of a counter and the lowest threshold waited for.
///
/// `V` is a word that user space may map, read-only; `D` is the module's own.
pub struct Gate<V: Word, D: Word> {
    pub(super) value: V,
    pub(super) err: V,
    pub(super) due: D,
    max: u64,
}

/// An add met a threshold, or has to be done under the lock: hand it to
/// [`Waiters::fire`].
#[must_use = "whoever is due would sleep on"]
#[derive(Debug, PartialEq, Eq)]
pub struct Crossed(pub(super) Crossing);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    /// The value got to `due` or beyond.
    Reached,
    /// The value went past 2^64 - 1: everything was passed.
    Wrapped,
    /// This much is still to be added: it would wrap at the counter's maximum.
    ToAdd(u64),
}

impl<V: Word, D: Word> Gate<V, D> {
    /// A counter of (0, 0) that wraps after `max`; `max` 0 is 2^64 - 1, as
    /// `max_value` of KFABRIC_IOC_CNTR_OPEN. Writes the three words.
    pub fn new(value: V, err: V, due: D, max: u64) -> Self {
        value.store(0);
        err.store(0);
        due.store(NOBODY);
        Self {
            value,
            err,
            due,
            max: if max == 0 { u64::MAX } else { max },
        }
    }

    /// The largest value; the next is 0.
    #[inline]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The success value. What happened before it was added is seen after.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read(&self) -> u64 {
        self.value.load_acquire()
    }

    /// The error value, likewise.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read_err(&self) -> u64 {
        self.err.load_acquire()
    }

    /// Adds to the success value. What it gives goes to [`Waiters::fire`], under
    /// the lock, without delay; mostly it is nothing.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn add(&self, n: u64) -> Option<Crossed> {
        if self.max != u64::MAX {
            return self.add_bounded(n);
        }
        // ORDERING: fully ordered. What was done before the add is seen by who
        // reads the value; and the value is written before `due` is read, see
        // `Waiters::arm` for the other side.
        let old = self.value.fetch_add(n);
        let due = self.due.load();
        // One compare for all cases. `due` above the old value: it lies
        // `due - old` ahead, and a wrap goes past it. `due` at or below: another
        // adder is on its way to the lock, and so do we go, since thresholds
        // between its value and ours are not in `due` yet.
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::crossing(old, n, due)
    }

    #[cold]
    fn crossing(old: u64, n: u64, due: u64) -> Option<Crossed> {
        // Nobody waited, and who comes later reads our value.
        if due == NOBODY || n == 0 {
            return None;
        }
        Some(Crossed(match old.checked_add(n) {
            Some(_) => Crossing::Reached,
            None => Crossing::Wrapped,
        }))
    }

    /// [`Self::add`] modulo `max + 1`: the same, but by compare and exchange, and
    /// a wrap is left to the lock. Out of the way of the full width.
    #[cold]
    fn add_bounded(&self, n: u64) -> Option<Crossed> {
        let mut old = self.value.load();
        loop {
            if n > self.max.wrapping_sub(old) {
                return Some(Crossed(Crossing::ToAdd(n)));
            }
            // ORDERING: fully ordered, as `fetch_add` above.
            match self.value.compare_exchange(old, old.wrapping_add(n)) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        let due = self.due.load();
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::crossing(old, n, due)
    }

    /// Adds modulo `max + 1` under the lock. True: it wrapped.
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

    /// `old + n` modulo `max + 1`, and whether that wrapped. `old <= max`.
    pub(super) fn sum(&self, old: u64, n: u64) -> (u64, bool) {
        let room = self.max.wrapping_sub(old);
        if n <= room {
            return (old.wrapping_add(n), false);
        }
        // n > room: take the steps to the maximum and the one to 0 away.
        let rest = n.wrapping_sub(room).wrapping_sub(1);
        match self.max.checked_add(1) {
            Some(modulus) => (rest.checked_rem(modulus).unwrap_or(0), true),
            None => (rest, true),
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_cntr_gate))]
mod tests {
    use super::*;
    use crate::testing::Plain;

    fn gate(max: u64, value: u64, due: u64) -> Gate<Plain, Plain> {
        let gate = Gate::new(Plain::new(8), Plain::new(8), Plain::new(8), max);
        assert_eq!(
            (gate.read(), gate.read_err(), gate.due.load()),
            (0, 0, NOBODY)
        );
        gate.value.store(value);
        gate.due.store(due);
        gate
    }

    const REACHED: Option<Crossed> = Some(Crossed(Crossing::Reached));
    const WRAPPED: Option<Crossed> = Some(Crossed(Crossing::Wrapped));

    #[test]
    fn below_due_the_lock_is_not_needed() {
        let gate = gate(0, 0, 3);
        assert_eq!(gate.max(), u64::MAX);
        assert_eq!(gate.add(1), None);
        assert_eq!(gate.add(1), None);
        assert_eq!(gate.add(1), REACHED);
        assert_eq!(gate.read(), 3);
        // `due` was passed, and not raised yet.
        assert_eq!(gate.add(1), REACHED);
        assert_eq!(gate.add(0), None);
    }

    #[test]
    fn the_full_width_wraps() {
        let past = gate(0, u64::MAX - 1, u64::MAX - 1);
        assert_eq!(past.add(3), WRAPPED);
        assert_eq!(past.read(), 1);
        let up_to = gate(0, 5, u64::MAX - 1);
        assert_eq!(up_to.add(u64::MAX - 5), REACHED);
        assert_eq!(up_to.read(), u64::MAX);
        let all = gate(0, u64::MAX, u64::MAX - 1);
        assert_eq!(all.add(u64::MAX), WRAPPED);
        assert_eq!(all.read(), u64::MAX - 1);
    }

    #[test]
    fn nobody_is_never_due() {
        let gate = gate(0, u64::MAX - 1, NOBODY);
        assert_eq!(gate.add(1), None);
        assert_eq!(gate.add(1), None);
        assert_eq!(gate.read(), 0);
        assert_eq!(gate.add(u64::MAX), None);
        assert_eq!(gate.add(u64::MAX), None);
        assert_eq!(gate.read(), u64::MAX - 1);
    }

    #[test]
    fn a_maximum_of_its_own_is_wrapped_under_the_lock() {
        let gate = gate(9, 7, NOBODY);
        assert_eq!(gate.add(2), None);
        assert_eq!(gate.read(), 9);
        assert_eq!(gate.add(1), Some(Crossed(Crossing::ToAdd(1))));
        assert_eq!(gate.read(), 9);
        assert!(gate.add_modulo(1));
        assert_eq!(gate.read(), 0);
        assert!(!gate.add_modulo(9));
        assert_eq!(gate.read(), 9);
        assert!(gate.add_modulo(10));
        assert_eq!(gate.read(), 9);
        assert_eq!(gate.add(u64::MAX), Some(Crossed(Crossing::ToAdd(u64::MAX))));
        assert!(gate.add_modulo(u64::MAX));
        // 2^64 - 1 is 5 modulo 10.
        assert_eq!(gate.read(), 4);
        gate.due.store(6);
        assert_eq!(gate.add(1), None);
        assert_eq!(gate.add(1), REACHED);
    }

    #[test]
    fn sums_at_the_edges() {
        let full = gate(0, 0, NOBODY);
        assert_eq!(full.sum(u64::MAX, 0), (u64::MAX, false));
        assert_eq!(full.sum(u64::MAX, 1), (0, true));
        assert_eq!(full.sum(u64::MAX, u64::MAX), (u64::MAX - 1, true));
        let one = gate(1, 0, NOBODY);
        assert_eq!(one.sum(1, 0), (1, false));
        assert_eq!(one.sum(1, 1), (0, true));
        assert_eq!(one.sum(1, 2), (1, true));
        let almost = gate(u64::MAX - 1, 0, NOBODY);
        assert_eq!(almost.sum(u64::MAX - 1, 1), (0, true));
        assert_eq!(almost.sum(u64::MAX - 1, u64::MAX), (u64::MAX - 1, true));
    }
}
