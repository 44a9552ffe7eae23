// SPDX-License-Identifier: GPL-2.0

//! Request: a connection that a peer requests, until it is answered.

use super::{
    super::{
        link::Link,
        path::Path, //
    },
    conn::{
        Conn,
        Consumer, //
    },
    listen::BacklogSlot, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_roce::{
    cm::{
        self,
        Private,
        Reason,
        Req,
        ServiceId,
        Side,
        Timeout, //
    },
    headers::Qpn,
    mtu::PathMtu,
    psn::Psn, //
};

/// The attributes that this end's QP needs for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    /// The peer's QP.
    pub(crate) qpn: Qpn,
    /// The first PSN that this end sends.
    pub(crate) starting_psn: Psn,
    /// The path MTU.
    pub(crate) mtu: PathMtu,
    /// READs and atomics that the peer may have outstanding.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this end may have outstanding.
    pub(crate) initiator_depth: u8,
    /// How often an unacknowledged packet is sent again.
    pub(crate) retry_count: u8,
    /// How often a SEND is repeated after an RNR NAK; 7: without limit.
    pub(crate) rnr_retry_count: u8,
    /// The time after which an unacknowledged packet is sent again.
    pub(crate) ack_timeout: Timeout,
}

impl Params {
    pub(super) fn new(request: &cm::Request<'_>) -> Self {
        Self {
            qpn: request.qpn,
            starting_psn: request.starting_psn,
            mtu: request.mtu,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            ack_timeout: request.ack_timeout,
        }
    }
}

/// A request of a peer. If it is dropped without an answer, it is rejected with the reason
/// "consumer defined" and without private data.
///
/// A peer that repeats its REQ is asked to wait (MRA). It gives up after about 30 s without
/// an answer.
pub(crate) struct Request {
    conn: Arc<Conn>,
    service_id: ServiceId,
    params: Params,
    private: [u8; Req::PRIVATE_LEN],
    /// Its connection is in the table and has no answer.
    open: bool,
    _waiting: BacklogSlot,
}

impl Request {
    /// A request whose connection is not in the table yet, see [`entered`](Self::entered).
    pub(super) fn new(
        conn: Arc<Conn>,
        service_id: ServiceId,
        params: Params,
        private: [u8; Req::PRIVATE_LEN],
        waiting: BacklogSlot,
    ) -> Self {
        Self {
            conn,
            service_id,
            params,
            private,
            open: false,
            _waiting: waiting,
        }
    }

    /// The passive end of the requested connection.
    pub(super) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// Records that the connection is in the table: from now on a drop rejects it.
    pub(super) fn entered(&mut self) {
        self.open = true;
    }

    /// The link that received it. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.conn.link()
    }

    /// The address that it was sent to. Any context.
    pub(crate) fn local(&self) -> IpAddr {
        self.conn.local()
    }

    /// The address that it was sent from. Any context.
    pub(crate) fn remote(&self) -> IpAddr {
        self.conn.remote()
    }

    /// The path to the peer. Any context.
    pub(crate) fn path(&self) -> &Arc<Path> {
        self.conn.path()
    }

    /// The requested service. Any context.
    pub(crate) fn service_id(&self) -> ServiceId {
        self.service_id
    }

    /// The attributes that the QP needs. Any context.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// The private data, padded with zeros. Any context.
    pub(crate) fn private(&self) -> &[u8; Req::PRIVATE_LEN] {
        &self.private
    }

    /// Accepts the request. The QP can already receive. `consumer` gets the events from now on;
    /// `context` is the value by which it recognizes the connection. The READs and atomics in
    /// `side` are at most those of [`params`](Self::params).
    ///
    /// Fails with `EINVAL` for more than 196 bytes of private data; `ECONNABORTED` if the peer has
    /// given up or the link has gone. The request is used up, also on failure. Sleeps.
    pub(crate) fn accept(
        mut self,
        side: &Side,
        private: &[u8],
        context: u64,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Conn>> {
        let private = Private::new(private).ok_or(EINVAL)?;
        self.conn.accept(side, private, context, consumer)?;
        self.open = false;
        Ok(self.conn.clone())
    }

    /// Rejects the request. Private data beyond 148 bytes is cut off. Sleeps.
    pub(crate) fn reject(mut self, reason: Reason, private: &[u8]) {
        // It fails if the peer has given up: then there is nothing to reject.
        let _ = self.conn.reject(reason, private);
        self.open = false;
    }

    /// Rejects the request and removes the connection from the table, so that the rejection uses no
    /// memory. If the REJ is lost, the peer's repeated REQ is a new request. For requests that the
    /// listener refuses itself, without its user. Private data beyond 148 bytes is cut off. Sleeps.
    pub(crate) fn refuse(mut self, reason: Reason, private: &[u8]) {
        // It fails if the peer has given up: then there is nothing to reject.
        let _ = self.conn.reject(reason, private);
        self.conn.forget();
        self.open = false;
    }

    /// Removes the connection without an answer: the peer's repeated REQ is a new request. Sleeps.
    pub(crate) fn ignore(mut self) {
        self.conn.forget();
        self.open = false;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.open {
            self.conn.close();
        }
    }
}
