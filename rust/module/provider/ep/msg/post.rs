// SPDX-License-Identifier: GPL-2.0

//! Transmits of a connected endpoint.
//!
//! A transmit is one work request of the QP. Its ticket is in a slot of [`Tickets`], and the number
//! of the slot is the ID of the work request. When the QP reports the status, the ticket is taken
//! out and the operation completes. There are `tx_size` slots.

use kfi_core::atomic::RC_LEN;
use kfi_roce::{
    headers::SendEnd,
    rc::{
        Op as WireOp,
        Status, //
    }, //
};

use super::{
    super::{
        op::{
            Atomic,
            Op,
            Read,
            Receive,
            Remote,
            Send,
            Write, //
        },
        options::QpOpt,
        post::Unsent,
        prelude::*,
        slots,
        wire::imm_data, //
    },
    Msg,
    Phase, //
};
use crate::{
    net::qp::rc::Request,
    shim::memory::kmalloc_array_size, //
};

/// The tickets of outstanding transmits.
///
/// # Invariants
///
/// `used` is the number of slots with a ticket.
pub(super) struct Tickets {
    slots: KVVec<Option<Ticket>>,
    /// The slot of the next ticket. Transmits end in the order of posting, so this slot is free
    /// unless all, or almost all, are in use.
    next: usize,
    pub(super) used: usize,
}

impl Tickets {
    /// Makes room for `size` tickets. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(size: usize) -> Result<Self> {
        // INVARIANT: No slot has a ticket.
        Ok(Self {
            slots: slots(size, || None)?,
            next: 0,
            used: 0,
        })
    }

    /// Bytes of room for `size` tickets.
    pub(super) fn bytes(size: usize) -> usize {
        kmalloc_array_size::<Option<Ticket>>(size)
    }

    pub(super) fn size(&self) -> usize {
        self.slots.len()
    }

    /// Stores a ticket and returns its slot, or returns the ticket if the slot is not free.
    fn put(&mut self, ticket: Ticket) -> core::result::Result<usize, Ticket> {
        let index = self.next;
        match self.slots.get_mut(index) {
            Some(slot @ None) => {
                *slot = Some(ticket);
                let next = index.wrapping_add(1);
                self.next = if next < self.slots.len() { next } else { 0 };
                self.used = self.used.wrapping_add(1);
                Ok(index)
            }
            _ => Err(ticket),
        }
    }

    /// Takes the ticket out of a slot.
    fn take(&mut self, index: usize) -> Option<Ticket> {
        let ticket = self.slots.get_mut(index)?.take()?;
        self.used = self.used.wrapping_sub(1);
        Some(ticket)
    }

    /// Takes out the first ticket in slot `next` or behind it. `next` becomes the slot behind it.
    pub(super) fn drain(&mut self, next: &mut usize) -> Option<Ticket> {
        if self.used == 0 {
            return None;
        }
        let skipped = self.slots.iter().skip(*next).position(Option::is_some)?;
        let index = next.wrapping_add(skipped);
        *next = index.wrapping_add(1);
        self.take(index)
    }
}

/// The parameters of a transmit besides its memory.
pub(in crate::provider::ep) struct Transmit {
    kind: OpType,
    pub(in crate::provider::ep) flags: OpFlags,
    context: u64,
    op: WireOp,
}

impl Msg {
    /// Posts an operation. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its memory.
    /// Sleeps.
    pub(in crate::provider::ep) fn post(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        op: &mut Op<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        match op {
            Op::Receive(op) => {
                if self.phase() == Phase::Over {
                    return Err(ESHUTDOWN);
                }
                endpoint.receive(bound, op, &mut poster.spare)?;
                if self.phase() == Phase::Over {
                    // The connection ended meanwhile, perhaps before it could see this receive.
                    endpoint.cancel_receives(bound);
                }
                Ok(())
            }
            op => {
                let transmit = self.transmit_of(endpoint, op)?;
                self.transmit(endpoint, bound, &transmit, op, poster)
            }
        }
    }

    /// Checks a transmit, and returns its parameters. Fails with the errors of [`Poster::post`]
    /// that do not depend on the state of the connection. Does not sleep.
    pub(in crate::provider::ep) fn transmit_of(
        &self,
        endpoint: &Endpoint,
        op: &Op<'_>,
    ) -> Result<Transmit> {
        let (kind, context) = op.kind_and_context();
        let len = op.len();
        let flags = endpoint.checked_flags_of(kind, op.flags(), len)?;
        let wire_op = match op {
            Op::Send(op) => WireOp::Send(match imm_data(flags, op.data)? {
                None => SendEnd::Plain,
                Some(imm) => SendEnd::Imm(imm),
            }),
            Op::Write(op) => {
                let (va, rkey) = one_piece(&op.remote, len)?;
                let imm = imm_data(flags, op.data)?;
                WireOp::Write { va, rkey, imm }
            }
            Op::Read(op) => {
                self.check_rd_atomic()?;
                let (va, rkey) = one_piece(&op.remote, len)?;
                WireOp::Read { va, rkey }
            }
            Op::Atomic(op) => self.atomic(endpoint, op, flags)?,
            // A receive is no transmit.
            Op::Receive(_) => return Err(EINVAL),
        };
        Ok(Transmit {
            kind,
            flags,
            context,
            op: wire_op,
        })
    }

    fn atomic(&self, endpoint: &Endpoint, op: &Atomic<'_>, flags: OpFlags) -> Result<WireOp> {
        endpoint.check_function(&op.function, op.len() as u64)?;
        let rc = op.function.rc().ok_or(EOPNOTSUPP)?;
        // RC cannot send CQ data with an atomic.
        if flags.contains(OpFlags::REMOTE_CQ_DATA) {
            return Err(EOPNOTSUPP);
        }
        self.check_rd_atomic()?;
        let (va, rkey) = one_piece(&op.remote, RC_LEN)?;
        op.check_lengths()?;
        Ok(op.rc_op(rc, va, rkey))
    }

    /// Checks that READs and atomics may be outstanding, as the owner set and the peer agreed.
    /// Fails with `EOPNOTSUPP`.
    fn check_rd_atomic(&self) -> Result {
        let most = match self.peer.as_ref() {
            Some(peer) => u64::from(peer.attr.max_rd_atomic),
            None => self.attrs.get(QpOpt::RdAtomic)?,
        };
        if most == 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    fn transmit(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        transmit: &Transmit,
        of: &mut Op<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let Transmit {
            kind,
            flags,
            context,
            op,
        } = *transmit;
        match self.phase() {
            Phase::Connected => {}
            Phase::Idle | Phase::Connecting | Phase::Accepting => return Err(ENOTCONN),
            Phase::Over => return Err(ESHUTDOWN),
        }
        endpoint.check_link()?;
        // Addresses and routes may have changed since the connection was made.
        self.peer.as_ref().ok_or(ENOTCONN)?.path.check()?;
        let qp = self.qp()?;
        let memory = memory_of(of)?;
        memory.charge_lists(&endpoint.ident.budget)?;
        let (len, spare) = (memory.len() as u64, &mut poster.spare);
        let ticket = endpoint.ticket(bound, kind, flags, context, len, spare)?;
        if let Err(error) = endpoint.tx.take_shared() {
            endpoint.refuse(bound, ticket, spare);
            return Err(error);
        }
        let put = self.tickets.lock().put(ticket);
        let slot = match put {
            Ok(slot) => slot,
            Err(ticket) => {
                endpoint.tx.give_back_shared();
                endpoint.refuse(bound, ticket, spare);
                return Err(EAGAIN);
            }
        };
        let request = Request {
            op,
            fence: flags.contains(OpFlags::FENCE),
            solicited: false,
        };
        poster.unsent = Unsent::Own;
        let queued = qp.queue(&request, &[], memory, slot as u64);
        if let Err(error) = queued {
            let ticket = self.tickets.lock().take(slot);
            if let Some(ticket) = ticket {
                endpoint.tx.give_back_shared();
                endpoint.refuse(bound, ticket, &mut poster.spare);
            }
            // The state of the QP does not allow it: it has just been closed.
            return Err(if error == EINVAL { ESHUTDOWN } else { error });
        }
        Ok(())
    }

    /// Sends the queued packets. Sleeps.
    pub(in crate::provider::ep) fn push(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.push();
        }
    }

    /// Completes a transmit. Does not sleep.
    pub(super) fn ended(&self, endpoint: &Endpoint, bound: &Bound, slot: u64, status: Status) {
        let ticket = self.tickets.lock().take(slot as usize);
        if status == Status::RemoteAccess {
            // Counted before the program sees the completion.
            endpoint.ident.refused();
        }
        let Some(ticket) = ticket else {
            return;
        };
        endpoint.tx.give_back_shared();
        match prov_errno::of_transmit(status) {
            None => endpoint.complete_transmit(bound, ticket),
            Some((errno, prov_errno)) => {
                let outcome = Outcome::failed_with(errno, prov_errno);
                endpoint.complete(bound, ticket, outcome);
            }
        }
    }
}

/// The local memory of a transmit, to be kept until it completes: its source, or the destination of
/// the response. Fails with `ENOMEM`. Sleeps.
fn memory_of<'m>(op: &'m mut Op<'_>) -> Result<&'m mut MemRef> {
    match op {
        Op::Send(Send { from, .. }) | Op::Write(Write { from, .. }) => from.own(true),
        Op::Read(Read { into, .. }) | Op::Receive(Receive { into, .. }) => Ok(into),
        Op::Atomic(op) => op.rc_result(true),
    }
}

/// The address and key of the peer's memory for an operation on `len` bytes. Fails with `EINVAL`
/// for more than one piece, or another length; `EKEYREJECTED` for a key of more than 32 bits, which
/// no region has.
fn one_piece(remote: &Remote, len: usize) -> Result<(u64, u32)> {
    match remote.pieces() {
        [piece] if piece.len == len as u64 => {
            let rkey = u32::try_from(piece.key).map_err(|_| to_error(Errno::EKEYREJECTED))?;
            Ok((piece.addr, rkey))
        }
        _ => Err(EINVAL),
    }
}
