// SPDX-License-Identifier: GPL-2.0
//! The part of io_uring that waits until a descriptor is readable.

#![allow(unsafe_code, reason = "io_uring")]

use crate::host::until;
use rustix::{
    io_uring::{
        IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp,
        io_uring_cqe, io_uring_enter, io_uring_params, io_uring_setup, io_uring_sqe,
        op_flags_union,
    },
    mm::{MapFlags, ProtFlags},
};
use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release},
    },
};

/// An io_uring with room for a few requests.
pub(crate) struct Uring {
    fd: OwnedFd,
    params: io_uring_params,
    rings: *mut u8,
    rings_len: usize,
    sqes: *mut io_uring_sqe,
    sqes_len: usize,
}

impl Uring {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut params = io_uring_params::default();
        // SAFETY: zeroed parameters ask for the defaults.
        let fd = unsafe { io_uring_setup(8, &mut params) }.expect("io_uring_setup");
        assert!(params.features.contains(IoringFeatureFlags::SINGLE_MMAP));
        let sq = params.sq_off.array as usize + params.sq_entries as usize * 4;
        let cq =
            params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let rings_len = sq.max(cq);
        let sqes_len = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let map = |len, offset| {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, &fd, offset) }
                .expect("mmap of the rings")
        };
        let rings = map(rings_len, IORING_OFF_SQ_RING).cast();
        let sqes = map(sqes_len, IORING_OFF_SQES).cast();
        Self {
            fd,
            params,
            rings,
            rings_len,
            sqes,
            sqes_len,
        }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        assert!(offset as usize + 4 <= self.rings_len);
        // SAFETY: inside the mapping, aligned, and accessed atomically.
        unsafe { AtomicU32::from_ptr(self.rings.add(offset as usize).cast()) }
    }

    /// Requests one report when `fd` is readable.
    pub(crate) fn poll_add(&self, fd: &impl AsFd, user_data: u64) {
        let sqe = io_uring_sqe {
            opcode: IoringOp::PollAdd,
            fd: fd.as_fd().as_raw_fd(),
            // POLLIN, in the low half on machines that are little-endian.
            op_flags: op_flags_union { poll32_events: 1 },
            user_data: user_data.into(),
            ..Default::default()
        };
        let off = &self.params.sq_off;
        let tail = self.word(off.tail).load(Acquire);
        let slot = tail & self.word(off.ring_mask).load(Acquire);
        // SAFETY: the slot is below the number of entries, and nobody else submits.
        unsafe { self.sqes.add(slot as usize).write(sqe) };
        self.word(off.array + 4 * slot).store(slot, Release);
        self.word(off.tail).store(tail.wrapping_add(1), Release);
        let done = self.enter(1, IoringEnterFlags::empty());
        assert_eq!(done, 1, "io_uring_enter took it");
    }

    fn enter(&self, submit: u32, flags: IoringEnterFlags) -> u32 {
        // SAFETY: what is submitted is a poll, which touches no memory.
        unsafe { io_uring_enter(&self.fd, submit, 0, flags) }.expect("io_uring_enter")
    }

    /// The completions: `user_data` and result of each.
    pub(crate) fn completions(&self) -> Vec<(u64, i32)> {
        self.enter(0, IoringEnterFlags::GETEVENTS);
        let off = &self.params.cq_off;
        let mask = self.word(off.ring_mask).load(Acquire);
        let mut head = self.word(off.head).load(Acquire);
        let mut completions = Vec::new();
        while head != self.word(off.tail).load(Acquire) {
            let at = off.cqes as usize + (head & mask) as usize * size_of::<io_uring_cqe>();
            // SAFETY: inside the mapping; the kernel wrote it before the tail.
            let (user_data, result) = unsafe {
                let cqe = self.rings.add(at).cast::<io_uring_cqe>();
                ((*cqe).user_data.u64_(), (*cqe).res)
            };
            completions.push((user_data, result));
            head = head.wrapping_add(1);
        }
        self.word(off.head).store(head, Release);
        completions
    }

    /// The next completion.
    pub(crate) fn next(&self) -> (u64, i32) {
        let mut completions = Vec::new();
        until("something from io_uring", || {
            completions = self.completions();
            !completions.is_empty()
        });
        assert_eq!(completions.len(), 1, "{completions:?}");
        completions[0]
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with these lengths.
        unsafe {
            let _ = rustix::mm::munmap(self.rings.cast(), self.rings_len);
            let _ = rustix::mm::munmap(self.sqes.cast(), self.sqes_len);
        }
    }
}
