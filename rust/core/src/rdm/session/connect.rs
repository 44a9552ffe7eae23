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
        store::{
            Store,
            Stores, //
        },
        times::{
            BUSY_PAUSE,
            BUSY_PAUSE_MAX,
            CONNECT_TIME,
            LINGER_TIME,
            PROMPT_RETRIES,
            PROOF_TIME,
            RETIRE_TIME, //
        },
        unproven::Cookie,
    },
    Conn,
    ConnectAttempt,
    Flush,
    Link,
    Manage,
    Reply,
    Session,
    Stage, //
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
    pub(super) fn strive(&mut self, now: u64) {
        let is_up = self.current.as_ref().is_some_and(Link::is_open);
        let nothing = self.sends.map.is_empty() && self.rmas.map.is_empty();
        if is_up || nothing || self.leaving || self.effort.is_some() {
            return;
        }
        self.effort = Some(ConnectAttempt {
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
            reads: self.config.reads,
            caps: self.config.caps,
            cookie,
        }
    }

    /// Returns the next action for the connections. The caller repeats this until it returns
    /// `None`. `epoch` is larger than any that the endpoint has used; it is used up if a connection
    /// is made.
    pub fn manage(&mut self, now: u64, epoch: u64) -> Option<Manage> {
        for link in [&mut self.current, &mut self.incoming]
            .into_iter()
            .flatten()
        {
            if let Stage::Closing(cause, told @ false) = &mut link.stage {
                *told = true;
                return Some(Manage::Close(link.conn, *cause));
            }
        }
        if !self.wants_to_ask(now) {
            return None;
        }
        let conn = Conn(epoch);
        self.current = Some(Link::new(conn, Stage::Asked));
        let cookie = self.effort.and_then(|effort| effort.cookie);
        Some(Manage::Connect(conn, self.hello(epoch, cookie)))
    }

    /// Returns whether [`Self::manage`] would return an action.
    pub fn wants_manage(&self, now: u64) -> bool {
        let closes = |link: &Option<Link>| {
            link.as_ref()
                .is_some_and(|link| matches!(link.stage, Stage::Closing(_, false)))
        };
        closes(&self.current) || closes(&self.incoming) || self.wants_to_ask(now)
    }

    fn wants_to_ask(&self, now: u64) -> bool {
        self.flush.is_none() && self.asks_at().is_some_and(|at| at <= now)
    }

    /// Returns the time at which to send a connection request. If the peer seems to have requested
    /// a connection, the session waits for its confirmation first, but only for a limited time,
    /// because a forged request is never confirmed.
    pub(super) fn asks_at(&self) -> Option<u64> {
        let effort = self.effort.filter(|_| self.current.is_none())?;
        let trusted = self.incoming.as_ref().map_or(0, |link| link.trusted);
        match self.incoming.as_ref().map(|link| link.stage) {
            None | Some(Stage::Closing(..)) => Some(effort.after),
            Some(Stage::Answered(_)) => Some(effort.after.max(trusted)),
            Some(_) => None,
        }
    }

    /// Handles a connection request in the name of the peer. The request is known to be the peer's
    /// only when the connection is established. The caller has checked it with
    /// [`Unproven::admit`](super::super::unproven::Unproven::admit). `epoch` as in
    /// [`Self::manage`].
    pub fn requested(&mut self, now: u64, hello: &Hello, epoch: u64) -> Reply {
        let peer_epoch = hello.peer_epoch;
        if self.leaving || peer_epoch.incarnation == self.config.incarnation {
            return Reply::Refuse(Refusal::Nobody);
        }
        let stale = |seen: PeerEpoch| {
            seen.incarnation == peer_epoch.incarnation && peer_epoch.epoch <= seen.epoch
        };
        if self.seen.is_some_and(stale) {
            return Reply::Ignore;
        }
        if let Some(link) = &mut self.incoming {
            // A repeated request makes an unconfirmed earlier one void. Incarnations are random, so
            // a request with the same incarnation comes from the same sender.
            let is_older = |asked: PeerEpoch| {
                asked.incarnation == peer_epoch.incarnation && asked.epoch < peer_epoch.epoch
            };
            let is_doubtful = matches!(link.stage, Stage::Answered(_)) && link.trusted <= now;
            if is_doubtful || link.asked.is_some_and(is_older) {
                link.close(Cause::Superseded);
            }
            return Reply::Ignore;
        }
        let asks = |link: &Link| link.stage == Stage::Asked;
        if self.current.as_ref().is_some_and(asks)
            && self.config.incarnation > peer_epoch.incarnation
        {
            return Reply::Ignore;
        }
        self.heard = now;
        let conn = Conn(epoch);
        let until = now.saturating_add(CONNECT_TIME);
        let mut link = Link::new(conn, Stage::Answered(until));
        link.caps = hello.caps;
        link.reads = u32::from(hello.reads.min(self.config.reads));
        link.asked = Some(peer_epoch);
        link.trusted = now.saturating_add(PROOF_TIME);
        self.incoming = Some(link);
        Reply::Accept(conn, self.hello(epoch, None))
    }

    /// Handles the acceptance by the peer (REP). Returns false if it is too late; the caller then
    /// rejects it.
    pub fn accepted(&mut self, now: u64, conn: Conn, hello: &Hello) -> bool {
        let Some(link) = self
            .current
            .as_mut()
            .filter(|link| link.conn == conn && link.stage == Stage::Asked)
        else {
            return false;
        };
        link.stage = Stage::Up;
        link.caps = hello.caps;
        link.reads = u32::from(hello.reads.min(self.config.reads));
        self.seen = Some(hello.peer_epoch);
        // An answer to the peer's own request that it has not confirmed is no longer needed.
        if let Some(other) = &mut self.incoming {
            if matches!(other.stage, Stage::Answered(_)) {
                other.close(Cause::Superseded);
            }
        }
        self.up(now);
        true
    }

    /// Handles the confirmation by the peer (RTU, or a first packet).
    pub fn established(&mut self, now: u64, conn: Conn) {
        let Some(link) = self
            .incoming
            .as_mut()
            .filter(|link| link.conn == conn && matches!(link.stage, Stage::Answered(_)))
        else {
            return;
        };
        link.stage = Stage::Ready;
        self.seen = link.asked;
        self.heard = now;
        if let Some(old) = &mut self.current {
            old.close(match old.stage {
                Stage::Asked => Cause::Superseded,
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
        if let Some(mut link) = self.incoming.take_if(|link| link.stage == Stage::Ready) {
            link.stage = Stage::Up;
            self.current = Some(link);
            self.up(now);
        }
    }

    fn up(&mut self, now: u64) {
        self.effort = None;
        self.hold = None;
        self.after = 0;
        self.busy = now;
        self.heard = now;
    }

    /// Handles the rejection by the peer (REJ).
    pub fn rejected(&mut self, now: u64, conn: Conn, refusal: Refusal) {
        let is_asked = |link: &Link| link.conn == conn && link.stage == Stage::Asked;
        let asked = self.current.as_ref().is_some_and(is_asked);
        let cause = match (refusal, &mut self.effort) {
            (Refusal::Busy, Some(effort)) => {
                effort.back_off(now);
                // The operations continue to wait, for another connection.
                Cause::Superseded
            }
            (Refusal::Retry(cookie), Some(effort)) => {
                // A REJ to a REP of this end has no cookie.
                if asked {
                    effort.retry(now, cookie);
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
        for link in [&mut self.current, &mut self.incoming]
            .into_iter()
            .flatten()
        {
            if link.conn == conn {
                // An end that has agreed to end the connection expects this.
                let agreed = matches!(link.stage, Stage::Retired(_));
                link.close(if agreed { Cause::Idle } else { cause });
            }
        }
    }

    /// Fails all operations, including those that have no connection yet.
    pub fn fail_all(&mut self, cause: Cause) {
        match &mut self.current {
            Some(link) => link.close(cause),
            None => self.flush(cause, 0),
        }
        if let Some(link) = &mut self.incoming {
            link.close(cause);
        }
    }

    /// Records that a connection is gone: no QP accesses the memory of its operations any more.
    pub fn closed(&mut self, now: u64, conn: Conn) {
        let is_it = |link: &mut Link| link.conn == conn;
        if self.incoming.take_if(is_it).is_some() {
            self.orphans = true;
        }
        if let Some(link) = self.current.take_if(is_it) {
            self.orphans = true;
            let cause = match link.stage {
                Stage::Closing(cause, _) if !self.leaving => cause,
                _ => Cause::Closed,
            };
            self.flush(cause, link.taken.unwrap_or(0));
        }
        self.busy = now;
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
    pub fn retire(&mut self) {
        if !self.is_quiet() {
            return;
        }
        if let Some(link) = self.current.as_mut().filter(|link| link.stage == Stage::Up) {
            link.stage = Stage::Draining;
            link.signals.retire = true;
        }
    }

    /// Begins to close the session, because the endpoint closes. No operation is posted any more.
    /// When [`Self::is_spare`] returns true, the session is closed.
    pub fn leave(&mut self, now: u64) {
        self.leaving = true;
        self.effort = None;
        if let Some(link) = &mut self.incoming {
            link.close(Cause::Closed);
        }
        match &mut self.current {
            Some(link) if link.is_open() => {
                link.stage = Stage::Leaving(now.saturating_add(LINGER_TIME));
            }
            Some(link) => link.close(Cause::Closed),
            None => self.flush(Cause::Closed, 0),
        }
    }

    fn current(&mut self, conn: Conn) -> Option<&mut Link> {
        self.current.as_mut().filter(|link| link.conn == conn)
    }

    /// Handles a request of the peer to end the connection.
    pub(super) fn retire_asked(&mut self, now: u64, conn: Conn) {
        let quiet = self.is_quiet();
        let Some(link) = self.current(conn) else {
            return;
        };
        match link.stage {
            Stage::Up if quiet => {
                link.stage = Stage::Retired(now.saturating_add(RETIRE_TIME));
                link.signals.retired = true;
            }
            Stage::Up => link.signals.keep = true,
            // Both ends want to end it.
            Stage::Draining => link.close(Cause::Idle),
            _ => {}
        }
    }

    /// Handles the peer's consent to end the connection.
    pub(super) fn retire_granted(&mut self, conn: Conn) {
        if let Some(link) = self.current(conn) {
            if link.stage == Stage::Draining {
                link.close(Cause::Idle);
            }
        }
    }

    /// Handles the peer's refusal to end the connection.
    pub(super) fn retire_denied(&mut self, conn: Conn) {
        if let Some(link) = self.current(conn) {
            if link.stage == Stage::Draining {
                link.stage = Stage::Up;
            }
        }
    }

    /// Handles the message that the peer's endpoint closes.
    pub(super) fn bye(&mut self, conn: Conn, last: u64) {
        if let Some(link) = self.current(conn) {
            link.taken = Some(last);
        }
        self.failed(conn, Cause::Reset);
    }
}
