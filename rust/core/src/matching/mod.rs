// SPDX-License-Identifier: GPL-2.0
//! Matching of messages with receives.
//!
//! A message has an [`Envelope`], a receive has [`Criteria`]. An endpoint keeps two queues for
//! plain messages and two for tagged ones; plain and tagged ones never match:
//! - [`Posted`]: receives that wait for a message, in the order of posting;
//! - [`Unexpected`]: messages that wait for a receive, in the order of arrival.
//!
//! A message takes the first posted receive that matches it; otherwise it joins the unexpected
//! messages. A receive takes the first unexpected message that matches it; otherwise it joins the
//! posted receives. The search and the joining must be done under one lock. Messages between two
//! endpoints are then matched in the order in which they were sent (fi_tagged(3), "Ordering").
//!
//! # Sources
//!
//! The queues compare sources of a type `S` of the caller. The RDM endpoint uses the socket address
//! ([`SockAddr`](crate::addr::SockAddr)) instead of the `kfi_addr_t`, because an address can have
//! several `kfi_addr_t`, or get its first one after its message arrived. The `kfi_addr_t` of a
//! directed receive is converted to an address when it is posted. The address of a message is
//! converted to a `kfi_addr_t` (or `KFI_ADDR_NOTAVAIL`) when its completion is written.
//!
//! # Usage by an endpoint
//!
//! *A message arrives* (in the sender's context, or from the wire):
//! 1. Lock, and call [`Posted::match_message`]. If it finds a plain receive, take it out
//!    ([`posted::Match::take`]). Of a multi-receive buffer take a part
//!    ([`MultiRecv::take`](crate::multi_recv::MultiRecv::take)); the buffer stays in the queue
//!    unless that closed it. Unlock, place the bytes, and complete both sides. If placing fails on
//!    the sender's side, [`Posted::put_back`] restores a plain receive at its position.
//! 2. Without a receive, for a message up to [`EAGER_SIZE`](crate::limits::EAGER_SIZE): charge its
//!    bytes with [`Unexpected::charge`], unlock, allocate memory and copy, lock, and **search the
//!    posted receives again**; only then call [`Unexpected::arrive`]. A longer message arrives
//!    immediately, with nothing charged, and stays in the sender's memory. The sender's next
//!    message must not overtake it: a sender posts one message after another.
//! 3. Without room ([`Full`](crate::slab::Full), or `charge` fails), the message stays with the
//!    sender, which tries again after a message has been taken here.
//!
//! *A receive is posted*: lock, and call [`Unexpected::receive`]. For
//! [`Answer::Post`](unexpected::Answer::Post), call [`Posted::post`] under the same lock. For
//! [`Answer::Received`](unexpected::Answer::Received), unlock, place, complete, lock, and call
//! [`Unexpected::uncharge`]. A multi-receive buffer takes messages, one part each, until there is
//! none left or it closes; if it is still open it is posted.
//!
//! *Cancel*: [`Posted::cancel`]. *Close*: [`Posted::drain`] and [`Unexpected::drain`] until they
//! are empty.
//!
//! # Truncation
//!
//! A receive that is shorter than its message gets the part that fits ([`Placement`]). The
//! receiver's completion is an error entry: `err` is `KFI_ETRUNC`, `len` the number of bytes
//! placed, `olen` the number of bytes not placed. The sender's completion is a success, because its
//! message was accepted. Libfabric's reliable datagram providers do the same. The Slingshot
//! provider reports `EMSGSIZE` on both sides, which is impossible for a sender that completes
//! before delivery.

pub mod posted;
pub mod unexpected;

pub use self::{
    posted::Posted,
    unexpected::Unexpected, //
};

use crate::errno::Errno;

/// The properties of a message that matching uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<S> {
    /// The source.
    pub src: S,
    /// The tag; 0 for a plain message.
    pub tag: u64,
}

/// The messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criteria<S> {
    /// The source; `None` for any (`KFI_ADDR_UNSPEC`).
    pub src: Option<S>,
    /// The tag; 0 for a plain receive.
    pub tag: u64,
    /// The bits of the tag that are ignored; 0 for a plain receive.
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

    /// Returns whether a message matches: its tag is equal in all bits that are not ignored, and
    /// its source is the requested one, if there is one (fi_tagged(3)).
    pub fn matches(&self, message: &Envelope<S>) -> bool {
        (message.tag ^ self.tag) & !self.ignore == 0
            && self.src.as_ref().is_none_or(|src| *src == message.src)
    }
}

/// The result of placing a message into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The number of bytes to place: `len` of the completion.
    pub len: u64,
    /// The number of bytes that do not fit: `olen` of the error entry.
    pub olen: u64,
}

impl Placement {
    /// Computes the placement of a message of `len` bytes into a buffer with `room` bytes.
    pub const fn new(len: u64, room: u64) -> Self {
        let placed = if len < room { len } else { room };
        Self {
            len: placed,
            olen: len.wrapping_sub(placed),
        }
    }

    /// Returns the status of the receive.
    ///
    /// # Errors
    ///
    /// `KFI_ETRUNC`: the message does not fit.
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
    fn tags_match_in_the_bits_not_ignored() {
        assert!(fits(None, 5, 0, (1, 5)));
        assert!(!fits(None, 5, 0, (1, 4)));
        assert!(fits(None, 5, 1, (1, 4)));
        assert!(!fits(None, 5, 1, (1, 6)));
        assert!(fits(None, 0, u64::MAX, (1, u64::MAX)));
        // Ignored bits may also differ in the requested tag.
        assert!(fits(None, 0xff, 0xf0, (1, 0x0f)));
        assert!(!fits(None, 1 << 63, 0, (1, 0)));
        assert!(fits(None, 1 << 63, 1 << 63, (1, 0)));
    }

    #[test]
    fn sources_match_if_one_is_requested() {
        assert!(fits(Some(1), 5, 0, (1, 5)));
        assert!(!fits(Some(2), 5, 0, (1, 5)));
        assert!(!fits(Some(2), 5, u64::MAX, (1, 5)));
        assert!(Criteria::plain(None).matches(&Envelope { src: 3, tag: 0 }));
        assert!(!Criteria::plain(Some(2)).matches(&Envelope { src: 3, tag: 0 }));
    }

    #[test]
    fn placement_truncates_long_messages() {
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
