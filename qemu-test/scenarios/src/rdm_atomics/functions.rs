// SPDX-License-Identifier: GPL-2.0
//! Every operation that atomics of reliable datagrams have, on every data type, with all
//! combinations of values at the limits of the type. This CPU computes the expected values.

use super::pair;
use crate::{
    connected::open_region,
    harness::tests,
    host::{ADDED, FETCHED, Host, buffer, buffer_of, holding},
    ways::Way,
};
use kfi::{AtomicForm, AtomicOp, Buffer, CompFlags, Datatype, Element, FiAddr, Op};
use std::fmt::Debug;

tests![
    every_integer: [OneHost => 120, TwoHosts => 120],
    every_float: [OneHost, TwoHosts],
    every_complex_number: [OneHost, TwoHosts],
];

/// The operations, in the order of their numbers.
pub(super) const OPS: [AtomicOp; 19] = [
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::Sum,
    AtomicOp::Prod,
    AtomicOp::Lor,
    AtomicOp::Land,
    AtomicOp::Bor,
    AtomicOp::Band,
    AtomicOp::Lxor,
    AtomicOp::Bxor,
    AtomicOp::AtomicRead,
    AtomicOp::AtomicWrite,
    AtomicOp::Cswap,
    AtomicOp::CswapNe,
    AtomicOp::CswapLe,
    AtomicOp::CswapLt,
    AtomicOp::CswapGe,
    AtomicOp::CswapGt,
    AtomicOp::Mswap,
];

/// The forms that have an operation.
fn forms(op: AtomicOp) -> &'static [AtomicForm] {
    match op {
        AtomicOp::AtomicRead => &[AtomicForm::Fetch],
        AtomicOp::Cswap
        | AtomicOp::CswapNe
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt
        | AtomicOp::Mswap => &[AtomicForm::Compare],
        _ => &[AtomicForm::Base, AtomicForm::Fetch],
    }
}

/// An element whose new value this CPU computes. `None`: the type does not have the operation.
trait Number: Copy + Debug {
    const DATATYPE: Datatype;
    /// Values at the limits of the type.
    fn limits() -> Vec<Self>;
    fn new_value(op: AtomicOp, old: Self, operand: Self, compare: Self) -> Option<Self>;
    /// The bits, by which zeros differ; `None` for a NaN.
    fn bits(self) -> Option<u128>;
    /// The elements of these values in memory.
    fn buffer_of(values: &[Self]) -> Buffer;
    /// The values of elements in memory.
    fn values_of(buffer: &Buffer) -> Vec<Self>;
}

/// What integers and floating point have in common.
macro_rules! common {
    ($op:ident $a:ident $b:ident $c:ident $zero:expr, $one:expr) => {{
        let truth = |holds: bool| if holds { $one } else { $zero };
        let choose = |holds: bool| if holds { $b } else { $a };
        match $op {
            AtomicOp::Min => choose($b < $a),
            AtomicOp::Max => choose($b > $a),
            AtomicOp::Lor => truth($a != $zero || $b != $zero),
            AtomicOp::Land => truth($a != $zero && $b != $zero),
            AtomicOp::Lxor => truth(($a != $zero) != ($b != $zero)),
            AtomicOp::AtomicRead => $a,
            AtomicOp::AtomicWrite => $b,
            AtomicOp::Cswap => choose($c == $a),
            AtomicOp::CswapNe => choose($c != $a),
            AtomicOp::CswapLe => choose($c <= $a),
            AtomicOp::CswapLt => choose($c < $a),
            AtomicOp::CswapGe => choose($c >= $a),
            AtomicOp::CswapGt => choose($c > $a),
            _ => return None,
        }
    }};
}

/// What types of Rust that are elements have in common.
macro_rules! element {
    ($type:ty) => {
        const DATATYPE: Datatype = <$type as Element>::DATATYPE;

        fn buffer_of(values: &[Self]) -> Buffer {
            buffer_of(values)
        }

        fn values_of(buffer: &Buffer) -> Vec<Self> {
            buffer.elements()
        }
    };
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            element!($type);

            fn limits() -> Vec<Self> {
                let third = Self::MAX / 3;
                vec![0, 1, Self::MAX, Self::MIN, Self::MAX - 1, Self::MIN + 2, third, !third]
            }

            fn new_value(op: AtomicOp, a: Self, b: Self, c: Self) -> Option<Self> {
                Some(match op {
                    AtomicOp::Sum => a.wrapping_add(b),
                    AtomicOp::Prod => a.wrapping_mul(b),
                    AtomicOp::Bor => a | b,
                    AtomicOp::Band => a & b,
                    AtomicOp::Bxor => a ^ b,
                    AtomicOp::Mswap => (b & c) | (a & !c),
                    op => common!(op a b c 0, 1),
                })
            }

            fn bits(self) -> Option<u128> {
                Some(self as u128)
            }
        })*
    };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Number for $type {
            element!($type);

            fn limits() -> Vec<Self> {
                let subnormal = Self::from_bits(1);
                vec![0.0, -0.0, 1.5, -2.75, Self::MAX, Self::INFINITY, Self::NAN, subnormal]
            }

            fn new_value(op: AtomicOp, a: Self, b: Self, c: Self) -> Option<Self> {
                Some(match op {
                    AtomicOp::Sum => a + b,
                    AtomicOp::Prod => a * b,
                    op => common!(op a b c 0.0, 1.0),
                })
            }

            fn bits(self) -> Option<u128> {
                (!self.is_nan()).then(|| self.to_bits().into())
            }
        })*
    };
}

floats!(f32, f64);

/// A complex number: its real part and its imaginary part.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Complex<T>(T, T);

macro_rules! complex {
    ($($type:ty: $datatype:ident),*) => {
        $(impl Number for Complex<$type> {
            const DATATYPE: Datatype = Datatype::$datatype;

            fn buffer_of(values: &[Self]) -> Buffer {
                let parts: Vec<$type> = values.iter().flat_map(|Self(re, im)| [*re, *im]).collect();
                buffer_of(&parts)
            }

            fn values_of(buffer: &Buffer) -> Vec<Self> {
                let parts = buffer.elements::<$type>();
                parts.as_chunks().0.iter().map(|[re, im]| Self(*re, *im)).collect()
            }

            fn limits() -> Vec<Self> {
                let (least, max) = (<$type>::from_bits(1), <$type>::MAX);
                vec![
                    Self(0.0, -0.0),
                    Self(-0.0, 1.5),
                    Self(2.0, -1.0),
                    Self(max, least),
                    Self(<$type>::INFINITY, 1.0),
                    Self(1.5, <$type>::NAN),
                ]
            }

            fn new_value(op: AtomicOp, a: Self, b: Self, c: Self) -> Option<Self> {
                let is_true = |it: Self| it.0 != 0.0 || it.1 != 0.0;
                let truth = |holds| Self(if holds { 1.0 } else { 0.0 }, 0.0);
                let choose = |holds| if holds { b } else { a };
                Some(match op {
                    AtomicOp::Sum => Self(a.0 + b.0, a.1 + b.1),
                    AtomicOp::Prod => Self(a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0),
                    AtomicOp::Lor => truth(is_true(a) || is_true(b)),
                    AtomicOp::Land => truth(is_true(a) && is_true(b)),
                    AtomicOp::Lxor => truth(is_true(a) != is_true(b)),
                    AtomicOp::AtomicRead => a,
                    AtomicOp::AtomicWrite => b,
                    AtomicOp::Cswap => choose(c == a),
                    AtomicOp::CswapNe => choose(c != a),
                    _ => return None,
                })
            }

            fn bits(self) -> Option<u128> {
                // A NaN in one part leaves the other one as it is.
                let part = |part: $type| match part.is_nan() {
                    true => u128::from(<$type>::NAN.to_bits()),
                    false => u128::from(part.to_bits()),
                };
                Some(part(self.0) << 64 | part(self.1))
            }
        })*
    };
}

complex!(f32: FloatComplex, f64: DoubleComplex);

/// Whether elements have the same bits; all NaNs are the same.
fn same<T: Number>(some: &[T], others: &[T]) -> bool {
    let is_same = |(a, b): (&T, &T)| a.bits() == b.bits();
    some.len() == others.len() && some.iter().zip(others).all(is_same)
}

/// The completion of a form.
fn completion(form: AtomicForm) -> CompFlags {
    match form {
        AtomicForm::Base => ADDED,
        AtomicForm::Fetch | AtomicForm::Compare => FETCHED,
    }
}

/// Every operation of a type that endpoints have, on all combinations of limits.
fn every_function<T: Number>(a: &Host, to_b: FiAddr, b: &Host, key: u64) {
    let limits = T::limits();
    let mut cases = Vec::new();
    for old in &limits {
        for operand in &limits {
            cases.extend(limits.iter().map(|compare| (*old, *operand, *compare)));
        }
    }
    let all = |part: fn(&(T, T, T)) -> T| {
        let elements: Vec<T> = cases.iter().map(part).collect();
        T::buffer_of(&elements)
    };
    let (olds, operands, compares) = (all(|case| case.0), all(|case| case.1), all(|case| case.2));
    let theirs = buffer(olds.len() + 16);
    let mr = open_region(b, &theirs, key);
    for op in OPS {
        let Some(_) = T::new_value(op, limits[0], limits[0], limits[0]) else {
            continue;
        };
        for form in forms(op) {
            theirs.write_at(8, &olds.to_vec(..));
            let result = buffer(olds.len());
            let remote = mr.remote(8);
            let posted = match form {
                AtomicForm::Base => Op::atomic(to_b, &operands, remote, T::DATATYPE, op),
                AtomicForm::Fetch => {
                    Op::fetch_atomic(to_b, &operands, &result, remote, T::DATATYPE, op)
                }
                AtomicForm::Compare => {
                    Op::compare_atomic(to_b, &operands, &compares, &result, remote, T::DATATYPE, op)
                }
            };
            let what = format!("{form:?} {op:?} {:?}", T::DATATYPE);
            a.ep.post_one(&posted.context(3)).expect(&what);
            a.expect(completion(*form), 3);
            let expected: Vec<T> = cases
                .iter()
                .flat_map(|(old, operand, compare)| T::new_value(op, *old, *operand, *compare))
                .collect();
            let found = holding(&theirs.to_vec(8..8 + olds.len()));
            let found = T::values_of(&found);
            assert!(same(&found, &expected), "{what}: {found:?}, {expected:?}");
            if *form != AtomicForm::Base {
                assert!(result.to_vec(..) == olds.to_vec(..), "{what}: old values");
            }
            assert_eq!(theirs.to_vec(..8), [0; 8]);
            assert_eq!(theirs.to_vec(8 + olds.len()..), [0; 8]);
        }
    }
    b.expect_nothing();
}

fn every_integer(way: Way) {
    let (a, to_b, b) = pair(way);
    every_function::<i8>(&a, to_b, &b, 1);
    every_function::<u8>(&a, to_b, &b, 2);
    every_function::<i16>(&a, to_b, &b, 3);
    every_function::<u16>(&a, to_b, &b, 4);
    every_function::<i32>(&a, to_b, &b, 5);
    every_function::<u32>(&a, to_b, &b, 6);
    every_function::<i64>(&a, to_b, &b, 7);
    every_function::<u64>(&a, to_b, &b, 8);
}

fn every_float(way: Way) {
    let (a, to_b, b) = pair(way);
    every_function::<f32>(&a, to_b, &b, 1);
    every_function::<f64>(&a, to_b, &b, 2);
}

fn every_complex_number(way: Way) {
    let (a, to_b, b) = pair(way);
    every_function::<Complex<f32>>(&a, to_b, &b, 1);
    every_function::<Complex<f64>>(&a, to_b, &b, 2);
}
