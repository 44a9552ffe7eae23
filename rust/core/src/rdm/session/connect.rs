// SPDX-License-Identifier: GPL-2.0
//! Connections come and go.

use super::{
    super::{
        cause::Cause,
        hello::{
            Hello,
            Life,
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
            PROOF_TIME,
            RETIRE_TIME, //
        },
    },
    Conn,
    Effort,
    Flush,
    Link,
    Manage,
    Reply,
    Session,
    Stage, //
};

impl<S: Stores> Session<S> {
    /// There is something to be sent: a connection is wanted, if there is none.
    pub(super) fn strive(&mut self, now: u64) {
        let is_up = self.current.as_ref().is_some_and(Link::is_open);
        let nothing = self.sends.map.is_empty() && self.rmas.map.is_empty();
        if is_up || nothing || self.leaving || self.effort.is_some() {
            return;
        }
        self.effort = Some(Effort {
            until: now.saturating_add(CONNECT_TIME),
            after: now,
            pause: BUSY_PAUSE,
            cause: Cause::Unanswered,
        });
    }

    fn hello(&self, epoch: u64) -> Hello {
        Hello {
            life: Life {
                incarnation: self.config.incarnation,
                epoch,
            },
            port: self.config.port,
            reads: self.config.reads,
            caps: self.config.caps,
        }
    }

    /// Returns what is to be done about connections; to be asked until that is nothing. `epoch` is
    /// larger than any that the endpoint has used; it is used if a connection is to be made.
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
        Some(Manage::Connect(conn, self.hello(epoch)))
    }

    /// Returns whether [`Self::manage`] has something to say.
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

    /// When the peer is to be asked for a connection. One that the peer seems to have asked for is
    /// waited for, but not for long: the request may be forged, and then nobody confirms it.
    pub(super) fn asks_at(&self) -> Option<u64> {
        let effort = self.effort.filter(|_| self.current.is_none())?;
        let trusted = self.incoming.as_ref().map_or(0, |link| link.trusted);
        match self.incoming.as_ref().map(|link| link.stage) {
            None | Some(Stage::Closing(..)) => Some(effort.after),
            Some(Stage::Answered(_)) => Some(effort.after.max(trusted)),
            Some(_) => None,
        }
    }

    /// The peer asks for a connection, or somebody does in its name: only when the connection is
    /// established is it known that it was the peer. `epoch` as for [`Self::manage`].
    pub fn requested(&mut self, now: u64, hello: &Hello, epoch: u64) -> Reply {
        let life = hello.life;
        if self.leaving || life.incarnation == self.config.incarnation {
            return Reply::Refuse(Refusal::Nobody);
        }
        let stale = |seen: Life| seen.incarnation == life.incarnation && life.epoch <= seen.epoch;
        if self.seen.is_some_and(stale) {
            return Reply::Ignore;
        }
        if let Some(link) = &mut self.incoming {
            // If it asks anew before the last request came to anything, that is void. Incarnations are
            // random: whoever names that of the last request has made that one too.
            let is_older =
                |asked: Life| asked.incarnation == life.incarnation && asked.epoch < life.epoch;
            let is_doubtful = matches!(link.stage, Stage::Answered(_)) && link.trusted <= now;
            if is_doubtful || link.asked.is_some_and(is_older) {
                link.close(Cause::Superseded);
            }
            return Reply::Ignore;
        }
        let asks = |link: &Link| link.stage == Stage::Asked;
        if self.current.as_ref().is_some_and(asks) && self.config.incarnation > life.incarnation {
            return Reply::Ignore;
        }
        self.heard = now;
        let conn = Conn(epoch);
        let until = now.saturating_add(CONNECT_TIME);
        let mut link = Link::new(conn, Stage::Answered(until));
        link.caps = hello.caps;
        link.reads = u32::from(hello.reads.min(self.config.reads));
        link.asked = Some(life);
        link.trusted = now.saturating_add(PROOF_TIME);
        self.incoming = Some(link);
        Reply::Accept(conn, self.hello(epoch))
    }

    /// The peer has accepted (REP). False: that comes too late, it is to be rejected.
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
        self.seen = Some(hello.life);
        // What the peer was answered meanwhile, and has not confirmed, is not needed any more.
        if let Some(other) = &mut self.incoming {
            if matches!(other.stage, Stage::Answered(_)) {
                other.close(Cause::Superseded);
            }
        }
        self.up(now);
        true
    }

    /// The peer has confirmed that it is connected (RTU, or a first packet).
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

    /// The connection that waits for its turn has it, if it is so.
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

    /// The peer has rejected the request (REJ).
    pub fn rejected(&mut self, now: u64, conn: Conn, refusal: Refusal) {
        let cause = match (refusal, &mut self.effort) {
            (Refusal::Busy, Some(effort)) => {
                effort.cause = Cause::Busy;
                effort.after = now.saturating_add(effort.pause);
                effort.pause = effort.pause.saturating_mul(2).min(BUSY_PAUSE_MAX);
                // For want of another: what waits goes on waiting.
                Cause::Superseded
            }
            _ => Cause::of(refusal),
        };
        self.failed(conn, cause);
    }

    /// The connection has failed: the QP is in error, the peer has disconnected, connecting came to
    /// nothing.
    pub fn failed(&mut self, conn: Conn, cause: Cause) {
        for link in [&mut self.current, &mut self.incoming]
            .into_iter()
            .flatten()
        {
            if link.conn == conn {
                // Who agreed to give it up is not surprised.
                let agreed = matches!(link.stage, Stage::Retired(_));
                link.close(if agreed { Cause::Idle } else { cause });
            }
        }
    }

    /// Everything fails: operations too that have no connection yet.
    pub fn fail_all(&mut self, cause: Cause) {
        match &mut self.current {
            Some(link) => link.close(cause),
            None => self.flush(cause, 0),
        }
        if let Some(link) = &mut self.incoming {
            link.close(cause);
        }
    }

    /// What there was of a connection has gone. No QP touches the memory of its operations any more.
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

    /// Ends operations; what is posted from now on is not meant.
    pub(super) fn flush(&mut self, cause: Cause, taken: u64) {
        self.flush = Some(Flush {
            cause,
            taken,
            until: self.next_op,
            sends: 0,
            rmas: 0,
        });
    }

    /// Gives the connection up if it is idle: there are others that want one.
    pub fn retire(&mut self) {
        if !self.is_quiet() {
            return;
        }
        if let Some(link) = self.current.as_mut().filter(|link| link.stage == Stage::Up) {
            link.stage = Stage::Draining;
            link.signals.retire = true;
        }
    }

    /// The endpoint closes: nothing more is posted. When [`Self::is_spare`] it is done.
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

    /// The peer wants to give the connection up.
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
            // Both want to.
            Stage::Draining => link.close(Cause::Idle),
            _ => {}
        }
    }

    /// The peer agrees to give the connection up.
    pub(super) fn retire_granted(&mut self, conn: Conn) {
        if let Some(link) = self.current(conn) {
            if link.stage == Stage::Draining {
                link.close(Cause::Idle);
            }
        }
    }

    /// The peer still needs the connection.
    pub(super) fn retire_denied(&mut self, conn: Conn) {
        if let Some(link) = self.current(conn) {
            if link.stage == Stage::Draining {
                link.stage = Stage::Up;
            }
        }
    }

    /// The peer's endpoint closes.
    pub(super) fn bye(&mut self, conn: Conn, last: u64) {
        if let Some(link) = self.current(conn) {
            link.taken = Some(last);
        }
        self.failed(conn, Cause::Reset);
    }
}
