// SPDX-License-Identifier: GPL-2.0

//! What is due at a threshold, on the kernel's red-black tree.
//!
//! The core crate keeps the order ([`kfi_core::due`]); this is the map under it.
//! The memory of an entry is made before the lock of the map is taken
//! ([`RbSlot::new`]), so that nothing is allocated under it and an entry, once
//! promised, always finds its place. Taking an entry out gives its memory back
//! with `kfree()`, which any context allows.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};
use kfi_core::due::{
    DueMap,
    Key, //
};

/// An entry to be: what it stands for, and its memory.
pub(crate) struct RbSlot<T> {
    memory: RBTreeNodeReservation<Key, T>,
    value: T,
}

impl<T> RbSlot<T> {
    /// Memory for an entry that stands for `value`.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(value: T) -> Result<Self> {
        Ok(Self {
            memory: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
            value,
        })
    }
}

/// The map: O(log n) in each of its operations.
///
/// Any context, under the lock of the object that owns it.
pub(crate) struct RbDueMap<T> {
    tree: RBTree<Key, T>,
}

impl<T> RbDueMap<T> {
    /// An empty map.
    pub(crate) fn new() -> Self {
        Self {
            tree: RBTree::new(),
        }
    }
}

impl<T> DueMap for RbDueMap<T> {
    type Slot = RbSlot<T>;
    type Token = T;

    fn insert(&mut self, key: Key, slot: Self::Slot) {
        // Keys are unique, so nothing comes back.
        self.tree.insert(slot.memory.into_node(key, slot.value));
    }

    fn first(&self) -> Option<Key> {
        let cursor = self.tree.cursor_front()?;
        Some(*cursor.current().0)
    }

    fn pop_first(&mut self) -> Option<(Key, Self::Token)> {
        let (_, node) = self.tree.cursor_front_mut()?.remove_current();
        Some(node.to_key_value())
    }

    fn remove(&mut self, key: &Key) -> Option<Self::Token> {
        self.tree.remove(key)
    }
}
