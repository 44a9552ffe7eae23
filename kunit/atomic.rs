// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_atomic`: atomics executed on memory of several pieces and on memory that may only
//! be read, and the rounding of sums and products, whose bits are known. Guest scenarios compare all
//! operations on the limits of all types.

use super::*;
use kernel::prelude::*;
use kfi_core::{
    enums::{
        AtomicOp,
        Datatype, //
    },
    op::OpType, //
};

use crate::{
    mem::payload,
    shim::errno::to_error, //
};

/// Single precision.
const ONE: u64 = 0x3f80_0000;
const MINUS_ONE: u64 = 0xbf80_0000;
const TWO: u64 = 0x4000_0000;
const THREE: u64 = 0x4040_0000;
const ZERO: u64 = 0;
const MINUS_ZERO: u64 = 0x8000_0000;
const INFINITE: u64 = 0x7f80_0000;
const MINUS_INFINITE: u64 = 0xff80_0000;
const NAN: u64 = 0x7fc0_0001;
/// The largest number.
const LARGEST: u64 = 0x7f7f_ffff;
/// The smallest subnormal number, and the smallest normal one.
const SUBNORMAL: u64 = 1;
const NORMAL: u64 = 0x0080_0000;

/// Double precision.
const ONE_64: u64 = 0x3ff0_0000_0000_0000;
const TWO_64: u64 = 0x4000_0000_0000_0000;
const THREE_64: u64 = 0x4008_0000_0000_0000;

/// Memory with these bytes.
fn memory(bytes: &[u8]) -> Result<MemRef> {
    let memory = MemRef::buffer(bytes.len())?;
    payload::store(&memory, 0, bytes);
    Ok(memory)
}

/// Executes an operation on one element, and returns the new value. The old value must be returned.
fn run(op: AtomicOp, datatype: Datatype, values: [Element; 2]) -> Result<Element> {
    let function = Function::new(OpType::FetchAtomic, op, datatype).map_err(to_error)?;
    let size = datatype.size();
    let bytes = |element: Element| {
        let mut bytes = [0; BYTES];
        for (to, from) in bytes.chunks_exact_mut(8).zip(element) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        memory(bytes.get(..size).unwrap_or_default())
    };
    let [target, operand] = values;
    let (at, result) = (bytes(target)?, MemRef::buffer(size)?);
    let operand = &Source::Mem(bytes(operand)?);
    let values = Values {
        operand,
        compare: operand,
        result: Some(&result),
    };
    apply(&function, &at, &values, 0);
    ensure_eq!(take(&mut result.cursor(0), size), target);
    Ok(take(&mut at.cursor(0), size))
}

#[kunit_tests(kfabric_atomic)]
mod tests {
    use super::*;

    /// Rounding, overflow, subnormal numbers, infinities and NaNs of single precision.
    #[test]
    fn sums_and_products_are_those_of_ieee_754() -> Result {
        if !has_floats() {
            return Ok(());
        }
        let single = |op, a, b| run(op, Datatype::Float, [[a, 0], [b, 0]]);
        let is_nan = |[bits, _]: Element| bits & INFINITE == INFINITE && bits & 0x7f_ffff != 0;
        for (a, b, sum) in [
            (ONE, TWO, THREE),
            (ONE, MINUS_ONE, ZERO),
            (MINUS_ZERO, MINUS_ZERO, MINUS_ZERO),
            (MINUS_ZERO, ZERO, ZERO),
            // 2^24 + 1 is rounded to even.
            (0x4b80_0000, ONE, 0x4b80_0000),
            (LARGEST, LARGEST, INFINITE),
            (INFINITE, ONE, INFINITE),
            (SUBNORMAL, SUBNORMAL, 2),
            (NORMAL, SUBNORMAL | MINUS_ZERO, NORMAL - 1),
        ] {
            ensure_eq!(single(AtomicOp::Sum, a, b)?, [sum, 0]);
        }
        ensure!(is_nan(single(AtomicOp::Sum, INFINITE, MINUS_INFINITE)?));
        ensure!(is_nan(single(AtomicOp::Sum, ONE, NAN)?));
        for (a, b, product) in [
            (TWO, MINUS_ONE, 0xc000_0000),
            (MINUS_ONE, ZERO, MINUS_ZERO),
            (LARGEST, TWO, INFINITE),
            // A half of the smallest normal number.
            (NORMAL, 0x3f00_0000, 0x0040_0000),
            // 1/3 times 3, rounded.
            (0x3eaa_aaab, THREE, ONE),
        ] {
            ensure_eq!(single(AtomicOp::Prod, a, b)?, [product, 0]);
        }
        ensure!(is_nan(single(AtomicOp::Prod, INFINITE, ZERO)?));
        let double = |op, a, b| run(op, Datatype::Double, [[a, 0], [b, 0]]);
        ensure_eq!(double(AtomicOp::Sum, ONE_64, TWO_64)?, [THREE_64, 0]);
        // 2^53 + 1 is rounded to even, and not kept in a longer format.
        let large = 0x4340_0000_0000_0000;
        ensure_eq!(double(AtomicOp::Sum, large, ONE_64)?, [large, 0]);
        Ok(())
    }

    /// Elements of each width in memory of several pieces; the neighbours stay.
    #[test]
    fn elements_are_changed_one_by_one() -> Result {
        let parts = [memory(&[1; 8])?, memory(&[2; 16])?];
        let target = MemRef::gather(&parts)?;
        let operand = memory(&[3; 16])?;
        for (datatype, skip) in [
            (Datatype::Uint8, 5),
            (Datatype::Int16, 6),
            (Datatype::Uint32, 4),
            (Datatype::Int64, 0),
        ] {
            let function = Function::new(OpType::FetchAtomic, AtomicOp::Bxor, datatype);
            let function = function.map_err(to_error)?;
            let part = target.slice(skip, 16);
            ensure!(is_aligned(&part, datatype.align()));
            ensure_eq!(is_aligned(&target.slice(1, 16), 2), false);
            let before = target.to_buffer()?;
            let result = MemRef::buffer(16)?;
            for _ in 0..2 {
                let operand = &Source::Mem(operand.clone());
                let values = Values {
                    operand,
                    compare: operand,
                    result: Some(&result),
                };
                apply(&function, &part, &values, 0);
                ensure!(!crate::mem::memref::equal(&result, &part));
            }
            // Twice the same bits.
            ensure!(crate::mem::memref::equal(&target, &before));
        }
        Ok(())
    }

    /// Memory that may only be read can be read atomically.
    #[test]
    fn reading_needs_no_right_to_write() -> Result {
        let user = crate::kunit::helpers::UserMemory::map(4096, true)?;
        user.write(0, &7u64.to_le_bytes())?;
        let range = crate::mem::UserRange {
            addr: user.addr() as u64,
            len: 8,
        };
        let pinned = crate::mem::Pinned::new(&[range], crate::mem::Access::Read)?;
        let target = MemRef::pinned(pinned);
        let (op, datatype) = (AtomicOp::AtomicRead, Datatype::Uint64);
        let function = Function::new(OpType::FetchAtomic, op, datatype).map_err(to_error)?;
        let result = MemRef::buffer(8)?;
        let none = Source::Mem(MemRef::empty());
        let values = Values {
            operand: &none,
            compare: &none,
            result: Some(&result),
        };
        apply(&function, &target, &values, 0);
        ensure_eq!(take(&mut result.cursor(0), 8), [7, 0]);
        Ok(())
    }
}
