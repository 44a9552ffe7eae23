// SPDX-License-Identifier: GPL-2.0

//! A word, a map for `Due`, and one for works. The parent module chooses the atomics: the host's or
//! loom's.

use super::atomic::{
    fence,
    AtomicU64,
    Ordering::{
        AcqRel,
        Acquire,
        Relaxed,
        Release,
        SeqCst, //
    }, //
};
use kfi_core::{
    cntr::{
        Compared,
        WorkMap, //
    },
    due::{
        DueMap,
        Key, //
    },
    word::Word, //
};
use std::collections::BTreeMap;

/// A word on these atomics.
pub(crate) struct SharedWord(AtomicU64);

impl SharedWord {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Word for SharedWord {
    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn load_acquire(&self) -> u64 {
        self.0.load(Acquire)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    fn store_release(&self, value: u64) {
        self.0.store(value, Release);
    }

    fn fetch_add(&self, n: u64) -> u64 {
        fence(SeqCst);
        let old = self.0.fetch_add(n, AcqRel);
        fence(SeqCst);
        old
    }

    fn swap(&self, value: u64) -> u64 {
        fence(SeqCst);
        let old = self.0.swap(value, AcqRel);
        fence(SeqCst);
        old
    }

    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        fence(SeqCst);
        let result = self.0.compare_exchange(old, new, AcqRel, Relaxed);
        fence(SeqCst);
        result
    }
}

/// A map of names.
#[derive(Default)]
pub(crate) struct TreeMap(BTreeMap<Key, u32>);

impl DueMap for TreeMap {
    type Slot = u32;
    type Token = u32;

    fn insert(&mut self, key: Key, slot: u32) {
        assert!(self.0.insert(key, slot).is_none(), "a key came twice");
    }

    fn first(&self) -> Option<Key> {
        self.0.keys().next().copied()
    }

    fn pop_first(&mut self) -> Option<(Key, u32)> {
        self.0.pop_first()
    }

    fn remove(&mut self, key: &Key) -> Option<u32> {
        self.0.remove(key)
    }
}

/// The works of a counter, by name, and the list of those that are due.
#[derive(Default)]
pub(crate) struct WorkTrees {
    trees: [BTreeMap<Key, u32>; 2],
    pub(crate) due: Vec<(Key, u32)>,
}

impl WorkTrees {
    fn tree(&mut self, kind: Compared) -> &mut BTreeMap<Key, u32> {
        &mut self.trees[usize::from(kind == Compared::Sum)]
    }
}

impl WorkMap for WorkTrees {
    type Slot = u32;
    type Token = u32;

    fn insert(&mut self, kind: Compared, key: Key, slot: u32) {
        let before = self.tree(kind).insert(key, slot);
        assert!(before.is_none(), "a key came twice");
    }

    fn first(&self, kind: Compared) -> Option<Key> {
        let tree = &self.trees[usize::from(kind == Compared::Sum)];
        tree.keys().next().copied()
    }

    fn make_due(&mut self, kind: Compared) {
        let first = self.tree(kind).pop_first().expect("a work");
        self.due.push(first);
    }

    fn remove(&mut self, kind: Compared, key: &Key) -> Option<u32> {
        self.tree(kind).remove(key)
    }
}
