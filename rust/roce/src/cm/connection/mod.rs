// SPDX-License-Identifier: GPL-2.0
//! The state machine of one end of a connection: establishment, data transfer, disconnection.
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
//! The active end requests the largest path MTU that it supports. A peer with a smaller one rejects
//! that and names its own, and the active end requests that one, unless it is [too
//! small](Connect::least_mtu).
//!
//! In any state before ESTABLISHED either end may send a REJ ([`Connection::reject`],
//! [`Connection::abandon`]) and goes to TIMEWAIT. The other end gets [`Event::Rejected`] and goes
//! to TIMEWAIT too. REQ, REP and DREQ are retransmitted until they are answered ([`Timing`]); a
//! peer that does not answer is [unreachable](Event::Unreachable). The other messages are
//! retransmitted when the peer repeats its message. In TIMEWAIT late messages are answered, and the
//! consumer must not use the QP number for another connection, because old packets could reach it.
//!
//! # How to drive it
//!
//! A connection has no thread and no clock. The caller finds the connection to which a message
//! belongs ([`Route`](super::Route)) and passes the message to [`receive`](Connection::receive). It
//! calls [`expired`](Connection::expired) at the time that [`deadline`](Connection::deadline)
//! returns. After each call it sends the datagram that [`transmit`](Connection::transmit) returns
//! to QP 1 of the [`peer`](Connection::peer), and arms its timer again. Each call takes O(1) and
//! allocates nothing.
//!
//! # Validation of messages
//!
//! A message is accepted only if its source is the peer's address and it has both communication IDs
//! (as far as its sender can know them); a DREQ must also have the local QP number. An attacker
//! that cannot see the packets must therefore guess 64 random bits to change an established
//! connection. A connection that is not established can end with a guess of 32 bits, because the
//! peer does not know this end's ID then. Times that a peer requests are bounded. A duplicate does
//! not change the state and is answered as the original was.
//!
//! A REQ with the communication ID of an existing connection, but with another service or QP, comes
//! from a peer that has lost the state of this connection, or from an attacker. It ends a
//! connection that is not established, and is rejected as stale. About an established one the
//! caller decides ([`Ignored::Reused`]).
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
        PendingEvents,
        StoredEvent, //
    },
};

use super::{
    super::{
        headers::Qpn,
        mtu::PathMtu,
        psn::Psn, //
    },
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
    Refusal,
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
    /// Active: the REQ was sent.
    ReqSent,
    /// Passive: a REQ was received; the consumer has not answered yet.
    ReqReceived,
    /// Passive: the REP was sent.
    RepSent,
    /// Active: a REP was received; the consumer has not answered yet.
    RepReceived,
    /// Both ends may send.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// The connection is over; late messages are answered.
    Timewait,
    /// The connection is over and can be freed.
    Closed,
}

impl State {
    /// Returns the name of the state.
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

/// The datagram that [`Connection::transmit`] returns next.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Nothing,
    /// The last message (`last_message`), for the first time or again.
    Last,
    /// An MRA: the consumer has not decided yet.
    Mra(Regarding),
    /// A DREP that answers the DREQ with this transaction ID.
    Drep(u64),
    /// A REJ of a REQ with this transaction ID that uses the communication ID of this connection.
    Stale(u64),
}

/// The fields of a REQ that distinguish it from another REQ with the same communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReqIdentity {
    service_id: ServiceId,
    qpn: Qpn,
    psn: Psn,
}

impl ReqIdentity {
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
/// `last_message` is the last message that this end has sent, other than MRAs, DREPs and answers to
/// messages of other connections. `Pending::Last` implies that there is one. A deadline is set
/// exactly in the states REQ SENT, REP SENT, DREQ SENT and TIMEWAIT.
#[derive(Clone, Debug)]
pub struct Connection {
    state: State,
    active: bool,
    /// The end of the connection was reported to the consumer, or the consumer has ended it.
    end_reported: bool,
    local_id: CommId,
    /// The communication ID of the peer; `None` before it is known.
    remote_id: Option<CommId>,
    ca_guid: u64,
    remote_guid: u64,
    peer: IpAddr,
    local_qpn: Qpn,
    remote_qpn: Qpn,
    req_identity: ReqIdentity,
    /// Active: the value that this end offers. Passive: the value that the peer offers.
    responder_resources: u8,
    initiator_depth: u8,
    /// The path MTU that was requested last.
    mtu: PathMtu,
    /// Active: the smallest acceptable path MTU.
    least_mtu: PathMtu,
    timing: Timing,
    /// The time that the peer may take to answer.
    response: Timeout,
    /// The time in TIMEWAIT, in ns: the life time of old packets.
    timewait: u64,
    /// The time in ns during which the peer may repeat a request that was rejected.
    linger: u64,
    /// This end has sent an MRA.
    mra_sent: bool,
    retry: Retry,
    /// The peer has asked for more time with an MRA. Only the first one is honoured.
    mra_received: bool,
    deadline: Option<u64>,
    /// Passive: the time in ns before which a repeated REQ is not answered.
    next_answer: u64,
    tid: u64,
    last_message: Mad,
    last_kind: Option<Attribute>,
    pending: Pending,
}

impl Connection {
    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns whether this is the active end.
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Returns the local communication ID.
    pub const fn local_id(&self) -> CommId {
        self.local_id
    }

    /// Returns the communication ID of the peer; `None` before it is known.
    pub const fn remote_id(&self) -> Option<CommId> {
        self.remote_id
    }

    /// Returns the service ID that the REQ named.
    pub const fn service_id(&self) -> ServiceId {
        self.req_identity.service_id
    }

    /// Returns the peer's address.
    pub const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the GUID of the peer's device; 0 before it is known.
    pub const fn remote_guid(&self) -> u64 {
        self.remote_guid
    }

    /// Returns the QP number of the peer; 0 before it is known.
    pub const fn remote_qpn(&self) -> Qpn {
        self.remote_qpn
    }

    /// Returns the time at which to call [`expired`](Self::expired), unless another call comes
    /// first.
    pub const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Passive end, REQ RECEIVED: accepts the request at time `now`, with a QP in state RTR. A REP
    /// is then ready to be sent.
    ///
    /// # Errors
    ///
    /// Returns the current state if it is not REQ RECEIVED.
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
            // No more than the peer supports.
            initiator_depth: side.initiator_depth.min(self.responder_resources),
            target_ack_delay: Timeout::new(0),
            failover: 0,
            flow_control: false,
            rnr_retry_count: side.rnr_retry_count.min(7),
            srq: side.srq,
            ca_guid: self.ca_guid,
            private,
        };
        self.send(now, State::RepSent, Body::Rep(rep));
        Ok(())
    }

    /// Active end, REP RECEIVED: confirms that the local QP is in RTS. The connection is
    /// established, and an RTU is ready to be sent.
    ///
    /// # Errors
    ///
    /// Returns the current state if it is not REP RECEIVED.
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
        self.send(now, State::Established, Body::Rtu(rtu));
        Ok(())
    }

    /// REQ RECEIVED or REP RECEIVED: rejects the connection. A REJ is then ready to be sent; the
    /// only event that follows is [`Event::Closed`].
    ///
    /// # Errors
    ///
    /// Returns the current state if it is another one.
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
        self.reject_with(now, reason, info, private);
        self.end_reported = true;
        Ok(())
    }

    /// ESTABLISHED: disconnects. A DREQ is then ready to be sent; [`Event::Released`] follows.
    ///
    /// # Errors
    ///
    /// Returns the current state if it is not ESTABLISHED.
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
        // A DREQ begins a new transaction.
        self.tid = self.tid.wrapping_add(1);
        self.send(now, State::DreqSent, Body::Dreq(dreq));
        Ok(())
    }

    /// REQ RECEIVED: drops the request without an answer. The connection is closed, and no event
    /// follows. The REQ that the peer repeats is a new request. A peer that an MRA has asked to
    /// wait repeats it too late for its consumer, so the request is [rejected](Self::reject) then.
    ///
    /// # Errors
    ///
    /// Returns the current state if it is another one.
    pub fn ignore(&mut self, now: u64, reason: Reason) -> Result<(), State> {
        self.must_be(State::ReqReceived)?;
        if self.mra_sent {
            return self.reject(now, reason, Private::NONE, Private::NONE);
        }
        self.state = State::Closed;
        self.end_reported = true;
        Ok(())
    }

    /// Ends the connection in any state because the consumer does not need it any more: withdraws a
    /// REQ, rejects a request, or disconnects. The only event that follows is [`Event::Closed`].
    pub fn abandon(&mut self, now: u64) {
        match self.state {
            State::ReqSent => self.reject_unanswered(now),
            State::ReqReceived | State::RepSent | State::RepReceived => {
                self.reject_with(now, Reason::CONSUMER_DEFINED, Private::NONE, Private::NONE);
            }
            State::Established => {
                let _ = self.disconnect(now, Private::NONE);
            }
            State::DreqSent | State::Timewait | State::Closed => {}
        }
        self.end_reported = true;
    }

    /// Passive end, REP SENT: the QP has received a packet of the peer, so the peer is ready and
    /// its RTU was lost or is late. Returns whether this call established the connection;
    /// [`Event::Established`] does not follow then.
    pub fn communication_established(&mut self) -> bool {
        let established = self.state == State::RepSent;
        if established {
            self.state = State::Established;
            self.deadline = None;
        }
        established
    }

    /// ESTABLISHED: the peer has shown that it has lost the state of this connection, because its
    /// QP requests a new one. A DREQ is then ready to be sent.
    pub fn stale(&mut self, now: u64) -> Option<Event<'static>> {
        self.disconnect(now, Private::NONE).ok()?;
        self.end(Event::Disconnected(&[]))
    }

    /// Handles an expired deadline at time `now`; does nothing before the
    /// [`deadline`](Self::deadline).
    pub fn expired(&mut self, now: u64) -> Option<Event<'static>> {
        if now < self.deadline? {
            return None;
        }
        match self.state {
            State::ReqSent | State::RepSent | State::DreqSent if self.retry.again() => {
                self.pending = Pending::Last;
                self.deadline = Some(now.saturating_add(self.retry.wait()));
                None
            }
            State::ReqSent | State::RepSent => {
                self.reject_unanswered(now);
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
            // INVARIANT: These states have no deadline.
            State::ReqReceived | State::RepReceived | State::Established | State::Closed => None,
        }
    }

    /// Returns the next datagram to send to QP 1 of the peer, if there is one.
    pub fn transmit(&mut self) -> Option<Mad> {
        let (local_id, remote_id) = (self.local_id, self.remote_id_or_0());
        let pending = core::mem::replace(&mut self.pending, Pending::Nothing);
        let (tid, body) = match pending {
            Pending::Nothing => return None,
            Pending::Last => return Some(self.last_message),
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

    /// Returns the communication ID of the peer as messages carry it: 0 before it is known.
    fn remote_id_or_0(&self) -> CommId {
        self.remote_id.unwrap_or(CommId(0))
    }

    fn must_be(&self, state: State) -> Result<(), State> {
        match self.state == state {
            true => Ok(()),
            false => Err(self.state),
        }
    }

    /// Queues a message, goes to `state`, and sets a deadline if that state waits for an answer.
    fn send(&mut self, now: u64, state: State, body: Body<'_>) {
        let message = Message {
            tid: self.tid,
            body,
        };
        self.last_message = message.write();
        self.last_kind = Some(message.attribute());
        self.pending = Pending::Last;
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

    /// Returns whether a repeated REQ may be answered at `now`, in ns. If so, starts the next
    /// interval without an answer. The interval limits the traffic to a forged source.
    fn may_answer(&mut self, now: u64) -> bool {
        let may = now >= self.next_answer;
        if may {
            self.next_answer = now.saturating_add(self.timing.answer_interval());
        }
        may
    }

    /// Queues a REJ and goes to TIMEWAIT.
    fn reject_with(
        &mut self,
        now: u64,
        reason: Reason,
        info: Private<'_, { Rej::INFO_LEN }>,
        private: Private<'_, { Rej::PRIVATE_LEN }>,
    ) {
        let (regarding, time) = match self.state {
            State::ReqReceived => (Regarding::Req, self.linger()),
            State::RepReceived => (Regarding::Rep, self.timewait),
            // The peer may not have received any REP.
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
        self.send(now, State::Timewait, Body::Rej(rej));
        self.enter_timewait(now, time);
    }

    /// Queues a REJ for a peer that did not answer, and goes to TIMEWAIT. The peer's communication
    /// ID may be unknown, so the REJ names the connection by the GUID.
    fn reject_unanswered(&mut self, now: u64) {
        let guid = self.ca_guid.to_be_bytes();
        let info = Private::new(&guid).unwrap_or(Private::NONE);
        self.reject_with(now, Reason::TIMEOUT, info, Private::NONE);
    }

    /// Returns the time in ns during which the peer may repeat a request that was rejected.
    fn linger(&self) -> u64 {
        if self.mra_sent {
            self.linger.saturating_add(self.timing.service.ns())
        } else {
            self.linger
        }
    }

    fn enter_timewait(&mut self, now: u64, time: u64) {
        self.state = State::Timewait;
        self.deadline = Some(now.saturating_add(time));
    }

    /// Ends the connection. Returns the event, unless the consumer knows already that it is over.
    fn end<'m>(&mut self, event: Event<'m>) -> Option<Event<'m>> {
        let reported = core::mem::replace(&mut self.end_reported, true);
        (!reported).then_some(event)
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
