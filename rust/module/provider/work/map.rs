// SPDX-License-Identifier: GPL-2.0

//! The works that wait for a counter, in two red-black trees, and their way to the domain's queue.
//!
//! The core defines the order and decides what is due ([`kfi_core::cntr::Works`]). This file is the
//! map that it uses. A work is the value of one tree node, which it brings, so nothing is allocated
//! under the counter's lock. When the work becomes due, the same node is moved to the tree of the
//! domain's [`WorkQueue`].
//!
//! # Context
//!
//! Process context, under the lock of the counter. The lock of the queue is taken under it.

use kernel::rbtree::{
    RBTree,
    RBTreeNode,
    RBTreeNodeReservation, //
};

use kfi_core::{
    cntr::{
        Compared,
        WorkMap, //
    },
    due::Key, //
};

use super::{
    queue::WorkQueue,
    Work, //
};
use crate::{
    mem::Budget,
    provider::{
        cntr::Cntr,
        prelude::*, //
    }, //
};

/// A work in a tree.
pub(in crate::provider) struct Entry {
    work: Work,
    /// The memory of its node.
    memory: Allowance,
}

/// Works in the order of their keys. The values are `Some`, except while one is taken out.
pub(in crate::provider) type Tree = RBTree<Key, Option<Entry>>;

/// Memory for a work, charged to the owner of the domain.
pub(in crate::provider) struct Node {
    node: RBTreeNodeReservation<Key, Option<Entry>>,
    memory: Allowance,
}

impl Node {
    /// Bytes that a node takes, with the allocator's overhead.
    pub(in crate::provider) const BYTES: usize = 24 + size_of::<(Key, Option<Entry>)>() + 16;

    /// Allocates it, and charges it to `budget`. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider) fn new(budget: &Budget) -> Result<Self> {
        Ok(Self {
            memory: budget.take(Self::BYTES as u64)?,
            node: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }

    pub(super) fn with(self, key: Key, work: Work) -> RBTreeNode<Key, Option<Entry>> {
        let Self { node, memory } = self;
        node.into_node(key, Some(Entry { work, memory }))
    }
}

/// Takes the first work out of a tree, with its node.
pub(super) fn pop_first(tree: &mut Tree) -> Option<(Node, Work)> {
    let mut cursor = tree.cursor_front_mut()?;
    let entry = cursor.current_mut().1.take();
    let node = cursor.remove_current().1.into_reservation();
    let Entry { work, memory } = entry?;
    Some((Node { node, memory }, work))
}

/// The works of one kind.
struct Kind {
    tree: Tree,
    len: u32,
}

impl Kind {
    fn new() -> Self {
        Self {
            tree: RBTree::new(),
            len: 0,
        }
    }
}

/// The works that wait for a counter, without those that are due.
pub(in crate::provider) struct WorkTrees {
    success: Kind,
    sum: Kind,
    /// The queue of the counter's domain, from the first work on.
    queue: Option<Arc<WorkQueue>>,
    /// A use of the counter while a work waits for it.
    keeper: Option<UseRef<Cntr>>,
    /// A work is due, and no task starts those that are due: somebody has to be called.
    wake: bool,
}

/// What a change of a counter leaves to be done when its lock was released.
#[derive(Default)]
#[must_use = "the works that are due are not started otherwise"]
pub(in crate::provider) struct AfterChange {
    /// Works are due in this queue, and no task starts them.
    pub(in crate::provider) queue: Option<Arc<WorkQueue>>,
    /// The use of the counter by its works, if none waits any more. Dropped last.
    _keeper: Option<UseRef<Cntr>>,
}

/// The result of a search.
pub(in crate::provider) enum Found {
    /// The key of the work.
    At(Key),
    /// It is not before this key.
    NotBefore(Key),
}

impl WorkTrees {
    pub(in crate::provider) fn new() -> Self {
        Self {
            success: Kind::new(),
            sum: Kind::new(),
            queue: None,
            keeper: None,
            wake: false,
        }
    }

    fn of(&mut self, kind: Compared) -> &mut Kind {
        match kind {
            Compared::Success => &mut self.success,
            Compared::Sum => &mut self.sum,
        }
    }

    /// Prepares for the first work: it has a use of the counter, and the queue of its domain.
    pub(in crate::provider) fn begin(
        &mut self,
        queue: &Arc<WorkQueue>,
        keeper: &mut Option<UseRef<Cntr>>,
    ) {
        if self.queue.is_none() {
            self.queue = Some(queue.clone());
        }
        if self.keeper.is_none() {
            self.keeper = keeper.take();
        }
    }

    /// Returns what is to be done when the lock was released. Called after each change.
    #[inline(always)]
    pub(in crate::provider) fn after_change(&mut self) -> AfterChange {
        // Most counters have no work, ever.
        if self.queue.is_none() {
            return AfterChange::default();
        }
        self.after_change_of_some()
    }

    #[inline(never)]
    fn after_change_of_some(&mut self) -> AfterChange {
        let wake = core::mem::replace(&mut self.wake, false);
        let is_empty = self.success.len == 0 && self.sum.len == 0;
        AfterChange {
            queue: wake.then(|| self.queue.clone()).flatten(),
            _keeper: is_empty.then(|| self.keeper.take()).flatten(),
        }
    }

    /// Takes all works of a kind out. The caller informs [`Waiters`](kfi_core::cntr::Waiters).
    pub(in crate::provider) fn take_all(&mut self, kind: Compared) -> (Tree, u32) {
        let kind = core::mem::replace(self.of(kind), Kind::new());
        (kind.tree, kind.len)
    }

    /// Searches the triggered operations from the key `from` on, at most `most` of them, for the
    /// first one for which `is_it` holds. Returns its key, or the key to go on from; `None`: there
    /// is none. O(log n) for each.
    pub(in crate::provider) fn find_triggered(
        &self,
        mut from: Key,
        most: usize,
        is_it: impl Fn(&Work) -> bool,
    ) -> Option<Found> {
        for _ in 0..most {
            let cursor = self.success.tree.cursor_lower_bound(&from)?;
            let (key, work) = cursor.current();
            if work.as_ref().is_some_and(|entry| is_it(&entry.work)) {
                return Some(Found::At(*key));
            }
            from = Key::new(key.threshold(), key.ticket().wrapping_add(1));
        }
        Some(Found::NotBefore(from))
    }
}

impl WorkMap for WorkTrees {
    type Slot = (Node, Work);
    type Token = (Node, Work);

    fn insert(&mut self, kind: Compared, key: Key, (node, work): Self::Slot) {
        let kind = self.of(kind);
        // Keys are unique, so `insert` replaces no node.
        kind.tree.insert(node.with(key, work));
        kind.len = kind.len.wrapping_add(1);
    }

    #[inline]
    fn first(&self, kind: Compared) -> Option<Key> {
        let tree = match kind {
            Compared::Success => &self.success.tree,
            Compared::Sum => &self.sum.tree,
        };
        Some(*tree.cursor_front()?.current().0)
    }

    fn make_due(&mut self, kind: Compared) {
        let kind = self.of(kind);
        let Some((node, work)) = pop_first(&mut kind.tree) else {
            return;
        };
        kind.len = kind.len.wrapping_sub(1);
        if let Some(queue) = &self.queue {
            self.wake |= queue.push(node, work);
        }
    }

    fn leave_rest(&mut self) {
        if let Some(queue) = &self.queue {
            self.wake |= queue.leave_rest();
        }
    }

    fn remove(&mut self, kind: Compared, key: &Key) -> Option<Self::Token> {
        let kind = self.of(kind);
        let mut found = kind.tree.find_mut(key)?;
        let entry = found.get_mut().take();
        let node = found.remove_node().into_reservation();
        kind.len = kind.len.wrapping_sub(1);
        let Entry { work, memory } = entry?;
        Some((Node { node, memory }, work))
    }
}
