// SPDX-License-Identifier: GPL-2.0

//! Helpers of the model tests, on the host's atomics.

#![allow(dead_code, unused_imports, reason = "each test uses its part")]

use kfi_core::cntr::CounterValues;
use std::sync::atomic;

mod shared;

pub(crate) use shared::{
    SharedWord as HostWord,
    TreeMap,
    WorkTrees, //
};

/// The values of a counter.
pub(crate) type Values = CounterValues<HostWord, HostWord>;

/// The values of a counter with this maximum; 0: of the full width.
pub(crate) fn values(max: u64) -> Values {
    let word = HostWord::new;
    CounterValues::new(word(), word(), [word(), word()], max)
}
