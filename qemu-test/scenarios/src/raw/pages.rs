// SPDX-License-Identifier: GPL-2.0
//! Memory of a test that ends where accesses fault.

#![allow(unsafe_code, reason = "memory with holes")]

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// The length of a page.
pub(crate) const PAGE: usize = 4096;

/// Pages with a hole behind them.
pub(crate) struct Pages {
    at: *mut u8,
    len: usize,
}

// SAFETY: the memory is accessed by copying only, by one thread of a test at a time.
unsafe impl Sync for Pages {}

impl Pages {
    /// `count` pages that can be read and written, and an unmapped one behind them.
    pub(crate) fn new(count: usize) -> Self {
        let len = count * PAGE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; its last page is ours.
        let at = unsafe {
            let at = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len + PAGE,
                prot,
                MapFlags::PRIVATE,
            )
            .expect("mmap")
            .cast::<u8>();
            rustix::mm::munmap(at.add(len).cast(), PAGE).expect("munmap");
            at
        };
        // The pages are present, so that only the test decides which access faults.
        let pages = Self { at, len };
        pages.write(0, &vec![0; len]);
        pages
    }

    /// Makes them read-only, or inaccessible.
    pub(crate) fn protect(&self, readable: bool) {
        let flags = if readable {
            MprotectFlags::READ
        } else {
            MprotectFlags::empty()
        };
        // SAFETY: the pages are ours, and nobody holds a reference into them.
        unsafe { rustix::mm::mprotect(self.at.cast(), self.len, flags) }.expect("mprotect");
    }

    /// Where they begin.
    pub(crate) fn addr(&self) -> u64 {
        self.at.expose_provenance() as u64
    }

    /// The address with `len` bytes before the hole.
    pub(crate) fn before_hole(&self, len: usize) -> u64 {
        self.addr() + (self.len - len) as u64
    }

    /// The hole.
    pub(crate) fn hole(&self) -> u64 {
        self.addr() + self.len as u64
    }

    /// Writes at `offset`.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: within the pages, which are writable unless a test is wrong (and then crashes).
        unsafe {
            self.at
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads at `offset`.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: within the pages.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), len) }.to_vec()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours.
        unsafe {
            let _ = rustix::mm::munmap(self.at.cast(), self.len);
        }
    }
}
