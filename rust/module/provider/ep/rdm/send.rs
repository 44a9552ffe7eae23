// SPDX-License-Identifier: GPL-2.0

//! Sends to a peer on this host. [`remote`](super::remote) sends to other hosts.
//!
//! ```text
//!  a posted receive matches ------------------> placed at once, both sides complete
//!  none, the message is small and buffered ---> copied to the peer, the send completes
//!  none, otherwise ---------------------------> stays here and waits at the peer (transmit.rs)
//! ```
//!
//! A message is buffered if it has at most [`EAGER_SIZE`] bytes, does not have
//! KFI_DELIVERY_COMPLETE, and the peer's budget has room. An injected message cannot wait, because
//! its sender may reuse the bytes when the call returns. If it would have to, posting it gives
//! `EAGAIN`.
//!
//! Messages between two endpoints keep their order: the operations of a sender are posted one after
//! another, and when the call of each returns, it is in one of the peer's two queues or was
//! matched.

use kfi_core::{
    limits::EAGER_SIZE,
    matching::Envelope,
    op::CompletionLevel, //
};

use super::{
    super::{
        op::Send,
        post::{
            Origin,
            Peer, //
        },
        prelude::*,
        receive::{
            share::{
                Holding,
                KeptShare, //
            },
            EnqueueResult,
            Location,
            MatchResult, //
        }, //
    },
    transmit::{
        PendingOp,
        WaitingSend, //
    }, //
};

/// The parameters that a send needs, besides the message, to complete.
struct SendParams<'a, 'b> {
    target: &'a Arc<Endpoint>,
    target_bound: &'a Bound,
    context: u64,
    /// Whether an injected message may wait at the peer, because its bytes belong to the operation.
    may_wait: bool,
    /// The bytes. A refused send leaves them here.
    from: &'a mut Source<'b>,
    /// See [`Endpoint::ticket`].
    spare: &'a mut Option<Record>,
    /// The share of this endpoint's owner at the peer, if that belongs to another user.
    share: Option<KeptShare>,
}

impl Endpoint {
    /// Checks a SEND or TSEND and returns its flags. Fails with `EOPNOTSUPP`, `EMSGSIZE`.
    /// Does not sleep.
    #[inline]
    pub(in crate::provider::ep) fn check_send(&self, op: &Send<'_>) -> Result<OpFlags> {
        self.checked_flags_of(op.kind(), op.flags, op.from.len())
    }

    /// SEND and TSEND. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its bytes.
    /// Sleeps.
    #[inline]
    #[link_section = ".text.hot"]
    pub(in crate::provider::ep) fn send(
        self: &Arc<Self>,
        bound: &Bound,
        op: &mut Send<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let kind = op.kind();
        let flags = self.check_send(op)?;
        let len = op.from.len() as u64;
        let target = match self.peer(bound, op.peer, &mut poster.last)? {
            Peer::Local(target) => target,
            Peer::Remote(session) => {
                let session = session.clone();
                let spare = &mut poster.spare;
                let session = self.send_remote(bound, session, kind, flags, op, spare)?;
                poster.queued_to(session);
                return Ok(());
            }
        };
        let Some((_at_target, target_bound)) = target.enter() else {
            return Err(EHOSTUNREACH);
        };
        if flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let ticket = self.ticket_at_once(bound, kind, flags, op.context, len, &mut poster.spare)?;
        if !target.caps.contains(kind.target_caps()) {
            let outcome = Outcome::failed(Errno::EREMOTEIO);
            op.from.release();
            return self.fail_at_once(bound, ticket, outcome, &mut poster.spare);
        }

        let message = Message {
            tagged: op.tag.is_some(),
            envelope: Envelope {
                src: bound.source,
                tag: op.tag.map_or(0, |tag| tag.tag),
            },
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(op.data),
            len,
            rma: None,
        };
        let eager = len <= EAGER_SIZE && CompletionLevel::of(flags) != CompletionLevel::Delivery;
        let (charged, foreign) = match target.offer(&message, eager, &self.ident.budget) {
            MatchResult::Taken(matched) => {
                target.place_at_once(target_bound, matched, &message, &op.from);
                // The memory is released before the completion is visible.
                op.from.release();
                self.complete_transmit_at_once(bound, ticket);
                return Ok(());
            }
            MatchResult::Charged => (true, false),
            MatchResult::NoRoom => (false, false),
            MatchResult::Foreign => (false, true),
        };
        let params = SendParams {
            target,
            target_bound,
            context: op.context,
            may_wait: poster.origin != Origin::Call || !flags.contains(OpFlags::INJECT),
            from: &mut op.from,
            spare: &mut poster.spare,
            share: None,
        };
        if foreign {
            self.send_foreign(bound, params, message, ticket, eager)
        } else if charged {
            self.send_eager(bound, params, message, ticket, None)
        } else {
            self.send_waiting(bound, params, message, ticket)
        }
    }

    /// Keeps the message at a peer of another user, where this endpoint's owner has a share.
    #[cold]
    #[inline(never)]
    fn send_foreign(
        self: &Arc<Self>,
        bound: &Bound,
        params: SendParams<'_, '_>,
        message: Message,
        ticket: Ticket,
        eager: bool,
    ) -> Result {
        let share = match params.target.kept_share(self.ident.budget.source()) {
            Ok(share) => share,
            Err(e) => {
                self.refuse(bound, ticket, params.spare);
                return Err(e);
            }
        };
        let holding = match eager {
            true => params.target.hold(&share, &message, true),
            false => None,
        };
        let share = Some(share);
        let params = SendParams { share, ..params };
        match holding {
            Some(_) => self.send_eager(bound, params, message, ticket, holding),
            None => self.send_waiting(bound, params, message, ticket),
        }
    }

    /// Leaves a copy at the peer, whose budget has been charged for it. `holding`: its place, if
    /// the peer belongs to another user.
    #[inline(never)]
    fn send_eager(
        self: &Arc<Self>,
        bound: &Bound,
        params: SendParams<'_, '_>,
        message: Message,
        ticket: Ticket,
        holding: Option<Holding>,
    ) -> Result {
        let SendParams {
            target,
            target_bound,
            ..
        } = params;
        let copy = match target.buffer(params.from) {
            Ok(Some(mut copy)) => {
                copy.holding = holding;
                copy
            }
            Err(e) if !params.may_wait => {
                target.uncharge(&message);
                self.refuse(bound, ticket, params.spare);
                return Err(e);
            }
            // The budget or the host has no memory for a copy now.
            Ok(None) | Err(_) => {
                target.uncharge(&message);
                drop(holding);
                return self.send_waiting(bound, params, message, ticket);
            }
        };
        match target.arrive(&message, Location::Buffer(copy)) {
            EnqueueResult::Kept => {}
            EnqueueResult::Taken(matched) => {
                target.uncharge(&message);
                target.place(target_bound, matched, &message, params.from);
            }
            EnqueueResult::Full => {
                target.uncharge(&message);
                return self.send_waiting(bound, params, message, ticket);
            }
        }
        params.from.release();
        self.complete_transmit(bound, ticket);
        Ok(())
    }

    /// Lets the message wait at the peer.
    #[inline(never)]
    fn send_waiting(
        self: &Arc<Self>,
        bound: &Bound,
        params: SendParams<'_, '_>,
        message: Message,
        mut ticket: Ticket,
    ) -> Result {
        let SendParams {
            target,
            target_bound,
            context,
            may_wait,
            from,
            spare,
            share,
        } = params;
        let held = share.map(|share| target.hold(&share, &message, false));
        let holding = match held {
            // The share of the user is used up.
            Some(None) => {
                self.refuse(bound, ticket, spare);
                return Err(EAGAIN);
            }
            held => held.flatten(),
        };
        let slot = if may_wait {
            self.tx.reserve()
        } else {
            Err(EAGAIN)
        };
        let slot = match slot {
            Ok(slot) => slot,
            Err(e) => {
                self.refuse(bound, ticket, spare);
                return Err(e);
            }
        };
        let kept = self.keep(bound, &mut ticket, spare);
        let memory = kept.and_then(|()| {
            let memory = from.own(true)?;
            memory.charge_lists(&self.ident.budget)?;
            Ok(memory)
        });
        let memory = match memory {
            // The party that takes the pending operation has the last reference.
            Ok(memory) => memory.take(),
            Err(e) => {
                self.tx.unreserve(slot);
                self.refuse(bound, ticket, spare);
                return Err(e);
            }
        };
        let pending = PendingOp {
            from: memory,
            ticket,
        };
        let send = match WaitingSend::new(self, target, context, slot.number, pending) {
            Ok(send) => send,
            Err((e, pending)) => {
                self.tx.unreserve(slot);
                self.refuse(bound, pending.ticket, spare);
                return Err(e);
            }
        };
        match target.arrive(&message, Location::Sender(send.clone(), holding)) {
            EnqueueResult::Kept => {
                let is_entered = self.tx.enter(slot, &send);
                if is_entered && self.domain.link().state() == LinkState::Gone {
                    // The link may have been removed after the check above, and its sends failed
                    // before this one was entered.
                    self.end_send(bound, &send, Errno::ENODEV);
                }
                Ok(())
            }
            EnqueueResult::Taken(matched) => {
                self.tx.unreserve(slot);
                // The send is not visible to others yet.
                if let Some(pending) = send.take() {
                    target.place(target_bound, matched, &message, &Source::Mem(pending.from));
                    self.complete_transmit(bound, pending.ticket);
                }
                Ok(())
            }
            EnqueueResult::Full => {
                self.tx.unreserve(slot);
                if let Some(pending) = send.take() {
                    *from = Source::Mem(pending.from);
                    self.refuse(bound, pending.ticket, spare);
                }
                Err(EAGAIN)
            }
        }
    }
}
