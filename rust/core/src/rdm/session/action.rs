// SPDX-License-Identifier: GPL-2.0
//! The values that a session and its caller exchange: actions, work for the QP, and results.

use super::super::{
    cause::Cause,
    header::Header,
    hello::{
        Hello,
        Refusal, //
    },
    ops::Lane, //
};
use crate::{
    auth_key::AuthKey,
    errno::{
        Errno,
        Result, //
    },
    flags::Caps, //
};

/// A connection of an endpoint, identified by the epoch in which it was requested or accepted.
/// Epochs are not reused, so the identifier stays unique when a session is freed and another one is
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn(pub(super) u64);

/// The parameters of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The incarnation of the endpoint.
    pub incarnation: u64,
    /// The port of its address.
    pub port: u16,
    /// The port of its name: of the scalable endpoint if it is a context, otherwise `port`.
    pub name_port: u16,
    /// Its capabilities.
    pub caps: Caps,
    /// Its authorization key.
    pub auth_key: AuthKey,
    /// The number of work requests that a QP holds: [`DEPTH`](super::super::times::DEPTH).
    pub depth: u32,
    /// The number of READs that this end serves, and requests, at the same time:
    /// [`READS`](super::super::times::READS).
    pub reads: u8,
    /// The time in ns after which an idle connection ends:
    /// [`IDLE_TIME`](super::super::times::IDLE_TIME).
    pub idle_time: u64,
}

/// What the caller knows of the peer, besides the events that it has passed to the session. Not
/// every packet of the peer causes a call of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The time in ns at which the QP last received a packet of the peer.
    pub received_at: u64,
    /// The time in ns at which the peer last transferred bytes of an operation: it read a message,
    /// accessed registered memory, or sent bytes of a RESULT.
    pub moved_at: u64,
}

/// An action for the connections. The caller executes it without the lock of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Make a QP and send a connection request with this private data. The result is passed to
    /// [`Session::accepted`](super::Session::accepted),
    /// [`Session::rejected`](super::Session::rejected), or
    /// [`Session::failed`](super::Session::failed).
    Connect(Conn, Hello),
    /// Free the QP and the connection. Tell the peer, unless the cause is that it does not answer.
    /// Then call [`Session::closed`](super::Session::closed).
    Close(Conn, Cause),
}

/// The answer to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Make a QP and accept with this private data. The result is passed to
    /// [`Session::established`](super::Session::established) or
    /// [`Session::failed`](super::Session::failed).
    Accept(Conn, Hello),
    /// Reject the request.
    Refuse(Refusal),
    /// Do not answer. If the request is repeated, pass it again.
    Ignore,
}

/// An item of work of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// The message with this number.
    Message(u64),
    /// The atomic with this number.
    Atomic(u64),
    /// A piece of the RMA operation with this number. Pieces are counted from 0.
    Piece(u64, u32),
    /// The CQ data of the RMA operation with this number.
    Note(u64),
    /// The CANCEL of the message with this number.
    Cancel(u64),
    /// A READ of this many bytes for the answer with this number.
    Read(u64, u32),
    /// The FIN or the RESULT of the answer with this number.
    Finish(u64),
    /// Another header.
    Signal(Signal),
}

/// The headers that belong to no operation or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// [`Header::Keep`].
    Keep,
    /// [`Header::Ping`].
    Ping,
    /// [`Header::Retire`].
    Retire,
    /// [`Header::Retired`].
    Retired,
    /// [`Header::Bye`].
    Bye,
}

/// The work request for an item of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SEND this header, followed by the bytes of the message if it is an eager one. The bytes of
    /// another message must be readable by the peer from now on, see
    /// [`Grant`](super::super::grant::Grant). An atomic is followed by its payload.
    Send(Header),
    /// SEND [`Header::Result`], followed by the old values of the atomic, or the bytes of the
    /// tagged read, that this answer belongs to.
    Result {
        /// The number of the answer.
        answer: u64,
        /// The number of the operation.
        id: u64,
        /// The length of the values or bytes.
        len: u32,
    },
    /// SEND [`Header::Bye`] with the number that
    /// [`Inbound::shut`](super::super::inbound::Inbound::shut) returns.
    Bye,
    /// READ from the peer's memory into the receive of this answer.
    Read {
        /// The number of the answer.
        answer: u64,
        /// The offset in the receive.
        offset: u32,
        /// The number of bytes.
        len: u32,
        /// The address in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
    },
    /// READ or WRITE a piece of an RMA operation, or change it by an atomic.
    Rma {
        /// The number of the operation.
        number: u64,
        /// The index of the piece.
        piece: u32,
        /// Whether the peer counts the operation with this piece. A WRITE then has immediate data,
        /// whose value is unused.
        counts: bool,
    },
}

/// An operation that has ended. No QP accesses its memory any more.
#[derive(Debug)]
pub enum Ended<O, R> {
    /// A message, an RMA operation or an atomic.
    Op(O, Result),
    /// A receive that was filled, or read by a tagged read; or the old values of an atomic of the
    /// peer, which were sent, or cannot be sent.
    Receive(R, Result),
}

/// The next action.
#[derive(Debug)]
pub enum Action<O, R> {
    /// Post a work request to the QP of this connection, which has room for it.
    Post(Conn, Work, Request),
    /// Make the messages, or the atomics, in this QP void: their headers are replaced by
    /// [`Header::to_void`] for every packet sent from now on. Their work then completes with
    /// [`WorkResult::Void`].
    Void(Conn, Lane),
    /// Report the end of an operation.
    End(Ended<O, R>),
}

/// The completion of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// The work was done, and the peer has acknowledged it.
    Sent,
    /// The same, but the message had been made void before.
    Void,
    /// The work failed, or was flushed (`None`). The caller then fails the connection, see
    /// [`Session::failed`](super::Session::failed).
    Failed(Option<Errno>),
}

/// The result of a cancel call.
#[derive(Debug)]
pub enum Cancelled<O> {
    /// The operation does not exist, or cannot be cancelled any more.
    No,
    /// The operation has ended with `ECANCELED`.
    Ended(O),
    /// The peer was asked; its answer ends the operation.
    Asked,
}
