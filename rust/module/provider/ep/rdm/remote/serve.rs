// SPDX-License-Identifier: GPL-2.0

//! The peer's requests on a connection, and events of its QP.
//!
//! A SEND begins with a header. If it is the header of a message, the endpoint must have room for
//! the message, or the peer has to wait: a posted receive, into which the bytes are placed as they
//! arrive; or a buffer of the endpoint; or, for a long message, only a slot for an unexpected
//! message. An atomic needs memory for its payload, and is executed when all of it has come
//! ([`atomic`](super::atomic)). The old values of an atomic, and the bytes of a tagged read, of
//! this end go to their destination. Tagged RMA takes a posted receive, or none. All other headers
//! are events for the session, which gets them when the run of the QP is over
//! ([`Consumer::run_ended`]).
//!
//! The peer accesses memory through regions, by their keys. Its receives read long messages through
//! grants.

use kfi_core::{
    flags::Access,
    matching::Envelope,
    mr,
    rdm::{
        header::{
            self,
            Header,
            MAX_HEADER, //
        },
        inbound::{
            Begin,
            End,
            Event,
            OutstandingAnswers,
            Source, //
        },
        session::WorkResult,
        Cause,
        Grant, //
    }, //
};
use kfi_roce::{
    headers::{
        AtomicEth,
        Reth, //
    },
    rc::{
        target::{
            Atomic,
            Ended,
            Incoming, //
        },
        Refusal,
        Status, //
    }, //
};

use super::{
    super::super::{
        admit::Context,
        atomic::{
            change_word,
            RC_ACCESS, //
        },
        prelude::*, //
    },
    conn::{
        Connection,
        Inbox,
        ReceivedSend,
        SessionEvent, //
    },
    op::PendingAnswer,
    session::State, //
};
use crate::{
    mem::payload,
    net::qp::{
        rc::Consumer,
        Payload, //
    },
    provider::mr::Mr,
    shim::skb::Room, //
};

/// The result of a request of the peer, or the reason of its refusal.
type RequestResult<T = ()> = core::result::Result<T, Refusal>;

impl Connection {
    fn bound(&self) -> RequestResult<&Bound> {
        self.endpoint().bound.as_ref().ok_or(Refusal::Operation)
    }

    /// Calls `work` inside the region that `reth` names, if the endpoint's capabilities allow the
    /// access.
    fn in_region<T>(
        &self,
        reth: &Reth,
        access: Access,
        work: impl FnOnce(&Mr) -> core::result::Result<T, mr::Refusal>,
    ) -> RequestResult<T> {
        let needs = if access.contains(Access::REMOTE_WRITE) {
            Caps::REMOTE_WRITE
        } else {
            Caps::REMOTE_READ
        };
        self.in_region_with(reth.rkey, needs, work)
    }

    /// Calls `work` inside the region under `rkey`, if the endpoint has the capabilities `needs`.
    fn in_region_with<T>(
        &self,
        rkey: u32,
        needs: Caps,
        work: impl FnOnce(&Mr) -> core::result::Result<T, mr::Refusal>,
    ) -> RequestResult<T> {
        let endpoint = self.endpoint();
        let allowed = endpoint.caps.contains(needs);
        let done = if allowed {
            endpoint.domain.in_region(u64::from(rkey), work)
        } else {
            Err(mr::Refusal::Rights)
        };
        done.map_err(|refusal| self.refused(refusal))
    }

    /// Counts a refused access. The connection ends because of it.
    pub(super) fn refused(&self, refusal: mr::Refusal) -> Refusal {
        let endpoint = self.endpoint();
        endpoint.domain.count_refusal();
        // The peer does not cause contention: it needs only one round.
        if refusal != mr::Refusal::Contention {
            let peer = self.session.peer.addr().ip();
            endpoint.ident.budget.refused_peer(peer);
        }
        self.refused.store(true, Relaxed);
        Refusal::Access
    }

    /// Notes the result of a SEND. If the SEND is invalid, the connection ends because of it.
    fn note_send<T>(&self, result: RequestResult<T>) -> RequestResult<T> {
        if let Err(Refusal::Invalid) = result {
            self.invalid.store(true, Relaxed);
        }
        result
    }

    fn check(&self, reth: &Reth, access: Access) -> RequestResult {
        self.note_access();
        self.in_region(reth, access, |region| {
            region.remote(reth.va, u64::from(reth.len), access)?;
            Ok(())
        })
    }

    /// The number of answers to the peer, and the limit for waiting messages.
    fn outstanding_answers(&self) -> OutstandingAnswers {
        OutstandingAnswers {
            total: self.session.answers.count(),
            waiting: self.endpoint().rx_side().waiting_max,
        }
    }

    /// Finds room for a message or an atomic. `NotReady`: there is no room, or no memory.
    /// `Invalid`: the endpoint receives no such messages, as its hello has told the peer. The
    /// receives may be those of a shared context, for other endpoints.
    fn offer(&self, message: &header::Message, source: Source) -> RequestResult<ReceivedSend> {
        let endpoint = self.endpoint();
        let offered = Message {
            tagged: message.tag.is_some(),
            envelope: Envelope {
                src: self.session.peer.name(),
                tag: message.tag.unwrap_or(0),
            },
            data: message.data,
            len: u64::from(message.len),
            rma: source.tagged_rma(),
        };
        if let Source::Atomic(call) = source {
            return self.offer_atomic(message, &call).map(ReceivedSend::Atomic);
        }
        if offered.rma.is_none() && !endpoint.receives(offered.tagged) {
            return Err(Refusal::Invalid);
        }
        let at = source.at();
        let answer = if message.finish {
            let answer = PendingAnswer::new(&self.session, self.conn, message.id, at);
            Some(answer.map_err(|_| Refusal::NotReady)?)
        } else {
            None
        };
        let arrival_target = match offered.rma {
            Some(rma) => endpoint.rma_target(&offered, rma),
            None => endpoint.arrival_target(&offered, at.is_none(), &self.session.kept_share),
        }
        .ok_or(Refusal::NotReady)?;
        Ok(ReceivedSend::Message(arrival_target, offered, answer))
    }

    /// Handles the beginning of a SEND.
    fn begin(&self, inbox: &mut Inbox, bytes: &[u8]) -> RequestResult {
        // Reserves room for the event at the end. It does not wait for memory, see `slot_of_peer`.
        if inbox.events.reserve(1, Context::Atomic.alloc()).is_err() {
            return Err(Refusal::NotReady);
        }
        let begun = inbox
            .inbound
            .begin(bytes, self.outstanding_answers())
            .map_err(|_| Refusal::Invalid)?;
        inbox.receiving = match begun {
            Begin::NotReady => return Err(Refusal::NotReady),
            Begin::Result { id, len } => {
                // Otherwise the peer sends values that nobody has requested.
                let memory = self.session.take_result(self.conn, id, len);
                ReceivedSend::Result(memory.ok_or(Refusal::Invalid)?)
            }
            Begin::Message(message, source) => {
                let received = self.offer(&message, source)?;
                inbox.inbound.take();
                received
            }
            Begin::Other => match Header::parse(bytes) {
                Ok(Header::Cancel { id, .. }) => {
                    let answer = PendingAnswer::for_cancel(&self.session, self.conn, id);
                    ReceivedSend::Cancel(answer.map_err(|_| Refusal::NotReady)?)
                }
                _ => ReceivedSend::Nothing,
            },
        };
        Ok(())
    }

    /// Handles the end of a SEND.
    fn ended(&self, inbox: &mut Inbox, len: u32) -> RequestResult {
        let bound = self.bound()?;
        let end = inbox.inbound.end(len).map_err(|_| Refusal::Invalid)?;
        let receiving = core::mem::replace(&mut inbox.receiving, ReceivedSend::Nothing);
        let event = match (end, receiving) {
            (End::Message, ReceivedSend::Message(arrival_target, message, answer)) => self
                .endpoint()
                .arrived(bound, arrival_target, message, answer)
                .map(SessionEvent::Reply),
            (End::Message, ReceivedSend::Atomic(atomic)) => self.execute(bound, atomic)?,
            (End::Event(Event::Cancel { id, found }), ReceivedSend::Cancel(answer)) => {
                Some(SessionEvent::Cancel(id, found, answer))
            }
            (End::Event(Event::Note { data, .. }), _) => {
                if inbox.written.is_empty() {
                    // Data without a preceding write that a region allowed violate the protocol.
                    return Err(Refusal::Invalid);
                }
                let (kind, flags) = (OpType::Write, OpFlags::REMOTE_CQ_DATA);
                let len = inbox.written.count(&self.endpoint().domain, true);
                self.endpoint()
                    .complete_remote(bound, kind, flags, data, len);
                None
            }
            (End::Event(event), _) => {
                if let Event::Fin { id, .. } = event {
                    // No byte arrives for a read that the FIN ends.
                    self.session.forget_result(self.conn, id);
                }
                Some(SessionEvent::Event(event))
            }
            _ => None,
        };
        if let Some(event) = event {
            // The room was reserved when the SEND began.
            let _ = inbox.events.push(event, GFP_KERNEL_ACCOUNT);
        }
        Ok(())
    }

    /// Gives up the message that was being received.
    pub(super) fn abort(&self, why: Cause) {
        let receiving = {
            let mut inbox = self.inbox.lock();
            inbox.inbound.abort();
            core::mem::replace(&mut inbox.receiving, ReceivedSend::Nothing)
        };
        if let (ReceivedSend::Message(arrival_target, message, _), Ok(bound)) =
            (receiving, self.bound())
        {
            self.endpoint()
                .not_arrived(bound, arrival_target, &message, why.errno());
        }
    }

    /// Hands the peer's events to the session. The caller holds the session's lock.
    pub(super) fn deliver_events(&self, state: &mut State, now: u64) {
        let events = core::mem::take(&mut self.inbox.lock().events);
        for event in events {
            match event {
                SessionEvent::Event(event) => {
                    if let Some(ended) = state.core.event(now, self.conn, event) {
                        self.session.end(ended);
                    }
                }
                SessionEvent::Reply(reply) => self.session.answer_locked(state, now, reply),
                SessionEvent::Cancel(id, found, answer) => {
                    let reply =
                        self.endpoint()
                            .withdraw(&self.session, self.conn, id, found, answer);
                    if let Some(reply) = reply {
                        self.session.answer_locked(state, now, reply);
                    }
                }
            }
        }
    }

    /// The result of a work request that ended with `status`, and the cause if the connection
    /// fails.
    fn done(status: Status, void: bool) -> (WorkResult, Option<Cause>) {
        let cause = match status {
            Status::Success if void => return (WorkResult::Void, None),
            Status::Success => return (WorkResult::Sent, None),
            Status::Flushed => return (WorkResult::Failed(None), None),
            Status::RemoteAccess => Cause::Access,
            Status::RetryExceeded | Status::RnrRetryExceeded => Cause::Lost,
            Status::LocalLength => Cause::Narrow,
            _ => Cause::Protocol,
        };
        let errno = prov_errno::of_transmit(status).map(|(errno, _)| errno);
        (WorkResult::Failed(errno), Some(cause))
    }
}

impl Consumer for Connection {
    fn begin_receive(&self, incoming: Incoming, payload: &Payload<'_>) -> RequestResult {
        self.note_packet();
        let mut inbox = self.inbox.lock();
        if let Incoming::WriteImm = incoming {
            inbox.receiving = ReceivedSend::Write;
            return Ok(());
        }
        let mut bytes = [0; MAX_HEADER];
        let len = payload.len().min(MAX_HEADER);
        let bytes = bytes.get_mut(..len).unwrap_or_default();
        if !payload.copy_to_slice(bytes) {
            return Err(Refusal::Operation);
        }
        let begun = self.begin(&mut inbox, bytes);
        self.note_send(begun)
    }

    fn place(&self, offset: u32, payload: &Payload<'_>) -> RequestResult {
        let inbox = self.inbox.lock();
        let part = inbox
            .inbound
            // A packet has at most a path MTU.
            .payload(offset, payload.len() as u32)
            .map_err(|_| Refusal::Invalid);
        let part = self.note_send(part)?;
        let memory = match &inbox.receiving {
            ReceivedSend::Message(arrival_target, ..) => arrival_target.memory(),
            ReceivedSend::Atomic(atomic) => atomic.memory(),
            ReceivedSend::Result(memory) => {
                self.note_access();
                memory
            }
            _ => return Ok(()),
        };
        if let Some((range, at)) = part {
            // Bytes that do not fit are dropped. The completion reports that.
            payload.part(range).place(memory, at as usize);
        }
        Ok(())
    }

    fn end_receive(&self, ended: Ended) -> RequestResult {
        let mut inbox = self.inbox.lock();
        if ended.write {
            inbox.receiving = ReceivedSend::Nothing;
            inbox.write_ends = true;
            let bound = self.bound()?;
            // The bytes of the current piece are not in `written` yet.
            let len = inbox.written.bytes().saturating_add(u64::from(ended.len));
            let kind = OpType::Write;
            self.endpoint()
                .complete_remote(bound, kind, OpFlags::EMPTY, 0, len);
            return Ok(());
        }
        let ended = self.ended(&mut inbox, ended.len);
        self.note_send(ended)
    }

    fn abort_receive(&self, why: Option<Refusal>) {
        if why == Some(Refusal::Invalid) {
            self.invalid.store(true, Relaxed);
        }
        let cause = if self.invalid.load(Relaxed) {
            Cause::Protocol
        } else {
            Cause::Reset
        };
        self.abort(cause);
    }

    fn check_write(&self, reth: &Reth) -> RequestResult {
        self.check(reth, Access::REMOTE_WRITE)
    }

    fn write(&self, reth: &Reth, offset: u32, payload: &Payload<'_>) -> RequestResult {
        self.note_access();
        let access = Access::REMOTE_WRITE;
        let placed = self.in_region(reth, access, |region| {
            let memory = region.remote(reth.va, u64::from(reth.len), access)?;
            Ok(payload.place(&memory, offset as usize))
        })?;
        if placed == payload.len() {
            Ok(())
        } else {
            Err(Refusal::Operation)
        }
    }

    fn end_write(&self, reth: &Reth) {
        let mut inbox = self.inbox.lock();
        inbox.written.add(reth);
        if core::mem::replace(&mut inbox.write_ends, false) {
            inbox.written.count(&self.endpoint().domain, true);
        }
    }

    fn check_read(&self, reth: &Reth) -> RequestResult {
        match Grant::of(reth) {
            None => self.check(reth, Access::REMOTE_READ),
            Some(grant) => {
                self.note_access();
                if self.session.begin_to_read(&grant) {
                    Ok(())
                } else {
                    Err(Refusal::Access)
                }
            }
        }
    }

    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> RequestResult {
        if let Some(grant) = Grant::of(reth) {
            self.session.read_grant(&grant, room);
            return Ok(());
        }
        let access = Access::REMOTE_READ;
        self.in_region(reth, access, |region| {
            let memory = region.remote(reth.va, u64::from(reth.len), access)?;
            payload::gather_mem(room, &memory, 0);
            Ok(())
        })
    }

    fn end_read(&self, reth: &Reth, more: bool) {
        if Grant::of(reth).is_some() {
            return;
        }
        let len = {
            let mut read = self.read.lock();
            read.add(reth);
            if more {
                return;
            }
            read.count(&self.endpoint().domain, false)
        };
        if let Ok(bound) = self.bound() {
            self.endpoint()
                .complete_remote(bound, OpType::Read, OpFlags::EMPTY, 0, len);
        }
    }

    fn atomic(&self, atomic: Atomic, eth: &AtomicEth) -> RequestResult<u64> {
        self.note_access();
        let ((len, access), kind) = (RC_ACCESS, OpType::FetchAtomic);
        let needs = kind.target_caps() | Caps::ATOMIC;
        let found = self.in_region_with(eth.rkey, needs, |region| {
            let memory = region.remote(eth.va, len, access)?;
            let found = change_word(&memory, atomic, eth)?;
            region.count(false);
            Ok(found)
        })?;
        let bound = self.bound()?;
        self.endpoint()
            .complete_remote(bound, kind, OpFlags::EMPTY, 0, len);
        Ok(found)
    }

    fn completed(&self, context: u64, status: Status) {
        self.note_packet();
        self.session.with(|state, now| {
            let Some(entry) = state.entry(self.conn) else {
                return;
            };
            let Some(posted) = entry.posted_work.take(context) else {
                return;
            };
            let (done, cause) = Self::done(status, posted.void);
            entry.cause = entry.cause.or(cause);
            if let Some(ended) = state.core.done(now, self.conn, posted.work, done) {
                self.session.end(ended);
            }
        });
    }

    fn failed(&self) {
        let cause = self.cause();
        self.session.with(|state, _| {
            let of_work = state.entry(self.conn).and_then(|entry| entry.cause);
            let cause = match cause {
                Cause::LinkGone => cause,
                _ => of_work.unwrap_or(cause),
            };
            state.core.failed(self.conn, cause);
        });
    }

    fn not_ready(&self) {
        self.note_packet();
        self.session
            .with(|state, now| state.core.refused(now, self.conn));
    }

    fn run_ended(&self) {
        let is_new = self.communication_established();
        if !is_new && self.inbox.lock().events.is_empty() {
            return;
        }
        self.session.with(|state, now| {
            if is_new {
                state.core.established(now, self.conn);
            }
            self.deliver_events(state, now);
        });
    }
}
