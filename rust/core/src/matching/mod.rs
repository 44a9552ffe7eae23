// SPDX-License-Identifier: GPL-2.0
//! Which message goes into which receive.
//!
//! A message has an [`Envelope`], a receive has [`Criteria`]. An endpoint keeps two queues for
//! plain messages and two for tagged ones, which never meet:
//! - [`Posted`]: receives that wait for a message, in the order of posting;
//! - [`Unexpected`]: messages that wait for a receive, in the order of arrival.
//!
//! A message takes the first posted receive that matches it, or joins the unexpected ones. A
//! receive takes the first unexpected message that matches it, or joins the posted ones. Both
//! steps, search and joining, belong under one lock; then between two endpoints messages are
//! matched in the order in which they were sent (fi_tagged(3), "Ordering").
//!
//! # Sources
//!
//! The queues compare sources by a type of the caller's, `S`. The RDM endpoint uses the socket
//! address ([`SockAddr`](crate::addr::SockAddr)) and not the `kfi_addr_t`: one address can have
//! several of those, or get its first one after its message has come. The `kfi_addr_t` of a
//! directed receive becomes an address when it is posted, and the address of a message becomes a
//! `kfi_addr_t` (or `KFI_ADDR_NOTAVAIL`) when its completion is written.
//!
//! # How an endpoint uses them
//!
//! *A message comes* (in the sender's context, or from the wire):
//! 1. Lock. [`Posted::match_message`]. If there is a receive: a plain one is taken out
//!    ([`posted::Match::take`]); of a multi-receive buffer a part is taken
//!    ([`MultiRecv::take`](crate::multi_recv::MultiRecv::take)), and it stays in the queue unless
//!    that closed it. Unlock, place the bytes, complete both sides. If placing fails on the
//!    sender's side, [`Posted::put_back`] gives a plain receive its place back.
//! 2. No receive. A message up to [`EAGER_SIZE`](crate::limits::EAGER_SIZE):
//!    [`Unexpected::charge`] its bytes, unlock, get memory and copy, lock, and **search the posted
//!    receives again**; only then [`Unexpected::arrive`]. A longer one arrives at once, with
//!    nothing charged, and stays in the sender's memory. The sender's next message must not
//!    overtake: a sender posts one after another.
//! 3. No room ([`Full`](crate::slab::Full), or `charge` refuses): the message stays with the
//!    sender, which tries again when a message has been taken here.
//!
//! *A receive comes*: lock, [`Unexpected::receive`]; on
//! [`Answer::Post`](unexpected::Answer::Post), [`Posted::post`] under the same lock. On
//! [`Answer::Received`](unexpected::Answer::Received), unlock, place, complete, lock,
//! [`Unexpected::uncharge`]. A multi-receive buffer takes messages, one part each, until there is
//! none left or it closes; if it is still open it is posted.
//!
//! *Cancel*: [`Posted::cancel`]. *Close*: [`Posted::drain`] and [`Unexpected::drain`] until they
//! are empty.
//!
//! # Truncation
//!
//! A receive that is shorter than its message gets what fits ([`Placement`]). The receiver's
//! completion is an error entry: `err` is `KFI_ETRUNC`, `len` what was placed, `olen` what was
//! not. The sender's is a success: its message was accepted. That is what libfabric's reliable
//! datagram providers do; the Slingshot provider reports `EMSGSIZE` on both sides, which a sender
//! that asked for less than delivery could not be told.

pub mod posted;
pub mod unexpected;

pub use self::{
    posted::Posted,
    unexpected::Unexpected, //
};

use crate::errno::Errno;

/// What of a message matters for matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<S> {
    /// Who sent it.
    pub src: S,
    /// Its tag; 0 for a plain message.
    pub tag: u64,
}

/// What a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria<S> {
    /// From whom; `None`: from anybody (`KFI_ADDR_UNSPEC`).
    pub src: Option<S>,
    /// Its tag; 0 for a plain receive.
    pub tag: u64,
    /// Bits of the tag that do not matter; 0 for a plain receive.
    pub ignore: u64,
}

impl<S: PartialEq> Criteria<S> {
    /// Returns criteria for plain messages from `src`.
    pub const fn plain(src: Option<S>) -> Self {
        Self {
            src,
            tag: 0,
            ignore: 0,
        }
    }

    /// Returns whether a message fits: its tag is equal in all bits that are not ignored, and its
    /// source is the one wanted, if one is (fi_tagged(3)).
    pub fn matches(&self, message: &Envelope<S>) -> bool {
        (message.tag ^ self.tag) & !self.ignore == 0
            && self.src.as_ref().is_none_or(|src| *src == message.src)
    }
}

/// How a message fits into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes to place: `len` of the completion.
    pub len: u64,
    /// Bytes that do not fit: `olen` of the error entry.
    pub olen: u64,
}

impl Placement {
    /// Fits a message of `len` bytes into a buffer with `room` bytes.
    pub const fn new(len: u64, room: u64) -> Self {
        let placed = if len < room { len } else { room };
        Self {
            len: placed,
            olen: len.wrapping_sub(placed),
        }
    }

    /// Returns how the receive completes.
    ///
    /// # Errors
    ///
    /// `KFI_ETRUNC`: not all of the message fits.
    pub const fn status(&self) -> Result<(), Errno> {
        if self.olen > 0 {
            return Err(Errno::KFI_ETRUNC);
        }
        Ok(())
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_matching))]
mod tests {
    use super::*;

    fn fits(src: Option<u8>, tag: u64, ignore: u64, message: (u8, u64)) -> bool {
        let message = Envelope {
            src: message.0,
            tag: message.1,
        };
        Criteria { src, tag, ignore }.matches(&message)
    }

    #[test]
    fn tags_match_in_the_bits_that_matter() {
        assert!(fits(None, 5, 0, (1, 5)));
        assert!(!fits(None, 5, 0, (1, 4)));
        assert!(fits(None, 5, 1, (1, 4)));
        assert!(!fits(None, 5, 1, (1, 6)));
        assert!(fits(None, 0, u64::MAX, (1, u64::MAX)));
        // Ignored bits do not matter in the wanted tag either.
        assert!(fits(None, 0xff, 0xf0, (1, 0x0f)));
        assert!(!fits(None, 1 << 63, 0, (1, 0)));
        assert!(fits(None, 1 << 63, 1 << 63, (1, 0)));
    }

    #[test]
    fn sources_match_if_one_is_wanted() {
        assert!(fits(Some(1), 5, 0, (1, 5)));
        assert!(!fits(Some(2), 5, 0, (1, 5)));
        assert!(!fits(Some(2), 5, u64::MAX, (1, 5)));
        assert!(Criteria::plain(None).matches(&Envelope { src: 3, tag: 0 }));
        assert!(!Criteria::plain(Some(2)).matches(&Envelope { src: 3, tag: 0 }));
    }

    #[test]
    fn placement() {
        let fits = Placement::new(10, 10);
        assert_eq!(fits, Placement { len: 10, olen: 0 });
        assert_eq!(fits.status(), Ok(()));
        let short = Placement::new(10, 4);
        assert_eq!(short, Placement { len: 4, olen: 6 });
        assert_eq!(short.status(), Err(Errno::KFI_ETRUNC));
        assert_eq!(Placement::new(0, 0).status(), Ok(()));
        assert_eq!(Placement::new(1, 0), Placement { len: 0, olen: 1 });
        assert_eq!(Placement::new(u64::MAX, 0).olen, u64::MAX);
    }
}
