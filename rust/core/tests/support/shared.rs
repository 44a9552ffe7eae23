// SPDX-License-Identifier: GPL-2.0

//! A word, and a map for `Due`. The parent module chooses the atomics: the host's or loom's.

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
