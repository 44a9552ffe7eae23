// SPDX-License-Identifier: GPL-2.0
//! A completion counter as a program of verbs reads it: `qemu-test/verbs-comp-cntr.c`, whose second
//! argument is the side.
//!
//! - `verbs/comp_cntr_read`: one `ibv_read_comp_cntr()`, beside a system call.
//! - `verbs/comp_cntr_mapped`: a load of the mapped value, beside a load of private memory.

use super::hosts::{Driver, Host, Hosts};
use crate::{
    Result,
    row::{Case, Measurement},
};

/// The program, where programs of the toolchain root find it.
const PROGRAM: &str = "/tmp/verbs-comp-cntr";

/// Nanoseconds of one operation of `side`.
fn run(side: &str) -> Result<f64> {
    let host = Host::Near;
    let cpu = host.cpu().to_string();
    let device = host.device(Driver::Kfabric);
    let output = host
        .command(&[
            "chroot", "/debian", "taskset", "-c", &cpu, PROGRAM, device, side,
        ])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(value) if output.status.success() => Ok(value),
        _ => Err(format!(
            "{PROGRAM} {side}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into()),
    }
}

fn measure(measurement: &mut Measurement, ours: &str, peer: &str) -> Result<()> {
    Hosts::new(1500)?.with_devices(Driver::Kfabric, || {
        measurement.take(&mut || run(ours), &mut || run(peer))
    })
}

/// The rows.
pub(super) fn cases() -> [Case; 2] {
    [
        Case::lower(
            "verbs/comp_cntr_read",
            "ns",
            "getppid",
            None,
            |measurement| measure(measurement, "read", "call"),
        ),
        Case::lower(
            "verbs/comp_cntr_mapped",
            "ns",
            "load, private memory",
            Some(1.1),
            |measurement| measure(measurement, "mapped", "private"),
        ),
    ]
}
