// SPDX-License-Identifier: GPL-2.0

//! Operations: one typed value for each operation that is posted to an endpoint.
//!
//! A front end makes these values from the requests of its callers and checks their content.
//! [`Poster::post`](super::post::Poster::post) and [`Endpoint::admit`] take an operation. When it
//! is posted, a transmit goes to its peer, and a receive is matched or queued.

use kfi_core::atomic::{
    Function,
    RC_LEN, //
};

use super::prelude::*;
use crate::{
    mem::{
        Allowance,
        Budget,
        Kept, //
    },
    shim::memory::kmalloc_array_size, //
};

/// Flags of an operation, and whether the endpoint's default flags are added.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    /// The flags of the operation itself. The front end has checked that its kind accepts them
    /// ([`OpType::flags`]).
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
    List(Pieces),
}

/// A list of pieces, and the charge for it.
pub(crate) struct Pieces {
    pub(super) list: KVVec<RemoteRange>,
    /// Dropped after the list.
    charge: Option<Allowance>,
}

impl Remote {
    /// The pieces in their order.
    pub(crate) fn pieces(&self) -> &[RemoteRange] {
        match self {
            Self::One(piece) => core::slice::from_ref(piece),
            Self::List(pieces) => &pieces.list,
        }
    }

    /// The pieces of `list`, for which nobody is charged. Any context.
    pub(crate) fn of_list(list: KVVec<RemoteRange>) -> Self {
        Self::List(Pieces { list, charge: None })
    }

    /// One piece without bytes.
    pub(super) fn none() -> Self {
        Self::One(RemoteRange {
            addr: 0,
            len: 0,
            key: 0,
        })
    }

    /// Takes the pieces, and leaves none.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::none())
    }

    /// Charges `budget` for its list as long as that lives, unless it is charged. Fails with
    /// `ENOMEM`. Does not sleep.
    #[inline]
    pub(super) fn charge_list(&mut self, budget: &Budget) -> Result {
        match self {
            Self::List(Pieces { list, charge }) if charge.is_none() => {
                let bytes = kmalloc_array_size::<RemoteRange>(list.capacity());
                *charge = Some(budget.take(bytes as u64)?);
                Ok(())
            }
            _ => Ok(()),
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

/// ATOMIC, FETCH_ATOMIC, COMPARE_ATOMIC.
pub(crate) struct Atomic<'a> {
    pub(crate) flags: Flags,
    /// Returned in the completion.
    pub(crate) context: u64,
    pub(crate) function: Function,
    /// The operands; not used by ATOMIC_READ.
    pub(crate) operand: Source<'a>,
    /// The values to compare with; used by COMPARE_ATOMIC.
    pub(crate) compare: Source<'a>,
    /// The destination of the old values. For an ATOMIC it may be a buffer that is not read; see
    /// [`rc_result`](Self::rc_result).
    pub(crate) result: MemRef,
    pub(crate) peer: u64,
    /// The elements, at the peer.
    pub(crate) remote: Remote,
    /// Data for the peer's completion; valid with `KFI_REMOTE_CQ_DATA`.
    pub(crate) data: u64,
}

impl Atomic<'_> {
    pub(super) fn kind(&self) -> OpType {
        self.function.kind()
    }

    /// The length of the elements in bytes.
    pub(super) fn len(&self) -> usize {
        if self.function.has_operand() {
            self.operand.len()
        } else {
            self.result.len()
        }
    }

    /// The destination of the old value of an RC atomic. For an ATOMIC it is a buffer that is made
    /// here, because RC returns the old value in any case. Fails with `ENOMEM`. Sleeps with
    /// `may_sleep`.
    pub(super) fn rc_result(&mut self, may_sleep: bool) -> Result<&mut MemRef> {
        if !self.function.fetches() && self.result.len() == 0 {
            self.result = MemRef::to_be_filled(RC_LEN, may_sleep)?;
        }
        Ok(&mut self.result)
    }

    /// Drops the references to its local memory. May sleep.
    pub(super) fn release(&mut self) {
        self.operand.release();
        self.compare.release();
        drop(self.result.take());
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
    Atomic(Atomic<'a>),
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
            Self::Atomic(op) => op.len(),
        }
    }

    /// Bytes of kernel memory that [`own`](Self::own) allocates at most. Any context.
    pub(super) fn own_bytes(&self, flags: OpFlags) -> u64 {
        let copied = |from: &Source<'_>, inject: bool| match from {
            Source::Mem(_) if !inject => 0,
            _ => MemRef::kept_bytes(from.len() as u64),
        };
        let inject = flags.contains(OpFlags::INJECT);
        match self {
            Self::Send(Send { from, .. }) | Self::Write(Write { from, .. }) => copied(from, inject),
            Self::Atomic(op) => {
                let operands = copied(&op.operand, inject) + copied(&op.compare, false);
                operands + MemRef::kept_bytes(RC_LEN as u64)
            }
            Self::Receive(_) | Self::Read(_) => 0,
        }
    }

    /// The local memory that it accesses; inline bytes have none.
    fn memory(&self) -> impl Iterator<Item = &MemRef> {
        let all = match self {
            Self::Send(op) => [op.from.memory(), None, None],
            Self::Receive(op) => [Some(&op.into), None, None],
            Self::Read(op) => [Some(&op.into), None, None],
            Self::Write(op) => [op.from.memory(), None, None],
            Self::Atomic(op) => [op.operand.memory(), op.compare.memory(), Some(&op.result)],
        };
        all.into_iter().flatten()
    }

    /// Charges `budget` for its lists as long as they live: the segments of its memory, and the
    /// pieces of the peer's. Fails with `ENOMEM`. Any context, see
    /// [`MemRef::charge_lists`].
    pub(super) fn charge_lists(&mut self, budget: &Budget) -> Result {
        self.memory()
            .try_for_each(|memory| memory.charge_lists(budget))?;
        match self {
            Self::Send(_) | Self::Receive(_) => Ok(()),
            Self::Read(Read { remote, .. })
            | Self::Write(Write { remote, .. })
            | Self::Atomic(Atomic { remote, .. }) => remote.charge_list(budget),
        }
    }

    /// Makes the memory that the operation needs besides that of the caller: a copy of inline bytes
    /// and, with KFI_INJECT, of others; with `rc`, a buffer for the discarded result of an RC
    /// atomic. Returns memory that a copy has replaced. Fails with `ENOMEM`. Sleeps with
    /// `may_sleep`, otherwise any context.
    pub(super) fn own(&mut self, flags: OpFlags, rc: bool, may_sleep: bool) -> Result<Kept> {
        match self {
            Self::Send(Send { from, .. }) | Self::Write(Write { from, .. }) => {
                if flags.contains(OpFlags::INJECT) {
                    return from.copy_short(may_sleep);
                }
                from.own(may_sleep)?;
            }
            Self::Atomic(op) => {
                if rc {
                    op.rc_result(may_sleep)?;
                }
                op.compare.own(may_sleep)?;
                if flags.contains(OpFlags::INJECT) {
                    return op.operand.copy_short(may_sleep);
                }
                op.operand.own(may_sleep)?;
            }
            Self::Receive(_) | Self::Read(_) => {}
        }
        Ok(Kept::nothing())
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
                operand: op.operand.take_owned(),
                compare: op.compare.take_owned(),
                result: op.result.take(),
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
