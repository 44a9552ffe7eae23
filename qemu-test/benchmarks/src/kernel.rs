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
    row::{Better, Case, Measurement},
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

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "cntr/add_idle",
            unit: "ns",
            peer: "atomic64_add_return",
            better: Better::Lower,
            goal: Some(2.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("add_idle"), &mut || ns("atomic64_add_return"))
            },
        },
        Case {
            name: "cntr/wake",
            unit: "ns",
            peer: "wait_event + wake_up",
            better: Better::Lower,
            goal: Some(1.1),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || exactly_one("wake"), &mut || ns("wait_event"))
            },
        },
        Case {
            name: "cntr/wake_1_of_1000",
            unit: "ns",
            peer: "cntr/wake",
            better: Better::Lower,
            goal: Some(1.3),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || exactly_one("wake_1_of_1000"), &mut || ns("wake"))
            },
        },
        Case {
            name: "cntr/wake_1_of_1000 (the same)",
            unit: "ns",
            peer: "cntr/wake",
            better: Better::Lower,
            goal: None,
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || exactly_one("wake_the_same_of_1000"), &mut || {
                    ns("wake")
                })
            },
        },
        Case {
            name: "cntr/wake_1_of_1000 (all)",
            unit: "ns",
            peer: "wait_event, 1000 asleep",
            better: Better::Lower,
            goal: None,
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || exactly_one("wake_1_of_1000"), &mut || {
                    ns("wait_event_1000")
                })
            },
        },
        Case {
            name: "trigger/chain_1000",
            unit: "ns",
            peer: "cntr/add_idle",
            better: Better::Lower,
            goal: Some(20.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("chain_1000"), &mut || ns("add_idle"))
            },
        },
        Case {
            name: "post/admit_start_8B",
            unit: "ns",
            peer: "ioctl/empty",
            better: Better::Lower,
            goal: None,
            measure: |measurement: &mut Measurement| {
                let device = Device::open()?;
                measurement.take(&mut || ns("admit_start"), &mut || {
                    calls::empty_call(&device)
                })
            },
        },
        Case {
            name: "post/from_softirq",
            unit: "ns",
            peer: "in process context",
            better: Better::Lower,
            goal: None,
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("from_softirq"), &mut || ns("admit_start"))
            },
        },
        Case {
            name: "consumer/cq_read (empty)",
            unit: "ns",
            peer: "an indirect call",
            better: Better::Lower,
            goal: Some(2.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("consumer_cq_read"), &mut || ns("indirect_call"))
            },
        },
        Case {
            name: "consumer/cntr_read",
            unit: "ns",
            peer: "an indirect call",
            better: Better::Lower,
            goal: Some(1.5),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("consumer_cntr_read"), &mut || {
                    ns("indirect_call")
                })
            },
        },
        Case {
            name: "consumer/cntr_add",
            unit: "ns",
            peer: "atomic64_add_return",
            better: Better::Lower,
            goal: Some(2.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("consumer_cntr_add"), &mut || {
                    ns("atomic64_add_return")
                })
            },
        },
        Case {
            name: "consumer/handler",
            unit: "ns",
            peer: "queue_work",
            better: Better::Lower,
            goal: None,
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("consumer_handler"), &mut || ns("queue_work"))
            },
        },
        Case {
            name: "consumer/lat_8B",
            unit: "ns",
            peer: "AF_UNIX seqpacket",
            better: Better::Lower,
            goal: Some(1.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || ns("consumer_lat"), &mut || ns("unix_lat"))
            },
        },
        Case {
            name: "consumer/rate_8B",
            unit: "1/s",
            peer: "AF_UNIX seqpacket",
            better: Better::Higher,
            goal: Some(1.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || rate("consumer_message"), &mut || {
                    rate("unix_message")
                })
            },
        },
        Case {
            name: "consumer/write_bw_64K",
            unit: "MB/s",
            peer: "memcpy",
            better: Better::Higher,
            goal: Some(0.9),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || bandwidth("consumer_write_64k"), &mut || {
                    bandwidth("memcpy_64k")
                })
            },
        },
        Case {
            name: "consumer/write_bw_64K (sockets)",
            unit: "MB/s",
            peer: "AF_UNIX stream",
            better: Better::Higher,
            goal: Some(1.0),
            measure: |measurement: &mut Measurement| {
                measurement.take(&mut || bandwidth("consumer_write_64k"), &mut || {
                    bandwidth("unix_64k")
                })
            },
        },
    ]
}
