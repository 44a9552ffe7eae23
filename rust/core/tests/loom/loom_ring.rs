// SPDX-License-Identifier: GPL-2.0

//! Both ends of the ring under loom: each entry is read completely, once and in order, and
//! overwritten only after it was read. loom's cells panic on a data race.

use crate::loom_support::LoomWord;
use kfi_core::ring::{
    Consumer,
    Producer,
    Words, //
};
use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread, //
};

const SIZE: u32 = 2;

struct Page {
    tail: LoomWord,
    errors: LoomWord,
    overruns: LoomWord,
    head: LoomWord,
    reported: LoomWord,
    slots: [UnsafeCell<u64>; SIZE as usize],
}

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tail: LoomWord::new(),
            errors: LoomWord::new(),
            overruns: LoomWord::new(),
            head: LoomWord::new(),
            reported: LoomWord::new(),
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn producer(&self) -> Producer<&LoomWord> {
        let words = Words {
            tail: &self.tail,
            errors: &self.errors,
            overruns: &self.overruns,
            head: &self.head,
            reported: &self.reported,
        };
        Producer::new(words, SIZE).unwrap()
    }

    fn consumer(&self) -> Consumer<'_, LoomWord> {
        Consumer::new(&self.tail, &self.head, SIZE)
    }

    fn write(&self, slot: u32, value: u64) {
        // SAFETY: loom checks that there is no other access to the cell.
        self.slots[slot as usize].with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self, slot: u32) -> u64 {
        // SAFETY: loom checks that there is no write access to the cell.
        self.slots[slot as usize].with(|cell| unsafe { *cell })
    }
}

/// Reads all entries, which continue at `next`. Returns the next number.
fn drain(page: &Page, consumer: &mut Consumer<'_, LoomWord>, mut next: u64) -> u64 {
    let ready = consumer.ready();
    for slot in ready.slots() {
        assert_eq!(page.read(slot), next);
        next += 1;
    }
    consumer.release(ready.count());
    next
}

#[test]
fn entries_are_read_whole_once_and_in_order() {
    loom::model(|| {
        let page = Page::new();
        let mut producer = page.producer();
        let theirs = page.clone();
        let program = thread::spawn(move || {
            let mut consumer = theirs.consumer();
            let mut next = 1;
            for _ in 0..2 {
                next = drain(&theirs, &mut consumer, next);
            }
            next
        });
        let mut value = 1;
        for _ in 0..4 {
            let _ = producer.observe();
            if producer.push(|slot| page.write(slot, value)) {
                value += 1;
            }
        }
        let next = program.join().unwrap();
        let mut consumer = page.consumer();
        assert_eq!(drain(&page, &mut consumer, next), value);
        assert!(producer.observe().is_ok());
        assert_eq!(producer.queued(), 0);
    });
}
