// SPDX-License-Identifier: GPL-2.0

//! A queue over slots that somebody else owns.
//!
//! The error entries of a CQ and the events of an EQ stand in such queues. The
//! slots are lent when the queue is made: anything that is a slice underneath, a
//! vector of the kernel's or a `&mut [T]`. They are written in place, so an
//! event of a quarter of a kilobyte does not travel over the stack.
//!
//! Everything is O(1). Context: any, under the owner's lock.

use core::ops::DerefMut;

/// What became of an entry for which nobody had taken room beforehand.
#[must_use = "a lost entry is to be known to its source"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// It is queued.
    Queued,
    /// There was no room: it is lost, and counted.
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
    /// An empty queue that holds as many entries as `slots` has.
    pub const fn new(slots: S) -> Self {
        Self {
            slots,
            head: 0,
            len: 0,
        }
    }

    /// Entries it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Entries it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it can take no more.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity()
    }

    /// Appends an entry, which `write` writes over an old one. False: it is
    /// full, and `write` was not called.
    pub fn push_with(&mut self, write: impl FnOnce(&mut T)) -> bool {
        if self.is_full() {
            return false;
        }
        // The first slot behind the last entry; both terms are within the
        // slots, so it is at most one round too far.
        let to_end = self.capacity().wrapping_sub(self.head);
        let at = if self.len < to_end {
            self.head.wrapping_add(self.len)
        } else {
            self.len.wrapping_sub(to_end)
        };
        match self.slots.get_mut(at) {
            Some(slot) => write(slot),
            None => return false,
        }
        self.len = self.len.wrapping_add(1);
        true
    }

    /// The oldest entry.
    pub fn front(&self) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        self.slots.get(self.head)
    }

    /// Drops the oldest entry. False: there was none.
    pub fn pop(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        let next = self.head.wrapping_add(1);
        self.head = if next < self.capacity() { next } else { 0 };
        self.len = self.len.wrapping_sub(1);
        true
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_fifo))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_round_and_round() {
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
    fn full_takes_no_more_and_empty_gives_none() {
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
    fn no_slots_at_all() {
        let mut slots: [u32; 0] = [];
        let mut fifo = Fifo::new(&mut slots[..]);
        assert!(!fifo.push_with(|slot| *slot = 1));
        assert!(!fifo.pop());
        assert!(fifo.is_empty());
        assert!(fifo.is_full());
    }
}
