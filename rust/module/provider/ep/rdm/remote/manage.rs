// SPDX-License-Identifier: GPL-2.0

//! Making and closing the connections of a session, and events from connection management.
//!
//! The work item of a session makes and closes its connections, one after the other. The peer's
//! requests and the events are delivered by work items of connection management, with no lock of
//! the provider held.
//!
//! | action of the protocol | implementation |
//! |---|---|
//! | [`Manage::Connect`] | a QP, a REQ; after the REP: the QP is made ready, RTU |
//! | [`Reply::Accept`] | a QP that is ready, a REP; established by the RTU or a first packet |
//! | [`Manage::Close`] | a DREQ if connected; the QP is closed |

use core::net::IpAddr;

use kfi_core::rdm::{
    hello::{
        Refusal,
        Unknown,
        HELLO_LEN, //
    },
    service_id,
    session::{
        Conn,
        Manage,
        Reply, //
    },
    times::{
        CONNECT_TIME,
        READS, //
    },
    unproven::{
        Ends,
        Proof, //
    },
    Cause,
    Cookie,
    Hello,
    Unproven, //
};
use kfi_roce::cm::{
    Event,
    Reason,
    Reply as Rep, //
};

use super::{
    super::super::prelude::*,
    conn::{
        Connection,
        PeerParams,
        RETRIES, //
    },
    session::{
        Session,
        SessionConn,
        State, //
    },
    store::PostedWork, //
};
use crate::{
    mem::{
        Budget,
        Part, //
    },
    net::{
        cm,
        Stat, //
    },
    shim::{
        cred::Owner,
        random::SipKey,
        reclaim::OwnerKind,
        sched::now_ns, //
    }, //
};

/// The bytes of a hello, which is the private data of REQ and REP.
fn bytes_of(hello: &Hello) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    // The buffer has the length of a hello.
    let _ = hello.put(&mut bytes);
    bytes
}

/// The cause for an error of a connection attempt; `None`: another attempt may succeed.
fn cause_of(error: Error) -> Option<Cause> {
    match error {
        ENODEV => Some(Cause::LinkGone),
        EADDRNOTAVAIL => Some(Cause::NoAddress),
        EMSGSIZE => Some(Cause::NoMtu),
        ENETUNREACH | EHOSTUNREACH | EINVAL => Some(Cause::Unreachable),
        _ => None,
    }
}

impl Session {
    /// Handles expired timeouts, and makes and closes connections. Called by the work item. Sleeps.
    pub(super) fn manage(self: &Arc<Self>) {
        if self.endpoint.domain.link().state() == LinkState::Gone {
            self.with(|state, _| state.core.fail_all(Cause::LinkGone));
        }
        loop {
            let next = self.with(|state, now| {
                let activity = state.activity();
                let is_being_read = |number| self.is_being_read(number);
                state.core.expired(now, activity, is_being_read);
                state.core.manage(now, self.endpoint.remote.next_epoch())
            });
            match next {
                Some(Manage::Connect(conn, hello)) => self.request(conn, &hello),
                Some(Manage::Close(conn, cause)) => self.close(conn, cause),
                None => break,
            }
        }
        self.retire_if_spare();
    }

    /// Enters a connection in the session, so that work can be queued to its QP and it can be
    /// closed.
    fn enter(
        self: &Arc<Self>,
        state: &mut State,
        conn: Conn,
        initiates: bool,
    ) -> Result<Arc<Connection>> {
        let posted_work = PostedWork::new()?;
        let connection = Connection::new(self, conn, initiates)?;
        let entry = SessionConn {
            connection: connection.clone(),
            posted_work,
            cause: None,
            unsent: false,
        };
        match state.enter(entry) {
            Ok(()) => Ok(connection),
            Err(entry) => {
                entry.connection.close();
                Err(EBUSY)
            }
        }
    }

    /// Requests a connection from the peer.
    fn request(self: &Arc<Self>, conn: Conn, hello: &Hello) {
        let requested = self.try_request(conn, hello);
        if let Err(error) = requested {
            self.with(|state, now| match cause_of(error) {
                Some(cause) => state.core.failed(conn, cause),
                None => state.core.rejected(now, conn, Refusal::Busy),
            });
        }
    }

    fn try_request(self: &Arc<Self>, conn: Conn, hello: &Hello) -> Result {
        let endpoint = &self.endpoint;
        let bound = endpoint.bound.as_ref().ok_or(EBADF)?;
        if endpoint.ident.budget.is_delayed_peer(self.peer.addr().ip()) {
            // As a peer that is busy: the session tries again.
            return Err(EBUSY);
        }
        let connection = self.enter(&mut self.state.lock(), conn, true)?;
        let connect = cm::Connect {
            link: endpoint.domain.link(),
            local: bound.name.ip(),
            remote: self.peer.addr().ip(),
            service_id: service_id(self.peer.addr().port()),
            side: connection.side(READS, READS),
            mtu: None,
            retry_count: RETRIES,
            private: &bytes_of(hello),
            context: 0,
        };
        let managed = cm::connect(&connect, connection.clone())?;
        connection.managed_by(managed);
        Ok(())
    }

    /// Closes a connection. Its QP accesses no memory after this has returned.
    fn close(self: &Arc<Self>, conn: Conn, cause: Cause) {
        let connection = self.with(|state, _| Some(state.entry(conn)?.connection.clone()));
        if let Some(connection) = &connection {
            connection.close();
            // Handles the events that had come before.
            self.with(|state, now| connection.deliver_events(state, now));
            connection.abort(cause.of_receive());
            self.endpoint.forget_messages(self, conn);
        }
        let entry = self.with(|state, now| {
            let entry = state.leave(conn);
            state.core.closed(now, conn);
            entry
        });
        drop(entry);
    }

    /// Handles the peer's request for a connection.
    fn requested(self: &Arc<Self>, request: cm::Request, hello: &Hello) {
        let mut state = self.state.lock();
        if state.gone {
            // The peer repeats the request, and another session gets it.
            drop(state);
            return request.ignore();
        }
        let epoch = self.endpoint.remote.next_epoch();
        let now = now_ns();
        let proof = match request.proof() {
            cm::SourceProof::Proven => Proof::Cookie,
            cm::SourceProof::Unproven | cm::SourceProof::Unknown => Proof::None,
        };
        let is_in_doubt = state.core.has_unproven_request();
        let reply = state.core.requested(now, hello, epoch, proof);
        if is_in_doubt || state.core.has_unproven_request() {
            // Also while the peer's own request is on its way, after a forged one.
            let until = now.saturating_add(CONNECT_TIME);
            self.must_prove_until.store(until, Relaxed);
        }
        let accepted = match &reply {
            Reply::Accept(conn, _) => Some(self.prepare(&mut state, *conn, &request)),
            _ => None,
        };
        self.follow(&mut state, now);
        drop(state);
        match (reply, accepted) {
            (Reply::Refuse(refusal), _) => refuse(request, refusal),
            (Reply::Accept(_, own), Some(Ok(connection))) => {
                self.accept(request, &connection, &own);
            }
            (Reply::Accept(conn, _), _) => {
                refuse(request, Refusal::Busy);
                self.with(|state, _| state.core.failed(conn, Cause::Busy));
            }
            (Reply::Ignore, _) => request.ignore(),
        }
    }

    /// Makes a connection that the peer has requested, ready to receive.
    fn prepare(
        self: &Arc<Self>,
        state: &mut State,
        conn: Conn,
        request: &cm::Request,
    ) -> Result<Arc<Connection>> {
        let connection = self.enter(state, conn, false)?;
        let params = request.params();
        let peer = PeerParams {
            qpn: params.qpn,
            psn: params.starting_psn,
            mtu: params.mtu,
            responder_resources: params.initiator_depth,
            initiator_depth: params.responder_resources,
        };
        // If this fails, the protocol closes the connection.
        connection.ready(request.path(), &peer)?;
        Ok(connection)
    }

    fn accept(self: &Arc<Self>, request: cm::Request, connection: &Arc<Connection>, own: &Hello) {
        let params = request.params();
        let side = connection.side(
            params.responder_resources.min(READS),
            params.initiator_depth.min(READS),
        );
        match request.accept(&side, &bytes_of(own), 0, connection.clone()) {
            Ok(managed) => connection.managed_by(managed),
            // The peer has ended the attempt meanwhile.
            Err(_) => {
                self.with(|state, _| state.core.failed(connection.conn, Cause::Superseded));
            }
        }
    }

    /// Handles the peer's REP.
    fn replied(self: &Arc<Self>, connection: &Connection, managed: &Arc<cm::Conn>, rep: &Rep<'_>) {
        let conn = connection.conn;
        let result = self.try_reply(connection, managed, rep);
        match result {
            Ok(true) => {
                // If the peer has gone meanwhile, an event reports that.
                let _ = managed.confirm(&[]);
                self.free_if_unused();
            }
            // The reply is too late.
            Ok(false) => {
                let _ = managed.reject(Reason::CONSUMER_DEFINED, &[]);
            }
            Err(cause) => {
                let _ = managed.reject(Reason::CONSUMER_DEFINED, &[]);
                self.with(|state, _| state.core.failed(conn, cause));
            }
        }
    }

    fn try_reply(
        self: &Arc<Self>,
        connection: &Connection,
        managed: &Arc<cm::Conn>,
        rep: &Rep<'_>,
    ) -> core::result::Result<bool, Cause> {
        let hello = Hello::parse(rep.private).map_err(|unknown| match unknown {
            Unknown::Version => Cause::Version,
            Unknown::Malformed => Cause::Protocol,
        })?;
        if !hello.is_of(&self.peer) {
            // Another endpoint has the port where the receive context would be.
            return Err(Cause::Nobody);
        }
        if hello.auth_key != self.endpoint.auth_key {
            // A peer that does not know keys accepts any.
            return Err(Cause::Key);
        }
        let peer = PeerParams {
            qpn: rep.qpn,
            psn: rep.starting_psn,
            mtu: rep.mtu,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
        };
        connection
            .ready(managed.path(), &peer)
            .map_err(|_| Cause::Reset)?;
        // No work is queued to the QP before the RTU is sent.
        let mut state = self.state.lock();
        Ok(state.core.accepted(now_ns(), connection.conn, &hello))
    }

    /// Handles the peer's REJ.
    fn rejected(self: &Arc<Self>, conn: Conn, reason: Reason, private: &[u8]) {
        let refusal = match (reason, Refusal::parse(private)) {
            (Reason::CONSUMER_DEFINED, Some(refusal)) => Some(refusal),
            (Reason::INVALID_SERVICE_ID, _) => Some(Refusal::Nobody),
            (Reason::NO_QP | Reason::NO_RESOURCES | Reason::STALE_CONN | Reason::TIMEOUT, _) => {
                Some(Refusal::Busy)
            }
            _ => None,
        };
        self.with(|state, now| match refusal {
            Some(refusal) => state.core.rejected(now, conn, refusal),
            // The peer uses another connection with this end, or has given this one up.
            None => state.core.failed(conn, Cause::Superseded),
        });
    }
}

impl cm::Consumer for Connection {
    fn event(&self, managed: &Arc<cm::Conn>, event: &Event<'_>) {
        let session = &self.session;
        let conn = self.conn;
        match event {
            Event::Reply(rep) => session.replied(self, managed, rep),
            Event::Established(_) => {
                self.set_established();
                session.with(|state, now| state.core.established(now, conn));
            }
            Event::Rejected {
                reason, private, ..
            } => session.rejected(conn, *reason, private),
            Event::Unreachable => {
                session.with(|state, _| state.core.failed(conn, Cause::Unanswered));
            }
            Event::Disconnected(_) => {
                // The peer may have refused an access before it disconnected. That operation
                // completes with the refusal.
                self.settle();
                session.with(|state, _| state.core.failed(conn, self.cause()));
            }
            Event::Released | Event::Closed => {}
        }
    }

    fn owner_kind(&self) -> OwnerKind {
        self.endpoint().ident.owner.kind()
    }

    fn owner(&self) -> Option<(&Owner, &Budget)> {
        let ident = &self.endpoint().ident;
        Some((&ident.owner, &ident.budget))
    }
}

/// Rejects a request with the reason. No state of it is kept.
fn refuse(request: cm::Request, refusal: Refusal) {
    request.refuse(Reason::CONSUMER_DEFINED, &refusal.to_bytes());
}

/// Handles the connection requests to an endpoint.
pub(super) struct RdmListener(pub(super) Arc<Endpoint>);

impl RdmListener {
    /// The session with the peer that sent the request, and the hello of the request.
    fn answer(
        &self,
        request: &cm::Request,
    ) -> core::result::Result<(Arc<Session>, Hello), Refusal> {
        let endpoint = &self.0;
        let Some((_inside, bound)) = endpoint.enter() else {
            return Err(Refusal::Nobody);
        };
        // The address may be that of another link by now.
        if !endpoint.has_address(bound) {
            return Err(Refusal::Nobody);
        }
        let (from, hello) = self.sender(request.remote(), request.private())?;
        let session = endpoint.session(bound, &from).map_err(|_| Refusal::Busy)?;
        Ok((session, hello))
    }

    /// The endpoint that sent a request with this private data from `ip`, and its hello. Any
    /// context.
    fn sender(
        &self,
        ip: IpAddr,
        private: &[u8],
    ) -> core::result::Result<(PeerAddr, Hello), Refusal> {
        let hello = Hello::parse(private).map_err(|unknown| match unknown {
            Unknown::Version => Refusal::Version,
            Unknown::Malformed => Refusal::Nobody,
        })?;
        let from = self.0.domain.link().peer(ip).ok_or(Refusal::Nobody)?;
        if hello.auth_key != self.0.auth_key {
            return Err(Refusal::Key);
        }
        let from = PeerAddr::new(from.with_port(hello.port), hello.name_port);
        Ok((from, hello))
    }

    /// Decides whether a request is handled, before anything is made for it: its source address may
    /// be forged. With `must_prove`, a request needs a valid cookie. It also needs one for some
    /// seconds after another one in the name of its sender, and replaces that one. Requests without
    /// one get at most half of the memory for half-open connections. Does not sleep.
    fn check(
        &self,
        ip: IpAddr,
        private: &[u8],
        must_prove: bool,
    ) -> core::result::Result<cm::SourceProof, Refusal> {
        let bound = self.0.bound.as_ref().ok_or(Refusal::Nobody)?;
        let (peer, hello) = self.sender(ip, private)?;
        let port = bound.name.port();
        let ends = Ends {
            peer: *peer.addr(),
            port,
        };
        let must_prove = must_prove
            || self.0.remote.must_prove(&peer, now_ns())
            || self.0.ident.budget.is_half_used(Part::HalfOpen);
        let filter = &self.0.remote.request_filter;
        filter.check(now_ns(), &ends, hello.cookie, must_prove)
    }
}

impl cm::Listener for RdmListener {
    fn screen(
        &self,
        from: IpAddr,
        private: &[u8],
        must_prove: bool,
    ) -> core::result::Result<cm::SourceProof, cm::Rejection> {
        let proof = self.check(from, private, must_prove);
        proof.map_err(|refusal| cm::Rejection {
            private: refusal.to_bytes(),
            stat: match refusal {
                Refusal::Retry(_) => Some(Stat::CmUnproven),
                Refusal::Key => Some(Stat::CmKey),
                Refusal::Nobody | Refusal::Busy | Refusal::Version => None,
            },
        })
    }

    fn is_delayed(&self, from: IpAddr) -> bool {
        self.0.ident.budget.is_delayed_peer(from)
    }

    fn request(&self, request: cm::Request) {
        match self.answer(&request) {
            Ok((session, hello)) => session.requested(request, &hello),
            Err(refusal) => refuse(request, refusal),
        }
    }

    fn owner_kind(&self) -> OwnerKind {
        self.0.ident.owner.kind()
    }

    fn owner(&self) -> Option<(&Owner, &Budget)> {
        Some((&self.0.ident.owner, &self.0.ident.budget))
    }
}

/// Decides which connection requests of peers an endpoint handles. Their source addresses may be
/// forged: see [`kfi_core::rdm::unproven`]. Has the requests without a valid cookie, and the key of
/// the cookies.
#[pin_data]
pub(super) struct RequestFilter {
    key: SipKey,
    /// A leaf.
    #[pin]
    unproven: SpinLock<Unproven>,
}

impl RequestFilter {
    /// Makes the filter of a new endpoint, with a random key.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            key: SipKey::random(),
            unproven <- new_spinlock!(Unproven::new(), "RequestFilter::unproven"),
        })
    }

    /// Decides whether a request is handled at time `now` in ns; with `must_prove` only with a
    /// valid cookie. The error is the refusal if it is not: the peer must repeat the request with a
    /// cookie. Does not sleep.
    pub(super) fn check(
        &self,
        now: u64,
        ends: &Ends,
        cookie: Option<Cookie>,
        must_prove: bool,
    ) -> core::result::Result<cm::SourceProof, Refusal> {
        let hash = |words: [u64; 4]| self.key.hash(&words);
        let mut unproven = self.unproven.lock();
        match unproven.check(now, ends, cookie, must_prove, hash) {
            Ok(Proof::Cookie) => Ok(cm::SourceProof::Proven),
            Ok(Proof::None) => Ok(cm::SourceProof::Unproven),
            Err(demand) => Err(Refusal::Retry(demand)),
        }
    }
}
