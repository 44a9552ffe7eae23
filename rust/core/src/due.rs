// SPDX-License-Identifier: GPL-2.0

//! What is due at a value: the order in which thresholds are met.
//!
//! A counter's waiters, a CQ's sleepers and, later, a trigger queue ask one
//! question: a value has been reached, who was waiting for it or for less? The
//! answer has an order, that of fi_trigger(3): by threshold, and among equals in
//! the order in which they came. [`Key`] is that order. [`Due`] keeps it over a
//! map that somebody else provides ([`DueMap`]), because the map needs memory
//! and the core has none: in the module it is a red-black tree whose node was
//! allocated before the lock was taken, in the tests a `BTreeMap`.
//!
//! Who comes gives a slot, the memory to be remembered in, made beforehand; so
//! nothing here can fail. Who is due, or is removed, comes back as a token,
//! whatever the map made of the slot. The map decides what both are.
//!
//! Costs: inserting, removing and taking the first are O(log n) where the map's
//! are; none looks at entries that are not due.
//!
//! Context: any, under the lock of the object that owns the `Due`.

/// Place of an entry: the threshold, then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // The derived order compares the fields from the top: keep them so.
    threshold: u64,
    ticket: u64,
}

impl Key {
    /// The value that makes the entry due.
    #[inline]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The number of the entry in the order of arrival; no two are equal.
    #[inline]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

/// An ordered map from [`Key`], over memory that the caller brings.
pub trait DueMap {
    /// What an entry is put in with: its memory and what it stands for.
    type Slot;

    /// What comes out again when the entry is due or removed.
    type Token;

    /// Puts an entry in. No two entries ever have the same key.
    fn insert(&mut self, key: Key, slot: Self::Slot);

    /// The lowest key.
    fn first(&self) -> Option<Key>;

    /// Takes the entry with the lowest key out.
    fn pop_first(&mut self) -> Option<(Key, Self::Token)>;

    /// Takes the entry with this key out, if it is there.
    fn remove(&mut self, key: &Key) -> Option<Self::Token>;
}

/// Entries that wait for a value, in the order in which they become due.
pub struct Due<M: DueMap> {
    map: M,
    next_ticket: u64,
    len: u32,
}

impl<M: DueMap> Due<M> {
    /// An empty one. `map` must be empty.
    pub const fn new(map: M) -> Self {
        Self {
            map,
            next_ticket: 0,
            len: 0,
        }
    }

    /// Puts an entry in; the key is what [`Self::remove`] wants. O(log n).
    pub fn insert(&mut self, threshold: u64, slot: M::Slot) -> Key {
        let key = Key {
            threshold,
            ticket: self.next_ticket,
        };
        // One entry per nanosecond would take 584 years to come round.
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.map.insert(key, slot);
        self.len = self.len.wrapping_add(1);
        key
    }

    /// Takes an entry out before it is due. `None`: it is not there any more,
    /// it was due. O(log n).
    pub fn remove(&mut self, key: &Key) -> Option<M::Token> {
        let token = self.map.remove(key)?;
        self.len = self.len.wrapping_sub(1);
        Some(token)
    }

    /// Takes the first entry out if its threshold is at most `reached`.
    /// O(log n).
    #[inline(always)]
    pub fn pop_due(&mut self, reached: u64) -> Option<(Key, M::Token)> {
        if self.lowest()? > reached {
            return None;
        }
        self.pop()
    }

    /// Takes the first entry out, due or not. O(log n).
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Key, M::Token)> {
        let entry = self.map.pop_first()?;
        self.len = self.len.wrapping_sub(1);
        Some(entry)
    }

    /// The lowest threshold. O(log n).
    pub fn lowest(&self) -> Option<u64> {
        self.map.first().map(|key| key.threshold)
    }

    /// How many entries there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_due))]
mod tests {
    use super::*;
    use crate::testing::{
        ArrayMap,
        Log, //
    };

    fn due_at(due: &mut Due<ArrayMap>, reached: u64) -> Log<u32> {
        let mut log = Log::new();
        while let Some((_, name)) = due.pop_due(reached) {
            log.push(name);
        }
        log
    }

    #[test]
    fn by_threshold_then_by_arrival() {
        let mut due = Due::new(ArrayMap::new());
        due.insert(7, 70);
        due.insert(3, 30);
        due.insert(7, 71);
        due.insert(3, 31);
        due.insert(5, 50);
        assert_eq!(due.lowest(), Some(3));
        assert_eq!(due_at(&mut due, 6), Log::of(&[30, 31, 50]));
        assert_eq!(due_at(&mut due, 7), Log::of(&[70, 71]));
        assert!(due.is_empty());
    }

    #[test]
    fn below_the_threshold_nothing_is_due() {
        let mut due = Due::new(ArrayMap::new());
        due.insert(u64::MAX, 1);
        due.insert(4, 2);
        assert_eq!(due_at(&mut due, 3), Log::of(&[]));
        assert_eq!(due_at(&mut due, 4), Log::of(&[2]));
        assert_eq!(due_at(&mut due, u64::MAX - 1), Log::of(&[]));
        assert_eq!(due_at(&mut due, u64::MAX), Log::of(&[1]));
    }

    #[test]
    fn what_is_removed_is_not_due() {
        let mut due = Due::new(ArrayMap::new());
        let first = due.insert(3, 30);
        let second = due.insert(3, 31);
        assert_eq!(due.len(), 2);
        assert_eq!(due.remove(&first), Some(30));
        assert_eq!(due.remove(&first), None);
        assert_eq!(due.len(), 1);
        assert_eq!(due.pop(), Some((second, 31)));
        assert_eq!(due.remove(&second), None);
        assert_eq!(due.lowest(), None);
        assert_eq!(due.pop(), None);
    }
}
