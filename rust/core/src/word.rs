// SPDX-License-Identifier: GPL-2.0

//! A 64-bit word that several CPUs, or a program that maps it, access concurrently.
//!
//! The core crate has no atomics of its own: the kernel has its own memory model, the tests use
//! loom's, and only the module may follow the pointer to a mapped page. [`Word`] has the operations
//! that the lock-free parts ([`crate::cntr::CounterValues`], [`crate::ring`]) need.
//!
//! "Fully ordered" has the kernel's meaning: all CPUs see every access of this CPU before the
//! operation, in program order, before every access after it, as if a full barrier were on either
//! side. The module implements it with `Atomic<u64>` and `Full`; in terms of C11 it is a
//! read-modify-write between two sequentially consistent fences.

/// A shared 64-bit word.
///
/// Accesses are not torn: no reader sees a part of a store.
pub trait Word {
    /// Reads without ordering.
    fn load(&self) -> u64;

    /// Reads with acquire ordering: what the writer wrote before its release is visible after this.
    fn load_acquire(&self) -> u64;

    /// Writes without ordering.
    fn store(&self, value: u64);

    /// Writes with release ordering: a reader that acquires the value sees everything written
    /// before.
    fn store_release(&self, value: u64);

    /// Adds with wrapping. Returns the old value. Fully ordered.
    fn fetch_add(&self, n: u64) -> u64;

    /// Writes. Returns the old value. Fully ordered.
    fn swap(&self, value: u64) -> u64;

    /// Writes `new` if the word holds `old`; otherwise returns the value that it holds. Fully
    /// ordered if it wrote, without ordering if not.
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64>;
}

impl<W: Word + ?Sized> Word for &W {
    #[inline]
    fn load(&self) -> u64 {
        (**self).load()
    }

    #[inline]
    fn load_acquire(&self) -> u64 {
        (**self).load_acquire()
    }

    #[inline]
    fn store(&self, value: u64) {
        (**self).store(value);
    }

    #[inline]
    fn store_release(&self, value: u64) {
        (**self).store_release(value);
    }

    #[inline]
    fn fetch_add(&self, n: u64) -> u64 {
        (**self).fetch_add(n)
    }

    #[inline]
    fn swap(&self, value: u64) -> u64 {
        (**self).swap(value)
    }

    #[inline]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        (**self).compare_exchange(old, new)
    }
}
