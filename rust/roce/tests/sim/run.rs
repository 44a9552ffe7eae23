// SPDX-License-Identifier: GPL-2.0
//! One run of the simulation, from the first event to the last.
//!
//! # Checks
//!
//! - Operations are executed as posted, in order, once and with the right bytes, and completed in
//!   order and once. A successful completion implies the execution ([`oracle`](super::oracle)).
//! - A deadline lies in the future; there is none when nothing is queued. Few timer events have no
//!   effect.
//! - If only the network has faults, everything succeeds in bounded time.
//! - Otherwise there are successes, then one failure of the right kind, then only flushed
//!   completions; and a failed end has no work left.
//! - In the end no events are left.

use super::{
    host::Host,
    net::Network,
    oracle::Oracle,
    plan::{
        Kind,
        Plan, //
    },
    rng::Rng,
    trace::Trace,
    wire, //
};
use kfi_roce::{
    rc::Status,
    state::State, //
};
use std::{
    cmp::Ordering,
    collections::BinaryHeap, //
};

/// The longest run, in simulated nanoseconds.
const LONGEST: u64 = 120_000_000_000;

/// The maximum number of events of a run.
const MOST_EVENTS: u64 = 2_000_000;

/// The time in nanoseconds after which an end tries again to leave SQD.
const DRAIN_PAUSE: u64 = 100_000;

enum What {
    Arrive(usize, Vec<u8>),
    /// The worker of an end runs.
    Run(usize),
    /// The worker runs, unless another timer was set since.
    Timer(usize, u64),
    Post(usize),
    Receives(usize, u32),
    State(usize, State),
    Cut,
    Revoke,
}

struct Event {
    time: u64,
    number: u64,
    what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        // The earliest event is the greatest element of the heap.
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

macro_rules! stats {
    ($($name:ident),* $(,)?) => {
        /// Statistics of one run or of many.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Stats {
            $(pub $name: u64,)*
        }

        impl Stats {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

stats!(
    runs,
    failed_ops,
    events,
    simulated_ns,
    ops,
    packets,
    bytes,
    resent,
    lost,
    corrupted,
    refused,
    timeouts,
    probes,
    spurious,
    retries,
    implied_naks,
    rnr,
    duplicates,
    replays,
    forgotten,
    acks,
    coalesced,
);

/// One run.
pub struct Sim {
    plan: Plan,
    now: u64,
    heap: BinaryHeap<Event>,
    count: u64,
    hosts: [Host; 2],
    oracles: [Oracle; 2],
    networks: [Network; 2],
    /// The valid timers, and whether a run of the worker is scheduled.
    timers: [u64; 2],
    due: [bool; 2],
    /// Whether work waits for room in the send queue.
    blocked: [bool; 2],
    useless: u64,
    rng: Rng,
    trace: Trace,
}

impl Sim {
    pub fn new(plan: Plan, trace: Trace) -> Self {
        trace.note(None, || format!("{plan:#?}"));
        let mut rng = Rng::new(plan.seed);
        let mut host = |index| Host::new(index, &plan, rng.fork(), trace.clone());
        let hosts = [host(0), host(1)];
        let mut network = || Network::new(plan.faults, rng.fork());
        let networks = [network(), network()];
        let mut sim = Self {
            now: 0,
            heap: BinaryHeap::new(),
            count: 0,
            hosts,
            oracles: [Oracle::new(1, plan.mtu), Oracle::new(2, plan.mtu)],
            networks,
            timers: [0; 2],
            due: [false; 2],
            blocked: [false; 2],
            useless: 0,
            rng,
            trace,
            plan,
        };
        sim.schedule();
        sim
    }

    fn schedule(&mut self) {
        for index in 0..2 {
            let end = self.plan.ends[index].clone();
            for (time, count) in end.receives {
                self.at(time, What::Receives(index, count));
            }
            if let Some((from, to)) = end.drain {
                self.at(from, What::State(index, State::Sqd));
                self.at(to, What::State(index, State::Rts));
            }
            if let Some(time) = self.hosts[index].next_post() {
                self.at(time, What::Post(index));
            }
        }
        match self.plan.kind {
            Kind::Cut(time) => self.at(time, What::Cut),
            Kind::Modify(time) => self.at(time, What::State(0, State::Error)),
            Kind::Revoke(time) => self.at(time, What::Revoke),
            _ => {}
        }
    }

    fn at(&mut self, time: u64, what: What) {
        self.count += 1;
        self.heap.push(Event {
            time,
            number: self.count,
            what,
        });
    }

    /// Runs to the end and checks all conditions.
    pub fn run(mut self) -> Stats {
        let mut events = 0;
        while let Some(event) = self.heap.pop() {
            events += 1;
            assert!(events < MOST_EVENTS, "it does not end");
            assert!(event.time < LONGEST, "it takes too long");
            if matches!(event.what, What::Timer(index, number) if number != self.timers[index]) {
                // Another timer was set since.
                continue;
            }
            self.now = event.time;
            self.trace.time(event.time);
            self.event(event.what);
        }
        self.finish(events)
    }

    fn event(&mut self, what: What) {
        match what {
            What::Arrive(index, datagram) => {
                self.hosts[index].inbox.push_back(datagram);
                self.wake(index);
            }
            What::Run(index) => {
                self.due[index] = false;
                self.work(index, false);
            }
            What::Timer(index, _) => self.work(index, true),
            What::Post(index) => self.post(index),
            What::Receives(index, count) => {
                self.trace
                    .note(Some(index as u8), || format!("posts {count} receives"));
                self.hosts[index].receives.posted += count;
            }
            What::State(index, state) => self.state(index, state),
            What::Cut => {
                self.trace.note(None, || "the network is cut".into());
                for network in &mut self.networks {
                    network.cut = true;
                }
            }
            What::Revoke => {
                self.trace.note(Some(1), || "closes its region".into());
                self.hosts[1].memory.readable = false;
            }
        }
    }

    /// Schedules a run of the worker, one for all arrivals until then.
    fn wake(&mut self, index: usize) {
        if !self.due[index] {
            self.due[index] = true;
            let latency = self.plan.ends[index].latency;
            let time = self.now + self.rng.below(latency + 1);
            self.at(time, What::Run(index));
        }
    }

    fn post(&mut self, index: usize) {
        let left = self.hosts[index].post(self.now, &mut self.oracles[index]);
        // The rest is posted after a completion.
        self.blocked[index] = left;
        let next = self.hosts[index].next_post();
        if let (false, Some(time)) = (left, next) {
            self.at(time, What::Post(index));
        }
        // Posting also sends, in the context of the poster.
        self.work(index, false);
    }

    fn state(&mut self, index: usize, state: State) {
        let host = &mut self.hosts[index];
        if host.qp.state() == State::Error {
            return;
        }
        let draining = host.qp.state() == State::Sqd && !host.qp.requester.is_drained();
        if draining && state == State::Rts {
            // Sending continues when the send queue is drained.
            self.at(self.now + DRAIN_PAUSE, What::State(index, state));
            return;
        }
        self.trace
            .note(Some(index as u8), || format!("goes to {state:?}"));
        host.modify(state, &mut self.oracles[1 - index]);
        self.work(index, false);
    }

    fn work(&mut self, index: usize, timer: bool) {
        let [a, b] = &mut self.oracles;
        let (ours, theirs) = if index == 0 { (a, b) } else { (b, a) };
        let host = &mut self.hosts[index];
        if timer {
            self.trace.note(Some(index as u8), || "timer".into());
        }
        let out = host.run(self.now, ours, theirs);
        if timer && !out.useful {
            self.useless += 1;
        }
        if !out.datagrams.is_empty() {
            self.trace.note(Some(index as u8), || host.describe());
        }
        for datagram in out.datagrams {
            for (time, datagram) in self.networks[index].send(self.now, &datagram) {
                self.at(time, What::Arrive(1 - index, datagram));
            }
        }
        if out.completed && self.blocked[index] {
            self.blocked[index] = false;
            self.at(self.now + 1_000, What::Post(index));
        }
        if out.more && !self.due[index] {
            self.due[index] = true;
            self.at(self.now + 1_000, What::Run(index));
        }
        self.timers[index] = self.count;
        if let Some(deadline) = out.deadline.filter(|deadline| *deadline > self.now) {
            self.timers[index] = self.count + 1;
            self.at(
                deadline.max(self.now + 1),
                What::Timer(index, self.count + 1),
            );
        }
    }

    fn finish(mut self, events: u64) -> Stats {
        // A pause after a refusal may end with nothing to send, or a response may arrive just
        // before its end.
        let refused = self.hosts.iter().map(|host| host.refused).sum::<u64>();
        assert!(
            self.useless <= refused + 8,
            "timers without use: {}",
            self.useless
        );
        for index in 0..2 {
            let oracle = &self.oracles[index];
            let host = &self.hosts[index];
            assert_eq!(host.posted, host.work().len(), "not all was posted");
            // An end whose peer is gone cannot complete its receive.
            if self.plan.kind == Kind::Healthy || host.qp.state() == State::Error {
                assert!(!host.receives.begun, "a receive has not ended");
                assert!(host.qp.requester.is_empty());
            }
            assert!(oracle.is_done(), "not all has completed");
            if self.plan.kind == Kind::Healthy {
                assert_eq!(self.hosts[1 - index].read_out, oracle.read_bytes());
            }
        }
        self.check_statuses();
        self.check_effort();
        let mut stats = Stats {
            runs: 1,
            events,
            simulated_ns: self.now,
            refused,
            ..Stats::default()
        };
        for index in 0..2 {
            let requester = self.hosts[index].qp.requester.stats();
            let responder = self.hosts[index].qp.responder.stats();
            let ops = &self.oracles[index].ops;
            stats.ops += ops.len() as u64;
            stats.failed_ops += ops
                .iter()
                .filter(|op| op.status != Some(Status::Success))
                .count() as u64;
            stats.packets += self.hosts[index].sent;
            stats.bytes += requester.bytes + responder.read_bytes;
            stats.resent += requester.resent;
            stats.lost += self.networks[index].lost;
            stats.corrupted += self.networks[index].corrupted;
            stats.timeouts += requester.timeouts;
            stats.probes += requester.probes;
            stats.spurious += requester.spurious;
            stats.retries += requester.retries;
            stats.implied_naks += requester.implied_naks;
            stats.rnr += requester.rnr;
            stats.duplicates += responder.duplicates;
            stats.replays += responder.replays;
            stats.forgotten += responder.forgotten;
            stats.acks += responder.acks;
            stats.coalesced += responder.coalesced;
        }
        stats
    }

    /// Checks that a perfect network causes no retransmissions. An exception is a peer that is not
    /// ready: it repeats its RNR NAK while more packets are on their way.
    fn check_effort(&self) {
        let ends = &self.plan.ends;
        if !self.is_clean() || self.plan.kind != Kind::Healthy {
            return;
        }
        let stats = [0, 1].map(|index| *self.hosts[index].qp.requester.stats());
        for (index, stats) in stats.iter().enumerate() {
            assert_eq!((stats.timeouts, stats.retries), (0, 0));
            assert_eq!((stats.implied_naks, stats.strays), (0, 0));
            // Delayed acknowledgements may cause probes.
            if ends[1 - index].policy.delay == 0 {
                assert_eq!(stats.probes, 0);
            }
            if stats.probes == 0 {
                assert_eq!(stats.duplicates, 0);
                assert!(stats.rnr > 0 || stats.resent == 0);
            }
        }
    }

    fn is_clean(&self) -> bool {
        let faults = &self.plan.faults;
        let nothing = faults.loss + faults.duplicate + faults.reorder + faults.corrupt == 0;
        nothing && faults.queue >= 1_024 && self.plan.ends.iter().all(|end| end.refuses == 0)
    }

    /// Checks the statuses of all operations against the failure of the plan.
    fn check_statuses(&mut self) {
        let lossy = self.plan.faults.loss > 0
            || self.plan.faults.corrupt > 0
            || self.plan.faults.queue < 1_024
            || self.plan.ends.iter().any(|end| end.refuses > 0);
        for index in 0..2 {
            let ops = &self.oracles[index].ops;
            let failures: Vec<_> = ops
                .iter()
                .enumerate()
                .filter_map(|(at, op)| {
                    let status = op.status.unwrap();
                    (status != Status::Success).then_some((at, status))
                })
                .collect();
            // Successes come first, then failures, of which at most one has a reason.
            if let Some((first, _)) = failures.first() {
                assert_eq!(
                    ops.len() - first,
                    failures.len(),
                    "a success after a failure"
                );
                assert_eq!(self.hosts[index].qp.state(), State::Error);
            }
            let reasons: Vec<_> = failures
                .iter()
                .filter(|(_, status)| *status != Status::Flushed)
                .copied()
                .collect();
            assert!(reasons.len() <= 1, "more than one reason: {reasons:?}");
            let gone = reasons
                .first()
                .is_none_or(|(_, status)| *status == Status::RetryExceeded);
            match (self.plan.kind, index) {
                (Kind::Healthy, _) => assert_eq!(failures, [], "failures"),
                (Kind::Cut(_), _) => assert!(gone, "{reasons:?}"),
                (Kind::BadRequest(at), 0) => {
                    assert!(!failures.is_empty());
                    assert!(self.oracles[index]
                        .ops
                        .get(at)
                        .is_none_or(|op| !op.executed));
                    if !(lossy && gone) {
                        let (failed, status) = reasons[0];
                        assert_eq!(failed, at);
                        assert!(matches!(
                            status,
                            Status::RemoteAccess | Status::RemoteInvalidRequest
                        ));
                    }
                }
                (Kind::ShortReceive(at), 0) => {
                    if !(lossy && gone) {
                        assert_eq!(reasons, [(at, Status::RemoteInvalidRequest)]);
                    }
                }
                (Kind::NeverReady, 0) => {
                    let short = self.plan.ends[0]
                        .work
                        .iter()
                        .filter(|(_, request)| request.op.takes_receive())
                        .count();
                    assert!(short > 0 && !failures.is_empty());
                    assert!(
                        lossy && gone || reasons[0].1 == Status::RnrRetryExceeded,
                        "{reasons:?}"
                    );
                }
                (Kind::LocalFault(at), 0) => {
                    if let Some(reason) = reasons.first() {
                        assert_eq!(*reason, (at, Status::LocalProtection));
                    }
                }
                (Kind::Modify(_), 0) => assert_eq!(reasons, []),
                (Kind::Revoke(_), 0) => {
                    assert!(gone || reasons[0].1 == Status::RemoteAccess, "{reasons:?}")
                }
                // The other end gets no more packets, or fails together with its responder.
                (_, _) => assert!(gone, "{reasons:?}"),
            }
        }
    }
}

/// Runs a seed.
pub fn run(seed: u64, trace: Trace) -> Stats {
    // Initialises data that all runs share.
    wire::bytes(0, 0, 0);
    Sim::new(Plan::new(seed), trace).run()
}
