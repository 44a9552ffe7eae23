// SPDX-License-Identifier: GPL-2.0
//! Runs a plan in a model of ranks, counters, memory and messages, in a random order.
//!
//! Everything that may happen in any order does: work that is due starts, a message is copied out
//! of its sender or arrives, an operation completes. The model fails if a message arrives before
//! its receive is posted, if bytes are read or written while another operation writes them, or
//! if bytes are written while another one reads them. At the end all work must be done, and each
//! rank must have the sum.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::{Action, Counter, Memory, Message, Plan, Ring, Span};

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for its counter.
    Queued,
    /// A send whose bytes are still read; a sum; a receive without its message.
    Active,
    /// A send whose bytes are on the way.
    Copied,
    /// A send or receive whose message has arrived.
    Arrived,
    Complete,
}

/// Accesses to a word by operations under way.
#[derive(Clone, Copy, Default)]
struct Access {
    readers: u32,
    written: bool,
}

struct Rank {
    memory: HashMap<Memory, Vec<u64>>,
    access: HashMap<Memory, Vec<Access>>,
    states: Vec<State>,
    counters: BTreeMap<Counter, u64>,
    /// Bytes on the way, of the sends.
    copied: HashMap<usize, Vec<u64>>,
}

struct Model<'a> {
    ring: Ring,
    plans: &'a [Plan],
    ranks: Vec<Rank>,
    /// The counters that the ranks of a host share: of the start, and of the end.
    start: Vec<u64>,
    done: Vec<u64>,
}

/// An event that can happen next: of this step of this rank.
type Event = (usize, usize, Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    Copy,
    Arrive,
    Complete,
}

type Outcome<T = ()> = Result<T, String>;

fn input(rank: usize, word: usize) -> u64 {
    // Sums of any subset of the ranks are different.
    (1 << rank) << 32 | (rank * 1000 + word) as u64
}

impl<'a> Model<'a> {
    fn new(ring: Ring, plans: &'a [Plan]) -> Self {
        let rank = |plan: &Plan| {
            let words = ring.words();
            let of_each = |memory| match memory {
                Memory::Input => (0..words).map(|word| input(plan.rank, word)).collect(),
                _ => vec![0xdead; words],
            };
            let all = [Memory::Input, Memory::Partial, Memory::Output];
            Rank {
                memory: all.map(|memory| (memory, of_each(memory))).into(),
                access: all
                    .map(|memory| (memory, vec![Access::default(); words]))
                    .into(),
                states: vec![State::Queued; plan.steps.len()],
                counters: BTreeMap::new(),
                copied: HashMap::new(),
            }
        };
        Self {
            ring,
            plans,
            ranks: plans.iter().map(rank).collect(),
            start: vec![0; ring.ranks()],
            done: vec![0; ring.ranks()],
        }
    }

    fn counter(&mut self, rank: usize, counter: Counter) -> &mut u64 {
        match counter {
            Counter::Start => &mut self.start[self.ring.host_of(rank)],
            Counter::Done => &mut self.done[self.ring.host_of(rank)],
            other => self.ranks[rank].counters.entry(other).or_default(),
        }
    }

    fn read(&mut self, rank: usize, span: &Span, change: i32) -> Outcome {
        let words = self.ranks[rank].access.get_mut(&span.memory).unwrap();
        for word in &mut words[span.words.clone()] {
            if word.written {
                return Err(format!("rank {rank} reads {span:?}, which is written"));
            }
            word.readers = word.readers.checked_add_signed(change).unwrap();
        }
        Ok(())
    }

    fn write(&mut self, rank: usize, span: &Span, begin: bool) -> Outcome {
        let words = self.ranks[rank].access.get_mut(&span.memory).unwrap();
        for word in &mut words[span.words.clone()] {
            if word.readers > 0 || word.written == begin {
                return Err(format!("rank {rank} writes {span:?}, which is in use"));
            }
            word.written = begin;
        }
        Ok(())
    }

    /// The receive that a message arrives at.
    fn receive_for(&self, sender: usize, to: usize, message: Message) -> Outcome<usize> {
        let steps = self.plans[to].steps.iter().zip(&self.ranks[to].states);
        let matches = |(step, state): (&super::Step, &State)| {
            *state == State::Active
                && matches!(step.action, Action::Receive { from, message: of, .. }
                    if from == sender && of.tag() == message.tag())
        };
        let at = { steps }.position(matches);
        at.ok_or_else(|| format!("{message:?} comes to rank {to} before its receive is posted"))
    }

    /// All that can happen.
    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let plans = self.plans;
        for (rank, plan) in plans.iter().enumerate() {
            for (at, step) in plan.steps.iter().enumerate() {
                let state = self.ranks[rank].states[at];
                let send = matches!(step.action, Action::Send { .. });
                let receive = matches!(step.action, Action::Receive { .. });
                match state {
                    State::Queued => {
                        if *self.counter(rank, step.trigger) >= step.threshold {
                            events.push((rank, at, Kind::Start));
                        }
                    }
                    State::Active if send => {
                        events.push((rank, at, Kind::Copy));
                        events.push((rank, at, Kind::Arrive));
                    }
                    State::Copied => events.push((rank, at, Kind::Arrive)),
                    State::Active if receive => {}
                    State::Active | State::Arrived => events.push((rank, at, Kind::Complete)),
                    State::Complete => {}
                }
            }
        }
        events
    }

    fn happen(&mut self, (rank, at, kind): Event) -> Outcome {
        let plans = self.plans;
        let step = &plans[rank].steps[at];
        let state = match (kind, &step.action) {
            (Kind::Start, Action::Receive { into, .. }) => {
                self.write(rank, into, true)?;
                State::Active
            }
            (Kind::Start, Action::Send { from, .. }) => {
                self.read(rank, from, 1)?;
                State::Active
            }
            (Kind::Start, Action::Sum { operand, target }) => {
                self.read(rank, operand, 1)?;
                self.write(rank, target, true)?;
                State::Active
            }
            (Kind::Start, Action::Count) => State::Active,
            (Kind::Copy, Action::Send { from, .. }) => {
                let bytes = self.ranks[rank].memory[&from.memory][from.words.clone()].to_vec();
                self.ranks[rank].copied.insert(at, bytes);
                State::Copied
            }
            (Kind::Arrive, Action::Send { to, message, from }) => {
                let receive = self.receive_for(rank, *to, *message)?;
                let bytes = match self.ranks[rank].copied.remove(&at) {
                    Some(bytes) => bytes,
                    None => self.ranks[rank].memory[&from.memory][from.words.clone()].to_vec(),
                };
                let Action::Receive { into, .. } = &plans[*to].steps[receive].action else {
                    unreachable!()
                };
                let memory = self.ranks[*to].memory.get_mut(&into.memory).unwrap();
                memory[into.words.clone()].copy_from_slice(&bytes);
                self.ranks[*to].states[receive] = State::Arrived;
                State::Arrived
            }
            (Kind::Complete, action) => {
                match action {
                    Action::Count => {}
                    Action::Receive { into, .. } => self.write(rank, into, false)?,
                    Action::Send { from, .. } => self.read(rank, from, -1)?,
                    Action::Sum { operand, target } => {
                        self.add(rank, operand, target);
                        self.read(rank, operand, -1)?;
                        self.write(rank, target, false)?;
                    }
                }
                *self.counter(rank, step.completion) += 1;
                State::Complete
            }
            (kind, action) => unreachable!("{kind:?} of {action:?}"),
        };
        self.ranks[rank].states[at] = state;
        self.check_end(self.ring.host_of(rank))
    }

    /// A host whose last counter has reached its end has nothing under way.
    fn check_end(&self, host: usize) -> Outcome {
        let ranks = || self.ring.ranks_of(host);
        let end: u64 = ranks()
            .map(|rank| self.plans[rank].counts(Counter::Done))
            .sum();
        let complete = |rank: usize| {
            let states = &self.ranks[rank].states;
            states.iter().all(|state| *state == State::Complete)
        };
        match self.done[host] == end && !ranks().all(complete) {
            true => Err(format!("host {host} counts as done and is not")),
            false => Ok(()),
        }
    }

    fn add(&mut self, rank: usize, operand: &Span, target: &Span) {
        let memory = &mut self.ranks[rank].memory;
        let values = memory[&operand.memory][operand.words.clone()].to_vec();
        let target = &mut memory.get_mut(&target.memory).unwrap()[target.words.clone()];
        for (word, value) in target.iter_mut().zip(values) {
            *word = word.wrapping_add(value);
        }
    }

    /// All is done, and right.
    fn check(&mut self) -> Outcome {
        let ring = self.ring;
        let sum =
            |word| (0..ring.ranks()).fold(0u64, |sum, rank| sum.wrapping_add(input(rank, word)));
        let expected: Vec<u64> = (0..ring.words()).map(sum).collect();
        for rank in 0..ring.ranks() {
            let open = { &self.ranks[rank] }.states.iter();
            if let Some(at) = { open }.position(|state| *state != State::Complete) {
                return Err(format!("rank {rank} has not done its step {at}"));
            }
            if self.ranks[rank].memory[&Memory::Output] != expected {
                return Err(format!("rank {rank} has a wrong result"));
            }
            for chunk in 0..ring.chunks() {
                let counter = Counter::Chunk(chunk);
                let counted = self.plans[rank].counts(counter);
                if *self.counter(rank, counter) != counted {
                    return Err(format!("rank {rank}: {counter:?} is not {counted}"));
                }
            }
        }
        Ok(())
    }
}

/// Numbers in a random order that depends on the seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Runs the plans; the seed chooses the order.
fn run(ring: Ring, plans: &[Plan], seed: u64) -> Outcome {
    let mut model = Model::new(ring, plans);
    let mut chance = Chance(seed | 1);
    // Work that is due at once starts before the program lets the rest begin.
    loop {
        let due: Vec<Event> = { model.events() }
            .into_iter()
            .filter(|(.., kind)| *kind == Kind::Start)
            .collect();
        if due.is_empty() {
            break;
        }
        model.happen(due[chance.below(due.len())])?;
    }
    model.start[0] += 1;
    loop {
        let events = model.events();
        if events.is_empty() {
            return model.check();
        }
        model.happen(events[chance.below(events.len())])?;
    }
}

fn plans(ring: Ring) -> Vec<Plan> {
    (0..ring.ranks()).map(|rank| ring.plan(rank)).collect()
}

prop_compose! {
    fn rings()(ranks in 2..10usize, words in 1..40usize)(
        ring in Just((ranks, words)),
        hosts in 1..=ranks.min(4),
        max_sum in 1..10usize,
    ) -> Ring {
        let (ranks, words) = ring;
        Ring::new(ranks, words).unwrap().hosts(hosts).unwrap().max_sum(max_sum)
    }
}

proptest! {
    #[test]
    fn every_order_gives_the_sum(ring in rings(), seed: u64) {
        let outcome = run(ring, &plans(ring), seed);
        prop_assert!(outcome.is_ok(), "{ring:?}: {outcome:?}");
    }

    /// The model sees when work starts too early, or never.
    #[test]
    fn a_wrong_threshold_is_found(
        ring in rings(),
        which: prop::sample::Index,
        later: bool,
    ) {
        let mut plans = plans(ring);
        let mut waiting: Vec<&mut super::Step> = { &mut plans }
            .iter_mut()
            .flat_map(|plan| &mut plan.steps)
            .filter(|step| matches!(step.trigger, Counter::Chunk(_)))
            .collect();
        let at = which.index(waiting.len());
        waiting[at].threshold = if later { 1000 } else { waiting[at].threshold - 1 };
        // Of so many orders one shows it.
        let found = (0..200u64).any(|seed| run(ring, &plans, seed * 0x9e37_79b9 + 1).is_err());
        prop_assert!(found, "{ring:?} {at} {later}");
    }
}

#[test]
fn a_receive_that_is_not_posted_in_time_is_found() {
    let ring = Ring::new(3, 1).unwrap();
    let mut plans = plans(ring);
    plans[1].steps[0].threshold = 1;
    assert!((1..50).any(|seed| run(ring, &plans, seed).is_err()));
}
