// SPDX-License-Identifier: GPL-2.0
//! The fuzzer: seeded sequences of calls, some valid and some invalid, from several threads of two
//! processes at once, while other threads write into every mapped ring and signals interrupt all of
//! them.
//!
//! ```text
//! kfi-scenarios --fuzz SECONDS SEED
//!
//!   this process (judge)          for each round, two children:
//!     repairs the link   ------>    a skeleton that works: queues, counters, endpoints that know
//!     starts the round                each other across the processes (fuzz/round.rs)
//!     kills it, sometimes           workers: calls, mostly right (fuzz/calls.rs) with values at the
//!     looks for what is left          edges (rng.rs)
//!     looks into the kernel's log   a vandal: writes into mapped rings
//!     next seed                     a kicker: signals
//! ```
//!
//! A round is made from its seed, which is printed before it begins, so that it is in the log even
//! if the kernel crashes. The seed of the next round follows from it: `--fuzz` with the seed of a
//! round begins with that round. The seed does not determine the interleaving of threads; a failure
//! by a race may need several rounds to occur again.
//!
//! A round fails if the kernel's log has a fault, if one of its processes does not end in time, or
//! if an object remains when its processes have ended. Then the last calls of its threads are
//! printed ([`trace`]).
//!
//! Each defect that it finds becomes a test with a name.

mod calls;
mod round;
mod shared;
mod trace;

use crate::{
    host::{LINK, device, pair},
    kernel_log::KernelLog,
    rng::{Rng, next_seed, parse_seed},
};
use kfi::{Buffer, StatClass};
use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// Number of processes of a round.
const PROCESSES: u64 = 2;

/// Duration of a round.
const WORK: Duration = Duration::from_millis(700);

/// Longest time for the end of a process, under a slow kernel with all objects open.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the fuzzer, or one of its processes, if the command line has that option.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [flag, seconds, seed] if flag == "--fuzz" => {
            let (Ok(seconds), Some(seed)) = (seconds.parse(), parse_seed(seed)) else {
                eprintln!("kfi-scenarios --fuzz SECONDS SEED: two numbers");
                return Some(ExitCode::from(2));
            };
            Some(judge(Duration::from_secs(seconds), seed))
        }
        [flag, seed, process] if flag == "--fuzz-round" => {
            let seed = parse_seed(seed).expect("a seed");
            let process = process.parse().expect("a number");
            round::run(seed, process, WORK);
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

fn judge(time: Duration, first: u64) -> ExitCode {
    let log = KernelLog::open();
    let begin = Instant::now();
    let mut seed = first;
    let mut rounds = 0u64;
    while begin.elapsed() < time {
        println!("round {rounds} SEED={seed:#x}");
        let judgement = play(seed, rounds).and_then(|()| log.look());
        if let Err(why) = judgement {
            println!("{why}");
            for process in 0..PROCESSES {
                println!("last calls of process {process}:\n{}", trace::read(process));
            }
            println!("# fuzz: failed after {rounds} rounds; SEED={seed:#x} begins with this one");
            return ExitCode::FAILURE;
        }
        seed = next_seed(seed);
        rounds += 1;
    }
    println!("# fuzz: {rounds} rounds from SEED={first:#x}, nothing found");
    ExitCode::SUCCESS
}

/// Runs one round; returns why it failed, if it did.
fn play(seed: u64, number: u64) -> Result<(), String> {
    repair_link();
    let mut rng = Rng::new(seed ^ 0x006a_7564_6765);
    let mut children: Vec<Child> = (0..PROCESSES).map(|process| start(seed, process)).collect();
    let begin = Instant::now();
    // Some rounds are cut off in the middle, one process or both.
    if rng.one_in(3) {
        let after = WORK * rng.below(100) as u32 / 100;
        std::thread::sleep(after);
        for child in &mut children {
            if rng.one_in(2) {
                let _ = child.kill();
            }
        }
    }
    let mut hung = None;
    let mut died = None;
    for child in &mut children {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() && status.signal() != Some(libc::SIGKILL) {
                        died = Some(status);
                    }
                    break;
                }
                _ if begin.elapsed() > PATIENCE => {
                    hung = Some(child.id());
                    break;
                }
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
    if let Some(pid) = hung {
        return Err(format!("process {pid} does not end:\n{}", stacks(pid)));
    }
    if let Some(status) = died {
        return Err(format!("a process died of itself: {status}"));
    }
    nothing_left()?;
    if number % 16 == 15 {
        still_works();
    }
    Ok(())
}

fn start(seed: u64, process: u64) -> Child {
    Command::new(std::env::current_exe().expect("own path"))
        .args(["--fuzz-round", &format!("{seed:#x}"), &process.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .expect("start a process")
}

/// There is one link on `lo`, with the usual name.
fn repair_link() {
    let device = kfi::Device::open().expect("open /dev/kfabric");
    let others: Vec<String> = device
        .links()
        .map(|link| link.expect("link").name)
        .filter(|name| name != LINK)
        .collect();
    for name in others {
        let _ = device.link_del(&name);
    }
    let _ = device.link_add(LINK, "lo");
}

/// The positions of the threads of a process.
fn stacks(pid: u32) -> String {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return String::new();
    };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stack")).ok())
        .collect::<Vec<_>>()
        .join("--\n")
}

/// The objects of ended processes are closed.
fn nothing_left() -> Result<(), String> {
    let device = device();
    let begin = Instant::now();
    loop {
        let left: Vec<_> = StatClass::ALL
            .into_iter()
            .flat_map(|class| device.stats(class))
            .map(|stat| stat.expect("stat"))
            .collect();
        let domains: u32 = device.links().map(|link| link.expect("link").domains).sum();
        if left.is_empty() && domains == 0 {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("left behind: {domains} domains, {left:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A message goes from one endpoint to another.
fn still_works() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 1).expect("recv");
    a.ep.inject(to_b, b"still ok").expect("inject");
    assert_eq!(b.completion().op_context, 1);
    assert_eq!(into.to_vec(..), b"still ok");
}
