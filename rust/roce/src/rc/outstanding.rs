// SPDX-License-Identifier: GPL-2.0
//! READ requests and atomics that a requester has outstanding.
//!
//! A READ is sent as one request or several, each for a range of its PSNs. A responder remembers
//! the requests that it has received, and accepts a retransmission only if it lies within one of
//! them. The requester therefore remembers, in lent slots, where each request ends until its last
//! PSN is answered. A retransmission covers the rest of one request and never extends beyond it.
//!
//! There are as many slots as the peer allows outstanding requests (`max_rd_atomic`). Context: any,
//! under the requester's lock.

use super::super::psn::Psn;
use core::ops::DerefMut;

/// A slot for one outstanding request: the PSN after its last one.
pub type Slot = Psn;

/// The outstanding requests, in the order of their PSNs.
///
/// # Invariants
///
/// `sent <= len <= slots.len()`; `head < slots.len()` unless there is no slot. The PSNs span less
/// than half the number space.
pub(super) struct Outstanding<R> {
    slots: R,
    head: usize,
    len: usize,
    /// The number of requests that need no retransmission, counted from the oldest.
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

    /// Returns the number of slots.
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

    fn index(&self, position: usize) -> usize {
        let index = self.head.wrapping_add(position);
        if index < self.slots.len() {
            index
        } else {
            index.wrapping_sub(self.slots.len())
        }
    }

    fn end(&self, position: usize) -> Option<Psn> {
        if position >= self.len {
            return None;
        }
        self.slots.get(self.index(position)).copied()
    }

    /// Adds a new request whose PSNs end before `end`.
    pub(super) fn push(&mut self, end: Psn) {
        if self.len >= self.slots.len() {
            return;
        }
        let index = self.index(self.len);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = end;
            // INVARIANT: There was room. A new request is sent only after all retransmissions.
            self.len = self.len.wrapping_add(1);
            self.sent = self.len;
        }
    }

    /// Returns the end of the request to retransmit next.
    #[inline]
    pub(super) fn again(&self) -> Option<Psn> {
        self.end(self.sent)
    }

    /// Records that the request was retransmitted.
    pub(super) fn sent_again(&mut self) {
        // INVARIANT: `sent` stays at most `len`.
        self.sent = self.sent.wrapping_add(1).min(self.len);
    }

    /// Removes the requests all of whose PSNs are before `una`.
    pub(super) fn answered(&mut self, una: Psn) {
        while self.end(0).is_some_and(|end| !una.is_before(end)) {
            self.head = self.index(1);
            // INVARIANT: There was a request, and `index` returns an index of a slot.
            self.len = self.len.wrapping_sub(1);
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// Marks the requests with PSNs from `next` on for retransmission.
    pub(super) fn rewind(&mut self, next: Psn) {
        while self.sent > 0
            && self
                .end(self.sent.wrapping_sub(1))
                .is_some_and(|end| next.is_before(end))
        {
            // INVARIANT: `sent` is not 0.
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
        // The PSNs wrap around.
        Psn::new(Psn::MASK).add(psn)
    }

    #[test]
    fn requests_are_removed_from_the_front_across_the_wrap() {
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
    fn retransmitted_requests_keep_their_ends() {
        let mut slots = [Psn::default(); 3];
        let mut outstanding = Outstanding::new(&mut slots[..]);
        for end in [10, 20, 30] {
            outstanding.push(psn(end));
        }
        // In the middle of the second request.
        outstanding.rewind(psn(15));
        assert_eq!(outstanding.again(), Some(psn(20)));
        outstanding.sent_again();
        assert_eq!(outstanding.again(), Some(psn(30)));
        outstanding.rewind(psn(0));
        assert_eq!(outstanding.again(), Some(psn(10)));
        // A late response.
        outstanding.answered(psn(12));
        assert_eq!(outstanding.again(), Some(psn(20)));
        outstanding.sent_again();
        outstanding.sent_again();
        assert_eq!(outstanding.again(), None);
        outstanding.sent_again();
        // The PSN behind one request is the first of the next one.
        outstanding.rewind(psn(20));
        assert_eq!(outstanding.again(), Some(psn(30)));
        outstanding.clear();
        assert_eq!(outstanding.again(), None);
        assert!(outstanding.is_empty());
    }

    #[test]
    fn a_queue_without_slots_is_empty() {
        let mut outstanding = Outstanding::new(&mut [][..]);
        outstanding.push(psn(1));
        assert!(outstanding.is_empty());
        outstanding.answered(psn(1));
        outstanding.rewind(psn(0));
        assert_eq!(outstanding.again(), None);
    }
}
