// SPDX-License-Identifier: GPL-2.0
//! READs and atomics that a responder is answering, or has answered and would answer again.
//!
//! They stand in lent slots in the order of their PSNs, as many as the peer may have outstanding
//! (`max_dest_rd_atomic`): it begins another only when the oldest is answered, so the oldest slot can
//! be used again then, and no request that the peer may repeat is ever missing.
//!
//! A READ is repeated by reading the memory again, for all of it or for the rest that the peer asks
//! for; an atomic is not done again: its answer is kept.
//!
//! Finding a duplicate takes O(slots), everything else O(1) on average.

use super::super::super::{
    headers::Reth,
    mtu::PathMtu,
    psn::Psn, //
};
use core::ops::DerefMut;

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The memory that a READ asked for first.
    Read(Reth, bool),
    /// What an atomic found.
    Atomic(u64),
}

/// Room for one request.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// The first PSN.
    pub(super) first: Psn,
    /// PSNs that it takes.
    packets: u32,
    pub(super) answer: Answer,
    pub(super) msn: Psn,
    /// Of the packets that are asked for now: the first, the next one to be sent, the one behind the
    /// last. All are sent if the last two are equal.
    start: u32,
    next: u32,
    end: u32,
    /// Whether its last packet was sent once.
    done: bool,
}

impl Replay {
    /// An empty slot, to fill storage with.
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

/// A packet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) replay_first: Psn,
    /// Which packet of the request.
    pub(super) index: u32,
    pub(super) starts: bool,
    pub(super) ends: bool,
    pub(super) answer: Answer,
    pub(super) msn: Psn,
    /// Whether the request is answered with it, for the first time.
    pub(super) completes: bool,
}

/// The remembered requests.
///
/// # Invariants
///
/// `len <= limit <= slots.len()`; `head < slots.len()` unless there is no slot; all before `cursor`
/// (a place: 0 is the oldest) are answered.
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

    /// Requests for which there is room.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Forgets all; from now on `limit` are remembered.
    pub(super) fn reset(&mut self, limit: usize) {
        // INVARIANT: No more than there are slots.
        self.limit = limit.min(self.slots.len());
        self.head = 0;
        self.len = 0;
        self.cursor = 0;
    }

    fn index(&self, place: usize) -> usize {
        let index = self.head.wrapping_add(place);
        if index < self.slots.len() {
            index
        } else {
            index.wrapping_sub(self.slots.len())
        }
    }

    fn get_mut(&mut self, place: usize) -> Option<&mut Replay> {
        if place >= self.len {
            return None;
        }
        let index = self.index(place);
        self.slots.get_mut(index)
    }

    fn get(&self, place: usize) -> Option<&Replay> {
        if place >= self.len {
            return None;
        }
        self.slots.get(self.index(place))
    }

    /// Whether another request may come: false if the oldest was never answered, which the peer was told
    /// to wait for.
    pub(super) fn has_room(&self) -> bool {
        if self.len < self.limit {
            return self.limit > 0;
        }
        self.get(0).is_some_and(|oldest| oldest.done)
    }

    /// Remembers a request, to be answered. The caller has seen that there is room.
    pub(super) fn push(&mut self, first: Psn, packets: u32, answer: Answer, msn: Psn) {
        if self.limit == 0 {
            return;
        }
        if self.len >= self.limit {
            // INVARIANT: One less from the front.
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

    /// Finds the request that has this PSN.
    fn find(&self, psn: Psn) -> Option<usize> {
        (0..self.len).find(|place| {
            self.get(*place)
                .is_some_and(|replay| psn.is_within(replay.first, replay.packets))
        })
    }

    /// A READ that was executed comes again, all of it or a part from `psn` on. False: it is not
    /// remembered, or is not the same.
    pub(super) fn read_again(&mut self, psn: Psn, reth: &Reth, mtu: PathMtu) -> bool {
        let Some(place) = self.find(psn) else {
            return false;
        };
        let Some(replay) = self.get_mut(place) else {
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
            self.again(place, start, end);
        }
        same
    }

    /// An atomic that was done comes again. False: it is not remembered.
    pub(super) fn atomic_again(&mut self, psn: Psn) -> bool {
        let Some(place) = self.find(psn) else {
            return false;
        };
        let is_atomic = self
            .get(place)
            .is_some_and(|replay| matches!(replay.answer, Answer::Atomic(_)));
        if is_atomic {
            self.again(place, 0, 1);
        }
        is_atomic
    }

    fn again(&mut self, place: usize, start: u32, end: u32) {
        if let Some(replay) = self.get_mut(place) {
            replay.start = start;
            replay.next = start;
            replay.end = end;
        }
        // INVARIANT: What is before was answered.
        self.cursor = self.cursor.min(place);
    }

    /// Takes the next packet to be sent, of the oldest request that is not answered.
    pub(super) fn next(&mut self) -> Option<Part> {
        loop {
            let cursor = self.cursor;
            let replay = self.get_mut(cursor)?;
            if replay.is_pending() {
                let index = replay.next;
                // Less than `end`.
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
            // INVARIANT: That one is answered.
            self.cursor = cursor.wrapping_add(1);
        }
    }

    /// Whether something is to be sent.
    pub(super) fn is_pending(&self) -> bool {
        (self.cursor..self.len).any(|place| self.get(place).is_some_and(Replay::is_pending))
    }

    /// The packet with this PSN was not sent after all: it is the next one again.
    pub(super) fn put_back(&mut self, psn: Psn) {
        let Some(place) = self.find(psn) else {
            return;
        };
        if let Some(replay) = self.get_mut(place) {
            let index = psn.since(replay.first);
            if index < replay.start || index >= replay.next {
                return;
            }
            replay.next = index;
        }
        // INVARIANT: What is before was answered.
        self.cursor = self.cursor.min(place);
    }

    /// Nothing is to be sent any more.
    pub(super) fn stop(&mut self) {
        self.len = 0;
        self.cursor = 0;
    }
}
