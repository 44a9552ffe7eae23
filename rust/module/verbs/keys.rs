// SPDX-License-Identifier: GPL-2.0

//! Keys: the table of a PD, in which a key names a memory region, and accesses to regions.
//!
//! The upper 24 bits of a key are the number of its region in the table of the region's PD. They
//! are random, because a peer that knows a key can access the region. The lower 8 bits are those
//! that a consumer may choose when it registers memory again. The local and the remote key of a
//! region are the same. A key of another PD is unknown, so nothing else checks the PD.
//!
//! A peer's access enters the region ([`Access`]), and the end of the region waits for it. A work
//! request that names its own memory only takes a reference to the memory (see
//! [`sge`](super::sge)).
//!
//! # Locks
//!
//! The lock of a table and that of what a region grants are leaves. Each is held for one look-up.
//! They are taken in process context, also with bottom halves disabled.

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use super::{
    mr::Mr,
    raw, //
};
use crate::{
    mem::MemRef,
    provider::drain::Inside,
    shim::random::random_u32, //
};

/// The most regions of a PD. So a random number is free with a chance of at least 15 in 16.
pub(super) const MAX_MR: usize = raw::KFABRIC_VERBS_MAX_MR as usize;

/// The number of random numbers that are tried for a region.
const TRIES: u32 = 16;

/// The bits of a key that are not part of the region's number.
const LOW_BITS: u32 = 8;

/// The key does not allow the access: it is unknown in the PD, its region does not grant the right,
/// or some of the bytes are outside the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadKey;

/// What a region allows besides reading by its owner, or what an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights(u32);

impl Rights {
    /// Nothing else: the owner reads.
    pub(super) const LOCAL_READ: Self = Self(0);
    /// The owner writes.
    pub(super) const LOCAL_WRITE: Self = Self(raw::KFABRIC_VERBS_LOCAL_WRITE);
    /// Peers write.
    pub(super) const REMOTE_WRITE: Self = Self(raw::KFABRIC_VERBS_REMOTE_WRITE);
    /// Peers read.
    pub(super) const REMOTE_READ: Self = Self(raw::KFABRIC_VERBS_REMOTE_READ);
    /// Peers execute atomics.
    pub(super) const REMOTE_ATOMIC: Self = Self(raw::KFABRIC_VERBS_REMOTE_ATOMIC);

    /// The rights of a new region.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: there is another bit than those of the rights.
    /// - `EINVAL`: peers would change memory that the owner may not write.
    pub(super) fn of_region(bits: u32) -> Result<Self> {
        let remote = Self::REMOTE_WRITE.with(Self::REMOTE_ATOMIC);
        let all = Self::LOCAL_WRITE.with(Self::REMOTE_READ).with(remote);
        let rights = Self(bits);
        if !all.contains(rights) {
            return Err(EOPNOTSUPP);
        }
        if rights.0 & remote.0 != 0 && !rights.contains(Self::LOCAL_WRITE) {
            return Err(EINVAL);
        }
        Ok(rights)
    }

    /// Whether peers have any right.
    pub(super) const fn has_remote(self) -> bool {
        let remote = Self::REMOTE_READ
            .with(Self::REMOTE_WRITE)
            .with(Self::REMOTE_ATOMIC);
        self.0 & remote.0 != 0
    }

    /// These rights and `other`.
    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether these include `need`.
    pub(super) const fn contains(self, need: Self) -> bool {
        need.0 & !self.0 == 0
    }
}

/// The regions of a table, and their number.
struct Table {
    regions: RBTree<u32, Arc<Mr>>,
    count: usize,
}

/// The table of a PD.
#[pin_data]
pub(super) struct Keys {
    #[pin]
    table: SpinLock<Table>,
}

impl Keys {
    /// A table without regions.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- new_spinlock!(
                Table {
                    regions: RBTree::new(),
                    count: 0,
                },
                "Keys::table"
            ),
        })
    }

    /// Adds a region under a random number, and returns the number. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if there are [`MAX_MR`] regions.
    pub(super) fn add(&self, region: &Arc<Mr>) -> Result<u32> {
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        for _ in 0..TRIES {
            let number = random_u32() >> LOW_BITS;
            let mut table = self.table.lock();
            if table.count >= MAX_MR {
                break;
            }
            if table.regions.get(&number).is_none() {
                table
                    .regions
                    .insert(reservation.into_node(number, region.clone()));
                table.count += 1;
                return Ok(number);
            }
        }
        Err(ENOMEM)
    }

    /// Removes the region with this number. Process context; does not sleep.
    pub(super) fn remove(&self, number: u32) {
        let mut table = self.table.lock();
        let region = table.regions.remove_node(&number);
        table.count = table.count.saturating_sub(usize::from(region.is_some()));
        drop(table);
        drop(region);
    }

    /// The region whose number is that of `key`. Process context, also with bottom halves disabled;
    /// does not sleep. Nor does dropping the result.
    pub(super) fn find(&self, key: u32) -> Option<Arc<Mr>> {
        let number = key >> LOW_BITS;
        self.table.lock().regions.get(&number).cloned()
    }
}

/// The key of the region with this number; of `low`, the lower 8 bits count.
pub(super) fn key(number: u32, low: u32) -> u32 {
    number << LOW_BITS | (low & ((1 << LOW_BITS) - 1))
}

/// A peer's access to memory of a region, until it is dropped. The end of the region waits for
/// that.
///
/// It is dropped in process context, also with bottom halves disabled, and does not sleep then.
pub(super) struct Access {
    // Dropped before `_inside`, so that the region has another reference to the memory.
    memory: MemRef,
    _inside: Inside<Mr>,
}

impl Access {
    /// An access inside a region, to this part of its memory.
    pub(super) fn new(memory: MemRef, inside: Inside<Mr>) -> Self {
        Self {
            memory,
            _inside: inside,
        }
    }

    /// The bytes that were asked for. Any context.
    pub(super) fn memory(&self) -> &MemRef {
        &self.memory
    }
}
