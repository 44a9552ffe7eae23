// SPDX-License-Identifier: GPL-2.0

//! Receives: posting, searching, cancelling and dropping.
//!
//! A receive searches the unexpected messages. If none matches, it is added to the posted receives.
//! A matching message is copied to it outside the lock from its location: a buffer, a sender on
//! this host, or a sender on another host, from which it is read first.

use kfi_core::{
    flags::KFI_ADDR_UNSPEC,
    matching::{
        unexpected::{
            Answer as SearchResult,
            Message as UnexpectedMessage,
            Search, //
        },
        Criteria,
        Placement, //
    }, //
};
use kfi_roce::rc::Status;

use super::{
    super::{
        multi_recv::MultiBuffer,
        op::Receive,
        prelude::*,
        rdm::remote::op::PendingAnswer, //
    },
    place::cancelled_buffer,
    Location,
    MatchedReceive,
    PostedReceive,
    Single, //
};

/// The `prov_errno` of operations that end with their connection.
const FLUSHED: u32 = prov_errno::WIRE | Status::Flushed as u32;

/// The endpoint as the receiver.
impl Endpoint {
    /// Checks a receive, without its source, and returns its flags. Fails with `EOPNOTSUPP`,
    /// `EMSGSIZE`; `ENOSYS` if the endpoint uses a shared receive context, to which receives are
    /// posted. Any context.
    pub(in crate::provider::ep) fn receive_flags(&self, op: &Receive) -> Result<OpFlags> {
        if self.shares.rx {
            return Err(ENOSYS);
        }
        let kind = op.kind();
        let flags = self.flags_of(kind, op.flags);
        kind.check_caps(self.caps, flags, self.is_directed(op))
            .and_then(|()| kind.check_len(flags, op.into.len() as u64))
            .map_err(to_error)?;
        Ok(flags)
    }

    /// [`receive_flags`](Self::receive_flags). Also fails with `KFI_ENOCQ` for a search whose
    /// result no CQ reports. Any context.
    pub(in crate::provider::ep) fn check_receive(
        &self,
        bound: &Bound,
        op: &Receive,
    ) -> Result<OpFlags> {
        let flags = self.receive_flags(op)?;
        if flags.contains(OpFlags::PEEK) && bound.rx_cq.is_none() {
            // The search has no other result than this entry.
            return Err(to_error(Errno::KFI_ENOCQ));
        }
        Ok(flags)
    }

    /// Whether a receive takes messages of one source only. fi_msg(3): without KFI_DIRECTED_RECV
    /// the source address is ignored.
    fn is_directed(&self, op: &Receive) -> bool {
        op.peer != KFI_ADDR_UNSPEC && self.caps.contains(Caps::DIRECTED_RECV)
    }

    /// RECV and TRECV. Errors: see [`Poster::post`](super::super::post::Poster::post). With
    /// `EAGAIN`, `op` still has its memory. `spare`: see [`ticket`](Self::ticket). Sleeps.
    ///
    /// If this is a shared receive context, also fails with `EAGAIN` if its first endpoint is just
    /// being enabled, or its last one closed; `KFI_ENOAV` for a receive from one source while no
    /// endpoint uses it.
    pub(in crate::provider::ep) fn receive(
        &self,
        bound: &Bound,
        op: &mut Receive,
        spare: &mut Option<Record>,
    ) -> Result {
        let reporter = self.reporter();
        let bound = reporter.as_deref().unwrap_or(bound);
        let flags = self.check_receive(bound, op)?;
        let (kind, len) = (op.kind(), op.into.len() as u64);
        let src = if self.is_directed(op) {
            Some(bound.av()?.lookup(op.peer)?)
        } else {
            None
        };
        let tag = op.tag.unwrap_or_default();
        let want = Criteria {
            src,
            tag: tag.tag,
            ignore: tag.ignore,
        };
        op.into.charge_lists(&self.ident.budget)?;
        let ticket = if self.is_srx {
            self.pool_ticket(bound, kind, flags, op.context, len)?
        } else {
            self.ticket(bound, kind, flags, op.context, len, spare)?
        };
        if flags.contains(OpFlags::MULTI_RECV) {
            return self.receive_multi(bound, want, op, ticket, spare);
        }
        let single = Single {
            into: op.into.take(),
            ticket,
        };
        match self.receive_single(bound, kind.is_tagged(), flags, want, single) {
            Ok(()) => Ok(()),
            Err((error, single)) => {
                op.into = single.into;
                self.refuse(bound, single.ticket, spare);
                Err(error)
            }
        }
    }

    /// Posts a receive for one message, or searches. Returns a refused receive. Fails with `EAGAIN`
    /// if the queue is full, or `bound` does not report for the shared context any more;
    /// `KFI_ENOMSG` for a KFI_CLAIM without a claimed message. Sleeps.
    #[inline(always)]
    fn receive_single(
        &self,
        bound: &Bound,
        tagged: bool,
        flags: OpFlags,
        want: Criteria<SockAddr>,
        single: Single,
    ) -> core::result::Result<(), (Error, Single)> {
        let search = Search::of(flags);
        let receives = !flags.contains(OpFlags::PEEK);
        let mut single = single;
        loop {
            let searched = {
                let mut queues = self.rx.queues.lock();
                if self.is_srx && !queues.sharing.is_current(bound, self) {
                    return Err((EAGAIN, single));
                }
                let pair = queues.pair(tagged);
                match pair
                    .unexpected
                    .receive(search, &want, single.ticket.context)
                {
                    SearchResult::Post => {
                        match pair.posted.post(want, PostedReceive::Single(single)) {
                            Ok(()) => return Ok(()),
                            Err(full) => Err(full.0),
                        }
                    }
                    result => Ok((result, single)),
                }
            };
            let (result, receive) = match searched {
                Ok(found) => found,
                Err(PostedReceive::Single(single)) => return Err((EAGAIN, single)),
                // Unreachable: the receive that was posted is a single one.
                Err(PostedReceive::Multi(_)) => return Ok(()),
            };
            single = receive;
            match result {
                SearchResult::Post => {}
                SearchResult::Received(found, location) => {
                    let mut receive = Some(single);
                    self.deliver(bound, tagged, &found, location, |_| {
                        receive.take().map(MatchedReceive::Single)
                    });
                    match receive {
                        // The sender took the message back just before. Search again.
                        Some(again) => single = again,
                        None => return Ok(()),
                    }
                }
                SearchResult::Found(found) => {
                    self.complete_search(bound, single.into_ticket(), tagged, &found, receives);
                    return Ok(());
                }
                SearchResult::Discarded(found, location) => {
                    if self.discard(&found, location) {
                        self.complete_search(bound, single.into_ticket(), tagged, &found, receives);
                        return Ok(());
                    }
                }
                SearchResult::NoMessage => {
                    let outcome = Outcome::failed(Errno::ENOMSG);
                    self.complete_uncounted(bound, single.into_ticket(), outcome);
                    return Ok(());
                }
                SearchResult::NotClaimed => return Err((to_error(Errno::ENOMSG), single)),
            }
        }
    }

    /// Posts a multi-receive buffer. It takes the matching unexpected messages first.
    fn receive_multi(
        &self,
        bound: &Bound,
        want: Criteria<SockAddr>,
        op: &mut Receive,
        ticket: Ticket,
        spare: &mut Option<Record>,
    ) -> Result {
        let min = self.min_multi_recv.load(Relaxed);
        let buffer = match MultiBuffer::new(op.into.take(), op.addr, min, ticket) {
            Ok(buffer) => buffer,
            Err((e, ticket)) => {
                self.refuse(bound, ticket, spare);
                return Err(e);
            }
        };
        let mut used = false;
        loop {
            let (found, location) = {
                let mut queues = self.rx.queues.lock();
                let is_current = !self.is_srx || queues.sharing.is_current(bound, self);
                if used && !is_current {
                    // The last endpoint of the shared context has closed meanwhile.
                    drop(queues);
                    self.release_early(bound, &buffer);
                    return Ok(());
                }
                let pair = &mut queues.plain;
                if !used && (!is_current || pair.posted.is_full()) {
                    drop(queues);
                    if let Some((ticket, memory)) = buffer.take_back() {
                        op.into = memory;
                        self.refuse(bound, ticket, spare);
                    }
                    return Err(EAGAIN);
                }
                match pair.unexpected.receive(Search::Receive, &want, 0) {
                    SearchResult::Received(found, location) => (found, location),
                    _ => {
                        let posted = pair.posted.post(want, PostedReceive::Multi(buffer.clone()));
                        drop(queues);
                        if posted.is_err() {
                            // Other receives took the last slots while this buffer took messages.
                            self.release_early(bound, &buffer);
                        }
                        return Ok(());
                    }
                }
            };
            self.deliver(bound, false, &found, location, |message| {
                // The buffer is not visible to others yet and it is open, so it has a part.
                let (part, memory) = buffer.take(message.len)?;
                used = true;
                Some(MatchedReceive::Part(buffer.clone(), part, memory))
            });
            if buffer.is_closed() {
                return Ok(());
            }
            cond_resched();
        }
    }

    /// Releases a multi-receive buffer that has taken messages, so it cannot be refused any more,
    /// and cannot be posted. Sleeps.
    fn release_early(&self, bound: &Bound, buffer: &MultiBuffer) {
        if let Some(ticket) = buffer.cancel() {
            self.release(bound, ticket);
        }
    }

    /// Moves an unexpected message to the receive that `take` returns. Returns `false` without
    /// calling it if the sender has taken the message back, or the endpoint of a shared context is
    /// closing. Sleeps.
    pub(super) fn deliver(
        &self,
        bound: &Bound,
        tagged: bool,
        found: &UnexpectedMessage<SockAddr>,
        location: Location,
        take: impl FnOnce(&Message) -> Option<MatchedReceive>,
    ) -> bool {
        if self.is_srx {
            return self.deliver_at_target(tagged, found, location, take);
        }
        let message = Message::from_unexpected(tagged, found);
        match location {
            Location::Buffer(buffer) => {
                if let Some(matched) = take(&message) {
                    self.place(bound, matched, &message, &Source::Mem(buffer.copy));
                }
                self.release_buffer(found.charged, buffer.answer);
                true
            }
            Location::Sender(send, _) => send.deliver(|from| {
                if let Some(matched) = take(&message) {
                    self.place(bound, matched, &message, from);
                }
            }),
            Location::RemoteSender(answer, _) => {
                if let Some(matched) = take(&message) {
                    self.fill(bound, matched, message, answer).give();
                }
                true
            }
        }
    }

    /// Returns the charge of a buffered message that was received or discarded, and answers its
    /// sender. Sleeps.
    fn release_buffer(&self, charged: u64, answer: Option<PendingAnswer>) {
        self.uncharge_bytes(charged);
        if let Some(answer) = answer {
            answer.finish().give();
        }
    }

    /// Discards a message. Returns `false` if its sender has taken it back. Sleeps.
    fn discard(&self, found: &UnexpectedMessage<SockAddr>, location: Location) -> bool {
        match location {
            Location::Buffer(buffer) => {
                drop(buffer.copy);
                self.release_buffer(found.charged, buffer.answer);
                true
            }
            Location::Sender(send, _) => send.deliver(|_| ()),
            Location::RemoteSender(answer, _) => {
                answer.finish().give();
                true
            }
        }
    }

    /// Completes a search that found a message. A search with KFI_CLAIM receives the message,
    /// also if it discards it, and is counted. A search that only looks is not. Does not sleep.
    fn complete_search(
        &self,
        bound: &Bound,
        ticket: Ticket,
        tagged: bool,
        found: &UnexpectedMessage<SockAddr>,
        receives: bool,
    ) {
        let message = Message::from_unexpected(tagged, found);
        let fit = Placement::new(found.len, found.len);
        let outcome = self.outcome(bound, &message, fit, 0);
        if receives {
            self.complete(bound, ticket, outcome);
        } else {
            self.complete_uncounted(bound, ticket, outcome);
        }
    }

    /// Cancels the oldest receive with `context`. Returns `false` if there is none. Sleeps.
    pub(in crate::provider::ep) fn cancel_receive(&self, bound: &Bound, context: u64) -> bool {
        let wanted = |waiting: &PostedReceive| waiting.context() == context;
        let (cancelled, reporter) = {
            let mut queues = self.rx.queues.lock();
            let cancelled = queues.in_either(|pair| pair.posted.cancel(wanted));
            (cancelled, queues.sharing.reporter())
        };
        let bound = reporter.as_deref().unwrap_or(bound);
        match cancelled.map(|taken| taken.token) {
            None => false,
            Some(PostedReceive::Single(single)) => {
                let outcome = Outcome::failed(Errno::ECANCELED);
                self.complete(bound, single.into_ticket(), outcome);
                true
            }
            Some(PostedReceive::Multi(buffer)) => {
                // If parts are being filled, the last of them releases the buffer.
                if let Some(ticket) = buffer.cancel() {
                    self.complete(bound, ticket, cancelled_buffer());
                }
                true
            }
        }
    }

    /// Cancels all posted receives because the connection is over. Sleeps.
    pub(in crate::provider::ep) fn cancel_receives(&self, bound: &Bound) {
        loop {
            let posted = self.rx.queues.lock().plain.posted.drain();
            match posted.map(|taken| taken.token) {
                None => return,
                Some(PostedReceive::Single(single)) => {
                    let outcome = Outcome::failed_with(Errno::ECANCELED, FLUSHED);
                    self.complete(bound, single.into_ticket(), outcome);
                }
                Some(PostedReceive::Multi(buffer)) => {
                    if let Some(ticket) = buffer.cancel() {
                        self.complete(bound, ticket, cancelled_buffer());
                    }
                }
            }
            cond_resched();
        }
    }

    /// For teardown: drops all its posted receives without completions. No posting call is inside.
    /// A receive that a peer has taken is completed by the peer. Sleeps.
    pub(in crate::provider::ep) fn drop_receives(&self, bound: &Bound) {
        loop {
            let posted = {
                let mut queues = self.rx.queues.lock();
                queues.in_either(|pair| pair.posted.drain())
            };
            let ticket = match posted.map(|taken| taken.token) {
                None => return,
                Some(PostedReceive::Single(single)) => Some(single.ticket),
                Some(PostedReceive::Multi(buffer)) => buffer.cancel(),
            };
            if let Some(ticket) = ticket {
                self.give_back(bound, ticket);
            }
            cond_resched();
        }
    }

    /// Drops the unexpected messages, during or after teardown. The sends that wait at their
    /// senders on this host fail. Sleeps.
    pub(in crate::provider::ep) fn fail_unexpected(&self) {
        loop {
            let message = {
                let mut queues = self.rx_side().queues.lock();
                let message = match self.srx.as_ref() {
                    None => queues.in_either(|pair| pair.unexpected.drain()),
                    // Those of the other endpoints stay.
                    Some(_) => queues.in_either(|pair| {
                        let is_mine = |location: &Location| self.is_target_of(location);
                        pair.unexpected.withdraw(is_mine)
                    }),
                };
                if let Some((message, _)) = &message {
                    queues.plain.unexpected.uncharge(message.charged);
                }
                message
            };
            match message {
                None => return,
                Some((_, location)) => location.fail(),
            }
            cond_resched();
        }
    }
}
