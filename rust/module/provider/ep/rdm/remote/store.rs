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

use kfi_core::rdm::{
    answer::Answer,
    ops,
    Store,
    Stores, //
};

use super::{
    op::{
        Filling,
        Transmit, //
    },
    owing::Share, //
};

/// Operations by number; with each of them something is kept until it is taken out.
pub(super) struct Tree<V, K = ()>(RBTree<u64, (V, K)>);

/// Memory for one of them, and what is kept with it.
pub(super) struct Slot<V, K = ()> {
    node: RBTreeNodeReservation<u64, (V, K)>,
    kept: K,
}

/// Memory for a message.
pub(super) type SendSlot = Slot<ops::Send<Transmit>>;

/// Memory for an RMA operation.
pub(super) type RmaSlot = Slot<ops::Rma<Transmit>>;

/// Memory for what is owed to the peer.
pub(super) type AnswerSlot = Slot<Answer<Filling>, Share>;

/// Bytes that an [`AnswerSlot`] takes, with what the kernel adds to a node of a tree.
pub(super) const ANSWER_BYTES: usize = size_of::<(Answer<Filling>, Share)>() + 64;

/// Gets memory for one entry. `ENOMEM`. Sleeps.
pub(super) fn slot<V, K>(kept: K) -> Result<Slot<V, K>> {
    let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
    Ok(Slot { node, kept })
}

impl<V, K> Tree<V, K> {
    /// Nothing.
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }
}

impl<V, K> Store<V> for Tree<V, K> {
    type Slot = Slot<V, K>;

    fn insert(&mut self, key: u64, value: V, slot: Self::Slot) {
        // Its key is not there yet.
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

/// See the module's story.
pub(super) struct Trees;

impl Stores for Trees {
    type Op = Transmit;
    type Receive = Filling;
    type Sends = Tree<ops::Send<Transmit>>;
    type Rmas = Tree<ops::Rma<Transmit>>;
    type Answers = Tree<Answer<Filling>, Share>;
}
