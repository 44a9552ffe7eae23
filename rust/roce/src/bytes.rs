// SPDX-License-Identifier: GPL-2.0
//! Readers and writers for fields of fixed size in big-endian byte order.
//!
//! [`Reader`] takes fields from the front of a slice and returns `None` at its end. [`Writer`]
//! appends fields to a slice and returns `None` when the slice is full. Neither can panic.

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    /// Returns the bytes that have not been read.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let [byte] = self.array()?;
        Some(byte)
    }

    /// Takes two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Appends fields to a slice.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes to the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    /// Returns how many bytes were written.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no byte was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes all of `bytes`, or nothing if there is no room for them.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Skips `len` bytes and leaves their contents as they are.
    #[inline]
    pub fn skip(&mut self, len: usize) -> Option<()> {
        let end = self.len.checked_add(len)?;
        self.bytes.get(self.len..end)?;
        self.len = end;
        Some(())
    }

    /// Writes two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    /// Writes four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    /// Writes eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Option<()> {
        self.put(&value.to_be_bytes())
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_bytes))]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_end_fails() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8(), Some(1));
        assert_eq!(reader.u16(), Some(0x0203));
        assert_eq!(reader.u32(), Some(0x0405_0607));
        assert_eq!(reader.u64(), Some(0x0809_0a0b_0c0d_0e0f));
        // A read beyond the end takes nothing.
        assert_eq!(reader.u16(), None);
        assert_eq!(reader.rest(), [16]);
        assert_eq!(reader.u8(), Some(16));
        assert_eq!(reader.u8(), None);
        assert_eq!(reader.array::<0>(), Some([]));
    }

    #[test]
    fn a_write_beyond_the_end_fails() {
        let mut bytes = [0xff; 13];
        let mut writer = Writer::new(&mut bytes);
        assert_eq!(writer.u16(0x0102), Some(()));
        assert_eq!(writer.skip(2), Some(()));
        assert_eq!(writer.u64(0x0506_0708_090a_0b0c), Some(()));
        // A write that does not fit writes nothing.
        assert_eq!(writer.put(&[13, 14]), None);
        assert_eq!(writer.skip(2), None);
        assert_eq!(writer.len(), 12);
        assert_eq!(writer.put(&[13]), Some(()));
        assert_eq!(writer.u32(0), None);
        assert_eq!(writer.put(&[]), Some(()));
        assert_eq!(writer.len(), 13);
        assert_eq!(bytes, [1, 2, 0xff, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    }
}
