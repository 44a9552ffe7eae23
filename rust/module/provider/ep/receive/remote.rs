// SPDX-License-Identifier: GPL-2.0

//! Messages from other hosts.
//!
//! Such a message arrives packet by packet. Its destination ([`ArrivalTarget`]) is determined with
//! the first packet:
//!
//! ```text
//!  arrival_target() --+-- a posted receive ---------------> arrived(): completed, or read first
//!                     +-- a slot for an unexpected -------> arrived(): placed in a receive that was
//!                     |   message, and a buffer unless      posted meanwhile, or added to the
//!                     |   the message is long               unexpected messages
//!                     '-- None: the sender has to wait (RNR NAK)
//! ```
//!
//! Tagged RMA has no bytes in its SEND. It takes a posted receive
//! ([`rma_target`](Endpoint::rma_target)) or has no destination. Then `arrived` answers: the
//! receive is filled, or its bytes are sent, or the peer learns that there is none.
//!
//! If the connection fails before the message has arrived, [`not_arrived`](Endpoint::not_arrived)
//! is called instead of `arrived`.

use kfi_core::{
    op::TaggedRma,
    rdm::{
        header::FinStatus,
        inbound::CancelState,
        session::Conn, //
    }, //
};

use super::{
    super::{
        multi_recv::End,
        prelude::*,
        rdm::remote::{
            op::{
                PendingAnswer,
                Reply, //
            },
            session::Session, //
        }, //
    },
    place::cancelled_buffer,
    share::{
        Holding,
        KeptShare, //
    },
    Buffered,
    Location,
    MatchedReceive, //
};

/// The destination of a message that is arriving.
pub(in crate::provider::ep) enum ArrivalTarget {
    /// A receive.
    Matched(MatchedReceive),
    /// A buffer. A slot for an unexpected message is reserved.
    Buffer(Buffered),
    /// The message stays with its sender. A slot for an unexpected message is reserved.
    Away(MemRef, Holding),
    /// No receive matches tagged RMA.
    Nowhere(MemRef),
}

impl ArrivalTarget {
    /// The destination of the bytes.
    pub(in crate::provider::ep) fn memory(&self) -> &MemRef {
        match self {
            Self::Matched(matched) => matched.memory(),
            Self::Buffer(buffer) => &buffer.copy,
            Self::Away(none, _) | Self::Nowhere(none) => none,
        }
    }
}

impl Endpoint {
    /// Finds the destination of a message. `here`: its bytes come with it. `share` is that of its
    /// sender. `None`: there is no room now, or the endpoint is closing. Sleeps.
    pub(in crate::provider::ep) fn arrival_target(
        self: &Arc<Self>,
        message: &Message,
        here: bool,
        share: &KeptShare,
    ) -> Option<ArrivalTarget> {
        let _inside = self.drain.enter()?;
        let holding = {
            let mut queues = self.rx_side().queues.lock();
            let pair = queues.pair(message.tagged);
            if let Some(matched) = pair.take_match(message) {
                return Some(ArrivalTarget::Matched(matched));
            }
            let bytes = if here { message.len } else { 0 };
            let holding = queues.hold(share, &self.ident.budget, message.tagged, bytes)?;
            let pair = queues.pair(message.tagged);
            pair.reserved = pair.reserved.saturating_add(1);
            holding
        };
        if !here {
            return Some(ArrivalTarget::Away(MemRef::empty(), holding));
        }
        let buffer = self.empty_buffer(message.len, holding);
        if buffer.is_none() {
            self.release_slot(message.tagged, message.len);
        }
        buffer.map(ArrivalTarget::Buffer)
    }

    /// Finds the receive of tagged RMA. `None`: the endpoint is closing. Sleeps.
    pub(in crate::provider::ep) fn rma_target(
        &self,
        message: &Message,
        rma: TaggedRma,
    ) -> Option<ArrivalTarget> {
        let _inside = self.drain.enter()?;
        Some(match self.take_for_rma(message, rma) {
            Some(matched) => ArrivalTarget::Matched(matched),
            None => ArrivalTarget::Nowhere(MemRef::empty()),
        })
    }

    fn empty_buffer(self: &Arc<Self>, len: u64, holding: Holding) -> Option<Buffered> {
        let memory = self.ident.budget.take(MemRef::kept_bytes(len)).ok()?;
        Some(Buffered {
            // The current task is a worker or the sender. The owner's memory cgroup is charged.
            copy: self
                .ident
                .owner
                .charge(|| MemRef::to_be_kept(len as usize))
                .ok()?,
            _memory: memory,
            answer: None,
            target: self.srx.as_ref().map(|_| self.clone()),
            holding: Some(holding),
        })
    }

    /// Returns the slot that was reserved for a message, and its charge.
    fn release_slot(&self, tagged: bool, charged: u64) {
        let mut queues = self.rx_side().queues.lock();
        let pair = queues.pair(tagged);
        pair.reserved = pair.reserved.saturating_sub(1);
        queues.plain.unexpected.uncharge(charged);
    }

    /// Handles a message that has arrived completely. Returns the reply to its sender, if it gets
    /// one now. Sleeps.
    pub(in crate::provider::ep) fn arrived(
        &self,
        bound: &Bound,
        arrival_target: ArrivalTarget,
        message: Message,
        answer: Option<PendingAnswer>,
    ) -> Option<Reply> {
        let location = match arrival_target {
            ArrivalTarget::Matched(matched) => {
                return self.finish_arrival(bound, matched, message, answer)
            }
            ArrivalTarget::Buffer(buffer) => Location::Buffer(Buffered { answer, ..buffer }),
            // A message that stays with its sender always has an answer.
            ArrivalTarget::Away(_, holding) => Location::RemoteSender(answer?, holding),
            ArrivalTarget::Nowhere(_) => {
                return answer.map(|answer| answer.finish_with(FinStatus::NoReceive));
            }
        };
        let (matched, location) = {
            let mut queues = self.rx_side().queues.lock();
            let pair = queues.pair(message.tagged);
            pair.reserved = pair.reserved.saturating_sub(1);
            // A receive may have been posted meanwhile.
            match pair.take_match(&message) {
                Some(matched) => (matched, location),
                None => {
                    let unexpected = message.as_unexpected(&location);
                    let kept = pair.unexpected.arrive(unexpected, location);
                    drop(queues);
                    // There is room, because a slot was reserved.
                    drop(kept);
                    return None;
                }
            }
        };
        match location {
            Location::Buffer(buffer) => {
                self.place(bound, matched, &message, &Source::Mem(buffer.copy));
                self.uncharge_bytes(message.len);
                buffer.answer.map(PendingAnswer::finish)
            }
            Location::RemoteSender(answer, _) => Some(self.fill(bound, matched, message, answer)),
            Location::Sender(..) => None,
        }
    }

    /// Handles the end of a message that was matched with its first packet.
    fn finish_arrival(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: Message,
        answer: Option<PendingAnswer>,
    ) -> Option<Reply> {
        match answer {
            Some(answer) if answer.is_away() => Some(self.fill(bound, matched, message, answer)),
            Some(answer) if message.rma.is_some() => Some(answer.serve(matched, message)),
            answer => {
                self.finish(bound, matched, &message);
                answer.map(PendingAnswer::finish)
            }
        }
    }

    /// Begins to fill a receive with a message that is with its sender. Returns the reply to the
    /// sender. Sleeps.
    pub(super) fn fill(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: Message,
        answer: PendingAnswer,
    ) -> Reply {
        let fit = matched.fit(message.len);
        if fit.len == 0 {
            self.finish(bound, matched, &message);
            return match message.rma {
                Some(_) if fit.olen > 0 => answer.finish_with(FinStatus::Truncated),
                _ => answer.finish(),
            };
        }
        answer.fill(matched, message)
    }

    /// Handles the failure of a message that was arriving. Sleeps.
    pub(in crate::provider::ep) fn not_arrived(
        &self,
        bound: &Bound,
        arrival_target: ArrivalTarget,
        message: &Message,
        error: Errno,
    ) {
        match arrival_target {
            ArrivalTarget::Matched(matched) if self.drain.is_open() => {
                self.fail_receive(bound, matched, message, error);
            }
            ArrivalTarget::Matched(matched) => self.drop_receive(bound, matched),
            ArrivalTarget::Buffer(buffer) => {
                drop(buffer);
                self.release_slot(message.tagged, message.len);
            }
            ArrivalTarget::Away(..) => self.release_slot(message.tagged, 0),
            ArrivalTarget::Nowhere(_) => {}
        }
    }

    /// Completes a receive whose bytes have been placed. Sleeps.
    pub(in crate::provider::ep) fn finish(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: &Message,
    ) {
        self.place_by(bound, matched, message, |_| ());
    }

    /// Completes a receive with an error. Sleeps.
    pub(in crate::provider::ep) fn fail_receive(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: &Message,
        error: Errno,
    ) {
        let mut outcome = Outcome::failed(error);
        outcome.flags = message.comp_flags();
        outcome.tag = message.envelope.tag;
        outcome.src = self.source(bound, &message.envelope.src);
        match matched {
            MatchedReceive::Single(single) => self.complete(bound, single.into_ticket(), outcome),
            MatchedReceive::Part(buffer, part, memory) => {
                drop(memory);
                outcome.buf = buffer.address(part.offset);
                self.complete_multi(bound, &buffer, outcome);
            }
        }
    }

    /// For teardown: drops a receive without a completion. A receive of a shared receive context
    /// fails, because that does not close. Sleeps.
    pub(in crate::provider::ep) fn drop_receive(&self, bound: &Bound, matched: MatchedReceive) {
        match matched {
            MatchedReceive::Single(single) => self.give_back(bound, single.into_ticket()),
            MatchedReceive::Part(buffer, _, memory) => {
                drop(memory);
                buffer.finish(|end| match end {
                    End::Part => {}
                    End::Last(ticket) | End::LastOfCancelled(ticket) => match self.srx.as_ref() {
                        None => self.give_back(bound, ticket),
                        Some(_) => self.complete(bound, ticket, cancelled_buffer()),
                    },
                });
            }
        }
    }

    /// Handles a CANCEL of message `id`, which came over `conn`. `found` is the state of the
    /// message on the connection. Returns the reply, unless the message has been matched: then it
    /// has been answered, or will be. Sleeps.
    pub(in crate::provider::ep) fn withdraw(
        &self,
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        found: CancelState,
        answer: PendingAnswer,
    ) -> Option<Reply> {
        match found {
            CancelState::Never => return Some(answer.withdraw()),
            CancelState::Received => return Some(answer.finish()),
            CancelState::Taken => {}
        }
        let location = self.take_unexpected(|other| other.is_of(session, conn, Some(id)))?;
        drop(location);
        Some(answer.withdraw())
    }

    /// Drops the messages that are still with a peer whose connection has gone. Sleeps.
    pub(in crate::provider::ep) fn forget_messages(&self, session: &Arc<Session>, conn: Conn) {
        while let Some(location) =
            self.take_unexpected(|answer| answer.is_away() && answer.is_of(session, conn, None))
        {
            drop(location);
        }
    }

    /// Removes the oldest unexpected message whose answer `wanted` accepts, and returns its charge.
    fn take_unexpected(&self, wanted: impl Fn(&PendingAnswer) -> bool) -> Option<Location> {
        let is_it = |location: &Location| match location {
            Location::Buffer(buffer) => buffer.answer.as_ref().is_some_and(&wanted),
            Location::RemoteSender(answer, _) => wanted(answer),
            Location::Sender(..) => false,
        };
        let mut queues = self.rx_side().queues.lock();
        let (unexpected, location) = queues.in_either(|pair| pair.unexpected.withdraw(is_it))?;
        queues.plain.unexpected.uncharge(unexpected.charged);
        Some(location)
    }
}
