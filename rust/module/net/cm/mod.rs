// SPDX-License-Identifier: GPL-2.0

//! Connection management (CM): connects QPs of this host with QPs of this host and of others.
//!
//! Each network namespace has one service ([`Cm`]), on QP 1. It starts with the first link of the
//! namespace and stops with the last one; without connections it is idle. The crate kfi_roce
//! ([`kfi_roce::cm`]) implements the protocol; this module adds memory, a clock, the path to the
//! peer and the consumer of the events.
//!
//! ```text
//!                  listen()                       connect()
//!                     |                               |
//!                     v                               v
//!  REQ -> QP 1 -> Listener::request -> Request      Conn <- events: Consumer::event
//!                                        | accept()   ^
//!                                        '------------'
//! ```
//!
//! It has two users: connected endpoints ([`ServiceId::tcp`]) and reliable datagrams
//! ([`service_id`]). Neither handles messages, retransmissions or timers.
//!
//! # A connection
//!
//! A [`Conn`] is one end. The [`Consumer`] that requested or accepted it gets its events, and
//! **closes it** ([`Conn::close`]) when it does not need it any more, in any state. The connection
//! stays in the service's table until the peer has acknowledged the end or does not answer, and
//! until late messages cannot arrive any more.
//!
//! A [`Request`] is the passive end of a connection that a peer requests. A listener may answer it
//! at once or keep it; dropping a request rejects it.
//!
//! # Limits
//!
//! A request of a peer uses memory before it is accepted. So a namespace has at most
//! [`MAX_UNANSWERED`] unanswered requests, at most [`MAX_UNCONFIRMED_OF_SOURCE`] unconfirmed
//! connections of one peer address ([`MAX_UNCONFIRMED_OF_NETWORK`] of one IPv6 network), and each
//! listener has a [backlog] of unanswered requests. A further REQ is rejected for lack of
//! resources, and counted. The limits of the namespace protect from forged addresses, and do not
//! hold for a peer that has proven its address to
//! a listener that asks for that ([`Listener::screen`]). So nobody can use up the room of others at
//! such listeners. A REQ to a listener with many undelivered requests ([`listen`]) is ignored, so
//! that the peer repeats it.
//!
//! Each source has a [share](kfi_core::share) of the [`MAX_OF_PEERS`] connections that peers may
//! have requested. So the connections of one address take at most four fifths of them, and those of
//! many have equal shares. The other half of a namespace's connections is for those that this host
//! requests.
//!
//! Rejected connections are limited separately: at most [`MAX_REJECTED`] are kept, and none for
//! requests that a listener refuses itself ([`Request::refuse`]). A namespace has at most
//! [`MAX_CONNECTIONS`] in all states.
//!
//! # Locks and contexts
//!
//! Consumers and listeners take locks that system calls hold, and a task that holds such a lock may
//! be delayed for long. So nothing in this module waits for them, and none of them waits for
//! another:
//!
//! ```text
//!  worker of QP 1 --.                               .--> work item of a connection -> Consumer::event
//!  timer, links ----+-> Cm::inner: table, machines -+
//!  system calls ----'                               '--> work item of a listener --> Listener::request
//! ```
//!
//! `Cm::inner` is a spin lock below all locks of its callers; while it is held no callback is
//! called, nothing is sent and no memory is allocated. The lock of a connection (`Conn::events`),
//! which protects its undelivered events, is taken under it. The events of one connection reach its
//! consumer in order and one at a time, as do the requests to one listener; neither waits for other
//! connections or listeners. The work items of QP 1 and of the service run on a workqueue of their
//! own ([`control_queue`](crate::shim::work::control_queue)), so they do not wait for a thread that
//! a consumer occupies.
//!
//! All functions run in process context.
//!
//! | file | content |
//! |---|---|
//! | [`service`] | the service of a namespace: start, end, timer |
//! | [`receive`] | receiving messages of peers |
//! | [`table`] | the connections and listeners of a service, and their look-up |
//! | [`entry`] | a connection in the table: its state machine, keys and limits |
//! | [`conn`] | one end of a connection, and the delivery of its events |
//! | [`listen`] | listeners, requests of peers, and their delivery |
//! | [`backlog`] | the unanswered requests of a listener, by their sources |
//! | [`gsi`] | the second consumer of QP 1 |
//!
//! [`Cm`]: service::Cm
//! [`ServiceId::tcp`]: kfi_roce::cm::ServiceId::tcp
//! [`service_id`]: kfi_core::rdm::service_id

mod backlog;
mod conn;
mod entry;
mod gsi;
mod listen;
mod receive;
pub(in crate::net) mod service;
mod table;

pub(crate) use self::{
    backlog::room,
    conn::{
        connect,
        Conn,
        Connect,
        Consumer,
        Delivery, //
    },
    gsi::Gsi,
    listen::{
        listen,
        listening_bytes,
        Listener,
        Listening,
        Params,
        Rejection,
        Request,
        SourceProof, //
    }, //
};
pub(super) use self::{
    gsi::GsiSlot,
    service::{
        begin,
        CmSlot, //
    }, //
};

/// Bytes of kernel memory that a connection uses.
pub(crate) const CONNECTION_BYTES: usize = entry::Reservation::BYTES
    + backlog::COUNT_BYTES
    + size_of::<Conn>()
    + size_of::<Request>()
    + size_of::<super::Path>();

/// The most connections of a namespace, in all states.
const MAX_CONNECTIONS: usize = 1 << 16;

/// The most connections of a namespace that peers have requested. The test build has a smaller
/// limit, which a test can reach.
pub(crate) const MAX_OF_PEERS: usize = if cfg!(kfi_kunit) {
    1 << 8
} else {
    MAX_CONNECTIONS / 2
};

/// The most requests of peers in a namespace that have no answer. This limit and the next one hold
/// for requests whose source address is not proven.
const MAX_UNANSWERED: usize = 1 << 12;

/// The most connections that the peer at one address has requested and not confirmed: unanswered
/// requests, and accepted ones without an RTU. The test build has a smaller limit, which a
/// sanitizing kernel can reach before the first of the peers gives up.
pub(crate) const MAX_UNCONFIRMED_OF_SOURCE: usize = if cfg!(kfi_kunit) {
    64
} else {
    MAX_UNANSWERED / 4
};

/// The most of the same that the hosts of one IPv6 network have: a host may send with each address
/// of its network.
pub(crate) const MAX_UNCONFIRMED_OF_NETWORK: usize = 3 * MAX_UNCONFIRMED_OF_SOURCE;

/// The most rejected connections of a namespace that are kept, to answer a repeated REQ in the same
/// way. Further ones are removed at once.
const MAX_REJECTED: usize = 1 << 10;
