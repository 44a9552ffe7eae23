// SPDX-License-Identifier: GPL-2.0

//! Giving way to others, noticing to be killed, and the clock.

use crate::shim::bindings;
use kernel::task;

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of every deadline.
///
/// Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Reads the clock; no requirements.
    let now = unsafe { kernel::bindings::ktime_get() };
    // CAST: The monotonic clock is never negative.
    now as u64
}

/// Lets others run if it is their turn.
///
/// Process context, no spinlock held.
#[inline]
pub(crate) fn cond_resched() {
    task::might_sleep();
    // SAFETY: May schedule, which the caller's context allows.
    unsafe { bindings::kfabric_shim_cond_resched() }
}

/// Whether the current task is being killed, so that long work should stop.
///
/// Process context.
#[inline]
pub(crate) fn fatal_signal_pending() -> bool {
    // SAFETY: Looks at the current task; no requirements.
    unsafe { bindings::kfabric_shim_fatal_signal_pending() }
}
