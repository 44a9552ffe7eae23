// SPDX-License-Identifier: GPL-2.0
//! The timers of a session: connecting, waiting, idle time.

use super::{
    super::{
        cause::Cause,
        ops::{
            Lane,
            LaneState, //
        },
        store::Stores,
        times::PING_TIME, //
    },
    Activity,
    ConnState, //
    Connection,
    Session,
};

impl<S: Stores> Session<S> {
    /// Handles the timers that have expired at `now`. `is_being_read` returns whether the peer has
    /// begun to read the message with this number, which is granted to it.
    pub fn expired(&mut self, now: u64, activity: Activity, is_being_read: impl Fn(u64) -> bool) {
        self.received_at = self.received_at.max(activity.received_at);
        if self.attempt.is_some_and(|attempt| attempt.until <= now) {
            self.give_up();
        }
        if let Some(connection) = &mut self.incoming {
            if matches!(connection.state, ConnState::Answered(until) if until <= now) {
                connection.close(Cause::Unanswered);
            }
        }
        for lane in [&mut self.messages, &mut self.atomics] {
            if let Some(backoff) = &mut lane.backoff {
                backoff.until = backoff.until.filter(|until| now < *until);
            }
        }
        let idle_at = self.idle_at();
        let ping_at = self.ping_at();
        let Some(connection) = &mut self.current else {
            return;
        };
        match connection.state {
            ConnState::Leaving(until) if until <= now => connection.close(Cause::Closed),
            ConnState::Retired(until) if until <= now => connection.close(Cause::Idle),
            // No operation of this end was sent, so the waiting ones use another connection.
            ConnState::Draining(until) if until <= now => connection.close(Cause::Reset),
            _ => {}
        }
        if connection.stuck_at().is_some_and(|at| at <= now) {
            connection.close(Cause::Lost);
        }
        if ping_at.is_some_and(|at| at <= now) {
            connection.signals.ping = true;
            connection.signals.pinging = true;
        }
        if idle_at.is_some_and(|at| at <= now) {
            self.retire(now);
        }
        if self.watch_at <= now {
            self.check_answers(now, activity.moved_at, is_being_read);
        }
    }

    /// Fails the waiting operations, because connecting has taken too long.
    fn give_up(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        match &mut self.current {
            // If the connection is ending, a new request is made after that.
            Some(connection) => connection.close(attempt.cause),
            None => self.flush(attempt.cause, 0),
        }
    }

    /// Returns the time at which to call [`Self::expired`] and [`Self::next`], unless another call
    /// comes first.
    pub fn deadline(&self) -> Option<u64> {
        let attempt = self.attempt.map(|attempt| match self.connect_at() {
            Some(at) => attempt.until.min(at),
            None => attempt.until,
        });
        let answered = self.incoming.as_ref().and_then(Connection::until);
        let state = self.current.as_ref().and_then(Connection::until);
        let stuck = self.current.as_ref().and_then(Connection::stuck_at);
        let held = |lane: Lane, state: &LaneState| match &self.current {
            Some(connection)
                if connection.state == ConnState::Up && connection.sends(lane) == 0 =>
            {
                state.backoff.and_then(|backoff| backoff.until)
            }
            _ => None,
        };
        let times = [
            attempt,
            answered,
            state,
            held(Lane::Messages, &self.messages),
            held(Lane::Atomics, &self.atomics),
            self.idle_at(),
            self.ping_at(),
            self.check_at(),
            stuck,
        ];
        times.into_iter().flatten().min()
    }

    fn idle_at(&self) -> Option<u64> {
        let connection = self.current.as_ref()?;
        if connection.state != ConnState::Up || !self.is_quiet() {
            return None;
        }
        Some(self.last_active().saturating_add(self.config.idle_time))
    }

    /// Returns the time at which to check that the peer is alive: the session waits for it, and the
    /// QP has no work whose retries would detect its death.
    fn ping_at(&self) -> Option<u64> {
        let connection = self.current.as_ref()?;
        let is_silent = connection.queued == 0
            && !connection.signals.pinging
            && matches!(connection.state, ConnState::Up | ConnState::Draining(_));
        if !is_silent || !self.waits_for_peer() {
            return None;
        }
        Some(self.last_active().saturating_add(PING_TIME))
    }
}

impl Connection {
    /// Returns the time at which the present state ends without an event.
    fn until(&self) -> Option<u64> {
        match self.state {
            ConnState::Answered(until)
            | ConnState::Draining(until)
            | ConnState::Retired(until)
            | ConnState::Leaving(until) => Some(until),
            _ => None,
        }
    }
}
