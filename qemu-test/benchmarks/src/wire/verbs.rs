// SPDX-License-Identifier: GPL-2.0
//! Programs of perftest on devices of `kfabric_ib.ko` and on those of rxe: the same program on both
//! sides, in turn.
//!
//! - `verbs/send_lat_8B`, `write_lat_8B`: half a round of a ping-pong; `read_lat_8B`: a READ.
//! - `verbs/send_bw_64K`, `write_bw_64K`, `read_bw_64K`: one way.
//! - `verbs/send_rate_8B`: small messages by one QP, `send_rate_8B_qp16` by sixteen.

use super::{
    LARGE, MESSAGES, ROUNDS, RUNS, TRANSFERS,
    hosts::{Driver, Hosts},
    perftest::Program,
};
use crate::{
    Result,
    row::{Better, Case, Measure, Measurement},
};

/// A program, and what its row has.
struct Same {
    name: &'static str,
    program: &'static str,
    options: &'static str,
    unit: &'static str,
    better: Better,
    size: usize,
    count: u64,
    result: fn(&Program) -> Result<f64>,
}

const LATENCY: Same = Same {
    name: "",
    program: "",
    options: "",
    unit: "ns",
    better: Better::Lower,
    size: 8,
    count: ROUNDS,
    result: Program::latency,
};

const BANDWIDTH: Same = Same {
    options: "-t 128",
    unit: "MB/s",
    better: Better::Higher,
    size: LARGE,
    count: TRANSFERS,
    result: Program::bandwidth,
    ..LATENCY
};

const RATE: Same = Same {
    program: "ib_send_bw",
    options: "-t 128 -r 128 -l 32",
    unit: "1/s",
    size: 8,
    count: MESSAGES,
    result: Program::rate,
    ..BANDWIDTH
};

const ROWS: [Same; 8] = [
    Same {
        name: "verbs/send_lat_8B",
        program: "ib_send_lat",
        ..LATENCY
    },
    Same {
        name: "verbs/write_lat_8B",
        program: "ib_write_lat",
        ..LATENCY
    },
    Same {
        name: "verbs/read_lat_8B",
        program: "ib_read_lat",
        ..LATENCY
    },
    Same {
        name: "verbs/send_bw_64K",
        program: "ib_send_bw",
        options: "-t 128 -r 128",
        ..BANDWIDTH
    },
    Same {
        name: "verbs/write_bw_64K",
        program: "ib_write_bw",
        ..BANDWIDTH
    },
    Same {
        name: "verbs/read_bw_64K",
        program: "ib_read_bw",
        options: "-t 128 -o 16",
        ..BANDWIDTH
    },
    Same {
        name: "verbs/send_rate_8B",
        ..RATE
    },
    Same {
        name: "verbs/send_rate_8B_qp16",
        options: "-t 128 -r 128 -l 32 -q 16",
        ..RATE
    },
];

fn measure<const ROW: usize>(measurement: &mut Measurement) -> Result<()> {
    let row = &ROWS[ROW];
    let hosts = Hosts::new(1500)?;
    let clock = measurement.clock();
    let run = |driver| {
        let program = Program {
            driver,
            name: row.program,
            options: row.options,
            size: row.size,
            count: row.count,
            clock,
        };
        hosts.with_devices(driver, || (row.result)(&program))
    };
    measurement.at_most(RUNS);
    measurement.take(&mut || run(Driver::Kfabric), &mut || run(Driver::Rxe))
}

fn case<const ROW: usize>() -> Case {
    let row = &ROWS[ROW];
    Case {
        name: row.name,
        unit: row.unit,
        peer: "rxe",
        better: row.better,
        goal: None,
        measure: measure::<ROW> as Measure,
    }
}

/// The rows.
pub(super) fn cases() -> [Case; ROWS.len()] {
    [
        case::<0>(),
        case::<1>(),
        case::<2>(),
        case::<3>(),
        case::<4>(),
        case::<5>(),
        case::<6>(),
        case::<7>(),
    ]
}
