// SPDX-License-Identifier: GPL-2.0
//! Observers of a run: threads that sleep on its counters.
//!
//! The counter of a chunk at a rank tells by its value what has happened to the chunk there. A
//! thread for each such counter sleeps until its next value, and notes the time. So a time is that
//! at which this program **saw** the change, a wake-up after it happened; a thread that is woken
//! late may see two changes at once.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kfi::{
    Cntr, Deadline,
    collective::{Action, Counter, Group, Message, Plan},
};
use serde::{Deserialize, Serialize};

/// Largest number of threads.
const MAX_OBSERVERS: usize = 256;

/// Stack of a thread, which does little.
const STACK: usize = 64 << 10;

/// Time in which the threads fall asleep.
const SETTLE: Duration = Duration::from_millis(100);

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

/// The threads that observe the counters of a host.
pub(crate) struct Observers {
    threads: Vec<JoinHandle<Vec<Fired>>>,
}

impl Observers {
    /// Starts threads for the counters, as far as there may be threads: for all ranks of the first
    /// chunks. The times are since `epoch`.
    pub(crate) fn start(group: &Group, epoch: Instant, timeout: Duration) -> Self {
        let ranks = group.ranks().count().max(1);
        let chunks = group.ring().chunks().min((MAX_OBSERVERS / ranks).max(1));
        let mut threads = Vec::new();
        for plan in group.plans() {
            for chunk in 0..chunks {
                let Some(cntr) = group.cntr(plan.rank, Counter::Chunk(chunk)) else {
                    continue;
                };
                let observer = Observer {
                    rank: plan.rank,
                    chunk,
                    base: cntr.value(),
                    cntr: cntr.clone(),
                    milestones: milestones(plan, chunk),
                };
                let body = move || observer.observe(epoch, Deadline::after(timeout));
                // One thread less makes one observation less.
                threads.extend(thread::Builder::new().stack_size(STACK).spawn(body));
            }
        }
        // A thread that is not asleep yet would see the first changes too late.
        thread::sleep(SETTLE);
        Self { threads }
    }

    /// What they saw, in the order of the times.
    pub(crate) fn join(self) -> Vec<Fired> {
        let threads = self.threads.into_iter();
        let mut fired: Vec<Fired> = threads
            .flat_map(|thread| thread.join().unwrap_or_default())
            .collect();
        fired.sort_by_key(|fired| fired.ns);
        fired
    }
}

/// One thread.
struct Observer {
    rank: usize,
    chunk: usize,
    /// The counter's value before the run.
    base: u64,
    cntr: Cntr,
    milestones: Vec<(u64, What)>,
}

impl Observer {
    fn observe(self, epoch: Instant, deadline: Deadline) -> Vec<Fired> {
        let mut fired = Vec::new();
        for (value, what) in self.milestones {
            // What failed has no time; the run itself reports the reason.
            if self.cntr.wait(self.base + value, deadline).is_err() {
                break;
            }
            fired.push(Fired {
                rank: self.rank,
                chunk: self.chunk,
                what,
                ns: nanos(epoch),
            });
        }
        fired
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
