// SPDX-License-Identifier: GPL-2.0

//! Messages from other hosts.
//!
//! Such a message arrives packet by packet. Its destination ([`ArrivalTarget`]) is determined with the
//! first packet:
//!
//! ```text
//!  berth() --+-- a posted receive ----------------> arrived(): completed, or read first
//!            +-- a place among the unexpected ----> arrived(): placed in a receive that was
//!            |   messages, and a buffer unless      posted meanwhile, or added to the
//!            |   the message is long                unexpected messages
//!            '-- None: the sender has to wait (RNR NAK)
//! ```
//!
//! If the connection fails before the message has arrived, [`not_arrived`](Endpoint::not_arrived)
//! is called instead of `arrived`.

use kernel::sync::Arc;

use kfi_core::{
    errno::Errno,
    matching::unexpected::Message as Known,
    rdm::{
        inbound::CancelState,
        session::Conn, //
    }, //
};

use super::{
    super::{
        bound::Bound,
        complete::Outcome,
        multi_recv::End,
        rdm::remote::{
            op::{
                PendingAnswer,
                Reply, //
            },
            session::Session, //
        },
        Endpoint, //
    },
    Buffered,
    Held,
    MatchedReceive,
    Message, //
};
use crate::mem::MemRef;

/// The destination of a message that is arriving.
pub(in crate::provider::ep) enum ArrivalTarget {
    /// A receive.
    Matched(MatchedReceive),
    /// A buffer. A place among the unexpected messages is reserved.
    Buffer(Buffered),
    /// The message stays with its sender. A place among the unexpected messages is reserved.
    Away(MemRef),
}

impl ArrivalTarget {
    /// The destination of the bytes.
    pub(in crate::provider::ep) fn memory(&self) -> &MemRef {
        match self {
            Self::Matched(place) => place.memory(),
            Self::Buffer(buffer) => &buffer.copy,
            Self::Away(none) => none,
        }
    }
}

impl Endpoint {
    /// Finds the destination of a message. `here`: its bytes come with it. `None`: there is no room
    /// now, or the endpoint is closing. Sleeps.
    pub(in crate::provider::ep) fn arrival_target(
        &self,
        message: &Message,
        here: bool,
    ) -> Option<ArrivalTarget> {
        let _inside = self.run.enter()?;
        {
            let mut queues = self.rx.queues.lock();
            let pair = queues.pair(message.tagged);
            if let Some(place) = pair.take_place(message) {
                return Some(ArrivalTarget::Matched(place));
            }
            if pair.is_full() {
                return None;
            }
            if here {
                queues.plain.unexpected.charge(message.len).ok()?;
            }
            let pair = queues.pair(message.tagged);
            pair.reserved = pair.reserved.saturating_add(1);
        }
        if !here {
            return Some(ArrivalTarget::Away(MemRef::empty()));
        }
        let buffer = self.empty_buffer(message.len);
        if buffer.is_none() {
            self.give_up_place(message.tagged, message.len);
        }
        buffer.map(ArrivalTarget::Buffer)
    }

    fn empty_buffer(&self, len: u64) -> Option<Buffered> {
        let memory = self.ident.budget.take(len).ok()?;
        Some(Buffered {
            // The current task is a worker or the sender. The owner's memory cgroup is charged.
            copy: self
                .ident
                .owner
                .memcg()
                .charge(|| MemRef::to_be_filled(len as usize, true))
                .ok()?,
            _memory: memory,
            owed: None,
        })
    }

    /// Returns the place that was reserved for a message, and its charge.
    fn give_up_place(&self, tagged: bool, charged: u64) {
        let mut queues = self.rx.queues.lock();
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
        owed: Option<PendingAnswer>,
    ) -> Option<Reply> {
        let (held, charged) = match arrival_target {
            ArrivalTarget::Matched(place) => return self.land(bound, place, message, owed),
            ArrivalTarget::Buffer(buffer) => {
                let buffer = Buffered { owed, ..buffer };
                (Held::Here(buffer), message.len)
            }
            // A message that stays with its sender always has an answer.
            ArrivalTarget::Away(_) => (Held::Remote(owed?), 0),
        };
        let (place, held) = {
            let mut queues = self.rx.queues.lock();
            let pair = queues.pair(message.tagged);
            pair.reserved = pair.reserved.saturating_sub(1);
            // A receive may have been posted meanwhile.
            match pair.take_place(&message) {
                Some(place) => (place, held),
                None => {
                    let known = Known {
                        envelope: message.envelope,
                        len: message.len,
                        data: message.data,
                        charged,
                    };
                    let kept = pair.unexpected.arrive(known, held);
                    drop(queues);
                    // There is room, because a place was reserved.
                    drop(kept);
                    return None;
                }
            }
        };
        match held {
            Held::Here(buffer) => {
                let Buffered {
                    copy,
                    _memory,
                    owed,
                } = buffer;
                self.place(bound, place, &message, &crate::mem::Source::Mem(copy));
                self.uncharge_bytes(charged);
                owed.map(PendingAnswer::finish)
            }
            Held::Remote(owed) => Some(self.fill(bound, place, message, owed)),
            Held::There(_) => None,
        }
    }

    /// Handles the end of a message that was matched with its first packet.
    fn land(
        &self,
        bound: &Bound,
        place: MatchedReceive,
        message: Message,
        owed: Option<PendingAnswer>,
    ) -> Option<Reply> {
        match owed {
            Some(owed) if owed.is_away() => Some(self.fill(bound, place, message, owed)),
            owed => {
                self.finish(bound, place, &message);
                owed.map(PendingAnswer::finish)
            }
        }
    }

    /// Begins to fill a receive with a message that is with its sender. Returns the reply to the
    /// sender. Sleeps.
    pub(super) fn fill(
        &self,
        bound: &Bound,
        place: MatchedReceive,
        message: Message,
        owed: PendingAnswer,
    ) -> Reply {
        if place.fit(message.len).len == 0 {
            self.finish(bound, place, &message);
            return owed.finish();
        }
        owed.fill(place, message)
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
            ArrivalTarget::Matched(place) if self.run.is_open() => {
                self.fail_place(bound, place, message, error);
            }
            ArrivalTarget::Matched(place) => self.drop_place(bound, place),
            ArrivalTarget::Buffer(buffer) => {
                drop(buffer);
                self.give_up_place(message.tagged, message.len);
            }
            ArrivalTarget::Away(_) => self.give_up_place(message.tagged, 0),
        }
    }

    /// Completes a receive whose bytes have been placed. Sleeps.
    pub(in crate::provider::ep) fn finish(
        &self,
        bound: &Bound,
        place: MatchedReceive,
        message: &Message,
    ) {
        self.place_by(bound, place, message, |_| ());
    }

    /// Completes a receive with an error. Sleeps.
    pub(in crate::provider::ep) fn fail_place(
        &self,
        bound: &Bound,
        place: MatchedReceive,
        message: &Message,
        error: Errno,
    ) {
        let mut outcome = Outcome::failed(error);
        outcome.tag = message.envelope.tag;
        outcome.src = self.source(bound, &message.envelope.src);
        match place {
            MatchedReceive::Single(single) => self.complete(bound, single.into_ticket(), outcome),
            MatchedReceive::Part(buffer, part, memory) => {
                drop(memory);
                outcome.buf = buffer.address(part.offset);
                self.complete_multi(bound, &buffer, outcome);
            }
        }
    }

    /// For teardown: drops a receive without a completion. Sleeps.
    pub(in crate::provider::ep) fn drop_place(&self, bound: &Bound, place: MatchedReceive) {
        match place {
            MatchedReceive::Single(single) => self.give_back(bound, single.into_ticket()),
            MatchedReceive::Part(buffer, _, memory) => {
                drop(memory);
                buffer.finish(|end| match end {
                    End::Part => {}
                    End::Last(ticket) | End::LastOfCancelled(ticket) => {
                        self.give_back(bound, ticket);
                    }
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
        owed: PendingAnswer,
    ) -> Option<Reply> {
        match found {
            CancelState::Never => return Some(owed.withdraw()),
            CancelState::Received => return Some(owed.finish()),
            CancelState::Taken => {}
        }
        let held = self.take_held(|other| other.is_of(session, conn, Some(id)))?;
        drop(held);
        Some(owed.withdraw())
    }

    /// Drops the messages that are still with a peer whose connection has gone. Sleeps.
    pub(in crate::provider::ep) fn forget_messages(&self, session: &Arc<Session>, conn: Conn) {
        while let Some(held) =
            self.take_held(|owed| owed.is_away() && owed.is_of(session, conn, None))
        {
            drop(held);
        }
    }

    /// Removes the oldest unexpected message whose answer `wanted` accepts, and returns its charge.
    fn take_held(&self, wanted: impl Fn(&PendingAnswer) -> bool) -> Option<Held> {
        let is_it = |held: &Held| match held {
            Held::Here(buffer) => buffer.owed.as_ref().is_some_and(&wanted),
            Held::Remote(owed) => wanted(owed),
            Held::There(_) => false,
        };
        let mut queues = self.rx.queues.lock();
        let (known, held) = match queues.plain.unexpected.withdraw(is_it) {
            None => queues.tagged.unexpected.withdraw(is_it)?,
            Some(found) => found,
        };
        queues.plain.unexpected.uncharge(known.charged);
        Some(held)
    }
}
