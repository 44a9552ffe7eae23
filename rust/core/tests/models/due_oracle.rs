// SPDX-License-Identifier: GPL-2.0

//! A model test: `Due` against a list that is sorted each time.

use crate::support::TreeMap;
use kfi_core::due::Due;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(prop::sample::Index),
    PopDue(u64),
    Pop,
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..8_u64, 1 => u64::MAX - 2..=u64::MAX]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => value().prop_map(Op::Insert),
        1 => any::<prop::sample::Index>().prop_map(Op::Remove),
        3 => value().prop_map(Op::PopDue),
        1 => Just(Op::Pop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn entries_are_due_by_threshold_then_by_arrival(ops in prop::collection::vec(op(), 0..60)) {
        let mut due = Due::new(TreeMap::default());
        // (threshold, name), in order of arrival.
        let mut model: Vec<(u64, u32)> = Vec::new();
        let mut keys = Vec::new();
        for (name, op) in (0..).zip(ops) {
            match op {
                Op::Insert(threshold) => {
                    let key = due.insert(threshold, name);
                    prop_assert_eq!(key.threshold(), threshold);
                    model.push((threshold, name));
                    keys.push((key, name));
                }
                Op::Remove(index) => {
                    if keys.is_empty() {
                        continue;
                    }
                    let (key, name) = *index.get(&keys);
                    let position = model.iter().position(|entry| entry.1 == name);
                    let removed = due.remove(&key);
                    prop_assert_eq!(removed, position.map(|_| name));
                    if let Some(position) = position {
                        model.remove(position);
                    }
                }
                Op::PopDue(reached) => {
                    // A stable sort keeps the order of arrival.
                    model.sort_by_key(|entry| entry.0);
                    let first = model.first().copied().filter(|entry| entry.0 <= reached);
                    let popped = due.pop_due(reached);
                    prop_assert_eq!(popped.map(|(key, name)| (key.threshold(), name)), first);
                    if first.is_some() {
                        model.remove(0);
                    }
                }
                Op::Pop => {
                    model.sort_by_key(|entry| entry.0);
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    let popped = due.pop();
                    prop_assert_eq!(popped.map(|(key, name)| (key.threshold(), name)), first);
                }
            }
            prop_assert_eq!(due.len() as usize, model.len());
            prop_assert_eq!(due.is_empty(), model.is_empty());
            prop_assert_eq!(due.lowest(), model.iter().map(|entry| entry.0).min());
        }
    }
}
