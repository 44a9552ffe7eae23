// SPDX-License-Identifier: GPL-2.0

//! The payload of a received packet, in its socket buffer.

use crate::{
    mem::{
        wire,
        MemRef, //
    },
    shim::skb::RxSkb, //
};
use core::ops::Range;

/// The payload of a received packet.
pub(crate) struct Payload<'a> {
    skb: &'a RxSkb,
    range: Range<usize>,
}

impl<'a> Payload<'a> {
    /// The bytes of a packet in `range`, counted from the end of its UDP header.
    pub(super) fn new(skb: &'a RxSkb, range: Range<usize>) -> Self {
        Self { skb, range }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// The part of it in `range`, clipped to its length.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let start = range.start.min(self.range.len());
        let end = range.end.clamp(start, self.range.len());
        Self {
            skb: self.skb,
            range: self.range.start.wrapping_add(start)..self.range.start.wrapping_add(end),
        }
    }

    /// Copies it to `dst` from byte `at` on, as far as there is room. Returns the number of bytes;
    /// 0 if `dst` is not writable.
    pub(crate) fn place(&self, dst: &MemRef, at: usize) -> usize {
        wire::place(dst, at, self.skb, self.range.start, self.range.len())
    }

    /// Copies its first bytes to `to`; false if `to` is longer than the payload.
    #[must_use]
    pub(crate) fn copy_to_slice(&self, to: &mut [u8]) -> bool {
        to.len() <= self.len() && self.skb.copy_to_slice(self.range.start, to)
    }
}
