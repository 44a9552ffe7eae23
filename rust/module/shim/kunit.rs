// SPDX-License-Identifier: GPL-2.0

//! User memory and file descriptors for the KUnit suites, which run in kernel threads without an
//! mm.
//!
//! Built with the suites only (cfg `kfi_kunit`).

use crate::shim::bindings as shim;
use kernel::{
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// Anonymous memory of the current test's thread, unmapped when dropped.
pub(crate) struct UserMemory {
    addr: usize,
    len: usize,
}

impl UserMemory {
    /// Maps `len` zero bytes.
    pub(crate) fn map(len: usize, writable: bool) -> Result<Self> {
        // SAFETY: Called in the thread of a test; no other requirements.
        let addr = unsafe { shim::kfabric_shim_kunit_map(len, writable) };
        if addr < 0 {
            // CAST: Error numbers are small.
            return Err(Error::from_errno(addr as i32));
        }
        Ok(Self {
            // CAST: Not negative.
            addr: addr as usize,
            len,
        })
    }

    /// The address of the first byte.
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    /// The address of byte `offset`, for functions that take user pointers.
    pub(crate) fn ptr(&self, offset: usize) -> UserPtr {
        UserPtr::from_addr(self.addr.wrapping_add(offset))
    }

    /// Writes `bytes`, like a write of the program.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .writer()
            .write_slice(bytes)
    }

    /// Reads to `bytes`, like a read of the program.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .reader()
            .read_slice(bytes)
    }

    /// Pages that are charged to the current thread's mm.
    pub(crate) fn charged() -> isize {
        // SAFETY: Only reads the current task.
        unsafe { shim::kfabric_shim_kunit_pinned() }
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: This thread has mapped it, and there is no slice of it.
        unsafe { shim::kfabric_shim_kunit_unmap(self.addr, self.len) }
    }
}

/// A file descriptor of the current test's thread, closed when dropped.
pub(crate) struct UserFd(u32);

impl UserFd {
    /// Takes over an installed descriptor.
    pub(crate) fn new(fd: i32) -> Self {
        Self(fd.unsigned_abs())
    }

    /// The events that poll(2) finds, without waiting.
    pub(crate) fn poll(&self) -> u32 {
        // SAFETY: Any number is allowed.
        unsafe { shim::kfabric_shim_kunit_poll(self.0) }
    }

    /// read(2) of at most `len` bytes to the beginning of `memory`.
    pub(crate) fn read(&self, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        self.io(false, memory, len, nonblock)
    }

    /// write(2) of `len` bytes from the beginning of `memory`.
    pub(crate) fn write(&self, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        self.io(true, memory, len, nonblock)
    }

    fn io(&self, write: bool, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        // SAFETY: The descriptor is that of an anonymous file, which has both operations.
        let ret =
            unsafe { shim::kfabric_shim_kunit_io(self.0, write, nonblock, memory.addr(), len) };
        // CAST: Error numbers are small.
        usize::try_from(ret).map_err(|_| Error::from_errno(ret as i32))
    }
}

impl Drop for UserFd {
    fn drop(&mut self) {
        // SAFETY: Any number is allowed.
        unsafe { shim::kfabric_shim_kunit_close(self.0) };
    }
}

/// Whether the caller may sleep, as far as the kernel configuration counts what forbids it.
pub(crate) fn may_sleep() -> bool {
    // SAFETY: Only reads the state of this CPU and task.
    unsafe { shim::kfabric_shim_kunit_may_sleep() }
}

/// The kind of interrupt that the caller is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Irq {
    /// None: a task.
    None,
    /// A softirq.
    Soft,
    /// A hard interrupt.
    Hard,
}

impl Irq {
    /// The one that the caller is in.
    pub(crate) fn current() -> Self {
        // SAFETY: Only reads the state of this CPU and task.
        match unsafe { shim::kfabric_shim_kunit_irq() } {
            0 => Self::None,
            1 => Self::Soft,
            _ => Self::Hard,
        }
    }
}
