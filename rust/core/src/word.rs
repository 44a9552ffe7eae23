// SPDX-License-Identifier: GPL-2.0

//! A 64-bit word that several CPUs, or a program that maps it, look at at once.
//!
//! The core crate has no atomics of its own: the kernel has a memory model of
//! its own, the tests have loom's, and a mapped page is reached through a
//! pointer that only the module may follow. [`Word`] is what the lock-free parts
//! ([`crate::cntr::Gate`], [`crate::ring`]) ask of such a word, and no more.
//!
//! "Fully ordered" means what the kernel means by it: every access before the
//! operation in program order, on this CPU, is seen by all CPUs before every
//! access after it, as if a full barrier stood on either side. The module
//! implements it with `Atomic<u64>` and `Full`; in terms of C11 it is a
//! read-modify-write between two sequentially consistent fences.

/// A shared 64-bit word.
///
/// Every access is whole: no reader ever sees half of a store.
pub trait Word {
    /// Reads, with no order.
    fn load(&self) -> u64;

    /// Reads; what the writer wrote before its release is seen after this.
    fn load_acquire(&self) -> u64;

    /// Writes, with no order.
    fn store(&self, value: u64);

    /// Writes; what was written before this is seen by who acquires the value.
    fn store_release(&self, value: u64);

    /// Adds, wrapping, and returns the old value. Fully ordered.
    fn fetch_add(&self, n: u64) -> u64;

    /// Writes and returns the old value. Fully ordered.
    fn swap(&self, value: u64) -> u64;

    /// Writes `new` if the word holds `old`; else gives what it holds.
    /// Fully ordered if it wrote, with no order if not.
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
