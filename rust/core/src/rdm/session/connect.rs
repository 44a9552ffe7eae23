// SPDX-License-Identifier: GPL-2.0
//! Establishing and ending connections.

use super::{
    super::{
        cause::Cause,
        hello::{
            Hello,
            PeerEpoch,
            Refusal, //
        },
        ops::Lane,
        store::{
            Store,
            Stores, //
        },
        times::{
            ANSWER_TIME_MAX,
            BUSY_PAUSE,
            BUSY_PAUSE_MAX,
            CHECK_TIME,
            CONNECT_TIME,
            LINGER_TIME,
            PROMPT_RETRIES,
            PROOF_TIME,
            RETIRE_TIME, //
        },
        unproven::{
            Cookie,
            Proof, //
        },
    },
    Conn,
    ConnState, //
    ConnectAttempt,
    Connection,
    Flush,
    Manage,
    Reply,
    Session,
};

impl ConnectAttempt {
    /// Sends the next request after a pause, because the peer is busy.
    fn back_off(&mut self, now: u64) {
        self.cause = Cause::Busy;
        self.after = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(BUSY_PAUSE_MAX);
    }

    /// Sends the next request with the cookie of the peer: at once, or after a pause if the peer
    /// has sent too many cookies.
    fn retry(&mut self, now: u64, cookie: Cookie) {
        self.cookie = Some(cookie);
        if self.retries < PROMPT_RETRIES {
            self.retries = self.retries.saturating_add(1);
        } else {
            self.back_off(now);
        }
    }
}

impl<S: Stores> Session<S> {
    /// Requests a connection if operations are waiting and there is none.
    pub(super) fn start_connecting(&mut self, now: u64) {
        let is_up = self.current.as_ref().is_some_and(Connection::is_open);
        let nothing = self.sends.is_empty() && self.rmas.map.is_empty();
        if is_up || nothing || self.leaving || self.attempt.is_some() {
            return;
        }
        self.attempt = Some(ConnectAttempt {
            until: now.saturating_add(CONNECT_TIME),
            after: now,
            pause: BUSY_PAUSE,
            retries: 0,
            cookie: None,
            cause: Cause::Unanswered,
        });
    }

    fn hello(&self, epoch: u64, cookie: Option<Cookie>) -> Hello {
        Hello {
            peer_epoch: PeerEpoch {
                incarnation: self.config.incarnation,
                epoch,
            },
            port: self.config.port,
            name_port: self.config.name_port,
            reads: self.config.reads,
            caps: self.config.caps,
            cookie,
            auth_key: self.config.auth_key,
        }
    }

    /// Returns the next action for the connections. The caller repeats this until it returns
    /// `None`. `epoch` is larger than any that the endpoint has used; it is used up if a connection
    /// is made.
    pub fn manage(&mut self, now: u64, epoch: u64) -> Option<Manage> {
        for connection in self.connections() {
            if let ConnState::Closing(cause, reported @ false) = &mut connection.state {
                *reported = true;
                return Some(Manage::Close(connection.id, *cause));
            }
        }
        if !self.wants_to_connect(now) {
            return None;
        }
        let conn = Conn(epoch);
        self.current = Some(Connection::new(conn, ConnState::Asked));
        let cookie = self.attempt.and_then(|attempt| attempt.cookie);
        Some(Manage::Connect(conn, self.hello(epoch, cookie)))
    }

    /// Returns whether [`Self::manage`] would return an action.
    pub fn wants_manage(&self, now: u64) -> bool {
        let closes = |connection: &Option<Connection>| {
            connection
                .as_ref()
                .is_some_and(|connection| matches!(connection.state, ConnState::Closing(_, false)))
        };
        closes(&self.current) || closes(&self.incoming) || self.wants_to_connect(now)
    }

    fn wants_to_connect(&self, now: u64) -> bool {
        self.flush.is_none() && self.connect_at().is_some_and(|at| at <= now)
    }

    /// Returns the time at which to send a connection request. If the peer seems to have requested
    /// a connection, the session waits for its confirmation first, but only for a limited time,
    /// because a forged request is never confirmed.
    pub(super) fn connect_at(&self) -> Option<u64> {
        let attempt = self.attempt.filter(|_| self.current.is_none())?;
        let confirm_by = self
            .incoming
            .as_ref()
            .map_or(0, |connection| connection.confirm_by);
        match self.incoming.as_ref().map(|connection| connection.state) {
            None | Some(ConnState::Closing(..)) => Some(attempt.after),
            Some(ConnState::Answered(_)) => Some(attempt.after.max(confirm_by)),
            Some(_) => None,
        }
    }

    /// Handles a connection request in the name of the peer. The request is known to be the peer's
    /// only when the connection is established. The caller has checked it with
    /// [`Unproven::check`](super::super::unproven::Unproven::check), whose result is `proof`.
    /// `epoch` as in [`Self::manage`].
    pub fn requested(&mut self, now: u64, hello: &Hello, epoch: u64, proof: Proof) -> Reply {
        let peer_epoch = hello.peer_epoch;
        if self.leaving || peer_epoch.incarnation == self.config.incarnation {
            return Reply::Refuse(Refusal::Nobody);
        }
        if hello.auth_key != self.config.auth_key {
            return Reply::Refuse(Refusal::Key);
        }
        let stale = |seen: PeerEpoch| {
            seen.incarnation == peer_epoch.incarnation && peer_epoch.epoch <= seen.epoch
        };
        if self.seen.is_some_and(stale) {
            return Reply::Ignore;
        }
        if let Some(connection) = &mut self.incoming {
            // A repeated request makes an unconfirmed earlier one void. Incarnations are random, so
            // a request with the same incarnation comes from the same sender.
            let is_older = |asked: PeerEpoch| {
                asked.incarnation == peer_epoch.incarnation && asked.epoch < peer_epoch.epoch
            };
            let is_less_certain = connection.proof == Proof::None && proof == Proof::Cookie;
            let is_doubtful = matches!(connection.state, ConnState::Answered(_))
                && (connection.confirm_by <= now || is_less_certain);
            if is_doubtful || connection.peer_request.is_some_and(is_older) {
                connection.close(Cause::Superseded);
            }
            return Reply::Ignore;
        }
        let asks = |connection: &Connection| connection.state == ConnState::Asked;
        if self.current.as_ref().is_some_and(asks)
            && self.config.incarnation > peer_epoch.incarnation
        {
            return Reply::Ignore;
        }
        self.received_at = now;
        let conn = Conn(epoch);
        let until = now.saturating_add(CONNECT_TIME);
        let mut connection = Connection::new(conn, ConnState::Answered(until));
        connection.caps = hello.caps;
        connection.reads = u32::from(hello.reads.min(self.config.reads));
        connection.peer_request = Some(peer_epoch);
        connection.proof = proof;
        connection.confirm_by = now.saturating_add(PROOF_TIME);
        self.incoming = Some(connection);
        Reply::Accept(conn, self.hello(epoch, None))
    }

    /// Whether a request without a proof is pending: the peer should be asked for a proof, with
    /// which its request replaces the pending one.
    pub fn has_unproven_request(&self) -> bool {
        self.incoming.as_ref().is_some_and(|connection| {
            connection.proof == Proof::None && matches!(connection.state, ConnState::Answered(_))
        })
    }

    /// Handles the acceptance by the peer (REP). Returns false if it is too late; the caller then
    /// rejects it.
    pub fn accepted(&mut self, now: u64, conn: Conn, hello: &Hello) -> bool {
        let reads = hello.reads.min(self.config.reads);
        let Some(connection) = self
            .current(conn)
            .filter(|connection| connection.state == ConnState::Asked)
        else {
            return false;
        };
        connection.state = ConnState::Up;
        connection.caps = hello.caps;
        connection.reads = u32::from(reads);
        self.seen = Some(hello.peer_epoch);
        // An answer to the peer's own request that it has not confirmed is no longer needed.
        if let Some(other) = &mut self.incoming {
            if matches!(other.state, ConnState::Answered(_)) {
                other.close(Cause::Superseded);
            }
        }
        self.up(now);
        true
    }

    /// Handles the confirmation by the peer (RTU, or a first packet).
    pub fn established(&mut self, now: u64, conn: Conn) {
        let Some(connection) = self.incoming.as_mut().filter(|connection| {
            connection.id == conn && matches!(connection.state, ConnState::Answered(_))
        }) else {
            return;
        };
        connection.state = ConnState::Ready;
        self.seen = connection.peer_request;
        self.received_at = now;
        if let Some(old) = &mut self.current {
            old.close(match old.state {
                ConnState::Asked => Cause::Superseded,
                _ => Cause::Reset,
            });
        }
        self.promote(now);
    }

    /// Puts the connection that is ready into use, if the previous one has gone.
    pub(super) fn promote(&mut self, now: u64) {
        if self.current.is_some() || self.flush.is_some() {
            return;
        }
        if let Some(mut connection) = self
            .incoming
            .take_if(|connection| connection.state == ConnState::Ready)
        {
            connection.state = ConnState::Up;
            self.current = Some(connection);
            self.up(now);
        }
    }

    fn up(&mut self, now: u64) {
        self.attempt = None;
        for lane in [Lane::Messages, Lane::Atomics] {
            let lane = self.lane(lane);
            lane.backoff = None;
            lane.after = 0;
        }
        self.active_at = now;
        self.received_at = now;
        self.watch_at = now.saturating_add(CHECK_TIME);
    }

    /// Handles the rejection by the peer (REJ).
    pub fn rejected(&mut self, now: u64, conn: Conn, refusal: Refusal) {
        let is_asked =
            |connection: &Connection| connection.id == conn && connection.state == ConnState::Asked;
        let asked = self.current.as_ref().is_some_and(is_asked);
        let cause = match (refusal, &mut self.attempt) {
            (Refusal::Busy, Some(attempt)) => {
                // A REJ to a REP of this end ends the peer's attempt, not the own one.
                if asked {
                    attempt.back_off(now);
                }
                // The operations continue to wait, for another connection.
                Cause::Superseded
            }
            (Refusal::Retry(cookie), Some(attempt)) => {
                // A REJ to a REP of this end has no cookie.
                if asked {
                    attempt.retry(now, cookie);
                }
                Cause::Superseded
            }
            _ => Cause::of(refusal),
        };
        self.failed(conn, cause);
    }

    /// Handles the failure of a connection: the QP is in error, the peer has disconnected, or
    /// connecting failed.
    pub fn failed(&mut self, conn: Conn, cause: Cause) {
        if let Some(connection) = self.connections().find(|connection| connection.id == conn) {
            // An end that has agreed to end the connection expects this.
            let agreed = matches!(connection.state, ConnState::Retired(_));
            connection.close(if agreed { Cause::Idle } else { cause });
        }
    }

    /// Fails all operations, including those that have no connection yet.
    pub fn fail_all(&mut self, cause: Cause) {
        match &mut self.current {
            Some(connection) => connection.close(cause),
            None => self.flush(cause, 0),
        }
        if let Some(connection) = &mut self.incoming {
            connection.close(cause);
        }
    }

    /// Records that a connection is gone: no QP accesses the memory of its operations any more.
    pub fn closed(&mut self, now: u64, conn: Conn) {
        let is_it = |connection: &mut Connection| connection.id == conn;
        if let Some(connection) = self.incoming.take_if(is_it) {
            self.flush_answers = Some(connection.cause_of_receives());
        }
        if let Some(connection) = self.current.take_if(is_it) {
            self.flush_answers = Some(connection.cause_of_receives());
            let cause = match connection.state {
                ConnState::Closing(cause, _) if !self.leaving => cause,
                _ => Cause::Closed,
            };
            self.flush(cause, connection.taken.unwrap_or(0));
        }
        self.active_at = now;
    }

    /// Starts to end operations. Operations that are posted from now on are not affected.
    pub(super) fn flush(&mut self, cause: Cause, taken: u64) {
        self.flush = Some(Flush {
            cause,
            taken,
            until: self.next_op,
            sends: 0,
            rmas: 0,
        });
    }

    /// Ends the connection if it is idle, because other sessions need one.
    pub fn retire(&mut self, now: u64) {
        if !self.is_quiet() {
            return;
        }
        if let Some(connection) = self
            .current
            .as_mut()
            .filter(|connection| connection.state == ConnState::Up)
        {
            connection.state = ConnState::Draining(now.saturating_add(ANSWER_TIME_MAX));
            connection.signals.retire = true;
        }
    }

    /// Begins to close the session, because the endpoint closes. No operation is posted any more.
    /// When [`Self::is_spare`] returns true, the session is closed.
    pub fn leave(&mut self, now: u64) {
        self.leaving = true;
        self.attempt = None;
        if let Some(connection) = &mut self.incoming {
            connection.close(Cause::Closed);
        }
        match &mut self.current {
            Some(connection) if connection.is_open() => {
                connection.state = ConnState::Leaving(now.saturating_add(LINGER_TIME));
            }
            Some(connection) => connection.close(Cause::Closed),
            None => self.flush(Cause::Closed, 0),
        }
    }

    /// Handles a request of the peer to end the connection.
    pub(super) fn retire_asked(&mut self, now: u64, conn: Conn) {
        let quiet = self.is_quiet();
        let Some(connection) = self.current(conn) else {
            return;
        };
        match connection.state {
            ConnState::Up if quiet => {
                connection.state = ConnState::Retired(now.saturating_add(RETIRE_TIME));
                connection.signals.retired = true;
            }
            ConnState::Up => connection.signals.keep = true,
            // Both ends want to end it.
            ConnState::Draining(_) => connection.close(Cause::Idle),
            _ => {}
        }
    }

    /// Handles the peer's answer to the request to end the connection: consent or refusal.
    pub(super) fn retire_answered(&mut self, conn: Conn, consents: bool) {
        if let Some(connection) = self.current(conn) {
            match connection.state {
                ConnState::Draining(_) if consents => connection.close(Cause::Idle),
                ConnState::Draining(_) => connection.state = ConnState::Up,
                _ => {}
            }
        }
    }

    /// Handles the message that the peer's endpoint closes.
    pub(super) fn bye(&mut self, conn: Conn, last: u64) {
        if let Some(connection) = self.current(conn) {
            connection.taken = Some(last);
        }
        self.failed(conn, Cause::Reset);
    }
}
