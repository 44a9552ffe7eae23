// SPDX-License-Identifier: GPL-2.0
//! DMA-BUFs of the two exporters that a guest has: udmabuf, and the system heap.

#![allow(unsafe_code, reason = "ioctls of devices that export DMA-BUFs")]

use crate::raw::PAGE;
use kfi::Buffer;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Memory of a DMA-BUF.
pub(crate) struct DmaBuf {
    pub(crate) fd: OwnedFd,
    /// Mapped by this process.
    pub(crate) memory: Buffer,
}

/// The exporters of DMA-BUFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exporter {
    Udmabuf,
    SystemHeap,
}

impl Exporter {
    pub(crate) const ALL: [Self; 2] = [Self::Udmabuf, Self::SystemHeap];

    /// A DMA-BUF of this many pages.
    pub(crate) fn make(self, pages: usize) -> DmaBuf {
        let len = pages * PAGE;
        let fd = match self {
            Self::Udmabuf => Shared::new(len).dma_buf,
            Self::SystemHeap => system_heap(len, libc::O_RDWR),
        };
        let memory = Buffer::map(fd.as_fd(), 0, len).expect("mmap of a DMA-BUF");
        DmaBuf { fd, memory }
    }
}

/// Makes an ioctl on a device that makes DMA-BUFs; returns its result.
fn ioctl<T>(path: &str, request: u64, arg: &mut T) -> i32 {
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    // SAFETY: `arg` is the structure of the request.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request as _, arg) };
    assert!(result >= 0, "{path}: {}", std::io::Error::last_os_error());
    result
}

/// A DMA-BUF of the pages of a memfd.
pub(crate) struct Shared {
    pub(crate) memfd: OwnedFd,
    pub(crate) dma_buf: OwnedFd,
}

impl Shared {
    /// With this many bytes.
    pub(crate) fn new(len: usize) -> Self {
        /// `struct udmabuf_create` of <linux/udmabuf.h>.
        #[repr(C)]
        struct Create {
            memfd: u32,
            flags: u32,
            offset: u64,
            size: u64,
        }
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("counts", flags).expect("memfd");
        rustix::fs::ftruncate(&memfd, len as u64).expect("ftruncate");
        rustix::fs::fcntl_add_seals(&memfd, rustix::fs::SealFlags::SHRINK).expect("seal");
        let mut create = Create {
            memfd: memfd.as_raw_fd() as u32,
            flags: 1,
            offset: 0,
            size: len as u64,
        };
        let fd = ioctl("/dev/udmabuf", 0x4018_7542, &mut create);
        // SAFETY: the call has made it for us.
        let dma_buf = unsafe { OwnedFd::from_raw_fd(fd) };
        Self { memfd, dma_buf }
    }
}

/// A DMA-BUF of the system heap, opened with `flags`.
pub(crate) fn system_heap(len: usize, flags: i32) -> OwnedFd {
    /// `struct dma_heap_allocation_data` of <linux/dma-heap.h>.
    #[repr(C)]
    struct Alloc {
        len: u64,
        fd: u32,
        fd_flags: u32,
        heap_flags: u64,
    }
    let mut alloc = Alloc {
        len: len as u64,
        fd: 0,
        fd_flags: (flags | libc::O_CLOEXEC) as u32,
        heap_flags: 0,
    };
    ioctl("/dev/dma_heap/system", 0xc018_4800, &mut alloc);
    // SAFETY: the call has made it for us.
    unsafe { OwnedFd::from_raw_fd(alloc.fd as i32) }
}
