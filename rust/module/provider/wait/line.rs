// SPDX-License-Identifier: GPL-2.0

//! A line: the waiters of an object, in the order in which they become due.
//!
//! The core defines the order ([`kfi_core::due`]). This file is the map that it uses. In most cases
//! there is no waiter or one, sometimes there are a thousand. So the first waiter is in the line
//! itself, where a load finds it, and the others are in a red-black tree:
//!
//! ```text
//!   first ---> lowest key of all        others ---> red-black tree, empty unless `first` is there
//! ```
//!
//! Nothing is allocated under the lock of a line. A waiter brings the memory of a tree node
//! ([`Memory`]), unless the line is empty. It gets the memory back when it leaves, unless it was in
//! the tree. So a single waiter allocates nothing, and a waiter that enters repeatedly can reuse
//! its memory. [`with_memory`] allocates memory only if it is needed.
//!
//! All operations are O(log n). With one waiter they are O(1) and make no call.
//!
//! # Context
//!
//! Any but hard interrupts, under the lock of the object that the line belongs to.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/line.rs"]
mod kunit;

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

/// The memory of a waiter in the tree.
pub(in crate::provider) struct Memory<T>(RBTreeNodeReservation<Key, T>);

impl<T> Memory<T> {
    /// Allocates it. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Calls `enter` until it returns a result: first without memory, then with it. Fails with
/// `ENOMEM`, and those of `enter`. Sleeps.
#[inline]
pub(in crate::provider) fn with_memory<T, R>(
    mut enter: impl FnMut(&mut Option<Memory<T>>) -> Result<Option<R>>,
) -> Result<R> {
    let mut memory = None;
    loop {
        if let Some(entered) = enter(&mut memory)? {
            return Ok(entered);
        }
        memory = Some(Memory::new()?);
    }
}

/// A waiter that enters the line.
pub(in crate::provider) struct NewWaiter<T> {
    /// The waiter.
    pub(in crate::provider) who: T,
    /// The memory of its node. Required if the line is not empty.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

/// A waiter that has left the line.
pub(in crate::provider) struct RemovedWaiter<T> {
    /// The waiter.
    pub(in crate::provider) who: T,
    /// The memory of its node, if it was not in the tree.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

struct First<T> {
    key: Key,
    left: RemovedWaiter<T>,
}

/// The waiters of an object.
///
/// # Invariants
///
/// The key of `first` is lower than every key in `others`; if there is no `first`, `others` is
/// empty.
pub(in crate::provider) struct Line<T> {
    first: Option<First<T>>,
    others: RBTree<Key, T>,
}

impl<T> Line<T> {
    /// An empty line.
    pub(in crate::provider) fn new() -> Self {
        // INVARIANT: Both are empty.
        Self {
            first: None,
            others: RBTree::new(),
        }
    }

    /// Moves the first of the others to `first`.
    #[inline(never)]
    fn move_up(&mut self) {
        // INVARIANT: The lowest remaining key, if there is one.
        self.first = self.others.cursor_front_mut().map(|cursor| {
            let (key, who) = cursor.remove_current().1.to_key_value();
            First {
                key,
                left: RemovedWaiter { who, memory: None },
            }
        });
    }
}

impl<T> DueMap for Line<T> {
    type Slot = NewWaiter<T>;
    type Token = RemovedWaiter<T>;

    #[link_section = ".text.hot"]
    fn insert(&mut self, key: Key, slot: Self::Slot) {
        let NewWaiter { who, memory } = slot;
        let Some(first) = &mut self.first else {
            // INVARIANT: `others` is empty.
            self.first = Some(First {
                key,
                left: RemovedWaiter { who, memory },
            });
            return;
        };
        // The caller must bring memory. Without it the waiter is dropped, and its task does not
        // sleep.
        let Some(memory) = memory else {
            kernel::warn_on!(true);
            return;
        };
        // Keys are unique, so `insert` replaces no node.
        if first.key < key {
            self.others.insert(memory.0.into_node(key, who));
            return;
        }
        // INVARIANT: The key is lower than the first, so lower than all. The previous first is
        // moved to the others, with one of the two memories.
        let left = RemovedWaiter { who, memory: None };
        let before = core::mem::replace(first, First { key, left });
        let node = match before.left.memory {
            Some(its_own) => {
                first.left.memory = Some(memory);
                its_own
            }
            None => memory,
        };
        self.others
            .insert(node.0.into_node(before.key, before.left.who));
    }

    #[inline]
    fn first(&self) -> Option<Key> {
        self.first.as_ref().map(|first| first.key)
    }

    #[inline(always)]
    fn pop_first(&mut self) -> Option<(Key, Self::Token)> {
        let first = self.first.take()?;
        if !self.others.is_empty() {
            self.move_up();
        }
        Some((first.key, first.left))
    }

    fn remove(&mut self, key: &Key) -> Option<Self::Token> {
        if self.first()? == *key {
            return self.pop_first().map(|(_, left)| left);
        }
        let who = self.others.remove(key)?;
        Some(RemovedWaiter { who, memory: None })
    }
}
