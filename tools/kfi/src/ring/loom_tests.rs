// SPDX-License-Identifier: GPL-2.0
//! The ring's protocol under loom: every interleaving of a producer and the
//! consumer, with entries that loom watches for races.

use std::sync::Arc as StdArc;

use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64 as Word, Ordering::*},
    thread,
};

use super::*;

struct LoomRing {
    tail: Word,
    errors: Word,
    head: Word,
    entries: Vec<UnsafeCell<Entry>>,
}

// SAFETY: loom checks the accesses to the entries.
unsafe impl Send for LoomRing {}
// SAFETY: as above.
unsafe impl Sync for LoomRing {}

impl LoomRing {
    fn new(size: usize, start: u64) -> StdArc<Self> {
        StdArc::new(Self {
            tail: Word::new(start),
            errors: Word::new(0),
            head: Word::new(start),
            entries: (0..size)
                .map(|_| UnsafeCell::new(Entry::default()))
                .collect(),
        })
    }

    /// Writes as the kernel does.
    fn push(&self, context: u64) -> bool {
        let tail = self.tail.load(Relaxed);
        let size = self.entries.len() as u64;
        if tail.wrapping_sub(self.head.load(Acquire)) == size {
            return false;
        }
        let place = (tail & (size - 1)) as usize;
        self.entries[place].with_mut(|entry| {
            // SAFETY: loom fails the test if the consumer still reads it.
            unsafe { (*entry).op_context = context }
        });
        self.tail.store(tail.wrapping_add(1), Release);
        true
    }
}

impl RingMem for StdArc<LoomRing> {
    fn tail(&self) -> u64 {
        self.tail.load(Acquire)
    }

    fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    fn overruns(&self) -> u64 {
        0
    }

    fn reported(&self) -> u64 {
        0
    }

    fn set_told(&self, _overruns: u64) {}

    fn head(&self) -> u64 {
        self.head.load(Relaxed)
    }

    fn set_head(&self, head: u64) {
        self.head.store(head, Release);
    }

    fn entry<R>(&self, place: u64, look: impl FnOnce(&Entry) -> R) -> R {
        // SAFETY: loom fails the test if the producer writes it meanwhile.
        self.entries[place as usize].with(|entry| look(unsafe { &*entry }))
    }
}

fn check(size: usize, start: u64, count: u64, max: usize) {
    loom::model(move || {
        let ring = LoomRing::new(size, start);
        let producer = ring.clone();
        let thread = thread::spawn(move || {
            for context in 1..=count {
                while !producer.push(context) {
                    thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(ring, size as u64);
        let mut next = 1;
        while next <= count {
            let taken = consumer
                .drain(max, |entry| {
                    assert_eq!(entry.op_context, next);
                    next += 1;
                })
                .unwrap();
            if taken == 0 {
                thread::yield_now();
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn loom_one_place() {
    check(1, 0, 2, 1);
}

#[test]
fn loom_two_places_and_wrap() {
    check(2, u64::MAX, 3, 2);
}

#[test]
fn loom_no_success_overtakes_an_earlier_error() {
    loom::model(|| {
        let ring = LoomRing::new(2, 0);
        let producer = ring.clone();
        let thread = thread::spawn(move || {
            producer.errors.store(1, Release);
            assert!(producer.push(1));
        });
        let mut consumer = Consumer::new(ring, 2);
        match consumer.drain(2, |_| ()) {
            Ok(shown) => assert_eq!(shown, 0),
            Err(error) => assert!(error.is_eavail()),
        }
        thread.join().unwrap();
    });
}
