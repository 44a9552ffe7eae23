// SPDX-License-Identifier: GPL-2.0
//! Why a connection ends, and what its operations are told.
//!
//! | cause | operations sent over it, and not done | not sent yet | error |
//! |---|---|---|---|
//! | [`Cause::Idle`], [`Cause::Superseded`] | there are none | go on | |
//! | [`Cause::Reset`] | fail | go on | `ECONNRESET` |
//! | [`Cause::Access`] | fail; the one that was refused with `EACCES` | RMA fails, messages go on | `ECONNRESET` |
//! | [`Cause::Protocol`] | fail | go on | `EPROTO` |
//! | [`Cause::Narrow`] | fail | go on | `EMSGSIZE` |
//! | [`Cause::Lost`] | fail | fail | `ETIMEDOUT` |
//! | [`Cause::Nobody`] | | fail | `ECONNREFUSED` |
//! | [`Cause::Busy`] | | fail, after [`CONNECT_TIME`] | `EBUSY` |
//! | [`Cause::Version`] | | fail | `EPROTONOSUPPORT` |
//! | [`Cause::Unanswered`] | | fail | `ETIMEDOUT` |
//! | [`Cause::Unreachable`] | fail | fail | `EHOSTUNREACH` |
//! | [`Cause::LinkGone`] | fail | fail | `ENODEV` |
//! | [`Cause::Closed`] | end, nothing is reported | end | `ECANCELED` |
//!
//! "Go on" means that the peer is connected anew. So it is for what is posted after a failure,
//! whatever that was: nothing is remembered of it.
//!
//! [`CONNECT_TIME`]: super::times::CONNECT_TIME

use super::hello::Refusal;
use crate::errno::Errno;

/// See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Both ends had nothing to say for a while.
    Idle,
    /// Another one has taken its place before it was used.
    Superseded,
    /// The peer has closed, has been started again, or has lost its end of the connection.
    Reset,
    /// One end refused access to its memory.
    Access,
    /// One end did not keep to the protocol.
    Protocol,
    /// The peer does not answer any more.
    Lost,
    /// The path to the peer carries no packets of the connection's path MTU any more. The next
    /// connection has a smaller one.
    Narrow,
    /// There is no such endpoint at the peer.
    Nobody,
    /// The peer has too many connections.
    Busy,
    /// The peer speaks another version.
    Version,
    /// The peer did not answer the request for a connection.
    Unanswered,
    /// There is no way to the peer.
    Unreachable,
    /// The link has gone.
    LinkGone,
    /// This endpoint closes.
    Closed,
}

impl Cause {
    /// Returns the error of the operations that fail with it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Idle | Self::Superseded | Self::Reset | Self::Access => Errno::ECONNRESET,
            Self::Protocol => Errno::EPROTO,
            Self::Lost | Self::Unanswered => Errno::ETIMEDOUT,
            Self::Narrow => Errno::EMSGSIZE,
            Self::Nobody => Errno::ECONNREFUSED,
            Self::Busy => Errno::EBUSY,
            Self::Version => Errno::EPROTONOSUPPORT,
            Self::Unreachable => Errno::EHOSTUNREACH,
            Self::LinkGone => Errno::ENODEV,
            Self::Closed => Errno::ECANCELED,
        }
    }

    /// Returns whether operations that were not sent yet go on, over another connection.
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

    /// Returns the same for RMA. The next keys are not tried after one that was refused: whoever looks
    /// for a key could queue any number, and would be delayed when posting them only.
    pub const fn spares_unsent_rma(self) -> bool {
        self.spares_unsent() && !matches!(self, Self::Access)
    }

    /// Returns the cause that a refusal is.
    pub const fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Nobody => Self::Nobody,
            Refusal::Busy => Self::Busy,
            Refusal::Version => Self::Version,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_cause))]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_there_fails_everything() {
        for cause in [
            Cause::Lost,
            Cause::Unanswered,
            Cause::Unreachable,
            Cause::LinkGone,
            Cause::Closed,
            Cause::of(Refusal::Nobody),
            Cause::of(Refusal::Version),
            Cause::of(Refusal::Busy),
        ] {
            assert!(!cause.spares_unsent());
        }
        assert!(Cause::Reset.spares_unsent_rma() && Cause::Narrow.spares_unsent_rma());
        assert!(Cause::Access.spares_unsent() && !Cause::Access.spares_unsent_rma());
        assert_eq!(Cause::Narrow.errno(), Errno::EMSGSIZE);
        assert_eq!(Cause::of(Refusal::Nobody).errno(), Errno::ECONNREFUSED);
        assert_eq!(Cause::Reset.errno(), Errno::ECONNRESET);
    }
}
