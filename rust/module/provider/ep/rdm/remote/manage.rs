// SPDX-License-Identifier: GPL-2.0

//! Making and closing the connections of a session, and events from connection management.
//!
//! The worker of a session makes and closes its connections, one after the other (`worker.rs`).
//! Work items of connection management deliver the peer's requests and the events to it.
//!
//! | action of the protocol | implementation |
//! |---|---|
//! | [`Manage::Connect`] | a QP, a REQ; after the REP: the QP is made ready, RTU |
//! | [`Reply::Accept`] | a QP that is ready, a REP; established by the RTU or a first packet |
//! | [`Manage::Close`] | a DREQ if connected; the QP is closed |
//!
//! [`Manage::Connect`]: kfi_core::rdm::session::Manage::Connect
//! [`Manage::Close`]: kfi_core::rdm::session::Manage::Close

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
        Reply, //
    },
    times::READS,
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
        CmEvent,
        Connection,
        PeerParams,
        RETRIES, //
    },
    session::{
        Session,
        SessionConn, //
    },
    store::PostedWork,
    worker::{
        Next,
        Purpose,
        Step, //
    }, //
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
pub(super) fn cause_of(error: Error) -> Option<Cause> {
    match error {
        ENODEV => Some(Cause::LinkGone),
        // A link that is down and has lost the address, as well.
        EADDRNOTAVAIL | ENETDOWN => Some(Cause::NoAddress),
        EMSGSIZE => Some(Cause::NoMtu),
        ENETUNREACH | EHOSTUNREACH | EINVAL => Some(Cause::Unreachable),
        _ => None,
    }
}

/// What the worker does without the lock of the state.
impl Session {
    /// Does what follows a step. Returns the next step; `None`: there is nothing to do. Called by
    /// the worker. Sleeps.
    pub(super) fn go_on(self: &Arc<Self>, next: Next) -> Option<Step> {
        let step = match next {
            Next::End => return None,
            Next::Step(step) => step,
            Next::Connect(conn, hello) => self.connect(conn, hello),
            Next::Answer(request, reply) => self.answer_request(request, reply),
            Next::Entered(connection, Purpose::Connect(hello)) => self.request(&connection, &hello),
            Next::Entered(connection, Purpose::Accept(request, own)) => {
                self.accept(KBox::into_inner(request), &connection, &own)
            }
            Next::NotEntered(entry, purpose) => Self::not_entered(entry, purpose),
            Next::Confirm(connection, accepted) => {
                Self::confirm(&connection, accepted);
                Step::Decide
            }
            Next::Close(conn, None, _) => Step::Leave(conn),
            Next::Close(_, Some(connection), cause) => {
                // The QP accesses no memory afterwards. What came before is handled next.
                connection.close();
                Step::Drain(connection, cause)
            }
            Next::Drained(connection, cause) => {
                connection.abort(cause.of_receive());
                self.endpoint.forget_messages(self, connection.conn);
                Step::Leave(connection.conn)
            }
            Next::Left(entry) => {
                drop(entry);
                Step::Decide
            }
            Next::Retire(alarm) => {
                // Cancels the timer. Its callback takes no lock.
                drop(alarm);
                self.endpoint.remote.forget(self);
                return None;
            }
        };
        Some(step)
    }

    /// Makes a connection, to be entered in the state.
    fn make(self: &Arc<Self>, conn: Conn, initiates: bool) -> Result<SessionConn> {
        Ok(SessionConn {
            posted_work: PostedWork::new()?,
            connection: Connection::new(self, conn, initiates)?,
            cause: None,
            unsent: false,
        })
    }

    /// Makes a connection that this end requests.
    fn connect(self: &Arc<Self>, conn: Conn, hello: Hello) -> Step {
        if self
            .endpoint
            .ident
            .budget
            .is_delayed_peer(self.peer.addr().ip())
        {
            // As a peer that is busy: the session tries again.
            return not_requested(conn, EBUSY);
        }
        match self.make(conn, true) {
            Ok(entry) => Step::Enter(entry, Purpose::Connect(hello)),
            Err(error) => not_requested(conn, error),
        }
    }

    /// Requests a connection from the peer.
    fn request(self: &Arc<Self>, connection: &Arc<Connection>, hello: &Hello) -> Step {
        match self.try_request(connection, hello) {
            Ok(()) => Step::Decide,
            Err(error) => not_requested(connection.conn, error),
        }
    }

    fn try_request(&self, connection: &Arc<Connection>, hello: &Hello) -> Result {
        let endpoint = &self.endpoint;
        let bound = endpoint.bound.as_ref().ok_or(EBADF)?;
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

    /// Answers the peer's request as the protocol has decided.
    fn answer_request(self: &Arc<Self>, request: KBox<cm::Request>, reply: Reply) -> Step {
        match reply {
            Reply::Refuse(refusal) => refuse(KBox::into_inner(request), refusal),
            Reply::Ignore => KBox::into_inner(request).ignore(),
            Reply::Accept(conn, own) => match self.prepare(conn, &request) {
                Ok(entry) => return Step::Enter(entry, Purpose::Accept(request, own)),
                Err(_) => {
                    refuse(KBox::into_inner(request), Refusal::Busy);
                    return Step::Failed(conn, Cause::Busy);
                }
            },
        }
        Step::Decide
    }

    /// Makes a connection that the peer has requested, ready to receive.
    fn prepare(self: &Arc<Self>, conn: Conn, request: &cm::Request) -> Result<SessionConn> {
        let entry = self.make(conn, false)?;
        let params = request.params();
        let peer = PeerParams {
            qpn: params.qpn,
            psn: params.starting_psn,
            mtu: params.mtu,
            responder_resources: params.initiator_depth,
            initiator_depth: params.responder_resources,
        };
        if let Err(error) = entry.connection.ready(request.path(), &peer) {
            entry.connection.close();
            return Err(error);
        }
        Ok(entry)
    }

    fn accept(&self, request: cm::Request, connection: &Arc<Connection>, own: &Hello) -> Step {
        let params = request.params();
        let side = connection.side(
            params.responder_resources.min(READS),
            params.initiator_depth.min(READS),
        );
        match request.accept(&side, &bytes_of(own), 0, connection.clone()) {
            Ok(managed) => {
                connection.managed_by(managed);
                Step::Decide
            }
            // The peer has ended the attempt meanwhile.
            Err(_) => Step::Failed(connection.conn, Cause::Superseded),
        }
    }

    /// Gives up a connection for which there is no room.
    fn not_entered(entry: SessionConn, purpose: Purpose) -> Step {
        let conn = entry.connection.conn;
        entry.connection.close();
        match purpose {
            Purpose::Connect(_) => not_requested(conn, EBUSY),
            Purpose::Accept(request, _) => {
                refuse(KBox::into_inner(request), Refusal::Busy);
                Step::Failed(conn, Cause::Busy)
            }
        }
    }

    /// Answers the peer's REP.
    fn confirm(connection: &Connection, accepted: bool) {
        let Some(managed) = connection.managed() else {
            return;
        };
        // If the peer has gone meanwhile, an event reports that.
        let _ = if accepted {
            managed.confirm(&[])
        } else {
            // The reply is too late, or it is wrong.
            managed.reject(Reason::CONSUMER_DEFINED, &[])
        };
    }
}

/// The next step after a connection attempt that has failed.
fn not_requested(conn: Conn, error: Error) -> Step {
    match cause_of(error) {
        Some(cause) => Step::Failed(conn, cause),
        None => Step::Rejected(conn, Refusal::Busy),
    }
}

/// The reason that the private data of a REJ gives; `None`: the peer uses another connection with
/// this end, or has given this one up.
fn refusal_of(reason: Reason, private: &[u8]) -> Option<Refusal> {
    match (reason, Refusal::parse(private)) {
        (Reason::CONSUMER_DEFINED, Some(refusal)) => Some(refusal),
        (Reason::INVALID_SERVICE_ID, _) => Some(Refusal::Nobody),
        (Reason::NO_QP | Reason::NO_RESOURCES | Reason::STALE_CONN | Reason::TIMEOUT, _) => {
            Some(Refusal::Busy)
        }
        _ => None,
    }
}

/// Events from connection management. The session's worker handles them, because they need the
/// state.
impl Connection {
    /// Handles the peer's REP, except for the state: makes the QP ready.
    fn replied(&self, managed: &cm::Conn, rep: &Rep<'_>) -> core::result::Result<Hello, Cause> {
        let session = &self.session;
        let hello = Hello::parse(rep.private).map_err(|unknown| match unknown {
            Unknown::Version => Cause::Version,
            Unknown::Malformed => Cause::Protocol,
        })?;
        if !hello.is_of(&session.peer) {
            // Another endpoint has the port where the receive context would be.
            return Err(Cause::Nobody);
        }
        if hello.auth_key != session.endpoint.auth_key {
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
        let ready = self.ready(managed.path(), &peer);
        ready.map(|()| hello).map_err(|_| Cause::Reset)
    }
}

impl cm::Consumer for Connection {
    fn event(&self, managed: &Arc<cm::Conn>, event: &Event<'_>) -> cm::Delivery {
        let event = match event {
            Event::Reply(rep) => CmEvent::Replied(self.replied(managed, rep)),
            Event::Established(_) => {
                self.set_established();
                CmEvent::Established
            }
            Event::Rejected {
                reason, private, ..
            } => CmEvent::Rejected(refusal_of(*reason, private)),
            Event::Unreachable => CmEvent::Unreachable,
            Event::Disconnected(_) => {
                // The peer may have refused an access before it disconnected. That operation
                // completes with the refusal.
                self.settle();
                CmEvent::Disconnected
            }
            Event::Released | Event::Closed => return cm::Delivery::Done,
        };
        self.put_cm_event(event);
        self.session.wake();
        cm::Delivery::Done
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
        // The address may belong to another link now.
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

    /// Leaves the request to the worker of the session.
    fn request(&self, request: cm::Request) {
        let answered = self.answer(&request);
        let (session, hello) = match answered {
            Ok(answered) => answered,
            Err(refusal) => return refuse(request, refusal),
        };
        let Ok(place) = KBox::<cm::Request>::new_uninit(GFP_KERNEL_ACCOUNT) else {
            return refuse(request, Refusal::Busy);
        };
        if let Some(request) = session.put_request(place.write(request), hello) {
            // The peer repeats it.
            KBox::into_inner(request).ignore();
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
