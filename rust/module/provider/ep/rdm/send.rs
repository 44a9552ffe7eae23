// SPDX-License-Identifier: GPL-2.0

//! Sends to a peer on this host. [`remote`](super::remote) sends to other hosts.
//!
//! ```text
//!  a posted receive matches ------------------> placed at once, both sides complete
//!  none, the message is small and buffered ---> copied to the peer, the send completes
//!  none, otherwise ---------------------------> stays here and waits at the peer (pending.rs)
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

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    errno::Errno,
    flags::OpFlags,
    limits::EAGER_SIZE,
    matching::Envelope,
    op::CompletionLevel, //
};

use super::{
    super::{
        bound::Bound,
        complete::{
            Outcome,
            Ticket, //
        },
        op::Send,
        post::{
            Peer,
            Poster, //
        },
        receive::{
            EnqueueResult,
            Held,
            MatchResult,
            Message, //
        },
        Endpoint, //
    },
    pending::{
        PendingOp,
        WaitingSend, //
    }, //
};
use crate::{
    mem::Source,
    net::LinkState, //
};

/// The parameters that a send needs, besides the message, to complete.
struct SendParams<'a> {
    target: &'a Arc<Endpoint>,
    target_bound: &'a Bound,
    context: u64,
    flags: OpFlags,
}

impl Endpoint {
    /// SEND and TSEND. Errors: see [`Poster::post`]. Sleeps.
    #[inline]
    #[link_section = ".text.hot"]
    pub(in crate::provider::ep) fn send(
        self: &Arc<Self>,
        bound: &Bound,
        op: Send<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let kind = op.kind();
        let flags = self.checked_flags_of(kind, op.flags, op.from.len())?;
        let len = op.from.len() as u64;
        let target = match self.peer(bound, op.peer, &mut poster.last)? {
            Peer::Here(target) => target,
            Peer::There(session) => {
                let session = session.clone();
                let session = self.send_remote(bound, session, kind, flags, op)?;
                poster.queued_to(session);
                return Ok(());
            }
        };
        let (Some(_at_target), Some(target_bound)) = (target.run.enter(), target.bound.as_ref())
        else {
            return Err(EHOSTUNREACH);
        };
        if flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let ticket = self.ticket_at_once(bound, kind, flags, op.context, len)?;
        if !target.caps.contains(kind.target_caps()) {
            return self.fail_at_once(bound, ticket, Outcome::failed(Errno::EREMOTEIO));
        }

        let message = Message {
            tagged: op.tag.is_some(),
            envelope: Envelope {
                src: bound.name,
                tag: op.tag.map_or(0, |tag| tag.tag),
            },
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(op.data),
            len,
        };
        let eager = len <= EAGER_SIZE && CompletionLevel::of(flags) != CompletionLevel::Delivery;
        let departure = SendParams {
            target,
            target_bound,
            context: op.context,
            flags,
        };
        match target.offer(&message, eager) {
            MatchResult::Taken(place) => {
                target.place_at_once(target_bound, place, &message, &op.from);
                // The memory is released before the completion is visible.
                drop(op.from);
                self.complete_transmit_at_once(bound, ticket);
                Ok(())
            }
            MatchResult::Charged => self.send_eager(bound, departure, message, op.from, ticket),
            MatchResult::NoRoom => self.send_waiting(bound, departure, message, op.from, ticket),
        }
    }

    /// Leaves a copy at the peer, whose budget has been charged for it.
    #[inline(never)]
    fn send_eager(
        self: &Arc<Self>,
        bound: &Bound,
        departure: SendParams<'_>,
        message: Message,
        from: Source<'_>,
        ticket: Ticket,
    ) -> Result {
        let SendParams {
            target,
            target_bound,
            ..
        } = departure;
        let copy = match target.buffer(&from) {
            Ok(Some(copy)) => copy,
            Ok(None) => {
                target.uncharge(&message);
                return self.send_waiting(bound, departure, message, from, ticket);
            }
            Err(e) => {
                target.uncharge(&message);
                self.give_back(bound, ticket);
                return Err(e);
            }
        };
        match target.arrive(&message, Held::Here(copy)) {
            EnqueueResult::Kept => {}
            EnqueueResult::Taken(place) => {
                target.uncharge(&message);
                target.place(target_bound, place, &message, &from);
            }
            EnqueueResult::Full => {
                target.uncharge(&message);
                return self.send_waiting(bound, departure, message, from, ticket);
            }
        }
        drop(from);
        self.complete_transmit(bound, ticket);
        Ok(())
    }

    /// Lets the message wait at the peer.
    #[inline(never)]
    fn send_waiting(
        self: &Arc<Self>,
        bound: &Bound,
        departure: SendParams<'_>,
        message: Message,
        from: Source<'_>,
        mut ticket: Ticket,
    ) -> Result {
        let SendParams {
            target,
            target_bound,
            context,
            flags,
        } = departure;
        let seat = if flags.contains(OpFlags::INJECT) {
            Err(EAGAIN)
        } else {
            self.tx.reserve()
        };
        let seat = match seat {
            Ok(seat) => seat,
            Err(e) => {
                self.give_back(bound, ticket);
                return Err(e);
            }
        };
        let kept = self.keep(bound, &mut ticket).and_then(|()| from.keep());
        // Dropped here, so that the party that takes the cargo has the last reference.
        drop(from);
        let from = match kept {
            Ok(from) => from,
            Err(e) => {
                self.tx.unreserve(seat);
                self.give_back(bound, ticket);
                return Err(e);
            }
        };
        let cargo = PendingOp { from, ticket };
        let send = match WaitingSend::new(self, target, context, seat.number, cargo) {
            Ok(send) => send,
            Err((e, cargo)) => {
                self.tx.unreserve(seat);
                self.give_back(bound, cargo.ticket);
                return Err(e);
            }
        };
        match target.arrive(&message, Held::There(send.clone())) {
            EnqueueResult::Kept => {
                let number = seat.number;
                self.tx.seat(seat, send.clone());
                if !send.is_waiting() {
                    // The peer or a cancel has taken the cargo already.
                    self.tx.remove(number);
                } else if self.domain.link().state() == LinkState::Gone {
                    // The link may have been removed after the check above, and its sends failed
                    // before this one was entered.
                    self.end_send(bound, &send, Errno::ENODEV);
                }
                Ok(())
            }
            EnqueueResult::Taken(place) => {
                self.tx.unreserve(seat);
                // The send is not visible to others yet.
                if let Some(cargo) = send.take() {
                    target.place(target_bound, place, &message, &Source::Mem(cargo.from));
                    self.complete_transmit(bound, cargo.ticket);
                }
                Ok(())
            }
            EnqueueResult::Full => {
                self.tx.unreserve(seat);
                if let Some(cargo) = send.take() {
                    self.give_back(bound, cargo.ticket);
                }
                Err(EAGAIN)
            }
        }
    }
}
