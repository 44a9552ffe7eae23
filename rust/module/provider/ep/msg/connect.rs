// SPDX-License-Identifier: GPL-2.0

//! Connecting and disconnecting a connected endpoint.
//!
//! ```text
//!  connect -> REQ                                   a request of a passive endpoint -> accept
//!             REP -> QP ready, RTU, KFI_CONNECTED   QP ready, REP
//!             REJ -> ECONNREFUSED                   RTU, or a packet -> KFI_CONNECTED
//!             no answer -> ETIMEDOUT                REJ, no answer -> the same errors
//!
//!  shutdown -> DREQ                                 DREQ -> KFI_SHUTDOWN
//! ```
//!
//! There are two ways to connect. Connection management ([`cm`]) uses the service IDs of the RDMA
//! CM's TCP port space and its header, so that programs that use the RDMA CM are possible peers. Or
//! the programs of both ends exchange the attributes of their QPs by other means and set them
//! (`KFABRIC_IOC_EP_CONNECT_QP`); then the module exchanges no messages for the connection.
//!
//! The task that changes the phase to Connected or Over reports that to the EQ, so each event is
//! reported once. The task that changes it to Over also ends the posted receives. Connecting
//! without connection management is not reported, and an end that the program itself brings about,
//! by shutdown or close, is reported to the peer only.

#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/comm_established.rs"]
mod kunit;

use kernel::sync::{
    atomic::Full,
    MutexGuard, //
};

use kfi_core::enums::EqEvent;
use kfi_roce::{
    cm::{
        Event,
        IpHeader,
        Reason,
        Reply,
        ServiceId,
        Side, //
    },
    headers::Qpn,
    mtu::PathMtu,
    psn::Psn,
    rc::{
        attr::AckTimeout,
        Attr, //
    },
    state::{
        Mask,
        State, //
    }, //
};

use super::{
    super::{
        prelude::*,
        wire::Wire, //
    },
    access,
    Msg,
    Peer,
    Phase, //
};
use crate::{
    mem::Budget,
    net::{
        cm::{
            self,
            Conn,
            Connect,
            Consumer,
            Delivery, //
        },
        Path, //
    },
    provider::{
        eq::Connection,
        pep::{
            Pep,
            RequestId, //
        }, //
    },
    shim::{
        cred::Owner,
        reclaim::OwnerKind, //
    }, //
};

/// The lock of `connecting`. When it has been released, an event is delivered that found it locked.
pub(super) struct Connecting<'a> {
    // Fields are dropped in this order.
    _locked: MutexGuard<'a, ()>,
    _released: Released<'a>,
}

struct Released<'a>(&'a Msg);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let msg = self.0;
        if !msg.event_left.is_left() {
            return;
        }
        msg.event_left.take();
        // It was set under the lock, before a connection can have an event.
        if let Some(conn) = msg.conn.as_ref() {
            conn.deliver_again();
        }
    }
}

impl Msg {
    /// Locks `connecting`, for a task of the owner. Sleeps.
    pub(super) fn begin_connecting(&self) -> Connecting<'_> {
        Connecting {
            _locked: self.connecting.lock(),
            _released: Released(self),
        }
    }

    /// Locks `connecting`, for the worker that delivers events. `None`: a task holds the lock, and
    /// has the event delivered again afterwards. Does not sleep.
    fn try_connecting(&self) -> Option<Connecting<'_>> {
        let locked = self.connecting.try_lock().or_else(|| {
            self.event_left.leave();
            let locked = self.connecting.try_lock()?;
            self.event_left.take();
            Some(locked)
        })?;
        Some(Connecting {
            _locked: locked,
            _released: Released(self),
        })
    }

    /// Checks that the endpoint has no peer yet. Fails with `EALREADY` if it is being connected,
    /// `EISCONN` if it is or was connected. The caller holds `connecting`.
    fn check_idle(&self) -> Result {
        match self.phase() {
            Phase::Idle if self.peer.as_ref().is_none() => Ok(()),
            Phase::Connecting | Phase::Accepting => Err(to_error(Errno::EALREADY)),
            _ => Err(EISCONN),
        }
    }

    /// Moves the QP to RTS for a peer. Fails with `EINVAL`, `ENODEV`. The caller holds
    /// `connecting`. Sleeps.
    fn ready(&self, path: &Arc<Path>, addr: SockAddr, attr: &Attr) -> Result {
        let qp = self.qp()?;
        let rtr = Attr {
            state: State::Rtr,
            ..*attr
        };
        let rts = Attr {
            state: State::Rts,
            ..*attr
        };
        qp.modify(&rtr, Mask::RC_TO_RTR, Some(path))?;
        self.peer.populate(Peer {
            addr,
            path: path.clone(),
            qpn: attr.dest_qpn.get(),
            attr: *attr,
        });
        qp.modify(&rts, Mask::RC_TO_RTS, None)
    }

    /// The attributes for a peer, including those that the owner set. `psn` is the first PSN that
    /// this end sends: with connection management the receiver of packets chooses their first PSN.
    fn attr(&self, endpoint: &Endpoint, qpn: Qpn, psn: Psn, path_mtu: PathMtu) -> Attr {
        Attr {
            path_mtu,
            dest_qpn: qpn,
            rq_psn: self.psn,
            sq_psn: psn,
            ..self.attrs.attr(access(endpoint.caps))
        }
    }

    /// The parameters of this end for the peer.
    fn side(&self, attr: &Attr) -> Result<Side> {
        Ok(Side {
            qpn: self.qp()?.number(),
            starting_psn: self.psn,
            responder_resources: attr.max_dest_rd_atomic,
            initiator_depth: attr.max_rd_atomic,
            rnr_retry_count: attr.rnr_retry,
            srq: false,
        })
    }

    /// Connects with a QP that the programs agreed on. See [`Endpoint::connect_qp`].
    fn connect_qp(&self, endpoint: &Endpoint, bound: &Bound, peer: SockAddr, psn: u32) -> Result {
        if psn >> 24 != 0 || !peer.is_qp() {
            return Err(EINVAL);
        }
        let qpn = peer.qpn().ok_or(EINVAL)?;
        let _connecting = self.begin_connecting();
        if self.check_idle().is_err() {
            return Err(EISCONN);
        }
        endpoint.check_link()?;
        if !endpoint.domain.link().is_in_scope(&peer) {
            return Err(ENETUNREACH);
        }
        let path = Path::new(endpoint.domain.link(), bound.name.ip(), peer.ip())?;
        let mtu = self.attrs.path_mtu(path.mtu()?)?;
        // Without connection management each end chooses the first PSN that it sends.
        let attr = Attr {
            rq_psn: Psn::new(psn),
            ..self.attr(endpoint, Qpn::new(qpn), self.psn, mtu)
        };
        self.ready(&path, peer, &attr)?;
        self.phase.store(Phase::Connected as u32, Relaxed);
        // The QP may have failed before the phase was Connected. Then the failure did not end the
        // connection.
        if self.qp()?.state() == State::Error {
            self.end(endpoint, bound);
        }
        Ok(())
    }

    /// Sends a REQ to a peer. See [`Endpoint::connect`].
    fn connect(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        peer: SockAddr,
        private: &[u8],
    ) -> Result {
        let link = endpoint.domain.link();
        let local = bound.name;
        if !link.is_in_scope(&peer) {
            return Err(ENETUNREACH);
        }
        if endpoint.ident.owner.kind() == OwnerKind::Program {
            link.socket().check_port(local.port())?;
        }
        let header = IpHeader {
            src: local.ip(),
            src_port: local.port(),
            dst: peer.ip(),
        };
        let private = header.write(private).ok_or(EINVAL)?;
        let _connecting = self.begin_connecting();
        self.check_idle()?;
        endpoint.check_link()?;
        let attr = self.attrs.attr(access(endpoint.caps));
        let request = Connect {
            link,
            local: local.ip(),
            remote: peer.ip(),
            service_id: ServiceId::tcp(peer.port()),
            side: self.side(&attr)?,
            mtu: self.attrs.chosen_mtu(),
            retry_count: attr.retry_cnt,
            private: &private,
            context: 0,
        };
        // Events of the connection wait for `connecting`.
        self.phase.store(Phase::Connecting as u32, Relaxed);
        match cm::connect(&request, endpoint.clone()) {
            Ok(conn) => {
                self.requested.populate(peer);
                self.conn.populate(conn);
                Ok(())
            }
            Err(error) => {
                self.phase.store(Phase::Idle as u32, Relaxed);
                Err(error)
            }
        }
    }

    /// Makes the QP ready for a connection that the peer has accepted, and confirms it. Returns
    /// whether it is confirmed. It is not if the connection has ended meanwhile; the event for that
    /// comes next. The caller holds `connecting`. Sleeps.
    fn accepted(&self, endpoint: &Endpoint, conn: &Conn, reply: &Reply<'_>) -> Result<bool> {
        let peer = *self.requested.as_ref().ok_or(ENOTCONN)?;
        let mut attr = self.attr(endpoint, reply.qpn, reply.starting_psn, reply.mtu);
        attr.max_rd_atomic = attr.max_rd_atomic.min(reply.initiator_depth);
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(reply.responder_resources);
        attr.rnr_retry = reply.rnr_retry_count;
        attr.timeout = timeout(reply.ack_timeout);
        self.ready(conn.path(), peer, &attr)?;
        match conn.confirm(&[]) {
            Err(error) if error == ENOTCONN => Ok(false),
            confirmed => confirmed.map(|()| true),
        }
    }

    /// Accepts a request. See [`Endpoint::accept`].
    fn accept(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        pep: &Pep,
        connreq: RequestId,
        private: &[u8],
    ) -> Result {
        let _connecting = self.begin_connecting();
        self.check_idle()?;
        if endpoint.domain.link().state() == LinkState::Gone {
            return Err(ENODEV);
        }
        endpoint.check_address(bound)?;
        let request = pep.take(connreq, |request| {
            let here = Arc::ptr_eq(request.link(), endpoint.domain.link());
            let params = request.params();
            let fits = self.attrs.chosen_mtu().is_none_or(|mtu| mtu == params.mtu);
            if here && fits && request.local() == bound.name.ip() {
                Ok(())
            } else {
                Err(EINVAL)
            }
        })?;
        let params = *request.params();
        let mut attr = self.attr(endpoint, params.qpn, params.starting_psn, params.mtu);
        attr.max_rd_atomic = attr.max_rd_atomic.min(params.initiator_depth);
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(params.responder_resources);
        attr.retry_cnt = params.retry_count;
        attr.rnr_retry = params.rnr_retry_count;
        attr.timeout = timeout(params.ack_timeout);
        let peer = Pep::peer(&request).ok_or(ECONNABORTED)?;
        self.ready(request.path(), peer, &attr)?;
        let side = self.side(&attr)?;
        // Events of the connection wait for `connecting`.
        self.phase.store(Phase::Accepting as u32, Relaxed);
        match request.accept(&side, private, 0, endpoint.clone()) {
            Ok(conn) => {
                self.conn.populate(conn);
                Ok(())
            }
            Err(error) => {
                self.end(endpoint, bound);
                Err(error)
            }
        }
    }

    /// The peer has sent a packet, so it is ready. Sleeps only for the locks of connection
    /// management.
    #[inline]
    pub(super) fn packet_received(&self, endpoint: &Endpoint, bound: &Bound) {
        if self.phase() == Phase::Accepting {
            self.first_packet_received(endpoint, bound);
        }
    }

    #[cold]
    fn first_packet_received(&self, endpoint: &Endpoint, bound: &Bound) {
        // If the connection is not set yet, the next packet or the RTU establishes it.
        let conn = self.conn.as_ref();
        if conn.is_some_and(|conn| conn.communication_established()) {
            self.connected(endpoint, bound, Phase::Accepting, &[]);
        }
    }

    /// Changes the phase from `from` to Connected and reports that. Does nothing in another phase.
    fn connected(&self, endpoint: &Endpoint, bound: &Bound, from: Phase, private: &[u8]) {
        let connected = Phase::Connected as u32;
        if self.phase.cmpxchg(from as u32, connected, Full).is_ok() {
            self.report(endpoint, bound, EqEvent::Connected, private);
        }
    }

    fn report(&self, endpoint: &Endpoint, bound: &Bound, event: EqEvent, private: &[u8]) {
        if let (Some(eq), Some(peer)) = (&bound.eq, self.peer.as_ref()) {
            let what = Connection {
                connreq: 0,
                pep: None,
                local: bound.name,
                peer: peer.addr,
                link: endpoint.domain.link().name(),
                private,
            };
            eq.connection(event, &endpoint.ident, &what);
        }
    }

    /// Changes the phase to Over and ends the posted receives. Returns the previous phase; `None`
    /// if the connection was over or never began. Sleeps.
    pub(super) fn end(&self, endpoint: &Endpoint, bound: &Bound) -> Option<Phase> {
        let mut from = self.phase();
        loop {
            if matches!(from, Phase::Idle | Phase::Over) {
                return None;
            }
            let over = Phase::Over as u32;
            match self.phase.cmpxchg(from as u32, over, Full) {
                Ok(_) => break,
                Err(_) => from = self.phase(),
            }
        }
        endpoint.cancel_receives(bound);
        Some(from)
    }

    /// Moves the QP to the error state. Outstanding operations are flushed. Sleeps.
    fn stop(&self) -> Result {
        let error = Attr {
            state: State::Error,
            ..Attr::default()
        };
        self.qp()?.modify(&error, Mask::NONE, None)
    }

    /// Ends the connection for a reason other than a call of this end's program, and reports that.
    /// Informs the peer if it does not know. Sleeps.
    pub(super) fn lost(&self, endpoint: &Endpoint, bound: &Bound, why: &Lost<'_>) {
        let Some(from) = self.end(endpoint, bound) else {
            return;
        };
        let gone = endpoint.domain.link().state() == LinkState::Gone;
        match (from, why) {
            (Phase::Connected, _) => self.report(endpoint, bound, EqEvent::Shutdown, &[]),
            _ if gone => {
                not_connected(bound, endpoint, Errno::ENODEV, Reason::new(0), &[]);
            }
            (_, Lost::Refused(reason, private)) => {
                not_connected(bound, endpoint, Errno::ECONNREFUSED, *reason, private);
            }
            (_, Lost::Silent) => {
                not_connected(bound, endpoint, Errno::ETIMEDOUT, Reason::new(0), &[]);
            }
            (_, Lost::Failed(errno)) => {
                not_connected(bound, endpoint, *errno, Reason::new(0), &[]);
            }
        }
        if let Some(conn) = self.conn.as_ref() {
            conn.close();
        }
    }
}

/// The reason for the loss of a connection.
pub(super) enum Lost<'a> {
    /// The peer rejected the connection, with private data.
    Refused(Reason, &'a [u8]),
    /// The peer did not answer.
    Silent,
    /// An error of this end, or the peer disconnected.
    Failed(Errno),
}

fn not_connected(bound: &Bound, endpoint: &Endpoint, errno: Errno, why: Reason, private: &[u8]) {
    if let Some(eq) = &bound.eq {
        eq.not_connected(&endpoint.ident, errno, u32::from(why.code()), private);
    }
}

/// The local ACK timeout from connection management as that of a QP; both use the same codes. It is
/// limited because the peer has chosen it.
fn timeout(found: kfi_roce::cm::Timeout) -> AckTimeout {
    AckTimeout::from_peer(found.code())
}

impl Endpoint {
    /// Enables the endpoint if necessary, and calls `act` with its QP. If that cannot be enabled
    /// because the link has lost its address, fails as a transmit would.
    fn with_msg<T>(self: &Arc<Self>, act: impl FnOnce(&Msg, &Bound) -> Result<T>) -> Result<T> {
        let msg = self.msg()?;
        match self.enable() {
            Err(error) if error == to_error(Errno::KFI_EOPBADSTATE) => {}
            Err(error) if error == EADDRNOTAVAIL => return Err(self.domain.link().no_address()),
            enabled => enabled?,
        }
        let Some((_inside, bound)) = self.enter() else {
            return Err(EBADF);
        };
        act(msg, bound)
    }

    /// Connects with a QP without connection management (`KFABRIC_IOC_EP_CONNECT_QP`, which lists
    /// the errors). Enables the endpoint if necessary. Sleeps.
    pub(crate) fn connect_qp(self: &Arc<Self>, peer: SockAddr, psn: u32) -> Result {
        self.with_msg(|msg, bound| msg.connect_qp(self, bound, peer, psn))
    }

    /// Sends a connection request to a peer (kfi_connect; `KFABRIC_IOC_EP_CONNECT` lists the
    /// errors). Enables the endpoint if necessary. The EQ reports the result. Sleeps.
    pub(crate) fn connect(self: &Arc<Self>, peer: SockAddr, private: &[u8]) -> Result {
        self.with_msg(|msg, bound| {
            bound.require_eq()?;
            msg.connect(self, bound, peer, private)
        })
    }

    /// Accepts the request `connreq` of a passive endpoint (kfi_accept; `KFABRIC_IOC_EP_ACCEPT`
    /// lists the errors). Enables the endpoint if necessary. Sleeps.
    pub(crate) fn accept(
        self: &Arc<Self>,
        pep: &Pep,
        connreq: RequestId,
        private: &[u8],
    ) -> Result {
        self.with_msg(|msg, bound| {
            bound.require_eq()?;
            msg.accept(self, bound, pep, connreq, private)
        })
    }

    /// Ends the connection (kfi_shutdown). Outstanding operations complete with `ECANCELED`. The
    /// peer is informed if connection management made the connection. Fails with `EOPNOTSUPP` for
    /// another endpoint type, `ENOTCONN` if it is not connected. Sleeps.
    pub(crate) fn shutdown(&self) -> Result {
        let msg = self.msg()?;
        let Some((_inside, bound)) = self.enter() else {
            return Err(ENOTCONN);
        };
        let _connecting = msg.begin_connecting();
        if msg.phase() != Phase::Connected || msg.end(self, bound).is_none() {
            return Err(ENOTCONN);
        }
        if let Some(conn) = msg.conn.as_ref() {
            conn.close();
        }
        msg.stop()
    }
}

/// Events from connection management.
impl Consumer for Endpoint {
    fn owner_kind(&self) -> OwnerKind {
        self.ident.owner.kind()
    }

    fn owner(&self) -> Option<(&Owner, &Budget)> {
        Some((&self.ident.owner, &self.ident.budget))
    }

    fn event(&self, conn: &Arc<Conn>, event: &Event<'_>) -> Delivery {
        let (Some(Wire::Msg(msg)), Some(_inside), Some(bound)) =
            (&self.wire, self.drain.enter(), self.bound.as_ref())
        else {
            return Delivery::Done;
        };
        if let (Event::Disconnected(_), Ok(qp)) = (event, msg.qp()) {
            // The peer may have refused an access before it disconnected. That operation completes
            // with the refusal.
            qp.settle();
        }
        let Some(_connecting) = msg.try_connecting() else {
            return Delivery::Later;
        };
        let lost = match event {
            Event::Reply(reply) => {
                if msg.phase() != Phase::Connecting {
                    return Delivery::Done;
                }
                match msg.accepted(self, conn, reply) {
                    Ok(true) => {
                        msg.connected(self, bound, Phase::Connecting, reply.private);
                        return Delivery::Done;
                    }
                    Ok(false) => return Delivery::Done,
                    Err(error) => {
                        Lost::Failed(Errno::from_i32(error.to_errno()).unwrap_or(Errno::EIO))
                    }
                }
            }
            Event::Established(_) => {
                msg.connected(self, bound, Phase::Accepting, &[]);
                return Delivery::Done;
            }
            Event::Rejected {
                reason, private, ..
            } => Lost::Refused(*reason, private),
            Event::Unreachable => Lost::Silent,
            Event::Disconnected(_) => Lost::Failed(Errno::ECONNRESET),
            // This end closed the connection itself.
            Event::Released | Event::Closed => return Delivery::Done,
        };
        msg.lost(self, bound, &lost);
        // A QP that never left INIT does not change.
        let _ = msg.stop();
        Delivery::Done
    }
}
