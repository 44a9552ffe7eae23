// SPDX-License-Identifier: GPL-2.0

//! Giving way to others, noticing to be killed, and the clock.

use crate::shim::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    task, //
};

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of every deadline.
///
/// Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Reads the clock; no requirements.
    let now = unsafe { kernel::bindings::ktime_get() };
    // CAST: The monotonic clock is never negative.
    now as u64
}

/// The same clock as it was at the last tick, at little cost: some milliseconds old.
///
/// Any context.
pub(crate) fn coarse_now_ns() -> u64 {
    let mut now = kernel::bindings::timespec64::default();
    // SAFETY: Fills in `now`, and reads the clock.
    unsafe { kernel::bindings::ktime_get_coarse_ts64(&mut now) };
    // CAST: The monotonic clock is never negative, and ends in 292 years.
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
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

/// For work that goes on as long as a program likes: ends it where a signal asks for that.
///
/// Process context.
///
/// # Errors
///
/// `ERESTARTSYS` a signal is pending.
pub(crate) fn heed_signals() -> Result {
    if kernel::current!().signal_pending() {
        Err(ERESTARTSYS)
    } else {
        Ok(())
    }
}

/// Sleeps until `until`, on the clock of [`now_ns`].
///
/// Process context, no lock held.
///
/// # Errors
///
/// `EINTR` a signal is pending.
pub(crate) fn sleep_until(until: u64) -> Result {
    // SAFETY: May schedule, which the caller's context allows.
    to_result(unsafe { bindings::kfabric_shim_pause_until(until) })
}
