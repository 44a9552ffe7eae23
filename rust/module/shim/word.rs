// SPDX-License-Identifier: GPL-2.0

//! 64-bit words that several CPUs, or user space, change without a lock.
//!
//! The operations follow the kernel's memory model, as in `kernel::sync::atomic`, whose operations
//! are calls of C functions. Adding to a counter is one atomic addition and one load, and each call
//! would cost about as much. So the frequent operations are implemented here, for x86-64, the only
//! architecture of this module: a plain load is an acquire and a plain store is a release there,
//! and a locked instruction is a full barrier.
//!
//! # Cost
//!
//! Instructions for each operation of a row, counted by `qemu-test/bench --cost`: with the
//! functions of this file, and with those of `kernel::sync::atomic` in their place.
//!
//! | functions | row | here | calls |
//! |---|---|---|---|
//! | all | `cntr/add_idle` | 15 | 24 |
//! | | `call/post (per 64 injects)` | 1360 | 1526 |
//! | `fetch_add` | `cntr/add_idle` | 15 | 19 |
//! | | `call/post (per 64 injects)` | 1360 | 1427 |
//! | `load_acquire`, `store_release` | `rdm/local_lat_8B (CQ)` | 5855 | 5936 |
//! | | `call/cq_read (1 entry)` | 1118 | 1131 |
//!
//! `swap` and `compare_exchange` are calls: in assembler they gained 0.6 % of `cntr/wake` and of
//! `rdm/local_lat_8B`, and nothing elsewhere.

use kernel::sync::atomic::{
    Atomic,
    Full, //
};
use kfi_core::word::Word;

/// A 64-bit word that is shared without a lock.
///
/// While it is shared, it is accessed through this type, or atomically by others, such as user
/// space.
#[repr(transparent)]
pub(crate) struct AtomicWord(Atomic<u64>);

impl AtomicWord {
    /// A word with the value `value`.
    pub(crate) const fn new(value: u64) -> Self {
        Self(Atomic::new(value))
    }

    /// The word at an address.
    ///
    /// # Safety
    ///
    /// `ptr` is aligned to 8 bytes and valid for reads and writes during `'a`; all other accesses
    /// to the word during that time are atomic.
    #[inline]
    pub(crate) unsafe fn from_ptr<'a>(ptr: *mut u64) -> &'a Self {
        // SAFETY: The requirements are those of `Atomic::from_ptr`, whose layout is that of `u64`;
        // this type is transparent over it.
        unsafe { &*ptr.cast() }
    }

    /// The address of the word, for C.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }
}

impl Word for AtomicWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: The pointer is valid and aligned. A volatile read of an aligned word is one load:
        // READ_ONCE() of the kernel's memory model.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        let value;
        // SAFETY: Loads from a valid, aligned pointer. This processor moves no later access before
        // a load, and the compiler moves none, because `asm!` may access any memory.
        unsafe {
            core::arch::asm!(
                "mov {value}, qword ptr [{ptr}]",
                ptr = in(reg) self.0.as_ptr(),
                value = out(reg) value,
                options(nostack, preserves_flags),
            );
        }
        value
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        // SAFETY: As in `load`; this is WRITE_ONCE().
        unsafe { self.0.as_ptr().write_volatile(value) }
    }

    #[inline(always)]
    fn store_release(&self, value: u64) {
        // SAFETY: Stores to a valid, aligned pointer. This processor moves no store before an
        // earlier access, and the compiler moves none, because `asm!` may access any memory.
        unsafe {
            core::arch::asm!(
                "mov qword ptr [{ptr}], {value}",
                ptr = in(reg) self.0.as_ptr(),
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn fetch_add(&self, n: u64) -> u64 {
        let mut value = n;
        // SAFETY: Changes a valid, aligned word. A locked instruction is a full barrier before and
        // after, for the processor and, as `asm!` may access any memory, for the compiler.
        unsafe {
            core::arch::asm!(
                "lock xadd qword ptr [{ptr}], {value}",
                ptr = in(reg) self.0.as_ptr(),
                value = inout(reg) value,
                options(nostack),
            );
        }
        value
    }

    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.0.xchg(value, Full)
    }

    #[inline]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cmpxchg(old, new, Full)
    }
}
