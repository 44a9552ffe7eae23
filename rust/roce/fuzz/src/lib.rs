// SPDX-License-Identifier: GPL-2.0
//! The fuzz targets, one function each.
//!
//! A target passes arbitrary bytes to a parser or state machine of the crate and panics if the
//! result is wrong: accepted input must be written and parsed again unchanged, refused input must
//! give a documented error, and no limit may be exceeded. A panic of the crate itself is a defect
//! too.
//!
//! [`TARGETS`] lists all targets.

#![forbid(unsafe_code)]

mod bytes;
mod rc;
mod wire;

use bytes::Bytes;

pub use rc::rc_qp;
pub use wire::{
    cm_connection,
    cm_message,
    icrc,
    packet,
    ud, //
};

/// A fuzz target: accepts any bytes, and panics on a defect.
pub type Target = fn(&[u8]);

/// All targets with their names.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet),
    ("icrc", icrc),
    ("ud", ud),
    ("cm_message", cm_message),
    ("cm_connection", cm_connection),
    ("rc_qp", rc_qp),
];
