// SPDX-License-Identifier: GPL-2.0
//! loom models of data that threads share without a lock.

#[path = "../loom_support/mod.rs"]
mod loom_support;

mod loom_changes;
mod loom_cntr;
mod loom_comp_cntr;
mod loom_left_step;
mod loom_ring;
