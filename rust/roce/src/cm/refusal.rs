// SPDX-License-Identifier: GPL-2.0
//! Saying no without a connection.
//!
//! A [`Refusal`] is a REJ to a REQ for which nothing is kept: nobody listens, there is no room, it
//! cannot be granted. A duplicate of the REQ is refused again.

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

/// Bytes of the longest information in a refusal: a GID.
const INFO_MAX: usize = 16;

/// Why a REQ is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    info: [u8; INFO_MAX],
    info_len: usize,
}

impl Refusal {
    /// Refuses for this reason.
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            info: [0; INFO_MAX],
            info_len: 0,
        }
    }

    /// Refuses for this reason, with what the requester should have asked for.
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

    /// Returns the datagram that refuses a REQ with this transaction ID and [`Req::local_id`].
    ///
    /// [`Req::local_id`]: super::Req::local_id
    pub fn message(&self, tid: u64, remote_id: CommId) -> Mad {
        let info = self.info.get(..self.info_len).unwrap_or(&[]);
        let rej = Rej {
            local_id: CommId(0),
            remote_id,
            regarding: Regarding::Req,
            reason: self.reason,
            info: Private::new(info).unwrap_or(Private::NONE),
            private: Private::NONE,
        };
        let body = Body::Rej(rej);
        Message { tid, body }.write()
    }
}
