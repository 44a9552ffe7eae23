// SPDX-License-Identifier: GPL-2.0
//! The errors of calls that their caller can avoid.
//!
//! What a peer does wrong is no error of a call; the types beside each call tell it.

use core::fmt;

/// Result of a call that can fail with an [`Error`].
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The arguments are not valid, or not in this state (`Error::Invalid`).
    Invalid,
    /// The queue has no room (`Error::Full`).
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
