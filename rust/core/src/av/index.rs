// SPDX-License-Identifier: GPL-2.0
//! A hash index over the entries of a table, in lent memory.
//!
//! The index stores only the numbers of entries; the caller computes hashes and compares entries.
//! It uses open addressing with linear probing. A removal moves displaced entries closer to their
//! home slots, so there are no tombstones and a search ends at the first vacant slot.

use core::ops::DerefMut;

/// The value of a slot without an entry.
const VACANT: u32 = u32::MAX;

/// A slot for the number of one entry.
#[derive(Clone, Copy, Debug)]
pub struct IndexSlot(u32);

impl IndexSlot {
    /// Returns an empty slot, to initialise storage.
    pub const fn new() -> Self {
        Self(VACANT)
    }
}

impl Default for IndexSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the number of [`IndexSlot`]s for a table of `entries`: a power of two, and at least
/// twice as many.
pub const fn index_len(entries: usize) -> usize {
    // The number of entries is far below the end of the address space.
    match entries.saturating_mul(2).checked_next_power_of_two() {
        Some(len) if len >= 2 => len,
        _ => 2,
    }
}

/// A slot that contains an entry. Valid until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashPosition {
    pub(super) at: usize,
    /// The number of the entry.
    pub(super) entry: u32,
}

/// A hash index.
///
/// # Invariants
///
/// The number of slots is a power of two and larger than the number of entries. No slot between an
/// entry's home slot, which its hash determines, and its actual slot is vacant.
#[derive(Debug)]
pub(super) struct Index<X> {
    slots: X,
}

impl<X: DerefMut<Target = [IndexSlot]>> Index<X> {
    /// Makes an empty index in `slots`, whose length must be [`index_len`].
    pub(super) fn new(mut slots: X) -> Self {
        slots.fill(IndexSlot::new());
        Self { slots }
    }

    /// Returns the storage.
    pub(super) fn into_slots(self) -> X {
        self.slots
    }

    /// Iterates over the entries in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots
            .iter()
            .map(|slot| slot.0)
            .filter(|entry| *entry != VACANT)
    }

    /// Finds the entry with this hash for which `is` returns true.
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<HashPosition> {
        self.probe(hash)
            .take_while(|position| position.entry != VACANT)
            .find(|position| is(position.entry))
    }

    /// Inserts an entry that is not in the index.
    pub(super) fn insert(&mut self, hash: u64, entry: u32) {
        let vacant = self.probe(hash).find(|position| position.entry == VACANT);
        // INVARIANT: This is the first vacant slot from the home slot on. There is one, because
        // there are more slots than entries.
        if let Some(position) = vacant {
            self.set(position.at, entry);
        }
    }

    /// Empties a slot. `hash_of` returns the hashes of the other entries.
    pub(super) fn remove(&mut self, position: HashPosition, hash_of: impl Fn(u32) -> Option<u64>) {
        let mask = self.mask();
        let mut hole = position.at;
        let mut at = position.at;
        for _ in 0..self.slots.len() {
            at = at.wrapping_add(1) & mask;
            let Some(entry) = self.get(at).filter(|entry| *entry != VACANT) else {
                break;
            };
            let Some(hash) = hash_of(entry) else {
                break;
            };
            // INVARIANT: An entry moves to the hole only if its home slot is not behind the hole.
            let from_home = at.wrapping_sub(self.home(hash)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.set(hole, entry);
                hole = at;
            }
        }
        self.set(hole, VACANT);
    }

    /// Iterates once over all slots, from the home slot of `hash` on.
    fn probe(&self, hash: u64) -> impl Iterator<Item = HashPosition> + '_ {
        let home = self.home(hash);
        (0..self.slots.len()).filter_map(move |step| {
            let at = home.wrapping_add(step) & self.mask();
            let entry = self.get(at)?;
            Some(HashPosition { at, entry })
        })
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn home(&self, hash: u64) -> usize {
        // The truncation to the word size is intended.
        hash as usize & self.mask()
    }

    fn get(&self, at: usize) -> Option<u32> {
        self.slots.get(at).map(|slot| slot.0)
    }

    /// Writes slot `at`: vacant, or an entry whose search passes it.
    pub(super) fn set(&mut self, at: usize, entry: u32) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.0 = entry;
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_av_index))]
mod tests {
    use super::*;

    /// The hash of an entry in these tests is its tens digits, so 30 and 35 collide.
    fn hash(entry: u32) -> u64 {
        u64::from(entry / 10)
    }

    fn has(index: &Index<&mut [IndexSlot]>, entry: u32) -> bool {
        let found = index.find(hash(entry), |at| at == entry);
        found.map(|position| position.entry) == Some(entry)
    }

    fn remove(index: &mut Index<&mut [IndexSlot]>, entry: u32) {
        if let Some(position) = index.find(hash(entry), |at| at == entry) {
            index.remove(position, |at| Some(hash(at)));
        }
    }

    #[test]
    fn an_index_has_at_least_twice_as_many_slots() {
        assert_eq!(index_len(0), 2);
        assert_eq!(index_len(1), 2);
        assert_eq!(index_len(3), 8);
        assert_eq!(index_len(4), 8);
        assert_eq!(index_len(5), 16);
        assert_eq!(index_len(1 << 16), 1 << 17);
    }

    #[test]
    fn all_entries_are_found_after_a_removal() {
        // The home slots are 6, 6, 7, 6, 0: a run across the end, in which each removal must move
        // others. With home slots 6, 7, 7, 1, 0, some entries must stay where they are.
        for entries in [[60, 61, 70, 62, 80], [60, 70, 71, 10, 80]] {
            for gone in entries {
                let mut slots = [IndexSlot::new(); 8];
                let mut index = Index::new(&mut slots[..]);
                for entry in entries {
                    index.insert(hash(entry), entry);
                }
                assert_eq!(index.entries().count(), 5);
                remove(&mut index, gone);
                assert_eq!(index.entries().count(), 4);
                for entry in entries {
                    assert_eq!(has(&index, entry), entry != gone);
                }
            }
        }
    }

    #[test]
    fn unknown_entries_are_not_found() {
        let mut slots = [IndexSlot::new(); 2];
        let mut index = Index::new(&mut slots[..]);
        assert!(!has(&index, 1));
        index.insert(hash(1), 1);
        assert!(has(&index, 1));
        assert!(!has(&index, 2));
        if let Some(position) = index.find(hash(1), |_| true) {
            index.set(position.at, 2);
        }
        assert!(!has(&index, 1));
        assert!(has(&index, 2));
    }
}
