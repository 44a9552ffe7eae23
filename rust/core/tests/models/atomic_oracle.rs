// SPDX-License-Identifier: GPL-2.0
//! The functions of atomics on integers, against a model that computes with numbers of 128 bits.

use kfi_core::{
    atomic::{
        integer,
        Class,
        Function, //
    },
    enums::{
        AtomicOp,
        Datatype, //
    },
    op::OpType, //
};
use proptest::prelude::*;

const FORMS: [OpType; 3] = [
    OpType::Atomic,
    OpType::FetchAtomic,
    OpType::CompareAtomic, //
];

/// Whether numbers of a type are signed, and their bits.
fn format(datatype: Datatype) -> (bool, u32) {
    let number = u32::from(datatype);
    (number % 2 == 0, 8 << (number / 2))
}

/// Returns the number that bits stand for.
fn number(datatype: Datatype, bits: u64) -> i128 {
    let (signed, width) = format(datatype);
    let value = i128::from(bits) & ((1 << width) - 1);
    if signed && value >> (width - 1) == 1 {
        return value - (1 << width);
    }
    value
}

/// Returns the new value by the definition of each operation.
fn model(op: AtomicOp, datatype: Datatype, target: u64, operand: u64, compare: u64) -> u64 {
    let (_, width) = format(datatype);
    let [a, b, c] = [target, operand, compare].map(|bits| number(datatype, bits));
    let truth = i128::from;
    let choose = |holds: bool| if holds { b } else { a };
    let value = match op {
        AtomicOp::Min => choose(b < a),
        AtomicOp::Max => choose(b > a),
        AtomicOp::Sum => a + b,
        // The low bits of a product depend on the low bits of the factors only.
        AtomicOp::Prod => a.wrapping_mul(b),
        AtomicOp::Lor => truth(a != 0 || b != 0),
        AtomicOp::Land => truth(a != 0 && b != 0),
        AtomicOp::Lxor => truth((a != 0) != (b != 0)),
        AtomicOp::Bor => a | b,
        AtomicOp::Band => a & b,
        AtomicOp::Bxor => a ^ b,
        AtomicOp::AtomicRead => a,
        AtomicOp::AtomicWrite => b,
        AtomicOp::Cswap => choose(c == a),
        AtomicOp::CswapNe => choose(c != a),
        AtomicOp::CswapLe => choose(c <= a),
        AtomicOp::CswapLt => choose(c < a),
        AtomicOp::CswapGe => choose(c >= a),
        AtomicOp::CswapGt => choose(c > a),
        AtomicOp::Mswap => (a & !c) | (b & c),
    };
    (value & ((1 << width) - 1)) as u64
}

/// All functions on integers.
fn functions() -> Vec<Function> {
    let mut functions = Vec::new();
    for kind in FORMS {
        for op in (0..19).flat_map(AtomicOp::try_from) {
            for datatype in (0..8).flat_map(Datatype::try_from) {
                functions.extend(Function::new(kind, op, datatype));
            }
        }
    }
    functions
}

/// Numbers at the limits of the types.
fn boundaries(datatype: Datatype) -> Vec<u64> {
    let (_, width) = format(datatype);
    let high = 1u64 << (width - 1);
    let mask = u64::MAX >> (64 - width);
    let near = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
    let mut values: Vec<u64> = [0, high, mask, mask / 3]
        .into_iter()
        .flat_map(near)
        .map(|value| value & mask)
        .collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[test]
fn every_function_at_every_boundary() {
    let mut cases = 0;
    for function in functions() {
        let (op, datatype) = (function.op(), function.datatype());
        assert_eq!(datatype.class(), Class::Integer);
        let values = boundaries(datatype);
        for target in &values {
            for operand in &values {
                for compare in &values {
                    let expected = model(op, datatype, *target, *operand, *compare);
                    let value = integer::apply(&function, *target, *operand, *compare);
                    let what = (function, target, operand, compare);
                    assert_eq!(value, Some(expected), "{what:x?}");
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 100_000, "{cases}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_function_on_any_numbers(
        function in prop::sample::select(functions()),
        target in any::<u64>(),
        operand in any::<u64>(),
        compare in prop_oneof![any::<u64>().prop_map(Some), Just(None)],
    ) {
        // Equal values are compared more often than by chance.
        let compare = compare.unwrap_or(target);
        let expected = model(function.op(), function.datatype(), target, operand, compare);
        prop_assert_eq!(integer::apply(&function, target, operand, compare), Some(expected));
    }
}
