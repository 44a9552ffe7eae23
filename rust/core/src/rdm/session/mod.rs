// SPDX-License-Identifier: GPL-2.0
//! A session: all that an endpoint has to do with one peer.
//!
//! It has the operations that go to the peer and what is owed to it, and makes connections for them.
//! There is at most one in use; another may be there that the peer has asked for, and takes its place.
//!
//! ```text
//!   send, rma, cancel, answer --> [ operations ] --> next(): work for the QP, ends of operations
//!   done, refused, event -------> [ connection ]
//!   requested, accepted, ... ---> [ connection ] --> manage(): connect, close
//!   expired --------------------> [ times ] -------> deadline()
//! ```
//!
//! | file | what |
//! |---|---|
//! | `connect.rs` | connections come and go |
//! | `transmit.rs` | work for the QP, and what becomes of it |
//! | `flush.rs` | the ends of operations whose connection has ended |
//! | `expire.rs` | times |
//!
//! # Connections
//!
//! ```text
//!              ask                 REP
//!   (none) ----------> Asked -----------------------------> Up <---> Draining
//!              REQ                 RTU       its turn       |            |
//!   (none) ----------> Answered ----> Ready --------------> |            v
//!                                                        Leaving      Retired
//!   from everywhere: Closing, until the QP has gone
//! ```
//!
//! *Both ask at once*: each has its request out when that of the other comes. Both know both
//! incarnations then; the end with the larger one ignores the other's request, the other answers, and
//! gives its own up when the peer has confirmed that. Nothing that is queued is lost by that.
//!
//! *A request proves nothing*: anybody can send one in the peer's name. So it displaces nothing, neither
//! a connection nor a request of either end that is in progress, until the peer has confirmed the
//! answer. An earlier request gives its place to one of the same incarnation with a larger epoch, since
//! whoever else sends requests does not know the incarnation; and to any other one when the answer was
//! not confirmed for [`PROOF_TIME`](super::times::PROOF_TIME). An end that has something to send waits
//! for the confirmation as long before it asks itself; of the two connections the first stays that is
//! confirmed.
//!
//! *A request from a peer to which a connection is up* says that the peer has lost its end. It is
//! answered, and only when the peer has confirmed that does the new connection take the place of the
//! old: an old packet that the network had kept cannot do any harm. Requests with an epoch that is not
//! larger than the last one of the same incarnation are ignored.
//!
//! *Idle*: after [`IDLE_TIME`](super::times::IDLE_TIME) without work an end says `RETIRE` and sends
//! nothing more. The peer, if it is idle too, says `RETIRED` and sends nothing more either; else it says
//! `KEEP`. So nothing is on its way when the QPs go, and what is posted meanwhile waits for the next
//! connection.
//!
//! *Closing*: work that is with the QP is awaited for
//! [`LINGER_TIME`](super::times::LINGER_TIME), and `BYE` tells the peer which of its messages were
//! taken: it need not guess.
//!
//! # Stepping aside
//!
//! A message that the peer has no room for is refused (RNR NAK), and all work behind it waits. That
//! must not be so for work that the peer needs to go on: FINs, reads of its messages, RMA. So if there
//! is such work, the messages with the QP are made void ([`Do::Void`]): the peer ignores them and goes
//! on. They are sent again, one first, after a time that grows. See [`inbound`](super::inbound) for the
//! other side.
//!
//! # Context
//!
//! Everything is under one lock of the caller's, which is not that of the QP: the peer's SENDs are
//! judged by an [`Inbound`](super::inbound::Inbound) under the QP's lock, and what follows from them is
//! brought here when that has been let go. After any call, [`Session::next`] is to be asked until it
//! gives nothing, then [`Session::manage`].

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
        Fate,
        Header, //
    },
    hello::{
        Hello,
        Life,
        Refusal, //
    },
    inbound::Event,
    ops::{
        Lane,
        Outgoing,
        Recall,
        Rma,
        Send,
        Transfer, //
    },
    store::{
        Store,
        Stores, //
    },
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    flags::Caps,
};

/// One of the connections of an endpoint: the epoch in which it was asked for, or answered. So it
/// names no other one either when a session has been forgotten and another been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn(u64);

/// What a session is made for.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The incarnation of the endpoint.
    pub incarnation: u64,
    /// The port of its address.
    pub port: u16,
    /// Its capabilities.
    pub caps: Caps,
    /// Work requests that a QP holds: [`DEPTH`](super::times::DEPTH).
    pub depth: u32,
    /// READs that this end serves, and asks for, at the same time: [`READS`](super::times::READS).
    pub reads: u8,
    /// How long a connection may be idle: [`IDLE_TIME`](super::times::IDLE_TIME).
    pub idle_time: u64,
}

/// What is to be done about connections. Not under the lock of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Make a QP and ask the peer for a connection, with this as private data. What comes of it:
    /// [`Session::accepted`], [`Session::rejected`], or [`Session::failed`].
    Connect(Conn, Hello),
    /// Let the QP, or what there is of the connection, go; tell the peer, unless the cause is that it
    /// is not there. Then [`Session::closed`].
    Close(Conn, Cause),
}

/// What a request for a connection is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Make a QP and accept, with this as private data. What comes of it: [`Session::established`] or
    /// [`Session::failed`].
    Accept(Conn, Hello),
    /// Reject it.
    Refuse(Refusal),
    /// Say nothing. If it comes again, it is to be shown again.
    Ignore,
}

/// A piece of work that is with a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A message of this number.
    Message(u64),
    /// A piece of the RMA operation of this number, counted from 0.
    Piece(u64, u32),
    /// The CQ data of the RMA operation of this number.
    Note(u64),
    /// The message of this number is wanted back.
    Cancel(u64),
    /// So many bytes of the answer of this number.
    Read(u64, u32),
    /// The FIN of the answer of this number.
    Finish(u64),
    /// Anything else.
    Signal(Signal),
}

/// What is said besides.
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

/// What the QP is to do for a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SEND this header, and behind it the bytes of the message if it is an eager one. The bytes of
    /// one that is not are to be open to the peer from now on, see [`Grant`](super::grant::Grant).
    Send(Header),
    /// SEND [`Header::Bye`] with what [`Inbound::shut`](super::inbound::Inbound::shut) returns.
    Bye,
    /// READ from the peer's memory into the receive of this answer.
    Read {
        /// The answer.
        answer: u64,
        /// Where in the receive.
        offset: u32,
        /// Bytes.
        len: u32,
        /// Where in the peer's memory.
        va: u64,
        /// Its key.
        rkey: u32,
    },
    /// READ or WRITE a piece of an RMA operation.
    Rma {
        /// Its number.
        number: u64,
        /// Which piece.
        piece: u32,
        /// Whether the peer is to count the operation with this piece: a WRITE has immediate data
        /// then, of no meaning.
        counts: bool,
    },
}

/// An operation that has ended. It has let go of its memory: no QP reads or writes it any more.
#[derive(Debug)]
pub enum Ended<O, R> {
    /// A message, or RMA.
    Op(O, Result),
    /// A receive.
    Receive(R, Result),
}

/// What is to be done next.
#[derive(Debug)]
pub enum Do<O, R> {
    /// Hand a work request to the QP of this connection. It has room.
    Post(Conn, Work, Request),
    /// Make the messages void that are with this QP: the header of each, as it will be sent from now
    /// on, is [`Header::to_void`]. Their work is [`Done::Void`] then, when it is done.
    Void(Conn),
    /// An operation has ended.
    End(Ended<O, R>),
}

/// What became of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was done, and the peer has acknowledged it.
    Sent,
    /// Likewise, but the message had been made void meanwhile.
    Void,
    /// It was refused, or flushed (`None`). The connection is to fail, see [`Session::failed`].
    Failed(Option<Errno>),
}

/// What became of a wish to cancel.
#[derive(Debug)]
pub enum Cancelled<O> {
    /// There is no such operation, or it is too late.
    No,
    /// The operation has ended, with `ECANCELED`.
    Ended(O),
    /// The peer was asked; the operation ends as that answers.
    Asked,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// This end has asked.
    Asked,
    /// The peer has asked, and was answered; until when that may take.
    Answered(u64),
    /// The peer has confirmed that. It waits for its turn.
    Ready,
    /// In use.
    Up,
    /// This end wants to give it up.
    Draining,
    /// The peer wants to give it up, and may, since or rather until this time.
    Retired(u64),
    /// This endpoint closes; until when it may say what it has to.
    Leaving(u64),
    /// It ends; whether [`Manage::Close`] has been said.
    Closing(Cause, bool),
}

/// A connection.
#[derive(Debug)]
struct Link {
    conn: Conn,
    stage: Stage,
    /// In which life the peer asked for it, if the peer did.
    asked: Option<Life>,
    /// Until when the peer is waited for to confirm it, if the peer asked for it.
    trusted: u64,
    /// What the peer can be asked for.
    caps: Caps,
    /// READs that it serves at the same time.
    reads: u32,
    /// Work with the QP: all, messages, READs.
    queued: u32,
    messages: u32,
    reading: u32,
    /// Whether the message foremost with the QP was refused.
    blocked: bool,
    /// What is to be said.
    signals: Signals,
    /// The last message that the peer has taken, if it said so when it closed.
    taken: Option<u64>,
}

/// Signals to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    keep: bool,
    ping: bool,
    retire: bool,
    retired: bool,
    bye: bool,
    /// A ping is with the QP.
    pinging: bool,
}

/// Messages that have stepped aside.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// How long they wait.
    time: u64,
    /// Until when; `None`: one may be tried.
    until: Option<u64>,
    /// One is being tried.
    trying: bool,
}

/// The wish for a connection.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// When it is given up.
    until: u64,
    /// Not before.
    after: u64,
    /// The pause after the next refusal of a busy peer.
    pause: u64,
    /// Why there is none.
    cause: Cause,
}

/// Operations whose connection has ended.
#[derive(Clone, Copy, Debug)]
struct Flush {
    cause: Cause,
    /// The last message that the peer has taken, as far as is known.
    taken: u64,
    /// Those with a larger number are not meant.
    until: u64,
    /// How far it is.
    sends: u64,
    rmas: u64,
}

/// A session. See the top of the file.
pub struct Session<S: Stores> {
    config: Config,
    current: Option<Link>,
    incoming: Option<Link>,
    /// The latest life of the peer with which there was a connection.
    seen: Option<Life>,
    effort: Option<Effort>,
    flush: Option<Flush>,
    /// Whether there may be answers of connections that have ended.
    orphans: bool,
    leaving: bool,
    next_op: u64,
    sends: Lane<S::Sends>,
    /// The last message that was handed to the QP and is not void.
    after: u64,
    rmas: Lane<S::Rmas>,
    /// The first operation with a fence that was not handed to the QP.
    fence: Option<u64>,
    /// How many messages are wanted back of which the peer was not told, and the first.
    recalls: u32,
    recall: u64,
    /// How many CANCELs the peer has that it has not answered.
    recalled: u32,
    hold: Option<Hold>,
    answers: Answers<S::Answers>,
    /// When something was last done, or heard.
    busy: u64,
    heard: u64,
}

impl<S: Stores> Session<S> {
    /// Makes a session in empty stores.
    pub fn new(config: Config, sends: S::Sends, rmas: S::Rmas, answers: S::Answers) -> Self {
        Self {
            config,
            current: None,
            incoming: None,
            seen: None,
            effort: None,
            flush: None,
            orphans: false,
            leaving: false,
            // Messages are numbered from 1: 0 is before all.
            next_op: 1,
            sends: Lane::new(sends),
            after: 0,
            rmas: Lane::new(rmas),
            fence: None,
            recalls: 0,
            recall: 0,
            recalled: 0,
            hold: None,
            answers: Answers::new(answers),
            busy: 0,
            heard: 0,
        }
    }

    /// Posts a message; returns its number.
    pub fn send(
        &mut self,
        now: u64,
        out: Outgoing,
        cookie: S::Op,
        slot: <S::Sends as Store<Send<S::Op>>>::Slot,
    ) -> u64 {
        let number = self.number(now, out.fence);
        self.sends.map.insert(number, Send::new(out, cookie), slot);
        self.strive(now);
        number
    }

    /// Posts an RMA operation; returns its number.
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
        self.strive(now);
        number
    }

    fn number(&mut self, now: u64, fence: bool) -> u64 {
        let number = self.next_op;
        // One per nanosecond would take 292 years to reach the limit of a grant.
        self.next_op = number.wrapping_add(1);
        if fence && self.fence.is_none() {
            self.fence = Some(number);
        }
        self.busy = now;
        number
    }

    /// Returns the operation with this number, unless it has ended.
    pub fn op(&self, number: u64) -> Option<&S::Op> {
        match self.sends.map.get(number) {
            Some(send) => Some(&send.cookie),
            None => self.rmas.map.get(number).map(|rma| &rma.cookie),
        }
    }

    /// Returns the operation with this number, to be changed.
    pub fn op_mut(&mut self, number: u64) -> Option<&mut S::Op> {
        match self.sends.map.get_mut(number) {
            Some(send) => Some(&mut send.cookie),
            None => self.rmas.map.get_mut(number).map(|rma| &mut rma.cookie),
        }
    }

    /// Returns the number of the first operation from number `from` on for which `wanted` holds.
    /// O(n).
    pub fn find(&self, from: u64, wanted: impl Fn(&S::Op) -> bool) -> Option<u64> {
        let mut sends = self.sends.map.next(from);
        let mut rmas = self.rmas.map.next(from);
        loop {
            let number = match (sends, rmas) {
                (Some(send), Some(rma)) => send.min(rma),
                (send, rma) => send.or(rma)?,
            };
            if self.op(number).is_some_and(&wanted) {
                return Some(number);
            }
            let after = number.wrapping_add(1);
            if sends == Some(number) {
                sends = self.sends.map.next(after);
            } else {
                rmas = self.rmas.map.next(after);
            }
        }
    }

    /// Returns the receive of an answer, unless it has ended.
    pub fn receive(&self, answer: u64) -> Option<&S::Receive> {
        self.answers.map.get(answer)?.receive.as_ref()
    }

    /// Returns the receive of an answer, to be changed.
    pub fn receive_mut(&mut self, answer: u64) -> Option<&mut S::Receive> {
        self.answers.map.get_mut(answer)?.receive.as_mut()
    }

    /// Wants an operation back.
    pub fn cancel(&mut self, number: u64) -> Cancelled<S::Op> {
        if let Some(rma) = self.rmas.map.get(number) {
            // What was begun cannot be taken back.
            if rma.queued > 0 {
                return Cancelled::No;
            }
            self.pass_fence(number);
            return match self.rmas.map.remove(number) {
                Some(rma) => Cancelled::Ended(rma.cookie),
                None => Cancelled::No,
            };
        }
        let Some(send) = self.sends.map.get_mut(number) else {
            return Cancelled::No;
        };
        if !send.tried {
            self.pass_fence(number);
            return match self.sends.map.remove(number) {
                Some(send) => Cancelled::Ended(send.cookie),
                None => Cancelled::No,
            };
        }
        if send.fate.is_some() || send.recall != Recall::No {
            return Cancelled::No;
        }
        send.recall = Recall::Wanted;
        self.recall = match self.recalls {
            0 => number,
            _ => self.recall.min(number),
        };
        self.recalls = self.recalls.saturating_add(1);
        Cancelled::Asked
    }

    /// A message of the peer's has been matched, discarded or withdrawn: it is to be answered, and
    /// `receive` to be filled first, if bytes are to be read. Gives that back if the connection has
    /// gone.
    pub fn answer(
        &mut self,
        now: u64,
        due: Due,
        receive: Option<S::Receive>,
        slot: <S::Answers as Store<Answer<S::Receive>>>::Slot,
    ) -> Option<S::Receive> {
        let is = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.conn == due.conn);
        if !is(&self.current) && !is(&self.incoming) {
            return receive;
        }
        self.busy = now;
        let number = self.answers.next;
        self.answers.next = number.wrapping_add(1);
        let answer = Answer::new(due, receive);
        self.answers.map.insert(number, answer, slot);
        None
    }

    /// The peer says something. Notes and cancels are for the endpoint, and nothing here.
    pub fn event(
        &mut self,
        now: u64,
        conn: Conn,
        event: Event,
    ) -> Option<Ended<S::Op, S::Receive>> {
        self.busy = now;
        self.heard = now;
        match event {
            Event::Fin { id, fate } => return self.fin(conn, id, fate),
            Event::Retire => self.retire_asked(now, conn),
            Event::Retired => self.retire_granted(conn),
            Event::Keep => self.retire_denied(conn),
            Event::Bye { last } => self.bye(conn, last),
            Event::Note { .. } | Event::Cancel { .. } => {}
        }
        None
    }

    fn fin(&mut self, conn: Conn, id: u64, fate: Fate) -> Option<Ended<S::Op, S::Receive>> {
        if !self.current.as_ref().is_some_and(|link| link.conn == conn) {
            return None;
        }
        let Some(send) = self.sends.map.get_mut(id) else {
            // A CANCEL that came too late is answered all the same.
            self.recalled = self.recalled.saturating_sub(1);
            return None;
        };
        // Else the peer says it of itself.
        if !send.tried || !(send.out.has_fin() || send.recall != Recall::No) {
            return None;
        }
        send.fate = Some(fate);
        self.end_send(id)
    }

    /// Takes a message out, if it has ended.
    fn end_send(&mut self, number: u64) -> Option<Ended<S::Op, S::Receive>> {
        let result = self.sends.map.get(number)?.end()?;
        self.pass_fence(number);
        let send = self.remove_send(number)?;
        Some(Ended::Op(send.cookie, result))
    }

    /// Takes a message out. If the peer has yet to answer a CANCEL of it, that is still waited for.
    fn remove_send(&mut self, number: u64) -> Option<Send<S::Op>> {
        let send = self.sends.map.remove(number)?;
        if send.recall == Recall::Told && send.fate.is_some() {
            self.recalled = self.recalled.saturating_sub(1);
        }
        Some(send)
    }

    /// Whether operations wait for the peer to say something.
    fn awaits(&self) -> bool {
        let draining = self
            .current
            .as_ref()
            .is_some_and(|link| link.stage == Stage::Draining);
        draining || !self.sends.map.is_empty()
    }

    /// Whether there is nothing to do on this side.
    fn is_quiet(&self) -> bool {
        let queued = self.current.as_ref().map_or(0, |link| link.queued);
        queued == 0
            && self.sends.map.is_empty()
            && self.rmas.map.is_empty()
            && self.answers.map.is_empty()
    }

    /// Returns whether there is nothing here: no operation, no connection. It can be forgotten.
    pub fn is_spare(&self) -> bool {
        self.is_quiet() && self.current.is_none() && self.incoming.is_none() && self.flush.is_none()
    }

    /// Returns whether there is a connection, or is to be one.
    pub fn is_connected(&self) -> bool {
        self.current.is_some() || self.incoming.is_some() || self.effort.is_some()
    }

    /// Returns when something was last done; of several sessions that are idle, the one to be given
    /// up first is that with the smallest.
    pub fn last_busy(&self) -> u64 {
        self.busy.max(self.heard)
    }
}

impl Link {
    const fn new(conn: Conn, stage: Stage) -> Self {
        Self {
            conn,
            stage,
            asked: None,
            trusted: 0,
            caps: Caps::EMPTY,
            reads: 0,
            queued: 0,
            messages: 0,
            reading: 0,
            blocked: false,
            signals: Signals {
                keep: false,
                ping: false,
                retire: false,
                retired: false,
                bye: false,
                pinging: false,
            },
            taken: None,
        }
    }

    /// Ends it, unless it is ending.
    fn close(&mut self, cause: Cause) {
        if !matches!(self.stage, Stage::Closing(..)) {
            self.stage = Stage::Closing(cause, false);
        }
    }

    /// Whether work may be handed to its QP.
    fn is_open(&self) -> bool {
        matches!(
            self.stage,
            Stage::Up | Stage::Draining | Stage::Retired(_) | Stage::Leaving(_)
        )
    }
}
