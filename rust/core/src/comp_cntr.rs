// SPDX-License-Identifier: GPL-2.0

//! Completion counters of verbs: what they count, the counters that are attached to an endpoint or
//! a QP, and copies of the values in memory of the program.
//!
//! A completion counter has a completion count and an error count, which [`crate::cntr`] defines.
//! This file has the rest of ibv_create_comp_cntr(3) and ibv_qp_attach_comp_cntr(3):
//!
//! | operation                           | counts at its initiator | counts at its target        | bytes                 |
//! |-------------------------------------|-------------------------|-----------------------------|-----------------------|
//! | send, tagged send                   | `SEND`                  | `RECV` (the receive)        | of the message        |
//! | receive, tagged receive             | `RECV`                  |                             | that were placed      |
//! | read                                | `RDMA_READ`             | `REMOTE_RDMA_READ`          | of the operation      |
//! | write                               | `RDMA_WRITE`            | `REMOTE_RDMA_WRITE`         | of the operation      |
//! | write with immediate (CQ data)      | `RDMA_WRITE`            | `REMOTE_RDMA_WRITE`, `RECV` | as a write; 0 as RECV |
//! | atomics                             | nothing                 | nothing                     |                       |
//!
//! A success adds 1 to the completion count of a counter of work requests, and the bytes to that of
//! a counter of bytes ([`CompCntrType::amount`]). A failure adds 1 to the error count of either;
//! so does a work request that is flushed. A work request counts whether or not it is signalled.
//! Operations of a peer that are refused count nowhere at the target.
//!
//! # Copies in external memory
//!
//! The values are always in memory of the module. A counter with external memory has a copy of each
//! value there ([`ExternalValues`]). The module never reads a copy, because a program can write to
//! it. The rule for writing: first change the value, without any lock if need be; then take the
//! lock of the copies, read the value and store it, release the lock.
//!
//! The last store is then the last value. Each change is followed by a store of the same task. Take
//! the last store, and any change: the store that follows the change is the last one, or was made
//! under an earlier hold of the lock. In both cases the change happened before the value was read
//! for the last store. Copies are never older than the one before: a value is read after the lock
//! was taken, so it is at least as new as the value that the previous holder read. And a copy lags
//! behind only as long as a task is inside the lock or on its way to it. The lock must be a spin
//! lock: a task that is preempted between reading and storing would leave an old value there.
//! `tests/loom_comp_cntr.rs` checks both properties in every interleaving.
//!
//! Source: ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), and
//! `drivers/infiniband/core/uverbs_std_types_qp.c`.

use crate::{
    enums::{
        CompCntrEntry,
        CompCntrType, //
    },
    errno::Errno,
    flags::CompCntrOps,
    op::OpType, //
};

impl CompCntrType {
    /// Returns what the success of an operation with `len` bytes adds to the completion count.
    #[inline]
    pub const fn amount(self, len: u64) -> u64 {
        match self {
            Self::Wrs => 1,
            Self::Bytes => len,
        }
    }
}

impl OpType {
    /// Returns the bit under which a completion counter of the poster counts this operation; none
    /// for atomics.
    pub const fn comp_cntr_op(self) -> CompCntrOps {
        match self {
            Self::Send | Self::TSend => CompCntrOps::SEND,
            Self::Recv | Self::TRecv => CompCntrOps::RECV,
            Self::Read => CompCntrOps::RDMA_READ,
            Self::Write => CompCntrOps::RDMA_WRITE,
            Self::Atomic | Self::FetchAtomic | Self::CompareAtomic => CompCntrOps::EMPTY,
        }
    }

    /// Returns the bit under which a completion counter of the target counts this operation,
    /// besides the receive or the immediate data that it completes.
    pub const fn comp_cntr_op_at_target(self) -> CompCntrOps {
        match self {
            Self::Read => CompCntrOps::REMOTE_RDMA_READ,
            Self::Write => CompCntrOps::REMOTE_RDMA_WRITE,
            _ => CompCntrOps::EMPTY,
        }
    }
}

/// The number of operations that have a bit, and so the largest number of counters that can be
/// attached: the sets of attached counters are disjoint and not empty.
const OPS: usize = CompCntrOps::ALL.bits().count_ones() as usize;

/// The completion counters that are attached to one endpoint or QP, as references `C`.
///
/// They are attached before it carries operations, and stay until it is destroyed: there is no
/// detach.
pub struct AttachedCounters<C> {
    attached: [Option<(CompCntrOps, C)>; OPS],
}

impl<C> AttachedCounters<C> {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Self {
            attached: [const { None }; OPS],
        }
    }

    /// Attaches `counter` for `ops`. `supported` are the operations that can be counted.
    ///
    /// # Errors
    ///
    /// Nothing is attached then, and `counter` is dropped. `EINVAL`: `ops` is empty. `EBUSY`: an
    /// operation has a counter. `EOPNOTSUPP`: an operation cannot be counted.
    pub fn attach(
        &mut self,
        ops: CompCntrOps,
        supported: CompCntrOps,
        counter: C,
    ) -> Result<(), Errno> {
        if ops.is_empty() {
            return Err(Errno::EINVAL);
        }
        if self.ops().intersects(ops) {
            return Err(Errno::EBUSY);
        }
        if !supported.contains(ops) {
            return Err(Errno::EOPNOTSUPP);
        }
        // There is a free place: each counter has at least one operation of its own.
        let free = self.attached.iter_mut().find(|place| place.is_none());
        *free.ok_or(Errno::EBUSY)? = Some((ops, counter));
        Ok(())
    }

    /// Returns the operations that have a counter.
    pub fn ops(&self) -> CompCntrOps {
        let attached = self.attached.iter().flatten();
        attached.fold(CompCntrOps::EMPTY, |all, (ops, _)| all | *ops)
    }

    /// Returns the counter of `op`, one operation or none.
    pub fn get(&self, op: CompCntrOps) -> Option<&C> {
        let mut attached = self.attached.iter().flatten();
        let (_, counter) = attached.find(|(ops, _)| ops.intersects(op))?;
        Some(counter)
    }

    /// Returns all counters, in the order in which they were attached.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.attached.iter().flatten().map(|(_, counter)| counter)
    }
}

impl<C> Default for AttachedCounters<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// A 64-bit word of external memory. It can only be written.
pub trait ExternalWord {
    /// Writes as a whole, with release ordering: a program that reads the value with acquire
    /// ordering sees everything that happened before.
    fn store_release(&self, value: u64);
}

/// The copies of both values of a counter in external memory. Under a spin lock of its own.
pub struct ExternalValues<W: ExternalWord> {
    comp: W,
    err: W,
}

impl<W: ExternalWord> ExternalValues<W> {
    /// Takes the words for the completion count and the error count, and writes 0 to both.
    pub fn new(comp: W, err: W) -> Self {
        comp.store_release(0);
        err.store_release(0);
        Self { comp, err }
    }

    /// Writes a value that has just been changed. `value` reads it from the memory of the module.
    /// The caller holds the lock of the copies, which `&mut` stands for.
    #[inline]
    pub fn write(&mut self, entry: CompCntrEntry, value: impl FnOnce() -> u64) {
        let copy = match entry {
            CompCntrEntry::Comp => &self.comp,
            CompCntrEntry::Err => &self.err,
        };
        copy.store_release(value());
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_comp_cntr))]
mod tests {
    use super::*;
    use crate::{
        testing::Plain,
        word::Word, //
    };

    impl ExternalWord for &Plain {
        fn store_release(&self, value: u64) {
            self.store(value);
        }
    }

    #[test]
    fn operations_have_their_bits() {
        let bits = |kind: OpType| (kind.comp_cntr_op(), kind.comp_cntr_op_at_target());
        let none = CompCntrOps::EMPTY;
        assert_eq!(bits(OpType::Send), (CompCntrOps::SEND, none));
        assert_eq!(bits(OpType::TSend), (CompCntrOps::SEND, none));
        assert_eq!(bits(OpType::Recv), (CompCntrOps::RECV, none));
        assert_eq!(bits(OpType::TRecv), (CompCntrOps::RECV, none));
        assert_eq!(
            bits(OpType::Read),
            (CompCntrOps::RDMA_READ, CompCntrOps::REMOTE_RDMA_READ)
        );
        assert_eq!(
            bits(OpType::Write),
            (CompCntrOps::RDMA_WRITE, CompCntrOps::REMOTE_RDMA_WRITE)
        );
        for atomic in [OpType::Atomic, OpType::FetchAtomic, OpType::CompareAtomic] {
            assert_eq!(bits(atomic), (none, none));
        }
    }

    #[test]
    fn a_success_adds_one_or_its_bytes() {
        assert_eq!(CompCntrType::Wrs.amount(0), 1);
        assert_eq!(CompCntrType::Wrs.amount(1 << 30), 1);
        assert_eq!(CompCntrType::Bytes.amount(0), 0);
        assert_eq!(CompCntrType::Bytes.amount(1 << 30), 1 << 30);
    }

    #[test]
    fn each_operation_has_at_most_one_counter() {
        let all = CompCntrOps::ALL;
        let mut counters = AttachedCounters::new();
        assert_eq!(
            counters.attach(CompCntrOps::EMPTY, all, 0),
            Err(Errno::EINVAL)
        );
        let reads = CompCntrOps::RDMA_READ | CompCntrOps::REMOTE_RDMA_READ;
        assert_eq!(counters.attach(reads, all, 1), Ok(()));
        assert_eq!(
            counters.attach(CompCntrOps::SEND | CompCntrOps::RDMA_READ, all, 2),
            Err(Errno::EBUSY)
        );
        assert_eq!(counters.ops(), reads);
        assert_eq!(counters.attach(CompCntrOps::SEND, all, 2), Ok(()));
        assert_eq!(counters.get(CompCntrOps::SEND), Some(&2));
        assert_eq!(counters.get(CompCntrOps::REMOTE_RDMA_READ), Some(&1));
        assert_eq!(counters.get(CompCntrOps::RECV), None);
        assert_eq!(counters.get(CompCntrOps::EMPTY), None);
        assert!(counters.iter().eq(&[1, 2]));
    }

    #[test]
    fn an_operation_that_cannot_be_counted_is_refused() {
        let messages = CompCntrOps::SEND | CompCntrOps::RECV;
        let mut counters = AttachedCounters::new();
        assert_eq!(
            counters.attach(CompCntrOps::ALL, messages, 1),
            Err(Errno::EOPNOTSUPP)
        );
        assert_eq!(counters.get(CompCntrOps::SEND), None);
        assert_eq!(counters.attach(messages, messages, 1), Ok(()));
        // An operation that is taken and one that cannot be counted: the former is reported.
        assert_eq!(
            counters.attach(CompCntrOps::ALL, messages, 2),
            Err(Errno::EBUSY)
        );
    }

    #[test]
    fn six_counters_fit() {
        let mut counters = AttachedCounters::default();
        for bit in 0..OPS {
            let op = CompCntrOps::from_bits_truncate(1 << bit);
            assert_eq!(counters.attach(op, CompCntrOps::ALL, bit), Ok(()));
            assert_eq!(counters.get(op), Some(&bit));
        }
        assert_eq!(counters.ops(), CompCntrOps::ALL);
    }

    #[test]
    fn copies_are_written_and_not_read() {
        let (comp, err) = (Plain::new(7), Plain::new(8));
        let mut copies = ExternalValues::new(&comp, &err);
        assert_eq!((comp.load(), err.load()), (0, 0));
        comp.store(100);
        copies.write(CompCntrEntry::Err, || 3);
        assert_eq!((comp.load(), err.load()), (100, 3));
        copies.write(CompCntrEntry::Comp, || 1);
        assert_eq!((comp.load(), err.load()), (1, 3));
    }
}
