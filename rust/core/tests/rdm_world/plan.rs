// SPDX-License-Identifier: GPL-2.0
//! What a seed decides about a run.

use super::{
    rng::Rng,
    MS,
    US, //
};

/// See the top of the file.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Endpoints.
    pub(crate) ends: usize,
    /// How long programs work.
    pub(crate) work_time: u64,
    /// The largest delay of a packet.
    pub(crate) delay: u64,
    /// Accidents, and how often.
    pub(crate) faults: u64,
    pub(crate) fault_every: u64,
    /// Whether endpoints close and die.
    pub(crate) crashes: bool,
    /// When a QP gives up.
    pub(crate) timeout: u64,
    pub(crate) idle_time: u64,
    pub(crate) depth: u32,
    pub(crate) reads: u8,
    /// Receives, messages and bytes that an endpoint has room for.
    pub(crate) rx_size: usize,
    pub(crate) unexpected: usize,
    pub(crate) budget: u64,
    /// Of ten receives that are wanted, how many are posted late or never.
    pub(crate) lazy: u64,
    /// Loss of letters of connection management: one in so many.
    pub(crate) loss: u64,
    /// Whether old letters come again.
    pub(crate) old_letters: bool,
    /// RMA: one operation in so many.
    pub(crate) rma: u64,
    /// Keys that are wrong: one in so many.
    pub(crate) bad_keys: u64,
    /// Requests that endpoints refuse because they are busy: one in so many.
    pub(crate) busy: u64,
    /// Requests that are accepted, but there is no memory for a QP: one in so many.
    pub(crate) no_memory: u64,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let faults = if rng.one_in(3) { 0 } else { rng.spread(30) };
        let work_time = rng.pick(&[20 * MS, 100 * MS, 500 * MS, 2_000 * MS]);
        Self {
            ends: rng.pick(&[2, 2, 3]),
            work_time,
            delay: rng.pick(&[2 * US, 50 * US, 500 * US, 5 * MS]),
            faults,
            fault_every: (work_time / (faults + 1)).max(1),
            crashes: rng.one_in(2),
            timeout: rng.pick(&[20 * MS, 200 * MS, 1_000 * MS]),
            idle_time: rng.pick(&[MS / 2, 5 * MS, 100 * MS, 60_000 * MS]),
            depth: rng.pick(&[2, 18, 24, 64]),
            reads: rng.pick(&[1, 2, 16]),
            rx_size: rng.pick(&[2, 16, 64]),
            unexpected: rng.pick(&[0, 1, 4, 64]),
            budget: rng.pick(&[0, 100, 10_000, 1 << 20]),
            lazy: rng.below(10),
            loss: rng.pick(&[3, 20, 1_000_000]),
            old_letters: rng.one_in(2),
            rma: rng.pick(&[2, 6, 1_000_000]),
            bad_keys: rng.pick(&[8, 1_000_000_000_000]),
            busy: rng.pick(&[2, 1_000_000, 1_000_000]),
            no_memory: 30,
        }
    }

    /// A plan in which nothing goes wrong.
    pub(crate) fn peaceful() -> Self {
        Self {
            ends: 2,
            work_time: 0,
            delay: 10 * US,
            faults: 0,
            fault_every: 1,
            crashes: false,
            timeout: 200 * MS,
            idle_time: 60_000 * MS,
            depth: 64,
            reads: 16,
            rx_size: 64,
            unexpected: 64,
            budget: 1 << 20,
            lazy: 0,
            loss: u64::MAX,
            old_letters: false,
            rma: u64::MAX,
            bad_keys: u64::MAX,
            busy: u64::MAX,
            no_memory: u64::MAX,
        }
    }

    /// Whether nothing is to fail.
    pub(crate) fn is_peaceful(&self) -> bool {
        self.faults == 0 && self.bad_keys > 1_000
    }
}
