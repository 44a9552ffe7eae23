// SPDX-License-Identifier: GPL-2.0

//! Connection management: how QPs of this host and of others find each other.
//!
//! One service ([`Cm`]) per network namespace, on QP 1. It begins with the first who listens or
//! connects there, and ends when the last link of the namespace goes; when nobody connects it does
//! nothing. What messages mean is the core crate's ([`kfi_core::roce::cm`]); here connections get
//! memory, time, a way to their peer, and a consumer.
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
//! Two floors above use it: connected endpoints ([`ServiceId::tcp`]) and reliable datagrams
//! ([`ServiceId::rdm`]). Neither knows of messages, retransmissions or timers.
//!
//! # A connection
//!
//! A [`Conn`] is one end. Who asked for it, or accepted it, is its consumer, is told what happens to
//! it, and **closes it** ([`Conn::close`]) when it has no more use for it, in whatever state it is. It
//! stays in the service's table until its peer knows too, or does not answer, and until late messages
//! cannot come any more.
//!
//! A [`Request`] is an end that is asked for. It may be answered at once or kept; one that is dropped
//! is rejected.
//!
//! # Limits
//!
//! What a peer asks for costs memory here before anybody has agreed. So there are at most
//! [`MAX_ASKED`] connections in a namespace that nobody has answered, at most [`MAX_ASKED_OF_SOURCE`]
//! unconfirmed ones of one address, and at each listener at most its backlog of requests that wait for
//! an answer; what is more is refused for want of resources, and counted. Rejected connections take no
//! room from them: there are at most [`MAX_REJECTED`], and none for requests that a listener refuses
//! by itself ([`Request::refuse`]). All together there are at most [`MAX_CONNECTIONS`].
//!
//! # Locks and contexts
//!
//! Everything is process context and may sleep. `Cm::news` is a mutex that is held by who brings news
//! (the worker of QP 1, and the service's own for timers and for links that went), while consumers and
//! listeners are called: so they are called one after the other, each connection's events in order.
//! Nothing that they or others call takes it. `Cm::table` is a mutex below all locks of its callers;
//! nothing is sent and nobody is called while it is held.
//!
//! | file | what |
//! |---|---|
//! | [`service`] | the service of a namespace: its beginning, its end, messages, timers |
//! | [`table`] | its connections and listeners, and how they are found |
//! | [`conn`] | one end of a connection |
//! | [`request`] | a connection that is asked for |
//! | [`listen`] | who may be asked |
//!
//! [`Cm`]: service::Cm
//! [`ServiceId::tcp`]: kfi_core::roce::cm::ServiceId::tcp
//! [`ServiceId::rdm`]: kfi_core::roce::cm::ServiceId::rdm

mod conn;
mod listen;
mod request;
mod service;
mod table;

pub(super) use self::service::Slot;
pub(crate) use self::{
    conn::{
        connect,
        Conn,
        Connect,
        Consumer, //
    },
    listen::{
        listen,
        Listener,
        Listening, //
    },
    request::{
        Params,
        Request, //
    }, //
};

/// Bytes of kernel memory that a connection takes.
pub(crate) const CONNECTION_BYTES: usize =
    size_of::<table::Entry>() + size_of::<Conn>() + size_of::<super::Path>() + 512;

/// Connections of a namespace, in all states.
const MAX_CONNECTIONS: usize = 1 << 16;

/// Connections of a namespace that peers have asked for and that wait for an answer.
const MAX_ASKED: usize = 1 << 12;

/// Connections that the peer at one address has asked for and not confirmed: those that wait for an
/// answer, and those that were accepted.
const MAX_ASKED_OF_SOURCE: usize = MAX_ASKED / 4;

/// Connections of a namespace that were rejected and may be asked for once more. More are forgotten at
/// once.
const MAX_REJECTED: usize = 1 << 10;
