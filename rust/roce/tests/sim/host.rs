// SPDX-License-Identifier: GPL-2.0
//! One end of the simulation: its QP, driven like in the module, its memory and its receives.

use super::{
    oracle::{
        HostTarget,
        Memory,
        Oracle,
        Receives, //
    },
    plan::{
        End,
        Kind,
        Plan, //
    },
    rng::Rng,
    trace::Trace,
    wire, //
};
use kfi_roce::{
    headers::{
        Headers,
        Qpn,
        Syndrome, //
    },
    packet::Packet,
    psn::Psn,
    rc::{
        Access,
        Attr,
        Event,
        Outgoing,
        Qp,
        Received,
        Replay,
        RequestResult,
        Requester,
        Responder,
        Status,
        WorkRequest,
        Wqe, //
    },
    state::{
        Mask,
        State, //
    }, //
};
use std::collections::VecDeque;

pub type SimQp = Qp<Vec<Wqe>, Vec<Psn>, Vec<Replay>>;

/// The result of a run of the worker.
#[derive(Default)]
pub struct Output {
    pub datagrams: Vec<Vec<u8>>,
    /// The time of the next run, unless an event comes before.
    pub deadline: Option<u64>,
    /// Whether more packets could be sent than the budget allowed.
    pub more: bool,
    /// Whether the run had any effect.
    pub useful: bool,
    /// Whether a work request was completed.
    pub completed: bool,
}

/// One end of the simulation.
pub struct Host {
    index: u8,
    plan: End,
    kind: Kind,
    pub qp: SimQp,
    pub memory: Memory,
    pub receives: Receives,
    pub inbox: VecDeque<Vec<u8>>,
    /// The number of work requests posted so far.
    pub posted: usize,
    rng: Rng,
    id: u16,
    trace: Trace,
    pub refused: u64,
    pub bad: u64,
    pub sent: u64,
    /// The bytes of answered READs, as the responder reports them.
    pub read_out: u64,
    /// The number of work requests that have begun.
    begun: u64,
    /// The time of the first RNR NAK, and the number of RNR NAKs since.
    rnr: Option<(u64, u64)>,
}

/// Makes the target of a host for a packet with this payload.
macro_rules! target {
    ($host:ident, $oracle:expr, $payload:expr) => {
        HostTarget {
            oracle: $oracle,
            memory: &mut $host.memory,
            receives: &mut $host.receives,
            payload: $payload,
        }
    };
}

/// Returns the QP number of an end.
fn qpn(index: u8) -> Qpn {
    Qpn::new(0x10_0000 + u32::from(index))
}

impl Host {
    pub fn new(index: u8, plan: &Plan, rng: Rng, trace: Trace) -> Self {
        let end = plan.ends[usize::from(index)].clone();
        let requester = Requester::new(
            vec![Wqe::EMPTY; end.slots],
            vec![Psn::default(); usize::from(end.max_rd_atomic)],
            end.window,
        );
        let responder = Responder::new(vec![Replay::EMPTY; end.dest_slots], end.policy);
        let mut host = Self {
            index,
            kind: plan.kind,
            qp: Qp::new(requester, responder),
            memory: Memory::new(),
            receives: Receives::default(),
            inbox: VecDeque::new(),
            posted: 0,
            rng,
            id: 0,
            trace,
            refused: 0,
            bad: 0,
            sent: 0,
            read_out: 0,
            begun: 0,
            rnr: None,
            plan: end,
        };
        if let (Kind::ShortReceive(op), 1) = (plan.kind, index) {
            host.receives.short = Some(op);
        }
        host.connect(plan);
        host
    }

    fn connect(&mut self, plan: &Plan) {
        let peer = &plan.ends[1 - usize::from(self.index)];
        let mut attr = Attr {
            state: State::Init,
            access: Access {
                write: true,
                read: true,
                atomic: true,
            },
            path_mtu: plan.mtu,
            dest_qpn: qpn(1 - self.index),
            rq_psn: peer.psn,
            sq_psn: self.plan.psn,
            max_rd_atomic: self.plan.max_rd_atomic,
            max_dest_rd_atomic: peer.max_rd_atomic,
            min_rnr_timer: self.plan.rnr_timer,
            timeout: self.plan.timeout,
            retry_cnt: self.plan.retry_cnt,
            rnr_retry: self.plan.rnr_retry,
            ..Attr::default()
        };
        for (state, mask) in [
            (State::Init, Mask::RC_TO_INIT),
            (State::Rtr, Mask::RC_TO_RTR),
            (State::Rts, Mask::RC_TO_RTS),
        ] {
            attr.state = state;
            let mut oracle = Oracle::new(0, plan.mtu);
            let mut target = target!(self, &mut oracle, &[]);
            self.qp.modify(&attr, mask, &mut target).unwrap();
        }
    }

    /// Changes the state. `theirs` is the oracle of the peer's work.
    pub fn modify(&mut self, state: State, theirs: &mut Oracle) {
        let attr = Attr {
            state,
            ..Attr::default()
        };
        let mut target = target!(self, theirs, &[]);
        self.qp.modify(&attr, Mask::NONE, &mut target).unwrap();
    }

    /// Posts the work that is due. Returns whether some is left because the queue is full.
    pub fn post(&mut self, now: u64, ours: &mut Oracle) -> bool {
        while let Some((time, request)) = self.plan.work.get(self.posted) {
            if *time > now {
                break;
            }
            let full = self.qp.requester.len() >= self.qp.requester.capacity();
            let posted = self.qp.requester.post(request);
            assert_eq!(posted.is_err(), full, "{posted:?}");
            if full {
                return true;
            }
            ours.posted(request);
            self.posted += 1;
        }
        false
    }

    /// Returns the time at which the next work is to be posted.
    pub fn next_post(&self) -> Option<u64> {
        self.plan.work.get(self.posted).map(|(time, _)| *time)
    }

    /// Runs the worker after an event.
    pub fn run(&mut self, now: u64, ours: &mut Oracle, theirs: &mut Oracle) -> Output {
        let mut out = Output::default();
        while let Some(datagram) = self.inbox.pop_front() {
            out.useful = true;
            self.receive(now, &datagram, ours, theirs);
        }
        // The timer may be about to report the same.
        if self.qp.deadline().is_some_and(|deadline| deadline <= now) {
            let mut target = target!(self, theirs, &[]);
            self.qp.expired(now, &mut target);
        }
        let mut budget = self.plan.budget;
        loop {
            if budget == 0 {
                out.more = true;
                break;
            }
            if !self.send(now, ours, theirs, &mut out) {
                break;
            }
            budget -= 1;
        }
        self.complete(ours, &mut out);
        out.deadline = self.qp.deadline();
        if !out.more {
            if let Some(deadline) = out.deadline {
                assert!(deadline > now, "a deadline that is not in the future");
            }
            if self.qp.requester.is_empty() {
                assert_eq!(self.qp.requester.deadline(), None, "nothing to wait for");
            }
        }
        out.useful |= !out.datagrams.is_empty();
        out
    }

    fn receive(&mut self, now: u64, datagram: &[u8], ours: &mut Oracle, theirs: &mut Oracle) {
        let (packet, payload) = match wire::decode(datagram) {
            Ok(good) => good,
            Err(bad) => {
                self.bad += 1;
                self.note(|| format!("dropped: {bad:?}"));
                return;
            }
        };
        assert_eq!(packet.bth.dest_qp, qpn(self.index));
        let mut target = target!(self, theirs, payload);
        let event = self.qp.receive(now, &packet, &mut target);
        self.note(|| format!("got {}: {event:?}", describe(&packet)));
        match event {
            Event::Response(Received::Place { wqe, wr_id, offset }) => {
                ours.placed(wr_id, offset, payload);
                if self.fails(wr_id) {
                    self.qp.requester.fail(wqe, Status::LocalProtection);
                    self.follow(theirs);
                }
            }
            Event::Response(Received::Atomic { wqe, wr_id, value }) => {
                ours.returned(wr_id, value);
                if self.fails(wr_id) {
                    self.qp.requester.fail(wqe, Status::LocalProtection);
                    self.follow(theirs);
                }
            }
            Event::Response(Received::Nothing) => {}
            Event::Request(RequestResult::Refused(_)) => assert_eq!(self.qp.state(), State::Error),
            Event::Request(_) => {}
        }
    }

    fn follow(&mut self, theirs: &mut Oracle) {
        let mut target = target!(self, theirs, &[]);
        self.qp.follow(&mut target);
    }

    /// Returns whether the memory of this operation is inaccessible in the plan.
    fn fails(&self, wr_id: u64) -> bool {
        self.index == 0 && self.kind == Kind::LocalFault(wr_id as usize)
    }

    /// Sends one packet, if there is one.
    fn send(&mut self, now: u64, ours: &mut Oracle, theirs: &mut Oracle, out: &mut Output) -> bool {
        if let Some(answer) = self.qp.responder.poll(now) {
            let packet = answer.packet;
            self.read_out += answer.completes.map_or(0, |reth| u64::from(reth.len));
            self.check_rnr(now, &packet);
            let payload = match answer.read.map(|reth| self.memory.read(&reth)) {
                None => [].as_slice(),
                Some(Ok(payload)) => payload,
                Some(Err(why)) => {
                    let mut target = target!(self, theirs, &[]);
                    self.qp
                        .responder
                        .fail_read(packet.bth.psn, why, &mut target);
                    self.qp.follow(&mut target);
                    return true;
                }
            };
            if self.refuses(&packet) {
                self.qp.responder.not_sent(now, &packet);
            } else {
                self.transmit(&packet, payload, out);
            }
            return true;
        }
        let Some(outgoing) = self.qp.requester.poll(now) else {
            return false;
        };
        let packet = outgoing.packet;
        let len = packet.payload_len();
        self.check_sending(&outgoing);
        if self.fails(outgoing.wr_id) && len > 0 {
            self.qp
                .requester
                .fail(outgoing.wqe, Status::LocalProtection);
            self.follow(theirs);
            return true;
        }
        if self.refuses(&packet) {
            self.qp.requester.not_sent(now, packet.bth.psn);
        } else {
            let payload = ours.bytes(outgoing.wr_id, outgoing.offset, len);
            self.transmit(&packet, payload, out);
        }
        true
    }

    /// Checks that a packet may be sent.
    fn check_sending(&mut self, outgoing: &Outgoing) {
        let requester = &self.qp.requester;
        let in_flight = requester.in_flight();
        assert!(in_flight <= self.plan.window, "more than any window");
        if !matches!(outgoing.packet.headers(), Headers::ReadRequest(_)) {
            assert!(in_flight <= requester.window(), "more than the window");
        }
        let begun = self.begun.max(outgoing.wr_id + 1);
        if self.qp.state() == State::Sqd {
            assert_eq!(begun, self.begun, "it began while the queue was drained");
        }
        self.begun = begun;
    }

    /// Checks that the requester respects RNR NAKs.
    fn check_rnr(&mut self, now: u64, packet: &Packet) {
        let Headers::Acknowledge(aeth) = packet.headers() else {
            return;
        };
        let Syndrome::Rnr(timer) = aeth.syndrome else {
            return;
        };
        assert_eq!(timer, self.plan.rnr_timer);
        let (first, count) = self.rnr.get_or_insert((now, 0));
        *count += 1;
        // Packets that are under way, once or twice, do not count.
        let most = 8 + 2 * (now - *first) / timer.ns();
        assert!(*count <= most, "{count} RNR NAKs, {most} would be right");
    }

    fn refuses(&mut self, packet: &Packet) -> bool {
        if !self.rng.chance(self.plan.refuses) {
            return false;
        }
        self.refused += 1;
        self.note(|| format!("refused {}", describe(packet)));
        true
    }

    fn transmit(&mut self, packet: &Packet, payload: &[u8], out: &mut Output) {
        self.id = self.id.wrapping_add(1);
        self.sent += 1;
        let (from, to) = (1 + self.index, 2 - self.index);
        let datagram = wire::encode(from, to, self.id, packet, payload);
        self.note(|| format!("sent {}", describe(packet)));
        self.trace.datagram(&datagram);
        out.datagrams.push(datagram);
    }

    fn complete(&mut self, ours: &mut Oracle, out: &mut Output) {
        while let Some(completion) = self.qp.requester.take() {
            out.useful = true;
            out.completed = true;
            self.note(|| format!("completed {:?}", completion));
            ours.completed(&completion);
        }
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.trace.note(Some(self.index), what);
    }

    /// Describes the state, for a trace.
    pub fn describe(&self) -> String {
        let requester = &self.qp.requester;
        format!(
            "{:?}, window {}, in flight {}, queued {}, expects {}",
            self.qp.state(),
            requester.window(),
            requester.in_flight(),
            requester.len(),
            self.qp.responder.expected().get(),
        )
    }

    pub fn work(&self) -> &[(u64, WorkRequest)] {
        &self.plan.work
    }
}

/// Describes a packet in one line.
pub fn describe(packet: &Packet) -> String {
    format!(
        "{} {:?}{} +{}",
        packet.bth.psn.get(),
        packet.headers(),
        if packet.bth.ack_req { " ack!" } else { "" },
        packet.payload_len()
    )
}
