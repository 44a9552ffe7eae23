// SPDX-License-Identifier: GPL-2.0

//! Transmits to peers on other hosts.
//!
//! All that one needs is got before its session sees it: its place among `tx_size`, its right to a
//! completion, memory. It ends in [`end_transmit`](Endpoint::end_transmit). Memory of the program stays
//! pinned until then; what is injected or small was copied when it was posted.

use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::Arc, //
};

use kfi_core::{
    flags::OpFlags,
    mr::Refusal,
    op::{
        Level,
        OpType, //
    },
    rdm::ops::{
        Outgoing,
        RmaKind,
        Transfer, //
    }, //
};

use super::super::{
    super::{
        bound::Bound,
        complete::{
            Outcome,
            Ticket, //
        },
        op::Send,
        Endpoint, //
    },
    rma::Rma, //
};
use super::{
    op::{
        Target,
        Transmit, //
    },
    session::{
        NewRma,
        NewSend,
        Session, //
    },
    store::slot, //
};
use crate::mem::MemRef;

impl Endpoint {
    /// SEND and TSEND, whose flags, capabilities and length are good. Gives the session that is to be
    /// [pushed](Session::push) soon: the peer may have a new one. `EAGAIN` so many transmits are
    /// under way, or there is no room in the CQ; `ENOMEM`. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn send_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        kind: OpType,
        flags: OpFlags,
        op: Send<'_>,
    ) -> Result<Arc<Session>> {
        self.try_send(bound, &session, kind, flags, op)
            .inspect_err(|_| session.settle())
    }

    fn try_send(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        kind: OpType,
        flags: OpFlags,
        op: Send<'_>,
    ) -> Result<Arc<Session>> {
        let memory = op.from.keep()?;
        let outgoing = Outgoing {
            tag: op.tag.map(|tag| tag.tag),
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(op.data),
            // At most 2^30, as was checked.
            len: memory.len() as u32,
            delivery: Level::of(flags) == Level::Delivery,
            fence: flags.contains(OpFlags::FENCE),
        };
        let grant = if outgoing.is_eager() {
            None
        } else {
            Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?)
        };
        let slot = slot(())?;
        let ticket = self.remote_ticket(bound, kind, flags, op.context, &memory)?;
        let new = NewSend {
            transmit: Transmit {
                ticket,
                memory,
                target: None,
                grant: None,
            },
            slot,
            grant,
        };
        let post = |to: &Arc<Session>, new| to.send(outgoing, new);
        self.hand_over(bound, session, new, post, |new| new.transmit)
    }

    /// READ and WRITE of `memory`. Gives what a SEND gives. `EAGAIN`, `ENOMEM` as for that. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn rma_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        rma: Rma,
        memory: MemRef,
    ) -> Result<Arc<Session>> {
        self.try_rma(bound, &session, rma, memory)
            .inspect_err(|_| session.settle())
    }

    fn try_rma(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        rma: Rma,
        memory: MemRef,
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
            // At most 2^30, as was checked.
            len: memory.len() as u32,
            pieces: u32::try_from(pieces.len()).map_err(|_| EINVAL)?,
            fence: rma.flags.contains(OpFlags::FENCE),
        };
        let slot = slot(())?;
        let ticket = self.remote_ticket(bound, rma.kind, rma.flags, rma.context, &memory)?;
        if !has_keys {
            // Keys of the wire have 4 bytes, so no region has this one.
            drop(memory);
            self.tx.give_back_room();
            self.complete(bound, ticket, Outcome::refused(Refusal::Key));
            session.settle();
            return Ok(session.clone());
        }
        let new = NewRma {
            transmit: Transmit {
                ticket,
                memory,
                target: Some(Target {
                    read: transfer.kind == RmaKind::Read,
                    remote: rma.remote,
                }),
                grant: None,
            },
            slot,
        };
        let post = |to: &Arc<Session>, new| to.rma(transfer, new);
        self.hand_over(bound, session, new, post, |new| new.transmit)
    }

    /// Has a session take `new`: `post` gives back what one that has gone does not take, and then
    /// there is a new one. Gives the one that took it. `transmit` is what a refusal ends. An error of
    /// the new session. Sleeps.
    fn hand_over<N>(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        new: N,
        post: impl Fn(&Arc<Session>, N) -> Option<N>,
        transmit: impl Fn(N) -> Transmit,
    ) -> Result<Arc<Session>> {
        let mut session = session.clone();
        let mut back = post(&session, new);
        while let Some(new) = back {
            session = match self.remote_peer(bound, session.peer()) {
                Ok(session) => session,
                Err(error) => {
                    self.refuse_remote(bound, transmit(new));
                    return Err(error);
                }
            };
            back = post(&session, new);
        }
        Ok(session)
    }

    /// The right of a transmit to be under way, and to be reported. `EAGAIN`, `ENOMEM`. Sleeps.
    fn remote_ticket(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        context: u64,
        memory: &MemRef,
    ) -> Result<Ticket> {
        self.tx.take_room()?;
        let len = memory.len() as u64;
        self.ticket(bound, kind, flags, context, len)
            .inspect_err(|_| self.tx.give_back_room())
    }

    /// A transmit is refused after all. Sleeps.
    fn refuse_remote(&self, bound: &Bound, transmit: Transmit) {
        self.tx.give_back_room();
        self.give_back(bound, transmit.ticket);
    }
}
