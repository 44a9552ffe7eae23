// SPDX-License-Identifier: GPL-2.0
//! Memory that becomes present when a test decides: userfaultfd(2).

#![allow(unsafe_code, reason = "a mapping, and calls of userfaultfd")]

use crate::raw::PAGE;
use rustix::mm::{MapFlags, ProtFlags};
use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

// linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

/// A page that is missing. A thread that accesses it waits until the test [brings](Self::bring) it.
pub(crate) struct Missing {
    at: *mut u8,
    uffd: OwnedFd,
    awaited: AtomicBool,
}

impl Missing {
    pub(crate) fn new() -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let at = at.expect("mmap").cast::<u8>();
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).expect("a descriptor");
        assert!(fd >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new, and owned by nothing else.
        let uffd = unsafe { OwnedFd::from_raw_fd(fd) };
        let page = Self {
            at,
            uffd,
            awaited: AtomicBool::new(false),
        };
        page.control(UFFDIO_API, &mut [UFFD_API, 0, 0]);
        let mode = UFFDIO_REGISTER_MODE_MISSING;
        page.control(UFFDIO_REGISTER, &mut [page.addr(), PAGE as u64, mode, 0]);
        page
    }

    #[track_caller]
    fn control<const N: usize>(&self, request: u64, arg: &mut [u64; N]) {
        // SAFETY: each request is called with a structure of the length that is part of its number.
        let result = unsafe { libc::ioctl(self.uffd.as_raw_fd(), request as _, arg.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    pub(crate) fn addr(&self) -> u64 {
        self.at.expose_provenance() as u64
    }

    /// Whether a thread waits, or has waited, for the page.
    pub(crate) fn is_awaited(&self) -> bool {
        let mut message = [0u8; 32];
        // A message is read whole, or not at all.
        if rustix::io::read(&self.uffd, &mut message) == Ok(message.len()) {
            assert_eq!(message[0], UFFD_EVENT_PAGEFAULT);
            self.awaited.store(true, SeqCst);
        }
        self.awaited.load(SeqCst)
    }

    /// Makes the page present, full of zeros, and wakes its waiters.
    pub(crate) fn bring(&self) {
        self.control(UFFDIO_ZEROPAGE, &mut [self.addr(), PAGE as u64, 0, 0]);
    }

    /// The first word of the page, which is present.
    pub(crate) fn first_word(&self) -> u64 {
        // SAFETY: the page is mapped and aligned, and no other thread writes to it any more.
        unsafe { self.at.cast::<u64>().read_volatile() }
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and there are no references into it.
        unsafe {
            let _ = rustix::mm::munmap(self.at.cast(), PAGE);
        }
    }
}
