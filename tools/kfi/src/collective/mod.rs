// SPDX-License-Identifier: GPL-2.0
//! A collective operation that runs by itself: an allreduce on a ring, of deferred work alone.
//!
//! [`Ring`] plans it: for each rank a list of operations with the counters that start them and
//! those that count their completions. The plan uses no object of the module, so that it can be
//! looked at and tested by itself. [`Group`] has the endpoints, memory and counters of the ranks of
//! one host and carries the plan out: as deferred work, or driven by the program, to compare.

mod driven;
mod group;
mod plan;
#[cfg(test)]
mod simulation;

pub use group::{Form, Group};
pub use plan::{Action, Counter, MAX_RANKS, Memory, Message, Plan, Ring, RingError, Span, Step};
