// SPDX-License-Identifier: GPL-2.0
//! Messages that came before their receive.
//!
//! An [`Unexpected`] queue holds, in the order of arrival, what is known of each message
//! ([`Message`]) and a token `T` of the caller's: the data, or the send that still has it. A
//! receive takes the first message that meets its criteria; a search looks for one without
//! receiving it. [`Unexpected::receive`] is the whole of fi_tagged(3) about that:
//!
//! | flags           | finds a message                             | finds none                      |
//! |-----------------|---------------------------------------------|---------------------------------|
//! | none            | [`Answer::Received`]                        | [`Answer::Post`]                |
//! | `PEEK`          | [`Answer::Found`], it stays                 | [`Answer::NoMessage`]           |
//! | `PEEK, CLAIM`   | [`Answer::Found`], it is kept for `context` | [`Answer::NoMessage`]           |
//! | `PEEK, DISCARD` | [`Answer::Discarded`]                       | [`Answer::NoMessage`]           |
//! | `CLAIM`         | [`Answer::Received`], the claimed one       | [`Answer::NotClaimed`]          |
//! | `CLAIM, DISCARD`| [`Answer::Discarded`], the claimed one      | [`Answer::NotClaimed`]          |
//!
//! A claimed message is found by no search and no receive; only a receive with `KFI_CLAIM` and the
//! context that claimed it gets it, whatever that receive's criteria are. If one context has
//! claimed several, they are received in order of arrival. The message of a search that ends in
//! "no message" is never waited for: a search does not join the posted receives.
//!
//! # Limits
//!
//! Messages cost the receiver's host memory that a stranger fills, so there are two limits: the
//! number of messages is that of the slots of the storage; the bytes that they hold in kernel
//! memory are charged with [`Unexpected::charge`] before the memory is got, and given back with
//! [`Unexpected::uncharge`] when it is freed, against `total_buffered_recv`.
//!
//! Searching is linear in the messages that do not match. Context: any; under the endpoint's
//! receive lock.

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

/// What is known of a message before it is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<S> {
    /// Sender and tag.
    pub envelope: Envelope<S>,
    /// Bytes.
    pub len: u64,
    /// Remote CQ data, if it brought any.
    pub data: Option<u64>,
    /// Bytes charged for it: those that lie in kernel memory, 0 if the sender still has them.
    pub charged: u64,
}

/// A message in the queue.
#[derive(Debug)]
pub struct Arrived<S, T> {
    message: Message<S>,
    /// The context that claimed it.
    claim: Option<u64>,
    token: T,
}

/// Room for one message in the queue.
pub type UnexpectedSlot<S, T> = Slot<Arrived<S, T>>;

/// What a receive wants of the unexpected messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Receive the first that fits.
    Receive,
    /// `KFI_PEEK`: look for the first that fits.
    Peek,
    /// `KFI_PEEK | KFI_CLAIM`: and keep it for this context.
    PeekClaim,
    /// `KFI_PEEK | KFI_DISCARD`: and throw it away.
    PeekDiscard,
    /// `KFI_CLAIM`: receive what this context has claimed.
    Claim,
    /// `KFI_CLAIM | KFI_DISCARD`: throw away what this context has claimed.
    ClaimDiscard,
}

impl Search {
    /// Returns what `flags` ask for. They are as [`OpType::flags`](crate::op::OpType::flags) lets
    /// them pass; what it refuses counts as the search without `KFI_DISCARD`.
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

/// What becomes of a receive.
#[derive(Debug)]
#[must_use]
pub enum Answer<S, T> {
    /// Nothing has come for it: post it.
    Post,
    /// This message is for it: place it, [`Unexpected::uncharge`] it, complete.
    Received(Message<S>, T),
    /// A search has found this message, which stays. Completes with success: `len` the message's,
    /// its tag, data and source; no buffer.
    Found(Message<S>),
    /// This message is thrown away: drop the token, [`Unexpected::uncharge`] it, and complete the
    /// receive as [`Answer::Found`] does and a sender that waits for delivery with success.
    Discarded(Message<S>, T),
    /// A search has found nothing: it completes with the error `ENOMSG`.
    NoMessage,
    /// Nothing is claimed for this context: the call fails with `ENOMSG`.
    NotClaimed,
}

/// Messages that came before their receive, in order of arrival.
///
/// # Invariants
///
/// `charged <= limit` unless the limit was lowered.
#[derive(Debug)]
pub struct Unexpected<S, T, Q: Storage<Arrived<S, T>>> {
    queue: Slab<Arrived<S, T>, Q>,
    limit: u64,
    charged: u64,
}

impl<S: Copy + PartialEq, T, Q: Storage<Arrived<S, T>>> Unexpected<S, T, Q> {
    /// Makes an empty queue in `storage` whose messages may hold `limit` bytes of kernel memory.
    pub fn new(storage: Q, limit: u64) -> Self {
        Self {
            queue: Slab::new(storage),
            limit,
            charged: 0,
        }
    }

    /// Returns how many messages there are, claimed ones included.
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Returns how many bytes of kernel memory are charged.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Charges `bytes` of kernel memory, before it is got.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: that would be more than the limit; nothing is charged.
    pub fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        let charged = self.charged.checked_add(bytes).ok_or(Errno::EAGAIN)?;
        if charged > self.limit {
            return Err(Errno::EAGAIN);
        }
        self.charged = charged;
        Ok(())
    }

    /// Gives `bytes` back that [`Self::charge`] charged, when the memory is free again.
    pub fn uncharge(&mut self, bytes: u64) {
        self.charged = self.charged.saturating_sub(bytes);
    }

    /// Puts a message at the end of the queue. What it holds in kernel memory (`message.charged`)
    /// has been charged before.
    ///
    /// # Errors
    ///
    /// [`Full`]: no room; gives `token` back. The message stays with its sender.
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

    /// Answers a receive or a search. See the top of the file. O(n).
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

    /// Takes out the oldest message, claimed or not, at close: until `None`.
    pub fn drain(&mut self) -> Option<(Message<S>, T)> {
        let arrived = self.queue.pop_front()?.value;
        Some((arrived.message, arrived.token))
    }

    /// Takes out the oldest message for which `pred` holds: a sender that gives up takes back the
    /// message that still lies with it. O(n).
    pub fn withdraw(&mut self, mut pred: impl FnMut(&T) -> bool) -> Option<(Message<S>, T)> {
        let id = self.queue.find(|arrived| pred(&arrived.token))?;
        let arrived = self.queue.remove(id)?.value;
        Some((arrived.message, arrived.token))
    }

    /// Goes through the messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Message<S>, &T)> {
        self.queue
            .iter()
            .map(|(_, arrived)| (&arrived.message, &arrived.token))
    }

    /// Finds the first message that nobody has claimed and that `want` takes.
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
            // `id` was found under the same borrow.
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

    /// What an answer is, and the token or tag in it.
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
    fn the_first_that_came_is_received() {
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
    fn a_claimed_message_is_its_claimers() {
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
        // The criteria do not matter.
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
    fn a_discarded_message_is_gone() {
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
    fn senders_take_back_and_close_drains() {
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
    fn searches_by_flags() {
        let (p, c, d) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
        assert_eq!(Search::of(OpFlags::COMPLETION), Search::Receive);
        assert_eq!(Search::of(p), Search::Peek);
        assert_eq!(Search::of(p | c), Search::PeekClaim);
        assert_eq!(Search::of(p | d), Search::PeekDiscard);
        assert_eq!(Search::of(c), Search::Claim);
        assert_eq!(Search::of(c | d), Search::ClaimDiscard);
    }
}
