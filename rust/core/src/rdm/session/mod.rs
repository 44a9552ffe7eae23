// SPDX-License-Identifier: GPL-2.0
//! A session: the operations and connections of an endpoint with one peer.
//!
//! A session contains the operations to the peer and the answers to the peer, and makes
//! connections for them. At most one connection is in use. Another one may exist that the peer has
//! requested and that will replace it.
//!
//! ```text
//!   send, rma, cancel, answer --> [ operations ] --> next(): work for the QP, ended operations
//!   done, refused, event -------> [ connection ]
//!   requested, accepted, ... ---> [ connection ] --> manage(): connect, close
//!   expired --------------------> [ times ] -------> deadline()
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `action.rs` | the values that a session and its caller exchange |
//! | `connection.rs` | one connection, and its state |
//! | `connect.rs` | establishing and ending connections |
//! | `transmit.rs` | work for the QP, and its completions |
//! | `flush.rs` | ending the operations of a connection that has ended |
//! | `expire.rs` | timers |
//! | `overdue.rs` | answers that are expected of the peer, and when they are overdue |
//!
//! # Connections
//!
//! ```text
//!              request             REP
//!   (none) ----------> Asked -----------------------------> Up <---> Draining
//!              REQ                 RTU       previous gone  |            |
//!   (none) ----------> Answered ----> Ready --------------> |            v
//!                                                        Leaving      Retired
//!   from every state: Closing, until the QP has gone
//! ```
//!
//! *Both ends request a connection at the same time*: each receives the other's request while its
//! own is pending, so both know both incarnations. The end with the larger incarnation ignores the
//! other's request. The other end answers, and gives up its own request when the peer has confirmed
//! the answer. No queued operation is lost.
//!
//! *A request is not authenticated*: anyone can send one in the peer's name. A request therefore
//! replaces neither a connection nor a pending request of either end until the peer has confirmed
//! the answer. An earlier pending request is replaced by one of the same incarnation with a larger
//! epoch, because other senders do not know the incarnation. A request with a valid cookie replaces
//! one without. Any other request replaces it only if the answer was not confirmed within
//! [`PROOF_TIME`](super::times::PROOF_TIME). An end with
//! something to send waits for the confirmation for the same time before it sends a request itself.
//! Of the two connections, the one that is confirmed first stays.
//!
//! *A peer wants proof*: a peer with many requests refuses a request and sends a cookie
//! ([`Refusal::Retry`](super::hello::Refusal::Retry)). The session repeats the request with the
//! cookie: up to [`PROMPT_RETRIES`](super::times::PROMPT_RETRIES) times at once, then with the
//! pauses for a busy peer. [`unproven`](super::unproven) describes the other end.
//!
//! *A request from a peer with an established connection* means that the peer has lost its end. It
//! is answered, and the new connection replaces the old one only when the peer has confirmed the
//! answer. An old packet that was delayed in the network therefore does no harm. Requests with an
//! epoch that is not larger than the last one of the same incarnation are ignored.
//!
//! *Idle connections*: after [`IDLE_TIME`](super::times::IDLE_TIME) without work an end sends
//! `RETIRE` and nothing more. If the peer is idle too, it sends `RETIRED` and nothing more;
//! otherwise it sends `KEEP`. No message is therefore in transit when the QPs are destroyed, and
//! operations posted in the meantime wait for the next connection.
//!
//! *Closing*: the session waits at most [`LINGER_TIME`](super::times::LINGER_TIME) for the work of
//! the QP. `BYE` tells the peer which of its messages were taken.
//!
//! # Void messages
//!
//! The peer refuses a message for which it has no room (RNR NAK), and all work behind it waits.
//! Work that the peer needs in order to continue must not wait: FINs, reads of its messages, RMA.
//! If there is such work, the messages in the QP are made void ([`Action::Void`]): the peer ignores
//! them and continues. They are sent again after an interval that grows, a single one first.
//! [`inbound`](super::inbound) describes the receiving side.
//!
//! An atomic for which the peer has no memory is treated in the same way. Atomics and messages are
//! made void separately: atomics do not wait for messages that have no room. No message is posted
//! to the QP while it has atomics, so the oldest of them is a message if there is one.
//!
//! # Context
//!
//! One lock of the caller protects the session. It is not the lock of the QP: under the QP's lock
//! an [`Inbound`](super::inbound::Inbound) handles the SENDs of the peer, and the resulting events
//! are passed to the session after that lock was released. After any call the caller repeats
//! [`Session::next`] until it returns `None`, then [`Session::manage`].

mod action;
mod connect;
mod connection;
mod expire;
mod flush;
mod overdue;
mod transmit;

pub use self::action::{
    Action,
    Activity,
    Cancelled,
    Config,
    Conn,
    Ended,
    Manage,
    Reply,
    Request,
    Signal,
    Work,
    WorkResult, //
};
use self::connection::{
    ConnState,
    Connection,
    Signals, //
};

use super::{
    answer::{
        Answer,
        Answers,
        Due, //
    },
    cause::Cause,
    header::FinStatus,
    hello::PeerEpoch,
    inbound::Event,
    ops::{
        CancelRequest,
        Lane,
        LaneState,
        OpQueue,
        Outgoing,
        Rma,
        Send,
        Transfer, //
    },
    store::{
        Store,
        Stores, //
    },
    unproven::Cookie, //
};

/// The attempt to connect.
#[derive(Clone, Copy, Debug)]
struct ConnectAttempt {
    /// The time at which the attempt fails.
    until: u64,
    /// The time before which no request is sent.
    after: u64,
    /// The pause after the next refusal by a busy peer.
    pause: u64,
    /// The number of requests that were repeated at once because the peer had sent a cookie.
    retries: u32,
    /// The last cookie of the peer, which the next request has.
    cookie: Option<Cookie>,
    /// The cause if the attempt fails.
    cause: Cause,
}

/// The operations whose connection has ended.
#[derive(Clone, Copy, Debug)]
struct Flush {
    cause: Cause,
    /// The last message that the peer is known to have taken.
    taken: u64,
    /// Operations with this or a larger number are not affected.
    until: u64,
    /// The progress: the next numbers to look at.
    sends: u64,
    rmas: u64,
}

/// A session. See the top of the file.
pub struct Session<S: Stores> {
    config: Config,
    current: Option<Connection>,
    incoming: Option<Connection>,
    /// The latest incarnation and epoch of the peer with which there was a connection.
    seen: Option<PeerEpoch>,
    attempt: Option<ConnectAttempt>,
    flush: Option<Flush>,
    /// The cause for receives if answers of connections that have ended may have to be flushed.
    flush_answers: Option<Cause>,
    leaving: bool,
    next_op: u64,
    /// Messages and atomics, with the states of their lanes.
    sends: S::Sends,
    messages: LaneState,
    atomics: LaneState,
    /// The first atomic that the peer has not acknowledged.
    first_atomic: Option<u64>,
    rmas: OpQueue<S::Rmas>,
    /// The first operation with a fence that was not posted to the QP.
    fence: Option<u64>,
    /// The number of CANCELs to be sent, and the number of the first message to look at for them.
    cancels_wanted: u32,
    next_cancel: u64,
    /// The number of CANCELs that the peer has not answered.
    cancels_unanswered: u32,
    answers: Answers<S::Answers>,
    /// The times of the last activity here and of the last packet from the peer.
    active_at: u64,
    received_at: u64,
    /// The time at which to check for overdue answers, if anything is outstanding.
    watch_at: u64,
}

impl<S: Stores> Session<S> {
    /// Makes a session with empty stores.
    pub fn new(config: Config, sends: S::Sends, rmas: S::Rmas, answers: S::Answers) -> Self {
        Self {
            config,
            current: None,
            incoming: None,
            seen: None,
            attempt: None,
            flush: None,
            flush_answers: None,
            leaving: false,
            // Messages are numbered from 1; 0 stands for none.
            next_op: 1,
            sends,
            messages: LaneState::default(),
            atomics: LaneState::default(),
            first_atomic: None,
            rmas: OpQueue::new(rmas),
            fence: None,
            cancels_wanted: 0,
            next_cancel: 0,
            cancels_unanswered: 0,
            answers: Answers::new(answers),
            active_at: 0,
            received_at: 0,
            watch_at: 0,
        }
    }

    /// Posts a message or an atomic. Returns its number.
    pub fn send(
        &mut self,
        now: u64,
        out: Outgoing,
        cookie: S::Op,
        slot: <S::Sends as Store<Send<S::Op>>>::Slot,
    ) -> u64 {
        let number = self.number(now, out.fence);
        self.sends.insert(number, Send::new(out, cookie), slot);
        if out.lane() == Lane::Atomics && self.first_atomic.is_none() {
            self.first_atomic = Some(number);
        }
        self.start_connecting(now);
        number
    }

    /// Posts an RMA operation. Returns its number.
    pub fn rma(
        &mut self,
        now: u64,
        transfer: Transfer,
        cookie: S::Op,
        slot: <S::Rmas as Store<Rma<S::Op>>>::Slot,
    ) -> u64 {
        let number = self.number(now, transfer.fence);
        let rma = Rma::new(transfer, cookie);
        self.rmas.map.insert(number, rma, slot);
        self.start_connecting(now);
        number
    }

    fn number(&mut self, now: u64, fence: bool) -> u64 {
        let number = self.next_op;
        // With one operation per nanosecond the limit of a grant is reached after 292 years.
        self.next_op = number.wrapping_add(1);
        if fence && self.fence.is_none() {
            self.fence = Some(number);
        }
        self.active_at = now;
        number
    }

    /// Returns the operation with this number, unless it has ended.
    pub fn op(&self, number: u64) -> Option<&S::Op> {
        match self.sends.get(number) {
            Some(send) => Some(&send.cookie),
            None => self.rmas.map.get(number).map(|rma| &rma.cookie),
        }
    }

    /// Returns a mutable reference to the operation with this number.
    pub fn op_mut(&mut self, number: u64) -> Option<&mut S::Op> {
        match self.sends.get_mut(number) {
            Some(send) => Some(&mut send.cookie),
            None => self.rmas.map.get_mut(number).map(|rma| &mut rma.cookie),
        }
    }

    /// Returns the number of the first operation from number `from` on for which `wanted` holds.
    /// O(n).
    pub fn find(&self, from: u64, wanted: impl Fn(&S::Op) -> bool) -> Option<u64> {
        let mut sends = self.sends.next(from);
        let mut rmas = self.rmas.map.next(from);
        loop {
            let number = first_of(sends, rmas)?;
            if self.op(number).is_some_and(&wanted) {
                return Some(number);
            }
            let after = number.wrapping_add(1);
            if sends == Some(number) {
                sends = self.sends.next(after);
            } else {
                rmas = self.rmas.map.next(after);
            }
        }
    }

    /// Returns the receive of an answer, unless it has ended.
    pub fn receive(&self, answer: u64) -> Option<&S::Receive> {
        self.answers.map.get(answer)?.receive.as_ref()
    }

    /// Returns a mutable reference to the receive of an answer.
    pub fn receive_mut(&mut self, answer: u64) -> Option<&mut S::Receive> {
        self.answers.map.get_mut(answer)?.receive.as_mut()
    }

    /// Cancels an operation, if that is possible. One that has begun ends in a limited time from
    /// now on, whatever the peer does.
    pub fn cancel(&mut self, now: u64, number: u64) -> Cancelled<S::Op> {
        if let Some(rma) = self.rmas.map.get_mut(number) {
            // An operation that has begun cannot be cancelled.
            if rma.queued > 0 {
                overdue::expect_end(&mut rma.expected_since, now);
                return Cancelled::No;
            }
            self.pass_fence(number);
            let removed = self.rmas.map.remove(number);
            return removed.map_or(Cancelled::No, |rma| Cancelled::Ended(rma.cookie));
        }
        let Some(send) = self.sends.get_mut(number) else {
            return Cancelled::No;
        };
        if send.was_posted {
            overdue::expect_end(&mut send.expected_since, now);
        }
        if send.was_posted && send.out.lane() == Lane::Atomics {
            return Cancelled::No;
        }
        if !send.was_posted {
            self.pass_fence(number);
            self.pass_atomic(number);
            let removed = self.sends.remove(number);
            return removed.map_or(Cancelled::No, |send| Cancelled::Ended(send.cookie));
        }
        if send.status.is_some() || send.cancel != CancelRequest::No {
            return Cancelled::No;
        }
        send.cancel = CancelRequest::Wanted;
        self.next_cancel = match self.cancels_wanted {
            0 => number,
            _ => self.next_cancel.min(number),
        };
        self.cancels_wanted = self.cancels_wanted.saturating_add(1);
        Cancelled::Asked
    }

    /// Adds an answer to a message of the peer that was matched, discarded or withdrawn. If bytes
    /// are to be read, `receive` is filled first. Returns `receive` if the connection has gone.
    pub fn answer(
        &mut self,
        now: u64,
        due: Due,
        receive: Option<S::Receive>,
        slot: <S::Answers as Store<Answer<S::Receive>>>::Slot,
    ) -> Option<S::Receive> {
        if !self.has(due.conn) {
            return receive;
        }
        self.active_at = now;
        let number = self.answers.next;
        self.answers.next = number.wrapping_add(1);
        let answer = Answer::new(due, receive);
        self.answers.map.insert(number, answer, slot);
        None
    }

    /// Handles an event from the peer. The caller handles notes and cancels itself; they have no
    /// effect here.
    pub fn event(
        &mut self,
        now: u64,
        conn: Conn,
        event: Event,
    ) -> Option<Ended<S::Op, S::Receive>> {
        self.active_at = now;
        self.received_at = now;
        match event {
            Event::Fin { id, status } => return self.fin(conn, id, status),
            Event::Result { id, len } => return self.result(conn, id, len),
            Event::Retire => self.retire_asked(now, conn),
            Event::Retired => self.retire_answered(conn, true),
            Event::Keep => self.retire_answered(conn, false),
            Event::Bye { last } => self.bye(conn, last),
            Event::Note { .. } | Event::Cancel { .. } => {}
        }
        None
    }

    fn fin(&mut self, conn: Conn, id: u64, status: FinStatus) -> Option<Ended<S::Op, S::Receive>> {
        self.current(conn)?;
        let Some(send) = self.sends.get_mut(id) else {
            // A CANCEL that came too late is answered nevertheless.
            self.cancels_unanswered = self.cancels_unanswered.saturating_sub(1);
            return None;
        };
        // Otherwise the peer sent the FIN without being asked.
        if !send.was_posted || !(send.out.has_fin() || send.cancel != CancelRequest::No) {
            return None;
        }
        if send.out.lane() == Lane::Atomics || !send.out.can_end_with(status) {
            // A posted atomic is not withdrawn, and ends with its ACK or its old values. A FIN
            // could end it while its old values arrive.
            self.failed(conn, Cause::Protocol);
            return None;
        }
        send.status = Some(status);
        self.end_send(id)
    }

    /// Handles the old values of an atomic or the bytes of a tagged read, which are in their place.
    fn result(&mut self, conn: Conn, id: u64, len: u32) -> Option<Ended<S::Op, S::Receive>> {
        self.current(conn)?;
        let send = self.sends.get_mut(id).filter(|send| send.was_posted);
        if let Some(send) = send {
            if let Some(status) = send.out.result_status(len) {
                send.status = Some(status);
                return self.end_send(id);
            }
        }
        self.failed(conn, Cause::Protocol);
        None
    }

    /// Updates the first unacknowledged atomic after this one was acknowledged, or has ended
    /// before.
    fn pass_atomic(&mut self, number: u64) {
        if self.first_atomic == Some(number) {
            self.find_atomic(number.wrapping_add(1));
        }
    }

    /// The state of a lane.
    fn lane(&mut self, lane: Lane) -> &mut LaneState {
        match lane {
            Lane::Messages => &mut self.messages,
            Lane::Atomics => &mut self.atomics,
        }
    }

    /// Removes a message if it has ended.
    fn end_send(&mut self, number: u64) -> Option<Ended<S::Op, S::Receive>> {
        let result = self.sends.get(number)?.end()?;
        self.pass_fence(number);
        self.pass_atomic(number);
        let send = self.remove_send(number)?;
        Some(Ended::Op(send.cookie, result))
    }

    /// Removes a message. An unanswered CANCEL of it still counts.
    fn remove_send(&mut self, number: u64) -> Option<Send<S::Op>> {
        let send = self.sends.remove(number)?;
        if send.cancel.was_sent() && send.status.is_some() {
            self.cancels_unanswered = self.cancels_unanswered.saturating_sub(1);
        }
        Some(send)
    }

    /// Returns whether the session waits for the peer.
    fn waits_for_peer(&self) -> bool {
        let draining = self
            .current
            .as_ref()
            .is_some_and(|connection| matches!(connection.state, ConnState::Draining(_)));
        draining || !self.sends.is_empty()
    }

    /// Returns whether this side has nothing to do.
    fn is_quiet(&self) -> bool {
        let queued = self
            .current
            .as_ref()
            .map_or(0, |connection| connection.queued);
        queued == 0
            && self.sends.is_empty()
            && self.rmas.map.is_empty()
            && self.answers.map.is_empty()
    }

    /// Returns whether the session has no operation and no connection, so that it can be freed.
    pub fn is_spare(&self) -> bool {
        self.is_quiet() && self.current.is_none() && self.incoming.is_none() && self.flush.is_none()
    }

    /// Returns the time of the last activity.
    fn last_active(&self) -> u64 {
        self.active_at.max(self.received_at)
    }

    /// Returns the connection in use, if it is this one.
    fn current(&mut self, conn: Conn) -> Option<&mut Connection> {
        self.current
            .as_mut()
            .filter(|connection| connection.id == conn)
    }

    /// Iterates over the connections: the one in use, and the one that the peer has requested.
    fn connections(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.current.iter_mut().chain(&mut self.incoming)
    }

    /// Returns whether a connection is one of the session's.
    fn has(&self, conn: Conn) -> bool {
        let mut connections = self.current.iter().chain(&self.incoming);
        connections.any(|connection| connection.id == conn)
    }
}

/// Returns the smaller of two numbers, each of which may be absent.
fn first_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
