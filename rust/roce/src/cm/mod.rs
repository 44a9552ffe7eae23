// SPDX-License-Identifier: GPL-2.0
//! Connection management (CM): the messages with which two QPs establish and end a connection.
//!
//! | file | contents |
//! |---|---|
//! | `mad` | the header common to management datagrams |
//! | `message`, `req` | the messages: [`Req`], [`Mra`], [`Rej`], [`Rep`], [`Rtu`], [`Dreq`], [`Drep`] |
//! | `connection` | the state machine of either end: [`Connection`]; its event queue: [`PendingEvents`] |
//! | `timing` | timeouts and retransmission: [`Timing`]; times on the wire: [`Timeout`] |
//! | `route` | finding the connection to which a message belongs: [`Route`] |
//! | `reason` | the reasons of rejections: [`Reason`]; a REJ without a connection: [`Refusal`] |
//! | `service_id` | the service that a request names: [`ServiceId`] |
//! | `ip_header` | the RDMA CM's IP addresses and port in a REQ: [`IpHeader`] |
//! | `gid` | the InfiniBand form of IP addresses: [`Gid`] |
//!
//! Messages are UD datagrams of [`MAD_LEN`] bytes from QP 1 to QP 1.
//!
//! Source: InfiniBand specification, volume 1, chapter 12; annex A11 (RDMA IP CM service).

mod connection;
mod gid;
mod ip_header;
mod mad;
mod message;
mod reason;
mod req;
mod route;
mod service_id;
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
        State,
        StoredEvent, //
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
    reason::{
        Reason,
        Refusal, //
    },
    req::{
        Path,
        Req,
        Transport, //
    },
    route::Route,
    service_id::ServiceId,
    timing::{
        Timeout,
        Timing, //
    },
};
