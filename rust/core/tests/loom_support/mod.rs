// SPDX-License-Identifier: GPL-2.0

//! Helpers of the loom tests. loom models C11 instead of the kernel's memory model. A fully ordered
//! operation is therefore an access between two sequentially consistent fences, which is no
//! stronger than the kernel's.

#![allow(dead_code, unused_imports, reason = "each test uses its part")]

use loom::sync::atomic;

#[path = "../support/shared.rs"]
mod shared;

pub(crate) use shared::{
    SharedWord as LoomWord,
    TreeMap,
    WorkTrees, //
};
