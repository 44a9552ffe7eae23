// SPDX-License-Identifier: GPL-2.0

//! Transmits to peers on other hosts.
//!
//! A transmit acquires everything it needs before its session sees it: room among `tx_size`, its
//! ticket, memory, the charge for its lists. It ends in [`end_transmit`](Endpoint::end_transmit).
//! Memory of the program stays pinned until then. Injected and small messages were copied when they
//! were posted.

use kernel::rbtree::RBTreeNodeReservation;

use kfi_core::{
    mr::Refusal,
    op::CompletionLevel,
    rdm::ops::{
        Outgoing,
        RmaKind,
        Transfer, //
    }, //
};

use super::{
    super::{
        super::{
            op::Send,
            prelude::*, //
        },
        rma::Rma, //
    },
    op::{
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

impl Endpoint {
    /// SEND and TSEND. The caller has checked flags, capabilities and length. Returns the session,
    /// which may be a new one; the caller [pushes](Session::push) it soon. Fails with `EAGAIN` if
    /// `tx_size` transmits are outstanding, or the CQ has no room (`op` then has its bytes);
    /// `ENOMEM`. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn send_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        kind: OpType,
        flags: OpFlags,
        op: &mut Send<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        self.try_send(bound, &session, kind, flags, op, spare)
            .inspect_err(|_| session.free_if_unused())
    }

    fn try_send(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        kind: OpType,
        flags: OpFlags,
        op: &mut Send<'_>,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let memory = op.from.own(true)?;
        let outgoing = Outgoing {
            tag: op.tag.map(|tag| tag.tag),
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(op.data),
            // At most 2^30; the length was checked.
            len: memory.len() as u32,
            atomic: None,
            rma: None,
            delivery: CompletionLevel::of(flags) == CompletionLevel::Delivery,
            fence: flags.contains(OpFlags::FENCE),
        };
        let grant = if outgoing.is_eager() {
            None
        } else {
            Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?)
        };
        let slot = slot(())?;
        memory.charge_lists(&self.ident.budget)?;
        let len = memory.len() as u64;
        let ticket = self.remote_ticket(bound, kind, flags, op.context, len, spare)?;
        let new = NewSend {
            transmit: Transmit {
                ticket,
                memory: memory.take(),
                target: None,
                grant: None,
                result: None,
                charge: None,
            },
            slot,
            grant,
            result: None,
        };
        let post = |to: &Arc<Session>, new| to.send(outgoing, new);
        self.hand_over(bound, session, new, post, |new| new.transmit, spare)
    }

    /// READ and WRITE of `memory`. Returns the session as a SEND does. Fails with `EAGAIN`,
    /// `ENOMEM` as for a SEND. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn rma_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        rma: Rma<'_>,
        memory: &mut MemRef,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        self.try_rma(bound, &session, rma, memory, spare)
            .inspect_err(|_| session.free_if_unused())
    }

    fn try_rma(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        rma: Rma<'_>,
        memory: &mut MemRef,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let pieces = rma.remote.pieces();
        if pieces.is_empty() {
            return Err(EINVAL);
        }
        let has_keys = pieces.iter().all(|piece| u32::try_from(piece.key).is_ok());
        let data = rma.flags.contains(OpFlags::REMOTE_CQ_DATA);
        let transfer = Transfer {
            kind: match rma.kind {
                OpType::Read => RmaKind::Read,
                _ => RmaKind::Write(data.then_some(rma.data)),
            },
            // At most 2^30; the length was checked.
            len: memory.len() as u32,
            pieces: u32::try_from(pieces.len()).map_err(|_| EINVAL)?,
            fence: rma.flags.contains(OpFlags::FENCE),
        };
        let slot = slot(())?;
        memory.charge_lists(&self.ident.budget)?;
        rma.remote.charge_list(&self.ident.budget)?;
        let (flags, context) = (rma.flags, rma.context);
        let len = memory.len() as u64;
        let ticket = self.remote_ticket(bound, rma.kind, flags, context, len, spare)?;
        if !has_keys {
            // RKEYs have 4 bytes, so no region has this key.
            drop(memory.take());
            self.tx.give_back_room();
            self.complete(bound, ticket, Outcome::refused(Refusal::Key));
            session.free_if_unused();
            return Ok(session.clone());
        }
        let new = NewRma {
            transmit: Transmit {
                ticket,
                memory: memory.take(),
                target: Some(Target {
                    access: match transfer.kind {
                        RmaKind::Read => TargetAccess::Read,
                        _ => TargetAccess::Write,
                    },
                    remote: rma.remote.take(),
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

    /// Hands `new` to a session. If the session has been removed meanwhile, `post` returns `new`,
    /// and a new session is made. Returns the session that took it. `transmit` extracts the
    /// transmit to be refused if there is no new session. Fails with the errors of
    /// [`remote_peer`](Self::remote_peer). Sleeps.
    pub(super) fn hand_over<N>(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        new: N,
        post: impl Fn(&Arc<Session>, N) -> Option<N>,
        transmit: impl Fn(N) -> Transmit,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let mut session = session.clone();
        let mut back = post(&session, new);
        while let Some(new) = back {
            // The worker that has marked it gone removes it, too, but may not be scheduled yet.
            self.remote.forget(&session);
            session = match self.remote_peer(bound, &session.peer) {
                Ok(session) => session,
                Err(error) => {
                    self.tx.give_back_room();
                    self.refuse(bound, transmit(new).ticket, spare);
                    return Err(error);
                }
            };
            back = post(&session, new);
        }
        Ok(session)
    }

    /// Takes the room and the ticket of a transmit. Fails with `EAGAIN`, `ENOMEM`. Sleeps.
    pub(super) fn remote_ticket(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        context: u64,
        len: u64,
        spare: &mut Option<Record>,
    ) -> Result<Ticket> {
        self.tx.take_room()?;
        self.ticket(bound, kind, flags, context, len, spare)
            .inspect_err(|_| self.tx.give_back_room())
    }
}
