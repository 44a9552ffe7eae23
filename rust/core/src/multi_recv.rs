// SPDX-License-Identifier: GPL-2.0
//! A multi-receive buffer: one posted receive that takes several messages.
//!
//! Messages are placed one behind the other. [`MultiRecv::take`] gives a message its part of the
//! buffer; when its bytes are there and its completion is about to be written,
//! [`MultiRecv::finish`] says whether that completion is the buffer's last.
//!
//! A buffer *closes* when the room left is less than its minimum (`KFI_OPT_MIN_MULTI_RECV`), or
//! when it is cancelled; a closed buffer takes no more messages. It is *released* once, when it is
//! closed and no part is outstanding, and the release is always reported:
//! - it filled up: the completion of the part that finishes last, which need not be the one that
//!   was taken last, has the flag `KFI_MULTI_RECV` ([`Release::Flag`]);
//! - it was cancelled: an error entry of its own, `ECANCELED` with the flags `KFI_MSG | KFI_RECV |
//!   KFI_MULTI_RECV`, at once ([`MultiRecv::cancel`]) or behind the last part's completion
//!   ([`Release::Cancelled`]). Parts under way are never cut short;
//! - its endpoint closes: [`MultiRecv::cancel`] too, but as all posted receives it is dropped
//!   without an entry.
//!
//! A message longer than the room left is truncated like one in a plain receive, and closes the
//! buffer, for then no room is left. Room is handed out to the byte, without padding.
//!
//! The CQ's credit that the buffer took when it was posted serves the completion that releases it;
//! the others are completions that nobody posted for.

use crate::matching::Placement;

/// The state of a multi-receive buffer.
///
/// # Invariants
///
/// `used <= len`. If `released`, then `closed` and nothing is outstanding.
#[derive(Debug)]
pub struct MultiRecv {
    /// Bytes of the buffer.
    len: u64,
    /// Bytes given out.
    used: u64,
    /// Room below which the buffer closes, bytes; not 0.
    min: u64,
    /// Parts given out and not finished.
    outstanding: u32,
    closed: bool,
    cancelled: bool,
    released: bool,
}

/// A message's part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the buffer, bytes: `buf` of the completion is the buffer's address plus
    /// this.
    pub offset: u64,
    /// What of the message is placed there.
    pub placement: Placement,
    /// The buffer has closed with this part: take it out of the queue.
    pub closes: bool,
}

/// What the end of a part means for its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// Nothing: the buffer is open, or other parts are outstanding.
    No,
    /// The buffer is released; this part's completion says so with `KFI_MULTI_RECV`.
    Flag,
    /// The buffer, which was cancelled, is released; an error entry `ECANCELED` follows this part's
    /// completion.
    Cancelled,
}

impl MultiRecv {
    /// Makes an open buffer of `len` bytes that closes when less than `min` bytes, or none, are
    /// left.
    pub const fn new(len: u64, min: u64) -> Self {
        Self {
            len,
            used: 0,
            min: if min > 0 { min } else { 1 },
            outstanding: 0,
            closed: false,
            cancelled: false,
            released: false,
        }
    }

    /// Returns the room left, bytes.
    pub const fn room(&self) -> u64 {
        self.len.saturating_sub(self.used)
    }

    /// Returns whether the buffer takes no more messages.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns how many parts are given out and not finished.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Gives a message of `msg_len` bytes its part. The first message is taken even by a buffer
    /// that is smaller than its minimum.
    ///
    /// `None`: the buffer is closed, or 2^32 parts are outstanding.
    #[inline(always)]
    pub fn take(&mut self, msg_len: u64) -> Option<Part> {
        if self.closed {
            return None;
        }
        let outstanding = self.outstanding.checked_add(1)?;
        let offset = self.used;
        let placement = Placement::new(msg_len, self.room());
        self.outstanding = outstanding;
        // INVARIANT: Not more than the room is placed.
        self.used = offset.saturating_add(placement.len);
        self.closed = self.room() < self.min;
        Some(Part {
            offset,
            placement,
            closes: self.closed,
        })
    }

    /// Ends a part: its bytes are placed, or could not be. Called for each part once, just before
    /// its completion is written.
    #[inline(always)]
    pub fn finish(&mut self) -> Release {
        let Some(outstanding) = self.outstanding.checked_sub(1) else {
            return Release::No;
        };
        self.outstanding = outstanding;
        if !self.release() {
            Release::No
        } else if self.cancelled {
            Release::Cancelled
        } else {
            Release::Flag
        }
    }

    /// Closes the buffer, which is in the queue no longer, before it is full. Returns whether it is
    /// released by that; else [`Self::finish`] says [`Release::Cancelled`] to the last part. A
    /// buffer that had closed already is not changed.
    #[must_use]
    pub fn cancel(&mut self) -> bool {
        if !self.closed {
            self.closed = true;
            self.cancelled = true;
        }
        self.release()
    }

    /// Releases the buffer if its time has come. Returns true once.
    fn release(&mut self) -> bool {
        if self.released || !self.closed || self.outstanding > 0 {
            return false;
        }
        self.released = true;
        true
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_multi_recv))]
mod tests {
    use super::*;

    fn part(offset: u64, len: u64, olen: u64, closes: bool) -> Option<Part> {
        let placement = Placement { len, olen };
        Some(Part {
            offset,
            placement,
            closes,
        })
    }

    #[test]
    fn parts_follow_each_other_until_the_minimum() {
        let mut buffer = MultiRecv::new(100, 20);
        assert_eq!(buffer.take(30), part(0, 30, 0, false));
        assert_eq!(buffer.take(0), part(30, 0, 0, false));
        assert_eq!(buffer.take(50), part(30, 50, 0, false));
        assert_eq!(buffer.room(), 20);
        assert_eq!(buffer.take(1), part(80, 1, 0, true));
        assert!(buffer.is_closed());
        assert_eq!(buffer.take(0), None);
        assert_eq!(buffer.outstanding(), 4);
    }

    #[test]
    fn the_last_to_finish_releases_once() {
        let mut buffer = MultiRecv::new(10, 0);
        assert!(buffer.take(4).is_some());
        assert_eq!(buffer.finish(), Release::No);
        assert!(buffer.take(4).is_some());
        assert_eq!(buffer.take(2), part(8, 2, 0, true));
        assert_eq!(buffer.finish(), Release::No);
        assert_eq!(buffer.finish(), Release::Flag);
        assert_eq!(buffer.finish(), Release::No);
        assert!(!buffer.cancel());
    }

    #[test]
    fn a_long_message_is_truncated_and_closes() {
        let mut buffer = MultiRecv::new(10, 1);
        assert_eq!(buffer.take(4), part(0, 4, 0, false));
        assert_eq!(buffer.take(9), part(4, 6, 3, true));
        assert_eq!(buffer.take(0), None);
    }

    #[test]
    fn a_minimum_of_nothing_still_closes_a_full_buffer() {
        let mut buffer = MultiRecv::new(4, 0);
        assert_eq!(buffer.take(3), part(0, 3, 0, false));
        assert_eq!(buffer.take(1), part(3, 1, 0, true));
    }

    #[test]
    fn a_buffer_smaller_than_its_minimum_takes_one() {
        let mut buffer = MultiRecv::new(4, 64);
        assert_eq!(buffer.take(2), part(0, 2, 0, true));
        assert_eq!(buffer.finish(), Release::Flag);
        let mut nothing = MultiRecv::new(0, 64);
        assert_eq!(nothing.take(3), part(0, 0, 3, true));
        assert_eq!(nothing.finish(), Release::Flag);
    }

    #[test]
    fn cancelled_while_idle() {
        let mut buffer = MultiRecv::new(10, 1);
        assert!(buffer.take(4).is_some());
        assert_eq!(buffer.finish(), Release::No);
        assert!(buffer.cancel());
        assert!(!buffer.cancel());
        assert_eq!(buffer.take(1), None);
        assert_eq!(buffer.finish(), Release::No);
    }

    #[test]
    fn cancelled_with_parts_under_way() {
        let mut buffer = MultiRecv::new(10, 1);
        assert!(buffer.take(4).is_some());
        assert!(buffer.take(4).is_some());
        assert!(!buffer.cancel());
        assert_eq!(buffer.take(1), None);
        assert_eq!(buffer.finish(), Release::No);
        assert_eq!(buffer.finish(), Release::Cancelled);
        assert_eq!(buffer.finish(), Release::No);
    }

    #[test]
    fn cancelled_after_it_was_full() {
        let mut buffer = MultiRecv::new(4, 1);
        assert!(buffer.take(4).is_some());
        assert!(!buffer.cancel());
        assert_eq!(buffer.finish(), Release::Flag);
    }
}
