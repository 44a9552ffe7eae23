// SPDX-License-Identifier: GPL-2.0
//! Reliable connections (RC): every operation is executed once and in order, or ends with an error.
//!
//! A QP consists of two independent state machines. The [`Requester`] turns posted work requests
//! into packets and retransmits them until they are answered. The [`Responder`] executes the
//! requests of the peer and answers them. Both share a [state](super::state) and a peer; a [`Qp`]
//! combines them.
//!
//! ```text
//!   post --> queue --> Requester::poll --> packet --> (network) --> Responder::receive --> Target
//!   take <-- queue <-- Requester::receive <-- packet <-- (network) <-- Responder::poll <------'
//! ```
//!
//! | file | contents |
//! |---|---|
//! | [`attr`] | attributes of a QP |
//! | [`queue`] | work requests, WQEs, completions |
//! | [`requester`] | sending requests, handling responses and losses |
//! | [`window`], [`rtt`] | the number of packets outstanding; the time before a retransmission |
//! | [`outstanding`] | READ requests and atomics that are outstanding |
//! | `gap` | packets that arrive behind a missing one |
//! | [`responder`] | executing requests, answering and replaying them |
//! | [`target`] | the caller's receives and memory, on which a responder acts |
//! | [`stats`] | counters |
//! | [`qp`] | a requester and a responder that share a state |
//!
//! # Usage
//!
//! The state machines have no thread and no clock: the caller passes packets and the time, and asks
//! for the packets to send. After each event (a post, packets, a timer) it does the following:
//!
//! ```text
//! for each received packet:       requester.receive() or responder.receive()
//! if a deadline has passed:       requester.expired()
//! repeat:                         responder.poll(), requester.poll()   send the packets returned
//!     if the local stack refuses one:  not_sent()
//! repeat:                         requester.take()                     report completions
//! arm one timer for the earlier of requester.deadline() and responder.deadline(); none: cancel it
//! ```
//!
//! Both halves may be under one lock, or each under its own. No call sleeps. Only
//! [`Responder::receive`] and the calls that abort a receive call back into the [`Target`]. Each
//! call takes O(1), except for going back and for finding a duplicate READ, which are bounded by
//! the window and by the number of outstanding READs.
//!
//! # Duties of the caller
//!
//! The caller checks beforehand that a packet comes from the peer, is for this QP, and has a
//! correct ICRC. The state machines identify memory but hold no reference to it: see
//! [`Requester::poll`] and [`Answering::read`].

pub mod attr;
mod gap;
pub mod outstanding;
pub mod qp;
pub mod queue;
pub mod requester;
pub mod responder;
pub mod rtt;
pub mod stats;
pub mod target;
pub mod window;

pub use self::{
    attr::{
        Access,
        AckTimeout,
        Attr, //
    },
    qp::{
        Event,
        Qp, //
    },
    queue::{
        Completion,
        Op,
        Status,
        WorkRequest,
        Wqe, //
    },
    requester::{
        Outgoing,
        Received,
        Requester, //
    },
    responder::{
        AckPolicy,
        Answering,
        Replay,
        RequestResult,
        Responder, //
    },
    target::{
        Refusal,
        Target, //
    },
};

/// The maximum length of a message in bytes: 2^31 (InfiniBand specification, volume 1, section
/// 9.7.6).
pub const MAX_LEN: u32 = 1 << 31;
