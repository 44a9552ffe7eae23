// SPDX-License-Identifier: GPL-2.0

//! Records: memory for the error entries of operations whose success is silent.
//!
//! Such an operation has no room reserved in its CQ. If it may be kept after its call returns, or
//! is admitted to be started later, it gets a [`Record`] in advance, so that its error entry can be
//! queued without an allocation when the CQ is full. The record is charged to the owner of the
//! endpoint until the operation has succeeded or its error entry has been read. A program that lets
//! operations fail and never reads the errors therefore uses up its own limit, and its next
//! operation is refused with `ENOMEM`.
//!
//! The record of a deferred transfer also says to whom it reports ([`Deferral`]). It is there even
//! if the side of the endpoint has no CQ; then it has no memory, and nothing is charged for it.
//!
//! Most operations succeed, so an endpoint keeps the records of some that did ([`RecordPool`]) for
//! its next operations: allocating, charging and freeing one for each message of 8 bytes costs
//! 3.5 % of `roce/send_rate_8B`. These records stay charged while the endpoint exists.
//!
//! # Context
//!
//! A record is allocated in any context, for an operation that is admitted in an interrupt. It is
//! queued under the lock of the CQ, where the small part that is not the tree's node is freed. The
//! node and its charge are dropped outside that lock, in process context.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cq_record.rs"]
mod kunit;

use kernel::{
    alloc::Flags,
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

use crate::{
    mem::Budget,
    provider::{
        prelude::*,
        work::Deferral, //
    }, //
};

/// Bytes that a record takes, with the kernel's overhead for a tree node.
const BYTES: u64 = (size_of::<Recorded>() + size_of::<Reservation>()) as u64 + 64;

/// An error entry in a record.
pub(super) struct Recorded {
    entry: ErrEntry,
    _memory: Allowance,
}

/// What an operation has to report with: memory for one error entry, and the report of deferred
/// work.
pub(crate) struct Record {
    /// `None`: the side has no CQ.
    memory: Option<KBox<Reservation>>,
    deferral: Option<Deferral>,
}

// Every ticket has room for one.
kernel::static_assert!(size_of::<Option<Record>>() <= 24);

/// Memory for one error entry. A pointer, because every ticket has room for one.
struct Reservation {
    node: RBTreeNodeReservation<u64, Recorded>,
    memory: Allowance,
}

impl Record {
    /// Allocates a record with `flags` and charges it to `budget`. Fails with `ENOMEM`. Sleeps if
    /// `flags` allow that.
    pub(crate) fn new(budget: &Budget, flags: Flags) -> Result<Self> {
        let memory = budget.take(BYTES)?;
        let reservation = Reservation {
            node: RBTreeNodeReservation::new(flags)?,
            memory,
        };
        Ok(Self {
            memory: Some(KBox::new(reservation, flags)?),
            deferral: None,
        })
    }

    /// The record of a deferred transfer of a side without a CQ. It has no memory. Any context.
    pub(crate) fn without_memory(deferral: Deferral) -> Self {
        Self {
            memory: None,
            deferral: Some(deferral),
        }
    }

    /// Makes it the record of a deferred transfer. Any context.
    pub(crate) fn with(self, deferral: Deferral) -> Self {
        Self {
            deferral: Some(deferral),
            ..self
        }
    }

    /// The report of a deferred transfer.
    #[inline]
    pub(crate) fn deferral(&mut self) -> Option<&mut Deferral> {
        self.deferral.as_mut()
    }

    /// Whether it belongs to a deferred transfer.
    #[inline]
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferral.is_some()
    }

    /// Takes the report of a deferred transfer out.
    #[inline]
    pub(crate) fn take_deferral(&mut self) -> Option<Deferral> {
        self.deferral.take()
    }
}

/// Records that a pool keeps.
const POOL_SIZE: usize = 64;

/// The memory of unused records of an endpoint, at most [`POOL_SIZE`].
#[pin_data]
pub(crate) struct RecordPool {
    #[pin]
    unused: SpinLock<KVec<KBox<Reservation>>>,
}

impl RecordPool {
    /// Bytes that an empty pool takes in addition to its own size.
    pub(crate) const BYTES: usize = POOL_SIZE * size_of::<KBox<Reservation>>();

    /// An empty pool. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<impl PinInit<Self>> {
        let unused = KVec::with_capacity(POOL_SIZE, GFP_KERNEL_ACCOUNT)?;
        Ok(pin_init!(Self {
            unused <- new_spinlock!(unused, "cq::RecordPool::unused"),
        }))
    }

    /// Takes an unused record, or allocates one and charges it to `budget`. Fails with `ENOMEM`.
    /// Sleeps.
    #[inline]
    pub(crate) fn take(&self, budget: &Budget) -> Result<Record> {
        // The lock is released at the end of this statement.
        let unused = self.unused.lock().pop();
        match unused {
            Some(memory) => Ok(Record {
                memory: Some(memory),
                deferral: None,
            }),
            None => Record::new(budget, GFP_KERNEL_ACCOUNT),
        }
    }

    /// Keeps a record that was not used, or frees it if there are enough. Process context, does not
    /// sleep.
    #[inline]
    pub(crate) fn put(&self, record: Record) {
        let Record { memory, deferral } = record;
        if let Some(memory) = memory {
            // The lock is released before the memory is freed.
            let refused = self.unused.lock().push_within_capacity(memory);
            drop(refused);
        }
        drop(deferral);
    }
}

/// Error entries in records, by number.
pub(super) struct Tree(RBTree<u64, Recorded>);

impl Tree {
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }
}

impl Records for Tree {
    type Record = Record;
    type Spent = RBTreeNode<u64, Recorded>;

    fn insert(&mut self, number: u64, entry: ErrEntry, record: Record) {
        let Some(reservation) = record.memory else {
            // A bug: the records of operations of a CQ have memory.
            kernel::warn_on!(true);
            return;
        };
        let Reservation { node, memory } = KBox::into_inner(reservation);
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
