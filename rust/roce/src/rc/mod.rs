// SPDX-License-Identifier: GPL-2.0
//! Reliable connections: every operation once, in order, or an error.
//!
//! A QP is two machines that do not know each other. The [`Requester`] turns posted work requests into
//! packets and sends them until they are answered; the [`Responder`] executes the peer's requests and
//! answers. They share a [state](super::state) and a peer, and a [`Qp`] is both.
//!
//! ```text
//!   post --> queue --> Requester::poll --> packet --> (network) --> Responder::receive --> Target
//!   take <-- queue <-- Requester::receive <-- packet <-- (network) <-- Responder::poll <------'
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`attr`] | attributes of a QP |
//! | [`queue`] | work requests, WQEs, completions |
//! | [`requester`] | what is sent when; answers; losses |
//! | [`window`], [`rtt`] | how much may be outstanding; how long to wait |
//! | [`outstanding`] | READ requests and atomics under way |
//! | `gap` | packets behind a missing one |
//! | [`responder`] | what becomes of requests; answers; replays |
//! | [`target`] | receives and memory on which a responder acts |
//! | [`stats`] | counters |
//! | [`qp`] | both halves |
//!
//! # How to drive them
//!
//! Nothing here has a thread or a clock: the caller brings packets and the time, and asks what is to be
//! sent. After anything has happened (a post, packets, a timer):
//!
//! ```text
//! for each packet that has come:  requester.receive() or responder.receive()
//! if a deadline has passed:       requester.expired()
//! repeat:                         responder.poll(), requester.poll()   send what they give
//!     if the local stack refuses one:  not_sent()
//! repeat:                         requester.take()                     report what has ended
//! arm one timer for the earlier of requester.deadline() and responder.deadline(); none: disarm it
//! ```
//!
//! Both halves may be under one lock or each under its own. No call sleeps, none but
//! [`Responder::receive`] calls back, and each takes O(1), but for going back and for finding a
//! duplicate READ, which are bounded by the window and by the number of READs outstanding.
//!
//! # What is not done here
//!
//! Whether a packet is from the peer, to this QP, and whole (the ICRC) is checked before. Memory is
//! named, not held: see [`Requester::poll`] and [`Answering::read`].

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
        Responder,
        Verdict, //
    },
    target::{
        Refusal,
        Target, //
    },
};

/// Bytes of a message at most: 2^31 (InfiniBand specification, volume 1, section 9.7.6).
pub const MAX_LEN: u32 = 1 << 31;
