// SPDX-License-Identifier: GPL-2.0

//! Transmits of a connected endpoint.
//!
//! A transmit is one work request of the QP. Its ticket is in a slot of [`Tickets`], and the number
//! of the slot is the ID of the work request. When the QP reports the status, the ticket is taken
//! out and the operation completes. There are `tx_size` slots.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    errno::Errno,
    flags::OpFlags,
    op::{
        OpType,
        ATOMIC_LEN, //
    },
    prov_errno, //
};
use kfi_roce::{
    headers::SendEnd,
    rc::{
        Op as WireOp,
        Status, //
    }, //
};

use super::{
    super::{
        bound::Bound,
        complete::{
            Failure,
            Outcome,
            Ticket, //
        },
        op::{
            Atomic,
            Change,
            Op,
            Remote, //
        },
        options::QpOpt,
        post::{
            Poster,
            Unsent, //
        },
        wire::imm_data,
        Endpoint, //
    },
    Msg,
    Phase, //
};
use crate::{
    mem::MemRef,
    net::qp::rc::Request,
    shim::errno::to_error, //
};

/// The tickets of outstanding transmits.
///
/// # Invariants
///
/// `used` is the number of places with a ticket.
pub(super) struct Tickets {
    places: KVVec<Option<Ticket>>,
    /// The place of the next ticket. Transmits end in the order of posting, so this place is free
    /// unless all, or almost all, are in use.
    next: usize,
    used: usize,
}

impl Tickets {
    /// Makes room for `size` tickets. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(size: usize) -> Result<Self> {
        let mut places = KVVec::with_capacity(size, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..size {
            places.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        // INVARIANT: No place has a ticket.
        Ok(Self {
            places,
            next: 0,
            used: 0,
        })
    }

    /// Bytes of room for `size` tickets.
    pub(super) const fn bytes(size: usize) -> usize {
        size.saturating_mul(size_of::<Option<Ticket>>())
    }

    /// The number of places.
    pub(super) fn size(&self) -> usize {
        self.places.len()
    }

    /// The number of tickets.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Stores a ticket and returns its place, or returns the ticket if the place is not free.
    fn put(&mut self, ticket: Ticket) -> core::result::Result<usize, Ticket> {
        let at = self.next;
        match self.places.get_mut(at) {
            Some(place @ None) => {
                *place = Some(ticket);
                let next = at.wrapping_add(1);
                self.next = if next < self.places.len() { next } else { 0 };
                self.used = self.used.wrapping_add(1);
                Ok(at)
            }
            _ => Err(ticket),
        }
    }

    /// Takes the ticket out of a place.
    fn take(&mut self, at: usize) -> Option<Ticket> {
        let ticket = self.places.get_mut(at)?.take()?;
        self.used = self.used.wrapping_sub(1);
        Some(ticket)
    }

    /// Takes out the first ticket at or behind the place `at`, which becomes the place behind it.
    pub(super) fn drain(&mut self, at: &mut usize) -> Option<Ticket> {
        if self.used == 0 {
            return None;
        }
        let found = self.places.iter().skip(*at).position(Option::is_some)?;
        let place = at.wrapping_add(found);
        *at = place.wrapping_add(1);
        self.take(place)
    }
}

/// The parameters of a transmit besides its memory.
pub(in crate::provider::ep) struct Transmit {
    kind: OpType,
    flags: OpFlags,
    context: u64,
    op: WireOp,
}

impl Transmit {
    /// Its flags.
    pub(in crate::provider::ep) fn flags(&self) -> OpFlags {
        self.flags
    }
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

    /// Checks a transmit, and returns its parameters. Fails with the errors of [`Poster::post`] that
    /// do not depend on the state of the connection. Does not sleep.
    pub(in crate::provider::ep) fn transmit_of(
        &self,
        endpoint: &Endpoint,
        op: &Op<'_>,
    ) -> Result<Transmit> {
        let (kind, context) = op.name();
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
            Op::Atomic(op) => self.atomic(op)?,
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

    fn atomic(&self, op: &Atomic) -> Result<WireOp> {
        self.check_rd_atomic()?;
        let (va, rkey) = one_piece(&op.remote, ATOMIC_LEN)?;
        if va % ATOMIC_LEN as u64 != 0 {
            return Err(EINVAL);
        }
        Ok(match op.change {
            Change::Sum { add, .. } | Change::FetchSum { add, .. } => {
                WireOp::FetchAdd { va, rkey, add }
            }
            Change::CompareSwap { compare, swap, .. } => WireOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            },
        })
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
            Phase::Idle | Phase::Asking | Phase::Accepting => return Err(ENOTCONN),
            Phase::Over => return Err(ESHUTDOWN),
        }
        endpoint.check_link()?;
        let qp = self.qp()?;
        let memory = memory_of(of)?;
        let (len, spare) = (memory.len() as u64, &mut poster.spare);
        let ticket = endpoint.ticket(bound, kind, flags, context, len, spare)?;
        let put = self.tickets.lock().put(ticket);
        let place = match put {
            Ok(place) => place,
            Err(ticket) => {
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
        let queued = qp.queue(&request, &[], memory, place as u64);
        if let Err(error) = queued {
            let ticket = self.tickets.lock().take(place);
            if let Some(ticket) = ticket {
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
    pub(super) fn ended(&self, endpoint: &Endpoint, bound: &Bound, place: u64, status: Status) {
        let ticket = self.tickets.lock().take(place as usize);
        if status == Status::RemoteAccess {
            // Counted before the program sees the completion.
            endpoint.ident.refused();
        }
        let Some(ticket) = ticket else {
            return;
        };
        match failure(prov_errno::of_transmit(status)) {
            None => endpoint.complete_transmit(bound, ticket),
            Some(failure) => {
                let mut outcome = Outcome::failed(failure.errno);
                outcome.error = Some(failure);
                endpoint.complete(bound, ticket, outcome);
            }
        }
    }
}

/// The error entry for an errno and its `prov_errno`; `None` for success.
pub(super) fn failure(told: Option<(Errno, u32)>) -> Option<Failure> {
    let (errno, prov_errno) = told?;
    Some(Failure {
        errno,
        prov_errno,
        olen: 0,
    })
}

/// The local memory of a transmit, to be kept until it completes: its source, or the destination of
/// the response. Fails with `ENOMEM`. Sleeps.
fn memory_of<'m>(op: &'m mut Op<'_>) -> Result<&'m mut MemRef> {
    match op {
        Op::Send(op) => op.from.own(true),
        Op::Write(op) => op.from.own(true),
        Op::Read(op) => Ok(&mut op.into),
        Op::Receive(op) => Ok(&mut op.into),
        Op::Atomic(op) => op.change.result(true),
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
