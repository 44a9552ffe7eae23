// SPDX-License-Identifier: GPL-2.0

//! The memory of the machine, and what an allocation takes of it.

use kernel::bindings;

/// Bytes that kmalloc() takes for `bytes`: it rounds the size up. Any context.
pub(crate) fn kmalloc_size(bytes: usize) -> usize {
    // SAFETY: The function computes a number and accesses no memory of the caller.
    unsafe { bindings::kmalloc_size_roundup(bytes) }
}

/// Bytes that kmalloc() takes for an array of `count` values. Any context.
pub(crate) fn kmalloc_array_size<T>(count: usize) -> usize {
    kmalloc_size(count.saturating_mul(size_of::<T>()))
}

/// Bytes of memory of the machine. Process context.
pub(crate) fn total_memory() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: The function only writes to `info`.
    unsafe { bindings::si_meminfo(&mut info) };
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}
