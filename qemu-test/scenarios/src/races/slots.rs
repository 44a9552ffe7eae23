// SPDX-License-Identifier: GPL-2.0
//! The messages of the races, which name themselves, and the slots of their operations.

use kfi::Buffer;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Lengths of messages: inline, copied, left with the sender; and the edges between these.
pub(super) const LENGTHS: [usize; 10] = [0, 8, 16, 100, 256, 257, 4096, 8192, 8193, 40_000];
/// Room of a receive; the longest message does not fit into some.
pub(super) const ROOM: usize = 40_000;
pub(super) const SHORT: usize = 5_000;
pub(super) const MULTI_ROOM: usize = 60_000;

/// The bytes of message `context`: the context, the length, and bytes computed from both.
pub(super) fn message(context: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|i| match i {
        0 => context,
        1 => len as u64,
        i => context.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i,
    });
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

/// The context of this message: `bytes` must be the bytes sent, or their beginning.
pub(super) fn identify(bytes: &[u8], whole: bool) -> Option<u64> {
    let word = |i: usize| Some(u64::from_le_bytes(*bytes.get(i * 8..)?.first_chunk()?));
    let (context, len) = (word(0)?, word(1)? as usize);
    assert!(LENGTHS.contains(&len), "a message of {len} bytes");
    assert_eq!(len == bytes.len(), whole, "{} of {len} bytes", bytes.len());
    assert!(
        message(context, len).starts_with(bytes),
        "wrong bytes in a message of {len}"
    );
    Some(context)
}

/// The use of a slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Recv,
    Multi,
    Send,
    Rma,
    Search,
}

pub(super) const KINDS: [(Kind, usize, usize); 5] = [
    (Kind::Recv, 96, ROOM),
    (Kind::Multi, 12, MULTI_ROOM),
    (Kind::Send, 96, ROOM),
    (Kind::Rma, 24, 4096),
    (Kind::Search, 8, 8),
];

pub(super) const FREE: u64 = 0;
/// The call is under way; the completion may come before it returns.
pub(super) const POSTING: u64 = 1;
/// The operation was accepted.
pub(super) const POSTED: u64 = 2;

pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) memory: Buffer,
    /// Generation and one of the states above.
    pub(super) state: AtomicU64,
    /// The endpoint.
    pub(super) ep: AtomicU32,
    /// Success means that a receive has the message.
    pub(super) delivers: AtomicBool,
}

impl Slot {
    pub(super) fn change(&self, generation: u64, from: u64, to: u64) -> bool {
        let word = |phase| generation << 2 | phase;
        self.state
            .compare_exchange(word(from), word(to), SeqCst, SeqCst)
            .is_ok()
    }

    pub(super) fn now(&self) -> (u64, u64) {
        let word = self.state.load(SeqCst);
        (word >> 2, word & 3)
    }
}
