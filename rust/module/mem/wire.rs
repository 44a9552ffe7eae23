// SPDX-License-Identifier: GPL-2.0

//! Memory and the wire: payloads of packets, from and to where they belong.
//!
//! One copy each way, between the pages of an operation and the socket buffer; and words that peers
//! change by atomics. None of these sleeps or yields: a payload is at most one path MTU, so each goes
//! through as many segments at most.

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

/// Copies `len` bytes of a packet, from `offset` on, to `dst` from byte `at` on: as many as both
/// have. Returns how many; none if `dst` is not writable.
pub(crate) fn place(dst: &MemRef, at: usize, skb: &RxSkb, offset: usize, len: usize) -> usize {
    let Some(mut to) = dst.cursor_mut(at) else {
        return 0;
    };
    let total = len.min(to.left()).min(skb.len().saturating_sub(offset));
    let mut done = 0;
    while done < total {
        let piece = to.here().min(total - done);
        // SAFETY: The cursor's memory is valid for writes of so many bytes, and stays; others may
        // change it meanwhile, which the copy, in C, does not mind.
        if !unsafe { skb.copy_raw(offset + done, to.addr(), piece) } {
            break;
        }
        to.advance(piece);
        done += piece;
    }
    done
}

/// Copies `bytes` to `dst` from byte `at` on: as many as there is room for. Returns how many; none if
/// `dst` is not writable.
pub(crate) fn store(dst: &MemRef, at: usize, bytes: &[u8]) -> usize {
    let Some(mut to) = dst.cursor_mut(at) else {
        return 0;
    };
    let mut rest = bytes;
    while !rest.is_empty() && to.left() > 0 {
        let piece = to.here().min(rest.len());
        // SAFETY: The cursor's memory is valid for writes of so many bytes, `rest` for reads. Others
        // may change the former meanwhile, which is why this is done in C.
        unsafe { shim::kfabric_shim_copy(to.addr().cast(), rest.as_ptr().cast(), piece) };
        to.advance(piece);
        rest = rest.get(piece..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}

/// Copies the bytes of `src` from byte `skip` on to `room`, and fills up what is left of it with zeros:
/// nothing else of this kernel's memory may get on the wire.
pub(crate) fn gather(room: &mut Room<'_>, src: &Source<'_>, skip: usize) {
    fetch(room, src.cursor(skip));
}

/// The same from memory that stays.
pub(crate) fn gather_mem(room: &mut Room<'_>, src: &MemRef, skip: usize) {
    fetch(room, src.cursor(skip));
}

fn fetch(room: &mut Room<'_>, mut from: Cursor<'_>) {
    while room.left() > 0 && from.left() > 0 {
        // SAFETY: The cursor's memory is valid for reads of so many bytes, and stays.
        let piece = unsafe { room.put_raw(from.addr(), from.here()) };
        from.advance(piece);
    }
    room.fill(0);
}

/// Copies the bytes of `src` from byte `skip` on to `to`, as many as both have. For tests.
#[cfg(kfi_kunit)]
pub(crate) fn peek(mut to: &mut [u8], src: &MemRef, skip: usize) {
    let mut from = src.cursor(skip);
    while !to.is_empty() && from.left() > 0 {
        let piece = from.here().min(to.len());
        // SAFETY: The cursor's memory is valid for reads of so many bytes, `to` for writes.
        unsafe { shim::kfabric_shim_copy(to.as_mut_ptr().cast(), from.addr().cast(), piece) };
        from.advance(piece);
        to = to.get_mut(piece..).unwrap_or_default();
    }
}

/// The word of 8 bytes at the beginning of `dst`, to be changed atomically with respect to programs
/// and all CPUs; none if there are fewer, if it is not aligned in memory, or not writable.
pub(crate) fn word(dst: &MemRef) -> Option<&AtomicWord> {
    let to = dst.cursor_mut(0)?;
    let word = to.addr().cast::<u64>();
    if to.here() < size_of::<u64>() || !word.is_aligned() {
        return None;
    }
    // SAFETY: Aligned, and the cursor's memory is valid for reads and writes of so many bytes as long
    // as `dst` is. Others who change it meanwhile are programs, or copy in C.
    Some(unsafe { AtomicWord::from_ptr(word) })
}
