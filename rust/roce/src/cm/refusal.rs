// SPDX-License-Identifier: GPL-2.0
//! Rejection of a REQ without keeping a connection.
//!
//! A [`Refusal`] is a REJ to a REQ for which no state is kept: there is no listener, there is no
//! room, or the REQ cannot be granted. A duplicate of the REQ is rejected again.

use super::{
    Body,
    CommId,
    Mad,
    Message,
    Private,
    Reason,
    Regarding,
    Rej, //
};

/// The length in bytes of the longest additional information in a refusal: a GID.
const INFO_MAX: usize = 16;

/// A rejection: the reason and the additional information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    info: [u8; INFO_MAX],
    info_len: usize,
}

impl Refusal {
    /// Rejects for `reason`.
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            info: [0; INFO_MAX],
            info_len: 0,
        }
    }

    /// Rejects for `reason`, with the value that the requester should have used as additional
    /// information.
    pub(super) fn with(reason: Reason, info: &[u8]) -> Self {
        let mut refusal = Self::new(reason);
        for (place, byte) in refusal.info.iter_mut().zip(info) {
            *place = *byte;
        }
        refusal.info_len = info.len().min(INFO_MAX);
        refusal
    }

    /// Returns the reason.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the datagram that rejects the REQ with this transaction ID and this
    /// [`Req::local_id`].
    ///
    /// [`Req::local_id`]: super::Req::local_id
    pub fn message(&self, tid: u64, remote_id: CommId) -> Mad {
        self.message_with(tid, remote_id, Private::NONE)
    }

    /// Returns the same datagram with private data.
    pub fn message_with(&self, tid: u64, remote_id: CommId, private: Private<'_, 148>) -> Mad {
        let info = self.info.get(..self.info_len).unwrap_or(&[]);
        let rej = Rej {
            local_id: CommId(0),
            remote_id,
            regarding: Regarding::Req,
            reason: self.reason,
            info: Private::new(info).unwrap_or(Private::NONE),
            private,
        };
        let body = Body::Rej(rej);
        Message { tid, body }.write()
    }
}
