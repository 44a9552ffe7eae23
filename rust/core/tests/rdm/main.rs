// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams: the simulator with random faults, and one test for each case.

#[path = "../rdm_world/mod.rs"]
mod rdm_world;

mod rdm_cases;
mod rdm_sim;
