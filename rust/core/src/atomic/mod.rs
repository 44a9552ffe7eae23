// SPDX-License-Identifier: GPL-2.0
//! Atomics: the operations, the data types, and which endpoints have which.
//!
//! An atomic changes elements of a peer's memory. It has one of three forms, which are kinds of
//! operations ([`OpType`]): `Atomic` (base) changes the elements, `FetchAtomic` also returns their
//! old values, `CompareAtomic` also depends on values to compare with. [`Function`] is a valid
//! combination of form, operation and data type.
//!
//! | operations | forms | integers | float, double | complex |
//! |---|---|---|---|---|
//! | SUM, PROD, LOR, LAND, LXOR, ATOMIC_WRITE | base, fetch | yes | yes | yes |
//! | MIN, MAX | base, fetch | yes | yes | |
//! | BOR, BAND, BXOR | base, fetch | yes | | |
//! | ATOMIC_READ | fetch | yes | yes | yes |
//! | CSWAP, CSWAP_NE | compare | yes | yes | yes |
//! | CSWAP_LE, CSWAP_LT, CSWAP_GE, CSWAP_GT | compare | yes | yes | |
//! | MSWAP | compare | yes | | |
//!
//! LONG_DOUBLE and LONG_DOUBLE_COMPLEX have no operations: their format depends on the compiler,
//! and the kernel cannot compute in it.
//!
//! # Values
//!
//! Integers wrap. LOR, LAND and LXOR treat an element as true if it is not zero, and give 1 or 0.
//! [`integer`] computes them. This crate does not compute floating point, because kernel code that
//! does so needs other compiler flags; the module's C code has the same rules with those of IEEE
//! 754:
//! - Each step of a sum or a product is rounded to nearest, to the element's own type. Subnormal
//!   numbers are not flushed to zero.
//! - MIN and MAX replace the target if the operand is less (greater). A comparison with a NaN does
//!   not hold, and -0 equals +0; in both cases the target keeps its value.
//! - CSWAP and the like compare values in the same way: CSWAP with a NaN never swaps, CSWAP_NE with
//!   a NaN always does.
//! - A NaN is not zero, so it is true. A complex number is true if one of its parts is not zero;
//!   the result 1 has the imaginary part 0.
//! - A product of complex numbers is (ac - bd) + (ad + bc)i, without a correction for infinities.
//!
//! # Atomicity
//!
//! An element of up to 8 bytes is changed by one instruction of the CPU, or by a compare-exchange
//! of its width that is repeated until it succeeds, for a limited number of rounds
//! ([`contended`]). So atomics are atomic with respect to each other, whichever way they take, and
//! to atomic instructions of programs. A DOUBLE_COMPLEX has 16 bytes and is changed under a lock:
//! atomics on it are atomic with respect to each other, and a program that accesses its halves
//! while an atomic runs may find one of them changed and the other not. Several elements of one
//! operation are several atomic changes, in no specified order.
//!
//! # The network
//!
//! An RC QP has two atomics, on one unsigned word of 8 bytes: fetch-and-add, compare-and-swap
//! ([`Function::rc`]). Connected endpoints have only these. Endpoints for reliable datagrams use
//! them for the fetching sum and the CSWAP of one 64-bit integer, and SENDs of their own
//! ([`rdm::header`](crate::rdm::header)) for everything else.

pub mod contended;
pub mod integer;

use crate::{
    enums::{
        AtomicOp,
        Datatype,
        EpType, //
    },
    errno::Errno,
    flags::{
        Access,
        Caps, //
    },
    limits,
    op::OpType,
};

/// The length in bytes of the word that an RC atomic changes.
pub const RC_LEN: usize = 8;

/// The classes of data types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Signed and unsigned integers.
    Integer,
    /// FLOAT, DOUBLE.
    Real,
    /// Complex numbers of two of them.
    Complex,
    /// Types without operations.
    Other,
}

impl Datatype {
    /// Returns the class of this type.
    pub const fn class(self) -> Class {
        match self {
            Self::Int8
            | Self::Uint8
            | Self::Int16
            | Self::Uint16
            | Self::Int32
            | Self::Uint32
            | Self::Int64
            | Self::Uint64 => Class::Integer,
            Self::Float | Self::Double => Class::Real,
            Self::FloatComplex | Self::DoubleComplex => Class::Complex,
            Self::LongDouble | Self::LongDoubleComplex => Class::Other,
        }
    }

    /// Returns the size of an element in bytes: a power of two, at most 16; 0 for a type without
    /// operations.
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::DoubleComplex => 16,
            Self::LongDouble | Self::LongDoubleComplex => 0,
        }
    }

    /// Returns the alignment of an element in bytes: its size, at most 8.
    pub const fn align(self) -> usize {
        match self.size() {
            0 => 1,
            16 => 8,
            size => size,
        }
    }
}

/// An atomic of an RC QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RcAtomic {
    /// Adds the operand.
    FetchAdd,
    /// Stores the operand if the word equals the compared value.
    CompareSwap,
}

/// The function of an atomic: its form, operation and data type.
///
/// # Invariants
///
/// The form has the operation, and the operation is defined for the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    kind: OpType,
    op: AtomicOp,
    datatype: Datatype,
}

impl Function {
    /// Returns the function of these three.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `kind` is no atomic. `EOPNOTSUPP`: the form does not have the operation, or it is
    /// not defined for the type.
    pub const fn new(kind: OpType, op: AtomicOp, datatype: Datatype) -> Result<Self, Errno> {
        if !kind.is_atomic() {
            return Err(Errno::EINVAL);
        }
        if !is_of_form(kind, op) || !is_defined(op, datatype.class()) {
            return Err(Errno::EOPNOTSUPP);
        }
        // INVARIANT: Just checked.
        Ok(Self { kind, op, datatype })
    }

    /// Returns the form: `Atomic`, `FetchAtomic` or `CompareAtomic`.
    pub const fn kind(&self) -> OpType {
        self.kind
    }

    /// Returns the operation.
    pub const fn op(&self) -> AtomicOp {
        self.op
    }

    /// Returns the data type.
    pub const fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Returns whether the function has an operand for each element. ATOMIC_READ has none.
    pub const fn has_operand(&self) -> bool {
        !matches!(self.op, AtomicOp::AtomicRead)
    }

    /// Returns whether the function compares each element with a value.
    pub const fn compares(&self) -> bool {
        matches!(self.kind, OpType::CompareAtomic)
    }

    /// Returns whether the function returns the old value of each element.
    pub const fn fetches(&self) -> bool {
        !matches!(self.kind, OpType::Atomic)
    }

    /// Returns whether the function may change the elements.
    pub const fn changes(&self) -> bool {
        self.has_operand()
    }

    /// Returns the bytes of all operands and compared values for `len` bytes of elements, at most
    /// [`MAX_ATOMIC_SIZE`](limits::MAX_ATOMIC_SIZE).
    pub const fn input_len(&self, len: usize) -> usize {
        match (self.has_operand(), self.compares()) {
            (false, _) => 0,
            (true, false) => len,
            (true, true) => len.saturating_mul(2),
        }
    }

    /// Returns the access that the peer's region must allow. An atomic that does not return the old
    /// value only writes; ATOMIC_READ only reads.
    pub const fn target_access(&self) -> Access {
        match (self.fetches(), self.changes()) {
            (_, false) => Access::REMOTE_READ,
            (false, true) => Access::REMOTE_WRITE,
            (true, true) => Access::REMOTE_READ.union(Access::REMOTE_WRITE),
        }
    }

    /// Returns the capabilities that the peer's endpoint for reliable datagrams must have.
    pub const fn target_caps(&self) -> Caps {
        Caps::ATOMIC.union(match (self.fetches(), self.changes()) {
            (_, false) => Caps::REMOTE_READ,
            (false, true) => Caps::REMOTE_WRITE,
            (true, true) => Caps::REMOTE_READ.union(Caps::REMOTE_WRITE),
        })
    }

    /// Returns the atomic of an RC QP that does the same for one element, if there is one. It
    /// returns the old value in any case.
    pub const fn rc(&self) -> Option<RcAtomic> {
        match (self.datatype, self.op) {
            // The sums of signed and unsigned numbers have the same bits.
            (Datatype::Int64 | Datatype::Uint64, AtomicOp::Sum) => Some(RcAtomic::FetchAdd),
            (Datatype::Int64 | Datatype::Uint64, AtomicOp::Cswap) => Some(RcAtomic::CompareSwap),
            _ => None,
        }
    }

    /// Returns the maximum number of elements of one operation of an endpoint of this type.
    /// `floats`: the host computes floating point.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the endpoint does not have the function.
    pub const fn max_count(&self, ep_type: EpType, floats: bool) -> Result<usize, Errno> {
        let fits = limits::MAX_ATOMIC_SIZE.checked_div(self.datatype.size());
        match (ep_type, self.datatype.class(), fits) {
            (EpType::Msg, _, _) if self.rc().is_some() => Ok(1),
            (EpType::Msg | EpType::Dgram, _, _) => Err(Errno::EOPNOTSUPP),
            (_, Class::Integer, Some(fits)) => Ok(fits),
            (_, _, Some(fits)) if floats => Ok(fits),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Checks that an endpoint can post the function on `len` bytes of elements. `floats` as in
    /// [`max_count`](Self::max_count).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the endpoint does not have the function. `EINVAL`: `len` is no positive
    /// multiple of the element's size. `EMSGSIZE`: there are too many elements.
    pub fn check(&self, ep_type: EpType, floats: bool, len: u64) -> Result<(), Errno> {
        let max = self.max_count(ep_type, floats)? as u64;
        // Not 0: the type has operations.
        let size = self.datatype.size() as u64;
        let (Some(count), Some(0)) = (len.checked_div(size), len.checked_rem(size)) else {
            return Err(Errno::EINVAL);
        };
        match count {
            0 => Err(Errno::EINVAL),
            count if count > max => Err(Errno::EMSGSIZE),
            _ => Ok(()),
        }
    }

    /// Checks a piece of the peer's memory: `len` bytes at `addr`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the address is not a multiple of the element's alignment, or the length is not a
    /// multiple of its size.
    pub fn check_piece(&self, addr: u64, len: u64) -> Result<(), Errno> {
        let is_multiple = |n: u64, of: usize| n.checked_rem(of as u64) == Some(0);
        if !is_multiple(addr, self.datatype.align()) || !is_multiple(len, self.datatype.size()) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

/// Returns whether a form has an operation.
const fn is_of_form(kind: OpType, op: AtomicOp) -> bool {
    match op {
        AtomicOp::Min
        | AtomicOp::Max
        | AtomicOp::Sum
        | AtomicOp::Prod
        | AtomicOp::Lor
        | AtomicOp::Land
        | AtomicOp::Bor
        | AtomicOp::Band
        | AtomicOp::Lxor
        | AtomicOp::Bxor
        | AtomicOp::AtomicWrite => matches!(kind, OpType::Atomic | OpType::FetchAtomic),
        AtomicOp::AtomicRead => matches!(kind, OpType::FetchAtomic),
        AtomicOp::Cswap
        | AtomicOp::CswapNe
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt
        | AtomicOp::Mswap => matches!(kind, OpType::CompareAtomic),
    }
}

/// Returns whether an operation is defined for a class of types.
const fn is_defined(op: AtomicOp, class: Class) -> bool {
    let of_bits = matches!(
        op,
        AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap
    );
    let of_order = matches!(
        op,
        AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::CswapLe
            | AtomicOp::CswapLt
            | AtomicOp::CswapGe
            | AtomicOp::CswapGt
    );
    match class {
        Class::Integer => true,
        Class::Real => !of_bits,
        Class::Complex => !of_bits && !of_order,
        Class::Other => false,
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
