// SPDX-License-Identifier: GPL-2.0

//! User memory for the KUnit suites, whose threads have none of their own.
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
    /// Maps `len` bytes, zero.
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

    /// Where it begins.
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    /// Its byte `offset`, for the functions that take user pointers.
    pub(crate) fn ptr(&self, offset: usize) -> UserPtr {
        UserPtr::from_addr(self.addr.wrapping_add(offset))
    }

    /// Writes as the program would.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .writer()
            .write_slice(bytes)
    }

    /// Reads as the program would.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .reader()
            .read_slice(bytes)
    }

    /// Pages that are charged to the current thread's memory.
    pub(crate) fn charged() -> isize {
        // SAFETY: Looks at the current task; no requirements.
        unsafe { shim::kfabric_shim_kunit_pinned() }
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: Mapped by this thread, and nobody has it as a slice.
        unsafe { shim::kfabric_shim_kunit_unmap(self.addr, self.len) }
    }
}
