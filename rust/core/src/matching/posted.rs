// SPDX-License-Identifier: GPL-2.0
//! The queue of receives that wait for a message.
//!
//! A [`Posted`] queue holds the criteria of each receive ([`Criteria`]) and a token `T` of the
//! caller, the receive itself. [`Posted::match_message`] finds the first receive, in the order of
//! posting, that accepts a message. The caller inspects the token through the [`Match`]. It then
//! takes the receive out of the queue, or leaves it there if it is a multi-receive buffer with room
//! left.
//!
//! [`Posted::put_back`] restores a receive that was taken out and could not be used.
//!
//! Matching is linear in the number of receives that do not match: O(1) for plain receives from any
//! source, at most [`MAX_QUEUE`](crate::limits::MAX_QUEUE) steps. Context: any, under the
//! endpoint's receive lock.

use super::{
    Criteria,
    Envelope, //
};
use crate::slab::{
    Full,
    Id,
    Removed,
    Slab,
    Slot,
    Storage, //
};

/// A receive in the queue.
#[derive(Debug)]
pub struct Receive<S, T> {
    want: Criteria<S>,
    token: T,
}

/// A slot for one receive in the queue.
pub type PostedSlot<S, T> = Slot<Receive<S, T>>;

/// A receive that was taken out of the queue.
#[derive(Debug)]
#[must_use = "a receive must be completed or put back"]
pub struct Taken<S, T> {
    seq: u64,
    /// The criteria of the receive.
    pub want: Criteria<S>,
    /// The receive.
    pub token: T,
}

impl<S, T> From<Removed<Receive<S, T>>> for Taken<S, T> {
    fn from(removed: Removed<Receive<S, T>>) -> Self {
        Self {
            seq: removed.seq,
            want: removed.value.want,
            token: removed.value.token,
        }
    }
}

/// The receives that wait for a message, in the order of posting.
#[derive(Debug)]
pub struct Posted<S, T, Q: Storage<Receive<S, T>>> {
    queue: Slab<Receive<S, T>, Q>,
}

impl<S: PartialEq, T, Q: Storage<Receive<S, T>>> Posted<S, T, Q> {
    /// Makes an empty queue in `storage`, whose slots bound the number of receives (`rx_size`).
    pub fn new(storage: Q) -> Self {
        Self {
            queue: Slab::new(storage),
        }
    }

    /// Returns the number of receives.
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Returns whether there is no receive.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether the queue is full, so that a post fails with `EAGAIN`.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Appends a receive to the queue.
    ///
    /// # Errors
    ///
    /// [`Full`]: the queue is full; returns `token`. The call fails with `EAGAIN`.
    pub fn post(&mut self, want: Criteria<S>, token: T) -> Result<(), Full<T>> {
        match self.queue.push_back(Receive { want, token }) {
            Ok(_) => Ok(()),
            Err(Full(receive)) => Err(Full(receive.token)),
        }
    }

    /// Finds the receive for a message: the first one, in the order of posting, whose criteria it
    /// meets.
    #[inline(always)]
    pub fn match_message(&mut self, message: &Envelope<S>) -> Option<Match<'_, S, T, Q>> {
        let id = self.queue.find(|receive| receive.want.matches(message))?;
        Some(Match {
            queue: &mut self.queue,
            id,
        })
    }

    /// Finds the receive for a message among those whose token `usable` accepts.
    pub fn match_usable(
        &mut self,
        message: &Envelope<S>,
        usable: impl Fn(&T) -> bool,
    ) -> Option<Match<'_, S, T, Q>> {
        let id = self
            .queue
            .find(|receive| receive.want.matches(message) && usable(&receive.token))?;
        Some(Match {
            queue: &mut self.queue,
            id,
        })
    }

    /// Restores a receive at its position in the order.
    ///
    /// # Errors
    ///
    /// [`Full`]: another receive was posted in the meantime and there is no room; the caller
    /// completes the receive with an error.
    pub fn put_back(&mut self, taken: Taken<S, T>) -> Result<(), Full<Taken<S, T>>> {
        let Taken { seq, want, token } = taken;
        let value = Receive { want, token };
        match self.queue.put_back(Removed { seq, value }) {
            Ok(_) => Ok(()),
            Err(Full(removed)) => Err(Full(removed.into())),
        }
    }

    /// Removes the oldest receive for which `pred` holds; kfi_cancel() searches by context. Returns
    /// `None` if there is none (`ENOENT`). O(n).
    pub fn cancel(&mut self, mut pred: impl FnMut(&T) -> bool) -> Option<Taken<S, T>> {
        let id = self.queue.find(|receive| pred(&receive.token))?;
        self.queue.remove(id).map(Taken::from)
    }

    /// Removes the oldest receive. At close the caller repeats this until `None`.
    pub fn drain(&mut self) -> Option<Taken<S, T>> {
        self.queue.pop_front().map(Taken::from)
    }

    /// Iterates over the receives, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Criteria<S>, &T)> {
        self.queue
            .iter()
            .map(|(_, receive)| (&receive.want, &receive.token))
    }
}

/// The receive that matches a message. Dropping the `Match` leaves the receive in the queue.
#[derive(Debug)]
#[must_use = "the receive stays in the queue unless it is taken"]
pub struct Match<'a, S, T, Q: Storage<Receive<S, T>>> {
    queue: &'a mut Slab<Receive<S, T>, Q>,
    // INVARIANT: `id` is that of a value in `queue`.
    id: Id,
}

impl<S, T, Q: Storage<Receive<S, T>>> Match<'_, S, T, Q> {
    /// Returns the receive, which stays in the queue. Never returns `None`.
    pub fn token(&mut self) -> Option<&mut T> {
        self.queue
            .get_mut(self.id)
            .map(|receive| &mut receive.token)
    }

    /// Removes the receive from the queue. Never returns `None`.
    pub fn take(self) -> Option<Taken<S, T>> {
        self.queue.remove(self.id).map(Taken::from)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_posted))]
mod tests {
    use super::*;

    type Queue<'a> = Posted<u8, u32, &'a mut [PostedSlot<u8, u32>]>;

    fn slots() -> [PostedSlot<u8, u32>; 3] {
        [Slot::new(), Slot::new(), Slot::new()]
    }

    fn tagged(tag: u64, ignore: u64) -> Criteria<u8> {
        let src = None;
        Criteria { src, tag, ignore }
    }

    fn take(queue: &mut Queue<'_>, src: u8, tag: u64) -> Option<u32> {
        let found = queue.match_message(&Envelope { src, tag })?;
        found.take().map(|taken| taken.token)
    }

    fn tokens(queue: &Queue<'_>) -> [Option<u32>; 3] {
        let mut tokens = queue.iter().map(|(_, token)| *token);
        [tokens.next(), tokens.next(), tokens.next()]
    }

    #[test]
    fn the_first_posted_receive_matches_not_the_most_specific() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        assert!(queue.post(tagged(7, 0), 1).is_ok());
        assert!(queue.post(tagged(0, u64::MAX), 2).is_ok());
        assert!(queue.post(tagged(8, 0), 3).is_ok());
        assert_eq!(take(&mut queue, 0, 8), Some(2));
        assert_eq!(take(&mut queue, 0, 8), Some(3));
        assert_eq!(take(&mut queue, 0, 8), None);
        assert_eq!(take(&mut queue, 0, 7), Some(1));
        assert!(queue.is_empty());
    }

    #[test]
    fn directed_receives_match_their_source_only() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        assert!(queue.post(Criteria::plain(Some(9)), 1).is_ok());
        assert!(queue.post(Criteria::plain(None), 2).is_ok());
        assert_eq!(take(&mut queue, 8, 0), Some(2));
        assert_eq!(take(&mut queue, 8, 0), None);
        assert_eq!(take(&mut queue, 9, 0), Some(1));
    }

    #[test]
    fn a_receive_that_cannot_be_used_is_passed_over() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        for token in 1..3 {
            assert!(queue.post(Criteria::plain(None), token).is_ok());
        }
        let message = Envelope { src: 0, tag: 0 };
        let found = queue.match_usable(&message, |token| *token == 2);
        let found = found.and_then(Match::take).map(|taken| taken.token);
        assert_eq!(found, Some(2));
        assert!(queue.match_usable(&message, |token| *token == 2).is_none());
        assert_eq!(take(&mut queue, 0, 0), Some(1));
    }

    #[test]
    fn a_matched_receive_can_stay_in_the_queue() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        assert!(queue.post(Criteria::plain(None), 1).is_ok());
        for _ in 0..2 {
            let found = queue.match_message(&Envelope { src: 0, tag: 0 });
            let token = found.and_then(|mut found| found.token().copied());
            assert_eq!(token, Some(1));
            assert_eq!(queue.len(), 1);
        }
    }

    #[test]
    fn a_full_queue_returns_the_receive() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        for token in 0..3 {
            assert!(!queue.is_full());
            assert!(queue.post(Criteria::plain(None), token).is_ok());
        }
        assert!(queue.is_full());
        assert_eq!(queue.post(Criteria::plain(None), 3), Err(Full(3)));
    }

    #[test]
    fn put_back_restores_the_order() -> Result<(), ()> {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        for token in 0..3 {
            assert!(queue.post(tagged(u64::from(token), 0), token).is_ok());
        }
        let taken = queue.match_message(&Envelope { src: 0, tag: 1 });
        let taken = taken.and_then(Match::take).ok_or(())?;
        assert_eq!(tokens(&queue), [Some(0), Some(2), None]);
        assert!(queue.put_back(taken).is_ok());
        assert_eq!(tokens(&queue), [Some(0), Some(1), Some(2)]);

        let taken = queue.drain().ok_or(())?;
        assert!(queue.post(tagged(9, 0), 9).is_ok());
        let refused = queue.put_back(taken).err();
        assert_eq!(
            refused.map(|Full(taken)| (taken.token, taken.want)),
            Some((0, tagged(0, 0)))
        );
        Ok(())
    }

    #[test]
    fn cancel_takes_the_oldest() {
        let mut slots = slots();
        let mut queue = Posted::new(&mut slots[..]);
        assert!(queue.post(tagged(1, 0), 5).is_ok());
        assert!(queue.post(tagged(2, 0), 6).is_ok());
        assert!(queue.post(tagged(3, 0), 6).is_ok());
        assert_eq!(
            queue
                .cancel(|token| *token == 6)
                .map(|taken| taken.want.tag),
            Some(2)
        );
        assert_eq!(
            queue
                .cancel(|token| *token == 6)
                .map(|taken| taken.want.tag),
            Some(3)
        );
        assert!(queue.cancel(|token| *token == 6).is_none());
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.drain().map(|taken| taken.token), Some(5));
        assert!(queue.drain().is_none());
    }
}
