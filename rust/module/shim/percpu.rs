// SPDX-License-Identifier: GPL-2.0

//! Figures that each CPU counts for itself.
//!
//! Many QPs share a link, so a figure in one place would be a cache line that all CPUs fight for.
//! Here counting touches memory of this CPU only, without a locked instruction; reading, which is
//! rare, adds up.

use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` figures, numbered from 0.
///
/// # Invariants
///
/// `figures` is what `kfabric_shim_figures_alloc` gave for `N`, and is freed in drop.
pub(crate) struct PerCpu<const N: usize> {
    figures: NonNull<u64>,
}

// SAFETY: Each CPU counts in its own place; any CPU may read all.
unsafe impl<const N: usize> Send for PerCpu<N> {}
// SAFETY: As above.
unsafe impl<const N: usize> Sync for PerCpu<N> {}

impl<const N: usize> PerCpu<N> {
    /// Figures that are all 0. `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context, may sleep.
        let figures = unsafe { shim::kfabric_shim_figures_alloc(u32::try_from(N)?) };
        // INVARIANT: Allocated just now.
        Ok(Self {
            figures: NonNull::new(figures).ok_or(ENOMEM)?,
        })
    }

    /// Adds `n` to a figure; nothing if there is no such figure. Any context.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) {
        if which < N {
            // SAFETY: By the type invariant, and there is such a figure.
            unsafe { shim::kfabric_shim_figures_add(self.figures.as_ptr(), which as u32, n) }
        }
    }

    /// A figure of all CPUs together, as it is at some moment of the call; 0 if there is no such
    /// figure. Any context.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        if which >= N {
            return 0;
        }
        // SAFETY: By the type invariant, and there is such a figure.
        unsafe { shim::kfabric_shim_figures_sum(self.figures.as_ptr(), which as u32) }
    }
}

impl<const N: usize> Drop for PerCpu<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nobody can count any more.
        unsafe { shim::kfabric_shim_figures_free(self.figures.as_ptr()) }
    }
}
