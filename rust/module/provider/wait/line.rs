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
//! ([`Memory`]), unless the line is empty. It leaves with the memory of a node if it has brought
//! some, and without otherwise. So a single waiter allocates nothing, and a waiter that enters
//! repeatedly allocates memory once. [`with_memory`] allocates memory only if it is needed.
//!
//! `n` waiters need `n - 1` nodes, because the first is not in the tree. At most one of them has
//! brought no memory: the one that entered the empty line. While it is there, all memory is in the
//! tree. Otherwise `first` has the memory that is not.
//!
//! All operations are O(log n). With one waiter they are O(1) and make no call.
//!
//! # Context
//!
//! Process context, under the lock of the object that the line belongs to.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/line.rs"]
mod kunit;

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use kfi_core::due::{
    DueMap,
    Key, //
};

use crate::provider::prelude::*;

/// The memory of a waiter in the tree.
pub(in crate::provider) struct Memory<T>(RBTreeNodeReservation<Key, Option<Waiter<T>>>);

/// A waiter in the line.
struct Waiter<T> {
    token: T,
    /// Whether it has brought memory.
    brought: bool,
}

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
    pub(in crate::provider) token: T,
    /// The memory of its node. Required if the line is not empty.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

/// A waiter that has left the line.
pub(in crate::provider) struct RemovedWaiter<T> {
    pub(in crate::provider) token: T,
    /// The memory of a node, if the waiter has brought some.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

/// A waiter that stays when it leaves the line, a descriptor or a callback. It enters repeatedly
/// with the same memory.
pub(in crate::provider) struct Entry<K, T> {
    /// Its key while it is in the line.
    pub(in crate::provider) key: Option<K>,
    /// Its memory while it is not.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

impl<K, T> Entry<K, T> {
    /// An entry that is not in the line.
    pub(in crate::provider) const fn new(memory: Option<Memory<T>>) -> Self {
        Self { key: None, memory }
    }

    /// Notes that it was removed from the line, and keeps the memory that it left with.
    pub(in crate::provider) fn removed(&mut self, memory: Option<Memory<T>>) {
        self.key = None;
        if memory.is_some() {
            self.memory = memory;
        }
    }
}

struct First<T> {
    key: Key,
    waiter: Waiter<T>,
    memory: Option<Memory<T>>,
}

/// The waiters of an object.
///
/// # Invariants
///
/// - The key of `first` is lower than every key in `others`; if there is no `first`, `others` is
///   empty.
/// - `first` has memory if and only if all waiters have brought some.
/// - The values in `others` are `Some`.
pub(in crate::provider) struct Line<T> {
    first: Option<First<T>>,
    others: RBTree<Key, Option<Waiter<T>>>,
}

impl<T> Line<T> {
    pub(in crate::provider) fn new() -> Self {
        // INVARIANT: Both are empty.
        Self {
            first: None,
            others: RBTree::new(),
        }
    }

    /// Moves the first of the others to `first`, after the previous first has left with `left`.
    #[inline(never)]
    fn move_up(&mut self, left: &mut RemovedWaiter<T>, brought: bool) {
        let Some(mut cursor) = self.others.cursor_front_mut() else {
            return;
        };
        let (key, waiter) = cursor.current_mut();
        let (key, waiter) = (*key, waiter.take());
        let mut memory = Some(Memory(cursor.remove_current().1.into_reservation()));
        // INVARIANT: If the waiter that leaves has no memory although it has brought some, the one
        // that has brought none is still in the line, and all memory must be in the tree.
        if brought && left.memory.is_none() {
            left.memory = memory.take();
        }
        // INVARIANT: The lowest remaining key.
        self.first = waiter.map(|waiter| First {
            key,
            waiter,
            memory,
        });
    }
}

impl<T> DueMap for Line<T> {
    type Slot = NewWaiter<T>;
    type Token = RemovedWaiter<T>;

    #[link_section = ".text.hot"]
    fn insert(&mut self, key: Key, slot: Self::Slot) {
        let NewWaiter { token, memory } = slot;
        let brought = memory.is_some();
        let waiter = Waiter { token, brought };
        let Some(first) = &mut self.first else {
            // INVARIANT: `others` is empty.
            self.first = Some(First {
                key,
                waiter,
                memory,
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
            self.others.insert(memory.0.into_node(key, Some(waiter)));
            return;
        }
        // INVARIANT: The key is lower than the first, so lower than all. The previous first is
        // moved to the others, with one of the two memories. The other one, if any, stays.
        let before = core::mem::replace(
            first,
            First {
                key,
                waiter,
                memory: None,
            },
        );
        let node = match before.memory {
            Some(its_own) => {
                first.memory = Some(memory);
                its_own
            }
            None => memory,
        };
        self.others
            .insert(node.0.into_node(before.key, Some(before.waiter)));
    }

    #[inline]
    fn first(&self) -> Option<Key> {
        self.first.as_ref().map(|first| first.key)
    }

    #[inline(always)]
    fn pop_first(&mut self) -> Option<(Key, Self::Token)> {
        let First {
            key,
            waiter: Waiter { token, brought },
            memory,
        } = self.first.take()?;
        let mut left = RemovedWaiter { token, memory };
        if !self.others.is_empty() {
            self.move_up(&mut left, brought);
        }
        Some((key, left))
    }

    fn remove(&mut self, key: &Key) -> Option<Self::Token> {
        if self.first()? == *key {
            return self.pop_first().map(|(_, left)| left);
        }
        let mut entry = self.others.find_mut(key)?;
        let waiter = entry.get_mut().take();
        let mut memory = Some(Memory(entry.remove_node().into_reservation()));
        let Waiter { token, brought } = waiter?;
        // INVARIANT: The waiter that has brought no memory leaves, so `first` has the memory that
        // is not in the tree.
        if let (false, Some(first)) = (brought, &mut self.first) {
            first.memory = memory.take();
        }
        Some(RemovedWaiter { token, memory })
    }
}
