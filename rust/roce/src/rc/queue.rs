// SPDX-License-Identifier: GPL-2.0
//! The send queue: work requests in lent slots, from posting to completion.
//!
//! Work queue elements (WQEs) are numbered in the order of posting. Four numbers divide them:
//!
//! ```text
//!   taken          answered           begun            posted
//!     | ended, to be  | sent, or to be   | waiting        |
//!     | reported      | retransmitted    |                |   (free slots)
//! ```
//!
//! WQEs leave the queue only at its front, so every work request is reported once and in the order
//! of posting. Each function takes O(1). Context: any, under the requester's lock.

use super::super::{
    headers::SendEnd,
    psn::Psn, //
};
use core::ops::DerefMut;

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// SEND.
    Send(SendEnd),
    /// RDMA WRITE.
    Write {
        /// The virtual address in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
        /// Immediate data for the peer's completion.
        imm: Option<u32>,
    },
    /// RDMA READ.
    Read {
        /// The virtual address in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
    },
    /// Atomic compare and swap.
    CompareSwap {
        /// The virtual address of 8 bytes in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
        /// The value to compare with.
        compare: u64,
        /// The value to swap in if they are equal.
        swap: u64,
    },
    /// Atomic fetch and add.
    FetchAdd {
        /// The virtual address of 8 bytes in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
        /// The value to add.
        add: u64,
    },
}

impl Op {
    /// Returns whether the responder answers with data: an RDMA READ or an atomic.
    #[inline]
    pub const fn is_rd_atomic(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. }
        )
    }

    /// Returns whether it takes a receive of the peer: a SEND, or a WRITE with immediate data.
    #[inline]
    pub const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Write { imm: Some(_), .. })
    }

    /// Returns whether it is an atomic.
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The caller's ID of the work request and of the memory with its bytes.
    pub wr_id: u64,
    /// The operation.
    pub op: Op,
    /// The length of the message in bytes, at most [`MAX_LEN`](super::MAX_LEN); 8 for an atomic.
    pub len: u32,
    /// The work request begins only after all earlier READs and atomics have completed.
    pub fence: bool,
    /// The completion at the peer is a solicited event. For a READ: more READs of the same
    /// operation follow.
    pub solicited: bool,
    /// A successful completion is reported to the program. Failures are always reported.
    pub signaled: bool,
}

/// The status of a completion (`enum ibv_wc_status`, with the same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Success.
    Success = 0,
    /// For a receive: the message is longer than the receive. For a request: its packets are longer
    /// than the path MTU to the peer allows.
    LocalLength = 1,
    /// An error inside the device.
    LocalOperation = 2,
    /// The local memory is not accessible.
    LocalProtection = 4,
    /// The work request was not executed, because the QP went to ERR before.
    Flushed = 5,
    /// The response of the peer is invalid.
    BadResponse = 7,
    /// For a receive: the local memory is not writable.
    LocalAccess = 8,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused access to its memory.
    RemoteAccess = 10,
    /// The peer could not execute the request.
    RemoteOperation = 11,
    /// The peer did not answer within `retry_cnt` retries.
    RetryExceeded = 12,
    /// The peer was not ready within `rnr_retry` retries.
    RnrRetryExceeded = 13,
}

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request.
    pub request: WorkRequest,
    /// The status.
    pub status: Status,
}

/// The number of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// Returns the next number.
    #[inline]
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    #[inline]
    const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// A slot for a WQE.
#[derive(Clone, Copy, Debug)]
pub struct Wqe {
    pub(super) request: WorkRequest,
    /// The number of PSNs of the WQE.
    pub(super) packets: u32,
    /// The first PSN; valid once the WQE has begun.
    pub(super) first: Psn,
    pub(super) status: Option<Status>,
}

impl Wqe {
    /// An empty slot, to initialise storage.
    pub const EMPTY: Self = Self {
        request: WorkRequest {
            wr_id: 0,
            op: Op::Send(SendEnd::Plain),
            len: 0,
            fence: false,
            solicited: false,
            signaled: false,
        },
        packets: 1,
        first: Psn::new(0),
        status: None,
    };

    /// Returns the PSN after the last one of the WQE.
    #[inline]
    pub(super) const fn end(&self) -> Psn {
        self.first.add(self.packets)
    }
}

/// The send queue.
///
/// # Invariants
///
/// Modulo 2^32: `taken <= answered <= begun <= posted <= taken + capacity`. The capacity is a power
/// of two and at most the number of slots, or 0.
pub(super) struct SendQueue<Q> {
    slots: Q,
    capacity: u32,
    taken: Number,
    answered: Number,
    begun: Number,
    posted: Number,
}

impl<Q: DerefMut<Target = [Wqe]>> SendQueue<Q> {
    pub(super) fn new(slots: Q) -> Self {
        let len = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        Self {
            slots,
            capacity: len.checked_ilog2().map_or(0, |log| 1 << log),
            taken: Number(0),
            answered: Number(0),
            begun: Number(0),
            posted: Number(0),
        }
    }

    /// Returns the maximum number of WQEs.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of WQEs that have not been taken.
    pub(super) fn len(&self) -> u32 {
        self.posted.since(self.taken)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Returns the number of the oldest WQE that is not answered.
    #[inline]
    pub(super) fn oldest(&self) -> Number {
        self.answered
    }

    /// Returns the number of the first WQE that has not begun.
    #[inline]
    pub(super) fn begun(&self) -> Number {
        self.begun
    }

    /// Returns whether no WQE that has begun waits for its answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.answered == self.begun
    }

    #[inline]
    fn index(&self, number: Number) -> usize {
        // The capacity is a power of two, or there is no slot.
        (number.0 & self.capacity.wrapping_sub(1)) as usize
    }

    /// Returns a WQE that is posted and not yet taken.
    #[inline]
    pub(super) fn get(&self, number: Number) -> Option<&Wqe> {
        if number.since(self.taken) >= self.len() {
            return None;
        }
        self.slots.get(self.index(number))
    }

    fn get_mut(&mut self, number: Number) -> Option<&mut Wqe> {
        if number.since(self.taken) >= self.len() {
            return None;
        }
        let index = self.index(number);
        self.slots.get_mut(index)
    }

    /// Appends a WQE. Returns false if there is no room.
    pub(super) fn push(&mut self, request: WorkRequest, packets: u32) -> bool {
        if self.is_full() {
            return false;
        }
        let index = self.index(self.posted);
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        *slot = Wqe {
            request,
            packets,
            first: Psn::new(0),
            status: None,
        };
        // INVARIANT: The queue was not full.
        self.posted = self.posted.next();
        true
    }

    /// Marks the first WQE that has not begun as begun, with `first` as its first PSN.
    pub(super) fn begin(&mut self, first: Psn) {
        let number = self.begun;
        if number == self.posted {
            return;
        }
        if let Some(wqe) = self.get_mut(number) {
            wqe.first = first;
        }
        // INVARIANT: The WQE is posted.
        self.begun = number.next();
    }

    /// Marks the oldest WQE that is not answered as answered successfully.
    pub(super) fn answer(&mut self) {
        let number = self.answered;
        if number == self.begun {
            return;
        }
        if let Some(wqe) = self.get_mut(number) {
            wqe.status = Some(Status::Success);
        }
        // INVARIANT: The WQE had begun.
        self.answered = number.next();
    }

    /// Sets the failure status of a WQE, unless it has been taken.
    pub(super) fn fail(&mut self, number: Number, status: Status) {
        if let Some(wqe) = self.get_mut(number) {
            wqe.status = Some(status);
        }
    }

    /// Takes the oldest WQE if it has ended. If it has not ended and `flush` is set, takes it as
    /// flushed.
    pub(super) fn take(&mut self, flush: bool) -> Option<Completion> {
        let wqe = self.get(self.taken)?;
        let status = match wqe.status {
            Some(status) => status,
            None if flush => Status::Flushed,
            None => return None,
        };
        let request = wqe.request;
        let next = self.taken.next();
        // INVARIANT: A WQE that is flushed or has failed passes all boundaries at once.
        if self.answered == self.taken {
            if self.begun == self.taken {
                self.begun = next;
            }
            self.answered = next;
        }
        self.taken = next;
        Some(Completion { request, status })
    }

    /// Removes all WQEs.
    pub(super) fn clear(&mut self) {
        // INVARIANT: All four numbers are equal.
        self.taken = self.posted;
        self.answered = self.posted;
        self.begun = self.posted;
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_queue))]
mod tests {
    use super::*;

    fn request(wr_id: u64) -> WorkRequest {
        WorkRequest {
            wr_id,
            ..Wqe::EMPTY.request
        }
    }

    fn taken<Q: DerefMut<Target = [Wqe]>>(
        queue: &mut SendQueue<Q>,
        flush: bool,
    ) -> Option<(u64, Status)> {
        let completion = queue.take(flush)?;
        Some((completion.request.wr_id, completion.status))
    }

    #[test]
    fn capacity_is_a_power_of_two() {
        let mut slots = [Wqe::EMPTY; 9];
        for (len, capacity) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (9, 8)] {
            let slots = slots.get_mut(..len).unwrap_or(&mut []);
            let mut queue = SendQueue::new(slots);
            assert_eq!(queue.capacity(), capacity);
            for _ in 0..capacity {
                assert!(queue.push(request(1), 1));
            }
            assert!(queue.is_full());
            assert!(!queue.push(request(1), 1));
        }
    }

    #[test]
    fn work_requests_complete_in_order_across_the_wrap() {
        let mut slots = [Wqe::EMPTY; 4];
        let mut queue = SendQueue::new(&mut slots[..]);
        queue.taken = Number(u32::MAX - 5);
        queue.clear();
        queue.posted = queue.taken;
        queue.clear();
        for round in 0..10 {
            assert!(queue.push(request(round), 3));
            assert!(queue.push(request(100 + round), 1));
            assert_eq!(taken(&mut queue, false), None);
            // A WQE that has not begun cannot be answered.
            queue.answer();
            assert_eq!(taken(&mut queue, false), None);
            let first = queue.begun();
            queue.begin(Psn::new(Psn::MASK));
            queue.begin(Psn::new(2));
            queue.begin(Psn::new(3));
            assert!(!queue.is_quiet());
            assert_eq!(queue.get(first).map(Wqe::end), Some(Psn::new(2)));
            queue.answer();
            assert_eq!(queue.oldest(), first.next());
            assert_eq!(taken(&mut queue, false), Some((round, Status::Success)));
            assert_eq!(taken(&mut queue, false), None);
            queue.answer();
            assert!(queue.is_quiet());
            assert_eq!(
                taken(&mut queue, false),
                Some((100 + round, Status::Success))
            );
            assert_eq!(queue.len(), 0);
            assert!(queue.get(first).is_none());
        }
    }

    #[test]
    fn work_requests_behind_a_failure_are_flushed() {
        let mut slots = [Wqe::EMPTY; 4];
        let mut queue = SendQueue::new(&mut slots[..]);
        for wr_id in 0..4 {
            assert!(queue.push(request(wr_id), 1));
        }
        for psn in 0..3 {
            queue.begin(Psn::new(psn));
        }
        queue.answer();
        let failed = queue.oldest();
        queue.fail(failed, Status::RemoteAccess);
        assert_eq!(taken(&mut queue, true), Some((0, Status::Success)));
        assert_eq!(taken(&mut queue, true), Some((1, Status::RemoteAccess)));
        assert_eq!(taken(&mut queue, true), Some((2, Status::Flushed)));
        assert!(queue.push(request(4), 1));
        assert_eq!(taken(&mut queue, true), Some((3, Status::Flushed)));
        assert_eq!(taken(&mut queue, true), Some((4, Status::Flushed)));
        assert_eq!(taken(&mut queue, true), None);
        queue.fail(failed, Status::RemoteAccess);
        assert_eq!(taken(&mut queue, true), None);
        assert!(queue.is_quiet());
    }
}
