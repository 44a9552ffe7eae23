// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams in a simulation with faults; see `rdm_world`.
//!
//! | variable | meaning |
//! |---|---|
//! | `KFI_SIM_SEEDS` | the number of seeds, by default 3,000 |
//! | `KFI_SIM_FIRST` | the first seed, by default 0 |
//! | `KFI_SIM_SEED` | run only this seed and print its events |
//!
//! A failed seed prints the command that runs it alone.

use crate::rdm_world::World;
use std::{
    collections::BTreeMap,
    ops::Range,
    panic::{
        catch_unwind,
        resume_unwind, //
    },
    thread, //
};

type Counts = BTreeMap<String, u64>;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

fn live(seed: u64, trace: bool) -> Counts {
    let mut world = World::new(seed, trace);
    if trace {
        println!("{:#?}", world.plan);
    }
    world.live();
    world.oracle.counts
}

fn add(all: &mut Counts, counts: Counts) {
    for (name, count) in counts {
        *all.entry(name).or_default() += count;
    }
}

fn live_all(seeds: Range<u64>) -> Counts {
    let mut all = Counts::new();
    for seed in seeds {
        match catch_unwind(|| live(seed, false)) {
            Ok(counts) => add(&mut all, counts),
            Err(why) => {
                eprintln!(
                    "seed {seed} fails; to see how:\n    \
                     KFI_SIM_SEED={seed} cargo test --test rdm -- --nocapture"
                );
                resume_unwind(why);
            }
        }
    }
    all
}

#[test]
fn seeds() {
    if let Some(seed) = variable("KFI_SIM_SEED") {
        println!("{:#?}", live(seed, true));
        return;
    }
    let first = variable("KFI_SIM_FIRST").unwrap_or(0);
    let count = variable("KFI_SIM_SEEDS").unwrap_or(3_000);
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let each = count.div_ceil(threads);
    let workers: Vec<_> = (0..threads)
        .map(|at| {
            let begin = (first + at * each).min(first + count);
            let end = (begin + each).min(first + count);
            thread::spawn(move || live_all(begin..end))
        })
        .collect();
    let mut all = Counts::new();
    for worker in workers {
        match worker.join() {
            Ok(counts) => add(&mut all, counts),
            Err(why) => resume_unwind(why),
        }
    }
    println!("{all:#?}");
    if count < 1_000 {
        return;
    }
    // Each of these events must occur in some seed.
    for name in [
        "aborted",
        "atomic: EACCES",
        "atomic: ECANCELED",
        "atomic: ECONNRESET",
        "atomic: ok",
        "close: Closed",
        "close: Idle",
        "close: Lost",
        "close: Reset",
        "close: Superseded",
        "crash",
        "discarded",
        "executed",
        "no room",
        "proven",
        "rc atomic: EACCES",
        "rc atomic: ECONNRESET",
        "rc atomic: ok",
        "receive: ECONNRESET",
        "receive: KFI_ETRUNC",
        "receive: ok",
        "result",
        "retry",
        "rma: EACCES",
        "rma: ECANCELED",
        "rma: ok",
        "send: ECANCELED",
        "send: ECONNREFUSED",
        "send: ECONNRESET",
        "send: EPROTO",
        "send: ETIMEDOUT",
        "send: ok",
        "tagged read: ECANCELED",
        "tagged read: ECONNRESET",
        "tagged read: EMSGSIZE",
        "tagged read: EREMOTEIO",
        "tagged read: ok",
        "tagged write: ECANCELED",
        "tagged write: ECONNRESET",
        "tagged write: EMSGSIZE",
        "tagged write: EREMOTEIO",
        "tagged write: ok",
        "void Atomics",
        "void Messages",
    ] {
        assert!(all.contains_key(name), "{name} never happened");
    }
}
