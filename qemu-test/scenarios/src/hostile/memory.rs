// SPDX-License-Identifier: GPL-2.0
//! The memory that the kernel uses for itself.
//!
//! That is all memory except free pages, the page cache and the anonymous pages of programs. The
//! size of slabs alone would miss pages that are allocated directly. Two things must not count:
//! pages on the free lists of each CPU, which `MemFree` leaves out, and freed objects that a slab,
//! or KASAN's quarantine, still keeps, which are given back when the slab's cache is shrunk.

use std::{fs, path::Path};

/// Bytes of a page, in KiB.
const PAGE_KIB: u64 = 4;

/// KiB that the kernel uses now.
pub(crate) fn used() -> u64 {
    // The kernel adds up the counters of each CPU from time to time only.
    let _ = fs::write("/proc/sys/vm/stat_refresh", "1");
    let text = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    let counter = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or_default().split_whitespace();
        words
            .filter_map(|word| word.parse().ok())
            .next()
            .unwrap_or(0)
    };
    let others = ["MemFree:", "Buffers:", "Cached:", "AnonPages:"].map(counter);
    counter("MemTotal:").saturating_sub(others.iter().sum::<u64>() + free_of_cpus())
}

/// KiB on the free lists of each CPU.
fn free_of_cpus() -> u64 {
    let text = fs::read_to_string("/proc/zoneinfo").expect("/proc/zoneinfo");
    let counts = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("count:"))
        .filter_map(|count| count.trim().parse::<u64>().ok());
    counts.sum::<u64>() * PAGE_KIB
}

/// Makes the kernel free its caches and the unused parts of its slabs. This takes longer with
/// KASAN.
pub(crate) fn shrink() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    let Ok(caches) = fs::read_dir("/sys/kernel/slab") else {
        return;
    };
    for cache in caches.flatten() {
        let shrink: &Path = &cache.path().join("shrink");
        let _ = fs::write(shrink, "1");
    }
}
