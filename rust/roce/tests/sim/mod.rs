// SPDX-License-Identifier: GPL-2.0
//! A simulator: two QPs, the hosts that drive them, and a network that loses, duplicates, reorders,
//! delays and corrupts, all from one seed.
//!
//! | file | what |
//! |---|---|
//! | `rng.rs` | numbers from a seed |
//! | `wire.rs` | datagrams: IP, UDP, packet, ICRC; the pcap file |
//! | `net.rs` | what becomes of a datagram |
//! | `plan.rs` | what a seed chooses: attributes, network, work |
//! | `oracle.rs` | what must be executed and completed, and how often |
//! | `host.rs` | an end: its QP driven as the module drives it, its memory, its receives |
//! | `run.rs` | one seed from the first event to the last |
//! | `trace.rs` | what happened, for who looks into a seed |

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
