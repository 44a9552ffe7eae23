// SPDX-License-Identifier: GPL-2.0
//! The choices of a seed.

use kfi_core::rdm::times::COOKIE_PERIOD;

use super::{
    rng::Rng,
    MS,
    US, //
};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of endpoints.
    pub(crate) ends: usize,
    /// The time for which programs work.
    pub(crate) work_time: u64,
    /// The longest delay of a packet.
    pub(crate) delay: u64,
    /// The number of faults, and their mean interval.
    pub(crate) faults: u64,
    pub(crate) fault_every: u64,
    /// Whether endpoints close and die.
    pub(crate) crashes: bool,
    /// The time after which a QP fails.
    pub(crate) timeout: u64,
    pub(crate) idle_time: u64,
    pub(crate) depth: u32,
    pub(crate) reads: u8,
    /// The room of an endpoint: receives, messages and bytes.
    pub(crate) rx_size: usize,
    pub(crate) unexpected: usize,
    pub(crate) budget: u64,
    /// The number of receives, of ten, that are posted late or never.
    pub(crate) lazy: u64,
    /// One in this many messages of connection management is lost.
    pub(crate) loss: u64,
    /// Whether old messages arrive again.
    pub(crate) old_messages: bool,
    /// One in this many operations is RMA.
    pub(crate) rma: u64,
    /// One in this many operations is tagged RMA.
    pub(crate) tagged: u64,
    /// One in this many operations is an atomic.
    pub(crate) atomics: u64,
    /// One in this many atomics in SENDs finds no memory at its target.
    pub(crate) no_room: u64,
    /// One in this many keys is wrong.
    pub(crate) bad_keys: u64,
    /// One in this many requests is refused because the endpoint is busy.
    pub(crate) busy: u64,
    /// One in this many requests is accepted, but there is no memory for a QP.
    pub(crate) no_memory: u64,
    /// The number of requests without a valid cookie is limited, and one in this many is refused
    /// below the limit. `None`: there is no limit.
    pub(crate) demands: Option<u64>,
    /// The time after which cookies change. The limit is as many times higher as it is shorter.
    pub(crate) cookie_time: u64,
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
            old_messages: rng.one_in(2),
            rma: rng.pick(&[2, 6, 1_000_000]),
            tagged: rng.pick(&[2, 6, 1_000_000]),
            atomics: rng.pick(&[2, 6, 1_000_000]),
            no_room: rng.pick(&[2, 10, 1_000_000]),
            bad_keys: rng.pick(&[8, 1_000_000_000_000]),
            busy: rng.pick(&[2, 1_000_000, 1_000_000]),
            no_memory: 30,
            demands: rng.pick(&[None, Some(1), Some(2), Some(1_000_000)]),
            cookie_time: rng.pick(&[50 * MS, COOKIE_PERIOD]),
        }
    }

    /// Returns a plan without faults.
    pub(crate) fn without_faults() -> Self {
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
            old_messages: false,
            rma: u64::MAX,
            tagged: u64::MAX,
            atomics: u64::MAX,
            no_room: u64::MAX,
            bad_keys: u64::MAX,
            busy: u64::MAX,
            no_memory: u64::MAX,
            demands: None,
            cookie_time: COOKIE_PERIOD,
        }
    }

    /// Returns whether no operation should fail.
    pub(crate) fn has_no_faults(&self) -> bool {
        self.faults == 0 && self.bad_keys > 1_000
    }
}
