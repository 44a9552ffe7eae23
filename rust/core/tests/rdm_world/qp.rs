// SPDX-License-Identifier: GPL-2.0
//! QPs as sessions see them.

use std::collections::VecDeque;

use kfi_core::{
    errno::Errno,
    rdm::{
        grant::Grant,
        header::{
            Header,
            MAX_HEADER, //
        },
        inbound::{
            Begin,
            End as Ending,
            Event as InboundEvent,
            Inbound,
            OutstandingAnswers, //
        },
        ops::Lane,
        session::{
            Conn,
            Request,
            Work,
            WorkResult, //
        },
        times,
        Cause, //
    }, //
};
use kfi_roce::headers::Reth;

use super::{
    end::{
        Placing,
        Where,
        KEY, //
    },
    oracle::Oracle,
    Addr,
    Event,
    World, //
};

/// The size of the first packet of a message in bytes.
const FIRST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QpId(pub(crate) u64);

/// A work request in a qp.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) work: Work,
    pub(crate) request: Request,
    /// The bytes after the header, or those of a WRITE.
    pub(crate) payload: Vec<u8>,
    pub(crate) void: bool,
    /// Whether a packet of it was sent before it was made void.
    pub(crate) sent: bool,
    /// The data of a READ.
    pub(crate) data: Option<Vec<u8>>,
}

/// The result of work, and the data that was read.
type Completion = (Work, WorkResult, Option<(Request, Vec<u8>)>);

/// A QP.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) owner: Addr,
    pub(crate) peer: Addr,
    pub(crate) conn: Conn,
    /// The QP at the other end, once it is known.
    pub(crate) remote: Option<QpId>,
    pub(crate) queue: VecDeque<Wqe>,
    /// The number of executed work requests at the front of the queue.
    pub(crate) executed: usize,
    /// The first work request that is not executed has begun to arrive.
    half: bool,
    pub(crate) failed: bool,
    /// Whether a delivery is scheduled.
    moving: bool,
    /// The number of acknowledgements so far.
    progress: u64,
    pub(crate) received_at: u64,
    pub(crate) inbound: Inbound,
    pub(crate) placing: Option<Placing>,
    /// The completions that were not reported yet.
    completions: VecDeque<Completion>,
}

impl Qp {
    pub(crate) fn new(owner: Addr, peer: Addr, conn: Conn) -> Self {
        Self {
            owner,
            peer,
            conn,
            remote: None,
            queue: VecDeque::new(),
            executed: 0,
            half: false,
            failed: false,
            moving: false,
            progress: 0,
            received_at: 0,
            inbound: Inbound::new(),
            placing: None,
            completions: VecDeque::new(),
        }
    }
}

impl World {
    /// Posts work to a QP.
    pub(crate) fn post(&mut self, id: QpId, work: Work, request: Request, payload: Vec<u8>) {
        let depth = self.plan.depth as usize;
        let Some(qp) = self.qps.get_mut(&id) else {
            panic!("work for a QP that has gone");
        };
        assert!(qp.queue.len() < depth, "more work than the QP holds");
        let first = qp.queue.is_empty();
        qp.queue.push_back(Wqe {
            work,
            request,
            payload,
            void: false,
            sent: false,
            data: None,
        });
        let progress = qp.progress;
        if first {
            self.after(self.plan.timeout, Event::Timeout(id, progress));
        }
        self.move_on(id, 0);
    }

    /// Makes the messages or the atomics of a QP void.
    pub(crate) fn make_void(&mut self, id: QpId, lane: Lane) {
        if let Some(qp) = self.qps.get_mut(&id) {
            for wqe in &mut qp.queue {
                match (wqe.work, lane) {
                    (Work::Message(_), Lane::Messages) | (Work::Atomic(_), Lane::Atomics) => {
                        wqe.void = true;
                    }
                    _ => {}
                }
            }
        }
    }

    fn move_on(&mut self, id: QpId, pause: u64) {
        let delay = pause + self.rng.spread(self.plan.delay);
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        if !qp.moving && !qp.failed && qp.queue.len() > qp.executed {
            qp.moving = true;
            self.after(delay, Event::Deliver(id));
        }
    }

    /// Returns the other end, if it exists and work can arrive there.
    fn reach(&mut self, id: QpId) -> Option<QpId> {
        let qp = self.qps.get_mut(&id)?;
        qp.moving = false;
        if qp.failed {
            return None;
        }
        let (owner, peer, remote) = (qp.owner, qp.peer, qp.remote);
        if let Err(until) = self.passes(owner, peer) {
            self.move_on(id, until - self.now);
            return None;
        }
        let there = self.qps.get(&remote?)?;
        if there.remote.is_none() {
            self.move_on(id, super::MS);
            return None;
        }
        (!there.failed).then_some(remote?)
    }

    /// Delivers the work at the front.
    pub(crate) fn deliver(&mut self, id: QpId) {
        let Some(remote) = self.reach(id) else {
            return;
        };
        let (owner, peer) = (self.qps[&id].owner, self.qps[&id].peer);
        // The first packet may tell the passive end that the connection is established.
        self.first_packet(remote);
        let Some(there) = self.qps.get_mut(&remote) else {
            return;
        };
        there.received_at = self.now;
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        if qp.half {
            return self.finish_half(id, remote);
        }
        let index = qp.executed;
        let Some(wqe) = qp.queue.get_mut(index) else {
            return;
        };
        let request = wqe.request;
        match request {
            Request::Send(header) => {
                // A packet of the original may have been on its way.
                let old = wqe.void && wqe.sent && self.rng.one_in(2);
                let header = if wqe.void && !old {
                    header.to_void()
                } else {
                    header
                };
                wqe.sent = true;
                if matches!(header, Header::Fin { .. }) && self.refuses_fins == Some(peer) {
                    return self.not_ready(id);
                }
                if matches!(header, Header::Cancel { .. }) && self.refuses_others == Some(peer) {
                    return self.not_ready(id);
                }
                let is_answer = matches!(
                    header,
                    Header::Fin { .. } | Header::Result { .. } | Header::Retired | Header::Keep
                );
                if is_answer && self.loses_answers == Some(owner) {
                    return self.executed(id);
                }
                self.begin_send(id, remote, header);
            }
            Request::Bye | Request::Result { .. } => unreachable!("it has its header"),
            Request::Read { len, va, rkey, .. } => {
                let reth = Reth { va, rkey, len };
                let grant = Grant::of(&reth).expect("a grant");
                let data = self.granted(peer, owner, &grant);
                let wqe = &mut self.qps.get_mut(&id).unwrap().queue[index];
                wqe.data = Some(data);
                self.executed(id);
            }
            Request::Rma { .. } if self.refuses_others == Some(peer) => self.not_ready(id),
            Request::Rma { .. } => self.deliver_rma(id, remote),
        }
    }

    /// Delivers the beginning of a SEND.
    fn begin_send(&mut self, id: QpId, remote: QpId, header: Header) {
        let qp = self.qps.get_mut(&id).unwrap();
        let owner = qp.owner;
        let payload = qp.queue[qp.executed].payload.clone();
        assert_eq!(payload.len() as u32, header.payload());
        let mut bytes = vec![0; MAX_HEADER];
        let len = header.put(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend(&payload);
        let first = bytes.len().min(FIRST);
        let there = self.qps.get_mut(&remote).unwrap();
        let addr = there.owner;
        match self.begin(remote, &bytes[..first]) {
            Begin::NotReady => return self.not_ready(id),
            Begin::Result { id: number, len } => {
                let placing = self.expect_values(addr, owner, number, len);
                self.qps.get_mut(&remote).unwrap().placing = Some(placing);
            }
            Begin::Message(message, source) => match self.offer(addr, owner, &message, source) {
                None => return self.not_ready(id),
                Some(placing) => {
                    let there = self.qps.get_mut(&remote).unwrap();
                    there.inbound.take();
                    there.placing = Some(placing);
                }
            },
            Begin::Other => {}
        }
        if bytes.len() > first && self.rng.one_in(2) {
            self.place(remote, &bytes, 0, first);
            let qp = self.qps.get_mut(&id).unwrap();
            qp.half = true;
            qp.moving = true;
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Rest(id));
            return;
        }
        self.place(remote, &bytes, 0, first);
        self.place(remote, &bytes, first, bytes.len());
        self.end_send(id, remote, bytes.len());
    }

    /// Delivers a header that the session of the peer never sent. Returns whether it was accepted.
    pub(crate) fn forge(&mut self, id: QpId, header: Header) -> bool {
        let remote = self.qps[&id].remote.expect("a connection");
        let mut bytes = [0; MAX_HEADER];
        let len = header.put(&mut bytes).unwrap();
        let begun = self.begin(remote, &bytes[..len]);
        assert!(!matches!(begun, Begin::Message(..)), "no message is forged");
        if begun == Begin::NotReady {
            return false;
        }
        let there = self.qps.get_mut(&remote).unwrap();
        let (addr, peer, conn) = (there.owner, there.peer, there.conn);
        let ending = there.inbound.end(len as u32).expect("no malformed length");
        if let Ending::Event(event) = ending {
            self.handle_event(addr, peer, conn, event);
        }
        true
    }

    /// Delivers the first bytes of a SEND.
    fn begin(&mut self, at: QpId, bytes: &[u8]) -> Begin {
        let qp = self.qps.get_mut(&at).unwrap();
        let end = self.ends[qp.owner].as_ref().unwrap();
        let answers = OutstandingAnswers {
            total: end.answers(qp.peer),
            // The answers to waiting messages have no share yet.
            waiting: 0,
        };
        let begun = qp.inbound.begin(bytes, answers);
        begun.expect("no malformed header")
    }

    /// Delivers the rest of a message.
    pub(crate) fn deliver_rest(&mut self, id: QpId) {
        let Some(remote) = self.reach(id) else {
            // `reach` schedules the delivery again if that is possible; it then continues here.
            return;
        };
        self.finish_half(id, remote);
    }

    fn finish_half(&mut self, id: QpId, remote: QpId) {
        let qp = self.qps.get_mut(&id).unwrap();
        qp.half = false;
        let wqe = &qp.queue[qp.executed];
        let Request::Send(header) = wqe.request else {
            unreachable!()
        };
        let mut bytes = vec![0; header.len()];
        bytes.extend(&wqe.payload);
        self.place(remote, &bytes, FIRST, bytes.len());
        self.end_send(id, remote, bytes.len());
    }

    /// Places a packet.
    fn place(&mut self, remote: QpId, bytes: &[u8], from: usize, to: usize) {
        if from == to {
            return;
        }
        let there = self.qps.get_mut(&remote).unwrap();
        let packet = &bytes[from..to];
        let part = there.inbound.payload(from as u32, packet.len() as u32);
        if let Some((range, at)) = part.expect("no malformed length") {
            let placing = there.placing.as_mut().unwrap();
            placing.put(at as usize, &packet[range]);
        }
    }

    fn end_send(&mut self, id: QpId, remote: QpId, len: usize) {
        let there = self.qps.get_mut(&remote).unwrap();
        let (addr, peer, conn) = (there.owner, there.peer, there.conn);
        let ending = there.inbound.end(len as u32).expect("no malformed length");
        let placing = there.placing.take();
        match ending {
            Ending::Message
                if matches!(
                    placing,
                    Some(Placing {
                        at: Where::Atomic(_),
                        ..
                    })
                ) =>
            {
                let placing = placing.unwrap();
                if self.execute_atomic(addr, peer, conn, placing).is_err() {
                    return self.refuse(id, remote);
                }
            }
            Ending::Event(event @ InboundEvent::Result { .. }) => {
                let placing = placing.expect("old values");
                let len = placing.bytes.len() as u32;
                assert!(placing.bytes == Oracle::values(placing.op, len));
                self.handle_event(addr, peer, conn, event);
            }
            Ending::Message => self.arrived(addr, peer, conn, placing.unwrap()),
            Ending::Event(event) => self.handle_event(addr, peer, conn, event),
            Ending::Nothing => {}
        }
        self.executed(id);
    }

    /// Handles the execution of the work at the front. It may be acknowledged later, or not at all.
    fn executed(&mut self, id: QpId) {
        // The event may have closed this qp.
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        qp.executed += 1;
        let delay = self.rng.spread(self.plan.delay);
        self.after(delay, Event::Ack(id));
        self.move_on(id, 0);
    }

    /// Handles the lack of room at the peer.
    fn not_ready(&mut self, id: QpId) {
        let qp = self.qps.get_mut(&id).unwrap();
        qp.progress += 1;
        // Packets of later work may or may not be on their way.
        for wqe in &mut qp.queue {
            wqe.sent = true;
        }
        let (owner, peer, conn, progress) = (qp.owner, qp.peer, qp.conn, qp.progress);
        // The peer has answered, so the timeout starts again.
        self.after(self.plan.timeout, Event::Timeout(id, progress));
        self.move_on(id, times::RNR_TIME);
        let now = self.now;
        self.with_session(owner, peer, |session| session.refused(now, conn));
    }

    /// Handles a refused access, which ends the connection for both ends.
    fn refuse(&mut self, id: QpId, remote: QpId) {
        self.log(|| format!("{id:?}: access refused"));
        let qp = self.qps.get_mut(&id).unwrap();
        qp.failed = true;
        let (owner, peer, conn, executed) = (qp.owner, qp.peer, qp.conn, qp.executed);
        self.report(id, false);
        let qp = self.qps.get_mut(&id).unwrap();
        let before: Vec<Wqe> = qp.queue.drain(..=executed).collect();
        qp.executed = 0;
        // The refusal acknowledges all earlier work.
        for (index, wqe) in before.into_iter().enumerate() {
            let done = match (index == executed, wqe.void) {
                (true, _) => WorkResult::Failed(Some(Errno::EACCES)),
                (_, true) => WorkResult::Void,
                (_, false) => WorkResult::Sent,
            };
            let data = wqe.data.map(|data| (wqe.request, data));
            self.work_done(owner, peer, conn, wqe.work, done, data);
        }
        self.with_session(owner, peer, |session| session.failed(conn, Cause::Access));
        self.fail_qp(remote, Cause::Access);
    }

    fn deliver_rma(&mut self, id: QpId, remote: QpId) {
        let qp = self.qps.get_mut(&id).unwrap();
        let wqe = &qp.queue[qp.executed];
        let (peer, executed, payload) = (qp.peer, qp.executed, wqe.payload.clone());
        let Work::Piece(number, piece) = wqe.work else {
            unreachable!()
        };
        let owner = qp.owner;
        self.moved_at.insert((peer, owner), self.now);
        if let Some((op, atomic)) = self.atomic_of(owner, peer, number) {
            let end = self.ends[peer].as_mut().unwrap();
            if atomic.key != KEY {
                return self.refuse(id, remote);
            }
            self.oracle.executed(op, end.incarnation);
            return self.executed(id);
        }
        let Some(rma) = self.rma_of(owner, peer, number) else {
            panic!("RMA of an operation that has ended");
        };
        let op = self.ends[owner].as_ref().unwrap().numbers[&(peer, number)];
        let end = self.ends[peer].as_mut().unwrap();
        self.oracle.accesses(op, end.incarnation);
        let (offset, len) = rma.pieces[piece as usize];
        let Some(memory) = end.region(rma.key, offset, len) else {
            return self.refuse(id, remote);
        };
        if rma.write {
            memory.copy_from_slice(&payload);
        } else {
            let data = memory.to_vec();
            self.qps.get_mut(&id).unwrap().queue[executed].data = Some(data);
        }
        self.executed(id);
    }

    /// Acknowledges at least a part of the executed work.
    pub(crate) fn acknowledge(&mut self, id: QpId) {
        let Some(qp) = self.qps.get_mut(&id).filter(|qp| !qp.failed) else {
            return;
        };
        let (owner, peer) = (qp.owner, qp.peer);
        if let Err(until) = self.passes(owner, peer) {
            return self.at(until, Event::Ack(id));
        }
        if self.no_acks {
            return self.after(super::MS, Event::Ack(id));
        }
        let qp = self.qps.get_mut(&id).unwrap();
        if qp.executed == 0 {
            return;
        }
        let count = 1 + self.rng.index(qp.executed);
        let some = qp.executed > count;
        qp.executed -= count;
        qp.progress += 1;
        qp.received_at = self.now;
        let progress = qp.progress;
        let taken: Vec<Wqe> = qp.queue.drain(..count).collect();
        if !qp.queue.is_empty() {
            self.after(self.plan.timeout, Event::Timeout(id, progress));
        }
        if some {
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Ack(id));
        }
        let qp = self.qps.get_mut(&id).unwrap();
        for wqe in taken {
            let done = if wqe.void {
                WorkResult::Void
            } else {
                WorkResult::Sent
            };
            let data = wqe.data.map(|data| (wqe.request, data));
            qp.completions.push_back((wqe.work, done, data));
        }
        // A worker reports completions after it has released the QP's lock; another one may be
        // faster.
        if self.rng.one_in(4) {
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Report(id));
        } else {
            self.report(id, true);
        }
    }

    /// Reports the completions. `pump`: executes the actions that follow, because the QP is not
    /// being closed.
    pub(crate) fn report(&mut self, id: QpId, pump: bool) {
        while let Some(qp) = self.qps.get_mut(&id) {
            let Some((work, done, data)) = qp.completions.pop_front() else {
                break;
            };
            let (owner, peer, conn) = (qp.owner, qp.peer, qp.conn);
            self.work_done(owner, peer, conn, work, done, data);
            if pump {
                self.pump(owner, peer);
            }
        }
    }

    /// Fails the QP if nothing was acknowledged.
    pub(crate) fn time_out(&mut self, id: QpId, progress: u64) {
        let Some(qp) = self.qps.get(&id) else {
            return;
        };
        if !qp.failed && !qp.queue.is_empty() && qp.progress == progress {
            self.log(|| format!("{id:?}: timed out"));
            self.fail_qp(id, Cause::Lost);
        }
    }

    /// Moves a QP to the error state, and reports that to its owner.
    pub(crate) fn fail_qp(&mut self, id: QpId, cause: Cause) {
        let Some(qp) = self.qps.get_mut(&id).filter(|qp| !qp.failed) else {
            return;
        };
        qp.failed = true;
        let (owner, peer, conn) = (qp.owner, qp.peer, qp.conn);
        self.report(id, true);
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        let flushed: Vec<Work> = qp.queue.drain(..).map(|wqe| wqe.work).collect();
        qp.executed = 0;
        // After a failure the owner may or may not ask for the completions.
        if self.rng.one_in(2) {
            for work in flushed {
                self.work_done(owner, peer, conn, work, WorkResult::Failed(None), None);
            }
        }
        self.with_session(owner, peer, |session| session.failed(conn, cause));
    }
}
