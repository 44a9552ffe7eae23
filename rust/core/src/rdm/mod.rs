// SPDX-License-Identifier: GPL-2.0
//! The protocol of reliable datagrams between hosts: messages with tags, of any length, to any
//! peer.
//!
//! An endpoint has a [`Session`] for each active peer, identified by the peer's address and name
//! ([`PeerAddr`](crate::peer::PeerAddr)). The session makes an RC connection when it has something
//! to send, and ends the connection after some time without work. The operations are transmitted as
//! follows:
//!
//! | operation | transmission |
//! |---|---|
//! | a message of up to [`EAGER_SIZE`](crate::limits::EAGER_SIZE) | a SEND with a [`Header`] and the bytes, which its first packet assigns to a posted receive or to a buffer of the endpoint; without room there the peer waits (RNR NAK) |
//! | a longer message | a SEND with a header (`RTS`), which may wait for its receive; an RDMA READ by the receiver directly into the receive; a SEND back (`FIN`) |
//! | `KFI_DELIVERY_COMPLETE` | the receiver answers with `FIN`, whatever the length |
//! | a tagged write | a SEND with an envelope (`TAGGED_WRITE`), which matches a posted receive and does not wait for one; an RDMA READ by the receiver; a `FIN` |
//! | a tagged read | a SEND with an envelope (`TAGGED_READ`), which matches a posted receive; a SEND back with its bytes (`RESULT`) |
//! | RMA READ, WRITE | RDMA READ, RDMA WRITE with the key of the region |
//! | WRITE with CQ data | RDMA WRITE, then a SEND with the data (`NOTE`) |
//! | a fetching sum or a CSWAP of one 64-bit integer | the atomic of RC |
//! | other atomics | a SEND with the operands (`ATOMIC`); if values are returned, a SEND back (`RESULT`) |
//!
//! Messages between two endpoints are matched in the order of posting, because their headers are in
//! SENDs of one connection.
//!
//! | file | contents |
//! |---|---|
//! | [`header`] | the header of each SEND |
//! | [`atomic`] | atomics in SENDs |
//! | [`hello`] | the private data exchanged when connecting |
//! | [`grant`] | the memory of a message that its receiver reads |
//! | [`inbound`] | the receiving side: each message once and in order |
//! | [`unproven`] | requests whose source address may be forged |
//! | [`service`] | the service ID on which an endpoint listens |
//! | [`session`] | operations and connections with one peer |
//! | [`ops`], [`answer`] | the operations of a session; its answers to messages of the peer |
//! | [`store`] | the maps in which a session keeps them |
//! | [`cause`] | the causes for which connections end, with their errors |
//! | [`times`] | timeouts and limits |
//!
//! # Failures
//!
//! - *An endpoint does not exist*: its operations fail with `ECONNREFUSED`. If its host does not
//!   answer, they fail with `ETIMEDOUT` after [`CONNECT_TIME`](times::CONNECT_TIME). [`cause`]
//!   lists all cases.
//! - *A peer dies* while the session waits for it: the retries of the QP detect it or, if the QP
//!   has no work, a `PING` after [`PING_TIME`](times::PING_TIME). Operations that were sent fail,
//!   and receives that were being filled from the peer's memory end with `ECONNRESET`. A message
//!   that waits for its receive, and whose bytes are still with the peer, is dropped.
//! - *An answer of a peer is overdue*, although it acknowledges packets: see `session/overdue.rs`.
//!   All operations fail, as if the peer were dead. A message that waits for a receive is not
//!   overdue.
//! - *A peer is restarted*: its new incarnation requests or accepts with another number. Operations
//!   that were sent to the old one fail with `ECONNRESET`; no state of the old one is used for the
//!   new one.
//! - *A peer refuses access to its memory*: the RMA operation or the atomic fails with `EACCES`,
//!   and the connection ends, as InfiniBand requires. Other operations that were sent over it fail
//!   with `ECONNRESET`. Of those that were not sent, messages continue over another connection; RMA
//!   operations and atomics fail.
//!
//! An operation that fails after it was sent may have been executed: the peer may have died before
//! it could acknowledge it.

pub mod answer;
pub mod atomic;
pub mod cause;
pub mod grant;
pub mod header;
pub mod hello;
pub mod inbound;
pub mod ops;
pub mod service;
pub mod session;
pub mod store;
pub mod times;
pub mod unproven;

pub use self::{
    answer::Due,
    cause::Cause,
    grant::Grant,
    header::Header,
    hello::Hello,
    inbound::Inbound,
    service::service_id,
    session::{
        Config,
        Conn,
        Session, //
    },
    store::{
        Store,
        Stores, //
    },
    unproven::{
        Cookie,
        Unproven, //
    },
};
