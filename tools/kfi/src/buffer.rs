// SPDX-License-Identifier: GPL-2.0
//! Memory for operations.
//!
//! # Why not slices
//!
//! The kernel reads and writes the memory of an operation while the program
//! runs on: until the completion, and for a registered region at any time.  No
//! `&[u8]` or `&mut [u8]` to such memory may exist.  So operations take their
//! memory from a [`Buffer`], which only copies data in and out: each byte is
//! read and written atomically, and a read during a peer's write returns the
//! bytes that have arrived.
//!
//! # When a buffer is dropped
//!
//! A buffer is a mapping of its own, never memory of the allocator.  The kernel
//! holds on to its *pages* from the moment an operation is posted or a region
//! registered.  Dropping the buffer unmaps the pages from the program's address
//! space; an operation that is still under way ends in pages that are not
//! mapped any more.  Its data is lost then, but it changes no other memory. A
//! program that needs the data keeps the buffer until the completion.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Bound, Range, RangeBounds},
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use rustix::mm;

use crate::error::{Error, Result};

/// Memory for operations: whole pages, zeroed, shared by its clones.
///
/// ```
/// let buffer = kfi::Buffer::new(100)?;
/// buffer.write_at(10, b"hello");
/// let mut out = [0; 7];
/// buffer.read_at(9, &mut out);
/// assert_eq!(&out, b"\0hello\0");
/// # Ok::<(), kfi::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer {
    pages: Arc<Pages>,
}

struct Pages {
    start: NonNull<u8>,
    len: usize,
    mapped: usize,
}

// SAFETY: the memory belongs to this value, is never handed out as a
// reference, and all accesses are atomic.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `Buffer::new` or `Buffer::map` with this length, and this was the
        // last reference.
        let result = unsafe { mm::munmap(self.start.as_ptr().cast(), self.mapped) };
        debug_assert!(result.is_ok());
    }
}

impl Buffer {
    /// `len` bytes of zeros, at the start of a page.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EAGAIN` as mmap(2) has them.
    pub fn new(len: usize) -> Result<Self> {
        let page = rustix::param::page_size();
        let mapped = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or(Error::call("mmap", rustix::io::Errno::NOMEM))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches
        // nothing that exists.
        let start = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                mapped,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE,
            )
        }
        .map_err(|errno| Error::call("mmap", errno))?;
        let start = NonNull::new(start.cast()).ok_or(Error::Nonsense("a mapping at address 0"))?;
        Ok(Self {
            pages: Arc::new(Pages { start, len, mapped }),
        })
    }

    /// `len` bytes of shared memory at `offset` of a descriptor, such as a
    /// DMA-BUF: others that map it see what is written.
    ///
    /// # Errors
    ///
    /// Those of mmap(2).
    pub fn map(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self> {
        let page = rustix::param::page_size();
        let mapped = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or(Error::call("mmap", rustix::io::Errno::NOMEM))?;
        let prot = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches
        // nothing that exists.
        let start = unsafe {
            mm::mmap(
                ptr::null_mut(),
                mapped,
                prot,
                mm::MapFlags::SHARED,
                fd,
                offset,
            )
        }
        .map_err(|errno| Error::call("mmap", errno))?;
        let start = NonNull::new(start.cast()).ok_or(Error::Nonsense("a mapping at address 0"))?;
        Ok(Self {
            pages: Arc::new(Pages { start, len, mapped }),
        })
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Buffer::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let buffer = Self::new(bytes.len())?;
        buffer.write_at(0, bytes);
        Ok(buffer)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.pages.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in this process, which peers use with
    /// [`MrMode::VIRT_ADDR`](crate::MrMode::VIRT_ADDR).
    pub fn addr(&self) -> u64 {
        self.pages.start.as_ptr().addr() as u64
    }

    /// Pointer to the first byte, for code that does its own synchronisation.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pages.start.as_ptr()
    }

    /// The number at `offset`.
    ///
    /// # Panics
    ///
    /// If the offset is not a multiple of 8, or the buffer ends before.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        let range = self.range(offset, 8);
        // SAFETY: inside the mapping, which starts at a page; all code accesses
        // it atomically, and it stays mapped as long as `self`.
        unsafe { AtomicU64::from_ptr(self.as_ptr().add(range.start).cast()) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    ///
    /// If the buffer ends before.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) {
        let range = self.range(offset, bytes.len());
        // SAFETY: the range is inside the mapping.
        unsafe { store(self.as_ptr().add(range.start), bytes) }
    }

    /// Copies from `offset` to `bytes`.
    ///
    /// # Panics
    ///
    /// If the buffer ends before.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) {
        let range = self.range(offset, bytes.len());
        // SAFETY: the range is inside the mapping.
        unsafe { load(self.as_ptr().add(range.start), bytes) }
    }

    /// A copy of the bytes in `range`.
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Vec<u8> {
        let range = resolve(range, self.len());
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes);
        bytes
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        let block = [byte; 4096];
        for offset in (0..self.len()).step_by(block.len()) {
            let len = block.len().min(self.len() - offset);
            self.write_at(offset, &block[..len]);
        }
    }

    /// A part, for an operation.
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_> {
        Slice::from(self).slice(range)
    }

    fn range(&self, offset: usize, len: usize) -> Range<usize> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => offset..end,
            _ => panic!("{len} bytes at {offset} of a buffer of {}", self.len()),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.addr(), self.len())
    }
}

/// A part of a [`Buffer`], which lives as long as `'a`; of a memory region, if
/// [`Mr::slice`](crate::Mr::slice) gave it.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    addr: u64,
    len: usize,
    /// Handle of the memory region, 0: none.
    mr: u32,
    buffer: PhantomData<&'a Buffer>,
}

impl<'a> Slice<'a> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte in this process.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// A part of it.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'a> {
        let range = resolve(range, self.len);
        Self {
            addr: self.addr + range.start as u64,
            len: range.len(),
            ..*self
        }
    }

    /// The same bytes, as part of this region.
    pub(crate) fn of_region(self, mr: u32) -> Self {
        Self { mr, ..self }
    }

    pub(crate) fn region(&self) -> u32 {
        self.mr
    }
}

impl<'a> From<&'a Buffer> for Slice<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self {
            addr: buffer.addr(),
            len: buffer.len(),
            mr: 0,
            buffer: PhantomData,
        }
    }
}

/// The range that `bounds` selects from `len` bytes.
fn resolve(bounds: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match bounds.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match bounds.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    assert!(
        start <= end && end <= len,
        "range {start}..{end} of {len} bytes"
    );
    start..end
}

/// Bytes up to the next multiple of 8, then whole words, then the rest.
fn parts(addr: usize, len: usize) -> (usize, usize) {
    let head = (addr.wrapping_neg() % 8).min(len);
    (head, (len - head) / 8)
}

/// Copies out of shared memory.
///
/// # Safety
///
/// `from` is valid for atomic reads of as many bytes as `to` has.
unsafe fn load(mut from: *mut u8, to: &mut [u8]) {
    let (head, words) = parts(from.addr(), to.len());
    let (head, rest) = to.split_at_mut(head);
    let (body, tail) = rest.split_at_mut(words * 8);
    // SAFETY: `from` moves on with `to`, and is a multiple of 8 for the words.
    unsafe {
        for byte in head {
            *byte = AtomicU8::from_ptr(from).load(Relaxed);
            from = from.add(1);
        }
        for word in body.chunks_exact_mut(8) {
            let value = AtomicU64::from_ptr(from.cast()).load(Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
            from = from.add(8);
        }
        for byte in tail {
            *byte = AtomicU8::from_ptr(from).load(Relaxed);
            from = from.add(1);
        }
    }
}

/// Copies into shared memory.
///
/// # Safety
///
/// `to` is valid for atomic writes of as many bytes as `from` has.
unsafe fn store(mut to: *mut u8, from: &[u8]) {
    let (head, words) = parts(to.addr(), from.len());
    let (head, rest) = from.split_at(head);
    let (body, tail) = rest.split_at(words * 8);
    // SAFETY: `to` moves on with `from`, and is a multiple of 8 for the words.
    unsafe {
        for byte in head {
            AtomicU8::from_ptr(to).store(*byte, Relaxed);
            to = to.add(1);
        }
        for word in body.chunks_exact(8) {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(value), Relaxed);
            to = to.add(8);
        }
        for byte in tail {
            AtomicU8::from_ptr(to).store(*byte, Relaxed);
            to = to.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn begins_as_zeros_at_a_page() {
        let buffer = Buffer::new(10).unwrap();
        assert_eq!(buffer.addr() % rustix::param::page_size() as u64, 0);
        assert_eq!(buffer.to_vec(..), [0; 10]);
        assert_eq!(buffer.len(), 10);
    }

    #[test]
    fn may_be_empty() {
        let buffer = Buffer::new(0).unwrap();
        assert!(buffer.is_empty());
        assert_eq!(buffer.to_vec(..), []);
        assert!(buffer.slice(..).is_empty());
    }

    #[test]
    fn too_large_is_an_error() {
        for len in [usize::MAX, usize::MAX / 2] {
            let error = Buffer::new(len).unwrap_err();
            assert!(error.is(crate::Errno::ENOMEM), "{error}");
        }
    }

    #[test]
    fn clones_share() {
        let one = Buffer::from_bytes(b"abc").unwrap();
        let two = one.clone();
        two.write_at(1, b"x");
        drop(two);
        assert_eq!(one.to_vec(..), b"axc");
        one.fill(7);
        assert_eq!(one.to_vec(1..), [7, 7]);
    }

    #[test]
    fn slices_are_parts() {
        let buffer = Buffer::new(100).unwrap();
        let part = buffer.slice(10..=19).slice(5..);
        assert_eq!((part.addr() - buffer.addr(), part.len()), (15, 5));
        assert_eq!(part.region(), 0);
        assert_eq!(part.of_region(3).slice(1..2).region(), 3);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 9 of a buffer of 10")]
    fn writing_past_the_end_panics() {
        Buffer::new(10).unwrap().write_at(9, b"ab");
    }

    #[test]
    #[should_panic(expected = "of a buffer of 10")]
    fn a_wrapping_offset_panics() {
        Buffer::new(10).unwrap().read_at(usize::MAX, &mut [0]);
    }

    #[test]
    #[should_panic(expected = "range 5..11 of 10 bytes")]
    fn a_slice_past_the_end_panics() {
        let _ = Buffer::new(10).unwrap().slice(5..11);
    }

    #[test]
    #[should_panic(expected = "range 6..5 of 10 bytes")]
    #[expect(clippy::reversed_empty_ranges)]
    fn a_reversed_slice_panics() {
        let _ = Buffer::new(10).unwrap().slice(6..5);
    }

    #[test]
    fn words_are_aligned() {
        for addr in 0..16 {
            for len in 0..40 {
                let (head, words) = parts(addr, len);
                assert!(words == 0 || (addr + head).is_multiple_of(8));
                assert!(head < 8 && head + 8 * words <= len);
                assert!(len - head - 8 * words < 8);
            }
        }
    }

    #[test]
    fn threads_may_race() {
        let buffer = Buffer::new(4096).unwrap();
        std::thread::scope(|scope| {
            for byte in 1..4u8 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for _ in 0..100 {
                        buffer.write_at(1, &[byte; 4000]);
                        let seen = buffer.to_vec(1..4001);
                        assert!(seen.iter().all(|b| (1..4).contains(b)));
                    }
                });
            }
        });
    }

    proptest! {
        /// Compares with a vector, at every alignment.
        #[test]
        fn copies_behave_as_those_of_a_vector(writes in prop::collection::vec(
            (0usize..64, prop::collection::vec(any::<u8>(), 0..40)), 0..20))
        {
            let buffer = Buffer::new(128).unwrap();
            let mut model = vec![0u8; 128];
            for (offset, bytes) in writes {
                buffer.write_at(offset, &bytes);
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                let mut part = vec![0; bytes.len() + 3];
                buffer.read_at(offset, &mut part);
                prop_assert_eq!(&part, &model[offset..offset + part.len()]);
            }
            prop_assert_eq!(buffer.to_vec(..), model);
        }
    }
}
