// SPDX-License-Identifier: GPL-2.0
//! The events that a connection reports to its consumer, and the parameters that a consumer gives.

use super::super::{
    super::{
        headers::Qpn,
        mtu::PathMtu,
        psn::Psn, //
    },
    CommId,
    Private,
    Reason,
    Req,
    ServiceId,
    Timeout,
    Timing, //
};
use core::net::IpAddr;

/// The local device, as its peers see it.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// The GUID of the device. No two devices that can reach each other have the same one.
    pub ca_guid: u64,
    /// The local IP address of the connection.
    pub ip: IpAddr,
    /// The largest path MTU of the network interface.
    pub mtu: PathMtu,
    /// The maximum number of READs and atomics that a responder can have outstanding.
    pub responder_resources: u8,
    /// The maximum number of READs and atomics that a requester can have outstanding.
    pub initiator_depth: u8,
    /// The timeouts and retry counts of connection management.
    pub timing: Timing,
}

/// The parameters of the local QP that are sent to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The number of the QP.
    pub qpn: Qpn,
    /// The first PSN that the peer sends to this QP. It is random, so that packets of an earlier
    /// connection are not accepted as new ones.
    pub starting_psn: Psn,
    /// The number of READs and atomics that the responder can have outstanding.
    pub responder_resources: u8,
    /// The number of READs and atomics that the requester wants to have outstanding.
    pub initiator_depth: u8,
    /// How often the peer retries after an RNR NAK: 0 to 7; 7 means without limit.
    pub rnr_retry_count: u8,
    /// Whether the QP has a shared receive queue.
    pub srq: bool,
}

/// The parameters of a connection request at the active end.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The local communication ID: one that no other connection of the device has, preferably
    /// random.
    pub local_id: CommId,
    /// A transaction ID that no other recent message has.
    pub tid: u64,
    /// The peer.
    pub remote: IpAddr,
    /// The service ID that the request names.
    pub service_id: ServiceId,
    /// The local QP.
    pub side: Side,
    /// The path MTU to request. The device's is requested if this one is larger.
    pub mtu: PathMtu,
    /// The smallest path MTU that is acceptable. If the peer rejects the requested path MTU and
    /// proposes a smaller one that is not below this, the request is repeated with the proposed
    /// one.
    pub least_mtu: PathMtu,
    /// The retry count for the peer's requester: 0 to 7.
    pub retry_count: u8,
    /// The private data. For the RDMA CM it begins with an [`IpHeader`](super::super::IpHeader).
    pub private: Private<'a, { Req::PRIVATE_LEN }>,
}

/// A connection request, as the consumer of the passive end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The IP address of the sender.
    pub from: IpAddr,
    /// The service ID that the request names.
    pub service_id: ServiceId,
    /// The peer's QP.
    pub qpn: Qpn,
    /// The first PSN that the local QP has to send.
    pub starting_psn: Psn,
    /// The path MTU.
    pub mtu: PathMtu,
    /// The number of READs and atomics that the local responder should be able to have outstanding:
    /// the number that the peer wants, limited to what the device supports.
    pub responder_resources: u8,
    /// The number of READs and atomics that the local requester may have outstanding: the number
    /// that the peer supports, limited to what the device supports.
    pub initiator_depth: u8,
    /// The retry count for the local requester.
    pub retry_count: u8,
    /// The retry count after an RNR NAK for the local requester.
    pub rnr_retry_count: u8,
    /// The local ACK timeout for the local requester.
    pub ack_timeout: Timeout,
    /// The flow label of packets to the peer.
    pub flow_label: u32,
    /// The traffic class of packets to the peer.
    pub traffic_class: u8,
    /// Whether the peer's QP has a shared receive queue.
    pub srq: bool,
    /// The private data.
    pub private: &'a [u8; Req::PRIVATE_LEN],
}

/// The reply to a request, as the consumer of the active end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The peer's QP.
    pub qpn: Qpn,
    /// The first PSN that the local QP has to send.
    pub starting_psn: Psn,
    /// The path MTU: the one that was requested last.
    pub mtu: PathMtu,
    /// The maximum number of READs and atomics that the local responder will have outstanding: the
    /// number that the peer wants, limited to what was offered in the REQ.
    pub responder_resources: u8,
    /// The number of READs and atomics that the local requester may have outstanding: the number
    /// that the peer supports, limited to what was requested in the REQ.
    pub initiator_depth: u8,
    /// The retry count after an RNR NAK for the local requester.
    pub rnr_retry_count: u8,
    /// The local ACK timeout for the local requester.
    pub ack_timeout: Timeout,
    /// Whether the peer's QP has a shared receive queue.
    pub srq: bool,
    /// The private data, 196 bytes.
    pub private: &'a [u8],
}

/// An event of a connection.
///
/// A connection reports at most one of [`Rejected`](Self::Rejected),
/// [`Unreachable`](Self::Unreachable), [`Disconnected`](Self::Disconnected) and
/// [`Released`](Self::Released). Only [`Closed`](Self::Closed) follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Active end: the peer accepts. The consumer moves its QP to RTS and calls
    /// [`confirm`](super::Connection::confirm), or calls [`reject`](super::Connection::reject).
    Reply(Reply<'a>),
    /// Passive end: the peer has sent an RTU. The slice is its private data, 224 bytes.
    Established(&'a [u8]),
    /// The peer has rejected the connection.
    Rejected {
        /// The reason.
        reason: Reason,
        /// Additional information; its format depends on the reason.
        info: &'a [u8],
        /// The private data: 148 bytes, or none if the rejection was not caused by a message with
        /// private data.
        private: &'a [u8],
    },
    /// The peer has not answered, and the retries are used up.
    Unreachable,
    /// The peer has disconnected. The slice is the private data: 220 bytes, or empty if no DREQ was
    /// received.
    Disconnected(&'a [u8]),
    /// This end has disconnected, and the peer has confirmed that or has not answered.
    Released,
    /// The connection is over. The consumer can free it and use its QP number again.
    Closed,
}

impl Event<'_> {
    /// Returns whether no event but [`Closed`](Self::Closed) follows this one.
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Reply(_) | Self::Established(_))
    }

    /// Returns whether it is [`Reply`](Self::Reply).
    pub const fn is_reply(&self) -> bool {
        matches!(self, Self::Reply(_))
    }
}

crate::counted_reasons! {
    /// The reason for which a message was ignored. The caller counts each.
    Ignored {
        /// The source address is not the peer's.
        Source = "source",
        /// The communication IDs, the GUID or the QP number are not those of this connection.
        Ids = "ids",
        /// The message is a duplicate. The answer to it is sent again.
        Duplicate = "duplicate",
        /// The message is not valid in this state.
        State = "state",
        /// A REQ has the communication ID of this connection, which is established, and is for
        /// another one. The caller applies the rule for new requests
        /// ([`Route`](super::super::Route)).
        Reused = "reused",
    }
}
