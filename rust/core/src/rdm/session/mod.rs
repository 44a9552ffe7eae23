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
//! | `connect.rs` | establishing and ending connections |
//! | `transmit.rs` | work for the QP, and its completions |
//! | `flush.rs` | ending the operations of a connection that has ended |
//! | `expire.rs` | timers |
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
//! epoch, because other senders do not know the incarnation. Any other request replaces it only if
//! the answer was not confirmed within [`PROOF_TIME`](super::times::PROOF_TIME). An end with
//! something to send waits for the confirmation for the same time before it sends a request itself.
//! Of the two connections, the one that is confirmed first stays.
//!
//! *A peer wants proof*: a peer with many requests refuses a request and sends a cookie
//! ([`Refusal::Retry`]). The session repeats the request with the cookie: up to
//! [`PROMPT_RETRIES`](super::times::PROMPT_RETRIES) times at once, then with the pauses for a busy
//! peer. [`unproven`](super::unproven) describes the other end.
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

mod connect;
mod expire;
mod flush;
mod transmit;

use super::{
    answer::{
        Answer,
        Answers,
        Due, //
    },
    cause::Cause,
    header::{
        FinStatus,
        Header, //
    },
    hello::{
        Hello,
        PeerEpoch,
        Refusal, //
    },
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
    unproven::Cookie,
};
use crate::{
    auth_key::AuthKey,
    errno::{
        Errno,
        Result, //
    },
    flags::Caps,
};

/// A connection of an endpoint, identified by the epoch in which it was requested or accepted.
/// Epochs are not reused, so the identifier stays unique when a session is freed and another one is
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn(u64);

/// The parameters of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The incarnation of the endpoint.
    pub incarnation: u64,
    /// The port of its address.
    pub port: u16,
    /// The port of its name: of the scalable endpoint if it is a context, otherwise `port`.
    pub name_port: u16,
    /// Its capabilities.
    pub caps: Caps,
    /// Its authorization key.
    pub auth_key: AuthKey,
    /// The number of work requests that a QP holds: [`DEPTH`](super::times::DEPTH).
    pub depth: u32,
    /// The number of READs that this end serves, and requests, at the same time:
    /// [`READS`](super::times::READS).
    pub reads: u8,
    /// The time in ns after which an idle connection ends: [`IDLE_TIME`](super::times::IDLE_TIME).
    pub idle_time: u64,
}

/// An action for the connections. The caller executes it without the lock of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Make a QP and send a connection request with this private data. The result is passed to
    /// [`Session::accepted`], [`Session::rejected`], or [`Session::failed`].
    Connect(Conn, Hello),
    /// Free the QP and the connection. Tell the peer, unless the cause is that it does not answer.
    /// Then call [`Session::closed`].
    Close(Conn, Cause),
}

/// The answer to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Make a QP and accept with this private data. The result is passed to
    /// [`Session::established`] or [`Session::failed`].
    Accept(Conn, Hello),
    /// Reject the request.
    Refuse(Refusal),
    /// Do not answer. If the request is repeated, pass it again.
    Ignore,
}

/// An item of work of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// The message with this number.
    Message(u64),
    /// The atomic with this number.
    Atomic(u64),
    /// A piece of the RMA operation with this number. Pieces are counted from 0.
    Piece(u64, u32),
    /// The CQ data of the RMA operation with this number.
    Note(u64),
    /// The CANCEL of the message with this number.
    Cancel(u64),
    /// A READ of this many bytes for the answer with this number.
    Read(u64, u32),
    /// The FIN or the RESULT of the answer with this number.
    Finish(u64),
    /// Another header.
    Signal(Signal),
}

/// The headers that belong to no operation or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// [`Header::Keep`].
    Keep,
    /// [`Header::Ping`].
    Ping,
    /// [`Header::Retire`].
    Retire,
    /// [`Header::Retired`].
    Retired,
    /// [`Header::Bye`].
    Bye,
}

/// The work request for an item of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SEND this header, followed by the bytes of the message if it is an eager one. The bytes of
    /// another message must be readable by the peer from now on, see
    /// [`Grant`](super::grant::Grant). An atomic is followed by its payload.
    Send(Header),
    /// SEND [`Header::Result`], followed by the old values of the atomic, or the bytes of the tagged
    /// read, that this answer belongs to.
    Result {
        /// The number of the answer.
        answer: u64,
        /// The number of the operation.
        id: u64,
        /// The length of the values or bytes.
        len: u32,
    },
    /// SEND [`Header::Bye`] with the number that [`Inbound::shut`](super::inbound::Inbound::shut)
    /// returns.
    Bye,
    /// READ from the peer's memory into the receive of this answer.
    Read {
        /// The number of the answer.
        answer: u64,
        /// The offset in the receive.
        offset: u32,
        /// The number of bytes.
        len: u32,
        /// The address in the peer's memory.
        va: u64,
        /// The R_Key.
        rkey: u32,
    },
    /// READ or WRITE a piece of an RMA operation, or change it by an atomic.
    Rma {
        /// The number of the operation.
        number: u64,
        /// The index of the piece.
        piece: u32,
        /// Whether the peer counts the operation with this piece. A WRITE then has immediate data,
        /// whose value is unused.
        counts: bool,
    },
}

/// An operation that has ended. No QP accesses its memory any more.
#[derive(Debug)]
pub enum Ended<O, R> {
    /// A message, an RMA operation or an atomic.
    Op(O, Result),
    /// A receive that was filled, or read by a tagged read; or the old values of an atomic of the
    /// peer, which were sent, or cannot be sent.
    Receive(R, Result),
}

/// The next action.
#[derive(Debug)]
pub enum Action<O, R> {
    /// Post a work request to the QP of this connection, which has room for it.
    Post(Conn, Work, Request),
    /// Make the messages, or the atomics, in this QP void: their headers are replaced by
    /// [`Header::to_void`] for every packet sent from now on. Their work then completes with
    /// [`WorkResult::Void`].
    Void(Conn, Lane),
    /// Report the end of an operation.
    End(Ended<O, R>),
}

/// The completion of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// The work was done, and the peer has acknowledged it.
    Sent,
    /// The same, but the message had been made void before.
    Void,
    /// The work failed, or was flushed (`None`). The caller then fails the connection, see
    /// [`Session::failed`].
    Failed(Option<Errno>),
}

/// The result of a cancel call.
#[derive(Debug)]
pub enum Cancelled<O> {
    /// The operation does not exist, or cannot be cancelled any more.
    No,
    /// The operation has ended with `ECANCELED`.
    Ended(O),
    /// The peer was asked; its answer ends the operation.
    Asked,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnState {
    /// This end has sent a request.
    Asked,
    /// The peer's request was answered. The time is the limit for its confirmation.
    Answered(u64),
    /// The peer has confirmed. The connection waits until the previous one has gone.
    Ready,
    /// The connection is in use.
    Up,
    /// This end wants to end the idle connection.
    Draining,
    /// The peer wants to end the idle connection, and this end has agreed. The time is the limit
    /// for that.
    Retired(u64),
    /// The endpoint closes. The time is the limit for its last messages.
    Leaving(u64),
    /// The connection ends. The flag is set once [`Manage::Close`] was returned.
    Closing(Cause, bool),
}

/// A connection.
#[derive(Debug)]
struct Connection {
    id: Conn,
    state: ConnState,
    /// The incarnation and epoch of the peer's request, if the peer requested the connection.
    peer_request: Option<PeerEpoch>,
    /// The time until which the session waits for the peer's confirmation, if the peer requested
    /// the connection.
    confirm_by: u64,
    /// The operations that the peer can be the target of.
    caps: Caps,
    /// The number of READs that the peer serves at the same time.
    reads: u32,
    /// The number of items of work in the QP: all, messages, atomics, READs. No message is behind
    /// an atomic.
    queued: u32,
    messages: u32,
    atomics: u32,
    reading: u32,
    /// Whether the peer refused the oldest message or atomic in the QP.
    blocked: bool,
    /// The signals to be sent.
    signals: Signals,
    /// The last message that the peer has taken, if its BYE reported that.
    taken: Option<u64>,
}

/// The signals to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    keep: bool,
    ping: bool,
    retire: bool,
    retired: bool,
    bye: bool,
    /// A PING is in the QP.
    pinging: bool,
}

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

    /// Cancels an operation, if that is possible.
    pub fn cancel(&mut self, number: u64) -> Cancelled<S::Op> {
        if let Some(rma) = self.rmas.map.get(number) {
            // An operation that has begun cannot be cancelled.
            if rma.queued > 0 {
                return Cancelled::No;
            }
            self.pass_fence(number);
            let removed = self.rmas.map.remove(number);
            return removed.map_or(Cancelled::No, |rma| Cancelled::Ended(rma.cookie));
        }
        let Some(send) = self.sends.get_mut(number) else {
            return Cancelled::No;
        };
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
            // A posted atomic is not withdrawn, and ends with its ACK or its old values. A FIN could
            // end it while its old values arrive.
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

    /// Updates the first unacknowledged atomic after this one was acknowledged, or has ended before.
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
        if send.cancel == CancelRequest::Sent && send.status.is_some() {
            self.cancels_unanswered = self.cancels_unanswered.saturating_sub(1);
        }
        Some(send)
    }

    /// Returns whether the session waits for the peer.
    fn waits_for_peer(&self) -> bool {
        let draining = self
            .current
            .as_ref()
            .is_some_and(|connection| connection.state == ConnState::Draining);
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

impl Connection {
    fn new(id: Conn, state: ConnState) -> Self {
        Self {
            id,
            state,
            peer_request: None,
            confirm_by: 0,
            caps: Caps::EMPTY,
            reads: 0,
            queued: 0,
            messages: 0,
            atomics: 0,
            reading: 0,
            blocked: false,
            signals: Signals::default(),
            taken: None,
        }
    }

    /// Begins to end the connection, unless it is ending already.
    fn close(&mut self, cause: Cause) {
        if !matches!(self.state, ConnState::Closing(..)) {
            self.state = ConnState::Closing(cause, false);
        }
    }

    /// Returns the cause for receives that are filled from the peer when the connection has ended.
    fn cause_of_receives(&self) -> Cause {
        match self.state {
            ConnState::Closing(cause, _) => cause.of_receive(),
            _ => Cause::Reset,
        }
    }

    /// Returns the number of SENDs of a lane in the QP.
    fn sends(&self, lane: Lane) -> u32 {
        match lane {
            Lane::Messages => self.messages,
            Lane::Atomics => self.atomics,
        }
    }

    /// The same, to be changed.
    fn sends_mut(&mut self, lane: Lane) -> &mut u32 {
        match lane {
            Lane::Messages => &mut self.messages,
            Lane::Atomics => &mut self.atomics,
        }
    }

    /// Returns whether work may be posted to its QP.
    fn is_open(&self) -> bool {
        matches!(
            self.state,
            ConnState::Up | ConnState::Draining | ConnState::Retired(_) | ConnState::Leaving(_)
        )
    }
}
