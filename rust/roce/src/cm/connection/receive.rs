// SPDX-License-Identifier: GPL-2.0
//! The effect of received messages on a connection.
//!
//! | state | REQ | MRA | REP | RTU | REJ | DREQ | DREP |
//! |---|---|---|---|---|---|---|---|
//! | REQ SENT | | wait | Reply | | REQ, Rejected | | |
//! | REQ RECEIVED | MRA | | | | Rejected | | |
//! | REP SENT | REP | wait | | Established | Rejected | DREP, Disconnected | |
//! | REP RECEIVED | | | MRA | | Rejected | | |
//! | ESTABLISHED | - | | RTU | - | Disconnected | DREP, Disconnected | |
//! | DREQ SENT | | | | | Released | DREP, Released | Released |
//! | TIMEWAIT | REJ | | REJ | - | - | DREP | - |
//!
//! An [`Event`]'s name in a cell is the event that is reported, `wait` extends the deadline, and a
//! name in capitals is the message that is sent. `-` is a duplicate without effect; an empty cell
//! is a message that is not valid in the state. In REQ SENT, a REJ is answered with a new REQ if
//! the peer only proposes a smaller path MTU that is acceptable. In TIMEWAIT a REJ is sent only if
//! this end has rejected the connection. A repeated REQ is answered at most once in
//! [`Timing::answer_interval`], because its source may be forged. The table omits a REQ that
//! differs from the one that was received: it ends the connection in any state.

use super::{
    super::{
        super::mtu::PathMtu,
        Attribute,
        Body,
        CommId,
        Drep,
        Dreq,
        Message,
        Mra,
        Private,
        Reason,
        Regarding,
        Rej,
        Rep,
        Req,
        Rtu,
        Timeout, //
    },
    Connection,
    Event,
    Ignored,
    Pending,
    Reply,
    ReqIdentity,
    State, //
};
use core::net::IpAddr;

/// The result of a message: an event for the consumer, or the reason for ignoring the message.
type Outcome<'m> = Result<Option<Event<'m>>, Ignored>;

impl Connection {
    /// Handles a message that came from address `from` at time `now`.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the message was ignored. The state is unchanged then, but the
    /// answer to a duplicate may be sent again.
    pub fn receive<'m>(
        &mut self,
        now: u64,
        from: IpAddr,
        message: &Message<'m>,
    ) -> Result<Option<Event<'m>>, Ignored> {
        if from != self.peer {
            return Err(Ignored::Source);
        }
        if self.state == State::Closed {
            return Err(Ignored::State);
        }
        match &message.body {
            Body::Req(req) => self.receive_req(now, message.tid, req),
            Body::Mra(mra) => self.receive_mra(now, mra),
            Body::Rej(rej) => self.receive_rej(now, message.tid, rej),
            Body::Rep(rep) => self.receive_rep(now, rep),
            Body::Rtu(rtu) => self.receive_rtu(rtu),
            Body::Dreq(dreq) => self.receive_dreq(now, message.tid, dreq),
            Body::Drep(drep) => self.receive_drep(now, drep),
        }
    }

    /// Checks the communication IDs of a message: its sender's and its receiver's.
    fn check_ids(&self, sender: CommId, receiver: CommId) -> Result<(), Ignored> {
        let sender = self.remote_id.is_none_or(|known| known == sender);
        if sender && receiver == self.local_id {
            Ok(())
        } else {
            Err(Ignored::Ids)
        }
    }

    /// Queues the last message again if it was of this kind.
    fn repeat(&mut self, what: Attribute) -> Ignored {
        if self.last_kind == Some(what) {
            self.pending = Pending::Last;
        }
        Ignored::Duplicate
    }

    fn receive_req<'m>(&mut self, now: u64, tid: u64, req: &Req<'m>) -> Outcome<'m> {
        if self.active || (req.ca_guid, Some(req.local_id)) != (self.remote_guid, self.remote_id) {
            return Err(Ignored::Ids);
        }
        if ReqIdentity::new(req) != self.req_identity {
            // The ID may be guessed, with a forged address.
            if self.state == State::Established {
                return Err(Ignored::Reused);
            }
            return Ok(self.end_as_stale(now, tid));
        }
        if !self.may_answer(now) {
            return Err(Ignored::Duplicate);
        }
        Err(match self.state {
            State::ReqReceived => {
                self.pending = Pending::Mra(Regarding::Req);
                self.mra_sent = true;
                Ignored::Duplicate
            }
            State::RepSent => self.repeat(Attribute::Rep),
            State::Timewait => {
                // As often as this end would retransmit.
                if self.last_kind == Some(Attribute::Rej) && self.retry.again() {
                    self.enter_timewait(now, self.linger());
                }
                self.repeat(Attribute::Rej)
            }
            _ => Ignored::Duplicate,
        })
    }

    /// Handles a REQ of the peer that uses the communication ID of this connection, which is not
    /// established, for another one.
    fn end_as_stale<'m>(&mut self, now: u64, tid: u64) -> Option<Event<'m>> {
        let event = match self.state {
            State::ReqReceived | State::RepSent => Event::Rejected {
                reason: Reason::STALE_CONN,
                info: &[],
                private: &[],
            },
            _ => Event::Released,
        };
        self.pending = Pending::Stale(tid);
        if self.state == State::Timewait {
            return None;
        }
        self.enter_timewait(now, self.timewait);
        self.end(event)
    }

    fn receive_mra<'m>(&mut self, now: u64, mra: &Mra<'m>) -> Outcome<'m> {
        self.check_ids(mra.local_id, mra.remote_id)?;
        match (self.state, mra.regarding) {
            (State::ReqSent, Regarding::Req) | (State::RepSent, Regarding::Rep) => {}
            _ => return Err(Ignored::State),
        }
        if core::mem::replace(&mut self.mra_received, true) {
            return Err(Ignored::Duplicate);
        }
        let service = mra.service_timeout.min(self.timing.longest_service);
        let wait = service.ns().saturating_add(self.retry.longest());
        self.deadline = Some(now.saturating_add(wait));
        Ok(None)
    }

    fn receive_rej<'m>(&mut self, now: u64, tid: u64, rej: &Rej<'m>) -> Outcome<'m> {
        let timed_out = rej.timed_out() == Some(self.remote_guid);
        let is_unconfirmed = matches!(self.state, State::ReqReceived | State::RepSent);
        if !self.active && timed_out && rej.remote_id == CommId(0) && is_unconfirmed {
            // The peer does not know this end's ID.
            self.check_ids(rej.local_id, self.local_id)?;
        } else {
            self.check_ids(rej.local_id, rej.remote_id)?;
        }
        if self.state == State::ReqSent && rej.reason == Reason::INVALID_MTU {
            // The REJ answers an earlier REQ.
            if tid != self.tid {
                return Err(Ignored::Duplicate);
            }
            let largest = rej.info.get().first().copied();
            if largest
                .and_then(PathMtu::from_code)
                .is_some_and(|mtu| self.request_smaller_mtu(now, mtu))
            {
                return Ok(None);
            }
        }
        let event = match self.state {
            State::ReqSent | State::ReqReceived | State::RepSent | State::RepReceived => {
                Event::Rejected {
                    reason: rej.reason,
                    info: rej.info.get(),
                    private: rej.private.get(),
                }
            }
            State::Established => Event::Disconnected(&[]),
            State::DreqSent => Event::Released,
            State::Timewait => return Err(Ignored::Duplicate),
            State::Closed => return Err(Ignored::State),
        };
        self.pending = Pending::Nothing;
        self.enter_timewait(now, self.timewait);
        Ok(self.end(event))
    }

    /// Repeats the REQ with the path MTU that the peer supports, and returns whether that is
    /// acceptable. The path MTU decreases each time, so the number of repetitions is bounded.
    fn request_smaller_mtu(&mut self, now: u64, largest: PathMtu) -> bool {
        let said = self.last_message;
        match Message::parse(&said) {
            Ok(Message {
                tid,
                body: Body::Req(req),
            }) if (self.least_mtu..self.mtu).contains(&largest) => {
                self.mtu = largest;
                self.mra_received = false;
                self.tid = tid.wrapping_add(1);
                let req = Req {
                    mtu: largest.code(),
                    ..req
                };
                self.send(now, State::ReqSent, Body::Req(req));
                true
            }
            _ => false,
        }
    }

    fn receive_rep<'m>(&mut self, now: u64, rep: &Rep<'m>) -> Outcome<'m> {
        if !self.active {
            return Err(Ignored::Ids);
        }
        self.check_ids(rep.local_id, rep.remote_id)?;
        match self.state {
            State::ReqSent => {}
            State::RepReceived => {
                self.pending = Pending::Mra(Regarding::Rep);
                return Err(Ignored::Duplicate);
            }
            State::Established => return Err(self.repeat(Attribute::Rtu)),
            State::Timewait => return Err(self.repeat(Attribute::Rej)),
            _ => return Err(Ignored::State),
        }
        self.state = State::RepReceived;
        self.deadline = None;
        self.pending = Pending::Nothing;
        self.remote_id = Some(rep.local_id);
        self.remote_guid = rep.ca_guid;
        self.remote_qpn = rep.qpn;
        if !Self::can_be_connected(rep.qpn) {
            let reason = Reason::UNSUPPORTED;
            self.reject_with(now, reason, Private::NONE, Private::NONE);
            return Ok(self.end(Event::Rejected {
                reason,
                info: &[],
                private: &[],
            }));
        }
        Ok(Some(Event::Reply(Reply {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            mtu: self.mtu,
            responder_resources: rep.initiator_depth.min(self.responder_resources),
            initiator_depth: rep.responder_resources.min(self.initiator_depth),
            rnr_retry_count: rep.rnr_retry_count,
            ack_timeout: Timeout::ack(self.timing.life_time, rep.target_ack_delay),
            srq: rep.srq,
            private: rep.private.get(),
        })))
    }

    fn receive_rtu<'m>(&mut self, rtu: &Rtu<'m>) -> Outcome<'m> {
        if self.active {
            return Err(Ignored::Ids);
        }
        self.check_ids(rtu.local_id, rtu.remote_id)?;
        match self.state {
            State::RepSent => {
                self.state = State::Established;
                self.deadline = None;
                self.pending = Pending::Nothing;
                Ok(Some(Event::Established(rtu.private.get())))
            }
            State::Established | State::Timewait => Err(Ignored::Duplicate),
            _ => Err(Ignored::State),
        }
    }

    fn receive_dreq<'m>(&mut self, now: u64, tid: u64, dreq: &Dreq<'m>) -> Outcome<'m> {
        self.check_ids(dreq.local_id, dreq.remote_id)?;
        let event = match self.state {
            State::RepSent | State::Established => Some(Event::Disconnected(dreq.private.get())),
            State::DreqSent => Some(Event::Released),
            State::Timewait => None,
            _ => return Err(Ignored::State),
        };
        if dreq.remote_qpn != self.local_qpn {
            return Err(Ignored::Ids);
        }
        self.pending = Pending::Drep(tid);
        let event = event.ok_or(Ignored::Duplicate)?;
        self.enter_timewait(now, self.timewait);
        Ok(self.end(event))
    }

    fn receive_drep<'m>(&mut self, now: u64, drep: &Drep<'m>) -> Outcome<'m> {
        self.check_ids(drep.local_id, drep.remote_id)?;
        match self.state {
            State::DreqSent => {
                self.pending = Pending::Nothing;
                self.enter_timewait(now, self.timewait);
                Ok(self.end(Event::Released))
            }
            State::Timewait => Err(Ignored::Duplicate),
            _ => Err(Ignored::State),
        }
    }
}
