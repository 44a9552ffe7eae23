// SPDX-License-Identifier: GPL-2.0
//! What comes in over one connection: which messages are to be taken, and what else is said.
//!
//! An [`Inbound`] stands between the responder of a QP and the endpoint. For each SEND:
//!
//! ```text
//!  begin    the first bytes: a message to be matched, something to ignore, or something else
//!  take     the endpoint has a place for the message (else: the peer is told to wait, as if the SEND
//!           had never come)
//!  payload  where the bytes of each packet go
//!  end      all of it has come: the message is complete, or what else was said is to be done
//!  abort    instead of the end, if the connection fails
//! ```
//!
//! # Each message once, in order
//!
//! The connection delivers SENDs in order, once. But a message that the endpoint has no room for would
//! block all that its sender has to say behind it. So its sender may have it step aside: it makes the
//! message **void**, and all messages behind it, and sends them again later, in order, with the same
//! numbers. A packet of the original that was on its way may come before the void one, and then the
//! message is taken although its sender does not know. Therefore:
//!
//! - a message is taken only if its number is larger than those of all that were taken;
//! - and only if the one after which its sender means it to come was taken, or a later one.
//!
//! A message can be made of different packets, void and not: its first decides.
//!
//! # Answers
//!
//! A message whose sender wants a FIN, and a CANCEL, are answered. An answer takes memory until the peer
//! has acknowledged it, and a peer that acknowledges none could have any number of them. So
//! [`Inbound::begin`] refuses what would need one more than [`ANSWERS`]; the peer is told to wait.
//!
//! Context: any, under the lock of the QP's responder.

use super::{
    header::{
        Fate,
        Header,
        Malformed,
        Message,
        Place, //
    },
    times::{
        ANSWERS,
        RECALLS, //
    },
};
use core::ops::Range;

/// What begins with the first bytes of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A message that is to be matched. If there is a place for it: [`Inbound::take`]; if not, the
    /// peer is to wait.
    Message(Message, Source),
    /// A message that comes when the endpoint takes none any more, or something whose answer would be
    /// one too many: the peer is to wait.
    NotReady,
    /// Something to be ignored, or to be done when it has ended.
    Other,
}

/// Where the bytes of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In this SEND.
    Eager,
    /// With their sender, to be read from there.
    Rts(Place),
}

/// Something that the peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end of a message that this side sent.
    Fin {
        /// Its number.
        id: u64,
        /// How it ended.
        fate: Fate,
    },
    /// The peer wants a message back.
    Cancel {
        /// Its number.
        id: u64,
        /// Whether it may be found among the messages that wait here.
        found: Found,
    },
    /// CQ data of a WRITE that has been done.
    Note {
        /// Bytes written.
        len: u32,
        /// The data.
        data: u64,
    },
    /// The peer wants to give the connection up.
    Retire,
    /// The peer agrees to that.
    Retired,
    /// The peer does not.
    Keep,
    /// The peer's endpoint closes; it has taken all messages up to this one.
    Bye {
        /// The number.
        last: u64,
    },
}

/// What is known here of a message that its sender wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It never was taken, and will not come again.
    Never,
    /// It was received: nothing more was to be said of it.
    Received,
    /// It was taken. It waits here, or its FIN is on its way or will be.
    Taken,
}

/// What ends with the last bytes of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The message that was taken is complete.
    Message,
    /// This is to be done.
    Event(Event),
    /// Nothing.
    Nothing,
}

/// The SEND that is coming in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    None,
    /// A message that nobody has taken yet.
    Offered(Header),
    /// A message that was taken.
    Taken(Header),
    /// A message of which nothing is wanted, or something else.
    Other(Header),
}

/// How many answers the peer is owed when a SEND begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owing {
    /// Messages and CANCELs that are to be answered, or whose FIN was not acknowledged.
    pub owed: u32,
    /// How many of them may be messages that wait for a receive. These have a limit of their own.
    pub waiting: u32,
}

impl Owing {
    /// Whether `extra` more than [`ANSWERS`] are not reached yet.
    const fn has_room(&self, extra: u32) -> bool {
        self.owed < ANSWERS.saturating_add(self.waiting).saturating_add(extra)
    }
}

/// What has come in over one connection.
///
/// # Invariants
///
/// `complete <= taken`.
#[derive(Debug)]
pub struct Inbound {
    /// The last message taken.
    taken: u64,
    /// The last message taken that is complete.
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
    /// Nothing has come in yet.
    pub const fn new() -> Self {
        // INVARIANT: Messages are numbered from 1.
        Self {
            taken: 0,
            complete: 0,
            shut: false,
            current: Current::None,
        }
    }

    /// Takes no message any more, as the endpoint closes; returns the last one that is complete.
    pub fn shut(&mut self) -> u64 {
        self.shut = true;
        self.complete
    }

    /// A SEND begins with `bytes`, its first packet, while the peer is owed `owing`.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the peer does not keep to the protocol; the connection is to fail.
    pub fn begin(&mut self, bytes: &[u8], owing: Owing) -> Result<Begin, Malformed> {
        let header = Header::parse(bytes)?;
        let (message, source) = match header {
            Header::Eager(message) => (message, Source::Eager),
            Header::Rts(message, place) => (message, Source::Rts(place)),
            Header::Cancel { .. } if !owing.has_room(RECALLS) => return Ok(Begin::NotReady),
            _ => {
                self.current = Current::Other(header);
                return Ok(Begin::Other);
            }
        };
        let is_next = message.after <= self.taken && self.taken < message.id;
        if message.void || !is_next {
            self.current = Current::Other(header);
            return Ok(Begin::Other);
        }
        if self.shut || (message.finish && !owing.has_room(0)) {
            return Ok(Begin::NotReady);
        }
        self.current = Current::Offered(header);
        Ok(Begin::Message(message, source))
    }

    /// There is a place for the message that [`Self::begin`] told of.
    pub fn take(&mut self) {
        let Current::Offered(header) = self.current else {
            return;
        };
        if let Header::Eager(message) | Header::Rts(message, _) = header {
            // INVARIANT: It is larger than those taken.
            self.taken = message.id;
        }
        self.current = Current::Taken(header);
    }

    /// Returns which of the `len` bytes that came at `offset` of the SEND belong to the message that
    /// was taken, and where in the message they begin; `None`: none.
    ///
    /// # Errors
    ///
    /// [`Malformed::Length`]: more bytes than the header says.
    pub fn payload(&self, offset: u32, len: u32) -> Result<Option<(Range<usize>, u32)>, Malformed> {
        let (header, wanted) = match self.current {
            Current::Taken(header) => (header, true),
            Current::Other(header) => (header, false),
            Current::None | Current::Offered(_) => return Ok(None),
        };
        // A header is some bytes long, a message at most 2^30.
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

    /// The SEND has ended after `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed::Length`]: not as many as the header says.
    pub fn end(&mut self, len: u32) -> Result<End, Malformed> {
        let current = core::mem::replace(&mut self.current, Current::None);
        let (header, taken) = match current {
            Current::Taken(header) => (header, true),
            Current::Other(header) => (header, false),
            Current::None | Current::Offered(_) => return Ok(End::Nothing),
        };
        if len != (header.len() as u32).saturating_add(header.payload()) {
            return Err(Malformed::Length);
        }
        if taken {
            // INVARIANT: Equal.
            self.complete = self.taken;
            return Ok(End::Message);
        }
        Ok(match self.event(header) {
            Some(event) => End::Event(event),
            None => End::Nothing,
        })
    }

    /// The SEND that is coming in will not be completed, and nothing else will come in.
    pub fn abort(&mut self) {
        self.current = Current::None;
    }

    fn event(&self, header: Header) -> Option<Event> {
        Some(match header {
            Header::Eager(_) | Header::Rts(..) | Header::Ping => return None,
            Header::Fin { id, fate } => Event::Fin { id, fate },
            Header::Cancel { id, finish } => {
                let found = if id > self.taken {
                    Found::Never
                } else if finish {
                    Found::Taken
                } else {
                    Found::Received
                };
                Event::Cancel { id, found }
            }
            Header::Note { len, data } => Event::Note { len, data },
            Header::Retire => Event::Retire,
            Header::Retired => Event::Retired,
            Header::Keep => Event::Keep,
            Header::Bye { last } => Event::Bye { last },
        })
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_inbound))]
mod tests {
    use super::*;
    use crate::rdm::header::MAX_HEADER;

    fn message(id: u64, len: u32) -> Message {
        Message {
            id,
            after: 0,
            tag: None,
            data: None,
            len,
            finish: false,
            void: false,
        }
    }

    fn begin(inbound: &mut Inbound, header: Header) -> Result<Begin, Malformed> {
        let mut bytes = [0; MAX_HEADER];
        assert_eq!(header.put(&mut bytes), Some(header.len()));
        inbound.begin(&bytes, Owing::default())
    }

    /// Brings an eager message of no bytes that comes after another; whether it was taken.
    fn bring(inbound: &mut Inbound, (after, id): (u64, u64), void: bool) -> bool {
        let message = Message {
            after,
            void,
            ..message(id, 0)
        };
        let begun = begin(inbound, Header::Eager(message));
        let offered = matches!(begun, Ok(Begin::Message(..)));
        if offered {
            inbound.take();
        }
        let end = if offered { End::Message } else { End::Nothing };
        assert_eq!(inbound.end(40), Ok(end));
        offered
    }

    fn cancel(inbound: &mut Inbound, id: u64, finish: bool) -> Option<Found> {
        assert_eq!(
            begin(inbound, Header::Cancel { id, finish }),
            Ok(Begin::Other)
        );
        match inbound.end(16) {
            Ok(End::Event(Event::Cancel { id: named, found })) if named == id => Some(found),
            _ => None,
        }
    }

    #[test]
    fn a_message_of_several_packets() {
        let mut inbound = Inbound::new();
        let header = Header::Eager(message(1, 600));
        let begun = begin(&mut inbound, header);
        assert_eq!(begun, Ok(Begin::Message(message(1, 600), Source::Eager)));
        // Nobody has taken it.
        assert_eq!(inbound.payload(0, 256), Ok(None));
        inbound.take();
        assert_eq!(inbound.payload(0, 256), Ok(Some((40..256, 0))));
        assert_eq!(inbound.payload(256, 256), Ok(Some((0..256, 216))));
        assert_eq!(inbound.payload(512, 128), Ok(Some((0..128, 472))));
        assert_eq!(inbound.payload(512, 129), Err(Malformed::Length));
        assert_eq!(inbound.payload(u32::MAX, 1), Err(Malformed::Length));
        assert_eq!(inbound.shut(), 0);
        assert_eq!(inbound.end(640), Ok(End::Message));
        assert_eq!(inbound.shut(), 1);
    }

    #[test]
    fn a_message_that_is_longer_or_shorter_than_it_says() {
        for len in [39, 639, 641] {
            let mut inbound = Inbound::new();
            let header = Header::Eager(message(1, 600));
            assert!(begin(&mut inbound, header).is_ok());
            inbound.take();
            assert_eq!(inbound.end(len), Err(Malformed::Length));
            assert_eq!(inbound.shut(), 0);
        }
        let mut inbound = Inbound::new();
        assert_eq!(begin(&mut inbound, Header::Ping), Ok(Begin::Other));
        assert_eq!(inbound.payload(0, 16), Ok(None));
        assert_eq!(inbound.payload(0, 17), Err(Malformed::Length));
        assert_eq!(inbound.end(17), Err(Malformed::Length));
    }

    #[test]
    fn one_that_is_not_taken_comes_again() {
        let mut inbound = Inbound::new();
        let header = Header::Eager(message(1, 0));
        for _ in 0..3 {
            let begun = begin(&mut inbound, header);
            assert!(matches!(begun, Ok(Begin::Message(..))));
        }
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (0, 1), false));
        // Numbers have gaps.
        assert!(bring(&mut inbound, (1, 5), false));
        assert!(!bring(&mut inbound, (1, 4), false));
    }

    #[test]
    fn void_messages_come_again_in_order() {
        let mut inbound = Inbound::new();
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (1, 3), true));
        assert!(!bring(&mut inbound, (3, 4), true));
        // Its original was on its way.
        assert!(!bring(&mut inbound, (4, 6), false));
        assert!(!bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (1, 3), false));
        assert!(bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (4, 6), false));
    }

    #[test]
    fn a_void_message_that_was_taken_is_a_duplicate() {
        let mut inbound = Inbound::new();
        // The original came first, then all is made void and sent again.
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (0, 1), true));
        assert!(!bring(&mut inbound, (1, 2), true));
        assert!(!bring(&mut inbound, (0, 1), false));
        assert!(bring(&mut inbound, (1, 2), false));
    }

    #[test]
    fn a_withdrawn_message_is_not_waited_for() {
        let mut inbound = Inbound::new();
        assert!(!bring(&mut inbound, (0, 1), true));
        assert!(!bring(&mut inbound, (1, 2), true));
        assert_eq!(cancel(&mut inbound, 1, true), Some(Found::Never));
        // It was behind the wish to cancel, void too, and its original was on its way.
        assert!(!bring(&mut inbound, (2, 3), false));
        // Those that are sent again do without the one that was withdrawn.
        assert!(bring(&mut inbound, (0, 2), false));
        assert!(bring(&mut inbound, (2, 3), false));
        assert_eq!(cancel(&mut inbound, 3, false), Some(Found::Received));
        assert_eq!(cancel(&mut inbound, 3, true), Some(Found::Taken));
        // The one that was to be withdrawn had been taken.
        assert!(bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (3, 5), false));
    }

    #[test]
    fn who_closes_takes_no_message() {
        let mut inbound = Inbound::new();
        assert!(bring(&mut inbound, (0, 1), false));
        assert_eq!(inbound.shut(), 1);
        let header = Header::Eager(message(2, 0));
        assert_eq!(begin(&mut inbound, header), Ok(Begin::NotReady));
        assert!(!bring(&mut inbound, (0, 1), false));
        assert_eq!(begin(&mut inbound, Header::Retire), Ok(Begin::Other));
        assert_eq!(inbound.end(16), Ok(End::Event(Event::Retire)));
    }

    #[test]
    fn what_would_need_one_answer_too_many_waits() {
        let begin = |header: Header, owed: u32, waiting: u32| {
            let mut bytes = [0; MAX_HEADER];
            assert_eq!(header.put(&mut bytes), Some(header.len()));
            Inbound::new().begin(&bytes, Owing { owed, waiting })
        };
        let answered = Message {
            finish: true,
            ..message(1, 0)
        };
        let place = Place { va: 0, rkey: 0 };
        for header in [Header::Eager(answered), Header::Rts(answered, place)] {
            let is_offered = |owed, waiting| match begin(header, owed, waiting) {
                Ok(Begin::Message(..)) => true,
                other => {
                    assert_eq!(other, Ok(Begin::NotReady));
                    false
                }
            };
            assert!(is_offered(ANSWERS - 1, 0) && is_offered(ANSWERS + 6, 7));
            assert!(!is_offered(ANSWERS, 0) && !is_offered(ANSWERS + 7, 7));
            assert!(!is_offered(u32::MAX, u32::MAX));
        }
        for (id, finish) in [(1, true), (u64::MAX, false)] {
            let cancel = Header::Cancel { id, finish };
            let max = ANSWERS + RECALLS;
            assert_eq!(begin(cancel, max - 1, 0), Ok(Begin::Other));
            assert_eq!(begin(cancel, max, 0), Ok(Begin::NotReady));
            assert_eq!(begin(cancel, max + 4, 5), Ok(Begin::Other));
        }
        // What is not answered never waits for that.
        let eager = Header::Eager(message(1, 0));
        assert!(matches!(begin(eager, u32::MAX, 0), Ok(Begin::Message(..))));
        assert_eq!(begin(Header::Ping, u32::MAX, 0), Ok(Begin::Other));
        let fin = Header::Fin {
            id: 1,
            fate: Fate::Received,
        };
        assert_eq!(begin(fin, u32::MAX, 0), Ok(Begin::Other));
    }
}
