// SPDX-License-Identifier: GPL-2.0
//! Runs the fuzz targets on random bytes, without a fuzzer.
//!
//! Seeds are valid inputs. Each is also mutated: truncated, repeated, with changed bits and bytes.
//! `PROPTEST_CASES` sets the number of cases.

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a separate crate for the fuzzer")]
mod targets;

use proptest::prelude::*;

const SEEDS: &[&[u8]] = &[
    b"10.0.0.1\x007471",
    b"::1\x0080",
    b"fe80::1:2%4294967295\x0065535",
    b"::ffff:10.0.0.1\x001",
    b"2001:db8:0:1:1:1:1:1\x000",
    &[2, 0, 0x1d, 0x2f, 10, 0, 0, 1],
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

#[derive(Clone, Debug)]
enum Mutation {
    Cut(usize),
    Put(usize, u8),
    Insert(usize, u8),
    Flip(usize, u8),
    Append(Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<usize>();
    let byte = prop_oneof![
        prop::sample::select(&b"0123456789abcdef:.%[]\0"[..]),
        any::<u8>(),
    ];
    prop_oneof![
        at.prop_map(Mutation::Cut),
        (at, byte.clone()).prop_map(|(at, byte)| Mutation::Put(at, byte)),
        (at, byte).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        (at, 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        prop::collection::vec(any::<u8>(), 0..32).prop_map(Mutation::Append),
    ]
}

fn mutate(data: &mut Vec<u8>, mutation: Mutation) {
    let len = data.len();
    let within = |at: usize| at.checked_rem(len);
    match mutation {
        Mutation::Cut(at) => data.truncate(within(at).unwrap_or(0)),
        Mutation::Put(at, byte) => {
            if let Some(at) = within(at) {
                data[at] = byte;
            }
        }
        Mutation::Insert(at, byte) => data.insert(at % (len + 1), byte),
        Mutation::Flip(at, bit) => {
            if let Some(at) = within(at) {
                data[at] ^= 1 << bit;
            }
        }
        Mutation::Append(more) => data.extend(more),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, target) in targets::TARGETS {
            target(&data);
        }
    }

    /// Long inputs for targets that execute a sequence of steps.
    #[test]
    fn many_random_bytes(data in prop::collection::vec(any::<u8>(), 0..800)) {
        for (_, target) in targets::TARGETS {
            target(&data);
        }
    }

    #[test]
    fn mutated_seeds(
        seed in prop::sample::select(SEEDS),
        mutations in prop::collection::vec(mutation(), 0..8),
    ) {
        let mut data = seed.to_vec();
        for mutation in mutations {
            mutate(&mut data, mutation);
        }
        for (_, target) in targets::TARGETS {
            target(&data);
        }
    }
}

/// Every target has a file for the fuzzer, and every file has a target.
#[test]
fn targets_are_complete() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut names: Vec<String> = targets::TARGETS
        .iter()
        .map(|(name, _)| format!("{name}.rs"))
        .collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}
