// SPDX-License-Identifier: GPL-2.0

//! A FIFO queue over slots that the caller lends.
//!
//! CQs keep their error entries, and EQs their events, in such queues. The slots are lent when the
//! queue is made: any type that dereferences to a slice, such as a vector of the kernel or a `&mut
//! [T]`. Entries are written in place, so an event of several hundred bytes is not copied through
//! the stack.
//!
//! Each operation takes O(1), apart from [`Fifo::retain`]. Context: any, under the owner's lock.

use core::ops::DerefMut;

/// The result of queueing an entry without a reservation.
#[must_use = "the source must handle a lost entry"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// The entry is queued.
    Queued,
    /// There was no room: the entry is lost and counted.
    Overrun,
}

/// A first-in first-out queue over lent slots.
///
/// # Invariants
///
/// `head < slots.len()` unless there are no slots; `len <= slots.len()`.
pub struct Fifo<S> {
    slots: S,
    head: usize,
    len: usize,
}

impl<T, S: DerefMut<Target = [T]>> Fifo<S> {
    /// Makes an empty queue that holds as many entries as there are `slots`.
    pub const fn new(slots: S) -> Self {
        Self {
            slots,
            head: 0,
            len: 0,
        }
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity()
    }

    /// Returns the index of the slot of entry `n`: `head + n` modulo the capacity. `n` is at most
    /// the capacity.
    fn slot(&self, n: usize) -> usize {
        let to_end = self.capacity().wrapping_sub(self.head);
        if n < to_end {
            self.head.wrapping_add(n)
        } else {
            n.wrapping_sub(to_end)
        }
    }

    /// Appends an entry, which `write` writes over an old one. Returns false if the queue is full;
    /// `write` is not called then.
    pub fn push_with(&mut self, write: impl FnOnce(&mut T)) -> bool {
        if self.is_full() {
            return false;
        }
        let at = self.slot(self.len);
        match self.slots.get_mut(at) {
            Some(slot) => write(slot),
            None => return false,
        }
        self.len = self.len.wrapping_add(1);
        true
    }

    /// Returns the oldest entry.
    pub fn front(&self) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        self.slots.get(self.head)
    }

    /// Removes the oldest entry. Returns false if there is none.
    pub fn pop(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        let next = self.head.wrapping_add(1);
        self.head = if next < self.capacity() { next } else { 0 };
        self.len = self.len.wrapping_sub(1);
        true
    }

    /// Removes the entries for which `keep` returns false. The others keep their order. O(n).
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut kept = 0_usize;
        for n in 0..self.len {
            let (from, to) = (self.slot(n), self.slot(kept));
            if !self.slots.get(from).is_some_and(&mut keep) {
                continue;
            }
            if from != to {
                // Both are slots of entries.
                self.slots.swap(from, to);
            }
            kept = kept.wrapping_add(1);
        }
        self.len = kept;
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_fifo))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_first_in_first_out_across_the_wrap() {
        let mut slots = [0_u32; 3];
        let mut fifo = Fifo::new(&mut slots[..]);
        assert_eq!(fifo.capacity(), 3);
        for i in 0..20 {
            assert!(fifo.push_with(|slot| *slot = i));
            assert!(fifo.push_with(|slot| *slot = i + 100));
            assert_eq!(fifo.len(), 2);
            assert_eq!(fifo.front(), Some(&i));
            assert!(fifo.pop());
            assert_eq!(fifo.front(), Some(&(i + 100)));
            assert!(fifo.pop());
            assert!(fifo.is_empty());
        }
    }

    #[test]
    fn a_full_queue_refuses_and_an_empty_one_returns_none() {
        let mut slots = [0_u32; 2];
        let mut fifo = Fifo::new(&mut slots[..]);
        assert!(!fifo.pop());
        assert_eq!(fifo.front(), None);
        assert!(fifo.push_with(|slot| *slot = 1));
        assert!(fifo.push_with(|slot| *slot = 2));
        assert!(fifo.is_full());
        assert!(!fifo.push_with(|slot| *slot = 3));
        assert_eq!(fifo.front(), Some(&1));
        assert_eq!(fifo.len(), 2);
    }

    #[test]
    fn the_entries_that_are_kept_stay_in_order() {
        // For each position of the first slot and each set of entries.
        for head in 0..4 {
            for set in 0..16_u32 {
                let mut slots = [0_u32; 4];
                let mut fifo = Fifo::new(&mut slots[..]);
                for _ in 0..head {
                    assert!(fifo.push_with(|slot| *slot = 9));
                    assert!(fifo.pop());
                }
                for i in 0..4 {
                    assert!(fifo.push_with(|slot| *slot = i));
                }
                fifo.retain(|i| set & (1 << i) != 0);
                for i in (0..4).filter(|i| set & (1 << i) != 0) {
                    assert_eq!(fifo.front(), Some(&i));
                    assert!(fifo.pop());
                }
                assert!(fifo.is_empty());
                assert!(fifo.push_with(|slot| *slot = 5));
                assert_eq!(fifo.front(), Some(&5));
            }
        }
    }

    #[test]
    fn a_queue_without_slots_is_full_and_empty() {
        let mut slots: [u32; 0] = [];
        let mut fifo = Fifo::new(&mut slots[..]);
        assert!(!fifo.push_with(|slot| *slot = 1));
        assert!(!fifo.pop());
        assert!(fifo.is_empty());
        assert!(fifo.is_full());
    }
}
