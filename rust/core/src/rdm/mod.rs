// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams between hosts: messages with tags, of any length, to any peer.
//!
//! An endpoint has a [`Session`] for each peer with which it has something to do, by the peer's
//! address. The session makes an RC connection when there is something to be sent and gives it up when
//! there has been nothing for a while. What goes over it:
//!
//! | what | how |
//! |---|---|
//! | a message of up to [`EAGER_SIZE`](crate::limits::EAGER_SIZE) | a SEND with a [`Header`] and the bytes, placed by its first packet: in a posted receive, or in a buffer of the endpoint; if that has no room, the peer waits (RNR NAK) |
//! | a longer one | a SEND with a header (`RTS`), which may wait for its receive; an RDMA READ by the receiver, straight into the receive; a SEND back (`FIN`) |
//! | `KFI_DELIVERY_COMPLETE` | whatever the length, the receiver answers with `FIN` |
//! | READ, WRITE of RMA | RDMA READ, RDMA WRITE with the key of the region |
//! | WRITE with CQ data | RDMA WRITE, then a SEND with the data (`NOTE`) |
//!
//! Messages between two endpoints are matched in the order of posting, because their headers are in
//! SENDs of one connection.
//!
//! | file | what |
//! |---|---|
//! | [`header`] | the header of each SEND |
//! | [`hello`] | what is exchanged when connecting |
//! | [`grant`] | the memory of a message that its receiver reads |
//! | [`inbound`] | what comes in: each message once, in order |
//! | [`service`] | the service ID under which an endpoint listens |
//! | [`session`] | operations and connections with one peer |
//! | [`ops`], [`answer`] | what a session has to do: its own, and for the peer |
//! | [`store`] | where it keeps that |
//! | [`cause`] | why a connection ends, and which error that is |
//! | [`times`] | how long, how often, how many |
//!
//! # What happens when
//!
//! - *An endpoint is not there*: its operations fail with `ECONNREFUSED`; its host does not answer:
//!   `ETIMEDOUT`, after [`CONNECT_TIME`](times::CONNECT_TIME). See [`cause`] for all.
//! - *A peer dies* while something is awaited of it: the QP's retries find out, or, if nothing is with
//!   the QP, a `PING` after [`PING_TIME`](times::PING_TIME). Operations that were sent fail, and
//!   receives that were being filled from the peer's memory end with `ECONNRESET`. A message that waits
//!   for its receive and is still with the peer is forgotten.
//! - *A peer is started again*: its new incarnation asks, or answers, with another number. Operations
//!   that were sent to the old one fail with `ECONNRESET`; nothing of it is mixed with the new one.
//! - *A peer refuses access to its memory*: the RMA operation fails with `EACCES`, and as InfiniBand
//!   has it the connection ends: what else was under way over it fails with `ECONNRESET`, what was not
//!   sent yet goes on over another one.
//!
//! An operation that fails after it was sent may have been done all the same; the peer may have died
//! before it could say so.

pub mod answer;
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
};
