// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_atomic`: atomics executed on memory of several pieces, on memory that may only be
//! read, and on a word that another thread changes all the time; and the rounding of sums and
//! products, whose bits are known. Guest scenarios compare all operations on the limits of all
//! types.

use super::*;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};
use kfi_core::{
    enums::Datatype,
    op::OpType,
    word::Word, //
};

use crate::{
    kunit::helpers::thread,
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
    ensure!(apply(&function, &at, &values, 0, &mut Rounds::new()).is_ok());
    ensure_eq!(take(&mut result.cursor(0), size), target);
    Ok(take(&mut at.cursor(0), size))
}

/// Calls `run` with the element at byte 8 of 24 bytes, which has the value `target`, and with `old`
/// as the value that was found last. Returns the result, what was found, and the new value. The
/// bytes around the element must stay.
fn with_element<T>(
    function: &Function,
    [target, old, operand]: [u64; 3],
    run: impl FnOnce(&mut ContendedElement<'_>) -> T,
) -> Result<(T, u64, u64)> {
    let size = function.datatype().size();
    let memory = memory(&[0xa5; 24])?;
    payload::store(
        &memory,
        8,
        target.to_le_bytes().get(..size).unwrap_or_default(),
    );
    let at = memory.cursor_mut(8).ok_or(EINVAL)?;
    // INVARIANT: The buffer is aligned to 8 bytes, has 16 from there on, and can be written.
    let mut element = ContendedElement {
        function,
        addr: at.addr(),
        old,
        b: [operand, 0],
        c: [operand, 0],
    };
    let result = run(&mut element);
    let found = element.old;
    let [new, _] = take(&mut memory.cursor(8), size);
    let mut rest = [0; 24];
    payload::peek(&mut rest, &memory, 0);
    for (index, byte) in rest.into_iter().enumerate() {
        ensure!((8..8 + size).contains(&index) || byte == 0xa5);
    }
    Ok((result, found, new))
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
                ensure!(apply(&function, &part, &values, 0, &mut Rounds::new()).is_ok());
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
        ensure!(apply(&function, &target, &values, 0, &mut Rounds::new()).is_ok());
        ensure_eq!(take(&mut result.cursor(0), 8), [7, 0]);
        Ok(())
    }

    /// The instructions give the values of [`integer`], and change no other byte.
    #[test]
    fn one_instruction_changes_an_element() -> Result {
        let (target, operand) = (0x81c3_f00f_7ffe_80ffu64, 0x8f3c_ffff_8002_7f81u64);
        for datatype in [
            Datatype::Uint8,
            Datatype::Int16,
            Datatype::Uint32,
            Datatype::Int64, //
        ] {
            let mask = u64::MAX >> (64 - 8 * datatype.size());
            let (target, operand) = (target & mask, operand & mask);
            for (op, returns) in [
                (AtomicOp::Sum, true),
                (AtomicOp::AtomicWrite, true),
                (AtomicOp::Bor, false),
                (AtomicOp::Band, false),
                (AtomicOp::Bxor, false),
            ] {
                for kind in [OpType::Atomic, OpType::FetchAtomic] {
                    let function = Function::new(kind, op, datatype).map_err(to_error)?;
                    // The value that was found last is another one.
                    let values = [target, !target & mask, operand];
                    let (old, _, new) =
                        with_element(&function, values, |element| element.change_at_once())?;
                    let has = cfg!(CONFIG_X86_64) && (returns || kind == OpType::Atomic);
                    ensure_eq!(old.is_some(), has);
                    if returns && has {
                        ensure_eq!(old, Some(target));
                    }
                    let expected = integer::apply(&function, target, operand, 0);
                    ensure_eq!(Some(new), if has { expected } else { Some(target) });
                }
            }
        }
        // Others have none.
        for (op, datatype) in [
            (AtomicOp::Max, Datatype::Uint64),
            (AtomicOp::Prod, Datatype::Int32),
            (AtomicOp::Land, Datatype::Uint8),
            (AtomicOp::Sum, Datatype::Double),
        ] {
            let function = Function::new(OpType::Atomic, op, datatype).map_err(to_error)?;
            let (old, _, new) =
                with_element(&function, [1, 1, 2], |element| element.change_at_once())?;
            ensure_eq!((old, new), (None, 1));
        }
        Ok(())
    }

    /// The element has another value than the one that was found last, as if it had just changed.
    #[test]
    fn a_burst_counts_failed_rounds() -> Result {
        let float = [ONE, TWO, THREE];
        for (datatype, [target, other, operand]) in [
            (Datatype::Uint8, [5, 6, 7]),
            (Datatype::Int64, [5, 6, 7]),
            (Datatype::Float, float),
        ] {
            if datatype == Datatype::Float && !has_floats() {
                continue;
            }
            let function = Function::new(OpType::FetchAtomic, AtomicOp::Max, datatype);
            let function = function.map_err(to_error)?;
            for (old, rounds, expected) in [
                (target, 2, (Some(target), 2)),
                (other, 2, (Some(target), 1)),
                // The only round fails. The next one begins with the value that it has found.
                (other, 1, (None, 0)),
                (target, 0, (None, 0)),
            ] {
                let mut left = rounds;
                let values = [target, old, operand];
                let (result, found, new) =
                    with_element(&function, values, |element| element.burst(&mut left))?;
                ensure_eq!((result, left), expected);
                ensure_eq!(found, target);
                let changed = expected.0.is_some();
                ensure_eq!(new, if changed { operand } else { target });
            }
            // The element keeps its value, so no exchange is needed.
            let mut left = 1;
            let values = [operand, operand, target];
            let (result, _, new) =
                with_element(&function, values, |element| element.burst(&mut left))?;
            ensure_eq!((result, left, new), (Some(operand), 1, operand));
        }
        Ok(())
    }

    /// None of the changes of either side is lost.
    #[test]
    fn a_word_that_always_changes_can_be_changed() -> Result {
        let [target, operand, result] = [memory(&[0; 8])?, memory(&[0; 8])?, memory(&[0; 8])?];
        let function = Function::new(OpType::FetchAtomic, AtomicOp::Bxor, Datatype::Uint64);
        let function = function.map_err(to_error)?;
        let over = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let added = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
        let owner = {
            let (target, over, added) = (target.clone(), over.clone(), added.clone());
            thread(move || {
                while !over.load(Acquire) {
                    if let Some(word) = payload::word(&target) {
                        word.fetch_add(1);
                        added.fetch_add(1, Relaxed);
                    }
                    cond_resched();
                }
            })?
        };
        let (mut high, mut changed) = (0u64, Ok(()));
        let source = &Source::Mem(operand.clone());
        let values = Values {
            operand: source,
            compare: source,
            result: Some(&result),
        };
        for number in 0..20_000 {
            let bit = 1u64 << (32 + number % 32);
            payload::store(&operand, 0, &bit.to_le_bytes());
            changed = changed.and(apply(&function, &target, &values, 0, &mut Rounds::new()));
            high ^= bit;
        }
        over.store(true, Release);
        drop(owner);
        ensure!(changed.is_ok());
        let low = added.load(Acquire) & 0xffff_ffff;
        ensure_eq!(take(&mut target.cursor(0), 8), [high | low, 0]);
        Ok(())
    }
}
