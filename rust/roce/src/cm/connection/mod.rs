// SPDX-License-Identifier: GPL-2.0
//! A connection being made, held and ended: the state machine of either end.
//!
//! ```text
//!  active                                 passive
//!
//!  connect() -------- REQ --------------> request()
//!  REQ SENT   <-- REJ (a smaller path     |
//!     |            MTU, please) --------  '--> refused, and nothing kept
//!     |  ------------ REQ --------------> request()
//!     |                                   REQ RECEIVED
//!     |     <-- MRA (if the consumer      |
//!     |          is slow) ---             accept()
//!     |     <-------- REP --------------  REP SENT
//!  REP RECEIVED                           |
//!  confirm()                              |
//!  ESTABLISHED ------ RTU --------------> ESTABLISHED
//!
//!  either end, both at once too:
//!  disconnect() ----- DREQ -------------> event Disconnected
//!  DREQ SENT  <------ DREP -------------- TIMEWAIT
//!  TIMEWAIT                               |
//!     '--> CLOSED                         '--> CLOSED
//! ```
//!
//! An active end asks with the largest path MTU that it has. A peer that has only a smaller one says
//! so, and is asked again with that, unless it is [less than will do](Connect::least_mtu).
//!
//! At any point before ESTABLISHED either end may say REJ ([`Connection::reject`],
//! [`Connection::abandon`]) and goes to TIMEWAIT; the other gets [`Event::Rejected`] and goes there
//! too. REQ, REP and DREQ are sent again until they are answered ([`Timing`]); who does not answer is
//! [unreachable](Event::Unreachable). The others are said again when the peer asks again. In TIMEWAIT
//! late messages are answered, and the QP's number is not to be used for another connection, lest old
//! packets come to it.
//!
//! # How to drive it
//!
//! Nothing here has a thread or a clock. The caller finds the connection to which a message belongs
//! ([`Route`](super::Route)), brings it to [`receive`](Connection::receive), brings the time to
//! [`expired`](Connection::expired) when [`deadline`](Connection::deadline) says so, and after each
//! call sends what [`transmit`](Connection::transmit) gives to QP 1 of the [`peer`](Connection::peer)
//! and arms its timer anew. All is O(1); nothing is allocated.
//!
//! # What is not believed
//!
//! A message is for a connection only if it comes from the peer's address and names both
//! communication IDs (those that its sender can know), and a DREQ this end's QP. So who is not on the
//! path has to guess 64 random bits. Times that a peer names are bounded. A message that was heard
//! before changes nothing, and is answered as before.
//!
//! A REQ that has the communication ID of another one, but asks for something else or has another QP,
//! comes from a peer that has forgotten this connection: it is rejected as stale, and this one ends.
//!
//! Source: InfiniBand specification, volume 1, sections 12.9.5 to 12.9.8.

mod event;
mod make;
mod pending;
mod receive;

pub use self::{
    event::{
        Connect,
        Device,
        Event,
        Ignored,
        Reply,
        Request,
        Side, //
    },
    pending::{
        PendingEvents, //
        StoredEvent,
    },
};

use super::{
    super::{
        headers::Qpn,
        mtu::PathMtu,
        psn::Psn, //
    },
    refusal::Refusal,
    timing::Retry,
    Attribute,
    Body,
    CommId,
    Dreq,
    Mad,
    Message,
    Mra,
    Private,
    Reason,
    Regarding,
    Rej,
    Rep,
    Req,
    Rtu,
    ServiceId,
    Timeout,
    Timing, //
};
use core::net::IpAddr;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Active: a REQ was sent.
    ReqSent,
    /// Passive: a REQ was received, and the consumer is to answer.
    ReqReceived,
    /// Passive: a REP was sent.
    RepSent,
    /// Active: a REP was received, and the consumer is to answer.
    RepReceived,
    /// Both ends can send.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// Over; late messages are answered.
    Timewait,
    /// Over, and can be forgotten.
    Closed,
}

impl State {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReqSent => "REQ SENT",
            Self::ReqReceived => "REQ RECEIVED",
            Self::RepSent => "REP SENT",
            Self::RepReceived => "REP RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::DreqSent => "DREQ SENT",
            Self::Timewait => "TIMEWAIT",
            Self::Closed => "CLOSED",
        }
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Nothing,
    /// The message that was said last.
    Said,
    /// An MRA: the consumer is still thinking.
    Mra(Regarding),
    /// A DREP to a DREQ with this transaction ID.
    Drep(u64),
    /// A REJ to a REQ with this transaction ID, for it cannot be: this connection has its name.
    Stale(u64),
}

/// What makes a REQ this one and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    service_id: ServiceId,
    qpn: Qpn,
    psn: Psn,
}

impl Asked {
    const fn new(req: &Req<'_>) -> Self {
        Self {
            service_id: req.service_id,
            qpn: req.qpn,
            psn: req.starting_psn,
        }
    }
}

/// One end of a connection.
///
/// # Invariants
///
/// `said` is the last message that this end has said, MRAs, DREPs and answers to strangers apart; if
/// nothing was said, it is never pending. There is a deadline in the states REQ SENT, REP SENT, DREQ
/// SENT and TIMEWAIT, and in no other.
#[derive(Clone, Debug)]
pub struct Connection {
    state: State,
    active: bool,
    /// The consumer knows that it is over, or has ended it.
    told: bool,
    local_id: CommId,
    /// The peer's; `None` before it is known.
    remote_id: Option<CommId>,
    ca_guid: u64,
    remote_guid: u64,
    peer: IpAddr,
    local_qpn: Qpn,
    remote_qpn: Qpn,
    asked: Asked,
    /// Active: what this end offers. Passive: what the peer does.
    responder_resources: u8,
    initiator_depth: u8,
    /// What was asked for last.
    mtu: PathMtu,
    /// Active: how far it can be less.
    least_mtu: PathMtu,
    timing: Timing,
    /// How long the peer may take to answer.
    response: Timeout,
    /// How long old packets live.
    timewait: u64,
    /// How long the peer may ask again for what was rejected.
    linger: u64,
    /// The peer was asked to wait.
    slow: bool,
    retry: Retry,
    /// The peer has asked for time to answer the REQ or REP; once is enough.
    mra: bool,
    deadline: Option<u64>,
    /// Passive: a repeated REQ gets no answer before this time, in ns.
    next_answer: u64,
    tid: u64,
    said: Mad,
    said_what: Option<Attribute>,
    pending: Pending,
}

impl Connection {
    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns whether this end asked for the connection.
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Returns what this end calls the connection.
    pub const fn local_id(&self) -> CommId {
        self.local_id
    }

    /// Returns what the peer calls the connection; `None` before it is known.
    pub const fn remote_id(&self) -> Option<CommId> {
        self.remote_id
    }

    /// Returns the peer's address.
    pub const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the GUID of the peer's device; 0 before it is known.
    pub const fn remote_guid(&self) -> u64 {
        self.remote_guid
    }

    /// Returns the peer's QP; 0 before it is known.
    pub const fn remote_qpn(&self) -> Qpn {
        self.remote_qpn
    }

    /// Returns when to call [`expired`](Self::expired), unless something happens before.
    pub const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Passive, REQ RECEIVED: accepts, at `now`, with a QP that is ready to receive. A REP is to be
    /// sent.
    ///
    /// # Errors
    ///
    /// The state, if it is another one.
    pub fn accept(
        &mut self,
        now: u64,
        side: &Side,
        private: Private<'_, { Rep::PRIVATE_LEN }>,
    ) -> Result<(), State> {
        self.must_be(State::ReqReceived)?;
        self.local_qpn = side.qpn;
        let rep = Rep {
            local_id: self.local_id,
            remote_id: self.remote_id_or_0(),
            qpn: side.qpn,
            starting_psn: side.starting_psn,
            responder_resources: side.responder_resources,
            // No more than the peer can take.
            initiator_depth: side.initiator_depth.min(self.responder_resources),
            target_ack_delay: Timeout::new(0),
            failover: 0,
            flow_control: false,
            rnr_retry_count: side.rnr_retry_count.min(7),
            srq: side.srq,
            ca_guid: self.ca_guid,
            private,
        };
        self.say(now, State::RepSent, Body::Rep(rep));
        Ok(())
    }

    /// Active, REP RECEIVED: the QP is ready to send; the connection is established. An RTU is to be
    /// sent.
    ///
    /// # Errors
    ///
    /// The state, if it is another one.
    pub fn confirm(
        &mut self,
        now: u64,
        private: Private<'_, { Rtu::PRIVATE_LEN }>,
    ) -> Result<(), State> {
        self.must_be(State::RepReceived)?;
        let rtu = Rtu {
            local_id: self.local_id,
            remote_id: self.remote_id_or_0(),
            private,
        };
        self.say(now, State::Established, Body::Rtu(rtu));
        Ok(())
    }

    /// REQ RECEIVED or REP RECEIVED: says no. A REJ is to be sent; no event comes but
    /// [`Event::Closed`].
    ///
    /// # Errors
    ///
    /// The state, if it is another one.
    pub fn reject(
        &mut self,
        now: u64,
        reason: Reason,
        info: Private<'_, { Rej::INFO_LEN }>,
        private: Private<'_, { Rej::PRIVATE_LEN }>,
    ) -> Result<(), State> {
        if self.must_be(State::ReqReceived).is_err() {
            self.must_be(State::RepReceived)?;
        }
        self.say_no(now, reason, info, private);
        self.told = true;
        Ok(())
    }

    /// ESTABLISHED: disconnects. A DREQ is to be sent, and [`Event::Released`] comes.
    ///
    /// # Errors
    ///
    /// The state, if it is another one.
    pub fn disconnect(
        &mut self,
        now: u64,
        private: Private<'_, { Dreq::PRIVATE_LEN }>,
    ) -> Result<(), State> {
        self.must_be(State::Established)?;
        let dreq = Dreq {
            local_id: self.local_id,
            remote_id: self.remote_id_or_0(),
            remote_qpn: self.remote_qpn,
            private,
        };
        // A transaction of its own.
        self.tid = self.tid.wrapping_add(1);
        self.say(now, State::DreqSent, Body::Dreq(dreq));
        Ok(())
    }

    /// The consumer has no more use for the connection, in whatever state: a REQ is taken back, a
    /// request rejected, a connection disconnected. No event comes but [`Event::Closed`].
    pub fn abandon(&mut self, now: u64) {
        let none = (Private::NONE, Private::NONE);
        match self.state {
            State::ReqSent => self.say_unanswered(now),
            State::ReqReceived | State::RepSent | State::RepReceived => {
                self.say_no(now, Reason::CONSUMER_DEFINED, none.0, none.1);
            }
            State::Established => {
                let _ = self.disconnect(now, Private::NONE);
            }
            State::DreqSent | State::Timewait | State::Closed => {}
        }
        self.told = true;
    }

    /// Passive, REP SENT: a packet of the peer has come to the QP, so the peer is ready and its RTU
    /// was lost or is late. Returns whether the connection is established by this; then no
    /// [`Event::Established`] comes.
    pub fn communication_established(&mut self) -> bool {
        let established = self.state == State::RepSent;
        if established {
            self.state = State::Established;
            self.deadline = None;
        }
        established
    }

    /// ESTABLISHED: the peer has shown that it knows nothing of the connection; its QP has a new
    /// one. A DREQ is to be sent.
    pub fn stale(&mut self, now: u64) -> Option<Event<'static>> {
        self.disconnect(now, Private::NONE).ok()?;
        self.end(Event::Disconnected(&[]))
    }

    /// Does what is due at `now`; nothing before the [`deadline`](Self::deadline).
    pub fn expired(&mut self, now: u64) -> Option<Event<'static>> {
        if now < self.deadline? {
            return None;
        }
        match self.state {
            State::ReqSent | State::RepSent | State::DreqSent if self.retry.again() => {
                self.pending = Pending::Said;
                self.deadline = Some(now.saturating_add(self.retry.wait()));
                None
            }
            State::ReqSent | State::RepSent => {
                self.say_unanswered(now);
                self.end(Event::Unreachable)
            }
            State::DreqSent => {
                self.pending = Pending::Nothing;
                self.enter_timewait(now, self.timewait);
                self.end(Event::Released)
            }
            State::Timewait => {
                self.state = State::Closed;
                self.deadline = None;
                self.pending = Pending::Nothing;
                Some(Event::Closed)
            }
            // INVARIANT: No deadline.
            State::ReqReceived | State::RepReceived | State::Established | State::Closed => None,
        }
    }

    /// Returns the datagram that is to be sent now, if there is one: to QP 1 of the peer.
    pub fn transmit(&mut self) -> Option<Mad> {
        let (local_id, remote_id) = (self.local_id, self.remote_id_or_0());
        let pending = core::mem::replace(&mut self.pending, Pending::Nothing);
        let (tid, body) = match pending {
            Pending::Nothing => return None,
            Pending::Said => return Some(self.said),
            Pending::Mra(regarding) => {
                let mra = Mra {
                    local_id,
                    remote_id,
                    regarding,
                    service_timeout: self.timing.service,
                    private: Private::NONE,
                };
                (self.tid, Body::Mra(mra))
            }
            Pending::Drep(tid) => {
                let drep = super::Drep {
                    local_id,
                    remote_id,
                    private: Private::NONE,
                };
                (tid, Body::Drep(drep))
            }
            Pending::Stale(tid) => {
                return Some(Refusal::new(Reason::STALE_CONN).message(tid, remote_id));
            }
        };
        Some(Message { tid, body }.write())
    }

    /// The peer's ID as it stands in a message: 0 before it is known.
    fn remote_id_or_0(&self) -> CommId {
        self.remote_id.unwrap_or(CommId(0))
    }

    fn must_be(&self, state: State) -> Result<(), State> {
        if self.state == state {
            Ok(())
        } else {
            Err(self.state)
        }
    }

    /// Says something and goes to a state, and waits for an answer if the state is one of waiting.
    fn say(&mut self, now: u64, state: State, body: Body<'_>) {
        let message = Message {
            tid: self.tid,
            body,
        };
        self.said = message.write();
        self.said_what = Some(message.attribute());
        self.pending = Pending::Said;
        self.state = state;
        self.next_answer = now.saturating_add(self.timing.answer_interval());
        self.retry = match state {
            State::RepSent => Retry::reply(&self.timing),
            _ => Retry::new(&self.timing, self.response),
        };
        self.deadline = match state {
            State::ReqSent | State::RepSent | State::DreqSent => {
                Some(now.saturating_add(self.retry.wait()))
            }
            _ => None,
        };
    }

    /// Whether a repeated REQ is answered at `now`, in ns. If so, the next interval without an
    /// answer begins: the source of the REQ may be forged.
    fn may_answer(&mut self, now: u64) -> bool {
        let may = now >= self.next_answer;
        if may {
            self.next_answer = now.saturating_add(self.timing.answer_interval());
        }
        may
    }

    /// Says no, and goes to TIMEWAIT.
    fn say_no(
        &mut self,
        now: u64,
        reason: Reason,
        info: Private<'_, { Rej::INFO_LEN }>,
        private: Private<'_, { Rej::PRIVATE_LEN }>,
    ) {
        let (regarding, time) = match self.state {
            State::ReqReceived => (Regarding::Req, self.linger()),
            State::RepReceived => (Regarding::Rep, self.timewait),
            // No REP may have come through.
            State::RepSent => (Regarding::Other, self.linger()),
            _ => (Regarding::Other, self.timewait),
        };
        let rej = Rej {
            local_id: self.local_id,
            remote_id: self.remote_id_or_0(),
            regarding,
            reason,
            info,
            private,
        };
        self.say(now, State::Timewait, Body::Rej(rej));
        self.enter_timewait(now, time);
    }

    /// Says that the peer did not answer, and goes to TIMEWAIT. The peer may not have told its ID,
    /// so the GUID says whose connection it is.
    fn say_unanswered(&mut self, now: u64) {
        let guid = self.ca_guid.to_be_bytes();
        let info = Private::new(&guid).unwrap_or(Private::NONE);
        self.say_no(now, Reason::TIMEOUT, info, Private::NONE);
    }

    /// How long the peer may take to ask again for what was rejected.
    fn linger(&self) -> u64 {
        if self.slow {
            self.linger.saturating_add(self.timing.service.ns())
        } else {
            self.linger
        }
    }

    fn enter_timewait(&mut self, now: u64, time: u64) {
        self.state = State::Timewait;
        self.deadline = Some(now.saturating_add(time));
    }

    /// It is over: returns what the consumer is to know of it, unless it knows.
    fn end<'m>(&mut self, event: Event<'m>) -> Option<Event<'m>> {
        let told = core::mem::replace(&mut self.told, true);
        if told {
            None
        } else {
            Some(event)
        }
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
