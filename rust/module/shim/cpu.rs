// SPDX-License-Identifier: GPL-2.0

//! CPUs: naming one, and keeping softirqs off the current one.

use crate::shim::bindings;
use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

/// A CPU that was online once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu(c_int);

impl Cpu {
    /// The CPU with this number. Fails with `EINVAL` if none that is online has it. Any context.
    pub(crate) fn new(number: c_int) -> Result<Self> {
        // SAFETY: Any number may be asked for.
        if unsafe { bindings::kfabric_shim_cpu_online(number) } {
            Ok(Self(number))
        } else {
            Err(EINVAL)
        }
    }

    /// Its number.
    pub(super) fn number(self) -> c_int {
        self.0
    }
}

/// Keeps softirqs off the current CPU until it is dropped. It may be nested.
pub(crate) struct SoftirqsOff(NotThreadSafe);

impl SoftirqsOff {
    /// Process context or softirq, interrupts enabled.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: Undone when the value is dropped, in the same task or softirq.
        unsafe { bindings::kfabric_shim_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for SoftirqsOff {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has disabled them, in this task or softirq.
        unsafe { bindings::kfabric_shim_bh_enable() };
    }
}
