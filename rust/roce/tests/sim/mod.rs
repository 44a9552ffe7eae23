// SPDX-License-Identifier: GPL-2.0
//! A simulator: two QPs, the hosts that drive them, and a network that loses, duplicates, reorders,
//! delays and corrupts datagrams, all determined by one seed.
//!
//! | file | contents |
//! |---|---|
//! | `rng.rs` | pseudo-random numbers from a seed |
//! | `wire.rs` | datagrams: IP, UDP, packet, ICRC; the pcap file |
//! | `net.rs` | the network: delays and faults |
//! | `plan.rs` | the choices of a seed: attributes, network, work |
//! | `oracle.rs` | the expected executions and completions |
//! | `host.rs` | one end: its QP, driven like in the module, its memory, its receives |
//! | `run.rs` | one seed from the first event to the last |
//! | `trace.rs` | a log of one run, for debugging |

#![allow(dead_code, reason = "each test uses its part")]
#![allow(unreachable_pub, reason = "part of several tests")]

pub mod host;
pub mod net;
pub mod oracle;
pub mod plan;
pub mod rng;
pub mod run;
pub mod trace;
pub mod wire;
