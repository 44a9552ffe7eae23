// SPDX-License-Identifier: GPL-2.0
//! The work for the QP, and its completions.
//!
//! Work for which the peer waits comes first: signals, FINs, reads of its messages, CANCELs.
//! Operations follow, in the order of posting.

use super::{
    super::{
        cause::Cause,
        header::Header,
        ops::{
            Backoff,
            CancelRequest,
            Lane,
            RmaKind,
            SendState, //
        },
        store::{
            Store,
            Stores, //
        },
        times::{
            BACKOFF_TIME,
            BACKOFF_TIME_MAX,
            CANCELS_MAX,
            CONTROL_SHARE,
            READ_SIZE, //
        },
    },
    connection::Blocked,
    first_of,
    Action,
    Conn,
    ConnState,
    Ended,
    Request,
    Session,
    Signal,
    Signals,
    Work,
    WorkResult, //
};
use crate::errno::Errno;

/// The return type of [`Session::next`].
type Next<S> = Action<<S as Stores>::Op, <S as Stores>::Receive>;

/// The return type of [`Session::done`].
type End<S> = Ended<<S as Stores>::Op, <S as Stores>::Receive>;

impl Signals {
    /// Takes a signal to be sent.
    fn take(&mut self) -> Option<(Signal, Header)> {
        let mut is_set = |signal: fn(&mut Self) -> &mut bool| core::mem::take(signal(self));
        Some(if is_set(|signals| &mut signals.keep) {
            (Signal::Keep, Header::Keep)
        } else if is_set(|signals| &mut signals.ping) {
            (Signal::Ping, Header::Ping)
        } else if is_set(|signals| &mut signals.retired) {
            (Signal::Retired, Header::Retired)
        } else if is_set(|signals| &mut signals.retire) {
            (Signal::Retire, Header::Retire)
        } else {
            return None;
        })
    }
}

impl<S: Stores> Session<S> {
    /// Returns the next action. The caller repeats this until it returns `None`.
    pub fn next(&mut self, now: u64) -> Option<Next<S>> {
        if let Some(ended) = self.flush_one(now) {
            return Some(Action::End(ended));
        }
        if let Some(work) = self.next_work(now) {
            return Some(work);
        }
        let connection = self
            .current
            .as_mut()
            .filter(|connection| connection.is_open())?;
        let leaving = matches!(connection.state, ConnState::Leaving(_));
        let lane = connection.first_lane();
        let others = connection.has_other_work() || leaving;
        let sends = connection.sends(lane);
        let blocked = connection.blocked.as_mut().filter(|blocked| blocked.again);
        if let Some(blocked) = blocked.filter(|_| sends > 0 && others) {
            blocked.again = false;
            if !blocked.voided {
                blocked.voided = true;
                // The peer need not refuse anything from now on.
                blocked.since = now;
            }
            let conn = connection.id;
            // No SEND of the lane may follow those in the QP from now on, because the peer would
            // ignore it.
            self.back_off(now, lane);
            return Some(Action::Void(conn, lane));
        }
        None
    }

    fn next_work(&mut self, now: u64) -> Option<Next<S>> {
        let connection = self
            .current
            .as_mut()
            .filter(|connection| connection.is_open())?;
        let (conn, state) = (connection.id, connection.state);
        let room = self.config.depth.saturating_sub(connection.queued);
        if room == 0 {
            return None;
        }
        if let Some((signal, header)) = connection.signals.take() {
            connection.queued = connection.queued.wrapping_add(1);
            return Some(Action::Post(
                conn,
                Work::Signal(signal),
                Request::Send(header),
            ));
        }
        let leaving = matches!(state, ConnState::Leaving(_));
        if !leaving && state != ConnState::Up {
            return None;
        }
        let first = self.next_finish(conn, leaving).or_else(|| match leaving {
            true => self.next_bye(),
            false => self.next_read(conn).or_else(|| self.next_cancel()),
        });
        if let Some((work, request)) = first {
            return Some(self.queue(work, request));
        }
        if leaving || room <= self.config.depth / CONTROL_SHARE {
            return None;
        }
        self.next_op(now)
    }

    /// Counts an item of work that is posted to the QP.
    fn queue(&mut self, work: Work, request: Request) -> Next<S> {
        let mut conn = Conn(0);
        if let Some(connection) = &mut self.current {
            conn = connection.id;
            connection.queued = connection.queued.wrapping_add(1);
            match work {
                Work::Message(_) => connection.messages = connection.messages.wrapping_add(1),
                Work::Atomic(_) => connection.atomics = connection.atomics.wrapping_add(1),
                Work::Read(..) => connection.reading = connection.reading.wrapping_add(1),
                Work::Piece(number, _) if self.rmas.map.get(number).is_some_and(is_read) => {
                    connection.reading = connection.reading.wrapping_add(1);
                }
                _ => {}
            }
        }
        Action::Post(conn, work, request)
    }

    /// Returns a FIN that is due.
    fn next_finish(&mut self, conn: Conn, leaving: bool) -> Option<(Work, Request)> {
        let number = self.answers.next_to_finish(conn, leaving)?;
        let due = self.answers.map.get(number)?.due;
        self.answers.finishing = number.wrapping_add(1);
        let (id, status) = (due.id, due.status);
        let request = match due.result {
            None => Request::Send(Header::Fin { id, status }),
            Some(len) => Request::Result {
                answer: number,
                id,
                len,
            },
        };
        Some((Work::Finish(number), request))
    }

    /// Returns the BYE, when all other work is done.
    fn next_bye(&mut self) -> Option<(Work, Request)> {
        let connection = self.current.as_mut()?;
        if connection.queued > 0 || connection.signals.bye {
            return None;
        }
        connection.signals.bye = true;
        Some((Work::Signal(Signal::Bye), Request::Bye))
    }

    /// Returns a READ of a part of a message of the peer.
    fn next_read(&mut self, conn: Conn) -> Option<(Work, Request)> {
        if !self.may_read() {
            return None;
        }
        let number = self.answers.next_to_read(conn)?;
        let answer = self.answers.map.get_mut(number)?;
        let (addr, total) = answer.due.read?;
        let offset = answer.requested;
        let len = total.saturating_sub(offset).min(READ_SIZE);
        answer.requested = offset.saturating_add(len);
        let request = Request::Read {
            answer: number,
            offset,
            len,
            va: addr.va.wrapping_add(u64::from(offset)),
            rkey: addr.rkey,
        };
        Some((Work::Read(number, len), request))
    }

    /// Returns whether the peer can serve another READ.
    fn may_read(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|connection| connection.reading < connection.reads)
    }

    /// Returns a CANCEL that is to be sent.
    fn next_cancel(&mut self) -> Option<(Work, Request)> {
        if self.cancels_wanted == 0 || self.cancels_unanswered >= CANCELS_MAX {
            return None;
        }
        while let Some(number) = self.sends.next(self.next_cancel) {
            self.next_cancel = number.wrapping_add(1);
            let send = self.sends.get_mut(number)?;
            if send.cancel == CancelRequest::Wanted {
                send.cancel = CancelRequest::Sent;
                let finish = send.out.has_fin();
                self.cancels_wanted = self.cancels_wanted.saturating_sub(1);
                self.cancels_unanswered = self.cancels_unanswered.saturating_add(1);
                let header = Header::Cancel { id: number, finish };
                return Some((Work::Cancel(number), Request::Send(header)));
            }
        }
        // The other messages have ended before a CANCEL was sent.
        self.cancels_wanted = 0;
        None
    }

    /// Returns the next operation to post to the QP.
    fn next_op(&mut self, now: u64) -> Option<Next<S>> {
        let message = self.next_send(now, Lane::Messages);
        // Without an unacknowledged atomic there is none to post.
        let atomic = match self.first_atomic {
            None => None,
            Some(_) => self.next_send(now, Lane::Atomics),
        };
        let rma = self.rmas.front();
        let number = first_of(first_of(message, atomic), rma)?;
        if self.fence.is_some_and(|fence| fence <= number) && !self.passes_fence(number) {
            return None;
        }
        if atomic == Some(number) {
            return self.post_send(number, Lane::Atomics);
        }
        // The operation must not overtake an atomic that may have to be sent again.
        if self.first_atomic.is_some_and(|atomic| atomic < number) {
            return None;
        }
        if message != Some(number) {
            return self.post_rma(number);
        }
        // A void message that is sent again comes before atomics with larger numbers.
        if self
            .current
            .as_ref()
            .is_some_and(|connection| connection.atomics > 0)
        {
            return None;
        }
        self.post_send(number, Lane::Messages)
    }

    /// Returns the number of the next SEND of a lane that may be posted to the QP.
    fn next_send(&mut self, now: u64, lane: Lane) -> Option<u64> {
        if let Some(backoff) = self.lane(lane).backoff {
            let sends = self
                .current
                .as_ref()
                .map_or(0, |connection| connection.sends(lane));
            if sends > 0 || backoff.until.is_some_and(|until| now < until) {
                return None;
            }
        }
        loop {
            let at = self.lane(lane).at;
            let number = self.sends.next(at)?;
            let send = self.sends.get(number)?;
            if send.out.lane() == lane {
                if send.state == SendState::Unsent && send.cancel == CancelRequest::No {
                    return Some(number);
                }
                // The void SEND is still in the QP.
                if send.state == SendState::Queued {
                    return None;
                }
            }
            // It belongs to the other lane, waits for its FIN, or is to be withdrawn.
            self.lane(lane).pass(number);
        }
    }

    /// Returns whether the fence allows the operation: it is the one with the fence, and all
    /// operations before it have completed.
    fn passes_fence(&self, number: u64) -> bool {
        self.fence == Some(number)
            && self.sends.next(0).is_none_or(|first| first >= number)
            && self.rmas.map.next(0).is_none_or(|first| first >= number)
    }

    /// Finds the first fence from `from` on. O(n).
    pub(super) fn find_fence(&mut self, from: u64) {
        let send = find(&self.sends, from, |send| {
            send.out.fence && send.state == SendState::Unsent
        });
        let rma = find(&self.rmas.map, from, |rma| {
            rma.transfer.fence && rma.queued == 0
        });
        self.fence = first_of(send, rma);
    }

    /// Finds the first atomic from `from` on that the peer has not acknowledged. O(n).
    pub(super) fn find_atomic(&mut self, from: u64) {
        self.first_atomic = find(&self.sends, from, |send| {
            send.out.lane() == Lane::Atomics && send.state != SendState::Sent
        });
    }

    /// Updates the fence after an operation was posted to the QP, or has ended before.
    pub(super) fn pass_fence(&mut self, number: u64) {
        if self.fence == Some(number) {
            self.find_fence(number.wrapping_add(1));
        }
    }

    fn post_send(&mut self, number: u64, lane: Lane) -> Option<Next<S>> {
        self.lane(lane).pass(number);
        self.pass_fence(number);
        let out = self.sends.get(number)?.out;
        if !self.peer_has(out.needs()) {
            self.pass_atomic(number);
            let send = self.sends.remove(number)?;
            return Some(Action::End(Ended::Op(send.cookie, Err(out.refused()))));
        }
        let state = self.lane(lane);
        let after = core::mem::replace(&mut state.after, number);
        if let Some(backoff) = &mut state.backoff {
            backoff.trying = true;
        }
        let send = self.sends.get_mut(number)?;
        send.state = SendState::Queued;
        send.was_posted = true;
        send.after = after;
        let work = match lane {
            Lane::Messages => Work::Message(number),
            Lane::Atomics => Work::Atomic(number),
        };
        Some(self.queue(work, Request::Send(out.header(number, after))))
    }

    fn post_rma(&mut self, number: u64) -> Option<Next<S>> {
        let transfer = self.rmas.map.get(number)?.transfer;
        if !self.peer_has(transfer.needs()) {
            self.rmas.pass(number);
            self.pass_fence(number);
            let rma = self.rmas.map.remove(number)?;
            return Some(Action::End(Ended::Op(rma.cookie, Err(Errno::EACCES))));
        }
        if transfer.kind.is_read() && !self.may_read() {
            return None;
        }
        let rma = self.rmas.map.get_mut(number)?;
        let index = rma.queued;
        rma.queued = index.wrapping_add(1);
        let last = rma.queued >= transfer.requests();
        if last {
            self.rmas.pass(number);
        }
        self.pass_fence(number);
        if let (RmaKind::Write(Some(data)), true) = (transfer.kind, last) {
            let len = transfer.len;
            let note = Request::Send(Header::Note { len, data });
            return Some(self.queue(Work::Note(number), note));
        }
        let request = Request::Rma {
            number,
            piece: index,
            counts: last && transfer.kind == RmaKind::Write(None),
        };
        Some(self.queue(Work::Piece(number, index), request))
    }

    fn peer_has(&self, caps: crate::flags::Caps) -> bool {
        self.current
            .as_ref()
            .is_some_and(|connection| connection.caps.contains(caps))
    }

    /// Records that the peer has no room for the oldest message or atomic in the QP (RNR NAK). A
    /// peer that violates the protocol may refuse other work.
    pub fn refused(&mut self, now: u64, conn: Conn) {
        self.received_at = now;
        if let Some(connection) = self.current(conn) {
            let blocked = connection.blocked.get_or_insert(Blocked {
                since: now,
                voided: false,
                again: true,
            });
            blocked.again = true;
        }
    }

    /// Handles the completion of work. The caller reports completions in the order of posting.
    /// Returns the operation that ends with it.
    pub fn done(&mut self, now: u64, conn: Conn, work: Work, done: WorkResult) -> Option<End<S>> {
        let connection = self.current(conn)?;
        connection.queued = connection.queued.saturating_sub(1);
        connection.blocked = None;
        self.active_at = now;
        if !matches!(done, WorkResult::Failed(_)) {
            self.received_at = now;
        }
        match work {
            Work::Message(number) => self.send_done(number, Lane::Messages, done),
            Work::Atomic(number) => self.send_done(number, Lane::Atomics, done),
            Work::Piece(number, _) | Work::Note(number) => self.rma_done(number, work, done),
            Work::Read(number, len) => self.read_done(number, len, done),
            Work::Finish(number) => self.finish_done(number, done),
            Work::Signal(signal) => {
                self.signal_done(signal, done);
                None
            }
            Work::Cancel(number) => {
                self.cancel_done(now, number, done);
                None
            }
        }
    }

    fn send_done(&mut self, number: u64, lane: Lane, done: WorkResult) -> Option<End<S>> {
        let mut left = 0;
        if let Some(connection) = &mut self.current {
            let sends = connection.sends_mut(lane);
            *sends = sends.saturating_sub(1);
            left = *sends;
        }
        let send = self.sends.get_mut(number)?;
        match done {
            WorkResult::Sent => {
                send.state = SendState::Sent;
                // Other SENDs of the lane that are still in the QP may be void.
                if left == 0 {
                    self.lane(lane).backoff = None;
                }
                self.pass_atomic(number);
            }
            WorkResult::Void => {
                send.state = SendState::Unsent;
                let after = send.after;
                if send.out.fence {
                    self.fence = Some(self.fence.map_or(number, |fence| fence.min(number)));
                }
                self.lane(lane).back(number, after);
            }
            // The SEND stays until the connection has gone.
            WorkResult::Failed(error) => {
                send.error = send.error.or(error);
                return None;
            }
        }
        self.end_send(number)
    }

    /// Starts the interval after which void SENDs of a lane are sent again.
    fn back_off(&mut self, now: u64, lane: Lane) {
        let state = self.lane(lane);
        let time = match state.backoff {
            None => BACKOFF_TIME,
            Some(backoff) if backoff.trying => backoff.time.saturating_mul(2).min(BACKOFF_TIME_MAX),
            Some(backoff) => backoff.time,
        };
        state.backoff = Some(Backoff {
            time,
            until: Some(now.saturating_add(time)),
            trying: false,
        });
    }

    fn rma_done(&mut self, number: u64, work: Work, done: WorkResult) -> Option<End<S>> {
        let rma = self.rmas.map.get_mut(number)?;
        if let (Some(connection), Work::Piece(..), true) = (&mut self.current, work, is_read(rma)) {
            connection.reading = connection.reading.saturating_sub(1);
        }
        match done {
            WorkResult::Failed(error) => rma.error = rma.error.or(error),
            WorkResult::Sent | WorkResult::Void => rma.done = rma.done.wrapping_add(1),
        }
        if !rma.is_done() {
            return None;
        }
        let rma = self.rmas.map.remove(number)?;
        Some(Ended::Op(rma.cookie, Ok(())))
    }

    fn read_done(&mut self, number: u64, len: u32, done: WorkResult) -> Option<End<S>> {
        if let Some(connection) = &mut self.current {
            connection.reading = connection.reading.saturating_sub(1);
        }
        let answer = self.answers.map.get_mut(number)?;
        if done != WorkResult::Sent {
            return None;
        }
        answer.read = answer.read.saturating_add(len);
        if !answer.is_read() {
            return None;
        }
        let receive = answer.receive.take()?;
        Some(Ended::Receive(receive, Ok(())))
    }

    /// Ends an answer whose FIN or RESULT the peer has acknowledged, and with it the receive whose
    /// bytes were in the RESULT.
    fn finish_done(&mut self, number: u64, done: WorkResult) -> Option<End<S>> {
        if done != WorkResult::Sent {
            return None;
        }
        let receive = self.answers.map.remove(number)?.receive?;
        Some(Ended::Receive(receive, Ok(())))
    }

    fn signal_done(&mut self, signal: Signal, done: WorkResult) {
        let Some(connection) = &mut self.current else {
            return;
        };
        if signal == Signal::Ping {
            connection.signals.pinging = false;
        }
        if done != WorkResult::Sent {
            return;
        }
        match signal {
            Signal::Retired => connection.close(Cause::Idle),
            Signal::Bye => connection.close(Cause::Closed),
            Signal::Keep | Signal::Ping | Signal::Retire => {}
        }
    }
}

fn is_read<C>(rma: &super::Rma<C>) -> bool {
    rma.transfer.kind.is_read()
}

/// Returns the smallest number from `from` on whose entry `wanted` accepts. O(n).
fn find<V>(map: &impl Store<V>, from: u64, wanted: impl Fn(&V) -> bool) -> Option<u64> {
    let mut next = map.next(from);
    while let Some(number) = next {
        if map.get(number).is_some_and(&wanted) {
            break;
        }
        next = map.next(number.wrapping_add(1));
    }
    next
}
