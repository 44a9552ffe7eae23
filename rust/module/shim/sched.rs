// SPDX-License-Identifier: GPL-2.0

//! Scheduling: `cond_resched()`, pending signals, sleeping, and the clock.

use crate::shim::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    task,
    time::{
        ClockSource,
        Monotonic, //
    },
    types::NotThreadSafe, //
};

/// The time of `CLOCK_MONOTONIC` in nanoseconds, the clock of all deadlines. Any context.
pub(crate) fn now_ns() -> u64 {
    // CAST: The clock is never negative.
    Monotonic::ktime_get() as u64
}

/// The same clock at the last tick, some milliseconds ago. Reading it is cheap. Any context.
pub(crate) fn coarse_now_ns() -> u64 {
    let mut now = kernel::bindings::timespec64::default();
    // SAFETY: Reads the clock into `now`.
    unsafe { kernel::bindings::ktime_get_coarse_ts64(&mut now) };
    // CAST: The monotonic clock is never negative, and ends in 292 years.
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// Calls `cond_resched()`. Process context, no spin lock held.
#[inline]
pub(crate) fn cond_resched() {
    task::might_sleep();
    // SAFETY: May schedule, which the caller's context allows.
    unsafe { bindings::kfabric_shim_cond_resched() }
}

/// The steps of long work between two calls of [`cond_resched`].
const RESCHED_STEPS: usize = 256;

/// Counts the steps of long work, and calls [`cond_resched`] once in [`RESCHED_STEPS`] of them.
pub(crate) struct Resched(usize);

impl Resched {
    /// No steps.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// Counts a step. Process context, no spin lock held.
    pub(crate) fn step(&mut self) {
        self.0 = self.0.wrapping_add(1);
        if self.0 % RESCHED_STEPS == 0 {
            cond_resched();
        }
    }
}

/// Whether the current task is being killed, so that long work should stop. Process context.
#[inline]
pub(crate) fn fatal_signal_pending() -> bool {
    // SAFETY: Only reads the current task.
    unsafe { bindings::kfabric_shim_fatal_signal_pending() }
}

/// Fails with `ERESTARTSYS` if a signal is pending, to end work that a program could prolong
/// without limit. Process context.
pub(crate) fn heed_signals() -> Result {
    if kernel::current!().signal_pending() {
        Err(ERESTARTSYS)
    } else {
        Ok(())
    }
}

/// The nice value of a task: its weight among the tasks that share a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nice(i32);

impl Nice {
    /// That of the current task. Process context.
    pub(crate) fn current() -> Self {
        // SAFETY: Only reads the current task.
        Self(unsafe { bindings::kfabric_shim_nice() })
    }

    /// Gives the current task this value, which is that of another task, until the result is
    /// dropped. Workers call it before long work for a user. Process context.
    #[must_use = "the value is restored when this is dropped"]
    pub(crate) fn borrow(self) -> BorrowedNice {
        let own = Self::current();
        self.set();
        BorrowedNice {
            own,
            _not_send: NotThreadSafe,
        }
    }

    fn set(self) {
        if self != Self::current() {
            // SAFETY: The value was read from a task, so it is in the range. The current task is
            // valid.
            unsafe { bindings::kfabric_shim_set_nice(self.0) }
        }
    }
}

/// See [`Nice::borrow`]. It stays with the task that made it.
pub(crate) struct BorrowedNice {
    own: Nice,
    _not_send: NotThreadSafe,
}

impl Drop for BorrowedNice {
    fn drop(&mut self) {
        self.own.set();
    }
}

/// Sleeps until `until`, on the clock of [`now_ns`]. Fails with `EINTR` if a signal is pending.
/// Process context, no lock held.
pub(crate) fn sleep_until(until: u64) -> Result {
    // SAFETY: May schedule, which the caller's context allows.
    to_result(unsafe { bindings::kfabric_shim_pause_until(until) })
}
