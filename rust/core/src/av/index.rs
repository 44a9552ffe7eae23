// SPDX-License-Identifier: GPL-2.0
//! A hash index over the entries of a table, in lent memory.
//!
//! It holds numbers of entries, nothing else: hashes and comparisons are the caller's. Open
//! addressing with linear probing; a removal moves up what it had kept from its home, so there are
//! no tombstones and a search ends at the first vacant place.

use core::ops::DerefMut;

/// A place that names no entry.
const VACANT: u32 = u32::MAX;

/// Room for the number of one entry.
#[derive(Clone, Copy, Debug)]
pub struct IndexSlot(u32);

impl IndexSlot {
    /// Returns an empty place, to fill storage with.
    pub const fn new() -> Self {
        Self(VACANT)
    }
}

impl Default for IndexSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns how many [`IndexSlot`]s a table of `entries` needs: at least twice as many, a power of
/// two.
pub const fn index_len(entries: usize) -> usize {
    // A storage never comes near the end of the address space.
    match entries.saturating_mul(2).checked_next_power_of_two() {
        Some(len) if len >= 2 => len,
        _ => 2,
    }
}

/// A place that names an entry. Good until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    at: usize,
    /// The entry.
    pub(super) entry: u32,
}

/// A hash index.
///
/// # Invariants
///
/// The number of places is a power of two and more than that of entries. No place between an
/// entry's home, to which its hash leads, and its place is vacant.
#[derive(Debug)]
pub(super) struct Index<X> {
    places: X,
}

impl<X: DerefMut<Target = [IndexSlot]>> Index<X> {
    /// Makes an empty index of `places`, whose number is what [`index_len`] says.
    pub(super) fn new(mut places: X) -> Self {
        places.fill(IndexSlot::new());
        Self { places }
    }

    /// Returns the storage.
    pub(super) fn into_places(self) -> X {
        self.places
    }

    /// Goes through the entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.places
            .iter()
            .map(|place| place.0)
            .filter(|entry| *entry != VACANT)
    }

    /// Finds the entry with this hash that is the one: `is` says so.
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<Place> {
        self.probe(hash)
            .take_while(|place| place.entry != VACANT)
            .find(|place| is(place.entry))
    }

    /// Puts an entry in, which is not there yet.
    pub(super) fn insert(&mut self, hash: u64, entry: u32) {
        let vacant = self.probe(hash).find(|place| place.entry == VACANT);
        // INVARIANT: The first vacant place from its home on. There is one: there are more places
        // than entries.
        if let Some(place) = vacant {
            self.set(place.at, entry);
        }
    }

    /// Puts an entry with the same hash in the place of another.
    pub(super) fn replace(&mut self, place: Place, entry: u32) {
        self.set(place.at, entry);
    }

    /// Empties a place. `hash_of` says the hashes of the other entries.
    pub(super) fn remove(&mut self, place: Place, hash_of: impl Fn(u32) -> Option<u64>) {
        let mask = self.mask();
        let mut hole = place.at;
        let mut at = place.at;
        for _ in 0..self.places.len() {
            at = at.wrapping_add(1) & mask;
            let Some(entry) = self.get(at).filter(|entry| *entry != VACANT) else {
                break;
            };
            let Some(hash) = hash_of(entry) else {
                break;
            };
            // INVARIANT: An entry moves to the hole if its home is not behind the hole.
            let from_home = at.wrapping_sub(self.home(hash)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.set(hole, entry);
                hole = at;
            }
        }
        self.set(hole, VACANT);
    }

    /// Goes once through all places, from the home of `hash` on.
    fn probe(&self, hash: u64) -> impl Iterator<Item = Place> + '_ {
        let home = self.home(hash);
        (0..self.places.len()).filter_map(move |step| {
            let at = home.wrapping_add(step) & self.mask();
            let entry = self.get(at)?;
            Some(Place { at, entry })
        })
    }

    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    fn home(&self, hash: u64) -> usize {
        // The cut to the size of a word is wanted.
        hash as usize & self.mask()
    }

    fn get(&self, at: usize) -> Option<u32> {
        self.places.get(at).map(|place| place.0)
    }

    fn set(&mut self, at: usize, entry: u32) {
        if let Some(place) = self.places.get_mut(at) {
            place.0 = entry;
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_av_index))]
mod tests {
    use super::*;

    /// The tests' hash of an entry: its tens, so that 30 and 35 collide.
    fn hash(entry: u32) -> u64 {
        u64::from(entry / 10)
    }

    fn has(index: &Index<&mut [IndexSlot]>, entry: u32) -> bool {
        let found = index.find(hash(entry), |at| at == entry);
        found.map(|place| place.entry) == Some(entry)
    }

    fn remove(index: &mut Index<&mut [IndexSlot]>, entry: u32) {
        if let Some(place) = index.find(hash(entry), |at| at == entry) {
            index.remove(place, |at| Some(hash(at)));
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(index_len(0), 2);
        assert_eq!(index_len(1), 2);
        assert_eq!(index_len(3), 8);
        assert_eq!(index_len(4), 8);
        assert_eq!(index_len(5), 16);
        assert_eq!(index_len(1 << 16), 1 << 17);
    }

    #[test]
    fn a_removal_leaves_nothing_out_of_reach() {
        // Homes 6, 6, 7, 6, 0: a run over the end, in which each removal must move others. Homes
        // 6, 7, 7, 1, 0: some must stay where they are.
        for entries in [[60, 61, 70, 62, 80], [60, 70, 71, 10, 80]] {
            for gone in entries {
                let mut places = [IndexSlot::new(); 8];
                let mut index = Index::new(&mut places[..]);
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
    fn what_was_never_there() {
        let mut places = [IndexSlot::new(); 2];
        let mut index = Index::new(&mut places[..]);
        assert!(!has(&index, 1));
        index.insert(hash(1), 1);
        assert!(has(&index, 1));
        assert!(!has(&index, 2));
        if let Some(place) = index.find(hash(1), |_| true) {
            index.replace(place, 2);
        }
        assert!(!has(&index, 1));
        assert!(has(&index, 2));
    }
}
