// SPDX-License-Identifier: GPL-2.0
//! The new values of integers.
//!
//! An element is passed as its bits, in the low bits of a word; the other bits are ignored on entry
//! and 0 in the result.

use super::Function;
use crate::enums::{
    AtomicOp,
    Datatype, //
};

/// An integer type of an element.
trait Integer: Copy + Ord {
    const ZERO: Self;
    const ONE: Self;
    fn from_word(word: u64) -> Self;
    fn to_word(self) -> u64;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! integers {
    ($($type:ty as $bits:ty,)*) => {
        $(impl Integer for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            fn from_word(word: u64) -> Self {
                // The low bits.
                word as Self
            }

            fn to_word(self) -> u64 {
                // Without an extension of the sign.
                u64::from(self as $bits)
            }

            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn or(self, other: Self) -> Self {
                self | other
            }

            fn and(self, other: Self) -> Self {
                self & other
            }

            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            fn not(self) -> Self {
                !self
            }
        })*
    };
}

integers! {
    i8 as u8,
    u8 as u8,
    i16 as u16,
    u16 as u16,
    i32 as u32,
    u32 as u32,
    i64 as u64,
    u64 as u64,
}

/// Returns the new value of an element, from its old value `target`, the operand, and the value to
/// compare with. An unused argument is ignored. Returns `None` if the elements are no integers.
pub fn apply(function: &Function, target: u64, operand: u64, compare: u64) -> Option<u64> {
    let op = function.op();
    Some(match function.datatype() {
        Datatype::Int8 => apply_as::<i8>(op, target, operand, compare),
        Datatype::Uint8 => apply_as::<u8>(op, target, operand, compare),
        Datatype::Int16 => apply_as::<i16>(op, target, operand, compare),
        Datatype::Uint16 => apply_as::<u16>(op, target, operand, compare),
        Datatype::Int32 => apply_as::<i32>(op, target, operand, compare),
        Datatype::Uint32 => apply_as::<u32>(op, target, operand, compare),
        Datatype::Int64 => apply_as::<i64>(op, target, operand, compare),
        Datatype::Uint64 => apply_as::<u64>(op, target, operand, compare),
        _ => return None,
    })
}

fn apply_as<T: Integer>(op: AtomicOp, target: u64, operand: u64, compare: u64) -> u64 {
    let (target, operand) = (T::from_word(target), T::from_word(operand));
    new_value(op, target, operand, T::from_word(compare)).to_word()
}

fn new_value<T: Integer>(op: AtomicOp, target: T, operand: T, compare: T) -> T {
    let (a, b) = (target != T::ZERO, operand != T::ZERO);
    let truth = |holds: bool| if holds { T::ONE } else { T::ZERO };
    let swap_if = |holds: bool| if holds { operand } else { target };
    match op {
        AtomicOp::Min => target.min(operand),
        AtomicOp::Max => target.max(operand),
        AtomicOp::Sum => target.sum(operand),
        AtomicOp::Prod => target.product(operand),
        AtomicOp::Lor => truth(a || b),
        AtomicOp::Land => truth(a && b),
        AtomicOp::Bor => target.or(operand),
        AtomicOp::Band => target.and(operand),
        AtomicOp::Lxor => truth(a != b),
        AtomicOp::Bxor => target.xor(operand),
        AtomicOp::AtomicRead => target,
        AtomicOp::AtomicWrite => operand,
        AtomicOp::Cswap => swap_if(compare == target),
        AtomicOp::CswapNe => swap_if(compare != target),
        AtomicOp::CswapLe => swap_if(compare <= target),
        AtomicOp::CswapLt => swap_if(compare < target),
        AtomicOp::CswapGe => swap_if(compare >= target),
        AtomicOp::CswapGt => swap_if(compare > target),
        AtomicOp::Mswap => operand.and(compare).or(target.and(compare.not())),
    }
}
