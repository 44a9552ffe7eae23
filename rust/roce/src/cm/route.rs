// SPDX-License-Identifier: GPL-2.0
//! Finding the connection to which a message belongs, and the answer if there is none.
//!
//! The owner of the connections keeps three maps: by the local [`CommId`], by the peer's GUID and
//! `CommId`, and by the peer's GUID and QP. [`Message::route`] returns the key for a message:
//!
//! | route | key | if there is one | if there is none |
//! |---|---|---|---|
//! | [`Request`](Route::Request) | GUID and ID | [`Connection::receive`] | the rule for new requests |
//! | [`Local`](Route::Local) | own ID | [`Connection::receive`] | send [`Message::unknown`] |
//! | [`Remote`](Route::Remote) | GUID and ID | [`Connection::receive`] | nothing |
//!
//! The rule for new requests:
//!
//! 1. If an established connection with the peer's GUID and QP, or with the GUID and ID
//!    ([`Ignored::Reused`]), exists, it is [stale](Connection::stale), and the request is rejected
//!    with [`Reason::STALE_CONN`]. The owner may ask for a proof first that the address of the
//!    request is not forged.
//! 2. If the service ID has no listener, the request is rejected with
//!    [`Reason::INVALID_SERVICE_ID`].
//! 3. If there is no room for another connection, it is rejected with [`Reason::NO_RESOURCES`].
//! 4. Otherwise [`Connection::request`] makes the connection.
//!
//! A REP gives the GUID and QP of the peer, and the owner looks for them in the same way. Another
//! connection that has them is stale. The new one is [rejected](Connection::reject) with
//! [`Reason::STALE_CONN`] too, because it is unknown which of the two the peer means.
//!
//! Source: InfiniBand specification, volume 1, section 12.9.8.3.

#[cfg(doc)]
use super::{
    Connection,
    Ignored, //
};

use super::{
    Body,
    CommId,
    Drep,
    Mad,
    Message,
    Private,
    Reason,
    Regarding,
    Rej, //
};

/// The key by which to find the connection of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A REQ: a connection with this GUID and ID of the peer means that the REQ is a duplicate.
    Request {
        /// The GUID of the peer's device.
        ca_guid: u64,
        /// The communication ID of the peer.
        remote_id: CommId,
    },
    /// The connection with this local communication ID.
    Local(CommId),
    /// A REJ of a peer that gave up before it knew this end's ID.
    Remote {
        /// The GUID of the peer's device.
        ca_guid: u64,
        /// The communication ID of the peer.
        remote_id: CommId,
    },
}

impl Message<'_> {
    /// Returns the key by which to find the connection of this message.
    pub fn route(&self) -> Route {
        Route::Local(match &self.body {
            Body::Req(req) => {
                return Route::Request {
                    ca_guid: req.ca_guid,
                    remote_id: req.local_id,
                };
            }
            Body::Rej(rej) => match rej.timed_out() {
                Some(ca_guid) if rej.remote_id == CommId(0) => {
                    return Route::Remote {
                        ca_guid,
                        remote_id: rej.local_id,
                    };
                }
                _ => rej.remote_id,
            },
            Body::Mra(mra) => mra.remote_id,
            Body::Rep(rep) => rep.remote_id,
            Body::Rtu(rtu) => rtu.remote_id,
            Body::Dreq(dreq) => dreq.remote_id,
            Body::Drep(drep) => drep.remote_id,
        })
    }

    /// Returns the answer to a message whose connection does not exist. A DREQ is confirmed,
    /// because the connection is gone as it requests. A REP is rejected, so that its sender stops
    /// waiting. Other messages get no answer.
    pub fn unknown(&self) -> Option<Mad> {
        let body = match &self.body {
            Body::Dreq(dreq) => Body::Drep(Drep {
                local_id: dreq.remote_id,
                remote_id: dreq.local_id,
                private: Private::NONE,
            }),
            Body::Rep(rep) => Body::Rej(Rej {
                local_id: rep.remote_id,
                remote_id: rep.local_id,
                regarding: Regarding::Rep,
                reason: Reason::INVALID_COMM_ID,
                info: Private::NONE,
                private: Private::NONE,
            }),
            _ => return None,
        };
        let tid = self.tid;
        Some(Message { tid, body }.write())
    }
}

impl Rej<'_> {
    /// Returns the GUID of the sender if the REJ says that it got no answer in time.
    pub(super) fn timed_out(&self) -> Option<u64> {
        let guid = self.info.get().first_chunk()?;
        (self.reason == Reason::TIMEOUT).then_some(u64::from_be_bytes(*guid))
    }
}
