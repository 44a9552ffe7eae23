// SPDX-License-Identifier: GPL-2.0

//! Benchmarks in the kernel: tasks that wait for a number, and the time to wake one of them.
//!
//! The code that measures is C (`bench.c`), so that the same code times C and Rust. Built with the
//! suites only (cfg `kfi_kunit`).

use crate::shim::bindings as shim;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// A number that begins at 0 and that tasks wait for.
pub(crate) trait Number: Sync {
    /// Sleeps until the number has reached `round`.
    fn wait(&self, round: u64);
    /// Adds 1.
    fn wake(&self);
}

/// The result of a measurement.
pub(crate) struct Woken {
    /// Nanoseconds from before the add until the sleeper runs, median.
    pub(crate) ns: u64,
    /// How often any sleeper ran, for `rounds` additions.
    pub(crate) ran: u64,
}

/// Measures `rounds` additions to `number`. One of `sleepers` tasks waits for each: a different one
/// each time if they `rotate`, otherwise the same.
///
/// Fails with `ENOMEM`. Process context, sleeps; the caller is bound to one CPU.
pub(crate) fn wake<N: Number>(
    number: &N,
    sleepers: u32,
    rotate: bool,
    rounds: u32,
) -> Result<Woken> {
    let mut bench = shim::kfabric_shim_bench {
        data: core::ptr::from_ref(number).cast_mut().cast(),
        wait: Some(wait_for::<N>),
        wake: Some(wake_one::<N>),
        sleepers,
        rotate,
        rounds,
        ..Default::default()
    };
    // SAFETY: `data` is an `N`, which the two functions expect, and the call returns when all tasks
    // have left them.
    to_result(unsafe { shim::kfabric_shim_bench_run(&mut bench) })?;
    Ok(Woken {
        ns: bench.median,
        ran: bench.woken,
    })
}

/// The same with `wait_event()` and `wake_up()` in C.
pub(crate) fn wait_event(sleepers: u32, rounds: u32) -> Result<Woken> {
    let mut bench = shim::kfabric_shim_bench {
        sleepers,
        rounds,
        ..Default::default()
    };
    // SAFETY: The function fills in the rest of `bench`.
    to_result(unsafe { shim::kfabric_shim_bench_wait_event(&mut bench) })?;
    Ok(Woken {
        ns: bench.median,
        ran: bench.woken,
    })
}

/// Nanoseconds that `count` calls of `atomic64_add_return()` take.
pub(crate) fn atomic_adds(count: u64) -> u64 {
    // SAFETY: No requirements; process context.
    unsafe { shim::kfabric_shim_bench_atomic(count) }
}

/// # Safety
///
/// `data` is a valid `N`.
unsafe extern "C" fn wait_for<N: Number>(data: *mut c_void, round: u64) {
    // SAFETY: By the requirements.
    unsafe { &*data.cast::<N>() }.wait(round);
}

/// # Safety
///
/// `data` is a valid `N`.
unsafe extern "C" fn wake_one<N: Number>(data: *mut c_void) {
    // SAFETY: By the requirements.
    unsafe { &*data.cast::<N>() }.wake();
}
