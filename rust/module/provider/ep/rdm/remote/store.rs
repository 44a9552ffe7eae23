// SPDX-License-Identifier: GPL-2.0

//! The memory of a session's operations: red-black trees with preallocated nodes.
//!
//! So nothing is allocated under a session's lock, and no step can fail for want of memory.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

use kfi_core::rdm::{
    answer::Answer,
    ops,
    Store,
    Stores, //
};

use super::{
    op::{
        RecvRead,
        Transmit, //
    },
    owing::Share, //
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
pub(super) type AnswerSlot = Slot<Answer<RecvRead>, Share>;

/// Bytes of an [`AnswerSlot`], with the kernel's overhead for a tree node.
pub(super) const ANSWER_BYTES: usize = size_of::<(Answer<RecvRead>, Share)>() + 64;

/// Allocates memory for one entry. Fails with `ENOMEM`. Sleeps.
pub(super) fn slot<V, K>(kept: K) -> Result<Slot<V, K>> {
    let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
    Ok(Slot { node, kept })
}

impl<V, K> Tree<V, K> {
    /// Makes an empty tree.
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
    type Receive = RecvRead;
    type Sends = Tree<ops::Send<Transmit>>;
    type Rmas = Tree<ops::Rma<Transmit>>;
    type Answers = Tree<Answer<RecvRead>, Share>;
}
