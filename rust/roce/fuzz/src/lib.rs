// SPDX-License-Identifier: GPL-2.0
//! What the fuzz targets do, one function each.
//!
//! Each takes bytes from nowhere, hands them to what reads them in the crate, and panics if
//! the answer is not what it must be: what is accepted can be written and read again, what is
//! refused is refused with an error that is documented, and nothing is outside its limits. That the
//! crate itself does not panic is tested with it.
//!
//! [`TARGETS`] lists them, for those who run them all.

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

/// A fuzz target: takes any bytes, panics on a defect.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet),
    ("icrc", icrc),
    ("ud", ud),
    ("cm_message", cm_message),
    ("cm_connection", cm_connection),
    ("rc_qp", rc_qp),
];

/// Takes values from bytes; zeros when there are no more.
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

    /// A number that is mostly small, or a power of two, or near one: what finds limits.
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
