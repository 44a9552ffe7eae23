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
    // A WRITE of 5 bytes and an acknowledgement. The byte before each selects no change.
    b"\0\x0a\xf0\xff\xff\0\x12\x34\x56\x80\xfe\xdc\xba\0\0\x7f\0\x11\x22\x33\x44\xde\xad\xbe\xef\
      \0\0\0\x05hello\0\0\0\xe7\x3f\x4e\xcc",
    b"\0\x11\0\x7f\xff\x80\0\0\x11\0\0\0\x07\x1f\0\0\x03\x71\x5f\x0e\x99",
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
