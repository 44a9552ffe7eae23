// SPDX-License-Identifier: GPL-2.0

//! Operations: one typed value for each operation that is posted to an endpoint.
//!
//! A front end makes these values from the requests of its callers and checks their content.
//! [`Poster::post`](super::post::Poster::post) and [`Endpoint::admit`] take an operation. When it
//! is posted, a transmit goes to its peer, and a receive is matched or queued.

use kfi_core::{
    limits,
    op::ATOMIC_LEN, //
};

use super::prelude::*;

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
    pub(crate) tag: u64,
    /// Bits that are not compared. Receives only.
    pub(crate) ignore: u64,
}

/// SEND, or TSEND if it has a tag.
pub(crate) struct Send<'a> {
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
    /// SEND or TSEND.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Send,
            Some(_) => OpType::TSend,
        }
    }
}

/// RECV, or TRECV if it has a tag.
pub(crate) struct Receive {
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

impl Receive {
    /// Its kind: RECV or TRECV.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Recv,
            Some(_) => OpType::TRecv,
        }
    }
}

/// A piece of a peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct RemoteRange {
    /// Virtual address or offset, depending on `mr_mode` of the peer's domain.
    pub(crate) addr: u64,
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

    /// Takes the pieces, and leaves none.
    pub(super) fn take(&mut self) -> Self {
        let none = RemoteRange {
            addr: 0,
            len: 0,
            key: 0,
        };
        core::mem::replace(self, Self::One(none))
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
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The destination of the bytes.
    pub(crate) into: MemRef,
    pub(crate) peer: u64,
    /// The source of the bytes, at the peer.
    pub(crate) remote: Remote,
}

/// WRITE.
pub(crate) struct Write<'a> {
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    /// The bytes.
    pub(crate) from: Source<'a>,
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
        add: u64,
        /// A buffer for the old value, which is not read; see [`Change::result`].
        result: Option<MemRef>,
    },
    /// FETCH_ATOMIC: adds.
    FetchSum {
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
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    pub(crate) change: Change,
    /// The peer's 8 bytes.
    pub(crate) remote: Remote,
}

impl Change {
    /// The destination of the old value. For an ATOMIC it is a buffer that is made here, because
    /// the wire returns the old value in any case. Fails with `ENOMEM`. Sleeps with `may_sleep`.
    pub(super) fn result(&mut self, may_sleep: bool) -> Result<&mut MemRef> {
        match self {
            Self::Sum { result, .. } => {
                if result.is_none() {
                    *result = Some(MemRef::to_be_filled(ATOMIC_LEN, may_sleep)?);
                }
                result.as_mut().ok_or(ENOMEM)
            }
            Self::FetchSum { result, .. } | Self::CompareSwap { result, .. } => Ok(result),
        }
    }

    /// Takes the function out, and leaves it without memory.
    fn take(&mut self) -> Self {
        match self {
            Self::Sum { add, result } => Self::Sum {
                add: *add,
                result: result.take(),
            },
            Self::FetchSum { add, result } => Self::FetchSum {
                add: *add,
                result: result.take(),
            },
            Self::CompareSwap {
                compare,
                swap,
                result,
            } => Self::CompareSwap {
                compare: *compare,
                swap: *swap,
                result: result.take(),
            },
        }
    }
}

impl Atomic {
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

    #[inline]
    pub(super) fn side(&self) -> Side {
        match self {
            Self::Receive(_) => Side::Receive,
            _ => Side::Transmit,
        }
    }

    pub(super) fn flags(&self) -> Flags {
        match self {
            Self::Send(op) => op.flags,
            Self::Receive(op) => op.flags,
            Self::Read(op) => op.flags,
            Self::Write(op) => op.flags,
            Self::Atomic(op) => op.flags,
        }
    }

    /// Replaces its flags.
    pub(super) fn set_flags(&mut self, flags: Flags) {
        let own = match self {
            Self::Send(op) => &mut op.flags,
            Self::Receive(op) => &mut op.flags,
            Self::Read(op) => &mut op.flags,
            Self::Write(op) => &mut op.flags,
            Self::Atomic(op) => &mut op.flags,
        };
        *own = flags;
    }

    /// The length of its local memory in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Send(op) => op.from.len(),
            Self::Receive(op) => op.into.len(),
            Self::Read(op) => op.into.len(),
            Self::Write(op) => op.from.len(),
            Self::Atomic(_) => ATOMIC_LEN,
        }
    }

    /// Bytes of kernel memory that belong to it and are not charged elsewhere: the lists of its
    /// pieces and segments, and copied bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let of_source = |from: &Source<'_>| match from {
            Source::Inline(_) => from.len(),
            // It may be a copy of so many bytes.
            Source::Mem(memory) => memory.uncharged_bytes() + limits::INJECT_SIZE.min(memory.len()),
        };
        let of_list = |remote: &Remote| match remote {
            Remote::One(_) => 0,
            Remote::List(list) => list.capacity() * size_of::<RemoteRange>(),
        };
        match self {
            Self::Send(op) => of_source(&op.from),
            Self::Receive(op) => op.into.uncharged_bytes(),
            Self::Read(op) => op.into.uncharged_bytes() + of_list(&op.remote),
            Self::Write(op) => of_source(&op.from) + of_list(&op.remote),
            Self::Atomic(op) => ATOMIC_LEN + of_list(&op.remote),
        }
    }

    /// Makes the memory that the operation needs besides that of the caller: a copy of inline bytes
    /// and, with KFI_INJECT, of others; a buffer for a discarded result. Returns memory that a copy
    /// has replaced. Fails with `ENOMEM`. Sleeps with `may_sleep`, otherwise any context.
    pub(super) fn own(&mut self, flags: OpFlags, may_sleep: bool) -> Result<MemRef> {
        match self {
            Self::Send(Send { from, .. }) | Self::Write(Write { from, .. }) => {
                if flags.contains(OpFlags::INJECT) {
                    return from.copy_short(may_sleep);
                }
                from.own(may_sleep)?;
            }
            Self::Atomic(op) => {
                op.change.result(may_sleep)?;
            }
            Self::Receive(_) | Self::Read(_) => {}
        }
        Ok(MemRef::empty())
    }

    /// Takes the operation out, and leaves it without memory. It was made its own before
    /// ([`own`](Self::own)).
    pub(super) fn take(&mut self) -> Op<'static> {
        match self {
            Self::Send(op) => Op::Send(Send {
                from: op.from.take_owned(),
                ..*op
            }),
            Self::Receive(op) => Op::Receive(Receive {
                into: op.into.take(),
                ..*op
            }),
            Self::Read(op) => Op::Read(Read {
                into: op.into.take(),
                remote: op.remote.take(),
                ..*op
            }),
            Self::Write(op) => Op::Write(Write {
                from: op.from.take_owned(),
                remote: op.remote.take(),
                ..*op
            }),
            Self::Atomic(op) => Op::Atomic(Atomic {
                change: op.change.take(),
                remote: op.remote.take(),
                ..*op
            }),
        }
    }

    /// Its kind and its context.
    pub(super) fn kind_and_context(&self) -> (OpType, u64) {
        match self {
            Self::Send(op) => (op.kind(), op.context),
            Self::Receive(op) => (op.kind(), op.context),
            Self::Read(op) => (OpType::Read, op.context),
            Self::Write(op) => (OpType::Write, op.context),
            Self::Atomic(op) => (op.kind(), op.context),
        }
    }
}
