// SPDX-License-Identifier: GPL-2.0
//! Runs fuzz targets on random bytes, without a fuzzer. The parent module has the targets and the
//! seeds; kfi_core uses this file too.
//!
//! Seeds are valid inputs. Each is also mutated: truncated, repeated, with changed bits and bytes.
//! The environment variable `PROPTEST_CASES` sets the number of cases.

use super::{
    targets::TARGETS,
    SEEDS, //
};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.map(|cases| cases.parse().expect("PROPTEST_CASES is a number"));
    ProptestConfig::with_cases(cases.unwrap_or(20_000))
}

fn run_all(data: &[u8]) {
    for (_, target) in TARGETS {
        target(data);
    }
}

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
    #![proptest_config(config())]

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        run_all(&data);
    }

    /// Long inputs for targets that execute a sequence of steps.
    #[test]
    fn many_random_bytes(data in prop::collection::vec(any::<u8>(), 0..800)) {
        run_all(&data);
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
        run_all(&data);
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
    let mut names: Vec<String> = TARGETS
        .iter()
        .map(|(name, _)| format!("{name}.rs"))
        .collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}
