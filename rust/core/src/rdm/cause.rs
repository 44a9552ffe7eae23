// SPDX-License-Identifier: GPL-2.0
//! The causes for which connections end, and the errors of their operations.
//!
//! | cause | operations sent and not completed | operations not sent | error |
//! |---|---|---|---|
//! | [`Cause::Idle`], [`Cause::Superseded`] | there are none | continue | |
//! | [`Cause::Reset`] | fail | continue | `ECONNRESET` |
//! | [`Cause::Access`] | fail; the refused one with `EACCES` | RMA and atomics fail, messages continue | `ECONNRESET` |
//! | [`Cause::Protocol`] | fail | continue | `EPROTO` |
//! | [`Cause::Narrow`] | fail | continue | `EMSGSIZE` |
//! | [`Cause::Lost`] | fail | fail | `ETIMEDOUT` |
//! | [`Cause::Nobody`] | | fail | `ECONNREFUSED` |
//! | [`Cause::Busy`] | | fail, after [`CONNECT_TIME`] | `EBUSY` |
//! | [`Cause::Version`] | | fail | `EPROTONOSUPPORT` |
//! | [`Cause::Key`] | | fail | `ENOTCONN` |
//! | [`Cause::Unanswered`] | | fail | `ETIMEDOUT` |
//! | [`Cause::Unreachable`] | fail | fail | `EHOSTUNREACH` |
//! | [`Cause::NoAddress`] | fail | fail | `EADDRNOTAVAIL` |
//! | [`Cause::NoMtu`] | fail | fail | `EMSGSIZE` |
//! | [`Cause::LinkGone`] | fail | fail | `ENODEV` |
//! | [`Cause::Closed`] | end without a report | end | `ECANCELED` |
//!
//! A receive whose message had arrived in part fails with [`Cause::of_receive`].
//!
//! Operations that continue use a new connection to the peer. Operations that are posted after a
//! failure also use a new connection; earlier failures do not affect them.
//!
//! [`CONNECT_TIME`]: super::times::CONNECT_TIME

use super::hello::Refusal;
use crate::errno::Errno;

/// The cause for which a connection ends. See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Neither end had work for some time.
    Idle,
    /// Another connection replaced this one before it was used.
    Superseded,
    /// The peer has closed its endpoint, was restarted, or has lost its end of the connection.
    Reset,
    /// One end refused access to its memory.
    Access,
    /// One end violated the protocol.
    Protocol,
    /// The peer does not answer any more, or an answer of it is overdue.
    Lost,
    /// The path to the peer no longer carries packets of the connection's path MTU. The next
    /// connection uses a smaller one.
    Narrow,
    /// The peer has no such endpoint.
    Nobody,
    /// The peer has too many connections, or refuses each cookie that it has sent.
    Busy,
    /// The peer uses another version of the protocol.
    Version,
    /// The peer has another authorization key.
    Key,
    /// The peer did not answer the connection request.
    Unanswered,
    /// There is no route to the peer.
    Unreachable,
    /// The link does not have the endpoint's own address any more.
    NoAddress,
    /// The route or the interface carries no path MTU.
    NoMtu,
    /// The link was removed.
    LinkGone,
    /// The local endpoint closes.
    Closed,
}

impl Cause {
    /// Returns the error of the operations that fail for this cause.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Idle | Self::Superseded | Self::Reset | Self::Access => Errno::ECONNRESET,
            Self::Protocol => Errno::EPROTO,
            Self::Lost | Self::Unanswered => Errno::ETIMEDOUT,
            // Narrow: less than the connection uses; NoMtu: less than the smallest.
            Self::Narrow | Self::NoMtu => Errno::EMSGSIZE,
            Self::Nobody => Errno::ECONNREFUSED,
            Self::Busy => Errno::EBUSY,
            Self::Version => Errno::EPROTONOSUPPORT,
            Self::Key => Errno::ENOTCONN,
            Self::Unreachable => Errno::EHOSTUNREACH,
            Self::NoAddress => Errno::EADDRNOTAVAIL,
            Self::LinkGone => Errno::ENODEV,
            Self::Closed => Errno::ECANCELED,
        }
    }

    /// Returns the cause for a receive whose message had arrived in part: the message is lost, for
    /// whichever cause, or the peer violated the protocol, or this end closes.
    pub const fn of_receive(self) -> Self {
        match self {
            Self::Protocol | Self::Closed => self,
            _ => Self::Reset,
        }
    }

    /// Returns whether operations that were not sent continue, over another connection.
    pub const fn spares_unsent(self) -> bool {
        matches!(
            self,
            Self::Idle
                | Self::Superseded
                | Self::Reset
                | Self::Access
                | Self::Protocol
                | Self::Narrow
        )
    }

    /// Returns the same for RMA and atomics. Those queued behind a refused one fail: a user that
    /// tries keys could otherwise queue any number of them, and only posting is delayed.
    pub const fn spares_unsent_rma(self) -> bool {
        self.spares_unsent() && !matches!(self, Self::Access)
    }

    /// Returns the cause for a refusal.
    pub const fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Nobody => Self::Nobody,
            Refusal::Busy | Refusal::Retry(_) => Self::Busy,
            Refusal::Version => Self::Version,
            Refusal::Key => Self::Key,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_cause))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_fails_all_operations() {
        for cause in [
            Cause::Lost,
            Cause::Unanswered,
            Cause::Unreachable,
            Cause::NoAddress,
            Cause::NoMtu,
            Cause::LinkGone,
            Cause::Closed,
            Cause::of(Refusal::Nobody),
            Cause::of(Refusal::Version),
            Cause::of(Refusal::Busy),
            Cause::of(Refusal::Key),
        ] {
            assert!(!cause.spares_unsent());
        }
        assert!(Cause::Reset.spares_unsent_rma() && Cause::Narrow.spares_unsent_rma());
        assert!(Cause::Access.spares_unsent() && !Cause::Access.spares_unsent_rma());
        assert_eq!(Cause::Narrow.errno(), Errno::EMSGSIZE);
        assert_eq!(Cause::NoMtu.errno(), Errno::EMSGSIZE);
        assert_eq!(Cause::NoAddress.errno(), Errno::EADDRNOTAVAIL);
        assert_eq!(Cause::of(Refusal::Nobody).errno(), Errno::ECONNREFUSED);
        assert_eq!(Cause::of(Refusal::Key).errno(), Errno::ENOTCONN);
        assert_eq!(Cause::Reset.errno(), Errno::ECONNRESET);
    }

    #[test]
    fn a_violation_of_the_protocol_has_an_error_of_its_own() {
        assert_eq!(Cause::Protocol.errno(), Errno::EPROTO);
        assert!(Cause::Protocol.spares_unsent() && Cause::Protocol.spares_unsent_rma());
        assert_eq!(Cause::Protocol.of_receive(), Cause::Protocol);
        assert_eq!(Cause::Closed.of_receive(), Cause::Closed);
        for cause in [
            Cause::Reset,
            Cause::Access,
            Cause::Lost,
            Cause::Narrow,
            Cause::Unreachable,
            Cause::LinkGone,
        ] {
            assert_eq!(cause.of_receive(), Cause::Reset);
        }
    }
}
