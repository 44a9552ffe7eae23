// SPDX-License-Identifier: GPL-2.0
//! The errors of calls whose arguments or state the caller can check.
//!
//! Errors of a peer are not errors of a call; the result type of each call reports them.

use core::fmt;

/// Result of a call that can fail with an [`Error`].
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// The reason for which a call was refused. The call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The arguments are invalid, or invalid in this state (`Error::Invalid`).
    Invalid,
    /// The queue is full (`Error::Full`).
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid argument",
            Self::Full => "the queue is full",
        })
    }
}

impl core::error::Error for Error {}
