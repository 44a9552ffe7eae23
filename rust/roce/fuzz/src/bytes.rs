// SPDX-License-Identifier: GPL-2.0
//! The source of values of the fuzz targets. The fuzz targets of kfi_core use this file too.

/// Takes values from the bytes, and zeros after their end.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.take(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number that is mostly small, a power of two, or near one, because such numbers are
    /// close to limits.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=63 => u64::from(byte),
            byte @ 64..=127 => 1 << (byte & 63),
            byte @ 128..=191 => (1 << (byte & 63)) + 1,
            byte @ 192..=247 => (1 << (byte & 63)) - 1,
            _ => self.u64(),
        }
    }
}
