// SPDX-License-Identifier: GPL-2.0
//! A simulation of reliable datagram endpoints: sessions over connections that fail, determined by
//! a seed.
//!
//! | file | contents |
//! |---|---|
//! | `rng.rs` | pseudo-random numbers from a seed |
//! | `plan.rs` | the choices of a seed |
//! | `qp.rs` | QPs: reliable, in order, and can fail |
//! | `cm.rs` | connection management: lossy, with repetitions and old packets |
//! | `end.rs` | an endpoint |
//! | `matching.rs` | matching of its messages with receives |
//! | `glue.rs` | the caller of its sessions |
//! | `app.rs` | the program, which posts operations |
//! | `oracle.rs` | the conditions that must hold |
//!
//! A QP executes the work of one side at the other, in order and once, like an RC connection:
//! with delays, in steps, refused for a time. It can fail at any moment, and then work that was
//! executed but not acknowledged has an unknown result. A message that was made void may arrive as
//! its original, as if a packet had been on its way.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod app;
pub(crate) mod cm;
pub(crate) mod end;
pub(crate) mod glue;
pub(crate) mod matching;
pub(crate) mod oracle;
pub(crate) mod plan;
pub(crate) mod qp;
pub(crate) mod rng;
mod tagged;

use std::{
    cmp::Reverse,
    collections::{
        BTreeMap,
        BTreeSet,
        BinaryHeap, //
    },
};

use kfi_core::rdm::times;

use self::{
    cm::CmMessage,
    end::End,
    oracle::Oracle,
    plan::Plan,
    qp::{
        Qp,
        QpId, //
    },
    rng::Rng, //
};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// The address of an endpoint.
pub(crate) type Addr = usize;

/// An event of the simulation.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The work at the front of a qp arrives.
    Deliver(QpId),
    /// The rest of a message arrives.
    Rest(QpId),
    /// Executed work is acknowledged.
    Ack(QpId),
    /// Completed work is reported to the session.
    Report(QpId),
    /// A qp fails if nothing was acknowledged since.
    Timeout(QpId, u64),
    /// A message of connection management arrives.
    CmMessage(CmMessage),
    /// Connection management repeats an unanswered message.
    Repeat(u64),
    /// A program executes a step.
    App(Addr),
    /// A fault happens.
    Fault,
    /// An endpoint is opened at this address, if there is none.
    Open(Addr),
}

/// The state of the simulation.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) ends: Vec<Option<End>>,
    pub(crate) qps: BTreeMap<QpId, Qp>,
    pub(crate) cm: cm::Cm,
    pub(crate) oracle: Oracle,
    /// The time before which nothing passes between two hosts.
    pub(crate) cut_until: BTreeMap<(Addr, Addr), u64>,
    /// There are no more faults; everything is received.
    pub(crate) draining: bool,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The events, by their index in `events`.
    store: Vec<Option<Event>>,
    next: u64,
    pub(crate) incarnations: u64,
    pub(crate) notes: u64,
    /// Nothing is acknowledged.
    pub(crate) no_acks: bool,
    /// This end has no room for any FIN.
    pub(crate) refuses_fins: Option<Addr>,
    /// This end refuses CANCELs and RMA, which violates the protocol.
    pub(crate) refuses_others: Option<Addr>,
    /// The answers of this end are lost: FINs, RESULTs, and those to a RETIRE.
    pub(crate) loses_answers: Option<Addr>,
    /// The operations whose bytes the peer has begun to read.
    pub(crate) being_read: BTreeSet<u64>,
    /// The times at which bytes of the first endpoint were last transferred by the second one.
    pub(crate) moved_at: BTreeMap<(Addr, Addr), u64>,
    trace: bool,
}

impl World {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let mut world = Self::with(plan, rng, trace);
        for addr in 0..world.ends.len() {
            let at = world.rng.below(MS);
            world.at(at, Event::App(addr));
        }
        if world.plan.faults > 0 {
            world.after(world.plan.fault_every, Event::Fault);
        }
        world
    }

    /// Makes a world in which only the test acts.
    pub(crate) fn with(plan: Plan, rng: Rng, trace: bool) -> Self {
        let mut world = Self {
            now: 1,
            ends: (0..plan.ends).map(|_| None).collect(),
            qps: BTreeMap::new(),
            cm: cm::Cm::default(),
            oracle: Oracle::default(),
            cut_until: BTreeMap::new(),
            draining: false,
            events: BinaryHeap::new(),
            store: Vec::new(),
            next: 0,
            incarnations: 0,
            notes: 0,
            no_acks: false,
            refuses_fins: None,
            refuses_others: None,
            loses_answers: None,
            being_read: BTreeSet::new(),
            moved_at: BTreeMap::new(),
            trace,
            rng,
            plan,
        };
        for addr in 0..world.ends.len() {
            world.open(addr);
        }
        world
    }

    pub(crate) fn log(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now, text());
        }
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        let index = self.store.len();
        self.store.push(Some(event));
        self.events.push(Reverse((time, self.next, index)));
        self.next += 1;
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Opens an endpoint at an address, if there is none.
    pub(crate) fn open(&mut self, addr: Addr) {
        if self.ends[addr].is_none() {
            self.incarnations += 1;
            let incarnation = self.rng.next() ^ self.incarnations;
            self.log(|| format!("{addr}: opened, {incarnation:x}"));
            let end = End::new(addr, incarnation, &self.plan, &mut self.rng);
            self.ends[addr] = Some(end);
        }
    }

    /// Returns the earliest deadline of a session.
    fn deadline(&self) -> Option<u64> {
        self.ends.iter().flatten().filter_map(End::deadline).min()
    }

    /// Executes the next event before `until`. Returns false if there is none.
    fn step(&mut self, until: u64) -> bool {
        let event = self.events.peek().map(|Reverse((time, ..))| *time);
        let deadline = self.deadline();
        let Some(time) = event.into_iter().chain(deadline).min() else {
            return false;
        };
        if time > until {
            return false;
        }
        self.now = self.now.max(time);
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.expire();
            return true;
        }
        let Some(Reverse((_, _, index))) = self.events.pop() else {
            return false;
        };
        let event = self.store[index].take().unwrap();
        self.execute(event);
        true
    }

    fn expire(&mut self) {
        for addr in 0..self.ends.len() {
            let Some(end) = &self.ends[addr] else {
                continue;
            };
            let due: Vec<Addr> = end.due(self.now);
            for peer in due {
                self.expire_session(addr, peer);
            }
        }
        // No session spins.
        let deadline = self.deadline();
        assert!(
            deadline.is_none_or(|deadline| deadline > self.now),
            "a deadline that does not go by"
        );
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Deliver(id) => self.deliver(id),
            Event::Rest(id) => self.deliver_rest(id),
            Event::Ack(id) => self.acknowledge(id),
            Event::Report(id) => self.report(id, true),
            Event::Timeout(id, progress) => self.time_out(id, progress),
            Event::CmMessage(message) => self.message(message),
            Event::Repeat(id) => self.repeat(id),
            Event::App(addr) => self.app(addr),
            Event::Fault => self.fault(),
            Event::Open(addr) => self.open(addr),
        }
    }

    /// Runs until `until`.
    pub(crate) fn run(&mut self, until: u64) {
        let mut steps = 0u64;
        while self.step(until) {
            steps += 1;
            assert!(steps < 20_000_000, "too many steps");
        }
        self.now = self.now.max(until);
    }

    /// Executes a fault, and schedules the next one.
    fn fault(&mut self) {
        if self.draining {
            return;
        }
        let addr = self.rng.index(self.ends.len());
        let peer = self.rng.index(self.ends.len());
        match self.rng.below(10) {
            0..=2 => {
                // Nothing passes between two hosts for a short or a long time.
                let time = self.rng.spread(2 * self.plan.timeout);
                self.log(|| format!("{addr}-{peer}: nothing passes for {time}"));
                let pair = (addr.min(peer), addr.max(peer));
                self.cut_until.insert(pair, self.now + time);
            }
            3..=5 => {
                // One end of a connection is lost.
                let ids: Vec<QpId> = self.qps.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[self.rng.index(ids.len())];
                    self.log(|| format!("{id:?}: lost"));
                    self.fail_qp(id, kfi_core::rdm::Cause::Protocol);
                }
            }
            6..=7 if self.plan.crashes => self.crash(addr),
            8..=9 if self.plan.crashes => self.close(addr),
            _ => {}
        }
        if self.plan.crashes {
            let pause = self.rng.spread(200 * MS);
            self.after(pause, Event::Open(addr));
        }
        self.plan.faults -= 1;
        if self.plan.faults > 0 {
            let pause = self.rng.spread(2 * self.plan.fault_every);
            self.after(pause, Event::Fault);
        }
    }

    /// Returns whether packets pass between two hosts now; otherwise the time at which they will.
    pub(crate) fn passes(&self, a: Addr, b: Addr) -> Result<(), u64> {
        match self.cut_until.get(&(a.min(b), a.max(b))) {
            Some(until) if *until > self.now => Err(*until),
            _ => Ok(()),
        }
    }

    /// Runs the simulation: work with faults, then a time without.
    pub(crate) fn live(&mut self) {
        let without_faults = self.plan.has_no_faults();
        self.run(self.plan.work_time);
        self.log(|| "no more faults".into());
        self.draining = true;
        self.cut_until.clear();
        for addr in 0..self.ends.len() {
            self.open(addr);
        }
        // The time is long enough for everything that can take long.
        let until = self.now + 2 * times::CONNECT_TIME + 20 * self.plan.timeout + 5_000 * MS;
        while self.now < until && !self.oracle.is_settled() {
            let next = (self.now + 50 * MS).min(until);
            self.run(next);
        }
        self.oracle.check_settled();
        // Idle connections end.
        let idle = self.now + 2 * self.plan.idle_time + 20 * self.plan.timeout + 10_000 * MS;
        self.run(idle);
        for end in self.ends.iter().flatten() {
            end.check_idle();
        }
        assert!(self.qps.is_empty(), "qps are left: {:?}", self.qps);
        self.oracle.check();
        if without_faults {
            self.oracle.check_no_failure();
        }
    }
}
