// SPDX-License-Identifier: GPL-2.0
//! Connection management: how two QPs find each other.
//!
//! | file | what |
//! |---|---|
//! | `mad` | the header common to management datagrams |
//! | `message`, `req` | the messages: [`Req`], [`Mra`], [`Rej`], [`Rep`], [`Rtu`], [`Dreq`], [`Drep`] |
//! | `connection` | the state machine of either end: [`Connection`]; its event queue: [`PendingEvents`] |
//! | `timing` | when a message is sent again: [`Timing`] |
//! | `route` | to which connection a message belongs: [`Route`] |
//! | `refusal` | saying no without a connection: [`Refusal`] |
//! | `reason` | why a connection is rejected: [`Reason`] |
//! | `service_id` | what a request asks for: [`ServiceId`] |
//! | `ip_header` | the RDMA CM's IP addresses and port in a REQ: [`IpHeader`] |
//! | `gid`, `timeout` | IP addresses and times as InfiniBand writes them: [`Gid`], [`Timeout`] |
//!
//! The messages travel in UD datagrams of [`MAD_LEN`] bytes from QP 1 to QP 1.
//!
//! Source: InfiniBand specification, volume 1, chapter 12; annex A11 (RDMA IP CM service).

mod connection;
mod gid;
mod ip_header;
mod mad;
mod message;
mod reason;
mod refusal;
mod req;
mod route;
mod service_id;
mod timeout;
mod timing;

pub use self::{
    connection::{
        Connect,
        Connection,
        Device,
        Event,
        Ignored,
        PendingEvents,
        Reply,
        Request,
        Side,
        State, //
        StoredEvent,
    },
    gid::Gid,
    ip_header::{
        Invalid,
        IpHeader, //
    },
    mad::{
        Attribute,
        Mad,
        Malformed,
        MAD_LEN, //
    },
    message::{
        Body,
        CommId,
        Drep,
        Dreq,
        Message,
        Mra,
        Private,
        Regarding,
        Rej,
        Rep,
        Rtu, //
    },
    reason::Reason,
    refusal::Refusal,
    req::{
        Path,
        Req,
        Transport, //
    },
    route::Route,
    service_id::ServiceId,
    timeout::Timeout,
    timing::Timing, //
};
