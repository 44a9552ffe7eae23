// SPDX-License-Identifier: GPL-2.0

//! Entries ordered by the threshold at which they become due.
//!
//! The waiters of a counter, the sleepers of a CQ and the work of a counter need the same
//! operation: when a value is reached, find the entries that wait for it or for a lower value. The
//! order is that of fi_trigger(3): by threshold, and for equal thresholds in the order of arrival.
//! [`Key`] represents this order; work, which compares two values, has maps of its own with it
//! ([`crate::cntr::Works`]). [`Due`] keeps the entries in a map of the caller ([`DueMap`]), because
//! a map needs memory and the core crate has none. In the module the map is a red-black tree whose
//! nodes are allocated before the lock is taken; in tests it is a `BTreeMap`.
//!
//! The caller inserts an entry together with a slot, the memory for it, so insertion cannot fail.
//! An entry that is due or removed is returned as a token that the map makes from the slot. The map
//! determines the types of both.
//!
//! Cost: inserting, removing and taking the first entry take O(log n) if the map's operations do.
//! Entries that are not due are not visited.
//!
//! Context: any, under the lock of the object that owns the `Due`.

/// The position of an entry: the threshold, then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // The derived order compares the fields from top to bottom, so their order matters.
    threshold: u64,
    ticket: u64,
}

impl Key {
    /// Makes the key of an entry of which both are known.
    #[inline]
    pub const fn new(threshold: u64, ticket: u64) -> Self {
        Self { threshold, ticket }
    }

    /// Returns the value at which the entry becomes due.
    #[inline]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Returns the number of the entry in the order of arrival. It is unique.
    #[inline]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

/// An ordered map from [`Key`], in memory of the caller.
pub trait DueMap {
    /// The memory for an entry and the data of the entry.
    type Slot;

    /// The form in which an entry is returned when it is due or removed.
    type Token;

    /// Inserts an entry. No two entries have the same key.
    fn insert(&mut self, key: Key, slot: Self::Slot);

    /// Returns the lowest key.
    fn first(&self) -> Option<Key>;

    /// Removes the entry with the lowest key.
    fn pop_first(&mut self) -> Option<(Key, Self::Token)>;

    /// Removes the entry with this key, if there is one.
    fn remove(&mut self, key: &Key) -> Option<Self::Token>;
}

/// Entries that wait for a value, in the order in which they become due.
pub struct Due<M: DueMap> {
    map: M,
    next_ticket: u64,
    len: u32,
}

impl<M: DueMap> Due<M> {
    /// Makes an empty `Due`. `map` must be empty.
    pub const fn new(map: M) -> Self {
        Self {
            map,
            next_ticket: 0,
            len: 0,
        }
    }

    /// Inserts an entry. Returns the key for [`Self::remove`]. O(log n).
    pub fn insert(&mut self, threshold: u64, slot: M::Slot) -> Key {
        let key = Key {
            threshold,
            ticket: self.next_ticket,
        };
        // With one entry per nanosecond the number wraps after 584 years.
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.map.insert(key, slot);
        self.len = self.len.wrapping_add(1);
        key
    }

    /// Removes an entry before it is due. Returns `None` if the entry was already taken. O(log n).
    pub fn remove(&mut self, key: &Key) -> Option<M::Token> {
        let token = self.map.remove(key)?;
        self.len = self.len.wrapping_sub(1);
        Some(token)
    }

    /// Removes the first entry if its threshold is at most `reached`. O(log n).
    #[inline(always)]
    pub fn pop_due(&mut self, reached: u64) -> Option<(Key, M::Token)> {
        if self.lowest()? > reached {
            return None;
        }
        self.pop()
    }

    /// Removes the first entry, due or not. O(log n).
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Key, M::Token)> {
        let entry = self.map.pop_first()?;
        self.len = self.len.wrapping_sub(1);
        Some(entry)
    }

    /// Returns the lowest threshold. O(log n).
    pub fn lowest(&self) -> Option<u64> {
        self.map.first().map(|key| key.threshold)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
