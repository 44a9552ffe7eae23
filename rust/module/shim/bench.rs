// SPDX-License-Identifier: GPL-2.0

//! The frame of the benchmarks in the kernel: tasks that wait for a number, and what waking one of
//! them takes.
//!
//! The frame itself is C (`bench.c`), so that what is C and what is Rust is timed by the same code.
//! Built with the suites only (cfg `kfi_kunit`).

use crate::shim::bindings as shim;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// A number that begins at 0, and that tasks wait for.
pub(crate) trait Number: Sync {
    /// Sleeps until the number has reached `round`.
    fn wait(&self, round: u64);
    /// Adds 1.
    fn wake(&self);
}

/// What was measured.
pub(crate) struct Woken {
    /// Nanoseconds from before the add until the sleeper runs, median.
    pub(crate) ns: u64,
    /// How many times any sleeper ran, for `rounds` adds.
    pub(crate) ran: u64,
}

/// Measures `rounds` adds to `number`, for each of which one of `sleepers` tasks waits: another
/// each time if they `rotate`, else the same.
///
/// `ENOMEM`. Process context, sleeps; the caller is bound to one CPU.
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
    // SAFETY: `data` is an `N`, which the two functions expect, and the call returns when all
    // tasks have left them.
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
    // SAFETY: The rest of `bench` is filled in there.
    to_result(unsafe { shim::kfabric_shim_bench_wait_event(&mut bench) })?;
    Ok(Woken {
        ns: bench.median,
        ran: bench.woken,
    })
}

/// Nanoseconds that `count` times `atomic64_add_return()` take.
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
