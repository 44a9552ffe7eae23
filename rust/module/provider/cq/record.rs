// SPDX-License-Identifier: GPL-2.0

//! Records: memory for the error entries of operations whose success is silent.
//!
//! Such an operation has no room reserved in its CQ. It gets a [`Record`] before it starts, so that
//! its error entry can be queued without an allocation when the CQ is full. The record is charged
//! to the owner of the endpoint until the operation has succeeded or its error entry has been read.
//! A program that lets operations fail and never reads the errors therefore uses up its own limit,
//! and its next operation is refused with `ENOMEM`.
//!
//! # Context
//!
//! A record is allocated in process context. It is queued under the lock of the CQ. The rest of it
//! is dropped outside that lock.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cq_record.rs"]
mod kunit;

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    }, //
};

use kfi_core::cq::{
    ErrEntry,
    Records, //
};

use crate::mem::{
    Allowance,
    Budget, //
};

/// Bytes that a record takes, with the kernel's overhead for a tree node.
const BYTES: u64 = size_of::<Recorded>() as u64 + 64;

/// An error entry in a record.
pub(super) struct Recorded {
    entry: ErrEntry,
    _memory: Allowance,
}

/// Memory for one error entry.
pub(crate) struct Record {
    node: RBTreeNodeReservation<u64, Recorded>,
    memory: Allowance,
}

impl Record {
    /// Allocates a record and charges it to `budget`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(budget: &Budget) -> Result<Self> {
        let memory = budget.take(BYTES)?;
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        Ok(Self { node, memory })
    }
}

/// Error entries in records, by number.
pub(super) struct Tree(RBTree<u64, Recorded>);

impl Tree {
    /// Makes an empty tree.
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }
}

impl Records for Tree {
    type Record = Record;
    type Spent = RBTreeNode<u64, Recorded>;

    fn insert(&mut self, number: u64, entry: ErrEntry, record: Record) {
        let Record { node, memory } = record;
        let recorded = Recorded {
            entry,
            _memory: memory,
        };
        // Numbers are unique, so `insert` replaces no node.
        self.0.insert(node.into_node(number, recorded));
    }

    fn first(&self) -> Option<(u64, &ErrEntry)> {
        let (number, recorded) = self.0.iter().next()?;
        Some((*number, &recorded.entry))
    }

    fn pop_first(&mut self) -> Option<Self::Spent> {
        Some(self.0.cursor_front_mut()?.remove_current().1)
    }
}
