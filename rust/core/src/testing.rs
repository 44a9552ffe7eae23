// SPDX-License-Identifier: GPL-2.0

//! Helpers of the unit tests, for cargo and for the kernel: a [`Word`] for one thread, a [`DueMap`]
//! and [`Records`] in arrays, and a log of released waiters.

use crate::{
    cq::{
        ErrEntry,
        Records, //
    },
    due::{
        DueMap,
        Key, //
    },
    word::Word, //
};
use core::cell::Cell;

/// A word that only one thread uses.
pub(crate) struct Plain(Cell<u64>);

impl Plain {
    pub(crate) const fn new(value: u64) -> Self {
        Self(Cell::new(value))
    }
}

impl Word for Plain {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn load_acquire(&self) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64) {
        self.0.set(value);
    }

    fn store_release(&self, value: u64) {
        self.0.set(value);
    }

    fn fetch_add(&self, n: u64) -> u64 {
        self.0.replace(self.0.get().wrapping_add(n))
    }

    fn swap(&self, value: u64) -> u64 {
        self.0.replace(value)
    }

    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        let value = self.0.get();
        if value != old {
            return Err(value);
        }
        self.0.set(new);
        Ok(value)
    }
}

/// The identifiers of waiters in the tests.
pub(crate) type Name = u32;

/// A map of at most eight entries, searched linearly.
pub(crate) struct ArrayMap([Option<(Key, Name)>; 8]);

impl ArrayMap {
    pub(crate) const fn new() -> Self {
        Self([None; 8])
    }

    fn take(&mut self, key: &Key) -> Option<(Key, Name)> {
        self.0
            .iter_mut()
            .find(|slot| matches!(slot, Some((value, _)) if value == key))?
            .take()
    }
}

impl DueMap for ArrayMap {
    type Slot = Name;
    type Token = Name;

    fn insert(&mut self, key: Key, slot: Name) {
        if let Some(free) = self.0.iter_mut().find(|entry| entry.is_none()) {
            *free = Some((key, slot));
        }
    }

    fn first(&self) -> Option<Key> {
        self.0.iter().flatten().map(|(key, _)| *key).min()
    }

    fn pop_first(&mut self) -> Option<(Key, Name)> {
        let key = self.first()?;
        self.take(&key)
    }

    fn remove(&mut self, key: &Key) -> Option<Name> {
        self.take(key).map(|(_, name)| name)
    }
}

/// At most four error entries, searched linearly; each record has a name.
pub(crate) struct ArrayRecords([Option<(u64, ErrEntry, Name)>; 4]);

impl ArrayRecords {
    pub(crate) const fn new() -> Self {
        Self([None; 4])
    }
}

impl Records for ArrayRecords {
    type Record = Name;
    type Spent = Name;

    fn insert(&mut self, number: u64, entry: ErrEntry, record: Name) {
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((number, entry, record));
        }
    }

    fn first(&self) -> Option<(u64, &ErrEntry)> {
        let all = self.0.iter().flatten();
        let first = all.min_by_key(|(number, ..)| *number)?;
        Some((first.0, &first.1))
    }

    fn pop_first(&mut self) -> Option<Name> {
        let (number, _) = self.first()?;
        self.0
            .iter_mut()
            .find(|slot| matches!(slot, Some((value, ..)) if *value == number))?
            .take()
            .map(|(.., name)| name)
    }
}

/// A log of events in order; tests compare it as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log<T> {
    entries: [Option<T>; 8],
    len: usize,
}

impl<T: Copy> Log<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [None; 8],
            len: 0,
        }
    }

    pub(crate) fn of(list: &[T]) -> Self {
        let mut log = Self::new();
        for entry in list {
            log.push(*entry);
        }
        log
    }

    pub(crate) fn push(&mut self, entry: T) {
        if let Some(slot) = self.entries.get_mut(self.len) {
            *slot = Some(entry);
        }
        self.len += 1;
    }
}
