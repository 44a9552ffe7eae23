// SPDX-License-Identifier: GPL-2.0
//! Runs the fuzz targets on random bytes and on mutated seeds.

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a separate crate for the fuzzer")]
mod targets;

mod smoke;

const SEEDS: &[&[u8]] = &[
    // A WRITE of 5 bytes and an acknowledgement. The byte before each selects no change.
    b"\0\x0a\xf0\xff\xff\0\x12\x34\x56\x80\xfe\xdc\xba\0\0\x7f\0\x11\x22\x33\x44\xde\xad\xbe\xef\
      \0\0\0\x05hello\0\0\0\xe7\x3f\x4e\xcc",
    b"\0\x11\0\x7f\xff\x80\0\0\x11\0\0\0\x07\x1f\0\0\x03\x71\x5f\x0e\x99",
];
