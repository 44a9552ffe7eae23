// SPDX-License-Identifier: GPL-2.0
//! Feeds hostile packets to a whole QP, without a fuzzer: runs the fuzz target `rc_qp` on random
//! bytes, longer ones than `fuzz_smoke` uses.
//!
//! `KFI_HOSTILE` sets the number of runs, by default 20,000.
//! `KFI_HOSTILE` is how many runs, instead of 20,000.

#[path = "../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "a separate crate for the fuzzer")]
mod targets;

use std::panic::{
    catch_unwind,
    resume_unwind, //
};

#[path = "sim/rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "part of the simulator")]
mod rng;

#[test]
fn hostile_packets_cause_no_defect() {
    let runs = std::env::var("KFI_HOSTILE").map_or(20_000, |runs| runs.parse().unwrap());
    for seed in 0..runs {
        let mut rng = rng::Rng::new(seed);
        let len = rng.range(10, 2_000) as usize;
        // Small numbers have more effect than large ones.
        let mask = rng.pick(&[0xff, 0xff, 0x3f, 0x0f]);
        let bytes: Vec<u8> = (0..len).map(|_| rng.u64() as u8 & mask).collect();
        if let Err(panic) = catch_unwind(|| targets::rc_qp(&bytes)) {
            eprintln!("run {seed} fails");
            resume_unwind(panic);
        }
    }
}
