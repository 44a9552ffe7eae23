// SPDX-License-Identifier: GPL-2.0
//! What a connection tells its consumer, and what a consumer tells a connection.

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

/// The device as its peers see it.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its GUID. No two devices that can meet have the same.
    pub ca_guid: u64,
    /// The address by which it talks to the peer.
    pub ip: IpAddr,
    /// The largest path MTU of its interface.
    pub mtu: PathMtu,
    /// Most READs and atomics that a responder can have outstanding.
    pub responder_resources: u8,
    /// Most READs and atomics that a requester can have outstanding.
    pub initiator_depth: u8,
    /// How long to wait for what.
    pub timing: Timing,
}

/// This end's QP, as the peer shall know it.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that the peer shall send to it. Random, so that old packets are not taken for new
    /// ones.
    pub starting_psn: Psn,
    /// READs and atomics that its responder can have outstanding.
    pub responder_resources: u8,
    /// READs and atomics that its requester wants to have outstanding.
    pub initiator_depth: u8,
    /// How often the peer shall try again after an RNR NAK: 0 to 7, 7 for ever.
    pub rnr_retry_count: u8,
    /// Whether it has a shared receive queue.
    pub srq: bool,
}

/// What an active end asks for.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// What to call the connection: an ID that no other of the device has, best a random one.
    pub local_id: CommId,
    /// A transaction ID that no other message has of late.
    pub tid: u64,
    /// The peer.
    pub remote: IpAddr,
    /// What is asked for.
    pub service_id: ServiceId,
    /// This end's QP.
    pub side: Side,
    /// The path MTU; that of the device if this is larger.
    pub mtu: PathMtu,
    /// The least path MTU that will do: if the peer cannot have so large a one as it is asked for, but
    /// one not below this, it is asked for that.
    pub least_mtu: PathMtu,
    /// How often the peer's requester shall try again: 0 to 7.
    pub retry_count: u8,
    /// The private data; for the RDMA CM begun by an [`IpHeader`](super::super::IpHeader).
    pub private: Private<'a, { Req::PRIVATE_LEN }>,
}

/// A request for communication, as the passive end's consumer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks.
    pub from: IpAddr,
    /// What for.
    pub service_id: ServiceId,
    /// The peer's QP.
    pub qpn: Qpn,
    /// The first PSN that this end's QP shall send.
    pub starting_psn: Psn,
    /// The path MTU.
    pub mtu: PathMtu,
    /// READs and atomics that this end's responder should be able to have outstanding: what the peer
    /// wants, as far as the device can.
    pub responder_resources: u8,
    /// READs and atomics that this end's requester may have outstanding: what the peer can take, as
    /// far as the device can.
    pub initiator_depth: u8,
    /// How often this end's requester shall try again.
    pub retry_count: u8,
    /// How often this end's requester shall try again after an RNR NAK.
    pub rnr_retry_count: u8,
    /// The local ACK timeout for this end's requester.
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

/// The answer to a request, as the active end's consumer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The peer's QP.
    pub qpn: Qpn,
    /// The first PSN that this end's QP shall send.
    pub starting_psn: Psn,
    /// The path MTU: what was asked for last.
    pub mtu: PathMtu,
    /// READs and atomics that this end's responder will have outstanding at most: what the peer
    /// wants, as far as this end offered it.
    pub responder_resources: u8,
    /// READs and atomics that this end's requester may have outstanding: what the peer can take, as
    /// far as this end asked for it.
    pub initiator_depth: u8,
    /// How often this end's requester shall try again after an RNR NAK.
    pub rnr_retry_count: u8,
    /// The local ACK timeout for this end's requester.
    pub ack_timeout: Timeout,
    /// Whether the peer's QP has a shared receive queue.
    pub srq: bool,
    /// The private data, 196 bytes.
    pub private: &'a [u8],
}

/// What has happened to a connection.
///
/// After [`Rejected`](Self::Rejected), [`Unreachable`](Self::Unreachable),
/// [`Disconnected`](Self::Disconnected) or [`Released`](Self::Released), of which a connection has at
/// most one, only [`Closed`](Self::Closed) comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Active: the peer accepts. The consumer makes its QP ready and calls
    /// [`confirm`](super::Connection::confirm), or [`reject`](super::Connection::reject).
    Reply(Reply<'a>),
    /// Passive: the peer is ready to use. With the private data, 224 bytes.
    Established(&'a [u8]),
    /// The peer says no.
    Rejected {
        /// Why.
        reason: Reason,
        /// Additional information, of which kind depends on the reason.
        info: &'a [u8],
        /// The private data: 148 bytes, or none if nobody sent any.
        private: &'a [u8],
    },
    /// The peer does not answer.
    Unreachable,
    /// The peer has disconnected. With the private data: 220 bytes, or none if nobody sent any.
    Disconnected(&'a [u8]),
    /// This end has disconnected, and the peer knows it or does not answer.
    Released,
    /// Nothing comes any more: the connection can be forgotten, and its QP's number used again.
    Closed,
}

impl Event<'_> {
    /// Returns whether it is the last event of a connection but for [`Closed`](Self::Closed).
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Reply(_) | Self::Established(_))
    }

    /// Returns whether it is [`Reply`](Self::Reply).
    pub const fn is_reply(&self) -> bool {
        matches!(self, Self::Reply(_))
    }
}

/// Why a message was ignored. Each is to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ignored {
    /// It comes from another address than the peer's.
    Source,
    /// The communication IDs, the GUID or the QP in it are not this connection's.
    Ids,
    /// It is one that was heard before. What it wants is said again.
    Duplicate,
    /// It means nothing in this state.
    State,
}

impl Ignored {
    /// All of them; each stands at its number, `as usize`.
    pub const ALL: [Self; 4] = [Self::Source, Self::Ids, Self::Duplicate, Self::State];

    /// Returns its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Ids => "ids",
            Self::Duplicate => "duplicate",
            Self::State => "state",
        }
    }
}
