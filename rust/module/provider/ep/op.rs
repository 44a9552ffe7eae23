// SPDX-License-Identifier: GPL-2.0

//! What an endpoint is asked to do: one typed value per operation.
//!
//! A face makes these from what its callers say; what is in them is checked. An operation is taken
//! apart at the endpoint's door ([`Poster::post`](super::post::Poster::post)): a transmit goes to
//! its peer, a receive waits for one.

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
    /// The operation's own.
    pub(crate) own: OpFlags,
    /// `own` is all there is (`kfi_sendmsg` and the like).
    pub(crate) explicit: bool,
}

/// The tag of a message, or of a receive with the bits of it that do not matter.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tag {
    /// The tag.
    pub(crate) tag: u64,
    /// Bits that need not match; receives only.
    pub(crate) ignore: u64,
}

/// SEND, and with a tag TSEND.
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
    /// Which of both it is.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Send,
            Some(_) => OpType::TSend,
        }
    }
}

/// RECV, and with a tag TRECV.
pub(crate) struct Receive {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// Where the bytes go.
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
    /// Virtual address or offset, as the peer's domain has it.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Key of the region.
    pub(crate) key: u64,
}

/// The peer's memory that an operation names: mostly one piece, which needs no list.
pub(crate) enum Remote {
    /// One piece.
    One(RemoteRange),
    /// Several pieces in a row.
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

    /// The bytes of all pieces; `None` if they wrap.
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
    /// Where the bytes go.
    pub(crate) into: MemRef,
    /// The peer.
    pub(crate) peer: u64,
    /// Where they come from.
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
    /// Where they go.
    pub(crate) remote: Remote,
    /// Data for the peer's completion; valid with `KFI_REMOTE_CQ_DATA`.
    pub(crate) data: u64,
}

/// What an atomic does with the 8 bytes at the peer, and where it puts what they were before.
pub(crate) enum Change {
    /// ATOMIC: adds.
    Sum {
        /// What is added.
        add: u64,
    },
    /// FETCH_ATOMIC: adds.
    FetchSum {
        /// What is added.
        add: u64,
        /// 8 bytes.
        result: MemRef,
    },
    /// COMPARE_ATOMIC: swaps them for others if they are what they are compared with.
    CompareSwap {
        /// What they must be.
        compare: u64,
        /// What they become then.
        swap: u64,
        /// 8 bytes.
        result: MemRef,
    },
}

/// ATOMIC, FETCH_ATOMIC, COMPARE_ATOMIC.
pub(crate) struct Atomic {
    /// Flags.
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// What it does.
    pub(crate) change: Change,
    /// The 8 bytes.
    pub(crate) remote: Remote,
}

impl Atomic {
    /// What it is called in the interface.
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
    /// Whether it accesses a peer's memory, under a key.
    #[inline]
    pub(super) fn accesses_memory(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Write(_) | Self::Atomic(_))
    }

    /// What it is called in the interface, and its context.
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
