// SPDX-License-Identifier: GPL-2.0
//! Runs the fuzz targets on random bytes and on mutated seeds.

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a separate crate for the fuzzer")]
mod targets;

#[path = "../../roce/tests/smoke/mod.rs"]
mod smoke;

const SEEDS: &[&[u8]] = &[
    b"10.0.0.1\x007471",
    b"::1\x0080",
    b"fe80::1:2%4294967295\x0065535",
    b"::ffff:10.0.0.1\x001",
    b"2001:db8:0:1:1:1:1:1\x000",
    &[2, 0, 0x1d, 0x2f, 10, 0, 0, 1],
    // The address of a QP, 10.0.0.1:qp0000a2.
    &[
        2, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa2,
        0, 0, 0, 3,
    ],
    &[
        10, 0, 0, 80, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 2,
    ],
    b"\x02\x07\x0210.0.0.1\x0080\x00\x01\x03\x00\x00\x01\x01",
    b"\x00\x00\x00\x00\x00\x01\x00\x00\xff\x03\x00\x00",
    // Two messages of reliable datagrams (an empty one and an RTS), and a FIN.
    b"\x07\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\x07\x01\x02\x04\0\0\x01\0\0\0\0\0\0\0\0\0\x02\0\0\
      \0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0",
];
