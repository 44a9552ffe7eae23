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

/// What this end's QP has to be like for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    /// The peer's QP.
    pub(crate) qpn: Qpn,
    /// The first PSN that this end sends.
    pub(crate) starting_psn: Psn,
    /// The path MTU.
    pub(crate) mtu: PathMtu,
    /// READs and atomics of the peer's that should be able to be under way.
    pub(crate) responder_resources: u8,
    /// READs and atomics of this end's that may be under way.
    pub(crate) initiator_depth: u8,
    /// How often what is not acknowledged is sent again.
    pub(crate) retry_count: u8,
    /// How often a peer without a receive is tried again; 7: for ever.
    pub(crate) rnr_retry_count: u8,
    /// When what is not acknowledged is sent again.
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
/// A peer that repeats its REQ is asked to wait (MRA). It gives up after some 30 s without an
/// answer.
pub(crate) struct Request {
    conn: Arc<Conn>,
    service_id: ServiceId,
    params: Params,
    private: [u8; Req::PRIVATE_LEN],
    /// Its connection is in the table, and it has no answer.
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

    /// The passive end that is requested.
    pub(super) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// Notes that the connection is in the table: from now on a drop rejects it.
    pub(super) fn entered(&mut self) {
        self.open = true;
    }

    /// The link that it came to. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.conn.link()
    }

    /// The address that it came to. Any context.
    pub(crate) fn local(&self) -> IpAddr {
        self.conn.local()
    }

    /// The address that it came from. Any context.
    pub(crate) fn remote(&self) -> IpAddr {
        self.conn.remote()
    }

    /// The way from the one to the other. Any context.
    pub(crate) fn path(&self) -> &Arc<Path> {
        self.conn.path()
    }

    /// What is asked for. Any context.
    pub(crate) fn service_id(&self) -> ServiceId {
        self.service_id
    }

    /// What the QP has to be like. Any context.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// The private data, filled up with zeros. Any context.
    pub(crate) fn private(&self) -> &[u8; Req::PRIVATE_LEN] {
        &self.private
    }

    /// Accepts, with a QP that can receive; `consumer` is told from now on what happens, `context` is
    /// for it to know the connection by. The READs and atomics in `side` are at most those of
    /// [`params`](Self::params).
    ///
    /// `EINVAL` more than 196 bytes of private data; `ECONNABORTED` the peer has given up meanwhile,
    /// or its way has gone. Then it is no request any more. Sleeps.
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

    /// Rejects. Private data beyond 148 bytes are cut off. Sleeps.
    pub(crate) fn reject(mut self, reason: Reason, private: &[u8]) {
        // An error means that the peer has given up: there is nothing to reject.
        let _ = self.conn.reject(reason, private);
        self.open = false;
    }

    /// Rejects, and forgets it: if the rejection is lost, the peer asks again, and that is another request.
    /// For what is refused whatever the consumer wants, so that refusing costs no memory. Private data
    /// beyond 148 bytes are cut off. Sleeps.
    pub(crate) fn refuse(mut self, reason: Reason, private: &[u8]) {
        // An error means that the peer has given up: there is nothing to reject.
        let _ = self.conn.reject(reason, private);
        self.conn.forget();
        self.open = false;
    }

    /// Forgets it without a word: the peer asks again, and that is another request. Sleeps.
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
