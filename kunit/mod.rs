// SPDX-License-Identifier: GPL-2.0

//! The part of the module that only a build with the KUnit suites has (cfg `kfi_kunit`).
//!
//! | file | content |
//! |---|---|
//! | [`bench`] | benchmarks of counters and posting, in debugfs; `bench.c` is the code that measures |
//! | [`bench_consumer`] | those of the interface for kernel modules, with `bench_consumer.c` and `bench_transfer.c` |
//! | [`contexts`] | closures that run in softirqs and in hard interrupts |
//! | [`ep_pair`] | two endpoints that know each other |
//! | [`fixture`] | a fabric and a domain for the suites of the provider |
//! | [`mod@ensure`] | the assertions of the suites |
//! | [`helpers`] | helpers of the suites of all layers; `helpers.c` and `memory.c` have the C functions |
//!
//! The suites themselves are modules of the files that they test, whose private items they use.

#[macro_use]
pub(crate) mod ensure;

pub(crate) mod bench;
mod bench_consumer;
pub(crate) mod contexts;
pub(crate) mod ep_pair;
pub(crate) mod fixture;
pub(crate) mod helpers;
