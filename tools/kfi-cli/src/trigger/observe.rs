// SPDX-License-Identifier: GPL-2.0
//! The observer of a run: a thread that reads its counters all the time.
//!
//! The counter of a chunk at a rank tells by its value what has happened to the chunk there. The
//! thread reads the mapped values of all counters, one after the other, again and again, and notes
//! the time at the end of each round in which some have changed. So a time is at most one round
//! later than the change, and what one round finds has one time: a change is never shown before
//! another one of the same host that had to come first.
//!
//! A thread that sleeps on each counter would see a change when it is woken, which can be long
//! after the change, and in another order.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kfi::{
    Cntr, Deadline,
    collective::{Action, Counter, Group, Message, Plan},
};
use serde::{Deserialize, Serialize};

/// Largest number of counters: a round over them is to be short.
const MAX_COUNTERS: usize = 256;

/// Longest wait for the first round.
const SETTLE: Duration = Duration::from_secs(1);

/// The state that a counter shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// Partial sums of the chunk have arrived.
    Received,
    /// The endpoint's own input was added.
    Added,
    /// The endpoint has the chunk of the output.
    Output,
}

/// An observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fired {
    /// The rank.
    pub(crate) rank: usize,
    /// The chunk.
    pub(crate) chunk: usize,
    /// What has happened.
    pub(crate) what: What,
    /// When this was seen, in nanoseconds.
    pub(crate) ns: u64,
}

/// The values of a chunk's counter that mean something, for one run.
fn milestones(plan: &Plan, chunk: usize) -> Vec<(u64, What)> {
    let mut found = Vec::new();
    let mut sums = 0;
    let (mut reduce, mut gather) = (false, false);
    for step in &plan.steps {
        match step.action {
            _ if step.completion != Counter::Chunk(chunk) => {}
            Action::Receive { message, .. } => match message {
                Message::Gather(_) => gather = true,
                _ => reduce = true,
            },
            Action::Sum { .. } => sums += 1,
            _ => {}
        }
    }
    if reduce {
        found.push((1, What::Received));
        // The last rank of the reduce has the output then.
        let what = if gather { What::Added } else { What::Output };
        found.push((1 + sums, what));
    }
    if gather {
        found.push((u64::from(reduce) + sums + 1, What::Output));
    }
    found
}

/// The thread that observes the counters of a host.
pub(crate) struct Observer {
    thread: Option<JoinHandle<Vec<Fired>>>,
    stop: Arc<AtomicBool>,
}

impl Observer {
    /// Starts it for as many counters as it may observe: those of all ranks of the first chunks.
    /// The times are since `epoch`.
    pub(crate) fn start(group: &Group, epoch: Instant, timeout: Duration) -> Self {
        let ranks = group.ranks().count().max(1);
        let chunks = group.ring().chunks().min((MAX_COUNTERS / ranks).max(1));
        let mut watched = Vec::new();
        for plan in group.plans() {
            for chunk in 0..chunks {
                let Some(cntr) = group.cntr(plan.rank, Counter::Chunk(chunk)) else {
                    continue;
                };
                watched.push(Watched {
                    rank: plan.rank,
                    chunk,
                    base: cntr.value(),
                    cntr: cntr.clone(),
                    milestones: milestones(plan, chunk).into(),
                });
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = mpsc::channel();
        let (deadline, stopped) = (Deadline::after(timeout), stop.clone());
        let body = move || {
            let over = || stopped.load(Relaxed) || deadline.has_passed();
            rounds(watched, Cntr::value, over, || {
                // The receiver may be gone: only the first round matters.
                let _ = ready.send(());
                nanos(epoch)
            })
        };
        // Without a thread there are no observations; the run does not depend on them.
        let thread = thread::Builder::new().spawn(body).ok();
        // A thread that does not run yet would see the first changes too late.
        let _ = started.recv_timeout(SETTLE);
        Self { thread, stop }
    }

    /// What it saw, in the order of the times, after a run that is complete.
    pub(crate) fn join(mut self) -> Vec<Fired> {
        // One more round finds all that has happened.
        self.stop.store(true, Relaxed);
        let thread = self.thread.take();
        thread.map_or(Vec::new(), |thread| thread.join().unwrap_or_default())
    }
}

impl Drop for Observer {
    /// After a run that failed, the thread ends soon.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// A counter.
struct Watched<C> {
    rank: usize,
    chunk: usize,
    /// The counter's value before the run.
    base: u64,
    cntr: C,
    /// Those that have not been seen.
    milestones: VecDeque<(u64, What)>,
}

/// Reads all counters in turn until every milestone was seen, or, once `over` says so, a last time.
/// `time` gives the time at the end of a round.
fn rounds<C>(
    mut watched: Vec<Watched<C>>,
    value: impl Fn(&C) -> u64,
    over: impl Fn() -> bool,
    mut time: impl FnMut() -> u64,
) -> Vec<Fired> {
    let mut fired: Vec<Fired> = Vec::new();
    loop {
        let last = over();
        let first = fired.len();
        for watched in &mut watched {
            let value = value(&watched.cntr).wrapping_sub(watched.base);
            while let Some((threshold, what)) = watched.milestones.front().copied()
                && threshold <= value
            {
                watched.milestones.pop_front();
                fired.push(Fired {
                    rank: watched.rank,
                    chunk: watched.chunk,
                    what,
                    ns: 0,
                });
            }
        }
        let now = time();
        for fired in &mut fired[first..] {
            fired.ns = now;
        }
        watched.retain(|watched| !watched.milestones.is_empty());
        if watched.is_empty() || last {
            return fired;
        }
        // The tasks of the run may need this CPU.
        thread::yield_now();
    }
}

/// The time since `epoch`, in nanoseconds.
pub(crate) fn nanos(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kfi::collective::Ring;

    /// Observations of three ranks and one chunk.
    pub(crate) fn fired() -> Vec<Fired> {
        let at = |rank, what, ns| Fired {
            rank,
            chunk: 0,
            what,
            ns,
        };
        vec![
            at(1, What::Received, 10_000),
            at(1, What::Added, 12_000),
            at(2, What::Received, 30_000),
            at(2, What::Output, 31_000),
            at(0, What::Output, 50_000),
            at(1, What::Output, 80_000),
        ]
    }

    pub(crate) fn documents() -> Vec<serde_json::Value> {
        fired()
            .iter()
            .map(|fired| super::super::timeline::document(fired, 2))
            .collect()
    }

    /// A change comes before those that it causes, also if the rounds read its counter later.
    #[test]
    fn observations_are_in_the_order_of_causes() {
        use std::cell::Cell;
        let counter = |rank, milestones: &[(u64, What)]| Watched {
            rank,
            chunk: 0,
            base: 10,
            cntr: rank,
            milestones: milestones.iter().copied().collect(),
        };
        let watched = vec![
            counter(0, &[(1, What::Output)]),
            counter(1, &[(1, What::Received), (2, What::Output)]),
        ];
        // Rank 1 receives between the reads of the first round and adds up after them; then rank 0
        // has the output.
        let reads = Cell::new(0);
        let value = |rank: &usize| {
            reads.set(reads.get() + 1);
            match (rank, reads.get()) {
                (0, 1) => 10,
                (1, 2) => 11,
                (0, _) => 11,
                _ => 12,
            }
        };
        let mut now = 0;
        let fired = rounds(
            watched,
            value,
            || false,
            || {
                now += 100;
                now
            },
        );
        let seen: Vec<_> = { fired.iter() }
            .map(|fired| (fired.rank, fired.what, fired.ns))
            .collect();
        assert_eq!(
            seen,
            [
                (1, What::Received, 100),
                (0, What::Output, 200),
                (1, What::Output, 200)
            ]
        );
    }

    #[test]
    fn the_last_round_is_a_whole_one() {
        let watched = vec![Watched {
            rank: 0,
            chunk: 0,
            base: 0,
            cntr: (),
            milestones: [(1, What::Received), (9, What::Output)].into(),
        }];
        let fired = rounds(watched, |()| 1, || true, || 7);
        assert_eq!(fired.len(), 1, "what never comes ends no thread");
        assert_eq!((fired[0].what, fired[0].ns), (What::Received, 7));
    }

    #[test]
    fn values_of_counters_mean_what_the_plan_does() {
        let ring = Ring::new(3, 6).unwrap().max_sum(1);
        // Rank 0 begins with chunk 0, is in the middle of chunk 2 and the last of chunk 1.
        let plan = ring.plan(0);
        assert_eq!(milestones(&plan, 0), [(1, What::Output)]);
        assert_eq!(
            milestones(&plan, 2),
            [(1, What::Received), (3, What::Added), (4, What::Output)]
        );
        assert_eq!(
            milestones(&plan, 1),
            [(1, What::Received), (3, What::Output)]
        );
        for chunk in 0..3 {
            let last = milestones(&plan, chunk).pop().unwrap();
            assert_eq!(last.0, plan.counts(Counter::Chunk(chunk)));
        }
    }
}
