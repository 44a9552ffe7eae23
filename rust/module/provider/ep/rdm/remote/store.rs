// SPDX-License-Identifier: GPL-2.0

//! The memory of a session's operations, red-black trees with preallocated nodes, and of the work
//! of its QPs.
//!
//! So nothing is allocated under a session's lock, and no step can fail for want of memory.

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use kfi_core::rdm::{
    answer::Answer,
    ops,
    session::Work,
    times::DEPTH,
    Store,
    Stores, //
};

use super::op::{
    AnswerData,
    Share,
    Transmit, //
};
use crate::provider::{
    ep::admit::Context,
    prelude::*, //
};

/// Operations by number. Each entry keeps a value of type `K` until it is removed.
pub(super) struct Tree<V, K = ()>(RBTree<u64, (V, K)>);

/// Preallocated memory for one entry, and the value that is kept with it.
pub(super) struct Slot<V, K = ()> {
    node: RBTreeNodeReservation<u64, (V, K)>,
    kept: K,
}

/// Memory for a message.
pub(super) type SendSlot = Slot<ops::Send<Transmit>>;

/// Memory for an RMA operation.
pub(super) type RmaSlot = Slot<ops::Rma<Transmit>>;

/// Memory for an answer to the peer.
pub(super) type AnswerSlot = Slot<Answer<AnswerData>, Share>;

/// Bytes of an [`AnswerSlot`], with the kernel's overhead for a tree node.
pub(super) const ANSWER_BYTES: usize = size_of::<(Answer<AnswerData>, Share)>() + 64;

/// Allocates memory for one entry. Fails with `ENOMEM`. Sleeps.
pub(super) fn slot<V, K>(kept: K) -> Result<Slot<V, K>> {
    let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
    Ok(Slot { node, kept })
}

/// [`slot`] for what a packet of a peer needs. It does not wait for memory, which the bytes of that
/// packet may be needed to free: the peer sends it again. Fails with `ENOMEM`.
pub(super) fn slot_of_peer<V, K>(kept: K) -> Result<Slot<V, K>> {
    let node = RBTreeNodeReservation::new(Context::Atomic.alloc())?;
    Ok(Slot { node, kept })
}

impl<V, K> Tree<V, K> {
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }
}

impl<V, K> Store<V> for Tree<V, K> {
    type Slot = Slot<V, K>;

    fn insert(&mut self, key: u64, value: V, slot: Self::Slot) {
        // The caller ensures that there is no entry with this key.
        let Slot { node, kept } = slot;
        let _ = self.0.insert(node.into_node(key, (value, kept)));
    }

    fn get(&self, key: u64) -> Option<&V> {
        Some(&self.0.get(&key)?.0)
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        Some(&mut self.0.get_mut(&key)?.0)
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        Some(self.0.remove(&key)?.0)
    }

    fn next(&self, from: u64) -> Option<u64> {
        Some(*self.0.cursor_lower_bound(&from)?.current().0)
    }
}

/// The stores of a session.
pub(super) struct Trees;

impl Stores for Trees {
    type Op = Transmit;
    type Receive = AnswerData;
    type Sends = Tree<ops::Send<Transmit>>;
    type Rmas = Tree<ops::Rma<Transmit>>;
    type Answers = Tree<Answer<AnswerData>, Share>;
}

/// A piece of work that was queued to a QP.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) work: Work,
    /// A message that has been marked as void since.
    pub(super) void: bool,
}

/// The work that a QP has, in the order in which it was queued. The number of a piece of work,
/// which counts up, is the ID of its work request. A QP completes its work requests in this order
/// and holds at most [`DEPTH`], so the pieces are in a ring.
pub(super) struct PostedWork {
    ring: KVec<Option<Posted>>,
    next: u64,
}

impl PostedWork {
    /// Bytes of memory of the ring.
    pub(super) const BYTES: usize = DEPTH as usize * size_of::<Option<Posted>>();

    /// Makes room for all work requests that a QP holds. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            ring: KVec::from_elem(None, DEPTH as usize, GFP_KERNEL_ACCOUNT)?,
            next: 0,
        })
    }

    fn entry(&mut self, number: u64) -> Option<&mut Option<Posted>> {
        let index = number & u64::from(DEPTH).wrapping_sub(1);
        self.ring.get_mut(index as usize)
    }

    /// Adds work that is about to be queued. Returns its number.
    pub(super) fn put(&mut self, work: Work) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if let Some(entry) = self.entry(number) {
            *entry = Some(Posted { work, void: false });
        }
        number
    }

    /// Removes work that has completed.
    pub(super) fn take(&mut self, number: u64) -> Option<Posted> {
        self.entry(number)?.take()
    }

    /// The work with this number, to be changed.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Posted> {
        self.entry(number)?.as_mut()
    }
}
