// SPDX-License-Identifier: GPL-2.0
//! A model test: completion counters that are attached to an endpoint, and what its operations add
//! to them, against a plain list of what each bit counts.

use crate::support::{
    HostWord,
    TreeMap, //
};
use kfi_core::{
    cntr::{
        Changes,
        CounterValues,
        Waiters, //
    },
    comp_cntr::AttachedCounters,
    enums::CompCntrType,
    errno::Errno,
    flags::CompCntrOps,
    op::OpType, //
};
use proptest::prelude::*;

/// A counter of the core, as the module has it.
struct Counter {
    kind: CompCntrType,
    values: CounterValues<HostWord, HostWord>,
    waiters: Waiters<TreeMap>,
    changes: Changes,
}

impl Counter {
    fn new(kind: CompCntrType, max: u64) -> Self {
        let word = HostWord::new;
        Self {
            kind,
            values: CounterValues::new(word(), word(), [word(), word()], max),
            waiters: Waiters::new(TreeMap::default(), TreeMap::default()),
            changes: Changes::new(),
        }
    }

    fn count(&mut self, success: bool, len: u64) {
        if !success {
            let changes = &mut self.changes;
            self.waiters.add_err(&self.values, changes, 1, |_, _| ());
        } else if let Some(reached) = self.values.add(self.kind.amount(len)) {
            let changes = &mut self.changes;
            self.waiters
                .fire(&self.values, reached, move || changes, |_, _| ());
        }
    }
}

/// The model of a counter: exact sums.
#[derive(Clone, Default)]
struct Sums {
    comp: u128,
    err: u128,
}

/// The bits by their position, as verbs numbers them.
const SEND: usize = 0;
const RECV: usize = 1;
const RDMA_READ: usize = 2;
const REMOTE_RDMA_READ: usize = 3;
const RDMA_WRITE: usize = 4;
const REMOTE_RDMA_WRITE: usize = 5;

/// What happens at an endpoint.
#[derive(Clone, Debug)]
enum Step {
    Attach {
        ops: u32,
        bytes: bool,
    },
    /// An operation of the endpoint ends.
    Complete {
        kind: u32,
        success: bool,
        len: u64,
    },
    /// An operation of a peer ends; with immediate data.
    Remote {
        kind: u32,
        data: bool,
        len: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u32..80, any::<bool>()).prop_map(|(ops, bytes)| Step::Attach { ops, bytes }),
        4 => (0u32..9, any::<bool>(), 0u64..5000)
            .prop_map(|(kind, success, len)| Step::Complete { kind, success, len }),
        3 => (4u32..9, any::<bool>(), 0u64..5000)
            .prop_map(|(kind, data, len)| Step::Remote { kind, data, len }),
    ]
}

/// The bit of an operation at its initiator and at its target.
fn bits(kind: u32) -> (Option<usize>, Option<usize>) {
    match kind {
        0 | 2 => (Some(RECV), None),
        1 | 3 => (Some(SEND), None),
        4 => (Some(RDMA_READ), Some(REMOTE_RDMA_READ)),
        5 => (Some(RDMA_WRITE), Some(REMOTE_RDMA_WRITE)),
        _ => (None, None),
    }
}

fn maximum() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 1u64..2000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn counters_count_what_they_are_attached_for(
        steps in prop::collection::vec(step(), 0..60),
        supported in 1u32..64,
        max in maximum(),
    ) {
        let supported = CompCntrOps::from_bits(supported).unwrap();
        let mut attached: AttachedCounters<usize> = AttachedCounters::new();
        let mut counters: Vec<Counter> = Vec::new();
        // The model: the counter of each bit, and exact sums.
        let mut of_bit = [None::<usize>; 6];
        let mut sums: Vec<Sums> = Vec::new();

        for step in steps {
            // The bits that count, whether as success, and the bytes of each.
            let mut counted: Vec<(usize, bool, u64)> = Vec::new();
            match step {
                Step::Attach { ops: number, bytes } => {
                    let answer = CompCntrOps::from_bits(number).and_then(|ops| {
                        attached.attach(ops, supported, counters.len())
                    });
                    let mask: Vec<usize> = (0..6).filter(|bit| number >> bit & 1 == 1).collect();
                    let expected = if number >> 6 != 0 || mask.is_empty() {
                        Err(Errno::EINVAL)
                    } else if mask.iter().any(|bit| of_bit[*bit].is_some()) {
                        Err(Errno::EBUSY)
                    } else if mask.iter().any(|bit| supported.bits() >> bit & 1 == 0) {
                        Err(Errno::EOPNOTSUPP)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(answer, expected);
                    if expected.is_ok() {
                        for bit in mask {
                            of_bit[bit] = Some(counters.len());
                        }
                        let kind = if bytes { CompCntrType::Bytes } else { CompCntrType::Wrs };
                        counters.push(Counter::new(kind, max));
                        sums.push(Sums::default());
                    }
                }
                Step::Complete { kind, success, len } => {
                    let op = OpType::try_from(kind).unwrap().comp_cntr_op();
                    if let Some(counter) = attached.get(op) {
                        counters[*counter].count(success, len);
                    }
                    counted.extend(bits(kind).0.map(|bit| (bit, success, len)));
                }
                Step::Remote { kind, data, len } => {
                    let op = OpType::try_from(kind).unwrap();
                    if let Some(counter) = attached.get(op.comp_cntr_op_at_target()) {
                        counters[*counter].count(true, len);
                    }
                    counted.extend(bits(kind).1.map(|bit| (bit, true, len)));
                    if data && op == OpType::Write {
                        if let Some(counter) = attached.get(CompCntrOps::RECV) {
                            counters[*counter].count(true, 0);
                        }
                        counted.push((RECV, true, 0));
                    }
                }
            }
            for (bit, success, len) in counted {
                let Some(counter) = of_bit[bit] else { continue };
                let sum = &mut sums[counter];
                match (success, counters[counter].kind) {
                    (false, _) => sum.err += 1,
                    (true, CompCntrType::Wrs) => sum.comp += 1,
                    (true, CompCntrType::Bytes) => sum.comp += u128::from(len),
                }
            }
            for (counter, sum) in counters.iter().zip(&sums) {
                let modulus = u128::from(max) + 1;
                prop_assert_eq!(u128::from(counter.values.read()), sum.comp % modulus);
                prop_assert_eq!(u128::from(counter.values.read_err()), sum.err % modulus);
            }
        }
    }
}
