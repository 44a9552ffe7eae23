// SPDX-License-Identifier: GPL-2.0
//! The queue of messages that arrived before their receive.
//!
//! An [`Unexpected`] queue holds, in the order of arrival, the properties of each message
//! ([`Message`]) and a token `T` of the caller: the data, or the send that still has it. A receive
//! takes the first message that meets its criteria; a search finds one without receiving it.
//! [`Unexpected::receive`] implements fi_tagged(3):
//!
//! | flags           | a message is found                          | no message is found             |
//! |-----------------|---------------------------------------------|---------------------------------|
//! | none            | [`Answer::Received`]                        | [`Answer::Post`]                |
//! | `PEEK`          | [`Answer::Found`]; it stays                 | [`Answer::NoMessage`]           |
//! | `PEEK, CLAIM`   | [`Answer::Found`]; it is reserved for `context` | [`Answer::NoMessage`]       |
//! | `PEEK, DISCARD` | [`Answer::Discarded`]                       | [`Answer::NoMessage`]           |
//! | `CLAIM`         | [`Answer::Received`], the claimed one       | [`Answer::NotClaimed`]          |
//! | `CLAIM, DISCARD`| [`Answer::Discarded`], the claimed one      | [`Answer::NotClaimed`]          |
//!
//! A claimed message is not found by other searches and receives. Only a receive with `KFI_CLAIM`
//! and the context that claimed it gets it, whatever the criteria of that receive are. If one
//! context has claimed several messages, they are received in the order of arrival. A search never
//! joins the posted receives, so it does not wait for a message.
//!
//! # Limits
//!
//! Peers cause the receiver's host to use memory for messages, so there are two limits. The number
//! of slots of the storage limits the number of messages. `total_buffered_recv` limits the bytes
//! that they use in kernel memory: they are charged with [`Unexpected::charge`] before the memory
//! is allocated, and [`Unexpected::uncharge`] is called when it is freed.
//!
//! A search is linear in the number of messages that do not match. Context: any, under the
//! endpoint's receive lock.

use super::{
    Criteria,
    Envelope, //
};
use crate::{
    errno::Errno,
    flags::OpFlags,
    slab::{
        Full,
        Id,
        Slab,
        Slot,
        Storage, //
    }, //
};

/// The properties of a message before it is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<S> {
    /// The source and the tag.
    pub envelope: Envelope<S>,
    /// The length in bytes.
    pub len: u64,
    /// The remote CQ data, if there is any.
    pub data: Option<u64>,
    /// The number of bytes charged for the message: those in kernel memory; 0 if the sender still
    /// has them.
    pub charged: u64,
}

/// A message in the queue.
#[derive(Debug)]
pub struct Arrived<S, T> {
    message: Message<S>,
    /// The context that claimed the message.
    claim: Option<u64>,
    token: T,
}

/// A slot for one message in the queue.
pub type UnexpectedSlot<S, T> = Slot<Arrived<S, T>>;

/// The action of a receive on the unexpected messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Receive the first message that matches.
    Receive,
    /// `KFI_PEEK`: search for the first message that matches.
    Peek,
    /// `KFI_PEEK | KFI_CLAIM`: search, and claim the message for this context.
    PeekClaim,
    /// `KFI_PEEK | KFI_DISCARD`: search, and discard the message.
    PeekDiscard,
    /// `KFI_CLAIM`: receive the message that this context has claimed.
    Claim,
    /// `KFI_CLAIM | KFI_DISCARD`: discard the message that this context has claimed.
    ClaimDiscard,
}

impl Search {
    /// Returns the action that `flags` request. [`OpType::flags`](crate::op::OpType::flags) has
    /// checked the flags; for a combination that it refuses, the action without `KFI_DISCARD` is
    /// returned.
    pub const fn of(flags: OpFlags) -> Self {
        match (
            flags.contains(OpFlags::PEEK),
            flags.contains(OpFlags::CLAIM),
            flags.contains(OpFlags::DISCARD),
        ) {
            (false, false, _) => Self::Receive,
            (true, false, false) => Self::Peek,
            (true, true, _) => Self::PeekClaim,
            (true, false, true) => Self::PeekDiscard,
            (false, true, false) => Self::Claim,
            (false, true, true) => Self::ClaimDiscard,
        }
    }
}

/// The result of a receive.
#[derive(Debug)]
#[must_use]
pub enum Answer<S, T> {
    /// There is no message: the caller posts the receive.
    Post,
    /// The message is received: the caller places it, calls [`Unexpected::uncharge`], and
    /// completes.
    Received(Message<S>, T),
    /// A search has found the message, which stays. The caller completes the search successfully,
    /// without a buffer, with the length, tag, data and source of the message.
    Found(Message<S>),
    /// The message is discarded: the caller drops the token, calls [`Unexpected::uncharge`],
    /// completes the receive as for [`Answer::Found`], and completes a sender that waits for
    /// delivery successfully.
    Discarded(Message<S>, T),
    /// A search has found no message: it completes with the error `ENOMSG`.
    NoMessage,
    /// This context has claimed no message: the call fails with `ENOMSG`.
    NotClaimed,
}

/// The messages that arrived before their receive, in the order of arrival.
///
/// # Invariants
///
/// `charged <= limit`, unless the limit was lowered.
#[derive(Debug)]
pub struct Unexpected<S, T, Q: Storage<Arrived<S, T>>> {
    queue: Slab<Arrived<S, T>, Q>,
    limit: u64,
    charged: u64,
}

impl<S: Copy + PartialEq, T, Q: Storage<Arrived<S, T>>> Unexpected<S, T, Q> {
    /// Makes an empty queue in `storage` whose messages may use `limit` bytes of kernel memory.
    pub fn new(storage: Q, limit: u64) -> Self {
        Self {
            queue: Slab::new(storage),
            limit,
            charged: 0,
        }
    }

    /// Returns the number of messages, claimed ones included.
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Returns the number of bytes of kernel memory that are charged.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Charges `bytes` of kernel memory. Called before the memory is allocated.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the limit would be exceeded; nothing is charged.
    pub fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        let charged = self.charged.checked_add(bytes).ok_or(Errno::EAGAIN)?;
        if charged > self.limit {
            return Err(Errno::EAGAIN);
        }
        self.charged = charged;
        Ok(())
    }

    /// Returns `bytes` charged by [`Self::charge`], after the memory was freed.
    pub fn uncharge(&mut self, bytes: u64) {
        self.charged = self.charged.saturating_sub(bytes);
    }

    /// Appends a message to the queue. Its bytes in kernel memory (`message.charged`) have been
    /// charged before.
    ///
    /// # Errors
    ///
    /// [`Full`]: the queue is full; returns `token`. The message stays with its sender.
    pub fn arrive(&mut self, message: Message<S>, token: T) -> Result<(), Full<T>> {
        let claim = None;
        match self.queue.push_back(Arrived {
            message,
            claim,
            token,
        }) {
            Ok(_) => Ok(()),
            Err(Full(arrived)) => Err(Full(arrived.token)),
        }
    }

    /// Executes a receive or a search, see the top of the file. O(n).
    pub fn receive(&mut self, search: Search, want: &Criteria<S>, context: u64) -> Answer<S, T> {
        match search {
            Search::Receive => match self.first(want) {
                Some(id) => self.take(id, Answer::Received),
                None => Answer::Post,
            },
            Search::Peek => match self.first(want).and_then(|id| self.queue.get(id)) {
                Some(arrived) => Answer::Found(arrived.message),
                None => Answer::NoMessage,
            },
            Search::PeekClaim => match self.first(want).and_then(|id| self.queue.get_mut(id)) {
                Some(arrived) => {
                    arrived.claim = Some(context);
                    Answer::Found(arrived.message)
                }
                None => Answer::NoMessage,
            },
            Search::PeekDiscard => match self.first(want) {
                Some(id) => self.take(id, Answer::Discarded),
                None => Answer::NoMessage,
            },
            Search::Claim => match self.claimed(context) {
                Some(id) => self.take(id, Answer::Received),
                None => Answer::NotClaimed,
            },
            Search::ClaimDiscard => match self.claimed(context) {
                Some(id) => self.take(id, Answer::Discarded),
                None => Answer::NotClaimed,
            },
        }
    }

    /// Removes the oldest message, claimed or not. At close the caller repeats this until `None`.
    pub fn drain(&mut self) -> Option<(Message<S>, T)> {
        let arrived = self.queue.pop_front()?.value;
        Some((arrived.message, arrived.token))
    }

    /// Removes the oldest message for which `pred` holds. A sender uses this to withdraw a message
    /// that it still has. O(n).
    pub fn withdraw(&mut self, mut pred: impl FnMut(&T) -> bool) -> Option<(Message<S>, T)> {
        let id = self.queue.find(|arrived| pred(&arrived.token))?;
        let arrived = self.queue.remove(id)?.value;
        Some((arrived.message, arrived.token))
    }

    /// Iterates over the messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Message<S>, &T)> {
        self.queue
            .iter()
            .map(|(_, arrived)| (&arrived.message, &arrived.token))
    }

    /// Finds the first message that is not claimed and matches `want`.
    fn first(&self, want: &Criteria<S>) -> Option<Id> {
        self.queue
            .find(|arrived| arrived.claim.is_none() && want.matches(&arrived.message.envelope))
    }

    /// Finds the first message that `context` has claimed.
    fn claimed(&self, context: u64) -> Option<Id> {
        self.queue.find(|arrived| arrived.claim == Some(context))
    }

    fn take(&mut self, id: Id, answer: fn(Message<S>, T) -> Answer<S, T>) -> Answer<S, T> {
        match self.queue.remove(id) {
            Some(removed) => answer(removed.value.message, removed.value.token),
            // The id was found under the same borrow.
            None => Answer::NoMessage,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_unexpected))]
mod tests {
    use super::*;

    type Queue<'a> = Unexpected<u8, u32, &'a mut [UnexpectedSlot<u8, u32>]>;

    fn slots() -> [UnexpectedSlot<u8, u32>; 4] {
        [Slot::new(), Slot::new(), Slot::new(), Slot::new()]
    }

    fn message(src: u8, tag: u64) -> Message<u8> {
        Message {
            envelope: Envelope { src, tag },
            len: 10,
            data: None,
            charged: 0,
        }
    }

    fn any_tag() -> Criteria<u8> {
        tagged(0, u64::MAX)
    }

    fn tagged(tag: u64, ignore: u64) -> Criteria<u8> {
        let src = None;
        Criteria { src, tag, ignore }
    }

    /// Returns the kind of the answer, and its token or tag.
    fn ask(queue: &mut Queue<'_>, search: Search, want: Criteria<u8>, context: u64) -> (u8, u64) {
        match queue.receive(search, &want, context) {
            Answer::Post => (b'P', 0),
            Answer::Received(_, token) => (b'R', u64::from(token)),
            Answer::Found(message) => (b'F', message.envelope.tag),
            Answer::Discarded(_, token) => (b'D', u64::from(token)),
            Answer::NoMessage => (b'N', 0),
            Answer::NotClaimed => (b'C', 0),
        }
    }

    #[test]
    fn the_first_message_that_matches_is_received() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        assert!(queue.arrive(message(1, 7), 10).is_ok());
        assert!(queue.arrive(message(2, 8), 11).is_ok());
        assert!(queue.arrive(message(1, 8), 12).is_ok());
        assert_eq!(ask(&mut queue, Search::Receive, tagged(9, 0), 0), (b'P', 0));
        let from_1 = Criteria {
            src: Some(1),
            tag: 8,
            ignore: 0,
        };
        assert_eq!(ask(&mut queue, Search::Receive, from_1, 0), (b'R', 12));
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 0), (b'R', 10));
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 0), (b'R', 11));
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 0), (b'P', 0));
    }

    #[test]
    fn a_peek_leaves_the_message() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        assert_eq!(ask(&mut queue, Search::Peek, any_tag(), 0), (b'N', 0));
        assert!(queue.arrive(message(1, 7), 10).is_ok());
        assert_eq!(ask(&mut queue, Search::Peek, any_tag(), 0), (b'F', 7));
        assert_eq!(ask(&mut queue, Search::Peek, tagged(8, 0), 0), (b'N', 0));
        assert_eq!(ask(&mut queue, Search::Peek, tagged(7, 0), 0), (b'F', 7));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_claimed_message_is_received_only_by_its_claimant() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        assert!(queue.arrive(message(1, 7), 10).is_ok());
        assert!(queue.arrive(message(1, 7), 11).is_ok());
        assert_eq!(ask(&mut queue, Search::Claim, any_tag(), 0), (b'C', 0));
        assert_eq!(
            ask(&mut queue, Search::PeekClaim, tagged(6, 0), 5),
            (b'N', 0)
        );
        assert_eq!(
            ask(&mut queue, Search::PeekClaim, tagged(7, 0), 5),
            (b'F', 7)
        );
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 5), (b'R', 11));
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 5), (b'P', 0));
        assert_eq!(ask(&mut queue, Search::Peek, any_tag(), 5), (b'N', 0));
        assert_eq!(ask(&mut queue, Search::PeekClaim, any_tag(), 6), (b'N', 0));
        assert_eq!(
            ask(&mut queue, Search::PeekDiscard, any_tag(), 5),
            (b'N', 0)
        );
        assert_eq!(ask(&mut queue, Search::Claim, any_tag(), 6), (b'C', 0));
        // The criteria are ignored.
        assert_eq!(ask(&mut queue, Search::Claim, tagged(1, 0), 5), (b'R', 10));
        assert_eq!(ask(&mut queue, Search::Claim, any_tag(), 5), (b'C', 0));
        assert!(queue.is_empty());
    }

    #[test]
    fn one_context_can_claim_several() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        assert!(queue.arrive(message(1, 7), 10).is_ok());
        assert!(queue.arrive(message(1, 8), 11).is_ok());
        assert_eq!(
            ask(&mut queue, Search::PeekClaim, tagged(8, 0), 5),
            (b'F', 8)
        );
        assert_eq!(ask(&mut queue, Search::PeekClaim, any_tag(), 5), (b'F', 7));
        assert_eq!(ask(&mut queue, Search::Claim, any_tag(), 5), (b'R', 10));
        assert_eq!(
            ask(&mut queue, Search::ClaimDiscard, any_tag(), 5),
            (b'D', 11)
        );
        assert_eq!(
            ask(&mut queue, Search::ClaimDiscard, any_tag(), 5),
            (b'C', 0)
        );
    }

    #[test]
    fn a_discarded_message_is_removed() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        assert!(queue.arrive(message(1, 7), 10).is_ok());
        assert_eq!(
            ask(&mut queue, Search::PeekDiscard, tagged(8, 0), 0),
            (b'N', 0)
        );
        assert_eq!(
            ask(&mut queue, Search::PeekDiscard, tagged(7, 0), 0),
            (b'D', 10)
        );
        assert_eq!(
            ask(&mut queue, Search::PeekDiscard, tagged(7, 0), 0),
            (b'N', 0)
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn the_number_of_messages_is_limited() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        for token in 0..4 {
            assert!(!queue.is_full());
            assert!(queue.arrive(message(1, 7), token).is_ok());
        }
        assert!(queue.is_full());
        assert_eq!(queue.arrive(message(1, 7), 9), Err(Full(9)));
        assert_eq!(ask(&mut queue, Search::Receive, any_tag(), 0), (b'R', 0));
        assert!(queue.arrive(message(1, 7), 9).is_ok());
    }

    #[test]
    fn the_bytes_are_limited() {
        let mut slots = slots();
        let mut queue: Queue<'_> = Unexpected::new(&mut slots[..], 100);
        assert_eq!(queue.charge(60), Ok(()));
        assert_eq!(queue.charge(41), Err(Errno::EAGAIN));
        assert_eq!(queue.charged(), 60);
        assert_eq!(queue.charge(40), Ok(()));
        assert_eq!(queue.charge(1), Err(Errno::EAGAIN));
        assert_eq!(queue.charge(0), Ok(()));
        assert_eq!(queue.charge(u64::MAX), Err(Errno::EAGAIN));
        queue.uncharge(60);
        assert_eq!(queue.charge(61), Err(Errno::EAGAIN));
        assert_eq!(queue.charge(60), Ok(()));
        queue.uncharge(u64::MAX);
        assert_eq!(queue.charged(), 0);
    }

    #[test]
    fn senders_withdraw_messages_and_closing_drains() {
        let mut slots = slots();
        let mut queue = Unexpected::new(&mut slots[..], 0);
        for token in 0..4 {
            assert!(queue.arrive(message(1, 7), token).is_ok());
        }
        assert_eq!(ask(&mut queue, Search::PeekClaim, any_tag(), 5), (b'F', 7));
        assert_eq!(
            queue.withdraw(|token| *token == 2).map(|(_, token)| token),
            Some(2)
        );
        assert_eq!(queue.withdraw(|token| *token == 2), None);
        assert_eq!(queue.drain().map(|(_, token)| token), Some(0));
        assert_eq!(queue.drain().map(|(_, token)| token), Some(1));
        assert_eq!(queue.drain().map(|(_, token)| token), Some(3));
        assert_eq!(queue.drain(), None);
    }

    #[test]
    fn flags_select_the_search() {
        let (p, c, d) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
        assert_eq!(Search::of(OpFlags::COMPLETION), Search::Receive);
        assert_eq!(Search::of(p), Search::Peek);
        assert_eq!(Search::of(p | c), Search::PeekClaim);
        assert_eq!(Search::of(p | d), Search::PeekDiscard);
        assert_eq!(Search::of(c), Search::Claim);
        assert_eq!(Search::of(c | d), Search::ClaimDiscard);
    }
}
