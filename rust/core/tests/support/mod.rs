// SPDX-License-Identifier: GPL-2.0

//! Helpers of the model tests, on the host's atomics.

#![allow(dead_code, unused_imports, reason = "each test uses its part")]

use std::sync::atomic;

mod shared;

pub(crate) use shared::{
    SharedWord as HostWord,
    TreeMap,
    WorkTrees, //
};
