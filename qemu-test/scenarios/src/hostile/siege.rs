// SPDX-License-Identifier: GPL-2.0
//! The attack test (siege): a load test that makes every attack in turn while a good flow goes on,
//! and checks the flow's rate, the kernel's memory and its log.
//!
//! ```text
//! kfi-scenarios --hostile SECONDS SEED [ATTACK]
//! ```
//!
//! The good flow ([`super::flow`]) runs all the time. A phase is the time of one attack in one
//! round. In a phase, slices of time in which the attacker sends alternate with slices in which it
//! does not, so that a change of the machine's speed affects both, and the medians of both are
//! compared. The attacker is on the same machine: it takes at most a share of one CPU ([`Goal`]),
//! which includes the network stack's work for its packets up to the victim's inboxes. The flow
//! loses the rest of its rate to the victim's own work for the attack.
//!
//! A run has failed if a message of the flow fails or has wrong bytes, if the flow has less than
//! the [`Goal`]'s part of its rate under any attack, shortly after it, or in the end, if no endpoint can
//! connect or one takes longer than [`NEWCOMER`], if the kernel uses more memory than [`MEMORY`] in
//! the end or [`PEAK`] meanwhile, if its log has a fault, if the hosts have not counted the
//! attack's packets ([`super::evidence`]), or if an attack finds an error ([`Attack::end`]). The
//! program has no `CAP_SYS_RESOURCE`, so the limits of users apply to it. With `ATTACK` only
//! attacks whose name contains that word are made.

use super::{
    attacks::{self, Attack},
    evidence::CounterSnapshot,
    field::{Attacker, Facts, Field, attack_of},
    flow::{Counts, Flow},
    victims::Victims,
};
use crate::{
    hosts::sanitizing,
    kernel_log::KernelLog,
    kernel_memory::{self, Used},
    rng::{Rng, parse_seed},
};
use rustix::{
    thread::{CapabilitySet, capabilities, set_capabilities},
    time::{ClockId, clock_gettime},
};
use std::{
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What an attack may take, and what it must leave.
struct Goal {
    /// The share of one CPU that the attacker may take.
    share: f64,
    /// The least part of its rate that the good flow must keep under an attack.
    rate: f64,
}

impl Goal {
    const PLAIN: Self = Self {
        share: 0.25,
        rate: 0.5,
    };

    /// That of a kernel that checks itself. It makes the victim's work for a request (a connection
    /// and a QP, which are allocated and freed) dearer than the attacker's (one packet): with the
    /// same share the attack would be a stronger one, and with this share a request still costs the
    /// victim about 30 ms. The plain kernel judges the speed. Here only a flow that comes to a stop
    /// is a fault.
    const SANITIZING: Self = Self {
        share: 0.07,
        rate: 0.3,
    };

    fn of_this_kernel() -> Self {
        match sanitizing() {
            true => Self::SANITIZING,
            false => Self::PLAIN,
        }
    }
}

/// The least part of its first rate that the good flow must have after all attacks.
const RECOVERED: f64 = 0.5;

/// The accepted growth, in KiB, of the kernel's memory after the test, when idle connections have
/// ended: partly used slabs, and stack traces that KASAN keeps. The same for slabs, per-CPU memory
/// and pinned pages, each by itself.
const MEMORY: u64 = 8 << 10;

/// The accepted growth meanwhile, in KiB: the limit of a user's account (64 MiB, see
/// `qemu-test/hostile`), and 192 MiB for memory that is not charged, as the network's queues and,
/// with KASAN, the freed objects in its quarantine.
const PEAK: u64 = 256 << 10;

/// The least duration of a slice, and the time before each slice, not measured, in which the flow
/// adapts.
const SLICE: Duration = Duration::from_millis(400);
const LEAD: Duration = Duration::from_millis(50);

/// The number of messages for which a slice must have time also on a slow kernel, and the longest
/// duration of a slice.
const MESSAGES: f64 = 30.0;
const SLICE_MAX: Duration = Duration::from_secs(2);

/// The least number of pairs of slices, with and without the attack, in a phase, and the number of
/// additional ones if the flow is too slow in those (other load of the machine may be the cause), or
/// if the attack wants more.
const PAIRS: usize = 3;
const MORE_PAIRS: usize = 12;

/// The pause without an attack before the flow is measured again, if it was slow between the
/// attacks.
const REST: Duration = Duration::from_secs(3);

/// The time that a phase waits for an endpoint that connects, and the longest time of one endpoint.
const NEWCOMERS: Duration = Duration::from_secs(30);
const NEWCOMER: Duration = Duration::from_secs(10);

/// The duration of one round of all attacks, if there is time for more than one.
const ROUND: Duration = Duration::from_secs(60);

/// The number of slices in which the rate of the flow is measured without any attack, before and
/// after all of them; and how often that is repeated at most after them.
const BASELINE: usize = 12;
const BASELINES: usize = 3;

/// The longest time until the kernel's memory shrinks: an idle connection is closed after 60 s.
const SETTLED: Duration = Duration::from_secs(100);

/// The pause between two measurements of the memory, and the KiB by which it may shrink between
/// them and still counts as steady.
const LOOK: Duration = Duration::from_secs(6);
const STEADY: u64 = 512;

/// The phase of the run, for the message of a failure.
static PHASE: Mutex<String> = Mutex::new(String::new());

fn phase(name: &str) {
    let mut phase = PHASE.lock().unwrap_or_else(PoisonError::into_inner);
    name.clone_into(&mut phase);
}

/// Runs the test, if the command line has its option.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (seconds, seed, word) = match args.as_slice() {
        [flag, seconds, seed, words @ ..] if flag == "--hostile" => {
            (seconds, seed, words.first().map_or("", String::as_str))
        }
        _ => return None,
    };
    let (Ok(seconds), Some(seed)) = (seconds.parse(), parse_seed(seed)) else {
        eprintln!("kfi-scenarios --hostile SECONDS SEED [ATTACK]: two numbers");
        return Some(ExitCode::from(2));
    };
    let run = AssertUnwindSafe(|| run(Duration::from_secs(seconds), seed, word));
    let result = catch_unwind(run).unwrap_or_else(|_| Err("a panic, see above".into()));
    Some(match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            let phase = PHASE.lock().unwrap_or_else(PoisonError::into_inner);
            println!("hostile: failed during {phase}, SEED={seed:#x}: {why}");
            ExitCode::FAILURE
        }
    })
}

/// Messages per second of each part of the flow.
#[derive(Clone, Copy, Debug)]
struct Rates {
    msg: f64,
    rdm: f64,
}

impl Rates {
    fn between(before: Counts, after: Counts, time: Duration) -> Self {
        let rate = |before: u64, after: u64| (after - before) as f64 / time.as_secs_f64();
        Self {
            msg: rate(before.msg, after.msg),
            rdm: rate(before.rdm, after.rdm),
        }
    }

    /// The median of each part.
    fn median(of: &[Self]) -> Self {
        let median = |part: fn(&Self) -> f64| {
            let mut parts: Vec<f64> = of.iter().map(part).collect();
            parts.sort_by(f64::total_cmp);
            let middle = parts.len() / 2;
            match parts.len() % 2 {
                0 => (parts[middle - 1] + parts[middle]) / 2.0,
                _ => parts[middle],
            }
        };
        Self {
            msg: median(|rates| rates.msg),
            rdm: median(|rates| rates.rdm),
        }
    }

    /// The part of `whole` that these rates are: the smaller one of the two.
    fn part_of(&self, whole: &Self) -> f64 {
        let part = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        part(self.msg, whole.msg).min(part(self.rdm, whole.rdm))
    }
}

/// An attack with its measurements so far.
struct Phase {
    attack: Box<dyn Attack>,
    quiet: Vec<Rates>,
    attacked: Vec<Rates>,
}

impl Phase {
    fn part(&self) -> f64 {
        Rates::median(&self.attacked).part_of(&Rates::median(&self.quiet))
    }
}

/// The state of a run.
struct Siege {
    field: Field,
    attacker: Attacker,
    facts: Facts,
    flow: Flow,
    victims: Victims,
    log: KernelLog,
    rng: Rng,
    phases: Vec<Phase>,
    /// The numbers of the attacks that are made.
    wanted: Vec<usize>,
    /// What the kernel used at the start.
    memory: Used,
    /// The duration of a slice.
    slice: Duration,
    /// What its attacks may take, and must leave.
    goal: Goal,
    /// The failures of earlier phases.
    failures: Vec<String>,
}

fn run(time: Duration, seed: u64, word: &str) -> Result<String, String> {
    phase("the preparation");
    obey_limits();
    let phases: Vec<_> = attacks::all().into_iter().map(Phase::from).collect();
    let wanted: Vec<_> = (0..phases.len())
        .filter(|number| phases[*number].attack.name().contains(word))
        .collect();
    if wanted.is_empty() {
        return Err(format!("there is no attack '{word}'"));
    }
    let field = Field::new();
    let mut facts = Facts::new();
    let flow = Flow::begin(&field, &mut facts);
    let victims = Victims::begin(&field, &mut facts);
    // Its threads use the field until the process ends.
    let mut siege = ManuallyDrop::new(Siege {
        attacker: Attacker::new(&field),
        field,
        facts,
        flow,
        victims,
        log: KernelLog::open(),
        rng: Rng::new(seed),
        phases,
        wanted,
        memory: Used::now(),
        slice: SLICE,
        goal: Goal::of_this_kernel(),
        failures: Vec::new(),
    });
    println!(
        "hostile: {} attacks in {} s, SEED={seed:#x}",
        siege.wanted.len(),
        time.as_secs()
    );
    siege.last(time)
}

/// Drops `CAP_SYS_RESOURCE` for this thread and those that it starts, so that the limits of users
/// apply.
fn obey_limits() {
    let mut sets = capabilities(None).expect("capabilities");
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets).expect("set capabilities");
}

impl From<Box<dyn Attack>> for Phase {
    fn from(attack: Box<dyn Attack>) -> Self {
        Self {
            attack,
            quiet: Vec::new(),
            attacked: Vec::new(),
        }
    }
}

impl Siege {
    fn last(&mut self, time: Duration) -> Result<String, String> {
        self.warm_up()?;
        self.memory = self.steady_memory()?;
        let mut first = self.baseline()?;
        let slowest = first.msg.min(first.rdm).max(1.0);
        self.slice = Duration::from_secs_f64(MESSAGES / slowest).clamp(SLICE, SLICE_MAX);
        if self.slice > SLICE {
            first = self.baseline()?;
        }
        println!(
            "without an attack: {:.0} messages/s over a connection, {:.0} reliable datagrams/s",
            first.msg, first.rdm
        );
        let rounds = (time.as_secs() / ROUND.as_secs()).max(1) as u32;
        let visit = time / rounds / self.wanted.len() as u32;
        let pairs = visit.as_millis() / (2 * (self.slice + LEAD)).as_millis();
        for round in 0..rounds {
            for index in 0..self.wanted.len() {
                let number = self.wanted[index];
                self.visit(number, (pairs as usize).max(PAIRS), &first)
                    .map_err(|why| format!("round {}: {why}", round + 1))?;
            }
        }
        phase("the end");
        if let Some(why) = self.failures.first() {
            let more = self.failures.len() - 1;
            return Err(format!("{why} ({more} more failures above)"));
        }
        self.still_fast(&first)?;
        let worst = self.wanted.iter().map(|number| self.phases[*number].part());
        let part = worst.fold(f64::INFINITY, f64::min);
        self.end(part)
    }

    /// Makes each attack for a moment, so that the kernel has made its permanent allocations before
    /// its memory is measured.
    fn warm_up(&mut self) -> Result<(), String> {
        for index in 0..self.wanted.len() {
            let number = self.wanted[index];
            self.phases[number].attack.begin(&self.field);
            self.slice(Some(number))?;
            // The attack was too short to reach its end, so the result is not checked.
            let _ = self.end_attack(number);
        }
        Ok(())
    }

    fn end_attack(&mut self, number: usize) -> Result<(), String> {
        self.attacker.is_silent = false;
        self.phases[number].attack.leave(&mut self.attacker);
        self.phases[number].attack.end()
    }

    /// What the kernel uses while the flow pauses.
    fn used_memory(flow: &Flow, attacker: &mut Attacker) -> Result<Used, String> {
        attacker.drain();
        flow.pausing(|| {
            kernel_memory::shrink();
            Used::now()
        })
    }

    /// The same, after the kernel has freed the objects of the attacks and the memory has stopped
    /// shrinking.
    fn steady_memory(&mut self) -> Result<Used, String> {
        let begin = Instant::now();
        let mut before = Self::used_memory(&self.flow, &mut self.attacker)?;
        loop {
            std::thread::sleep(LOOK);
            let now = Self::used_memory(&self.flow, &mut self.attacker)?;
            if now.all + STEADY >= before.all || begin.elapsed() > SETTLED {
                return Ok(if now.all < before.all { now } else { before });
            }
            before = now;
        }
    }

    /// The rates of the flow without an attack.
    fn baseline(&mut self) -> Result<Rates, String> {
        let mut rates = Vec::new();
        for _ in 0..BASELINE {
            rates.push(self.slice(None)?);
        }
        Ok(Rates::median(&rates))
    }

    /// A phase of an attack.
    fn visit(&mut self, number: usize, pairs: usize, first: &Rates) -> Result<(), String> {
        let name = self.phases[number].attack.name();
        phase(name);
        self.phases[number].attack.begin(&self.field);
        let first = if self.phases[number].attack.has_load() {
            self.baseline()?
        } else {
            *first
        };
        let evidence = self.phases[number].attack.evidence();
        let counted = |field: &Field| evidence.map_or(0, |evidence| evidence.count(field));
        let (sent, captured) = (self.attacker.sent, self.attacker.captured);
        let (before, counted_before) = (self.flow.counts(), counted(&self.field));
        let counters = CounterSnapshot::of(&self.field);
        self.flow.slowest();
        let begin = Instant::now();
        let mut peak = 0;
        for pair in 0.. {
            let phase = &self.phases[number];
            let goes_on = || phase.part() < self.goal.rate || phase.attack.wants_more();
            if pair >= pairs && (pair == pairs + MORE_PAIRS || !goes_on()) {
                break;
            }
            let quiet = self.slice(None)?;
            self.facts.refresh(&self.field);
            let attacked = self.slice(Some(number))?;
            self.phases[number].quiet.push(quiet);
            self.phases[number].attacked.push(attacked);
            peak = peak.max(Used::now().since(self.memory).all);
        }
        self.await_newcomer(number, before.newcomers)?;
        let took = begin.elapsed();
        let (after, slowest) = (self.flow.counts(), self.flow.slowest());
        let (sent, captured) = (self.attacker.sent - sent, self.attacker.captured - captured);
        let grown = counters.grown(&self.field);
        let counted = counted(&self.field) - counted_before;
        let lingers = self.lingers(number, &first);
        let verdict = self.end_attack(number);
        let part = self.phases[number].part();
        println!(
            "{name}: {sent} packets in {:.1} s, {}{captured} answers, good flow at {part:.2}, {} newcomers \
             ({} barred) in at most {:.1} s, memory +{peak} KiB",
            took.as_secs_f64(),
            evidence.map_or(String::new(), |_| format!("{counted} counted, ")),
            after.newcomers - before.newcomers,
            after.barred - before.barred,
            slowest.as_secs_f64()
        );
        self.log.look()?;
        let least = evidence.map_or(0.0, |evidence| evidence.part * sent as f64);
        let mut failures: Vec<String> = verdict.err().into_iter().collect();
        let rate = self.goal.rate;
        if part < rate {
            let why = format!("the good flow has {part:.2} of its rate, less than {rate}");
            failures.push(why);
        }
        failures.extend(lingers?);
        if peak > PEAK {
            let why = format!("the kernel uses {peak} KiB more, and may use {PEAK}");
            failures.push(why);
        }
        if slowest > NEWCOMER {
            failures.push(format!("an endpoint took {slowest:?} to connect"));
        }
        if sent == 0 || (counted as f64) < least {
            let why = format!("the hosts have counted {counted} of {sent} packets, not {least:.0}");
            failures.push(why);
        }
        if !failures.is_empty() {
            let phase = &self.phases[number];
            println!("  without the attack: {:.0?}", phase.quiet);
            println!("  under the attack: {:.0?}", phase.attacked);
            println!("  counters: {grown}");
        }
        for why in failures {
            println!("  {why}");
            self.failures.push(format!("{name}: {why}"));
        }
        Ok(())
    }

    /// Continues the attack until more than `before` endpoints have connected. An attack that may
    /// bar newcomers ends at once.
    fn await_newcomer(&mut self, number: usize, before: u64) -> Result<(), String> {
        let begin = Instant::now();
        while self.flow.counts().newcomers == before {
            if self.phases[number].attack.may_bar_newcomers() {
                return Ok(());
            }
            if begin.elapsed() > NEWCOMERS {
                return Err(format!("no endpoint has connected within {NEWCOMERS:?}"));
            }
            self.slice(Some(number))?;
        }
        Ok(())
    }

    /// Checks that the attack does not slow down the slices between its own: then the flow would be
    /// faster some time after its last packet. `first` is the rate before the attack. The phase has
    /// not ended, so [the attack's load](Attack::has_load) goes on. Returns the failure.
    fn lingers(&mut self, number: usize, first: &Rates) -> Result<Option<String>, String> {
        let quiet = Rates::median(&self.phases[number].quiet);
        let rate = self.goal.rate;
        if quiet.part_of(first) >= rate {
            return Ok(None);
        }
        self.pass(None, REST)?;
        let after = self.baseline()?;
        let part = quiet.part_of(&after);
        Ok((part < rate).then(|| {
            format!(
                "the good flow has {part:.2} of its rate, less than {rate}, between the attacks: \
                 {quiet:.0?} messages/s, and {after:.0?} after {REST:?}"
            )
        }))
    }

    /// Runs a slice of time with an attack, or without one. Returns the rates of the flow.
    fn slice(&mut self, attack: Option<usize>) -> Result<Rates, String> {
        self.pass(attack, LEAD)?;
        let (before, begin) = (self.flow.counts(), Instant::now());
        self.pass(attack, self.slice)?;
        let rates = Rates::between(before, self.flow.counts(), begin.elapsed());
        if let Some(why) = self.flow.failure().or_else(|| self.victims.failure()) {
            return Err(why);
        }
        Ok(rates)
    }

    /// Attacks, or not, for this time.
    fn pass(&mut self, attack: Option<usize>, time: Duration) -> Result<(), String> {
        // Between attacks the attacker sends no answers either.
        self.attacker.is_silent = attack.is_none();
        let (begin, cpu) = (Instant::now(), cpu_time());
        while begin.elapsed() < time {
            if let Some(number) = attack {
                let attack = &mut self.phases[number].attack;
                if attack.may_bar_newcomers() {
                    self.flow.bar_newcomers();
                }
                attack.burst(&mut self.attacker, &self.facts, &mut self.rng);
            }
            self.receive()?;
            // Sleeps until the used CPU time is no more than the share.
            let due = (cpu_time() - cpu).div_f64(self.goal.share);
            let pause = due.saturating_sub(begin.elapsed());
            let left = time.saturating_sub(begin.elapsed());
            std::thread::sleep(pause.max(Duration::from_millis(1)).min(left));
        }
        Ok(())
    }

    /// Passes the packets that have arrived to the attacks to which their addresses belong.
    fn receive(&mut self) -> Result<(), String> {
        while let Some(captured) = self.attacker.receive() {
            let to = captured.way.to;
            match attack_of(to).map(usize::from) {
                Some(number) if number < self.phases.len() => {
                    self.phases[number]
                        .attack
                        .receive(&mut self.attacker, &captured);
                }
                // A broadcast address, for instance.
                _ => return Err(format!("{} has sent a packet to {to}", captured.way.from)),
            }
        }
        Ok(())
    }

    /// Checks that the flow is as fast after all attacks as before. The measurement is repeated,
    /// since the machine may have been busy.
    fn still_fast(&mut self, first: &Rates) -> Result<(), String> {
        let mut best = 0.0;
        for _ in 0..BASELINES {
            best = self.baseline()?.part_of(first).max(best);
            if best >= RECOVERED {
                return Ok(());
            }
        }
        Err(format!(
            "after the attacks the good flow has {best:.2} of its first rate, less than {RECOVERED}"
        ))
    }

    /// Ends the victims, waits until the memory has settled, and ends the flow. Returns the
    /// result's line.
    fn end(&mut self, part: f64) -> Result<String, String> {
        let begin = Instant::now();
        let newcomers = self.flow.counts().newcomers;
        let [greeted, given_up] = self.victims.end()?;
        let more = loop {
            let used = Self::used_memory(&self.flow, &mut self.attacker)?;
            let more = used.since(self.memory);
            if more.largest() <= MEMORY {
                break more;
            }
            if begin.elapsed() > SETTLED {
                let after = begin.elapsed().as_secs();
                return Err(format!(
                    "{after} s after the attacks the kernel's memory has grown: {more}; the limit \
                     of each value is {MEMORY} KiB"
                ));
            }
            std::thread::sleep(LOOK);
        };
        let sent = self.attacker.sent;
        println!(
            "{newcomers} newcomers connected, {given_up} of {greeted} silent peers were given up, memory settled \
             after {} s: {more}",
            begin.elapsed().as_secs()
        );
        if newcomers == 0 {
            return Err("no newcomer has connected".into());
        }
        if self
            .wanted
            .iter()
            .any(|number| self.phases[*number].attack.is_silent())
            && given_up == 0
        {
            return Err("no peer that is silent was given up".into());
        }
        self.flow.end()?;
        self.log.look()?;
        Ok(format!(
            "hostile: {sent} packets, good flow at {part:.2} of its rate, memory +{} KiB: ok",
            more.all
        ))
    }
}

/// The CPU time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
