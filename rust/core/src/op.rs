// SPDX-License-Identifier: GPL-2.0
//! Operations: their flags, and the capabilities, accesses and counters of each kind.
//!
//! The table below lists, for each [`OpType`], the properties that do not depend on the objects
//! involved:
//!
//! | kind            | completion flags | capabilities    | capabilities of the peer    | counters here / there  |
//! |-----------------|------------------|-----------------|-----------------------------|------------------------|
//! | `Recv`          | `MSG, RECV`      | `MSG, RECV`     |                             | `RECV`                 |
//! | `Send`          | `MSG, SEND`      | `MSG, SEND`     | `MSG, RECV`                 | `SEND` / the receive's |
//! | `TRecv`         | `TAGGED, RECV`   | `TAGGED, RECV`  |                             | `RECV`                 |
//! | `TSend`         | `TAGGED, SEND`   | `TAGGED, SEND`  | `TAGGED, RECV`              | `SEND` / the receive's |
//! | `Read`          | `RMA, READ`      | `RMA, READ`     | `RMA, REMOTE_READ`          | `READ`/`REMOTE_READ`   |
//! | `Write`         | `RMA, WRITE`     | `RMA, WRITE`    | `RMA, REMOTE_WRITE`         | `WRITE`/`REMOTE_WRITE` |
//! | `Atomic`        | `ATOMIC, WRITE`  | `ATOMIC, WRITE` | below                       | `WRITE`/`REMOTE_WRITE` |
//! | `FetchAtomic`   | `ATOMIC, READ`   | `ATOMIC, READ`  | below                       | `READ`/`REMOTE_READ`   |
//! | `CompareAtomic` | `ATOMIC, READ`   | `ATOMIC, READ`  | below                       | `READ`/`REMOTE_READ`   |
//!
//! # Tagged RMA
//!
//! A `Read` or a `Write` with the flag `KFI_TAGGED` accesses the memory of a tagged receive that
//! the peer has posted, instead of a region: [`TaggedRma`]. The key of its one piece is the tag,
//! and the address is an offset in that memory. It needs `TAGGED` and `TAGGED_RMA` here, and
//! [at the peer](TaggedRma::target_caps). Its completion has `TAGGED, SEND` in addition. It
//! completes the receive, whose completion has `RMA` and `READ` or `WRITE` in addition; so at the
//! target it counts as a receive, and not as a remote read or write.
//!
//! # Data
//!
//! The completion of a receive has `REMOTE_CQ_DATA` too if its message brought remote CQ data, and
//! so have the entries `RMA, REMOTE_WRITE` and `ATOMIC, REMOTE_WRITE` of a write or an `Atomic`
//! with CQ data at its target. The sender's completion never has it.
//!
//! # Atomics
//!
//! [`atomic`](crate::atomic) has the operations and data types, and the capabilities and accesses
//! that each needs at the peer. The atomics of an RC QP always return the old value. So an
//! `Atomic` of a connected endpoint is a `FetchAtomic` for its target, which cannot distinguish the
//! two.
//!
//! # Flags
//!
//! [`OpType::flags`] combines the flags of the caller with the default flags of the endpoint.
//! Defaults that a kind cannot have (`KFI_INJECT` for a read, `KFI_MULTI_RECV` for a tagged
//! receive) are ignored; flags of the caller that the kind cannot have are refused. `KFI_INJECT`
//! concerns the outgoing data (fi_atomic(3)). A fetching atomic is not complete before its result
//! has come; it accepts the flag, which has no effect.
//!
//! `KFI_TRIGGER` says when an operation starts, so no kind has it: the front end removes it from
//! the flags of an operation before it starts. As a default flag it makes all operations of a side
//! triggered.
//!
//! # Successes that make an entry
//!
//! [`reports_success`] decides (fi_endpoint(3), fi_msg(3), fi_tagged(3)):
//! - With `KFI_COMPLETION` on the operation there is an entry.
//! - A search (`KFI_PEEK`) makes an entry, because the entry is its result.
//! - With `KFI_INJECT` there is none, as for kfi_inject(). kfi_sendmsg() with `KFI_INJECT` on a CQ
//!   that is not selective is posted with `KFI_COMPLETION` added.
//! - Otherwise there is an entry, unless the CQ is bound with `KFI_SELECTIVE_COMPLETION`.
//!
//! Errors always make an entry, and so does the release of a multi-receive buffer. Counters count
//! with or without an entry.

use crate::{
    enums::enumerator,
    errno::Errno,
    flags::{
        Access,
        Caps,
        CntrBind,
        CompFlags,
        OpFlags, //
    },
    limits, //
};

enumerator! {
    /// The kind of an operation, with the numbers of `enum kfi_op_type` and `enum kfabric_op_code`.
    OpType {
        /// Receive a plain message.
        Recv = 0,
        /// Send a plain message.
        Send = 1,
        /// Receive a tagged message.
        TRecv = 2,
        /// Send a tagged message.
        TSend = 3,
        /// Read a peer's memory.
        Read = 4,
        /// Write a peer's memory.
        Write = 5,
        /// Change a peer's memory atomically.
        Atomic = 6,
        /// Like `Atomic`, and return the old value.
        FetchAtomic = 7,
        /// Like `FetchAtomic`, if a comparison holds.
        CompareAtomic = 8,
    }
}

/// The two sides of an endpoint, each with its queue, its default flags and its CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Sends, reads, writes and atomics.
    Transmit,
    /// Receives.
    Receive,
}

/// The flags that every transmit accepts.
const TRANSMIT_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE);

/// The flags that every receive accepts.
const RECEIVE_FLAGS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MORE);

impl Side {
    /// Returns the flags that can be defaults of this side (`tx_op_flags`, `rx_op_flags`).
    pub const fn default_flags_allowed(self) -> OpFlags {
        match self {
            Side::Transmit => OpFlags::COMPLETION
                .union(OpFlags::INJECT)
                .union(OpFlags::INJECT_COMPLETE)
                .union(OpFlags::TRANSMIT_COMPLETE)
                .union(OpFlags::DELIVERY_COMPLETE)
                .union(OpFlags::TRIGGER),
            Side::Receive => OpFlags::COMPLETION
                .union(OpFlags::MULTI_RECV)
                .union(OpFlags::TRIGGER),
        }
    }

    /// Checks default flags for this side.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a flag is unknown, or cannot be a default of this side.
    pub fn default_flags(self, flags: u64) -> Result<OpFlags, Errno> {
        let flags = OpFlags::from_bits(flags)?;
        if !self.default_flags_allowed().contains(flags) {
            return Err(Errno::EINVAL);
        }
        Ok(flags)
    }
}

impl OpType {
    /// Returns the side of this kind.
    pub const fn side(self) -> Side {
        match self {
            Self::Recv | Self::TRecv => Side::Receive,
            _ => Side::Transmit,
        }
    }

    /// Returns whether this kind is matched by tag.
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::TRecv | Self::TSend)
    }

    /// Returns whether this kind changes a peer's memory atomically.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::FetchAtomic | Self::CompareAtomic)
    }

    /// Returns the flags that this kind accepts.
    pub const fn flags_allowed(self) -> OpFlags {
        match self {
            Self::Recv => RECEIVE_FLAGS.union(OpFlags::MULTI_RECV),
            Self::TRecv => RECEIVE_FLAGS
                .union(OpFlags::PEEK)
                .union(OpFlags::CLAIM)
                .union(OpFlags::DISCARD),
            Self::Send | Self::TSend | Self::Atomic => TRANSMIT_FLAGS
                .union(OpFlags::INJECT)
                .union(OpFlags::REMOTE_CQ_DATA),
            Self::Write => TRANSMIT_FLAGS
                .union(OpFlags::INJECT)
                .union(OpFlags::REMOTE_CQ_DATA)
                .union(OpFlags::TAGGED),
            Self::FetchAtomic | Self::CompareAtomic => TRANSMIT_FLAGS.union(OpFlags::INJECT),
            Self::Read => TRANSMIT_FLAGS.union(OpFlags::TAGGED),
        }
    }

    /// Returns the flags of one operation.
    ///
    /// `flags` are those of the caller. With `explicit` there are no others (kfi_sendmsg() and
    /// similar calls). Otherwise the flags in `defaults`, the default flags of the endpoint's side,
    /// are added if this kind accepts them.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a flag is unknown, or this kind does not accept it; or `KFI_DISCARD` is given
    /// without `KFI_PEEK` or `KFI_CLAIM`, or with both.
    // Each kind of operation has its own copy on the path of a post.
    #[inline(always)]
    pub fn flags(self, flags: u64, explicit: bool, defaults: OpFlags) -> Result<OpFlags, Errno> {
        let allowed = self.flags_allowed();
        let flags = OpFlags::from_bits(flags)?;
        if !allowed.contains(flags) {
            return Err(Errno::EINVAL);
        }
        if flags.contains(OpFlags::DISCARD)
            && flags.contains(OpFlags::PEEK) == flags.contains(OpFlags::CLAIM)
        {
            return Err(Errno::EINVAL);
        }
        let defaults = if explicit { OpFlags::EMPTY } else { defaults };
        Ok(self.with_defaults(flags, defaults))
    }

    /// Returns the flags of one operation whose own flags this kind accepts, with those in
    /// `defaults` that it accepts.
    #[inline(always)]
    pub fn with_defaults(self, own: OpFlags, defaults: OpFlags) -> OpFlags {
        let mut flags = own | (defaults & self.flags_allowed());
        if matches!(self, Self::FetchAtomic | Self::CompareAtomic) {
            flags = flags.without(OpFlags::INJECT);
        }
        flags
    }

    /// Checks the length of an operation's buffer, in bytes.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the buffer is longer than [`limits::MAX_MSG_SIZE`], or with `KFI_INJECT` longer
    /// than [`limits::INJECT_SIZE`].
    pub fn check_len(self, flags: OpFlags, len: u64) -> Result<(), Errno> {
        let limit = if flags.contains(OpFlags::INJECT) {
            limits::INJECT_SIZE as u64
        } else {
            limits::MAX_MSG_SIZE
        };
        if len > limit {
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }

    /// Returns the capabilities that the endpoint of the poster needs.
    pub const fn caps(self) -> Caps {
        match self {
            Self::Recv => Caps::MSG.union(Caps::RECV),
            Self::Send => Caps::MSG.union(Caps::SEND),
            Self::TRecv => Caps::TAGGED.union(Caps::RECV),
            Self::TSend => Caps::TAGGED.union(Caps::SEND),
            Self::Read => Caps::RMA.union(Caps::READ),
            Self::Write => Caps::RMA.union(Caps::WRITE),
            Self::Atomic => Caps::ATOMIC.union(Caps::WRITE),
            Self::FetchAtomic | Self::CompareAtomic => Caps::ATOMIC.union(Caps::READ),
        }
    }

    /// Checks that an endpoint with `caps` can post this kind with `flags`. `directed` says whether
    /// a receive names a source.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a capability is missing.
    pub fn check_caps(self, caps: Caps, flags: OpFlags, directed: bool) -> Result<(), Errno> {
        let mut need = self.caps();
        if flags.contains(OpFlags::MULTI_RECV) {
            need |= Caps::MULTI_RECV;
        }
        if flags.contains(OpFlags::TAGGED) {
            need |= Caps::TAGGED | Caps::TAGGED_RMA;
        }
        if directed && matches!(self.side(), Side::Receive) {
            need |= Caps::DIRECTED_RECV;
        }
        if !caps.contains(need) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    /// Returns the capabilities that the endpoint of the peer needs; none for a receive. For an
    /// atomic they depend on its function
    /// ([`Function::target_caps`](crate::atomic::Function::target_caps)); these are those of an RC
    /// atomic.
    pub const fn target_caps(self) -> Caps {
        match self {
            Self::Recv | Self::TRecv => Caps::EMPTY,
            Self::Send => Caps::MSG.union(Caps::RECV),
            Self::TSend => Caps::TAGGED.union(Caps::RECV),
            Self::Read => Caps::RMA.union(Caps::REMOTE_READ),
            Self::Write => Caps::RMA.union(Caps::REMOTE_WRITE),
            Self::Atomic | Self::FetchAtomic | Self::CompareAtomic => {
                Caps::REMOTE_READ.union(Caps::REMOTE_WRITE)
            }
        }
    }

    /// Returns the flags of this kind's completion, for success and error.
    ///
    /// `cq_data` says whether the message of a receive brought remote CQ data.
    pub const fn comp_flags(self, cq_data: bool) -> CompFlags {
        match self {
            Self::Recv => received(CompFlags::MSG, cq_data),
            Self::TRecv => received(CompFlags::TAGGED, cq_data),
            Self::Send => CompFlags::MSG.union(CompFlags::SEND),
            Self::TSend => CompFlags::TAGGED.union(CompFlags::SEND),
            Self::Read => CompFlags::RMA.union(CompFlags::READ),
            Self::Write => CompFlags::RMA.union(CompFlags::WRITE),
            Self::Atomic => CompFlags::ATOMIC.union(CompFlags::WRITE),
            Self::FetchAtomic | Self::CompareAtomic => CompFlags::ATOMIC.union(CompFlags::READ),
        }
    }

    /// Returns the flags of the entry that this operation makes at its target, besides the
    /// completion of a receive. Only a write to a region or a base atomic with remote CQ data makes
    /// one; otherwise returns `None`.
    pub const fn target_comp_flags(self, flags: OpFlags) -> Option<CompFlags> {
        if flags.contains(OpFlags::TAGGED) {
            return None;
        }
        match self {
            Self::Write if flags.contains(OpFlags::REMOTE_CQ_DATA) => Some(
                CompFlags::RMA
                    .union(CompFlags::REMOTE_WRITE)
                    .union(CompFlags::REMOTE_CQ_DATA),
            ),
            Self::Atomic if flags.contains(OpFlags::REMOTE_CQ_DATA) => Some(
                CompFlags::ATOMIC
                    .union(CompFlags::REMOTE_WRITE)
                    .union(CompFlags::REMOTE_CQ_DATA),
            ),
            _ => None,
        }
    }

    /// Returns the counters of the poster that this operation increments.
    pub const fn counts(self) -> CntrBind {
        match self {
            Self::Recv | Self::TRecv => CntrBind::RECV,
            Self::Send | Self::TSend => CntrBind::SEND,
            Self::Read | Self::FetchAtomic | Self::CompareAtomic => CntrBind::READ,
            Self::Write | Self::Atomic => CntrBind::WRITE,
        }
    }

    /// Returns the counters of the target (of its endpoint and its region) that this operation
    /// increments, besides those of a receive that it completes.
    pub const fn counts_at_target(self) -> CntrBind {
        match self {
            Self::Recv | Self::TRecv | Self::Send | Self::TSend => CntrBind::EMPTY,
            Self::Read | Self::FetchAtomic | Self::CompareAtomic => CntrBind::REMOTE_READ,
            Self::Write | Self::Atomic => CntrBind::REMOTE_WRITE,
        }
    }

    /// Returns the access that a local region must allow for this kind's buffer. The result buffer
    /// of an atomic is written like that of a read.
    pub const fn local_access(self) -> Access {
        match self {
            Self::Recv | Self::TRecv => Access::RECV,
            Self::Send | Self::TSend => Access::SEND,
            Self::Read => Access::READ,
            Self::Write | Self::Atomic | Self::FetchAtomic | Self::CompareAtomic => Access::WRITE,
        }
    }

    /// Returns the access that the region of the peer must allow; none for messages. For an atomic
    /// it depends on its function
    /// ([`Function::target_access`](crate::atomic::Function::target_access)); this is that of an RC
    /// atomic.
    pub const fn target_access(self) -> Access {
        match self {
            Self::Recv | Self::TRecv | Self::Send | Self::TSend => Access::EMPTY,
            Self::Read => Access::REMOTE_READ,
            Self::Write => Access::REMOTE_WRITE,
            Self::Atomic | Self::FetchAtomic | Self::CompareAtomic => {
                Access::REMOTE_READ.union(Access::REMOTE_WRITE)
            }
        }
    }
}

/// The access of a tagged RMA operation to the memory of the receive that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedRma {
    /// Whether it reads the memory. Otherwise it writes it.
    pub read: bool,
    /// The offset of the first byte in the memory.
    pub offset: u32,
}

impl TaggedRma {
    /// The flags that a completion of the initiator has in addition to those of its kind.
    pub const COMP_FLAGS: CompFlags = CompFlags::TAGGED.union(CompFlags::SEND);

    /// Returns the access of an operation of this kind, at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no receive has memory at this offset, because it is larger than
    /// [`limits::MAX_MSG_SIZE`].
    pub fn new(kind: OpType, offset: u64) -> Result<Self, Errno> {
        if offset > limits::MAX_MSG_SIZE {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            read: matches!(kind, OpType::Read),
            offset: u32::try_from(offset).map_err(|_| Errno::EINVAL)?,
        })
    }

    /// Returns the flags that the completion of the receive has in addition to those of its kind.
    pub const fn receive_flags(self) -> CompFlags {
        let access = if self.read {
            CompFlags::READ
        } else {
            CompFlags::WRITE
        };
        CompFlags::RMA.union(access)
    }

    /// Returns the capabilities that the endpoint of the peer needs.
    pub const fn target_caps(self) -> Caps {
        let rma = if self.read {
            OpType::Read.target_caps()
        } else {
            OpType::Write.target_caps()
        };
        rma.union(OpType::TSend.target_caps())
            .union(Caps::TAGGED_RMA)
    }
}

/// Returns the flags of the completion of a receive for messages of this kind.
const fn received(kind: CompFlags, cq_data: bool) -> CompFlags {
    let flags = kind.union(CompFlags::RECV);
    if cq_data {
        return flags.union(CompFlags::REMOTE_CQ_DATA);
    }
    flags
}

/// Returns whether a success of an operation with `flags` makes an entry in the CQ of its side.
/// `selective` says whether the CQ is bound with `KFI_SELECTIVE_COMPLETION`. See the top of the
/// file.
pub const fn reports_success(flags: OpFlags, selective: bool) -> bool {
    if flags.intersects(OpFlags::COMPLETION.union(OpFlags::PEEK)) {
        return true;
    }
    !flags.contains(OpFlags::INJECT) && !selective
}

/// The progress that a transmit must have made before it completes (fi_endpoint(3), completion
/// levels).
///
/// Levels are ordered: a transmit that has reached a level has reached all lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompletionLevel {
    /// `KFI_INJECT_COMPLETE`: the buffer can be reused.
    Inject,
    /// `KFI_TRANSMIT_COMPLETE`: the peer's endpoint has the data, in the buffer of a receive or
    /// among its unexpected messages. The default of reliable endpoints.
    Transmit,
    /// `KFI_DELIVERY_COMPLETE`: the data is in the buffer of the peer's receive (or was discarded
    /// by the peer), or in the peer's region.
    Delivery,
}

impl CompletionLevel {
    /// Returns the level that `flags` request: the highest, if several are set.
    pub const fn of(flags: OpFlags) -> Self {
        if flags.contains(OpFlags::DELIVERY_COMPLETE) {
            Self::Delivery
        } else if flags.contains(OpFlags::INJECT_COMPLETE)
            && !flags.contains(OpFlags::TRANSMIT_COMPLETE)
        {
            Self::Inject
        } else {
            Self::Transmit
        }
    }
}

/// The kinds of operations of an endpoint that names none.
const DEFAULT_KINDS: Caps = Caps::MSG.union(Caps::TAGGED).union(Caps::RMA);
const MESSAGE_KINDS: Caps = Caps::MSG.union(Caps::TAGGED);
const MESSAGE_DIRECTIONS: Caps = Caps::SEND.union(Caps::RECV);
const RMA_KINDS: Caps = Caps::RMA.union(Caps::ATOMIC);
const RMA_DIRECTIONS: Caps = Caps::READ
    .union(Caps::WRITE)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE);

/// Completes capabilities that are not fully specified (fi_getinfo(3)), for an endpoint type with
/// the capabilities `of`.
///
/// Without kind and direction: plain and tagged messages and RMA. A direction without a kind: the
/// kinds that have it (`SEND` and `RECV`: plain and tagged messages; the others: RMA). A kind
/// without one of its directions: all of its directions. Capabilities that the type does not have
/// are not added.
pub fn expand_caps(caps: Caps, of: Caps) -> Caps {
    let mut caps = caps;
    let kinds = MESSAGE_KINDS | RMA_KINDS;
    if !caps.intersects(kinds) {
        if caps.intersects(MESSAGE_DIRECTIONS) {
            caps |= MESSAGE_KINDS & of;
        }
        if caps.intersects(RMA_DIRECTIONS) {
            caps |= Caps::RMA & of;
        }
        if !caps.intersects(MESSAGE_DIRECTIONS | RMA_DIRECTIONS) {
            caps |= DEFAULT_KINDS & of;
        }
    }
    if caps.intersects(MESSAGE_KINDS) && !caps.intersects(MESSAGE_DIRECTIONS) {
        caps |= MESSAGE_DIRECTIONS & of;
    }
    if caps.intersects(RMA_KINDS) && !caps.intersects(RMA_DIRECTIONS) {
        caps |= RMA_DIRECTIONS & of;
    }
    caps
}

#[cfg(any(test, kfi_kunit))]
mod tests;
