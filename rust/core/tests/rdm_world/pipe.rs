// SPDX-License-Identifier: GPL-2.0
//! QPs ("pipes") as sessions see them.

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
            Inbound,
            Owing, //
        },
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
    end::Placing,
    Addr,
    Event,
    World, //
};

/// The size of the first packet of a message in bytes.
const FIRST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PipeId(pub(crate) u64);

/// A work request in a pipe.
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
pub(crate) struct Pipe {
    pub(crate) owner: Addr,
    pub(crate) peer: Addr,
    pub(crate) conn: Conn,
    /// The QP at the other end, once it is known.
    pub(crate) remote: Option<PipeId>,
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
    pub(crate) heard: u64,
    pub(crate) inbound: Inbound,
    pub(crate) placing: Option<Placing>,
    /// The completions that were not reported yet.
    completions: VecDeque<Completion>,
}

impl Pipe {
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
            heard: 0,
            inbound: Inbound::new(),
            placing: None,
            completions: VecDeque::new(),
        }
    }
}

impl World {
    /// Posts work to a QP.
    pub(crate) fn post(&mut self, id: PipeId, work: Work, request: Request, payload: Vec<u8>) {
        let depth = self.plan.depth as usize;
        let Some(pipe) = self.pipes.get_mut(&id) else {
            panic!("work for a QP that has gone");
        };
        assert!(pipe.queue.len() < depth, "more work than the QP holds");
        let first = pipe.queue.is_empty();
        pipe.queue.push_back(Wqe {
            work,
            request,
            payload,
            void: false,
            sent: false,
            data: None,
        });
        let progress = pipe.progress;
        if first {
            self.after(self.plan.timeout, Event::Timeout(id, progress));
        }
        self.move_on(id, 0);
    }

    /// Makes the messages of a QP void.
    pub(crate) fn make_void(&mut self, id: PipeId) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            for wqe in &mut pipe.queue {
                if matches!(wqe.work, Work::Message(_)) {
                    wqe.void = true;
                }
            }
        }
    }

    fn move_on(&mut self, id: PipeId, pause: u64) {
        let delay = pause + self.rng.spread(self.plan.delay);
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        if !pipe.moving && !pipe.failed && pipe.queue.len() > pipe.executed {
            pipe.moving = true;
            self.after(delay, Event::Deliver(id));
        }
    }

    /// Returns the other end, if it exists and work can arrive there.
    fn reach(&mut self, id: PipeId) -> Option<PipeId> {
        let pipe = self.pipes.get_mut(&id)?;
        pipe.moving = false;
        if pipe.failed {
            return None;
        }
        let (owner, peer, remote) = (pipe.owner, pipe.peer, pipe.remote);
        if let Err(until) = self.passes(owner, peer) {
            self.move_on(id, until - self.now);
            return None;
        }
        let there = self.pipes.get(&remote?)?;
        if there.remote.is_none() {
            self.move_on(id, super::MS);
            return None;
        }
        (!there.failed).then_some(remote?)
    }

    /// Delivers the work at the front.
    pub(crate) fn deliver(&mut self, id: PipeId) {
        let Some(remote) = self.reach(id) else {
            return;
        };
        let (owner, peer) = (self.pipes[&id].owner, self.pipes[&id].peer);
        // The first packet may tell the passive end that the connection is established.
        self.first_packet(remote);
        let Some(there) = self.pipes.get_mut(&remote) else {
            return;
        };
        there.heard = self.now;
        let conn = there.conn;
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        if pipe.half {
            return self.finish_half(id, remote);
        }
        let index = pipe.executed;
        let Some(wqe) = pipe.queue.get_mut(index) else {
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
                self.begin_send(id, remote, header);
            }
            Request::Bye => unreachable!("it has its header"),
            Request::Read { len, va, rkey, .. } => {
                let reth = Reth { va, rkey, len };
                let grant = Grant::of(&reth).expect("a grant");
                let data = self.granted(peer, owner, conn, &grant);
                let wqe = &mut self.pipes.get_mut(&id).unwrap().queue[index];
                wqe.data = Some(data);
                self.executed(id);
            }
            Request::Rma { .. } => self.deliver_rma(id, remote),
        }
    }

    /// Delivers the beginning of a SEND.
    fn begin_send(&mut self, id: PipeId, remote: PipeId, header: Header) {
        let pipe = self.pipes.get_mut(&id).unwrap();
        let owner = pipe.owner;
        let payload = pipe.queue[pipe.executed].payload.clone();
        assert_eq!(payload.len() as u32, header.payload());
        let mut bytes = vec![0; MAX_HEADER];
        let len = header.put(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend(&payload);
        let first = bytes.len().min(FIRST);
        let there = self.pipes.get_mut(&remote).unwrap();
        let (conn, addr) = (there.conn, there.owner);
        match self.begin(remote, &bytes[..first]) {
            Begin::NotReady => return self.not_ready(id),
            Begin::Message(message, source) => {
                match self.offer(addr, owner, conn, &message, source) {
                    None => return self.not_ready(id),
                    Some(placing) => {
                        let there = self.pipes.get_mut(&remote).unwrap();
                        there.inbound.take();
                        there.placing = Some(placing);
                    }
                }
            }
            Begin::Other => {}
        }
        if bytes.len() > first && self.rng.one_in(2) {
            self.place(remote, &bytes, 0, first);
            let pipe = self.pipes.get_mut(&id).unwrap();
            pipe.half = true;
            pipe.moving = true;
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Rest(id));
            return;
        }
        self.place(remote, &bytes, 0, first);
        self.place(remote, &bytes, first, bytes.len());
        self.end_send(id, remote, bytes.len());
    }

    /// Delivers a header that the session of the peer never sent. Returns whether it was accepted.
    pub(crate) fn forge(&mut self, id: PipeId, header: Header) -> bool {
        let remote = self.pipes[&id].remote.expect("a connection");
        let mut bytes = [0; MAX_HEADER];
        let len = header.put(&mut bytes).unwrap();
        let begun = self.begin(remote, &bytes[..len]);
        assert!(!matches!(begun, Begin::Message(..)), "no message is forged");
        if begun == Begin::NotReady {
            return false;
        }
        let there = self.pipes.get_mut(&remote).unwrap();
        let (addr, peer, conn) = (there.owner, there.peer, there.conn);
        let ending = there.inbound.end(len as u32).expect("no malformed length");
        if let Ending::Event(event) = ending {
            self.said(addr, peer, conn, event);
        }
        true
    }

    /// Delivers the first bytes of a SEND.
    fn begin(&mut self, at: PipeId, bytes: &[u8]) -> Begin {
        let pipe = self.pipes.get_mut(&at).unwrap();
        let end = self.ends[pipe.owner].as_ref().unwrap();
        let owing = Owing {
            owed: end.owed(pipe.peer),
            // They hold no share yet.
            waiting: 0,
        };
        let begun = pipe.inbound.begin(bytes, owing);
        begun.expect("no malformed header")
    }

    /// Delivers the rest of a message.
    pub(crate) fn deliver_rest(&mut self, id: PipeId) {
        let Some(remote) = self.reach(id) else {
            // `reach` schedules the delivery again if that is possible; it then continues here.
            return;
        };
        self.finish_half(id, remote);
    }

    fn finish_half(&mut self, id: PipeId, remote: PipeId) {
        let pipe = self.pipes.get_mut(&id).unwrap();
        pipe.half = false;
        let wqe = &pipe.queue[pipe.executed];
        let Request::Send(header) = wqe.request else {
            unreachable!()
        };
        let mut bytes = vec![0; header.len()];
        bytes.extend(&wqe.payload);
        self.place(remote, &bytes, FIRST, bytes.len());
        self.end_send(id, remote, bytes.len());
    }

    /// Places a packet.
    fn place(&mut self, remote: PipeId, bytes: &[u8], from: usize, to: usize) {
        if from == to {
            return;
        }
        let there = self.pipes.get_mut(&remote).unwrap();
        let packet = &bytes[from..to];
        let part = there.inbound.payload(from as u32, packet.len() as u32);
        if let Some((range, at)) = part.expect("no malformed length") {
            let placing = there.placing.as_mut().unwrap();
            placing.put(at as usize, &packet[range]);
        }
    }

    fn end_send(&mut self, id: PipeId, remote: PipeId, len: usize) {
        let there = self.pipes.get_mut(&remote).unwrap();
        let (addr, peer, conn) = (there.owner, there.peer, there.conn);
        let ending = there.inbound.end(len as u32).expect("no malformed length");
        let placing = there.placing.take();
        match ending {
            Ending::Message => self.arrived(addr, peer, conn, placing.unwrap()),
            Ending::Event(event) => self.said(addr, peer, conn, event),
            Ending::Nothing => {}
        }
        self.executed(id);
    }

    /// Handles the execution of the work at the front. It may be acknowledged later, or not at all.
    fn executed(&mut self, id: PipeId) {
        // The event may have closed this pipe.
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        pipe.executed += 1;
        let delay = self.rng.spread(self.plan.delay);
        self.after(delay, Event::Ack(id));
        self.move_on(id, 0);
    }

    /// Handles the lack of room at the peer.
    fn not_ready(&mut self, id: PipeId) {
        let pipe = self.pipes.get_mut(&id).unwrap();
        pipe.progress += 1;
        // Packets of later work may or may not be on their way.
        for wqe in &mut pipe.queue {
            wqe.sent = true;
        }
        let (owner, peer, conn, progress) = (pipe.owner, pipe.peer, pipe.conn, pipe.progress);
        // The peer has answered, so the timeout starts again.
        self.after(self.plan.timeout, Event::Timeout(id, progress));
        self.move_on(id, times::RNR_TIME);
        let now = self.now;
        self.with_session(owner, peer, |session| session.refused(now, conn));
    }

    /// Handles a refused access, which ends the connection for both ends.
    fn refuse(&mut self, id: PipeId, remote: PipeId) {
        self.log(|| format!("{id:?}: access refused"));
        let pipe = self.pipes.get_mut(&id).unwrap();
        pipe.failed = true;
        let (owner, peer, conn, executed) = (pipe.owner, pipe.peer, pipe.conn, pipe.executed);
        self.tell_closing(id);
        let pipe = self.pipes.get_mut(&id).unwrap();
        let before: Vec<Wqe> = pipe.queue.drain(..=executed).collect();
        pipe.executed = 0;
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
        self.fail_pipe(remote, Cause::Access);
    }

    fn deliver_rma(&mut self, id: PipeId, remote: PipeId) {
        let pipe = self.pipes.get_mut(&id).unwrap();
        let wqe = &pipe.queue[pipe.executed];
        let (peer, executed, payload) = (pipe.peer, pipe.executed, wqe.payload.clone());
        let Work::Piece(number, piece) = wqe.work else {
            unreachable!()
        };
        let owner = pipe.owner;
        let conn = pipe.conn;
        let Some(rma) = self.rma_of(owner, peer, conn, number) else {
            panic!("RMA of an operation that has ended");
        };
        let end = self.ends[peer].as_mut().unwrap();
        let (offset, len) = rma.pieces[piece as usize];
        let Some(memory) = end.region(rma.key, offset, len) else {
            return self.refuse(id, remote);
        };
        if rma.write {
            memory.copy_from_slice(&payload);
        } else {
            let data = memory.to_vec();
            self.pipes.get_mut(&id).unwrap().queue[executed].data = Some(data);
        }
        self.executed(id);
    }

    /// Acknowledges at least a part of the executed work.
    pub(crate) fn acknowledge(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id).filter(|pipe| !pipe.failed) else {
            return;
        };
        let (owner, peer) = (pipe.owner, pipe.peer);
        if let Err(until) = self.passes(owner, peer) {
            return self.at(until, Event::Ack(id));
        }
        if self.mute {
            return self.after(super::MS, Event::Ack(id));
        }
        let pipe = self.pipes.get_mut(&id).unwrap();
        if pipe.executed == 0 {
            return;
        }
        let count = 1 + self.rng.index(pipe.executed);
        let some = pipe.executed > count;
        pipe.executed -= count;
        pipe.progress += 1;
        pipe.heard = self.now;
        let progress = pipe.progress;
        let taken: Vec<Wqe> = pipe.queue.drain(..count).collect();
        if !pipe.queue.is_empty() {
            self.after(self.plan.timeout, Event::Timeout(id, progress));
        }
        if some {
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Ack(id));
        }
        let told = self.pipes.get_mut(&id).unwrap();
        for wqe in taken {
            let done = if wqe.void {
                WorkResult::Void
            } else {
                WorkResult::Sent
            };
            let data = wqe.data.map(|data| (wqe.request, data));
            told.completions.push_back((wqe.work, done, data));
        }
        // A worker reports completions after it has released the QP's lock; another one may be
        // faster.
        if self.rng.one_in(4) {
            let delay = self.rng.spread(self.plan.delay);
            self.after(delay, Event::Tell(id));
        } else {
            self.tell(id);
        }
    }

    /// Reports the completions of a QP that is being closed.
    pub(crate) fn tell_closing(&mut self, id: PipeId) {
        while let Some(pipe) = self.pipes.get_mut(&id) {
            let Some((work, done, data)) = pipe.completions.pop_front() else {
                break;
            };
            let (owner, peer, conn) = (pipe.owner, pipe.peer, pipe.conn);
            self.work_done(owner, peer, conn, work, done, data);
        }
    }

    /// Reports the completions.
    pub(crate) fn tell(&mut self, id: PipeId) {
        while let Some(pipe) = self.pipes.get_mut(&id) {
            let Some((work, done, data)) = pipe.completions.pop_front() else {
                break;
            };
            let (owner, peer, conn) = (pipe.owner, pipe.peer, pipe.conn);
            self.work_done(owner, peer, conn, work, done, data);
            self.pump(owner, peer);
        }
    }

    /// Fails the QP if nothing was acknowledged.
    pub(crate) fn time_out(&mut self, id: PipeId, progress: u64) {
        let Some(pipe) = self.pipes.get(&id) else {
            return;
        };
        if !pipe.failed && !pipe.queue.is_empty() && pipe.progress == progress {
            self.log(|| format!("{id:?}: timed out"));
            self.fail_pipe(id, Cause::Lost);
        }
    }

    /// Moves a QP to the error state and tells its owner.
    pub(crate) fn fail_pipe(&mut self, id: PipeId, cause: Cause) {
        let Some(pipe) = self.pipes.get_mut(&id).filter(|pipe| !pipe.failed) else {
            return;
        };
        pipe.failed = true;
        let (owner, peer, conn) = (pipe.owner, pipe.peer, pipe.conn);
        self.tell(id);
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        let flushed: Vec<Work> = pipe.queue.drain(..).map(|wqe| wqe.work).collect();
        pipe.executed = 0;
        // After a failure the owner may or may not ask for the completions.
        if self.rng.one_in(2) {
            for work in flushed {
                self.work_done(owner, peer, conn, work, WorkResult::Failed(None), None);
            }
        }
        self.with_session(owner, peer, |session| session.failed(conn, cause));
    }
}
