// SPDX-License-Identifier: GPL-2.0
//! Rows measured inside the kernel: the module's debugfs files, see kunit/bench.rs.
//!
//! - `cntr/wake`: from the beginning of the add to the return of the sleeper's wait, one sleeper.
//!   The peer's are `wake_up()` and `wait_event()`. The sleeper is on the waker's CPU and preempts
//!   it (`SCHED_FIFO`), on both sides: this measures the code between the two, and not the wake-up
//!   of another CPU, which is a thread of the host here.
//! - `cntr/wake_1_of_1000`: the same while a thousand threads sleep, each for a different value.
//!   Every add wakes one of them, and each time it is another one: its stack and its task are as
//!   cold as they are in such a program. The row `(the same)` wakes one of them repeatedly, so that
//!   it differs from `cntr/wake` by the search only.
//! - `trigger/chain_1000`: an add that starts a chain of 1,000 deferred adds, each of which makes
//!   the next one due, for each of them.
//! - `post/admit_start_8B`: a silent message of 8 bytes to a posted receive of another endpoint is
//!   admitted, started and posted in one task. The peer is a system call that does nothing.
//! - `post/from_softirq`: such messages are admitted and started in a softirq, and a worker posts
//!   them. The peer is the row before: the same in process context. Both are the time until the
//!   last message of a batch has arrived, for each message.
//! - `consumer/...`: calls of the interface for kernel modules, made as a consumer makes them. The
//!   peer of two is a call through a table of operations that does nothing. `consumer/handler` is
//!   the time from a completion to the beginning of the completion handler, that of its peer from
//!   `queue_work()` to the beginning of the work item.
//! - `consumer/lat_8B`, `consumer/rate_8B`, `consumer/write_bw_64K`: transfers between two
//!   endpoints of kernel consumers on one host, the first with a thread on either side. The peer is
//!   a pair of sockets that the kernel's own calls use, or `memcpy()`.

use crate::{
    Result, calls, process,
    row::{Case, Measurement},
};
use kfi::Device;

const DIR: &str = "/sys/kernel/debug/kfabric-bench";

/// Runs one benchmark: nanoseconds, and sleepers that ran per operation.
fn run(name: &str) -> Result<(f64, f64)> {
    process::bind()?;
    let path = format!("{DIR}/{name}");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("{path}: {e}; is the module built with its suites?"))?;
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    match (words.next(), words.next()) {
        (Some(Ok(ns)), Some(Ok(ran))) => Ok((ns, ran)),
        _ => Err(format!("{name}: {}", text.trim()).into()),
    }
}

fn ns(name: &str) -> Result<f64> {
    run(name).map(|(ns, _)| ns)
}

/// Messages per second.
fn rate(name: &str) -> Result<f64> {
    ns(name).map(|ns| 1e9 / ns)
}

/// MB/s of a transfer of 64 KiB.
fn bandwidth(name: &str) -> Result<f64> {
    ns(name).map(|ns| 65536e3 / ns)
}

/// Nanoseconds of a wake-up after which exactly one sleeper ran.
fn exactly_one(name: &str) -> Result<f64> {
    let (ns, ran) = run(name)?;
    if (ran - 1.0).abs() > 1e-9 {
        return Err(format!("{name}: {ran} sleepers ran per wake-up, not 1").into());
    }
    Ok(ns)
}

/// Rows: what is better, the name, the unit, the peer and the goal, and both sides.
macro_rules! rows {
    ($(
        $better:ident $name:literal $unit:literal $peer:literal $goal:expr =>
            $ours:expr, $theirs:expr;
    )*) => {
        vec![$(Case::$better($name, $unit, $peer, $goal, |measurement: &mut Measurement| {
            measurement.take(&mut || $ours, &mut || $theirs)
        })),*]
    };
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    rows! {
        lower "cntr/add_idle" "ns" "atomic64_add_return" Some(2.0) =>
            ns("add_idle"), ns("atomic64_add_return");
        lower "cntr/wake" "ns" "wait_event + wake_up" Some(1.1) =>
            exactly_one("wake"), ns("wait_event");
        lower "cntr/wake_1_of_1000" "ns" "cntr/wake" Some(1.3) =>
            exactly_one("wake_1_of_1000"), ns("wake");
        lower "cntr/wake_1_of_1000 (the same)" "ns" "cntr/wake" None =>
            exactly_one("wake_the_same_of_1000"), ns("wake");
        lower "cntr/wake_1_of_1000 (all)" "ns" "wait_event, 1000 asleep" None =>
            exactly_one("wake_1_of_1000"), ns("wait_event_1000");
        lower "trigger/chain_1000" "ns" "cntr/add_idle" Some(20.0) =>
            ns("chain_1000"), ns("add_idle");
        lower "post/admit_start_8B" "ns" "ioctl/empty" None =>
            ns("admit_start"), calls::empty_call(&Device::open()?);
        lower "post/from_softirq" "ns" "in process context" None =>
            ns("from_softirq"), ns("admit_start");
        lower "consumer/cq_read (empty)" "ns" "an indirect call" Some(2.0) =>
            ns("consumer_cq_read"), ns("indirect_call");
        lower "consumer/cntr_read" "ns" "an indirect call" Some(1.5) =>
            ns("consumer_cntr_read"), ns("indirect_call");
        lower "consumer/cntr_add" "ns" "atomic64_add_return" Some(2.0) =>
            ns("consumer_cntr_add"), ns("atomic64_add_return");
        lower "consumer/handler" "ns" "queue_work" None => ns("consumer_handler"), ns("queue_work");
        lower "consumer/lat_8B" "ns" "AF_UNIX seqpacket" Some(1.0) =>
            ns("consumer_lat"), ns("unix_lat");
        higher "consumer/rate_8B" "1/s" "AF_UNIX seqpacket" Some(1.0) =>
            rate("consumer_message"), rate("unix_message");
        higher "consumer/write_bw_64K" "MB/s" "memcpy" Some(0.9) =>
            bandwidth("consumer_write_64k"), bandwidth("memcpy_64k");
        higher "consumer/write_bw_64K (sockets)" "MB/s" "AF_UNIX stream" Some(1.0) =>
            bandwidth("consumer_write_64k"), bandwidth("unix_64k");
    }
}
