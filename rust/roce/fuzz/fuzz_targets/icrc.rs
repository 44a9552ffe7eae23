// SPDX-License-Identifier: GPL-2.0
//! Fuzz target: see `kfi_roce_fuzz::icrc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfi_roce_fuzz::icrc(data));
