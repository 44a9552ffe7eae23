// SPDX-License-Identifier: GPL-2.0
//! The timers of a session: connecting, waiting, idle time.

use super::{
    super::{
        cause::Cause,
        store::Stores,
        times::PING_TIME, //
    },
    Link,
    Session,
    Stage, //
};

impl<S: Stores> Session<S> {
    /// Handles the timers that have expired at `now`. `heard` is the time at which the QP last
    /// received a packet of the peer; the session itself is told of only some of them.
    pub fn expired(&mut self, now: u64, heard: u64) {
        self.heard = self.heard.max(heard);
        if self.effort.is_some_and(|effort| effort.until <= now) {
            self.give_up();
        }
        if let Some(link) = &mut self.incoming {
            if matches!(link.stage, Stage::Answered(until) if until <= now) {
                link.close(Cause::Unanswered);
            }
        }
        if let Some(hold) = &mut self.hold {
            hold.until = hold.until.filter(|until| now < *until);
        }
        let idle_at = self.idle_at();
        let ping_at = self.ping_at();
        let Some(link) = &mut self.current else {
            return;
        };
        match link.stage {
            Stage::Leaving(until) if until <= now => link.close(Cause::Closed),
            Stage::Retired(until) if until <= now => link.close(Cause::Idle),
            _ => {}
        }
        if ping_at.is_some_and(|at| at <= now) {
            link.signals.ping = true;
            link.signals.pinging = true;
        }
        if idle_at.is_some_and(|at| at <= now) {
            self.retire();
        }
    }

    /// Fails the waiting operations, because connecting has taken too long.
    fn give_up(&mut self) {
        let Some(effort) = self.effort.take() else {
            return;
        };
        match &mut self.current {
            // If the connection is ending, a new request is made after that.
            Some(link) => link.close(effort.cause),
            None => self.flush(effort.cause, 0),
        }
    }

    /// Returns the time at which to call [`Self::expired`] and [`Self::next`], unless another call
    /// comes first.
    pub fn deadline(&self) -> Option<u64> {
        let effort = self.effort.map(|effort| match self.asks_at() {
            Some(at) => effort.until.min(at),
            None => effort.until,
        });
        let answered = self.incoming.as_ref().and_then(Link::until);
        let stage = self.current.as_ref().and_then(Link::until);
        let held = match &self.current {
            Some(link) if link.stage == Stage::Up && link.messages == 0 => {
                self.hold.and_then(|hold| hold.until)
            }
            _ => None,
        };
        let times = [
            effort,
            answered,
            stage,
            held,
            self.idle_at(),
            self.ping_at(),
        ];
        times.into_iter().flatten().min()
    }

    fn idle_at(&self) -> Option<u64> {
        let link = self.current.as_ref()?;
        if link.stage != Stage::Up || !self.is_quiet() {
            return None;
        }
        Some(self.last_busy().saturating_add(self.config.idle_time))
    }

    /// Returns the time at which to check that the peer is alive: the session waits for it, and the
    /// QP has no work whose retries would detect its death.
    fn ping_at(&self) -> Option<u64> {
        let link = self.current.as_ref()?;
        let waits = matches!(link.stage, Stage::Up | Stage::Draining) && self.awaits();
        if !waits || link.queued > 0 || link.signals.pinging {
            return None;
        }
        Some(self.last_busy().saturating_add(PING_TIME))
    }
}

impl Link {
    /// Returns the time at which the present stage ends without an event.
    fn until(&self) -> Option<u64> {
        match self.stage {
            Stage::Answered(until) | Stage::Retired(until) | Stage::Leaving(until) => Some(until),
            _ => None,
        }
    }
}
