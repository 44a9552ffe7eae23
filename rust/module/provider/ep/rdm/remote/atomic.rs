// SPDX-License-Identifier: GPL-2.0

//! Atomics with peers on other hosts.
//!
//! The initiator posts an RC atomic if RC has the function, and otherwise a SEND with the pieces of
//! the peer's memory and the operands ([`kfi_core::rdm::atomic`]). Operands are read when the
//! operation is posted to the session.
//!
//! The target keeps the payload of such a SEND in a buffer until all of it has come
//! ([`ReceivedAtomic`]). Without memory for the buffer, the peer has to wait (RNR NAK). Then the
//! atomic is executed, or the SEND is refused, by the same rules as RDMA. If old values are
//! returned, they are in the same buffer until the peer has acknowledged them. The buffer is
//! charged to the owner of the endpoint, in the part that peers can use.

use kernel::rbtree::RBTreeNodeReservation;

use kfi_core::{
    limits,
    mr::Refusal as AccessRefusal,
    rdm::{
        atomic::{
            Call,
            Piece,
            PIECE_LEN, //
        },
        header,
        ops::{
            Outgoing,
            RmaKind,
            Transfer, //
        }, //
    }, //
};
use kfi_roce::rc::{
    Op as WireOp,
    Refusal, //
};

use super::{
    super::super::{
        admit::Context,
        op::{
            Atomic,
            Remote,
            RemoteRange, //
        },
        prelude::*, //
    },
    conn::{
        Connection,
        SessionEvent, //
    },
    op::{
        PendingAnswer,
        Target,
        TargetAccess,
        Transmit, //
    },
    session::{
        NewRma,
        NewSend,
        Session, //
    },
    store::slot, //
};
use crate::{
    mem::{
        self,
        atomic::Values,
        payload,
        Allowance,
        Part,
        PartAllowance, //
    },
    shim::memory::kmalloc_array_size, //
};

impl Endpoint {
    /// ATOMIC, FETCH_ATOMIC, COMPARE_ATOMIC. The caller has checked the operation. Returns the
    /// session as a SEND does. Fails with `EAGAIN`, `ENOMEM` as for a SEND. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn atomic_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        flags: OpFlags,
        op: &mut Atomic<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        self.try_atomic(bound, &session, flags, op, spare)
            .inspect_err(|_| session.free_if_unused())
    }

    fn try_atomic(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        flags: OpFlags,
        op: &mut Atomic<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let pieces = op.remote.pieces();
        if pieces.is_empty() {
            return Err(EINVAL);
        }
        if pieces.iter().any(|piece| u32::try_from(piece.key).is_err()) {
            // RKEYs have 4 bytes, so no region has this key.
            let ticket = self.atomic_ticket(bound, flags, op, spare)?;
            op.release();
            self.tx.give_back_room();
            self.complete(bound, ticket, Outcome::refused(AccessRefusal::Key));
            session.free_if_unused();
            return Ok(session.clone());
        }
        match rc_op(op) {
            Some(rc_op) => self.try_rc_atomic(bound, session, flags, op, rc_op, spare),
            None => self.try_send_atomic(bound, session, flags, op, spare),
        }
    }

    /// Posts an atomic of RC.
    fn try_rc_atomic(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        flags: OpFlags,
        op: &mut Atomic<'_>,
        rc_op: WireOp,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let transfer = Transfer {
            kind: RmaKind::Atomic,
            len: op.len() as u32,
            pieces: 1,
            fence: flags.contains(OpFlags::FENCE),
        };
        let slot = slot(())?;
        op.result.charge_lists(&self.ident.budget)?;
        op.remote.charge_list(&self.ident.budget)?;
        let ticket = self.atomic_ticket(bound, flags, op, spare)?;
        let memory = op.result.take();
        let remote = op.remote.take();
        op.release();
        let new = NewRma {
            transmit: Transmit {
                ticket,
                memory,
                target: Some(Target {
                    access: TargetAccess::Atomic(rc_op),
                    remote,
                }),
                grant: None,
                result: None,
                charge: None,
            },
            slot,
        };
        let post = |to: &Arc<Session>, new| to.rma(transfer, new);
        self.hand_over(bound, session, new, post, |new| new.transmit, spare)
    }

    /// Posts an atomic as a SEND.
    fn try_send_atomic(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        flags: OpFlags,
        op: &mut Atomic<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let size = op.function.datatype().size();
        let count = op.len().checked_div(size).ok_or(EINVAL)?;
        // The number of pieces was limited by the front end.
        let call = Call::new(op.function, op.remote.pieces().len(), count).ok_or(EINVAL)?;
        let (payload, charge) = self.payload(op, &call)?;
        let data = flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(op.data);
        let outgoing = Outgoing::atomic(call, data, flags.contains(OpFlags::FENCE));
        let slot = slot(())?;
        let node = match call.result_len() {
            Some(_) => Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            None => None,
        };
        let ticket = self.atomic_ticket(bound, flags, op, spare)?;
        let result = node.map(|node| (node, op.result.take()));
        op.release();
        let new = NewSend {
            transmit: Transmit {
                ticket,
                memory: payload,
                target: None,
                grant: None,
                result: None,
                charge,
            },
            slot,
            grant: None,
            result,
        };
        let post = |to: &Arc<Session>, new| to.send(outgoing, new);
        self.hand_over(bound, session, new, post, |new| new.transmit, spare)
    }

    fn atomic_ticket(
        &self,
        bound: &Bound,
        flags: OpFlags,
        op: &Atomic<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Ticket> {
        let len = op.len() as u64;
        self.remote_ticket(bound, op.kind(), flags, op.context, len, spare)
    }

    /// Makes the payload of a SEND: the pieces, the operands, the values to compare with. Charges
    /// memory of more bytes than an outstanding transmit is charged for, and the list of the
    /// destination of the old values. Fails with `ENOMEM`. Sleeps.
    fn payload(&self, op: &Atomic<'_>, call: &Call) -> Result<(MemRef, Option<Allowance>)> {
        let len = call.payload() as usize;
        op.result.charge_lists(&self.ident.budget)?;
        let charge = match len {
            0..=limits::INJECT_SIZE => None,
            _ => Some(self.ident.budget.take(MemRef::kept_bytes(len as u64))?),
        };
        let payload = MemRef::to_be_filled(len, true)?;
        for (index, piece) in op.remote.pieces().iter().enumerate() {
            let piece = Piece {
                addr: piece.addr,
                // The caller has checked the keys; the elements have at most `MAX_ATOMIC_SIZE`
                // bytes.
                rkey: piece.key as u32,
                len: piece.len as u32,
            };
            payload::store(&payload, index * PIECE_LEN, &piece.to_bytes());
        }
        let mut at = call.operands_at();
        if op.function.has_operand() {
            at += mem::copy(&payload.slice(at, call.len()), &op.operand);
        }
        if op.function.compares() {
            mem::copy(&payload.slice(at, call.len()), &op.compare);
        }
        Ok((payload, charge))
    }
}

/// The work request for an atomic that RC has: one that returns the old value of one word. An
/// `ATOMIC` is sent in a SEND, because the target of an RC atomic would count it as one that
/// fetches, and demand the right to read.
fn rc_op(op: &Atomic<'_>) -> Option<WireOp> {
    let rc = op.function.rc().filter(|_| op.function.fetches())?;
    match op.remote.pieces() {
        [piece] if op.len() == op.function.datatype().size() => {
            Some(op.rc_op(rc, piece.addr, u32::try_from(piece.key).ok()?))
        }
        _ => None,
    }
}

/// An atomic of the peer that is arriving.
pub(super) struct ReceivedAtomic {
    call: Call,
    /// The CQ data, if there are any.
    data: Option<u64>,
    /// The payload, and room for the old values; see [`Call::memory_len`].
    memory: MemRef,
    /// Room for the pieces of this endpoint's memory, which are in the payload.
    remote: Remote,
    /// The answer, if values are returned. It has the charge of the memory.
    answer: Option<PendingAnswer>,
    /// Otherwise the charge of the memory.
    _charge: Option<(Allowance, PartAllowance)>,
}

impl ReceivedAtomic {
    /// The destination of the payload.
    pub(super) fn memory(&self) -> &MemRef {
        &self.memory
    }

    /// Bytes of memory for the atomic: for its payload, and for a list of its pieces.
    fn bytes(call: &Call) -> usize {
        let list = match call.pieces() {
            0 | 1 => 0,
            pieces => kmalloc_array_size::<RemoteRange>(pieces),
        };
        (MemRef::kept_bytes(call.memory_len() as u64) as usize).saturating_add(list)
    }

    /// Memory for the payload, and for the pieces. It does not wait for memory, see
    /// [`slot_of_peer`](super::store::slot_of_peer). Fails with `ENOMEM`.
    fn memory_for(call: &Call) -> Result<(MemRef, Remote)> {
        let memory = MemRef::to_be_kept(call.memory_len())?;
        let remote = match call.pieces() {
            0 | 1 => Remote::none(),
            pieces => {
                let list = KVVec::with_capacity(pieces, Context::Atomic.alloc())?;
                Remote::of_list(list)
            }
        };
        Ok((memory, remote))
    }

    /// The piece at `index` of the payload.
    fn piece(&self, index: usize) -> RemoteRange {
        let mut bytes = [0; PIECE_LEN];
        payload::peek(&mut bytes, &self.memory, index * PIECE_LEN);
        let piece = Piece::from_bytes(bytes);
        RemoteRange {
            addr: piece.addr,
            len: u64::from(piece.len),
            key: u64::from(piece.rkey),
        }
    }

    /// Reads the pieces. Fails with `Invalid` unless they have whole, aligned elements, as many as
    /// the header says.
    fn read_pieces(&mut self) -> Result<(), Refusal> {
        let mut sum = 0u64;
        for index in 0..self.call.pieces() {
            let piece = self.piece(index);
            sum = sum.saturating_add(piece.len);
            self.call
                .function()
                .check_piece(piece.addr, piece.len)
                .map_err(|_| Refusal::Invalid)?;
            match &mut self.remote {
                Remote::One(one) => *one = piece,
                // The list has room for all of them.
                Remote::List(pieces) => pieces
                    .list
                    .push_within_capacity(piece)
                    .map_err(|_| Refusal::Operation)?,
            }
        }
        if sum != self.call.len() as u64 {
            return Err(Refusal::Invalid);
        }
        Ok(())
    }
}

impl Connection {
    /// Prepares for an atomic of the peer. `NotReady`: there is no memory. Sleeps.
    pub(super) fn offer_atomic(
        &self,
        message: &header::Message,
        call: &Call,
    ) -> Result<ReceivedAtomic, Refusal> {
        let endpoint = self.endpoint();
        let (budget, bytes) = (&endpoint.ident.budget, ReceivedAtomic::bytes(call));
        let (mut answer, mut charge) = (None, None);
        if message.finish {
            let session = &self.session;
            let made = PendingAnswer::with_memory(session, self.conn, message.id, None, bytes);
            answer = Some(made.map_err(|_| Refusal::NotReady)?);
        } else {
            let of_peers = self
                .session
                .peer_share
                .take(budget, Part::Peers, bytes as u64);
            let of_peers = of_peers.map_err(|_| Refusal::NotReady)?;
            let memory = budget.take(bytes as u64).map_err(|_| Refusal::NotReady)?;
            charge = Some((memory, of_peers));
        }
        // The current task is a worker or a task of the sender's user. The owner's memory cgroup is
        // charged.
        let memory = endpoint
            .ident
            .owner
            .charge(|| ReceivedAtomic::memory_for(call));
        let (memory, remote) = memory.map_err(|_| Refusal::NotReady)?;
        Ok(ReceivedAtomic {
            call: *call,
            data: message.data,
            memory,
            remote,
            answer,
            _charge: charge,
        })
    }

    /// Executes an atomic of the peer whose payload has come. Returns the event with the reply, if
    /// there is one. Fails with `Invalid` if the payload is malformed, `Access` if the access is
    /// not allowed, `Operation` if this kernel does not compute its type. Sleeps.
    pub(super) fn execute(
        &self,
        bound: &Bound,
        mut atomic: ReceivedAtomic,
    ) -> Result<Option<SessionEvent>, Refusal> {
        let endpoint = self.endpoint();
        atomic.read_pieces()?;
        let function = atomic.call.function();
        let len = atomic.call.len();
        if endpoint.check_function(function, len as u64).is_err() {
            return Err(Refusal::Operation);
        }
        let operands_at = atomic.call.operands_at();
        let part =
            |at: usize| Source::Mem(atomic.memory.slice(operands_at.saturating_add(at), len));
        let values = atomic.memory.slice(operands_at, len);
        let executed = endpoint.execute(
            function,
            atomic.remote.pieces(),
            &Values {
                operand: &part(0),
                compare: &part(len),
                // Each old value replaces its operand.
                result: function.fetches().then_some(&values),
            },
        );
        executed.map_err(|refusal| self.refused(refusal))?;
        let flags = match atomic.data {
            Some(_) => OpFlags::REMOTE_CQ_DATA,
            None => OpFlags::EMPTY,
        };
        let data = atomic.data.unwrap_or(0);
        endpoint.complete_remote(bound, function.kind(), flags, data, len as u64);
        let reply = atomic.answer.map(|answer| answer.values(values));
        Ok(reply.map(SessionEvent::Reply))
    }
}
