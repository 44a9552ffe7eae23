// SPDX-License-Identifier: GPL-2.0
//! Multi-receive buffers: a posted receive that takes several messages.
//!
//! Messages are placed one after the other. [`MultiRecv::take`] assigns a part of the buffer to a
//! message. When the bytes are placed and the completion is about to be written,
//! [`MultiRecv::finish`] returns whether that completion is the last one of the buffer.
//!
//! A buffer *closes* when its remaining room is less than its minimum (`KFI_OPT_MIN_MULTI_RECV`),
//! or when it is cancelled. A closed buffer takes no more messages. It is *released* once, when it
//! is closed and no part is outstanding. The release is always reported:
//! - The buffer became full: the completion of the part that finishes last, which need not be the
//!   part that was taken last, has the flag `KFI_MULTI_RECV` ([`Release::Flag`]).
//! - The buffer was cancelled: an error entry of its own, `ECANCELED` with the flags `KFI_MSG |
//!   KFI_RECV | KFI_MULTI_RECV`, is written immediately ([`MultiRecv::cancel`]) or after the last
//!   part's completion ([`Release::Cancelled`]). Parts in progress are completed.
//! - Its endpoint closes: [`MultiRecv::cancel`] is called too, but like all posted receives the
//!   buffer is dropped without an entry.
//!
//! A message longer than the remaining room is truncated, like one in a plain receive, and closes
//! the buffer, because no room is left. Parts follow each other without padding.
//!
//! The CQ credit that the buffer took when it was posted is used by the completion that releases
//! it. The other completions belong to no posted operation and have no credit.

use crate::matching::Placement;

/// The state of a multi-receive buffer.
///
/// # Invariants
///
/// `used <= len`. If `released`, then `closed` and nothing is outstanding.
#[derive(Debug)]
pub struct MultiRecv {
    /// The length of the buffer in bytes.
    len: u64,
    /// The number of bytes assigned to parts.
    used: u64,
    /// The room in bytes below which the buffer closes; not 0.
    min: u64,
    /// The number of parts that were taken and are not finished.
    outstanding: u32,
    closed: bool,
    cancelled: bool,
    released: bool,
}

/// The part of a buffer that is assigned to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of the part in the buffer, in bytes. `buf` of the completion is the address of
    /// the buffer plus this offset.
    pub offset: u64,
    /// The bytes of the message that are placed there.
    pub placement: Placement,
    /// The buffer has closed with this part: the caller removes it from the queue.
    pub closes: bool,
}

/// The effect of the end of a part on its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// None: the buffer is open, or other parts are outstanding.
    No,
    /// The buffer is released; the completion of this part has the flag `KFI_MULTI_RECV`.
    Flag,
    /// The cancelled buffer is released; an error entry `ECANCELED` follows the completion of this
    /// part.
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

    /// Returns the remaining room in bytes.
    pub const fn room(&self) -> u64 {
        self.len.saturating_sub(self.used)
    }

    /// Returns whether the buffer takes no more messages.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of parts that were taken and are not finished.
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Assigns a part to a message of `msg_len` bytes. A buffer that is smaller than its minimum
    /// still takes one message.
    ///
    /// Returns `None` if the buffer is closed, or if 2^32 parts are outstanding.
    #[inline(always)]
    pub fn take(&mut self, msg_len: u64) -> Option<Part> {
        if self.closed {
            return None;
        }
        let outstanding = self.outstanding.checked_add(1)?;
        let offset = self.used;
        let placement = Placement::new(msg_len, self.room());
        self.outstanding = outstanding;
        // INVARIANT: `placement` is at most the remaining room.
        self.used = offset.saturating_add(placement.len);
        self.closed = self.room() < self.min;
        Some(Part {
            offset,
            placement,
            closes: self.closed,
        })
    }

    /// Ends a part whose bytes are placed, or could not be. Called once for each part, just before
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

    /// Closes the buffer before it is full; the caller has removed it from the queue. Returns
    /// whether this releases the buffer; otherwise [`Self::finish`] returns [`Release::Cancelled`]
    /// for the last part. A buffer that had already closed is unchanged.
    #[must_use]
    pub fn cancel(&mut self) -> bool {
        if !self.closed {
            self.closed = true;
            self.cancelled = true;
        }
        self.release()
    }

    /// Releases the buffer if it is closed and no part is outstanding. Returns true once.
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
    fn parts_are_consecutive_until_the_minimum() {
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
}
