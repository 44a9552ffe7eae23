// SPDX-License-Identifier: GPL-2.0
//! Scenarios that test kfabric.ko from user space, as real programs use it.
//!
//! One file is one room of the interface; a test is a function that panics when it fails. See
//! [`harness`] for how they run, [`host`] for what they stand on.
//!
//! ```text
//! kfi-scenarios [--list] [--exact] [WORD...]    tests whose name contains a WORD, or all
//! ```
//!
//! Output is KTAP; the exit status is 0 if all passed.

mod counters;
mod harness;
mod host;
mod messages;

fn main() -> std::process::ExitCode {
    harness::main(&[counters::TESTS, messages::TESTS])
}
