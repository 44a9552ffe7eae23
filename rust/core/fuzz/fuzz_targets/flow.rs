// SPDX-License-Identifier: GPL-2.0
//! Fuzz target: see `kfi_core_fuzz::flow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfi_core_fuzz::flow(data));
