// SPDX-License-Identifier: GPL-2.0
//! Memory that the kernel shares with the program: the page of a counter, the
//! ring of a CQ.

use std::{
    os::fd::AsFd,
    ptr::{self, NonNull},
    sync::atomic::AtomicU64,
};

use rustix::mm;

use crate::error::{Error, Result};

/// A shared mapping of the device, removed on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value; it is accessed atomically or, for
// entries of a ring, by the protocol of `ring`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset`, to read or also to write.
    pub(crate) fn new(fd: impl AsFd, offset: u64, len: usize, writable: bool) -> Result<Self> {
        let prot = if writable {
            mm::ProtFlags::READ | mm::ProtFlags::WRITE
        } else {
            mm::ProtFlags::READ
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches
        // nothing that exists.
        let start =
            unsafe { mm::mmap(ptr::null_mut(), len, prot, mm::MapFlags::SHARED, fd, offset) }
                .map_err(|errno| Error::call("mmap", errno))?;
        let start = NonNull::new(start.cast()).ok_or(Error::Nonsense("a mapping at address 0"))?;
        Ok(Self { start, len })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first byte; valid for `len()` bytes while the mapping lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number at `offset`; loads only, if the mapping is not writable.
    ///
    /// # Panics
    ///
    /// If the offset is not a multiple of 8, or not inside.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.len && self.len - offset >= 8);
        // SAFETY: inside the mapping, which starts at a page; all code accesses
        // it atomically, and it stays mapped as long as `self`.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; borrows of it have ended.
        let result = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn file(len: u64) -> std::fs::File {
        let fd = rustix::fs::memfd_create("kfi-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(fd);
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn words_are_shared() {
        let file = file(4096);
        let ours = Mapping::new(&file, 0, 4096, true).unwrap();
        let theirs = Mapping::new(&file, 0, 4096, false).unwrap();
        ours.word(8).store(7, Relaxed);
        assert_eq!(theirs.word(8).load(Relaxed), 7);
        ours.word(4088).store(9, Relaxed);
        assert_eq!(theirs.word(4088).load(Relaxed), 9);
    }

    #[test]
    #[should_panic]
    fn a_word_past_the_end_panics() {
        let mapping = Mapping::new(file(4096), 0, 4096, false).unwrap();
        let _ = mapping.word(4096);
    }

    #[test]
    #[should_panic]
    fn a_word_between_words_panics() {
        let mapping = Mapping::new(file(4096), 0, 4096, false).unwrap();
        let _ = mapping.word(4);
    }

    #[test]
    fn refusals_name_the_call() {
        let error = Mapping::new(file(0), 1, 4096, false).unwrap_err();
        assert!(error.to_string().starts_with("mmap: "), "{error}");
    }
}
