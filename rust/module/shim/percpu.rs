// SPDX-License-Identifier: GPL-2.0

//! Per-CPU statistics.
//!
//! Many endpoints and QPs share a link, so a single counter would be a cache line that all CPUs contend for. With
//! per-CPU counters, counting accesses memory of this CPU only, without a locked instruction.
//! Reading is rare, and adds up the counters.

use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` figures, numbered from 0.
///
/// # Invariants
///
/// `figures` is a result of `kfabric_shim_figures_alloc` for `N`, and is freed in `drop`.
pub(crate) struct PerCpu<const N: usize> {
    figures: NonNull<u64>,
}

// SAFETY: Each CPU has its own figures; any CPU may read all of them.
unsafe impl<const N: usize> Send for PerCpu<N> {}
// SAFETY: As above.
unsafe impl<const N: usize> Sync for PerCpu<N> {}

impl<const N: usize> PerCpu<N> {
    /// Figures that are all 0. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context, may sleep.
        let figures = unsafe { shim::kfabric_shim_figures_alloc(u32::try_from(N)?) };
        // INVARIANT: Just allocated.
        Ok(Self {
            figures: NonNull::new(figures).ok_or(ENOMEM)?,
        })
    }

    /// The per-CPU address of a figure, for the C functions only.
    #[inline]
    fn figure(&self, which: usize) -> *mut u64 {
        self.figures.as_ptr().wrapping_add(which)
    }

    /// Adds `n` to a figure; does nothing if there is no such figure. Any context.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) {
        if which < N {
            // SAFETY: `figures` is valid by the type invariant, and has this index.
            unsafe { shim::kfabric_shim_figures_add(self.figure(which), n) }
        }
    }

    /// Adds 1 to a figure and `n` to the next one, for example an event and its bytes; does nothing
    /// if there are no such figures. Any context.
    #[inline(always)]
    pub(crate) fn count(&self, which: usize, n: u64) {
        if which + 1 < N {
            // SAFETY: `figures` is valid by the type invariant, and has both indices.
            unsafe { shim::kfabric_shim_figures_count(self.figure(which), n) }
        }
    }

    /// The sum of a figure over all CPUs, as it is at some moment of the call; 0 if there is no
    /// such figure. Any context.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        if which >= N {
            return 0;
        }
        // SAFETY: `figures` is valid by the type invariant, and has this index.
        unsafe { shim::kfabric_shim_figures_sum(self.figure(which)) }
    }
}

impl<const N: usize> Drop for PerCpu<N> {
    fn drop(&mut self) {
        // SAFETY: `figures` is valid by the type invariant; nothing counts any more.
        unsafe { shim::kfabric_shim_figures_free(self.figures.as_ptr()) }
    }
}
