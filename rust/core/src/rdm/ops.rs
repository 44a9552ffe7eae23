// SPDX-License-Identifier: GPL-2.0
//! The operations of an endpoint to one peer: messages, RMA and atomics.
//!
//! An atomic that RC has is an RMA operation here, and any other one is a SEND that the peer takes
//! once and in order, like a message. "Atomic" stands for the latter in this module.
//!
//! One count numbers all operations in the order of posting; the number of a message or an atomic
//! is its id on the wire. Messages and atomics have a [lane](Lane) each, because they may have to
//! be sent again; RMA operations have none. Apart from that, operations are sent in the order of
//! posting:
//!
//! - Atomics and RMA do not wait for a message for which the peer has no room.
//! - Messages and RMA that were posted after an atomic wait until the peer has acknowledged it.
//!   Otherwise they could overtake it when it is sent again.
//!
//! # A message or an atomic
//!
//! ```text
//!            posted to the QP            acknowledged            FIN
//!   Unsent -------------------> Queued ----------------> Sent --------> ended
//!     ^                            |                       |
//!     '------- made void ----------'      ended, if no FIN is to come
//! ```
//!
//! Tagged RMA is a message that always has an answer: a write is one whose bytes the peer reads,
//! and a read is one whose bytes the peer sends back in a RESULT.
//!
//! A queued message never ends, whatever the peer has sent, because the QP still reads its bytes.
//! To cancel a message that was posted to the QP, the session asks the peer (`CANCEL`), and the FIN
//! of the message is the answer. An atomic that was posted to the QP cannot be cancelled.

use super::{
    atomic::Call,
    grant::Grant,
    header::{
        FinStatus,
        Header,
        Message, //
    },
    store::Store,
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    flags::Caps,
    limits,
    op::TaggedRma,
};

/// The SENDs that a session sends again in order, independently of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Messages.
    Messages,
    /// Atomics.
    Atomics,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The tag, if there is one.
    pub tag: Option<u64>,
    /// The remote CQ data, if there is any.
    pub data: Option<u64>,
    /// The length in bytes: at most [`MAX_MSG_SIZE`](limits::MAX_MSG_SIZE). For an atomic, that of
    /// its payload.
    pub len: u32,
    /// The atomic, if the message is one.
    pub atomic: Option<Call>,
    /// The access of tagged RMA, if the message is such an operation. It has a tag.
    pub rma: Option<TaggedRma>,
    /// Whether the message completes only when it was received (`KFI_DELIVERY_COMPLETE`).
    pub delivery: bool,
    /// Whether all earlier operations must complete first (`KFI_FENCE`).
    pub fence: bool,
}

impl Outgoing {
    /// Returns the atomic with this call and CQ data.
    pub const fn atomic(call: Call, data: Option<u64>, fence: bool) -> Self {
        Self {
            tag: None,
            data,
            len: call.payload(),
            atomic: Some(call),
            rma: None,
            delivery: false,
            fence,
        }
    }

    /// Returns the lane.
    pub const fn lane(&self) -> Lane {
        match self.atomic {
            None => Lane::Messages,
            Some(_) => Lane::Atomics,
        }
    }

    /// Returns whether the message is sent together with its bytes.
    pub const fn is_eager(&self) -> bool {
        if self.rma.is_some() {
            return false;
        }
        self.atomic.is_some() || self.len as u64 <= limits::EAGER_SIZE
    }

    /// Returns whether the peer reads the bytes of the message from here.
    pub const fn is_granted(&self) -> bool {
        !self.is_eager() && !self.is_tagged_read()
    }

    const fn is_tagged_read(&self) -> bool {
        matches!(self.rma, Some(TaggedRma { read: true, .. }))
    }

    /// Returns whether the receiver ends the message with a FIN, or with a RESULT.
    pub const fn has_fin(&self) -> bool {
        match &self.atomic {
            None => self.delivery || !self.is_eager(),
            // Otherwise the acknowledgement says that it was executed.
            Some(call) => call.result_len().is_some(),
        }
    }

    /// Returns the length of the RESULT, for a tagged read the largest one; `None` if the receiver
    /// sends none.
    pub const fn result_len(&self) -> Option<u32> {
        match &self.atomic {
            None if self.is_tagged_read() => Some(self.len),
            None => None,
            Some(call) => call.result_len(),
        }
    }

    /// Returns the status of the operation that a RESULT of `len` bytes ends; `None` if it cannot
    /// have this length.
    pub(super) fn result_status(&self, len: u32) -> Option<FinStatus> {
        match self.result_len()? {
            all if all == len => Some(FinStatus::Received),
            all if len < all && self.is_tagged_read() => Some(FinStatus::Truncated),
            _ => None,
        }
    }

    /// Returns whether a FIN with this status can end the message.
    pub(super) const fn can_end_with(&self, status: FinStatus) -> bool {
        match (status, &self.rma) {
            (FinStatus::Withdrawn, _) | (FinStatus::NoReceive, Some(_)) => true,
            (FinStatus::Received, None) => true,
            // The bytes of a read come in a RESULT.
            (FinStatus::Received | FinStatus::Truncated, Some(rma)) => !rma.read,
            (FinStatus::Truncated | FinStatus::NoReceive, None) => false,
        }
    }

    /// Returns the capabilities that the peer must have.
    pub(super) const fn needs(&self) -> Caps {
        if let Some(rma) = self.rma {
            return rma.target_caps();
        }
        match (&self.atomic, self.tag) {
            (Some(call), _) => call.function().target_caps(),
            (None, None) => Caps::MSG.union(Caps::RECV),
            (None, Some(_)) => Caps::TAGGED.union(Caps::RECV),
        }
    }

    /// Returns the error if the peer does not have them: for an atomic, that of RMA.
    pub(super) const fn refused(&self) -> Errno {
        match self.atomic {
            None => Errno::EREMOTEIO,
            Some(_) => Errno::EACCES,
        }
    }

    /// Returns the header of the message.
    pub(super) const fn header(&self, id: u64, after: u64) -> Header {
        let message = self.message(id, after);
        match (self.atomic, self.rma) {
            (Some(call), _) => Header::Atomic(message, call),
            (None, Some(TaggedRma { read: true, offset })) => Header::TaggedRead(message, offset),
            (None, Some(TaggedRma { offset, .. })) => {
                Header::TaggedWrite(message, Grant::place(id), offset)
            }
            (None, None) if self.is_eager() => Header::Eager(message),
            (None, None) => Header::Rts(message, Grant::place(id)),
        }
    }

    const fn message(&self, id: u64, after: u64) -> Message {
        Message {
            id,
            after,
            tag: self.tag,
            data: self.data,
            len: self.len,
            finish: self.has_fin(),
            void: false,
        }
    }
}

/// The progress of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// Not posted to the QP.
    Unsent,
    /// Posted to the QP.
    Queued,
    /// Acknowledged by the peer.
    Sent,
}

/// The state of a request to withdraw a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelRequest {
    /// There is no request.
    No,
    /// The peer is to be asked.
    Wanted,
    /// The peer was asked.
    Sent,
    /// The peer has acknowledged that it was asked.
    Acknowledged,
}

impl CancelRequest {
    /// Returns whether the peer was asked.
    pub(super) const fn was_sent(self) -> bool {
        matches!(self, Self::Sent | Self::Acknowledged)
    }
}

/// A message with its state.
#[derive(Debug)]
pub struct Send<C> {
    pub(super) cookie: C,
    pub(super) out: Outgoing,
    pub(super) state: SendState,
    /// Whether the message was ever posted to the QP.
    pub(super) was_posted: bool,
    /// The number of the message after which it is to come, if it was posted to the QP.
    pub(super) after: u64,
    pub(super) cancel: CancelRequest,
    /// The status that the peer sent.
    pub(super) status: Option<FinStatus>,
    /// The error that the QP reported.
    pub(super) error: Option<Errno>,
    /// The time since which its end is expected, or 0: see `session/overdue.rs`.
    pub(super) expected_since: u64,
}

impl<C> Send<C> {
    pub(super) const fn new(out: Outgoing, cookie: C) -> Self {
        Self {
            cookie,
            out,
            state: SendState::Unsent,
            was_posted: false,
            after: 0,
            cancel: CancelRequest::No,
            status: None,
            error: None,
            expected_since: 0,
        }
    }

    /// Returns the result if the message has ended.
    pub(super) fn end(&self) -> Option<Result> {
        match (self.state, self.status) {
            (SendState::Queued, _) => None,
            (_, Some(status)) => Some(status.result()),
            (SendState::Sent, None) if !self.out.has_fin() => Some(Ok(())),
            _ => None,
        }
    }
}

/// The kind of an RMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKind {
    /// Reads the peer's memory.
    Read,
    /// Writes the peer's memory, with CQ data if there are any.
    Write(Option<u64>),
    /// Changes a word of the peer's memory by an atomic of RC, and returns its old value.
    Atomic,
}

impl RmaKind {
    /// Returns whether the operation uses one of the READs that the peer serves at the same time.
    pub(super) const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

/// An RMA operation to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The kind.
    pub kind: RmaKind,
    /// The length of all pieces in bytes.
    pub len: u32,
    /// The number of pieces of the peer's memory: at least one.
    pub pieces: u32,
    /// Whether all earlier operations must complete first (`KFI_FENCE`).
    pub fence: bool,
}

impl Transfer {
    /// Returns the capabilities that the peer must have.
    pub(super) const fn needs(&self) -> Caps {
        match self.kind {
            RmaKind::Read => Caps::RMA.union(Caps::REMOTE_READ),
            RmaKind::Write(_) => Caps::RMA.union(Caps::REMOTE_WRITE),
            RmaKind::Atomic => Caps::ATOMIC
                .union(Caps::REMOTE_READ)
                .union(Caps::REMOTE_WRITE),
        }
    }

    /// Returns the number of work requests of the operation.
    pub(super) const fn requests(&self) -> u32 {
        match self.kind {
            RmaKind::Write(Some(_)) => self.pieces.saturating_add(1),
            _ => self.pieces,
        }
    }
}

/// An RMA operation with its state.
#[derive(Debug)]
pub struct Rma<C> {
    pub(super) cookie: C,
    pub(super) transfer: Transfer,
    /// The number of work requests posted to the QP, and of those that are done.
    pub(super) queued: u32,
    pub(super) done: u32,
    /// The error that the QP reported for the first one that failed.
    pub(super) error: Option<Errno>,
    /// The time since which its end is expected, or 0: see `session/overdue.rs`.
    pub(super) expected_since: u64,
}

impl<C> Rma<C> {
    pub(super) const fn new(transfer: Transfer, cookie: C) -> Self {
        Self {
            cookie,
            transfer,
            queued: 0,
            done: 0,
            error: None,
            expected_since: 0,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done >= self.transfer.requests()
    }
}

/// Operations of one kind in the order of their numbers. Those before `at` were posted to the QP.
#[derive(Debug)]
pub(super) struct OpQueue<M> {
    pub(super) map: M,
    /// All operations before this number were posted to the QP, or have ended.
    pub(super) at: u64,
}

impl<M> OpQueue<M> {
    pub(super) const fn new(map: M) -> Self {
        Self { map, at: 0 }
    }

    /// Returns the number of the first operation that was not posted to the QP.
    pub(super) fn front<V>(&self) -> Option<u64>
    where
        M: Store<V>,
    {
        self.map.next(self.at)
    }

    /// Records that all operations up to `number` were posted to the QP.
    pub(super) fn pass(&mut self, number: u64) {
        self.at = number.wrapping_add(1);
    }
}

/// The retransmission of SENDs that were made void.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// The present interval.
    pub(super) time: u64,
    /// The end of the interval; `None` if a SEND may be sent.
    pub(super) until: Option<u64>,
    /// A single SEND is being sent.
    pub(super) trying: bool,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneState {
    /// All SENDs of the lane before this number were posted to the QP, or have ended.
    pub(super) at: u64,
    /// The last SEND that was posted to the QP and is not void.
    pub(super) after: u64,
    /// Set while SENDs that were made void are sent again.
    pub(super) backoff: Option<Backoff>,
}

impl LaneState {
    /// Records that all SENDs up to `number` were posted to the QP.
    pub(super) fn pass(&mut self, number: u64) {
        self.at = number.wrapping_add(1);
    }

    /// Records that a SEND, which was posted after another one, is no longer posted to the QP.
    pub(super) fn back(&mut self, number: u64, after: u64) {
        self.at = self.at.min(number);
        self.after = self.after.min(after);
    }
}
