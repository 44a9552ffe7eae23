// SPDX-License-Identifier: GPL-2.0
//! The receiving side of one connection: which messages are taken, and the other SENDs of the peer.
//!
//! An [`Inbound`] lies between the responder of a QP and the endpoint. For each SEND the caller
//! calls:
//!
//! ```text
//!  begin    with the first bytes: a message to be matched, tagged RMA, an atomic, the result of a
//!           tagged read or an atomic, a SEND to be ignored, or another header
//!  take     the endpoint has room for the message (otherwise the peer must wait, as if the SEND
//!           had not arrived)
//!  payload  for each packet: the place of its bytes in the message
//!  end      after the last packet: the message is complete, or the event of the header is returned
//!  abort    in place of end, if the connection fails
//! ```
//!
//! # Messages are taken once and in order
//!
//! The connection delivers SENDs in order and once. But a message for which the endpoint has no
//! room would block everything that its sender sends behind it. The sender may therefore make this
//! message and all messages behind it **void**, and send them again later, in order and with the
//! same numbers. A packet of the original that was on its way may arrive before the void message;
//! the message is then taken although its sender does not know that. Therefore a message is taken
//! only if
//!
//! - its number is larger than those of all messages that were taken, and
//! - the message after which its sender wants it to come, or a later one, was taken.
//!
//! A message can consist of both void and other packets; the first one decides.
//!
//! The same holds for atomics, which are numbered with the messages and refer to each other. So
//! each is executed once, and in order. Messages do not wait for atomics here, nor atomics for
//! messages; the sender keeps the order where one is required.
//!
//! # Answers
//!
//! A message whose sender wants a FIN, an atomic that returns values, and a CANCEL are answered. An
//! answer uses memory until the peer has acknowledged it, and a peer that acknowledges nothing
//! could cause any number of answers. [`Inbound::begin`] therefore refuses a SEND that would need
//! more than [`ANSWERS`]; the peer has to wait.
//!
//! Context: any, under the lock of the QP's responder.

use super::{
    atomic::Call,
    header::{
        FinStatus,
        Header,
        Malformed,
        Message,
        RemoteAddr, //
    },
    times::{
        ANSWERS,
        CANCELS_MAX, //
    },
};
use crate::op::TaggedRma;
use core::ops::Range;

/// The result of the first bytes of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A message to be matched. If there is room for it, the caller calls [`Inbound::take`];
    /// otherwise the peer must wait.
    Message(Message, Source),
    /// The old values of an atomic of this side, or the bytes of a tagged read. The caller knows
    /// the operation and where they go; otherwise the peer violates the protocol.
    Result {
        /// The number of the operation.
        id: u64,
        /// The length of the values or bytes.
        len: u32,
    },
    /// The peer must wait: the endpoint takes no more messages, or the SEND would need an answer
    /// beyond the limit.
    NotReady,
    /// A SEND to be ignored, or whose event is returned at its end.
    Other,
}

/// The location of the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The bytes are in this SEND.
    Eager,
    /// The sender has the bytes; they are read from this memory.
    Rts(RemoteAddr),
    /// The message is a tagged write, at this offset of the memory of a posted receive. The sender
    /// has the bytes; they are read from this memory.
    TaggedWrite(RemoteAddr, u32),
    /// The message is a tagged read, at this offset of the memory of a posted receive.
    TaggedRead(u32),
    /// The message is an atomic. Its payload is in this SEND.
    Atomic(Call),
}

impl Source {
    /// Returns the memory of the sender from which the bytes are read.
    pub const fn at(&self) -> Option<RemoteAddr> {
        match *self {
            Self::Rts(at) | Self::TaggedWrite(at, _) => Some(at),
            Self::Eager | Self::TaggedRead(_) | Self::Atomic(_) => None,
        }
    }

    /// Returns the access of tagged RMA.
    pub const fn tagged_rma(&self) -> Option<TaggedRma> {
        let (read, offset) = match *self {
            Self::TaggedWrite(_, offset) => (false, offset),
            Self::TaggedRead(offset) => (true, offset),
            Self::Eager | Self::Rts(_) | Self::Atomic(_) => return None,
        };
        Some(TaggedRma { read, offset })
    }
}

/// An event that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end of a message that this side sent.
    Fin {
        /// The number of the message.
        id: u64,
        /// The status.
        status: FinStatus,
    },
    /// The peer wants to withdraw a message.
    Cancel {
        /// The number of the message.
        id: u64,
        /// The state of the message here.
        found: CancelState,
    },
    /// CQ data of a WRITE that was executed.
    Note {
        /// The number of bytes written.
        len: u32,
        /// The data.
        data: u64,
    },
    /// The peer wants to end the connection.
    Retire,
    /// The peer agrees to end the connection.
    Retired,
    /// The peer refuses to end the connection.
    Keep,
    /// The peer's endpoint closes; it has taken all messages up to `last`.
    Bye {
        /// The number of the last message that was taken.
        last: u64,
    },
    /// The old values of an atomic of this side, or the bytes of a tagged read, have come.
    Result {
        /// The number of the operation.
        id: u64,
        /// The length of the values or bytes.
        len: u32,
    },
}

/// The state of a message that its sender wants to withdraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelState {
    /// The message was not taken, and will not be sent again.
    Never,
    /// The message was received, and needs no FIN.
    Received,
    /// The message was taken. It waits here, or its FIN is or will be sent.
    Taken,
}

/// The result of the last bytes of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The message that was taken is complete.
    Message,
    /// The event is to be handled.
    Event(Event),
    /// There is nothing to do.
    Nothing,
}

/// The SEND that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    None,
    /// A message that has not been taken yet.
    Offered(Header),
    /// A message that was taken.
    Taken(Header),
    /// The result of an atomic or a tagged read.
    Result(Header),
    /// An ignored message, or another header.
    Other(Header),
}

/// The outstanding answers to the peer when a SEND begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutstandingAnswers {
    /// The number of messages and CANCELs that are to be answered, or whose FIN was not
    /// acknowledged.
    pub total: u32,
    /// An upper bound of those that wait for a receive. They have a limit of their own.
    pub waiting: u32,
}

impl OutstandingAnswers {
    /// Returns whether fewer than [`ANSWERS`] plus `extra` answers are outstanding.
    const fn has_room(&self, extra: u32) -> bool {
        self.total < ANSWERS.saturating_add(self.waiting).saturating_add(extra)
    }
}

/// The receiving side of one connection.
///
/// # Invariants
///
/// `complete <= taken`.
#[derive(Debug)]
pub struct Inbound {
    /// The number of the last atomic taken.
    atomics: u64,
    /// The number of the last message taken.
    taken: u64,
    /// The number of the last message taken that is complete.
    complete: u64,
    shut: bool,
    current: Current,
}

impl Default for Inbound {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbound {
    /// Returns the initial state.
    pub const fn new() -> Self {
        // INVARIANT: Messages are numbered from 1.
        Self {
            atomics: 0,
            taken: 0,
            complete: 0,
            shut: false,
            current: Current::None,
        }
    }

    /// Refuses further messages, because the endpoint closes. Returns the number of the last
    /// complete message.
    pub fn shut(&mut self) -> u64 {
        self.shut = true;
        self.complete
    }

    /// Begins a SEND. `bytes` are those of its first packet; `answers` are the outstanding answers
    /// to the peer.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the peer violates the protocol; the caller fails the connection.
    pub fn begin(&mut self, bytes: &[u8], answers: OutstandingAnswers) -> Result<Begin, Malformed> {
        let header = Header::parse(bytes)?;
        let (message, source) = match header {
            Header::Eager(message) => (message, Source::Eager),
            Header::Rts(message, place) => (message, Source::Rts(place)),
            Header::TaggedWrite(message, place, offset) => {
                (message, Source::TaggedWrite(place, offset))
            }
            Header::TaggedRead(message, offset) => (message, Source::TaggedRead(offset)),
            Header::Atomic(message, call) => (message, Source::Atomic(call)),
            Header::Result { id, len } => {
                self.current = Current::Result(header);
                return Ok(Begin::Result { id, len });
            }
            Header::Cancel { .. } if !answers.has_room(CANCELS_MAX) => return Ok(Begin::NotReady),
            _ => {
                self.current = Current::Other(header);
                return Ok(Begin::Other);
            }
        };
        let last = match source {
            Source::Atomic(_) => self.atomics,
            _ => self.taken,
        };
        let is_next = message.after <= last && last < message.id;
        if message.void || !is_next {
            self.current = Current::Other(header);
            return Ok(Begin::Other);
        }
        if self.shut || (message.finish && !answers.has_room(0)) {
            return Ok(Begin::NotReady);
        }
        self.current = Current::Offered(header);
        Ok(Begin::Message(message, source))
    }

    /// Records that there is room for the message that [`Self::begin`] returned.
    pub fn take(&mut self) {
        let Current::Offered(header) = self.current else {
            return;
        };
        match header {
            Header::Eager(message)
            | Header::Rts(message, _)
            | Header::TaggedWrite(message, ..)
            | Header::TaggedRead(message, _) => {
                // INVARIANT: The number is larger than those of all messages taken.
                self.taken = message.id;
            }
            Header::Atomic(message, _) => self.atomics = message.id,
            _ => {}
        }
        self.current = Current::Taken(header);
    }

    /// Returns which of the `len` bytes at `offset` of the SEND belong to the message that was
    /// taken, or to a result, and their offset in it; `None` if there are none.
    ///
    /// # Errors
    ///
    /// [`Malformed::Length`]: there are more bytes than the header says.
    pub fn payload(&self, offset: u32, len: u32) -> Result<Option<(Range<usize>, u32)>, Malformed> {
        let (header, wanted) = match self.current {
            Current::Taken(header) | Current::Result(header) => (header, true),
            Current::Other(header) => (header, false),
            Current::None | Current::Offered(_) => return Ok(None),
        };
        // The header is short, and a message has at most 2^30 bytes, so the sum does not overflow.
        let head = header.len() as u32;
        let end = offset.checked_add(len).ok_or(Malformed::Length)?;
        if end > head.saturating_add(header.payload()) {
            return Err(Malformed::Length);
        }
        let skip = head.saturating_sub(offset).min(len);
        if !wanted || skip == len {
            return Ok(None);
        }
        let at = offset.wrapping_add(skip).wrapping_sub(head);
        Ok(Some((skip as usize..len as usize, at)))
    }

    /// Ends the SEND after `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed::Length`]: the length differs from that in the header.
    pub fn end(&mut self, len: u32) -> Result<End, Malformed> {
        let current = core::mem::replace(&mut self.current, Current::None);
        let (header, taken) = match current {
            Current::Taken(header) => (header, true),
            Current::Result(header) | Current::Other(header) => (header, false),
            Current::None | Current::Offered(_) => return Ok(End::Nothing),
        };
        if len != (header.len() as u32).saturating_add(header.payload()) {
            return Err(Malformed::Length);
        }
        if taken {
            if !matches!(header, Header::Atomic(..)) {
                // INVARIANT: Both numbers are equal.
                self.complete = self.taken;
            }
            return Ok(End::Message);
        }
        Ok(match self.event(header) {
            Some(event) => End::Event(event),
            None => End::Nothing,
        })
    }

    /// Ends the present SEND without completing it. No other SEND will follow.
    pub fn abort(&mut self) {
        self.current = Current::None;
    }

    fn event(&self, header: Header) -> Option<Event> {
        Some(match header {
            Header::Eager(_)
            | Header::Rts(..)
            | Header::TaggedWrite(..)
            | Header::TaggedRead(..)
            | Header::Atomic(..)
            | Header::Ping => return None,
            Header::Fin { id, status } => Event::Fin { id, status },
            Header::Cancel { id, finish } => {
                let found = if id > self.taken {
                    CancelState::Never
                } else if finish {
                    CancelState::Taken
                } else {
                    CancelState::Received
                };
                Event::Cancel { id, found }
            }
            Header::Note { len, data } => Event::Note { len, data },
            Header::Retire => Event::Retire,
            Header::Retired => Event::Retired,
            Header::Keep => Event::Keep,
            Header::Bye { last } => Event::Bye { last },
            Header::Result { id, len } => Event::Result { id, len },
        })
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
