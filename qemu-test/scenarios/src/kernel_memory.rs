// SPDX-License-Identifier: GPL-2.0
//! The memory that the kernel uses for itself.
//!
//! That is all memory except free pages, the page cache and the anonymous pages of programs. Slabs
//! alone would miss pages that are allocated directly. Slabs, per-CPU memory and pinned pages of
//! programs are also measured by themselves. Two things must not count: pages on the free lists of
//! each CPU, which `MemFree` leaves out, and freed objects that a slab, or KASAN's quarantine,
//! still keeps, which are given back when the slab's cache is shrunk.

use std::{fmt, fs, path::Path};

/// Bytes of a page, in KiB.
const PAGE_KIB: u64 = 4;

/// KiB that the kernel uses.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    /// All memory of the kernel.
    pub(crate) all: u64,
    /// Slabs that are not given back when memory is short.
    slab: u64,
    /// Per-CPU memory.
    percpu: u64,
    /// Pages of programs that are pinned, which count as theirs and not in `all`; a page that is
    /// pinned twice counts twice.
    pinned: u64,
}

impl Used {
    /// Reads the current values, in KiB.
    pub(crate) fn now() -> Self {
        // The kernel adds up the counters of each CPU from time to time only.
        let _ = fs::write("/proc/sys/vm/stat_refresh", "1");
        let text = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
        let counter = |name| counter(&text, name);
        let others = ["MemFree:", "Buffers:", "Cached:", "AnonPages:"].map(counter);
        Self {
            all: counter("MemTotal:").saturating_sub(others.iter().sum::<u64>() + free_of_cpus()),
            slab: counter("SUnreclaim:"),
            percpu: counter("Percpu:"),
            pinned: pinned(),
        }
    }

    /// How much each value has grown since `before`.
    pub(crate) fn since(self, before: Self) -> Growth {
        Growth {
            all: self.all.saturating_sub(before.all),
            slab: self.slab.saturating_sub(before.slab),
            percpu: self.percpu.saturating_sub(before.percpu),
            pinned: self.pinned.saturating_sub(before.pinned),
        }
    }
}

/// How much each value of [`Used`] has grown, in KiB.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) all: u64,
    slab: u64,
    pub(crate) percpu: u64,
    pinned: u64,
}

impl Growth {
    /// The largest one.
    pub(crate) fn largest(self) -> u64 {
        let parts = self.slab.max(self.percpu).max(self.pinned);
        self.all.max(parts)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            all,
            slab,
            percpu,
            pinned,
        } = self;
        write!(
            f,
            "+{all} KiB (slab +{slab}, percpu +{percpu}), pinned +{pinned} KiB"
        )
    }
}

/// The number behind a name at the start of a line.
fn counter(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let mut words = rest.expect(name).split_whitespace();
    words.next().expect(name).parse().expect(name)
}

/// KiB of pinned pages.
fn pinned() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let [acquired, released] =
        ["nr_foll_pin_acquired ", "nr_foll_pin_released "].map(|name| counter(&text, name));
    acquired.saturating_sub(released) * PAGE_KIB
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
