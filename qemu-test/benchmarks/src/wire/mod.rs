// SPDX-License-Identifier: GPL-2.0
//! The wire: rxe against rxe, ours against ours, in turn, on one veth pair between two hosts.
//!
//! | file | what |
//! |---|---|
//! | [`hosts`] | the hosts and the cable, in whichever hands they are |
//! | [`perftest`] | rxe against rxe |
//! | [`msg`] | ours against ours: connected endpoints |
//! | [`peers`] | many connections |
//! | [`rdm`] | ours against sockets: reliable datagrams |
//!
//! - `roce/send_lat_8B`, `roce/write_lat_8B`: half a round of a ping-pong of SENDs, of RDMA WRITEs;
//!   both ends look for what comes and never sleep, as ib_send_lat and ib_write_lat do.
//! - `roce/send_bw_64K`, `roce/write_bw_64K`, `roce/read_bw_64K`: one way, 128 under way. With
//!   `_loss1` each host loses one of a hundred packets that it sends.
//! - `roce/send_rate_8B`: as the bandwidth, small messages, 32 in a call on both sides.
//!
//! - `roce/peers_*`: what it costs that there are many connections.
//! - `rdm/wire_*`: reliable datagrams, beside sockets on the same cable.
//!
//! A row whose name ends with `_mtu9000` has that MTU on the veth pair, the others 1500.

mod hosts;
mod msg;
mod peers;
mod perftest;
mod rdm;

use self::{hosts::Hosts, msg::Game, perftest::Program};
use crate::{
    Result,
    row::{Better, Case, Turns},
};

/// Runs of each side: setting up takes longer than measuring.
const RUNS: usize = 7;

/// A cable that loses nothing, and one that does, per cent.
const GOOD: f64 = 0.0;
const BAD: f64 = 1.0;

/// Our side and rxe's of a row.
struct Both {
    ours: Game,
    rxe: Program,
    told: fn(&Program) -> Result<f64>,
}

impl Both {
    fn measure(self, turns: &mut Turns, mtu: u32, loss: f64) -> Result<()> {
        let hosts = Hosts::new(mtu)?;
        if loss > 0.0 {
            hosts.lose(loss)?;
        }
        turns.at_most(RUNS);
        turns.take(&mut || self.ours.play(&hosts), &mut || {
            hosts.with_rxe(|| (self.told)(&self.rxe))
        })
    }
}

/// Operations of a run for latency.
const ROUNDS: u64 = 500;

fn send_lat<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    let (size, count) = (8, ROUNDS);
    Both {
        ours: Game {
            size,
            count,
            near: msg::ping,
            far: msg::pong,
        },
        rxe: Program {
            name: "ib_send_lat",
            options: "",
            size,
            count,
        },
        told: Program::latency,
    }
    .measure(turns, MTU, GOOD)
}

fn write_lat<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    let (size, count) = (8, ROUNDS);
    Both {
        ours: Game {
            size,
            count,
            near: msg::write_ping,
            far: msg::write_pong,
        },
        rxe: Program {
            name: "ib_write_lat",
            options: "",
            size,
            count,
        },
        told: Program::latency,
    }
    .measure(turns, MTU, GOOD)
}

/// Bytes of a large operation, and operations of a run: a multiple of those in a call.
const LARGE: usize = 64 << 10;
const TRANSFERS: u64 = 512;

fn send_bw_with(turns: &mut Turns, mtu: u32, loss: f64) -> Result<()> {
    let (size, count) = (LARGE, TRANSFERS);
    Both {
        ours: Game {
            size,
            count,
            near: msg::send,
            far: msg::receive,
        },
        rxe: Program {
            name: "ib_send_bw",
            options: "-t 128 -r 128",
            size,
            count,
        },
        told: Program::bandwidth,
    }
    .measure(turns, mtu, loss)
}

fn send_bw<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    send_bw_with(turns, MTU, GOOD)
}

fn send_bw_loss<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    send_bw_with(turns, MTU, BAD)
}

fn write_bw<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    let (size, count) = (LARGE, TRANSFERS);
    Both {
        ours: Game {
            size,
            count,
            near: msg::rma_write,
            far: msg::nothing,
        },
        rxe: Program {
            name: "ib_write_bw",
            options: "-t 128",
            size,
            count,
        },
        told: Program::bandwidth,
    }
    .measure(turns, MTU, GOOD)
}

fn read_bw<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    let (size, count) = (LARGE, TRANSFERS);
    Both {
        ours: Game {
            size,
            count,
            near: msg::rma_read,
            far: msg::nothing,
        },
        rxe: Program {
            name: "ib_read_bw",
            options: "-t 128 -o 16",
            size,
            count,
        },
        told: Program::bandwidth,
    }
    .measure(turns, MTU, GOOD)
}

fn send_rate<const MTU: u32>(turns: &mut Turns) -> Result<()> {
    let (size, count) = (8, 8192);
    Both {
        ours: Game {
            size,
            count,
            near: msg::send_many,
            far: msg::receive,
        },
        rxe: Program {
            name: "ib_send_bw",
            options: "-t 128 -r 128 -l 32",
            size,
            count,
        },
        told: Program::rate,
    }
    .measure(turns, MTU, GOOD)
}

/// A row against rxe.
fn case(
    name: &'static str,
    unit: &'static str,
    peer: &'static str,
    goal: f64,
    measure: crate::row::Measure,
) -> Case {
    Case {
        name,
        unit,
        peer,
        better: if unit == "ns" {
            Better::Lower
        } else {
            Better::Higher
        },
        goal: Some(goal),
        measure,
    }
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case(
            "roce/send_lat_8B",
            "ns",
            "rxe, ib_send_lat",
            0.7,
            send_lat::<1500>,
        ),
        case(
            "roce/write_lat_8B",
            "ns",
            "rxe, ib_write_lat",
            0.7,
            write_lat::<1500>,
        ),
        case(
            "roce/send_bw_64K",
            "MB/s",
            "rxe, ib_send_bw",
            1.5,
            send_bw::<1500>,
        ),
        case(
            "roce/write_bw_64K",
            "MB/s",
            "rxe, ib_write_bw",
            1.5,
            write_bw::<1500>,
        ),
        case(
            "roce/read_bw_64K",
            "MB/s",
            "rxe, ib_read_bw",
            1.5,
            read_bw::<1500>,
        ),
        case(
            "roce/send_rate_8B",
            "1/s",
            "rxe, ib_send_bw",
            2.0,
            send_rate::<1500>,
        ),
        case(
            "roce/send_bw_64K_loss1",
            "MB/s",
            "rxe, ib_send_bw",
            3.0,
            send_bw_loss::<1500>,
        ),
        case(
            "roce/send_lat_8B_mtu9000",
            "ns",
            "rxe, ib_send_lat",
            0.7,
            send_lat::<9000>,
        ),
        case(
            "roce/write_lat_8B_mtu9000",
            "ns",
            "rxe, ib_write_lat",
            0.7,
            write_lat::<9000>,
        ),
        case(
            "roce/send_bw_64K_mtu9000",
            "MB/s",
            "rxe, ib_send_bw",
            1.5,
            send_bw::<9000>,
        ),
        case(
            "roce/write_bw_64K_mtu9000",
            "MB/s",
            "rxe, ib_write_bw",
            1.5,
            write_bw::<9000>,
        ),
        case(
            "roce/read_bw_64K_mtu9000",
            "MB/s",
            "rxe, ib_read_bw",
            1.5,
            read_bw::<9000>,
        ),
        case(
            "roce/send_rate_8B_mtu9000",
            "1/s",
            "rxe, ib_send_bw",
            2.0,
            send_rate::<9000>,
        ),
        case(
            "roce/send_bw_64K_loss1_mtu9000",
            "MB/s",
            "rxe, ib_send_bw",
            3.0,
            send_bw_loss::<9000>,
        ),
    ];
    cases.extend(peers::cases());
    cases.extend(rdm::cases());
    cases
}
