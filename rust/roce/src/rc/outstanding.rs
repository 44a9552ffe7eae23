// SPDX-License-Identifier: GPL-2.0
//! READ requests and atomics that a requester has outstanding.
//!
//! A READ goes out as one request or several, each for a run of its PSNs. A responder remembers the
//! requests that it got, and takes a repetition only if it lies within one of them. So the requester
//! remembers where each ends, in lent slots, until its last PSN is answered: what is sent again is
//! the rest of a request, and never reaches beyond it.
//!
//! There are as many slots as the peer allows requests to be outstanding (`max_rd_atomic`).
//! Context: any, under the requester's lock.

use super::super::psn::Psn;
use core::ops::DerefMut;

/// Room for one outstanding request: the PSN behind its last.
pub type Slot = Psn;

/// Outstanding requests, in the order of their PSNs.
///
/// # Invariants
///
/// `sent <= len <= slots.len()`; `head < slots.len()` unless there is no slot. Their PSNs are less
/// than half the circle apart.
pub(super) struct Outstanding<R> {
    slots: R,
    head: usize,
    len: usize,
    /// How many of them need not be sent again.
    sent: usize,
}

impl<R: DerefMut<Target = [Slot]>> Outstanding<R> {
    pub(super) const fn new(slots: R) -> Self {
        Self {
            slots,
            head: 0,
            len: 0,
            sent: 0,
        }
    }

    /// Requests for which there is room.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn index(&self, place: usize) -> usize {
        let index = self.head.wrapping_add(place);
        if index < self.slots.len() {
            index
        } else {
            index.wrapping_sub(self.slots.len())
        }
    }

    fn end(&self, place: usize) -> Option<Psn> {
        if place >= self.len {
            return None;
        }
        self.slots.get(self.index(place)).copied()
    }

    /// A new request was sent whose PSNs end before `end`.
    pub(super) fn push(&mut self, end: Psn) {
        if self.len >= self.slots.len() {
            return;
        }
        let index = self.index(self.len);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = end;
            // INVARIANT: There was room. New ones are sent when all others are.
            self.len = self.len.wrapping_add(1);
            self.sent = self.len;
        }
    }

    /// Where the request ends that is to be sent again next.
    #[inline]
    pub(super) fn again(&self) -> Option<Psn> {
        self.end(self.sent)
    }

    /// It was sent again.
    pub(super) fn sent_again(&mut self) {
        // INVARIANT: Kept.
        self.sent = self.sent.wrapping_add(1).min(self.len);
    }

    /// All PSNs before `una` are answered.
    pub(super) fn answered(&mut self, una: Psn) {
        while self.end(0).is_some_and(|end| !una.is_before(end)) {
            self.head = self.index(1);
            // INVARIANT: There was one, and `index` keeps within the slots.
            self.len = self.len.wrapping_sub(1);
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// All PSNs from `next` on are to be sent again.
    pub(super) fn rewind(&mut self, next: Psn) {
        while self.sent > 0
            && self
                .end(self.sent.wrapping_sub(1))
                .is_some_and(|end| next.is_before(end))
        {
            // INVARIANT: Not 0.
            self.sent = self.sent.wrapping_sub(1);
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.sent = 0;
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_outstanding))]
mod tests {
    use super::*;

    const fn psn(psn: u32) -> Psn {
        // They wrap.
        Psn::new(Psn::MASK).add(psn)
    }

    #[test]
    fn answered_from_the_front_round_and_round() {
        let mut slots = [Psn::default(); 3];
        let mut outstanding = Outstanding::new(&mut slots[..]);
        for round in 0..7 {
            let base = round * 30;
            for i in 1..=3 {
                outstanding.push(psn(base + i * 10));
            }
            outstanding.push(psn(base + 99));
            assert_eq!(outstanding.len(), 3);
            assert_eq!(outstanding.again(), None);
            outstanding.answered(psn(base + 9));
            assert_eq!(outstanding.len(), 3);
            outstanding.answered(psn(base + 20));
            assert_eq!(outstanding.len(), 1);
            assert_eq!(outstanding.again(), None);
            outstanding.answered(psn(base + 30));
            assert!(outstanding.is_empty());
        }
    }

    #[test]
    fn sent_again_with_the_same_ends() {
        let mut slots = [Psn::default(); 3];
        let mut outstanding = Outstanding::new(&mut slots[..]);
        for end in [10, 20, 30] {
            outstanding.push(psn(end));
        }
        // In the middle of the second.
        outstanding.rewind(psn(15));
        assert_eq!(outstanding.again(), Some(psn(20)));
        outstanding.sent_again();
        assert_eq!(outstanding.again(), Some(psn(30)));
        outstanding.rewind(psn(0));
        assert_eq!(outstanding.again(), Some(psn(10)));
        // An answer that comes after all.
        outstanding.answered(psn(12));
        assert_eq!(outstanding.again(), Some(psn(20)));
        outstanding.sent_again();
        outstanding.sent_again();
        assert_eq!(outstanding.again(), None);
        outstanding.sent_again();
        // Behind the end of one is before the next.
        outstanding.rewind(psn(20));
        assert_eq!(outstanding.again(), Some(psn(30)));
        outstanding.clear();
        assert_eq!(outstanding.again(), None);
        assert!(outstanding.is_empty());
    }

    #[test]
    fn no_slots_at_all() {
        let mut outstanding = Outstanding::new(&mut [][..]);
        outstanding.push(psn(1));
        assert!(outstanding.is_empty());
        outstanding.answered(psn(1));
        outstanding.rewind(psn(0));
        assert_eq!(outstanding.again(), None);
    }
}
