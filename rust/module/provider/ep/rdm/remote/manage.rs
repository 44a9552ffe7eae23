// SPDX-License-Identifier: GPL-2.0

//! Connections come and go: what a session has done about them, and what connection management says.
//!
//! A session's work item makes and closes connections, one thing after the other. The peer's requests and
//! connection management's events come in that room's own context, with none of our locks held.
//!
//! | the protocol says | here |
//! |---|---|
//! | [`Manage::Connect`] | a QP, a REQ; REP: the QP is made ready, RTU |
//! | [`Reply::Accept`] | a QP that is ready, a REP; RTU, or a first packet: established |
//! | [`Manage::Close`] | connection management lets go (DREQ, if need be), the QP is closed |

use core::net::IpAddr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

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
    times::READS,
    Cause,
    Hello, //
};
use kfi_roce::cm::{
    Event,
    Reason,
    Reply as Rep, //
};

use super::{
    super::super::{
        bound::Bound,
        Endpoint, //
    },
    conn::{
        Connection,
        Far,
        RETRIES, //
    },
    session::{
        Line,
        Session,
        State, //
    },
    works::Works, //
};
use crate::{
    net::{
        cm,
        LinkState,
        Path, //
    },
    shim::sched::now_ns, //
};

/// What there is of a greeting.
fn bytes_of(hello: &Hello) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    // It has so many.
    let _ = hello.put(&mut bytes);
    bytes
}

/// The cause that an error in asking for a connection is; `None`: it may be better soon.
fn cause_of(error: Error) -> Option<Cause> {
    match error {
        ENODEV => Some(Cause::LinkGone),
        ENETUNREACH | EHOSTUNREACH | EINVAL => Some(Cause::Unreachable),
        _ => None,
    }
}

impl Session {
    /// Does what is to be done about connections, and what is due. The work item. Sleeps.
    pub(super) fn manage(self: &Arc<Self>) {
        if self.endpoint().domain.link().state() == LinkState::Gone {
            self.with(|state, _| state.core.fail_all(Cause::LinkGone));
        }
        loop {
            let next = self.with(|state, now| {
                let heard = state.heard();
                state.core.expired(now, heard);
                state.core.manage(now, self.endpoint().remote.next_epoch())
            });
            match next {
                Some(Manage::Connect(conn, hello)) => self.ask(conn, &hello),
                Some(Manage::Close(conn, cause)) => self.close(conn, cause),
                None => break,
            }
        }
        self.retire_if_spare();
    }

    /// Puts a connection in, so that work can be handed to its QP and it can be closed.
    fn enter(
        self: &Arc<Self>,
        state: &mut State,
        conn: Conn,
        asks: bool,
    ) -> Result<Arc<Connection>> {
        let works = Works::new()?;
        let connection = Connection::new(self, conn, asks)?;
        let line = Line {
            connection: connection.clone(),
            works,
            cause: None,
            unsent: false,
        };
        match state.enter(line) {
            Ok(()) => Ok(connection),
            Err(line) => {
                line.connection.close();
                Err(EBUSY)
            }
        }
    }

    /// Asks the peer for a connection.
    fn ask(self: &Arc<Self>, conn: Conn, hello: &Hello) {
        let asked = self.try_ask(conn, hello);
        if let Err(error) = asked {
            self.with(|state, now| match cause_of(error) {
                Some(cause) => state.core.failed(conn, cause),
                None => state.core.rejected(now, conn, Refusal::Busy),
            });
        }
    }

    fn try_ask(self: &Arc<Self>, conn: Conn, hello: &Hello) -> Result {
        let endpoint = self.endpoint();
        let bound = endpoint.bound.as_ref().ok_or(EBADF)?;
        let connection = self.enter(&mut self.lock(), conn, true)?;
        let connect = cm::Connect {
            link: endpoint.domain.link(),
            local: bound.name.ip(),
            remote: self.peer().ip(),
            service_id: service_id(self.peer().port()),
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

    /// Closes a connection: when this returns, its QP has no part in anything.
    fn close(self: &Arc<Self>, conn: Conn, cause: Cause) {
        let connection = self.with(|state, _| Some(state.line(conn)?.connection.clone()));
        if let Some(connection) = &connection {
            connection.close();
            // What had come and was not told.
            self.with(|state, now| connection.tell(state, now));
            connection.abort(match cause {
                Cause::Closed => cause,
                _ => Cause::Reset,
            });
            self.endpoint().forget_messages(self, conn);
        }
        let line = self.with(|state, now| {
            let line = state.leave(conn);
            state.core.closed(now, conn);
            line
        });
        drop(line);
    }

    /// The peer asks for a connection.
    fn requested(self: &Arc<Self>, request: cm::Request, hello: &Hello) {
        let mut state = self.lock();
        if state.is_gone() {
            // It comes again, and to another session.
            drop(state);
            return request.ignore();
        }
        let epoch = self.endpoint().remote.next_epoch();
        let now = now_ns();
        let reply = state.core.requested(now, hello, epoch);
        let accepted = match &reply {
            Reply::Accept(conn, _) => Some(self.prepare(&mut state, *conn, &request)),
            _ => None,
        };
        self.follow(&mut state, now);
        drop(state);
        match (reply, accepted) {
            (Reply::Refuse(refusal), _) => refuse(request, refusal),
            (Reply::Accept(_, mine), Some(Ok(connection))) => {
                self.accept(request, &connection, &mine);
            }
            (Reply::Accept(conn, _), _) => {
                refuse(request, Refusal::Busy);
                self.with(|state, _| state.core.failed(conn, Cause::Busy));
            }
            (Reply::Ignore, _) => request.ignore(),
        }
    }

    /// Makes a connection that the peer has asked for, ready to receive.
    fn prepare(
        self: &Arc<Self>,
        state: &mut State,
        conn: Conn,
        request: &cm::Request,
    ) -> Result<Arc<Connection>> {
        let connection = self.enter(state, conn, false)?;
        let params = request.params();
        let far = Far {
            qpn: params.qpn,
            psn: params.starting_psn,
            mtu: params.mtu,
            serves: params.initiator_depth,
            asks: params.responder_resources,
        };
        // If that fails, the connection is closed as the protocol says.
        connection.ready(request.path(), &far)?;
        Ok(connection)
    }

    fn accept(self: &Arc<Self>, request: cm::Request, connection: &Arc<Connection>, mine: &Hello) {
        let params = request.params();
        let side = connection.side(
            params.responder_resources.min(READS),
            params.initiator_depth.min(READS),
        );
        match request.accept(&side, &bytes_of(mine), 0, connection.clone()) {
            Ok(managed) => connection.managed_by(managed),
            // The peer has given up meanwhile.
            Err(_) => {
                self.with(|state, _| state.core.failed(connection.conn(), Cause::Superseded));
            }
        }
    }

    /// The peer has accepted.
    fn replied(self: &Arc<Self>, connection: &Connection, managed: &Arc<cm::Conn>, rep: &Rep<'_>) {
        let conn = connection.conn();
        let result = self.try_reply(connection, managed, rep);
        match result {
            Ok(true) => {
                // Who cannot be told any more has gone, and that is told as an event.
                let _ = managed.confirm(&[]);
                self.settle();
            }
            // It comes too late.
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
        let path = managed.path();
        let far = Far {
            qpn: rep.qpn,
            psn: rep.starting_psn,
            mtu: rep.mtu,
            serves: rep.initiator_depth,
            asks: rep.responder_resources,
        };
        connection.ready(path, &far).map_err(|_| Cause::Reset)?;
        // Nothing is handed to the QP yet: the peer is to hear of it first.
        let mut state = self.lock();
        Ok(state.core.accepted(now_ns(), connection.conn(), &hello))
    }

    /// The peer says no.
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
            // It has another connection with us, or has given this one up.
            None => state.core.failed(conn, Cause::Superseded),
        });
    }
}

impl cm::Consumer for Connection {
    fn event(&self, managed: &Arc<cm::Conn>, event: &Event<'_>) {
        let session = self.session();
        let conn = self.conn();
        match event {
            Event::Reply(rep) => session.replied(self, managed, rep),
            Event::Established(_) => {
                self.is_established();
                session.with(|state, now| state.core.established(now, conn));
            }
            Event::Rejected {
                reason, private, ..
            } => session.rejected(conn, *reason, private),
            Event::Unreachable => {
                session.with(|state, _| state.core.failed(conn, Cause::Unanswered));
            }
            Event::Disconnected(_) => {
                // The peer may have refused an access before, which ends with that refusal.
                self.settle();
                session.with(|state, _| state.core.failed(conn, self.cause()));
            }
            Event::Released | Event::Closed => {}
        }
    }
}

/// Says no, and why.
fn refuse(request: cm::Request, refusal: Refusal) {
    request.refuse(Reason::CONSUMER_DEFINED, &refusal.to_bytes());
}

/// Where an endpoint is asked for connections.
pub(super) struct Door(pub(super) Arc<Endpoint>);

impl Door {
    /// The session with the peer that asks, and what it says.
    fn answer(
        &self,
        request: &cm::Request,
    ) -> core::result::Result<(Arc<Session>, Hello), Refusal> {
        let endpoint = &self.0;
        let (Some(_inside), Some(bound)) = (endpoint.run.enter(), endpoint.bound.as_ref()) else {
            return Err(Refusal::Nobody);
        };
        let hello = Hello::parse(request.private()).map_err(|unknown| match unknown {
            Unknown::Version => Refusal::Version,
            Unknown::Malformed => Refusal::Nobody,
        })?;
        let from = self
            .name_of(request.remote(), hello.port)
            .ok_or(Refusal::Nobody)?;
        let session = self.session(bound, from)?;
        Ok((session, hello))
    }

    fn name_of(&self, ip: IpAddr, port: u16) -> Option<kfi_core::addr::SockAddr> {
        let addr = self.0.domain.link().peer(ip)?;
        Some(addr.with_port(port))
    }

    fn session(
        &self,
        bound: &Bound,
        from: kfi_core::addr::SockAddr,
    ) -> core::result::Result<Arc<Session>, Refusal> {
        self.0.session(bound, &from).map_err(|_| Refusal::Busy)
    }
}

impl cm::Listener for Door {
    fn request(&self, request: cm::Request) {
        match self.answer(&request) {
            Ok((session, hello)) => session.requested(request, &hello),
            Err(refusal) => refuse(request, refusal),
        }
    }
}

/// Whether there is a way from an address of a link to a peer. Sleeps.
pub(super) fn has_way(bound: &Bound, endpoint: &Endpoint, to: IpAddr) -> bool {
    Path::new(endpoint.domain.link(), bound.name.ip(), to).is_ok_and(|path| path.mtu().is_some())
}
