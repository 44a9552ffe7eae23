// SPDX-License-Identifier: GPL-2.0

//! Executing atomics on memory.
//!
//! [`apply`] changes the elements of a range one after the other, as [`kfi_core::atomic`] defines
//! it. An element of up to 8 bytes is read, its new value is computed, and a compare-exchange of
//! its width stores it. If the element has changed meanwhile, it is changed by one instruction if
//! the CPU has one for the operation, and otherwise that is repeated. An element that keeps its
//! value is not written, unless one instruction changes it. An element of 16 bytes is changed under
//! a lock.
//!
//! The owner of the memory can change an element all the time, so the rounds of an operation are
//! limited ([`Rounds`]).
//!
//! All functions run in process context, and the elements of one operation have at most
//! [`MAX_ATOMIC_SIZE`](kfi_core::limits::MAX_ATOMIC_SIZE) bytes. [`apply`] yields if other tasks
//! change an element at the same time; no function sleeps otherwise.

use super::{
    memref::{
        MemRef,
        Source, //
    },
    segments::Cursor, //
};
use crate::shim::{
    bindings as shim,
    sched::cond_resched, //
};
#[cfg(kfi_kunit)]
#[path = "../../../kunit/atomic.rs"]
mod kunit;

use kfi_core::{
    atomic::{
        contended::{
            Contended,
            Contention,
            Rounds, //
        },
        integer,
        Class,
        Function, //
    },
    enums::AtomicOp, //
};

/// The words of an element.
const WORDS: usize = 2;

/// The size of the longest element in bytes.
const BYTES: usize = WORDS * size_of::<u64>();

// A short element is in the low bits of its word, and on the wire in little-endian byte order.
kernel::static_assert!(cfg!(target_endian = "little"));

/// The bits of an element.
type Element = [u64; WORDS];

/// Whether this kernel computes floating point.
pub(crate) fn has_floats() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { shim::kfabric_shim_has_floats() }
}

/// Whether the elements of `memory` can be changed atomically: each address is a multiple of
/// `align`, which is at most 8, and no word is interrupted.
pub(crate) fn is_aligned(memory: &MemRef, align: usize) -> bool {
    let mut at = memory.cursor(0);
    while at.left() > 0 {
        let here = at.here();
        let is_multiple = |n: usize| n.checked_rem(align) == Some(0);
        if !is_multiple(at.addr().addr()) || !is_multiple(here) {
            return false;
        }
        at.advance(here);
    }
    true
}

/// The values that an atomic uses, and the destination of the old ones.
pub(crate) struct Values<'a> {
    /// The operands; not used by ATOMIC_READ.
    pub(crate) operand: &'a Source<'a>,
    /// The values to compare with; only for comparing atomics.
    pub(crate) compare: &'a Source<'a>,
    /// The destination of the old values, if they are wanted. It may be the memory of the operands.
    pub(crate) result: Option<&'a MemRef>,
}

/// Executes `function` on the elements of `target`, which are [aligned](is_aligned). Its values
/// begin at byte `skip` of `values`. `rounds` counts for the whole operation. No spin lock is held.
///
/// Fails if others have changed an element in all rounds. The elements before that one were
/// changed, and their old values are in the result.
pub(crate) fn apply(
    function: &Function,
    target: &MemRef,
    values: &Values<'_>,
    skip: usize,
    rounds: &mut Rounds,
) -> core::result::Result<(), Contention> {
    let size = function.datatype().size();
    let at = if function.changes() {
        target.cursor_mut(0)
    } else {
        Some(target.cursor(0))
    };
    let Some(mut at) = at else {
        return Ok(());
    };
    let mut operand = values.operand.cursor(skip);
    let mut compare = values.compare.cursor(skip);
    let mut result = values.result.and_then(|result| result.cursor_mut(skip));
    while at.left() >= size && size > 0 {
        let (operand, compare) = (take(&mut operand, size), take(&mut compare, size));
        let old = if size > size_of::<u64>() {
            change_pair(function, &mut at, &operand, &compare)
        } else {
            change_word(function, &mut at, operand, compare, rounds)?
        };
        if let Some(result) = &mut result {
            put(result, size, &old);
        }
    }
    Ok(())
}

/// Changes the element of at most 8 bytes at `at`, and returns its old value. Fails if others have
/// changed it in all rounds.
fn change_word(
    function: &Function,
    at: &mut Cursor<'_>,
    b: Element,
    c: Element,
    rounds: &mut Rounds,
) -> core::result::Result<Element, Contention> {
    let (addr, size) = (at.addr(), function.datatype().size());
    // The element is contiguous: it is aligned, and no word is interrupted.
    at.advance(size.min(at.here()));
    // SAFETY: The cursor's memory is valid for reads of `size` bytes at an aligned address. Others
    // may change it.
    let mut old = unsafe { shim::kfabric_shim_element_load(addr.cast(), size) };
    let new = value(function, [old, 0], b, c);
    if new == old {
        return Ok([old, 0]);
    }
    let before = old;
    // SAFETY: As above, and for writes: a function that gives another value changes elements, and
    // `cursor_mut` returned the cursor.
    if unsafe { shim::kfabric_shim_element_cmpxchg(addr.cast(), size, &mut old, new) } {
        return Ok([before, 0]);
    }
    // INVARIANT: As above.
    let mut element = ContendedElement {
        function,
        addr,
        old,
        b,
        c,
    };
    change_contended(&mut element, rounds)
}

/// The rest of [`change_word`], after a round that has failed.
#[cold]
fn change_contended(
    element: &mut ContendedElement<'_>,
    rounds: &mut Rounds,
) -> core::result::Result<Element, Contention> {
    rounds.change(element).map(|old| [old, 0])
}

/// An element of at most 8 bytes that others have changed during a round.
///
/// # Invariants
///
/// `addr` is aligned, and valid for reads and writes of the size of an element of `function`, which
/// changes elements.
struct ContendedElement<'a> {
    function: &'a Function,
    addr: *mut u8,
    /// The value that was found last.
    old: u64,
    b: Element,
    c: Element,
}

impl Contended for ContendedElement<'_> {
    fn change_at_once(&mut self) -> Option<u64> {
        let function = self.function;
        let (op, size) = (function.op(), function.datatype().size());
        if function.datatype().class() != Class::Integer && op != AtomicOp::AtomicWrite {
            return None;
        }
        let ([operand, _], mut old) = (self.b, self.old);
        // SAFETY: By the type invariants. Others may change the element.
        let changed = unsafe {
            shim::kfabric_shim_element_at_once(
                self.addr.cast(),
                size,
                op as u32,
                operand,
                &mut old,
                function.fetches(),
            )
        };
        changed.then_some(old)
    }

    fn burst(&mut self, rounds: &mut u32) -> Option<u64> {
        let function = self.function;
        let (datatype, size) = (function.datatype(), function.datatype().size());
        if datatype.class() != Class::Integer {
            // SAFETY: By the type invariants; the other pointers are valid for `WORDS` words, for a
            // word, and for 4 bytes. The context is that of this module.
            let changed = unsafe {
                shim::kfabric_shim_float_burst(
                    self.addr.cast(),
                    size,
                    function.op() as u32,
                    datatype as u32,
                    self.b.as_ptr(),
                    self.c.as_ptr(),
                    &mut self.old,
                    rounds,
                )
            };
            return changed.then_some(self.old);
        }
        while *rounds > 0 {
            let before = self.old;
            let new = value(function, [before, 0], self.b, self.c);
            // SAFETY: By the type invariants. Others may change the element.
            let changed = new == before
                || unsafe {
                    shim::kfabric_shim_element_cmpxchg(self.addr.cast(), size, &mut self.old, new)
                };
            if changed {
                return Some(before);
            }
            *rounds = rounds.saturating_sub(1);
        }
        None
    }

    fn pause(&mut self) {
        cond_resched();
    }
}

/// The new value of an element of at most 8 bytes.
fn value(function: &Function, a: Element, b: Element, c: Element) -> u64 {
    let ([target, _], [operand, _], [compare, _]) = (a, b, c);
    if !function.changes() {
        return target;
    }
    if function.datatype().class() == Class::Integer {
        return integer::apply(function, target, operand, compare).unwrap_or(target);
    }
    let mut new = a;
    let (op, datatype) = (function.op() as u32, function.datatype() as u32);
    // SAFETY: All pointers are valid for `WORDS` words. The context is that of this module.
    unsafe {
        shim::kfabric_shim_float_apply(
            op,
            datatype,
            a.as_ptr(),
            b.as_ptr(),
            c.as_ptr(),
            new.as_mut_ptr(),
        );
    }
    let [new, _] = new;
    new
}

/// Changes the element of 16 bytes at `at`, and returns its old value.
fn change_pair(function: &Function, at: &mut Cursor<'_>, b: &Element, c: &Element) -> Element {
    let mut word = || {
        let addr = at.addr().cast::<u64>();
        at.advance(size_of::<u64>().min(at.here()));
        addr
    };
    let (low, high) = (word(), word());
    let mut old = [0; WORDS];
    let (op, datatype) = (function.op() as u32, function.datatype() as u32);
    // SAFETY: Both words are aligned and contiguous, because the memory is; they are valid for
    // reads, and for writes unless the function is ATOMIC_READ. The other pointers are valid for
    // `WORDS` words.
    unsafe {
        shim::kfabric_shim_pair_apply(
            low,
            high,
            op,
            datatype,
            b.as_ptr(),
            c.as_ptr(),
            old.as_mut_ptr(),
        );
    }
    old
}

/// Takes an element of `size` bytes; bytes that are not there are 0.
fn take(from: &mut Cursor<'_>, size: usize) -> Element {
    let mut bytes = [0; BYTES];
    let mut rest = bytes.get_mut(..size).unwrap_or_default();
    while !rest.is_empty() && from.left() > 0 {
        let piece = from.here().min(rest.len());
        // SAFETY: The cursor's memory is valid for reads of `piece` bytes, `rest` for writes.
        // Others may change the former during the copy, which is why C does it.
        unsafe { shim::kfabric_shim_copy(rest.as_mut_ptr().cast(), from.addr().cast(), piece) };
        from.advance(piece);
        rest = rest.get_mut(piece..).unwrap_or_default();
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
    ]
}

/// Stores an element of `size` bytes, as far as there is room.
fn put(to: &mut Cursor<'_>, size: usize, element: &Element) {
    let [low, high] = element.map(u64::to_le_bytes);
    let [a, b, c, d, e, f, g, h] = low;
    let [i, j, k, l, m, n, o, p] = high;
    let bytes = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
    let mut rest = bytes.get(..size).unwrap_or_default();
    while !rest.is_empty() && to.left() > 0 {
        let piece = to.here().min(rest.len());
        // SAFETY: The cursor's memory is valid for writes of `piece` bytes, because `cursor_mut`
        // returned it, and `rest` for reads.
        unsafe { shim::kfabric_shim_copy(to.addr().cast(), rest.as_ptr().cast(), piece) };
        to.advance(piece);
        rest = rest.get(piece..).unwrap_or_default();
    }
}
