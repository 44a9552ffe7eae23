// SPDX-License-Identifier: GPL-2.0
//! RC over a simulated network that loses, duplicates, reorders, delays and corrupts packets; see
//! `sim`.
//!
//! | variable | meaning |
//! |---|---|
//! | `KFI_SIM_SEEDS` | the number of seeds, by default 50,000 |
//! | `KFI_SIM_FIRST` | the first seed, by default 0 |
//! | `KFI_SIM_SEED` | run only this seed, print its trace and write its packets to a file |
//!
//! A failed seed prints the command that runs it alone.

mod sim;

use sim::{
    run::{
        run,
        Stats, //
    },
    trace::Trace, //
};
use std::{
    panic::{
        catch_unwind,
        resume_unwind,
        AssertUnwindSafe, //
    },
    path::PathBuf,
    thread,
    time::Instant, //
};

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Runs one seed with its trace.
fn replay(seed: u64) {
    let trace = Trace::on();
    let result = catch_unwind(AssertUnwindSafe(|| run(seed, trace.clone())));
    for line in trace.lines() {
        println!("{line}");
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("roce-{seed}.pcap"));
    trace.write_pcap(&path).unwrap();
    println!("packets: {}", path.display());
    match result {
        Ok(stats) => println!("{stats:#?}"),
        Err(panic) => resume_unwind(panic),
    }
}

fn run_all(seeds: std::ops::Range<u64>) -> Stats {
    let mut all = Stats::default();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed, Trace::default()))) {
            Ok(stats) => all.add(&stats),
            Err(panic) => {
                eprintln!(
                    "seed {seed} fails; to see how:\n    \
                     KFI_SIM_SEED={seed} cargo test --test rc_sim -- --nocapture"
                );
                resume_unwind(panic);
            }
        }
    }
    all
}

#[test]
fn seeds() {
    if let Some(seed) = variable("KFI_SIM_SEED") {
        return replay(seed);
    }
    let first = variable("KFI_SIM_FIRST").unwrap_or(0);
    let count = variable("KFI_SIM_SEEDS").unwrap_or(50_000);
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let start = Instant::now();
    let each = count.div_ceil(threads);
    let workers: Vec<_> = (0..threads)
        .map(|at| {
            let begin = (first + at * each).min(first + count);
            let end = (begin + each).min(first + count);
            thread::spawn(move || run_all(begin..end))
        })
        .collect();
    let mut all = Stats::default();
    for worker in workers {
        match worker.join() {
            Ok(stats) => all.add(&stats),
            Err(panic) => resume_unwind(panic),
        }
    }
    println!("{all:#?}\nin {:?}", start.elapsed());
}
