// SPDX-License-Identifier: GPL-2.0

//! Per-CPU statistics.
//!
//! Many endpoints and QPs share a link, so all CPUs would contend for the cache line of a single
//! counter. Counting in per-CPU counters accesses memory of this CPU only, without a locked
//! instruction. Reading is rare, and adds up the counters.

use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` counters, numbered from 0.
///
/// # Invariants
///
/// `counters` is a result of `kfabric_shim_percpu_alloc` for `N`, and is freed in `drop`.
pub(crate) struct PerCpu<const N: usize> {
    counters: NonNull<u64>,
}

// SAFETY: Each CPU has its own counters; any CPU may read all of them.
unsafe impl<const N: usize> Send for PerCpu<N> {}
// SAFETY: As above.
unsafe impl<const N: usize> Sync for PerCpu<N> {}

impl<const N: usize> PerCpu<N> {
    /// Counters that are all 0. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context, may sleep.
        let counters = unsafe { shim::kfabric_shim_percpu_alloc(u32::try_from(N)?) };
        // INVARIANT: Just allocated.
        Ok(Self {
            counters: NonNull::new(counters).ok_or(ENOMEM)?,
        })
    }

    /// The per-CPU address of a counter, for the C functions only.
    #[inline]
    fn counter(&self, which: usize) -> *mut u64 {
        self.counters.as_ptr().wrapping_add(which)
    }

    /// Adds `n` to a counter; does nothing if there is no such counter. Any context.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) {
        if which < N {
            // SAFETY: `counters` is valid by the type invariant, and has this index.
            unsafe { shim::kfabric_shim_percpu_add(self.counter(which), n) }
        }
    }

    /// Adds 1 to a counter and `n` to the next one, for example an event and its bytes; does
    /// nothing if there are no such counters. Any context.
    #[inline(always)]
    pub(crate) fn count(&self, which: usize, n: u64) {
        if which + 1 < N {
            // SAFETY: `counters` is valid by the type invariant, and has both indices.
            unsafe { shim::kfabric_shim_percpu_count(self.counter(which), n) }
        }
    }

    /// The sum of a counter over all CPUs, as it is at some moment of the call; 0 if there is no
    /// such counter. Any context.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        if which >= N {
            return 0;
        }
        // SAFETY: `counters` is valid by the type invariant, and has this index.
        unsafe { shim::kfabric_shim_percpu_sum(self.counter(which)) }
    }
}

impl<const N: usize> Drop for PerCpu<N> {
    fn drop(&mut self) {
        // SAFETY: `counters` is valid by the type invariant; nothing counts any more.
        unsafe { shim::kfabric_shim_percpu_free(self.counters.as_ptr()) }
    }
}

/// Counters whose number is known at run time, numbered from 0.
///
/// # Invariants
///
/// `counters` is a result of `kfabric_shim_percpu_alloc` for `len`, and is freed in `drop`.
pub(crate) struct PerCpuArray {
    counters: NonNull<u64>,
    len: usize,
}

// SAFETY: Each CPU has its own counters; any CPU may read all of them.
unsafe impl Send for PerCpuArray {}
// SAFETY: As above.
unsafe impl Sync for PerCpuArray {}

impl PerCpuArray {
    /// The bytes of memory of `len` counters, on all CPUs, and of what the kernel stores about
    /// them: a pointer for each 4 bytes, as `pcpu_obj_full_size()` counts them.
    pub(crate) fn bytes(len: usize) -> usize {
        const RECORD_WORDS: usize = size_of::<*const ()>() / 4;
        size_of::<u64>()
            .saturating_mul(len)
            .saturating_mul(kernel::cpu::nr_cpu_ids() as usize + RECORD_WORDS)
    }

    /// `len` counters that are all 0; `len` is not 0. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(len: usize) -> Result<Self> {
        // SAFETY: Process context, may sleep.
        let counters = unsafe { shim::kfabric_shim_percpu_alloc(u32::try_from(len)?) };
        // INVARIANT: Just allocated.
        Ok(Self {
            counters: NonNull::new(counters).ok_or(ENOMEM)?,
            len,
        })
    }

    /// The number of counters.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The per-CPU address of a counter, for the C functions only.
    #[inline]
    fn counter(&self, which: usize) -> Option<*mut u64> {
        (which < self.len).then(|| self.counters.as_ptr().wrapping_add(which))
    }

    /// Adds `n` to a counter; does nothing if there is no such counter. Any context.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) {
        if let Some(counter) = self.counter(which) {
            // SAFETY: `counters` is valid by the type invariant, and has this index.
            unsafe { shim::kfabric_shim_percpu_add(counter, n) }
        }
    }

    /// The sum of a counter over all CPUs, as it is at some moment of the call; 0 if there is no
    /// such counter. Any context.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        match self.counter(which) {
            // SAFETY: `counters` is valid by the type invariant, and has this index.
            Some(counter) => unsafe { shim::kfabric_shim_percpu_sum(counter) },
            None => 0,
        }
    }
}

impl Drop for PerCpuArray {
    fn drop(&mut self) {
        // SAFETY: `counters` is valid by the type invariant; nothing counts any more.
        unsafe { shim::kfabric_shim_percpu_free(self.counters.as_ptr()) }
    }
}
