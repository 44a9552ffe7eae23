// SPDX-License-Identifier: GPL-2.0
//! The wire: rxe against rxe, ours against ours, in turn, on one veth pair between two hosts.
//!
//! | file | what |
//! |---|---|
//! | [`hosts`] | the hosts and the cable, used by rxe or by the module |
//! | [`perftest`] | programs that use devices for verbs: those of rxe, or ours |
//! | [`verbs`] | the same programs on our devices and on those of rxe |
//! | [`comp_cntr`] | reading a completion counter of our device |
//! | [`msg`] | ours against ours: connected endpoints |
//! | [`peers`] | many connections |
//! | [`rdm`] | ours against sockets: reliable datagrams |
//!
//! - `roce/send_lat_8B`, `roce/write_lat_8B`: half a round of a ping-pong of SENDs, of RDMA WRITEs;
//!   both ends poll and never sleep, as ib_send_lat and ib_write_lat do.
//! - `roce/send_bw_64K`, `roce/write_bw_64K`, `roce/read_bw_64K`: one way, 128 under way. With
//!   `_loss1` each host loses one of a hundred packets that it sends.
//! - `roce/send_rate_8B`: as the bandwidth, small messages, 32 in a call on both sides.
//!
//! - `roce/peers_*`: the cost of many connections.
//! - `rdm/wire_*`: reliable datagrams, beside sockets on the same cable.
//!
//! - `verbs/*`: programs of perftest on devices of `kfabric_ib.ko`, beside the same programs on rxe;
//!   `verbs/comp_cntr_*`: reading a completion counter, beside a system call or a load.
//!
//! A row whose name ends with `_mtu9000` has that MTU on the veth pair, the others 1500.
//!
//! In a guest whose clock counts instructions ([`crate::count`]) both ends sleep until a completion
//! arrives, on either side: the programs of perftest run with `--events`.

mod comp_cntr;
pub(crate) mod hosts;
mod msg;
mod peers;
mod perftest;
mod rdm;
mod verbs;

use self::{
    hosts::{Driver, Hosts},
    msg::Game,
    perftest::Program,
};
use crate::{
    Result,
    row::{Better, Case, Measure, Measurement},
};

/// Runs of each side: setting up takes longer than measuring.
const RUNS: usize = 7;

/// A cable without losses, and one with losses, per cent.
const GOOD: f64 = 0.0;
const BAD: f64 = 1.0;

/// Operations of a run for latency.
const ROUNDS: u64 = 500;

/// Bytes of a large operation, and operations of a run: a multiple of those in a call.
const LARGE: usize = 64 << 10;
const TRANSFERS: u64 = 512;

/// Small messages of a run.
const MESSAGES: u64 = 8192;

/// A row against rxe, in both MTUs.
struct Both {
    /// With an MTU of 1500, and of 9000.
    names: [&'static str; 2],
    unit: &'static str,
    better: Better,
    goal: f64,
    /// Of the cable, per cent.
    loss: f64,
    size: usize,
    count: u64,
    /// The code of our ends.
    near: fn(&msg::End, Game) -> Result<f64>,
    far: fn(&msg::End, Game) -> Result<()>,
    /// A program of perftest, the name of the peer in the table, its options, and its value.
    program: &'static str,
    peer: &'static str,
    options: &'static str,
    result: fn(&Program) -> Result<f64>,
}

/// Latency; the fields that differ are in the rows.
const LATENCY: Both = Both {
    names: [""; 2],
    unit: "ns",
    better: Better::Lower,
    goal: 0.7,
    loss: GOOD,
    size: 8,
    count: ROUNDS,
    near: msg::ping,
    far: msg::pong,
    program: "",
    peer: "",
    options: "",
    result: Program::latency,
};

/// Bandwidth, likewise.
const BANDWIDTH: Both = Both {
    unit: "MB/s",
    better: Better::Higher,
    goal: 1.5,
    size: LARGE,
    count: TRANSFERS,
    near: msg::send,
    far: msg::nothing,
    options: "-t 128",
    result: Program::bandwidth,
    ..LATENCY
};

/// Bandwidth of messages.
const SEND_BANDWIDTH: Both = Both {
    far: msg::receive,
    program: "ib_send_bw",
    peer: "rxe, ib_send_bw",
    options: "-t 128 -r 128",
    ..BANDWIDTH
};

const ROWS: [Both; 7] = [
    Both {
        names: ["roce/send_lat_8B", "roce/send_lat_8B_mtu9000"],
        program: "ib_send_lat",
        peer: "rxe, ib_send_lat",
        ..LATENCY
    },
    Both {
        names: ["roce/write_lat_8B", "roce/write_lat_8B_mtu9000"],
        near: msg::write_ping,
        far: msg::write_pong,
        program: "ib_write_lat",
        peer: "rxe, ib_write_lat",
        ..LATENCY
    },
    Both {
        names: ["roce/send_bw_64K", "roce/send_bw_64K_mtu9000"],
        ..SEND_BANDWIDTH
    },
    Both {
        names: ["roce/write_bw_64K", "roce/write_bw_64K_mtu9000"],
        near: msg::rma_write,
        program: "ib_write_bw",
        peer: "rxe, ib_write_bw",
        ..BANDWIDTH
    },
    Both {
        names: ["roce/read_bw_64K", "roce/read_bw_64K_mtu9000"],
        near: msg::rma_read,
        program: "ib_read_bw",
        peer: "rxe, ib_read_bw",
        options: "-t 128 -o 16",
        ..BANDWIDTH
    },
    Both {
        names: ["roce/send_rate_8B", "roce/send_rate_8B_mtu9000"],
        unit: "1/s",
        goal: 2.0,
        size: 8,
        count: MESSAGES,
        near: msg::send_many,
        options: "-t 128 -r 128 -l 32",
        result: Program::rate,
        ..SEND_BANDWIDTH
    },
    Both {
        names: ["roce/send_bw_64K_loss1", "roce/send_bw_64K_loss1_mtu9000"],
        goal: 3.0,
        loss: BAD,
        ..SEND_BANDWIDTH
    },
];

fn measure<const ROW: usize, const MTU: u32>(measurement: &mut Measurement) -> Result<()> {
    let row = &ROWS[ROW];
    let hosts = Hosts::new(MTU)?;
    if row.loss > 0.0 {
        hosts.lose(row.loss)?;
    }
    let ours = Game {
        size: row.size,
        count: row.count,
        clock: measurement.clock(),
        near: row.near,
        far: row.far,
    };
    let rxe = Program {
        driver: Driver::Rxe,
        name: row.program,
        options: row.options,
        size: row.size,
        count: row.count,
        clock: measurement.clock(),
    };
    measurement.at_most(RUNS);
    measurement.take(&mut || ours.play(&hosts), &mut || {
        hosts.with_devices(Driver::Rxe, || (row.result)(&rxe))
    })
}

/// A row in both MTUs.
fn cases_of<const ROW: usize>() -> [Case; 2] {
    let row = &ROWS[ROW];
    let [name, name_9000] = row.names;
    [
        (name, measure::<ROW, 1500> as Measure),
        (name_9000, measure::<ROW, 9000>),
    ]
    .map(|(name, measure)| Case {
        name,
        unit: row.unit,
        peer: row.peer,
        better: row.better,
        goal: Some(row.goal),
        measure,
    })
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    [
        cases_of::<0>(),
        cases_of::<1>(),
        cases_of::<2>(),
        cases_of::<3>(),
        cases_of::<4>(),
        cases_of::<5>(),
        cases_of::<6>(),
    ]
    .into_iter()
    .flatten()
    .chain(peers::cases())
    .chain(rdm::cases())
    .chain(verbs::cases())
    .chain(comp_cntr::cases())
    .collect()
}
