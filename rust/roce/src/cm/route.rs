// SPDX-License-Identifier: GPL-2.0
//! To which connection a message belongs, and what to answer where there is none.
//!
//! Who owns connections keeps three maps: by [`CommId`] of its own, by the peer's GUID and `CommId`,
//! by the peer's GUID and QP. [`Message::route`] says where to look for a message:
//!
//! | route | look for | if there is one | if there is none |
//! |---|---|---|---|
//! | [`Request`](Route::Request) | GUID and ID | [`Connection::receive`] | the rule for new requests |
//! | [`Local`](Route::Local) | own ID | [`Connection::receive`] | send [`Message::unknown`] |
//! | [`Remote`](Route::Remote) | GUID and ID | [`Connection::receive`] | nothing |
//!
//! The rule for new requests: a connection with the peer's GUID and QP is
//! [stale](Connection::stale), and the request is refused for [`Reason::STALE_CONN`]. Else, without a
//! listener for the service ID, it is refused for [`Reason::INVALID_SERVICE_ID`]; without room for
//! another connection for [`Reason::NO_RESOURCES`]; else [`Connection::request`].
//!
//! When a REP has been received, GUID and QP of the peer are known and looked for likewise: another
//! connection that has them is stale, and the new one is [rejected](Connection::reject) for
//! [`Reason::STALE_CONN`], since it is not known which of the two the peer means.
//!
//! Source: InfiniBand specification, volume 1, section 12.9.8.3.

#[cfg(doc)]
use super::Connection;

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

/// Where to look for a message's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A REQ: a connection with this GUID and ID of the peer has asked before.
    Request {
        /// The GUID of the peer's device.
        ca_guid: u64,
        /// What the peer calls the connection.
        remote_id: CommId,
    },
    /// The connection that this end calls so.
    Local(CommId),
    /// A REJ from a peer that gave up before it was told this end's ID.
    Remote {
        /// The GUID of the peer's device.
        ca_guid: u64,
        /// What the peer calls the connection.
        remote_id: CommId,
    },
}

impl Message<'_> {
    /// Returns where to look for its connection.
    pub fn route(&self) -> Route {
        Route::Local(match &self.body {
            Body::Req(req) => {
                return Route::Request {
                    ca_guid: req.ca_guid,
                    remote_id: req.local_id,
                };
            }
            Body::Rej(rej) => match rej.gave_up() {
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

    /// Returns what to answer if there is no such connection: a DREQ is granted, since that is what
    /// it asks for; a REP is rejected, so that its sender need not wait. The rest is ignored.
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
    /// Returns the GUID of a sender that was not answered in time.
    pub(super) fn gave_up(&self) -> Option<u64> {
        let guid = self.info.get().first_chunk()?;
        (self.reason == Reason::TIMEOUT).then_some(u64::from_be_bytes(*guid))
    }
}
