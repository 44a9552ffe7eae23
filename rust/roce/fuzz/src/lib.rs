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

mod rc;
mod wire;

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

/// Takes values from the bytes, and zeros after their end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.take(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number that is mostly small, a power of two, or near one, because such numbers are
    /// close to limits.
    fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=63 => u64::from(byte),
            byte @ 64..=127 => 1 << (byte & 63),
            byte @ 128..=191 => (1 << (byte & 63)) + 1,
            byte @ 192..=247 => (1 << (byte & 63)) - 1,
            _ => self.u64(),
        }
    }
}
