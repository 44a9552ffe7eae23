// SPDX-License-Identifier: GPL-2.0

//! Copying between memory and the payloads of packets.
//!
//! Each direction takes one copy, between the memory of an operation and the socket buffer.
//! [`word`] gives access to a word that peers change by atomics, and [`change_word`] changes it. No
//! function sleeps or yields: a payload is at most one path MTU, so a copy takes at most that many
//! segments.

use super::{
    memref::{
        MemRef,
        Source, //
    },
    segments::Cursor, //
};
use crate::shim::{
    bindings as shim,
    skb::{
        Room,
        RxSkb, //
    },
    word::AtomicWord, //
};
use core::ops::Range;
use kfi_core::word::Word;
use kfi_roce::{
    headers::AtomicEth,
    rc::target::Atomic, //
};

/// The payload of a received packet.
pub(crate) struct Payload<'a> {
    skb: &'a RxSkb,
    range: Range<usize>,
}

impl<'a> Payload<'a> {
    /// The bytes of a packet in `range`, counted from the end of its UDP header.
    pub(crate) fn new(skb: &'a RxSkb, range: Range<usize>) -> Self {
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
        let Some(mut to) = dst.cursor_mut(at) else {
            return 0;
        };
        let offset = self.range.start;
        let total = self
            .len()
            .min(to.left())
            .min(self.skb.len().saturating_sub(offset));
        let mut done = 0;
        while done < total {
            let piece = to.here().min(total - done);
            // SAFETY: The cursor's memory is valid for writes of `piece` bytes, and stays valid.
            // Others may change it during the copy, which C does.
            if !unsafe { self.skb.copy_raw(offset + done, to.addr(), piece) } {
                break;
            }
            to.advance(piece);
            done += piece;
        }
        done
    }

    /// Copies its first bytes to `to`; false if `to` is longer than the payload.
    #[must_use]
    pub(crate) fn copy_to_slice(&self, to: &mut [u8]) -> bool {
        to.len() <= self.len() && self.skb.copy_to_slice(self.range.start, to)
    }
}

/// Copies `bytes` to `dst` from byte `at` on, as far as there is room. Returns the number of bytes;
/// 0 if `dst` is not writable.
pub(crate) fn store(dst: &MemRef, at: usize, bytes: &[u8]) -> usize {
    let Some(mut to) = dst.cursor_mut(at) else {
        return 0;
    };
    let mut rest = bytes;
    while !rest.is_empty() && to.left() > 0 {
        let piece = to.here().min(rest.len());
        // SAFETY: The cursor's memory is valid for writes of `piece` bytes, `rest` for reads.
        // Others may change the former during the copy, which is why C does it.
        unsafe { shim::kfabric_shim_copy(to.addr().cast(), rest.as_ptr().cast(), piece) };
        to.advance(piece);
        rest = rest.get(piece..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}

/// Copies the bytes of `src` from byte `skip` on to `room`, and fills the rest of `room` with
/// zeros, so that no other kernel memory gets on the wire.
pub(crate) fn gather(room: &mut Room<'_>, src: &Source<'_>, skip: usize) {
    fetch(room, src.cursor(skip));
}

/// The same as [`gather`], for a [`MemRef`].
pub(crate) fn gather_mem(room: &mut Room<'_>, src: &MemRef, skip: usize) {
    fetch(room, src.cursor(skip));
}

fn fetch(room: &mut Room<'_>, mut from: Cursor<'_>) {
    while room.left() > 0 && from.left() > 0 {
        // SAFETY: The cursor's memory is valid for reads of `here` bytes, and stays valid.
        let piece = unsafe { room.put_raw(from.addr(), from.here()) };
        from.advance(piece);
    }
    room.fill(0);
}

/// Copies the bytes of `src` from byte `skip` on to `to`, as far as both have bytes.
pub(crate) fn peek(mut to: &mut [u8], src: &MemRef, skip: usize) {
    let mut from = src.cursor(skip);
    while !to.is_empty() && from.left() > 0 {
        let piece = from.here().min(to.len());
        // SAFETY: The cursor's memory is valid for reads of `piece` bytes, `to` for writes.
        unsafe { shim::kfabric_shim_copy(to.as_mut_ptr().cast(), from.addr().cast(), piece) };
        from.advance(piece);
        to = to.get_mut(piece..).unwrap_or_default();
    }
}

/// The first 8 bytes of `dst` as a word that can be changed atomically with respect to programs and
/// all CPUs. `None` if `dst` is shorter, not aligned, not contiguous there, or not writable.
pub(crate) fn word(dst: &MemRef) -> Option<&AtomicWord> {
    let to = dst.cursor_mut(0)?;
    let word = to.addr().cast::<u64>();
    if to.here() < size_of::<u64>() || !word.is_aligned() {
        return None;
    }
    // SAFETY: The word is aligned, and the cursor's memory is valid for reads and writes as long as
    // `dst` is. Programs may change it as well, and C copies to it.
    Some(unsafe { AtomicWord::from_ptr(word) })
}

/// Executes an atomic of RC on the first word of `dst`, by one atomic instruction, and returns the
/// old value. `None` if [`word`] finds none.
pub(crate) fn change_word(dst: &MemRef, atomic: Atomic, eth: &AtomicEth) -> Option<u64> {
    let word = word(dst)?;
    Some(match atomic {
        Atomic::FetchAdd => word.fetch_add(eth.swap_add),
        Atomic::CompareSwap => word
            .compare_exchange(eth.compare, eth.swap_add)
            .unwrap_or_else(|found| found),
    })
}
