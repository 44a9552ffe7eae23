// SPDX-License-Identifier: GPL-2.0

//! Where a session keeps its operations: red-black trees, whose nodes are got beforehand.
//!
//! So nothing is allocated while a session's lock is held for them, and nothing can fail half-way.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

use kfi_core::roce::rdm::{
    answer::Answer,
    ops,
    Store,
    Stores, //
};

use super::op::{
    Filling,
    Transmit, //
};

/// Operations by number.
pub(super) struct Tree<V>(RBTree<u64, V>);

/// Memory for one of them.
pub(super) type Slot<V> = RBTreeNodeReservation<u64, V>;

/// Memory for a message.
pub(super) type SendSlot = Slot<ops::Send<Transmit>>;

/// Memory for an RMA operation.
pub(super) type RmaSlot = Slot<ops::Rma<Transmit>>;

/// Memory for what is owed to the peer.
pub(super) type AnswerSlot = Slot<Answer<Filling>>;

/// Gets memory for one entry. `ENOMEM`. Sleeps.
pub(super) fn slot<V>() -> Result<Slot<V>> {
    RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)
}

impl<V> Tree<V> {
    /// Nothing.
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }
}

impl<V> Store<V> for Tree<V> {
    type Slot = Slot<V>;

    fn insert(&mut self, key: u64, value: V, slot: Self::Slot) {
        // Its key is not there yet.
        let _ = self.0.insert(slot.into_node(key, value));
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.0.get(&key)
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.0.get_mut(&key)
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        self.0.remove(&key)
    }

    fn next(&self, from: u64) -> Option<u64> {
        Some(*self.0.cursor_lower_bound(&from)?.current().0)
    }
}

/// See the module's story.
pub(super) struct Trees;

impl Stores for Trees {
    type Op = Transmit;
    type Receive = Filling;
    type Sends = Tree<ops::Send<Transmit>>;
    type Rmas = Tree<ops::Rma<Transmit>>;
    type Answers = Tree<Answer<Filling>>;
}
