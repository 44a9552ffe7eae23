// SPDX-License-Identifier: GPL-2.0
//! An allreduce of sixteen endpoints, as deferred work and driven by a program.
//!
//! Both follow the same plan ([`kfi::collective`]). A time is from the start until the program has
//! seen the end; it does not include queueing the work, nor, for the program, posting the receives.

use crate::{
    Result,
    counters::{LINK, device},
    row::{Better, Case, Measurement},
};
use kfi::{
    MrMode,
    collective::{Form, Group, Ring},
};
use std::time::{Duration, Instant};

const RANKS: usize = 16;

/// Longest time of an allreduce.
const SOON: Duration = Duration::from_secs(20);

/// Sixteen endpoints with a vector of this many words.
fn group(words: usize) -> Result<Group> {
    let mode = MrMode::PROV_KEY | MrMode::VIRT_ADDR;
    let domain = device()?.fabric()?.domain(LINK).mr_mode(mode).open()?;
    let mut group = Group::open(&domain, Ring::new(RANKS, words)?, 0, None)?;
    let addresses = group.addresses()?;
    group.meet(&addresses)?;
    for rank in 0..RANKS {
        group.set_input(rank, |word| (rank + word) as u64);
    }
    Ok(group)
}

/// Microseconds of one allreduce, the mean of `rounds`.
fn run(group: &mut Group, form: Form, rounds: u32) -> Result<f64> {
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        group.clear();
        group.prepare(form)?;
        let begin = Instant::now();
        group.start()?;
        group.finish(SOON)?;
        time += begin.elapsed();
    }
    // The sum of the ranks, and the number of the word from each of them.
    let words = group.ring().words();
    let expected = |word| ((0..RANKS).sum::<usize>() + RANKS * word) as u64;
    let output = group.output(RANKS / 2);
    if (0..words).any(|word| output.get(word) != Some(&expected(word))) {
        return Err("the sum is wrong".into());
    }
    Ok(time.as_nanos() as f64 / 1e3 / f64::from(rounds))
}

/// Deferred work beside a program.
fn compare(measurement: &mut Measurement, words: usize, peer: Form, rounds: u32) -> Result<()> {
    let (mut ours, mut theirs) = (group(words)?, group(words)?);
    measurement.take(&mut || run(&mut ours, Form::Deferred, rounds), &mut || {
        run(&mut theirs, peer, rounds)
    })
}

fn of_8_bytes(measurement: &mut Measurement) -> Result<()> {
    compare(measurement, 1, Form::Driven, 20)
}

fn of_8_bytes_adding(measurement: &mut Measurement) -> Result<()> {
    compare(measurement, 1, Form::DrivenAdding, 20)
}

fn of_64_kibibytes(measurement: &mut Measurement) -> Result<()> {
    measurement.at_most(11);
    compare(measurement, 8192, Form::Driven, 3)
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name, peer, goal, measure| Case {
        name,
        unit: "us",
        peer,
        better: Better::Lower,
        goal,
        measure,
    };
    vec![
        case(
            "trigger/allreduce_8B",
            "posted by a program",
            Some(0.5),
            of_8_bytes,
        ),
        // A program need not post an operation to add a word to its own memory.
        case(
            "trigger/allreduce_8B_adding",
            "a program that adds",
            None,
            of_8_bytes_adding,
        ),
        case(
            "trigger/allreduce_64K",
            "posted by a program",
            None,
            of_64_kibibytes,
        ),
    ]
}
