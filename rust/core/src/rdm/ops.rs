// SPDX-License-Identifier: GPL-2.0
//! Operations of an endpoint that go to one peer: messages, and RMA.
//!
//! All are numbered in the order of posting, by one count; the number of a message is its id on the
//! wire. Messages and RMA stand in a lane each, because a message may have to step aside while RMA
//! goes on. Between the two lanes the order of posting holds otherwise.
//!
//! # A message
//!
//! ```text
//!            handed to the QP            acknowledged            FIN
//!   Unsent -------------------> Queued ----------------> Sent --------> ended
//!     ^                            |                       |
//!     '------- made void ----------'      ended, if no FIN is to come
//! ```
//!
//! While it is queued the QP reads its bytes, so it never ends then, whatever has become known.
//! Whoever wants a message back that was handed to the QP asks the peer for it (`CANCEL`) and is
//! answered by its FIN.

use super::{
    header::{
        Fate,
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
};

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its tag, if it has one.
    pub tag: Option<u64>,
    /// Remote CQ data, if it brings any.
    pub data: Option<u64>,
    /// Bytes: at most [`MAX_MSG_SIZE`](limits::MAX_MSG_SIZE).
    pub len: u32,
    /// Whether it is done only when it was received (`KFI_DELIVERY_COMPLETE`).
    pub delivery: bool,
    /// Whether all operations before it must be done first (`KFI_FENCE`).
    pub fence: bool,
}

impl Outgoing {
    /// Returns whether it is sent with its bytes.
    pub const fn is_eager(&self) -> bool {
        self.len as u64 <= limits::EAGER_SIZE
    }

    /// Returns whether its receiver ends it with a FIN.
    pub const fn has_fin(&self) -> bool {
        self.delivery || !self.is_eager()
    }

    /// Returns what the peer must be capable of.
    pub(super) const fn needs(&self) -> Caps {
        match self.tag {
            None => Caps::MSG.union(Caps::RECV),
            Some(_) => Caps::TAGGED.union(Caps::RECV),
        }
    }

    pub(super) const fn message(&self, id: u64, after: u64) -> Message {
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

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not with the QP.
    Unsent,
    /// With the QP.
    Queued,
    /// With the peer.
    Sent,
}

/// Whether somebody wants a message back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recall {
    /// Nobody does.
    No,
    /// The peer is to be told.
    Wanted,
    /// The peer was told.
    Told,
}

/// A message.
#[derive(Debug)]
pub struct Send<C> {
    pub(super) cookie: C,
    pub(super) out: Outgoing,
    pub(super) stage: Stage,
    /// Whether it was handed to the QP, ever.
    pub(super) tried: bool,
    /// The message after which it is to come, if it was.
    pub(super) after: u64,
    pub(super) recall: Recall,
    /// What the peer said of it.
    pub(super) fate: Option<Fate>,
    /// What the QP said of it.
    pub(super) error: Option<Errno>,
}

impl<C> Send<C> {
    pub(super) const fn new(out: Outgoing, cookie: C) -> Self {
        Self {
            cookie,
            out,
            stage: Stage::Unsent,
            tried: false,
            after: 0,
            recall: Recall::No,
            fate: None,
            error: None,
        }
    }

    /// How it has ended, if it has.
    pub(super) fn end(&self) -> Option<Result> {
        match (self.stage, self.fate) {
            (Stage::Queued, _) => None,
            (_, Some(Fate::Received)) => Some(Ok(())),
            (_, Some(Fate::Withdrawn)) => Some(Err(Errno::ECANCELED)),
            (Stage::Sent, None) if !self.out.has_fin() => Some(Ok(())),
            _ => None,
        }
    }
}

/// What an RMA operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKind {
    /// It reads the peer's memory.
    Read,
    /// It writes the peer's memory, and brings CQ data if there are any.
    Write(Option<u64>),
}

/// An RMA operation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What.
    pub kind: RmaKind,
    /// Bytes of all pieces.
    pub len: u32,
    /// Pieces of the peer's memory: at least one.
    pub pieces: u32,
    /// Whether all operations before it must be done first (`KFI_FENCE`).
    pub fence: bool,
}

impl Transfer {
    /// Returns what the peer must be capable of.
    pub(super) const fn needs(&self) -> Caps {
        match self.kind {
            RmaKind::Read => Caps::RMA.union(Caps::REMOTE_READ),
            RmaKind::Write(_) => Caps::RMA.union(Caps::REMOTE_WRITE),
        }
    }

    /// Work requests that it is made of.
    pub(super) const fn requests(&self) -> u32 {
        match self.kind {
            RmaKind::Write(Some(_)) => self.pieces.saturating_add(1),
            _ => self.pieces,
        }
    }
}

/// An RMA operation.
#[derive(Debug)]
pub struct Rma<C> {
    pub(super) cookie: C,
    pub(super) transfer: Transfer,
    /// Work requests handed to the QP, and those of them that are done.
    pub(super) queued: u32,
    pub(super) done: u32,
    /// What the QP said of the first that failed.
    pub(super) error: Option<Errno>,
}

impl<C> Rma<C> {
    pub(super) const fn new(transfer: Transfer, cookie: C) -> Self {
        Self {
            cookie,
            transfer,
            queued: 0,
            done: 0,
            error: None,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done >= self.transfer.requests()
    }
}

/// Operations in the order of their numbers, those up to `at` handed to the QP.
#[derive(Debug)]
pub(super) struct Lane<M> {
    pub(super) map: M,
    /// All before it were handed to the QP, or have ended.
    pub(super) at: u64,
}

impl<M> Lane<M> {
    pub(super) const fn new(map: M) -> Self {
        Self { map, at: 0 }
    }

    /// The number of the first operation that was not handed to the QP.
    pub(super) fn front<V>(&self) -> Option<u64>
    where
        M: Store<V>,
    {
        self.map.next(self.at)
    }

    /// All up to `number` were handed to the QP.
    pub(super) fn pass(&mut self, number: u64) {
        self.at = number.wrapping_add(1);
    }

    /// That one is not with the QP any more.
    pub(super) fn back(&mut self, number: u64) {
        self.at = self.at.min(number);
    }
}
