// SPDX-License-Identifier: GPL-2.0

//! Operations: one typed value for each operation that is posted to an endpoint.
//!
//! A front end makes these values from the requests of its callers and checks their content.
//! [`Poster::post`](super::post::Poster::post) takes an operation: a transmit goes to its peer, a
//! receive is matched or queued.

use kernel::prelude::*;

use kfi_core::{
    flags::OpFlags,
    op::OpType, //
};

use crate::mem::{
    MemRef,
    Source, //
};

/// Flags of an operation, and whether the endpoint's default flags are added.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    /// The flags of the operation itself.
    pub(crate) own: OpFlags,
    /// The endpoint's default flags are not added (`kfi_sendmsg` and the like).
    pub(crate) explicit: bool,
}

/// The tag of a message, or the tag of a receive with its ignored bits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tag {
    /// The tag.
    pub(crate) tag: u64,
    /// Bits that are not compared. Receives only.
    pub(crate) ignore: u64,
}

/// SEND, or TSEND if it has a tag.
pub(crate) struct Send<'a> {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The bytes.
    pub(crate) from: Source<'a>,
    /// The destination.
    pub(crate) peer: u64,
    /// Data for the peer's completion; valid with `KFI_REMOTE_CQ_DATA`.
    pub(crate) data: u64,
    /// The tag of a tagged message.
    pub(crate) tag: Option<Tag>,
}

impl Send<'_> {
    /// Its kind: SEND or TSEND.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Send,
            Some(_) => OpType::TSend,
        }
    }
}

/// RECV, or TRECV if it has a tag.
pub(crate) struct Receive {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The destination of the bytes.
    pub(crate) into: MemRef,
    /// The owner's address of `into`, for multi-receive completions.
    pub(crate) addr: u64,
    /// The source to receive from, or `KFI_ADDR_UNSPEC`.
    pub(crate) peer: u64,
    /// The tag of a tagged receive.
    pub(crate) tag: Option<Tag>,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct RemoteRange {
    /// Virtual address or offset, depending on `mr_mode` of the peer's domain.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Key of the region.
    pub(crate) key: u64,
}

/// The peer's memory of an operation. Most operations have one piece, which needs no list.
pub(crate) enum Remote {
    /// One piece.
    One(RemoteRange),
    /// Several pieces, one after the other.
    List(KVVec<RemoteRange>),
}

impl Remote {
    /// The pieces in their order.
    pub(crate) fn pieces(&self) -> &[RemoteRange] {
        match self {
            Self::One(piece) => core::slice::from_ref(piece),
            Self::List(list) => list,
        }
    }

    /// The bytes of all pieces; `None`: the sum overflows.
    pub(crate) fn len(&self) -> Option<u64> {
        self.pieces()
            .iter()
            .try_fold(0u64, |sum, piece| sum.checked_add(piece.len))
    }
}

/// READ.
pub(crate) struct Read {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The destination of the bytes.
    pub(crate) into: MemRef,
    /// The peer.
    pub(crate) peer: u64,
    /// The source of the bytes, at the peer.
    pub(crate) remote: Remote,
}

/// WRITE.
pub(crate) struct Write<'a> {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The bytes.
    pub(crate) from: Source<'a>,
    /// The peer.
    pub(crate) peer: u64,
    /// The destination of the bytes, at the peer.
    pub(crate) remote: Remote,
    /// Data for the peer's completion; valid with `KFI_REMOTE_CQ_DATA`.
    pub(crate) data: u64,
}

/// The function of an atomic on the peer's 8 bytes, and the destination of their old value.
pub(crate) enum Change {
    /// ATOMIC: adds.
    Sum {
        /// The summand.
        add: u64,
    },
    /// FETCH_ATOMIC: adds.
    FetchSum {
        /// The summand.
        add: u64,
        /// The destination of the old value, 8 bytes.
        result: MemRef,
    },
    /// COMPARE_ATOMIC: replaces the value if it equals `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
        /// The destination of the old value, 8 bytes.
        result: MemRef,
    },
}

/// ATOMIC, FETCH_ATOMIC, COMPARE_ATOMIC.
pub(crate) struct Atomic {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The function.
    pub(crate) change: Change,
    /// The peer's 8 bytes.
    pub(crate) remote: Remote,
}

impl Atomic {
    /// Its kind.
    pub(super) fn kind(&self) -> OpType {
        match self.change {
            Change::Sum { .. } => OpType::Atomic,
            Change::FetchSum { .. } => OpType::FetchAtomic,
            Change::CompareSwap { .. } => OpType::CompareAtomic,
        }
    }
}

/// An operation.
pub(crate) enum Op<'a> {
    /// Send a message.
    Send(Send<'a>),
    /// Receive a message.
    Receive(Receive),
    /// Read a peer's memory.
    Read(Read),
    /// Write a peer's memory.
    Write(Write<'a>),
    /// Change a peer's memory atomically.
    Atomic(Atomic),
}

impl Op<'_> {
    /// Whether it accesses a peer's memory by a key.
    #[inline]
    pub(super) fn accesses_memory(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Write(_) | Self::Atomic(_))
    }

    /// Its kind and its context.
    pub(super) fn name(&self) -> (OpType, u64) {
        match self {
            Self::Send(op) => (op.kind(), op.context),
            Self::Receive(op) if op.tag.is_some() => (OpType::TRecv, op.context),
            Self::Receive(op) => (OpType::Recv, op.context),
            Self::Read(op) => (OpType::Read, op.context),
            Self::Write(op) => (OpType::Write, op.context),
            Self::Atomic(op) => (op.kind(), op.context),
        }
    }
}
