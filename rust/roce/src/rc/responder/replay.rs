// SPDX-License-Identifier: GPL-2.0
//! READs and atomics that a responder is answering, or has answered and may have to answer again.
//!
//! They are kept in lent slots in the order of their PSNs. There are as many slots as the peer may
//! have outstanding requests (`max_dest_rd_atomic`). The peer begins another request only after the
//! oldest was answered, so the slot of the oldest can be reused, and every request that the peer
//! may repeat is found.
//!
//! A repeated READ reads the memory again, for the whole range or for the rest that the peer asks
//! for. A repeated atomic is not executed again; its result is kept.
//!
//! Finding a duplicate takes O(slots), everything else O(1) on average.

use super::super::super::{
    headers::Reth,
    mtu::PathMtu,
    psn::Psn, //
};
use core::ops::DerefMut;

/// The data for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The memory of the original READ request, and whether more READs of the operation follow.
    Read(Reth, bool),
    /// The value before an atomic.
    Atomic(u64),
}

/// A slot for one request.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// The first PSN.
    pub(super) first: Psn,
    /// The number of its PSNs.
    packets: u32,
    pub(super) answer: Answer,
    pub(super) msn: Psn,
    /// The range of packets that are requested now: `start` is the first, `next` the next one to
    /// send, `end` the one after the last. All are sent if `next == end`.
    start: u32,
    next: u32,
    end: u32,
    /// Whether the last packet was sent at least once.
    done: bool,
}

impl Replay {
    /// An empty slot, to initialise storage.
    pub const EMPTY: Self = Self {
        first: Psn::new(0),
        packets: 0,
        answer: Answer::Atomic(0),
        msn: Psn::new(0),
        start: 0,
        next: 0,
        end: 0,
        done: false,
    };

    fn is_pending(&self) -> bool {
        self.next != self.end
    }
}

/// One packet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) replay_first: Psn,
    /// The index of the packet in the answer.
    pub(super) index: u32,
    pub(super) starts: bool,
    pub(super) ends: bool,
    pub(super) answer: Answer,
    pub(super) msn: Psn,
    /// Whether this packet completes the answer for the first time.
    pub(super) completes: bool,
}

/// The remembered requests.
///
/// # Invariants
///
/// `len <= limit <= slots.len()`; `head < slots.len()` unless there is no slot. The requests before
/// position `cursor` (position 0 is the oldest) have no packet to send.
pub(super) struct Store<P> {
    slots: P,
    limit: usize,
    head: usize,
    len: usize,
    cursor: usize,
}

impl<P: DerefMut<Target = [Replay]>> Store<P> {
    pub(super) const fn new(slots: P) -> Self {
        Self {
            slots,
            limit: 0,
            head: 0,
            len: 0,
            cursor: 0,
        }
    }

    /// Returns the number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Removes all requests, and sets the number to remember to `limit`.
    pub(super) fn reset(&mut self, limit: usize) {
        // INVARIANT: `limit` is at most the number of slots.
        self.limit = limit.min(self.slots.len());
        self.head = 0;
        self.len = 0;
        self.cursor = 0;
    }

    fn index(&self, position: usize) -> usize {
        let index = self.head.wrapping_add(position);
        if index < self.slots.len() {
            index
        } else {
            index.wrapping_sub(self.slots.len())
        }
    }

    fn get_mut(&mut self, position: usize) -> Option<&mut Replay> {
        if position >= self.len {
            return None;
        }
        let index = self.index(position);
        self.slots.get_mut(index)
    }

    fn get(&self, position: usize) -> Option<&Replay> {
        if position >= self.len {
            return None;
        }
        self.slots.get(self.index(position))
    }

    /// Returns whether another request may be accepted. False if the oldest has never been answered
    /// completely: the peer exceeds its limit then.
    pub(super) fn has_room(&self) -> bool {
        if self.len < self.limit {
            return self.limit > 0;
        }
        self.get(0).is_some_and(|oldest| oldest.done)
    }

    /// Adds a request to be answered. The caller has checked that there is room.
    pub(super) fn push(&mut self, first: Psn, packets: u32, answer: Answer, msn: Psn) {
        if self.limit == 0 {
            return;
        }
        if self.len >= self.limit {
            // INVARIANT: The oldest request is removed from the front.
            self.head = self.index(1);
            self.len = self.len.wrapping_sub(1);
            self.cursor = self.cursor.saturating_sub(1);
        }
        let index = self.index(self.len);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Replay {
                first,
                packets,
                answer,
                msn,
                start: 0,
                next: 0,
                end: packets,
                done: false,
            };
            // INVARIANT: There was room for one.
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Finds the request that contains this PSN.
    fn find(&self, psn: Psn) -> Option<usize> {
        (0..self.len).find(|position| {
            self.get(*position)
                .is_some_and(|replay| psn.is_within(replay.first, replay.packets))
        })
    }

    /// Handles a repeated READ that covers the whole original request or a part from `psn` on.
    /// Returns false if the original is not remembered or does not match.
    pub(super) fn read_again(&mut self, psn: Psn, reth: &Reth, mtu: PathMtu) -> bool {
        let Some(position) = self.find(psn) else {
            return false;
        };
        let Some(replay) = self.get_mut(position) else {
            return false;
        };
        let Answer::Read(first, _) = replay.answer else {
            return false;
        };
        let start = psn.since(replay.first);
        let offset = mtu.offset(start);
        let end = start.saturating_add(mtu.packets(reth.len));
        let same = reth.rkey == first.rkey
            && reth.va == first.va.wrapping_add(u64::from(offset))
            && end <= replay.packets
            && if end == replay.packets {
                offset.saturating_add(reth.len) == first.len
            } else {
                reth.len > 0 && reth.len % mtu.bytes() == 0
            };
        if same {
            self.again(position, start, end);
        }
        same
    }

    /// Handles a repeated atomic. Returns false if the original is not remembered.
    pub(super) fn atomic_again(&mut self, psn: Psn) -> bool {
        let Some(position) = self.find(psn) else {
            return false;
        };
        let is_atomic = self
            .get(position)
            .is_some_and(|replay| matches!(replay.answer, Answer::Atomic(_)));
        if is_atomic {
            self.again(position, 0, 1);
        }
        is_atomic
    }

    fn again(&mut self, position: usize, start: u32, end: u32) {
        if let Some(replay) = self.get_mut(position) {
            replay.start = start;
            replay.next = start;
            replay.end = end;
        }
        // INVARIANT: The requests before `cursor` are answered.
        self.cursor = self.cursor.min(position);
    }

    /// Takes the next packet of the oldest request with packets to send.
    pub(super) fn next(&mut self) -> Option<Part> {
        loop {
            let cursor = self.cursor;
            let replay = self.get_mut(cursor)?;
            if replay.is_pending() {
                let index = replay.next;
                // `index` is less than `end`.
                replay.next = index.wrapping_add(1);
                let completes = replay.next == replay.packets && !replay.done;
                replay.done |= completes;
                return Some(Part {
                    replay_first: replay.first,
                    index,
                    starts: index == replay.start,
                    ends: replay.next == replay.end,
                    answer: replay.answer,
                    msn: replay.msn,
                    completes,
                });
            }
            // INVARIANT: The request at `cursor` is answered.
            self.cursor = cursor.wrapping_add(1);
        }
    }

    /// Returns whether there is a packet to send.
    pub(super) fn is_pending(&self) -> bool {
        (self.cursor..self.len).any(|position| self.get(position).is_some_and(Replay::is_pending))
    }

    /// Makes the packet with this PSN the next one again, because it was not sent.
    pub(super) fn put_back(&mut self, psn: Psn) {
        let Some(position) = self.find(psn) else {
            return;
        };
        if let Some(replay) = self.get_mut(position) {
            let index = psn.since(replay.first);
            if index < replay.start || index >= replay.next {
                return;
            }
            replay.next = index;
        }
        // INVARIANT: The requests before `cursor` are answered.
        self.cursor = self.cursor.min(position);
    }

    /// Discards all packets to send.
    pub(super) fn stop(&mut self) {
        self.len = 0;
        self.cursor = 0;
    }
}
