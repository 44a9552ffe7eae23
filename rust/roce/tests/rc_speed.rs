// SPDX-License-Identifier: GPL-2.0
//! The share of the network's speed that a reliable connection uses, with and without losses.
//!
//! The network has 1 Gbit/s and a round trip of 100 us, in simulated time. `--nocapture` prints the
//! table.

mod sim;

use kfi_roce::{
    headers::SendEnd,
    mtu::PathMtu,
    rc::Op, //
};
use sim::{
    plan::{
        Plan,
        READ_KEY,
        READ_VA,
        WRITE_KEY,
        WRITE_VA, //
    },
    run::{
        Sim, //
        Stats,
    },
    trace::Trace, //
};

const SEND: Op = Op::Send(SendEnd::Plain);
const WRITE: Op = Op::Write {
    va: WRITE_VA,
    rkey: WRITE_KEY,
    imm: None,
};
const READ: Op = Op::Read {
    va: READ_VA,
    rkey: READ_KEY,
};

/// Streams 16 MiB in messages of 64 KiB. Returns megabytes per second, and statistics.
fn stream(mtu: PathMtu, op: Op, loss: u32) -> (u64, Stats) {
    let (len, count) = (64 << 10, 256);
    let plan = Plan::stream(1, mtu, op, len, count, loss);
    let stats = Sim::new(plan, Trace::default()).run();
    let bytes = u64::from(len) * count;
    (bytes * 1_000 / stats.simulated_ns, stats)
}

/// Returns the payload rate of the wire, with 58 bytes of headers and ICRC per packet.
fn best(mtu: PathMtu) -> u64 {
    let mtu = u64::from(mtu.bytes());
    125 * mtu / (mtu + 58)
}

#[test]
fn most_of_the_bandwidth_is_used() {
    println!("MTU   op     loss   MB/s of   sent again  timeouts  probes");
    for mtu in [PathMtu::Mtu1024, PathMtu::Mtu4096] {
        for (name, op) in [("send", SEND), ("write", WRITE), ("read", READ)] {
            for (loss, percent) in [(0, 97), (10, 85), (100, 55), (1_000, 5)] {
                let (speed, stats) = stream(mtu, op, loss);
                println!(
                    "{:4}  {name:5}  {:4}%  {speed:4} {:4}  {:9}  {:8}  {:6}",
                    mtu.bytes(),
                    f64::from(loss) / 100.0,
                    best(mtu),
                    stats.resent,
                    stats.timeouts,
                    stats.probes,
                );
                assert!(
                    speed * 100 >= best(mtu) * percent,
                    "{name} at a loss of {loss} in 10,000: {speed} MB/s"
                );
            }
        }
    }
}
