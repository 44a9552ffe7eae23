// SPDX-License-Identifier: GPL-2.0

//! Benchmarks of the interface for kernel modules: `bench_consumer.c` times calls, and
//! `bench_transfer.c` transfers.
//!
//! Calls are timed as a consumer makes them, through the tables of operations. The consumer's
//! completion handler is timed from the completion, which is queued here, to its beginning.

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use kfi_core::{
    cq::Entry,
    enums, //
};

use super::{
    bench::{
        per,
        Measurement, //
    },
    fixture::{
        ident,
        wait_obj,
        TestDomain, //
    }, //
};
use crate::{
    provider::{
        cq::{
            Cq,
            CqAttr, //
        },
        object::force_close,
        wait::handler::Handler, //
    },
    shim::bindings::{
        self,
        kfabric_bench_call,
        kfabric_bench_calls,
        kfabric_bench_round,
        kfabric_bench_transfer, //
    }, //
};

/// The number of calls that are timed together.
const CALLS: u64 = 200_000;

/// The number of calls of a handler, each timed separately.
const TOLD: u32 = 400;

/// The numbers of round trips, of batches of messages and of their messages, and of large
/// transfers.
const TRIPS: u64 = 2_000;
const BATCHES: u64 = 100;
const BATCH: u64 = bindings::KFABRIC_BENCH_BATCH as u64;
const COPIES: u64 = 500;

/// The time of `CALLS` calls, per call. Fails with `EIO` if they could not be made.
fn per_call(ns: u64) -> Result<Measurement> {
    match ns {
        0 => Err(EIO),
        ns => Ok(Measurement::of(per(ns.saturating_mul(1000), CALLS))),
    }
}

/// Measures a call of a consumer.
fn call(which: kfabric_bench_call) -> Result<Measurement> {
    // The link on which the consumer opens its domain.
    let _test = TestDomain::open()?;
    // SAFETY: Process context.
    per_call(unsafe { bindings::kfabric_bench_consumer(which, CALLS) })
}

/// Measures kfi_cq_read() of an empty CQ.
pub(super) fn cq_read() -> Result<Measurement> {
    call(bindings::KFABRIC_BENCH_CQ_READ)
}

/// Measures kfi_cntr_read().
pub(super) fn cntr_read() -> Result<Measurement> {
    call(bindings::KFABRIC_BENCH_CNTR_READ)
}

/// Measures kfi_cntr_add() without a waiter.
pub(super) fn cntr_add() -> Result<Measurement> {
    call(bindings::KFABRIC_BENCH_CNTR_ADD)
}

/// Measures the call to which they are compared: one that does nothing.
pub(super) fn indirect() -> Result<Measurement> {
    // SAFETY: Any context.
    per_call(unsafe { bindings::kfabric_bench_indirect(CALLS) })
}

/// A CQ, and the address of the round that its handler ends.
struct Told {
    cq: Arc<Cq>,
    round: Arc<Atomic<usize>>,
}

/// Reads the CQ until it is empty, which arms the handler.
///
/// # Safety
///
/// `data` is a valid [`Told`].
unsafe extern "C" fn arm(data: *mut c_void, round: *mut kfabric_bench_round) {
    // SAFETY: By the requirements.
    let told = unsafe { &*data.cast::<Told>() };
    told.round.store(round.expose_provenance(), Relaxed);
    while told.cq.read(1, |_: &[u64], _: u64| Ok(())).is_ok() {}
}

/// Queues a completion.
///
/// # Safety
///
/// `data` is a valid [`Told`].
unsafe extern "C" fn complete(data: *mut c_void) {
    // SAFETY: By the requirements.
    let told = unsafe { &*data.cast::<Told>() };
    told.cq.push_unposted(&Entry::default());
}

/// Measures the time from a completion to the beginning of the handler's call.
pub(super) fn handler() -> Result<Measurement> {
    let test = TestDomain::open()?;
    let round = Arc::new(Atomic::new(0), GFP_KERNEL)?;
    let handler = {
        let round: Arc<Atomic<usize>> = round.clone();
        Handler::new(None, move || {
            let round = core::ptr::with_exposed_provenance_mut(round.load(Relaxed));
            // SAFETY: The address of the present round, which waits for this call.
            unsafe { bindings::kfabric_bench_called(round) };
        })?
    };
    let attr = CqAttr::new(4, 0, wait_obj(enums::WaitObj::None)?, 0)?.of_consumer(Some(handler));
    let cq = Cq::open(&test.domain, attr, ident(4, 4)?)?;
    let told = Told { cq, round };
    let mut bench = kfabric_bench_calls {
        data: core::ptr::from_ref(&told).cast_mut().cast(),
        prepare: Some(arm),
        fire: Some(complete),
        rounds: TOLD,
        ..Default::default()
    };
    // SAFETY: `data` is what the two functions expect, and the call returns when the last call of
    // the handler has begun.
    let ran = to_result(unsafe { bindings::kfabric_bench_calls_run(&mut bench) });
    force_close(&*told.cq);
    if let Some(consumer) = told.cq.consumer() {
        consumer.stop();
    }
    ran?;
    Ok(Measurement::of(bench.median.saturating_mul(1000)))
}

/// Measures the same of a work item.
pub(super) fn queue_work() -> Result<Measurement> {
    let mut bench = kfabric_bench_calls {
        rounds: TOLD,
        ..Default::default()
    };
    // SAFETY: The function fills in the rest of `bench`.
    to_result(unsafe { bindings::kfabric_bench_queue_work(&mut bench) })?;
    Ok(Measurement::of(bench.median.saturating_mul(1000)))
}

/// Measures transfers: the time of each of `count` in a round.
fn transfer(which: kfabric_bench_transfer, rounds: u64, count: u64) -> Result<Measurement> {
    // The link on which the consumer opens its domain.
    let _test = TestDomain::open()?;
    // SAFETY: Process context.
    match unsafe { bindings::kfabric_bench_transfer(which, rounds) } {
        0 => Err(EIO),
        ns => Ok(Measurement::of(per(
            ns.saturating_mul(1000),
            rounds * count,
        ))),
    }
}

/// Measures half of a round trip of 8 bytes.
pub(super) fn latency() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_LATENCY, TRIPS, 2)
}

/// Measures the same with sockets.
pub(super) fn unix_latency() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_UNIX_LATENCY, TRIPS, 2)
}

/// Measures a message of 8 bytes among many.
pub(super) fn message() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_RATE, BATCHES, BATCH)
}

/// Measures the same with sockets.
pub(super) fn unix_message() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_UNIX_RATE, BATCHES, BATCH)
}

/// Measures kfi_write() of 64 KiB.
pub(super) fn write_64k() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_WRITE, COPIES, 1)
}

/// Measures 64 KiB through a socket.
pub(super) fn unix_64k() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_UNIX_LARGE, COPIES, 1)
}

/// Measures memcpy() of 64 KiB.
pub(super) fn memcpy_64k() -> Result<Measurement> {
    transfer(bindings::KFABRIC_BENCH_MEMCPY, COPIES, 1)
}
