// SPDX-License-Identifier: GPL-2.0

//! Operations between an endpoint and a peer on another host: transmits, receives that are being
//! filled, and answers to the peer's messages.

use kfi_core::rdm::{
    header::{
        FinStatus,
        RemoteAddr, //
    },
    ops,
    session::Conn,
    Due, //
};
use kfi_roce::rc::{
    Op as WireOp,
    Status, //
};

use super::{
    super::super::{
        admit::Context,
        op::{
            Remote,
            RemoteRange, //
        },
        prelude::*,
        receive::MatchedReceive, //
    },
    session::Session,
    store::{
        slot_of_peer,
        AnswerSlot,
        ANSWER_BYTES, //
    }, //
};
use crate::mem::{
    Allowance,
    Budget,
    Part,
    PartAllowance,
    PeerShare, //
};

/// The access of an RMA operation to the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetAccess {
    Read,
    Write,
    /// An atomic of RC: its work request.
    Atomic(WireOp),
}

/// The peer's memory of an RMA operation.
pub(super) struct Target {
    pub(super) access: TargetAccess,
    pub(super) remote: Remote,
}

/// An outstanding transmit.
pub(in crate::provider::ep) struct Transmit {
    pub(super) ticket: Ticket,
    /// The source of a send or write, the destination of a read or of an RC atomic's old value; the
    /// payload of an atomic in a SEND.
    pub(super) memory: MemRef,
    /// Set for RMA.
    pub(super) target: Option<Target>,
    /// The number by which the peer may read the memory, if it may.
    pub(super) grant: Option<u64>,
    /// The number of an atomic in a SEND whose old values the peer sends.
    pub(super) result: Option<u64>,
    /// The charge for its lists, and for a long payload of an atomic.
    pub(super) charge: Option<Allowance>,
}

impl Transmit {
    /// The most bytes of kernel memory of an outstanding transmit.
    pub(in crate::provider::ep) const BYTES: usize =
        size_of::<ops::Send<Self>>() + size_of::<MemRef>() + kfi_core::limits::INJECT_SIZE + 128;

    /// A piece of an RMA operation: the peer's memory and the local memory.
    pub(super) fn piece(&self, piece: u32) -> Option<(RemoteRange, MemRef)> {
        let pieces = self.target.as_ref()?.remote.pieces();
        let index = piece as usize;
        let range = *pieces.get(index)?;
        // The sum of all lengths is the length of the memory.
        let before = pieces
            .get(..index)?
            .iter()
            .fold(0usize, |sum, piece| sum.wrapping_add(piece.len as usize));
        Some((range, self.memory.slice(before, range.len as usize)))
    }
}

/// A receive that is being filled by READs from the peer's memory, or whose bytes are being sent.
pub(in crate::provider::ep) struct RecvRead {
    pub(super) matched: MatchedReceive,
    pub(super) message: Message,
}

impl RecvRead {
    /// A part of its memory.
    pub(super) fn memory(&self, offset: u32, len: u32) -> MemRef {
        self.matched.memory().slice(offset as usize, len as usize)
    }
}

/// What belongs to an answer until it is sent.
pub(in crate::provider::ep) enum AnswerData {
    /// The receive that is being filled.
    Filling(RecvRead),
    /// The receive whose bytes are sent to a tagged read of the peer.
    Serving(RecvRead),
    /// The old values of an atomic.
    Values(MemRef),
}

impl AnswerData {
    /// A part of the memory.
    pub(super) fn memory(&self, offset: u32, len: u32) -> MemRef {
        match self {
            Self::Filling(recv_read) | Self::Serving(recv_read) => recv_read.memory(offset, len),
            Self::Values(values) => values.slice(offset as usize, len as usize),
        }
    }
}

/// The answer that a peer will get for its message: a FIN, or the old values of an atomic or the
/// bytes of a tagged read. If the bytes of a message are still with the peer, they are read before.
pub(in crate::provider::ep) struct PendingAnswer(KBox<AnswerCharge>);

struct AnswerCharge {
    session: Arc<Session>,
    conn: Conn,
    id: u64,
    /// The peer's memory with the bytes, if they are still there.
    at: Option<RemoteAddr>,
    slot: AnswerSlot,
}

impl PendingAnswer {
    /// Bytes of memory of one answer.
    const BYTES: usize = size_of::<AnswerCharge>() + ANSWER_BYTES;

    /// Makes the answer for message `id`, which came over `conn`. Fails with `ENOMEM`, also if the
    /// answer exceeds the limits of the endpoint's owner. Sleeps.
    pub(super) fn new(
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        at: Option<RemoteAddr>,
    ) -> Result<Self> {
        Self::with_memory(session, conn, id, at, 0)
    }

    /// [`new`](Self::new) for an atomic, whose values take `bytes` of memory until the answer is
    /// finished.
    pub(super) fn with_memory(
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        at: Option<RemoteAddr>,
        bytes: usize,
    ) -> Result<Self> {
        let budget = &session.endpoint.ident.budget;
        let bytes = Self::BYTES.wrapping_add(bytes);
        let share = session.answers.share(budget, &session.peer_share, bytes)?;
        Self::with(share, session, conn, id, at)
    }

    /// Makes the answer for a CANCEL of message `id`, which came over `conn`. Fails with `ENOMEM`
    /// if the host has no memory. Sleeps.
    pub(super) fn for_cancel(session: &Arc<Session>, conn: Conn, id: u64) -> Result<Self> {
        let budget = &session.endpoint.ident.budget;
        let share = session.answers.share_of_cancel(budget, Self::BYTES);
        Self::with(share, session, conn, id, None)
    }

    fn with(
        share: Share,
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        at: Option<RemoteAddr>,
    ) -> Result<Self> {
        // The current task is a worker or a task of the sender's user. The owner's memory cgroup is
        // charged.
        session.endpoint.ident.owner.charge(|| {
            let charge = AnswerCharge {
                session: session.clone(),
                conn,
                id,
                at,
                slot: slot_of_peer(share)?,
            };
            Ok(Self(KBox::new(charge, Context::Atomic.alloc())?))
        })
    }

    /// Whether the answer belongs to a message of this session and connection, and, if `id` is set,
    /// to this message.
    pub(in crate::provider::ep) fn is_of(
        &self,
        session: &Arc<Session>,
        conn: Conn,
        id: Option<u64>,
    ) -> bool {
        Arc::ptr_eq(&self.0.session, session)
            && self.0.conn == conn
            && id.is_none_or(|id| id == self.0.id)
    }

    /// The endpoint that the message came to.
    pub(in crate::provider::ep) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.0.session.endpoint
    }

    /// Whether the bytes are still with the peer.
    pub(in crate::provider::ep) fn is_away(&self) -> bool {
        self.0.at.is_some()
    }

    /// The reply for a message that was received or discarded.
    pub(in crate::provider::ep) fn finish(self) -> Reply {
        self.finish_with(FinStatus::Received)
    }

    /// The reply for a message that ends with `status`.
    pub(in crate::provider::ep) fn finish_with(self, status: FinStatus) -> Reply {
        Reply {
            answer: self,
            status,
            data: None,
        }
    }

    /// The reply for a tagged read: the bytes of the receive.
    pub(in crate::provider::ep) fn serve(self, matched: MatchedReceive, message: Message) -> Reply {
        Reply {
            answer: self,
            status: FinStatus::Received,
            data: Some(AnswerData::Serving(RecvRead { matched, message })),
        }
    }

    /// The reply for an atomic that was executed, with its old values.
    pub(super) fn values(self, values: MemRef) -> Reply {
        Reply {
            answer: self,
            status: FinStatus::Received,
            data: Some(AnswerData::Values(values)),
        }
    }

    /// The reply for a message that its sender has cancelled.
    pub(in crate::provider::ep) fn withdraw(self) -> Reply {
        self.finish_with(FinStatus::Withdrawn)
    }

    /// The reply for a message whose bytes are first read into `matched`.
    pub(in crate::provider::ep) fn fill(self, matched: MatchedReceive, message: Message) -> Reply {
        let fits = matched.fit(message.len).olen == 0;
        Reply {
            answer: self,
            // The sender of a message does not learn that its receive is too short.
            status: match message.rma {
                Some(_) if !fits => FinStatus::Truncated,
                _ => FinStatus::Received,
            },
            data: Some(AnswerData::Filling(RecvRead { matched, message })),
        }
    }
}

/// A reply to the peer.
#[must_use = "the peer waits for it"]
pub(in crate::provider::ep) struct Reply {
    answer: PendingAnswer,
    status: FinStatus,
    data: Option<AnswerData>,
}

impl Reply {
    /// Hands the reply to the session. Sleeps. The caller holds no lock.
    pub(in crate::provider::ep) fn give(self) {
        let session = self.answer.0.session.clone();
        session.answer(self);
    }

    /// The reply in the form of the protocol.
    pub(super) fn into_parts(self) -> (Due, Option<AnswerData>, AnswerSlot) {
        let Self {
            answer,
            status,
            data,
        } = self;
        let AnswerCharge {
            conn, id, at, slot, ..
        } = KBox::into_inner(answer.0);
        let (read, result) = match &data {
            None => (None, None),
            Some(AnswerData::Filling(recv_read)) => {
                let fit = recv_read.matched.fit(recv_read.message.len);
                // A message has at most 2^30 bytes.
                (at.map(|at| (at, fit.len as u32)), None)
            }
            Some(AnswerData::Serving(recv_read)) => {
                let fit = recv_read.matched.fit(recv_read.message.len);
                (None, Some(fit.len as u32))
            }
            // There are at most `MAX_ATOMIC_SIZE` bytes.
            Some(AnswerData::Values(values)) => (None, Some(values.len() as u32)),
        };
        let due = Due {
            conn,
            id,
            status,
            read,
            result,
        };
        (due, data, slot)
    }
}

/// The outcome for an error of a remote operation.
fn failed(errno: Errno) -> Outcome {
    let status = match errno {
        Errno::EACCES => Status::RemoteAccess,
        Errno::ETIMEDOUT => Status::RetryExceeded,
        Errno::EMSGSIZE => Status::LocalLength,
        _ => return Outcome::failed(errno),
    };
    let prov_errno = prov_errno::of_transmit(status).map_or(0, |(_, prov_errno)| prov_errno);
    Outcome::failed_with(errno, prov_errno)
}

impl Endpoint {
    /// Completes a transmit. Reports nothing while the endpoint closes. Sleeps.
    pub(super) fn end_transmit(
        &self,
        bound: &Bound,
        transmit: Transmit,
        result: core::result::Result<(), Errno>,
    ) {
        let Transmit {
            ticket,
            memory,
            target,
            charge,
            ..
        } = transmit;
        // Before the completion: a program that sees the completion finds the memory and the slot
        // free.
        drop(memory);
        drop(target);
        drop(charge);
        self.tx.give_back_room();
        if matches!(result, Err(Errno::EACCES)) {
            // Counted before the check below, because a program that guesses keys may have closed
            // the endpoint meanwhile.
            self.ident.refused();
        }
        match result {
            _ if !self.drain.is_open() => self.give_back(bound, ticket),
            Ok(()) => self.complete_transmit(bound, ticket),
            Err(errno) => self.complete(bound, ticket, failed(errno)),
        }
    }

    /// Completes a receive that was being filled, or read by the peer. Reports nothing while the
    /// endpoint closes. Sleeps.
    pub(super) fn end_filling(
        &self,
        bound: &Bound,
        recv_read: RecvRead,
        result: core::result::Result<(), Errno>,
    ) {
        let RecvRead { matched, message } = recv_read;
        match result {
            _ if !self.drain.is_open() => self.drop_receive(bound, matched),
            Ok(()) => self.finish(bound, matched, &message),
            Err(errno) => self.fail_receive(bound, matched, &message, errno),
        }
    }
}

#[cfg(kfi_kunit)]
#[path = "../../../../../../kunit/answer_count.rs"]
mod kunit;

/// The count of the answers that a session has not finished.
///
/// An answer takes memory from the first packet of the message, or of the CANCEL, until the peer
/// has acknowledged the FIN. The peer decides when that is. So each answer holds a [`Share`] for
/// that time. It is counted, and the core limits the count
/// ([`ANSWERS`](kfi_core::rdm::times::ANSWERS)). It is charged to the owner of the endpoint, in the
/// part of the limit that peers can use. The answer to a CANCEL is charged even above the limit,
/// because a CANCEL cannot be sent again later like a message, and everything else would wait
/// behind it. A peer has at most [`CANCELS_MAX`](kfi_core::rdm::times::CANCELS_MAX) of them in
/// addition.
///
/// The count is atomic because it is read under the lock of a QP's responder, where the lock of the
/// session cannot be taken. The responder of one QP adds at a time, or of two while one connection
/// replaces another.
pub(super) struct AnswerCount(Arc<Atomic<u32>>);

/// The count and the charge of an answer, for its lifetime.
pub(super) struct Share {
    count: Arc<Atomic<u32>>,
    _memory: Allowance,
    _of_peers: Option<PartAllowance>,
}

impl AnswerCount {
    /// Makes a count of 0. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?))
    }

    /// The number of answers. Any context.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Counts and charges the answer to a message of the peer whose share is `peer`. Fails with
    /// `ENOMEM` above the owner's limit, or above the share. Does not sleep.
    pub(super) fn share(&self, budget: &Budget, peer: &PeerShare, bytes: usize) -> Result<Share> {
        let bytes = bytes as u64;
        let of_peers = peer.take(budget, Part::Peers, bytes)?;
        Ok(self.count_share(budget.take(bytes)?, Some(of_peers)))
    }

    /// Counts and charges the answer to a CANCEL. Does not sleep.
    pub(super) fn share_of_cancel(&self, budget: &Budget, bytes: usize) -> Share {
        self.count_share(budget.take_anyway(bytes as u64), None)
    }

    fn count_share(&self, memory: Allowance, of_peers: Option<PartAllowance>) -> Share {
        self.0.fetch_add(1, Relaxed);
        Share {
            count: self.0.clone(),
            _memory: memory,
            _of_peers: of_peers,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}
