// SPDX-License-Identifier: GPL-2.0

//! 64-bit words that several CPUs, or user space too, change without a lock.
//!
//! The operations are those of the kernel's memory model, as `kernel::sync::atomic`
//! has them, where they are calls of C functions. A counter lives from one add
//! and one load, and a call costs as much as either; so on x86-64 they are written
//! out here: a plain load is an acquire and a plain store a release there, and a
//! locked instruction is a full barrier. Elsewhere the kernel's own are used.

#[cfg(not(CONFIG_X86_64))]
use kernel::sync::atomic::ordering;
use kernel::sync::atomic::Atomic;
use kfi_core::word::Word;

/// A 64-bit word that is shared without a lock.
///
/// While it is shared, it is accessed through this type, or atomically by
/// somebody else, such as user space.
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
    /// `ptr` is aligned to 8 bytes and valid for reads and writes during `'a`;
    /// whoever accesses the word meanwhile does so atomically.
    #[inline]
    pub(crate) unsafe fn from_ptr<'a>(ptr: *mut u64) -> &'a Self {
        // SAFETY: The requirements are those of `Atomic::from_ptr`, whose layout is that of `u64`;
        // this type is transparent over it.
        unsafe { &*ptr.cast() }
    }
}

impl AtomicWord {
    /// Where the word is, for C.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }
}

#[cfg(CONFIG_X86_64)]
impl Word for AtomicWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: The pointer is valid and aligned. A volatile read of an aligned word is one
        // load, which is what the kernel's memory model has as READ_ONCE().
        unsafe { self.0.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        let value;
        // SAFETY: Loads from a valid, aligned pointer. No later access is ahead of a load on this
        // processor, and the compiler moves none across, as `asm!` may touch any memory.
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
        // SAFETY: As in `load`: WRITE_ONCE().
        unsafe { self.0.as_ptr().write_volatile(value) }
    }

    #[inline(always)]
    fn store_release(&self, value: u64) {
        // SAFETY: Stores to a valid, aligned pointer. A store is not ahead of any earlier access on
        // this processor, and the compiler moves none across.
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
        // SAFETY: Changes a valid, aligned word. A locked instruction is a full barrier on either
        // side, to the processor and, as `asm!` may touch any memory, to the compiler.
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

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        let mut value = value;
        // SAFETY: As in `fetch_add`; `xchg` with memory is always locked.
        unsafe {
            core::arch::asm!(
                "xchg qword ptr [{ptr}], {value}",
                ptr = in(reg) self.0.as_ptr(),
                value = inout(reg) value,
                options(nostack, preserves_flags),
            );
        }
        value
    }

    #[inline(always)]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        let mut found = old;
        // SAFETY: As in `fetch_add`.
        unsafe {
            core::arch::asm!(
                "lock cmpxchg qword ptr [{ptr}], {new}",
                ptr = in(reg) self.0.as_ptr(),
                new = in(reg) new,
                inout("rax") found,
                options(nostack),
            );
        }
        if found == old {
            Ok(found)
        } else {
            Err(found)
        }
    }
}

#[cfg(not(CONFIG_X86_64))]
impl Word for AtomicWord {
    #[inline]
    fn load(&self) -> u64 {
        self.0.load(ordering::Relaxed)
    }

    #[inline]
    fn load_acquire(&self) -> u64 {
        self.0.load(ordering::Acquire)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.0.store(value, ordering::Relaxed);
    }

    #[inline]
    fn store_release(&self, value: u64) {
        self.0.store(value, ordering::Release);
    }

    #[inline]
    fn fetch_add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, ordering::Full)
    }

    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.0.xchg(value, ordering::Full)
    }

    #[inline]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cmpxchg(old, new, ordering::Full)
    }
}
