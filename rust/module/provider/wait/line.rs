// SPDX-License-Identifier: GPL-2.0

//! A line: who waits on an object, in the order in which they become due.
//!
//! The order is the core crate's ([`kfi_core::due`]); this is the map under it. Mostly nobody waits
//! or one does, sometimes a thousand do. So who is due first stands in the line itself, where it
//! is found by a load, and the others in a red-black tree:
//!
//! ```text
//!   first ---> lowest key of all        others ---> red-black tree, empty unless `first` is there
//! ```
//!
//! Nothing is allocated under the lock of a line: who gets in line brings the memory of a tree node
//! ([`Memory`]), unless nobody else is there. It gets it back when it leaves, unless it had to stand
//! in the tree. So who is alone allocates nothing, nor does who gets in line over and over with what
//! it got back. [`with_memory`] gets memory only where it is needed.
//!
//! All operations are O(log n), and O(1) without a call if one waits.
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

/// The memory of a place in line.
pub(in crate::provider) struct Memory<T>(RBTreeNodeReservation<Key, T>);

impl<T> Memory<T> {
    /// Gets it. `ENOMEM`. Sleeps.
    pub(in crate::provider) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Calls `enter` until it gives something: first without memory, then with it. `ENOMEM`, or the
/// error of `enter`. Sleeps.
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

/// Who gets in line.
pub(in crate::provider) struct Enters<T> {
    /// Who.
    pub(in crate::provider) who: T,
    /// The memory of its place; there must be some if somebody is in line already.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

/// Who has left the line.
pub(in crate::provider) struct Left<T> {
    /// Who.
    pub(in crate::provider) who: T,
    /// The memory of its place, if it is still there.
    pub(in crate::provider) memory: Option<Memory<T>>,
}

struct First<T> {
    key: Key,
    left: Left<T>,
}

/// See the module's story.
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

    /// The first of the others becomes first.
    #[inline(never)]
    fn move_up(&mut self) {
        // INVARIANT: The lowest key that is left, if any is.
        self.first = self.others.cursor_front_mut().map(|cursor| {
            let (key, who) = cursor.remove_current().1.to_key_value();
            First {
                key,
                left: Left { who, memory: None },
            }
        });
    }
}

impl<T> DueMap for Line<T> {
    type Slot = Enters<T>;
    type Token = Left<T>;

    #[link_section = ".text.hot"]
    fn insert(&mut self, key: Key, slot: Self::Slot) {
        let Enters { who, memory } = slot;
        let Some(first) = &mut self.first else {
            // INVARIANT: `others` is empty.
            self.first = Some(First {
                key,
                left: Left { who, memory },
            });
            return;
        };
        // Who gets in line answers for this. If not, who it was is dropped, and sleeps no more.
        let Some(memory) = memory else {
            kernel::warn_on!(true);
            return;
        };
        // Keys are unique, so the tree gives nothing back.
        if first.key < key {
            self.others.insert(memory.0.into_node(key, who));
            return;
        }
        // INVARIANT: Lower than the first, so lower than all; the first goes to the others, with
        // one of the two memories.
        let left = Left { who, memory: None };
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
        Some(Left { who, memory: None })
    }
}
