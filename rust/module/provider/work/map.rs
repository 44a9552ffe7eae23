// SPDX-License-Identifier: GPL-2.0

//! The works that wait for a counter, in two ordered lists, and their way to the domain's queue.
//!
//! The core defines the order and decides what is due ([`kfi_core::cntr::Works`]). This file is the
//! map that it uses. A list keeps its first work in itself, and the others in a red-black tree. So
//! a counter for which one work waits, as in most chains, needs no operation of a tree. Each work
//! brings the memory of a tree node, so nothing is allocated under the counter's lock. When the work
//! becomes due, it takes its node along to the list of the domain's [`WorkQueue`].
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
struct Entry {
    work: Work,
    /// The memory of its node.
    memory: Allowance,
}

/// Works in the order of their keys. The values are `Some`, except while one is taken out.
type Tree = RBTree<Key, Option<Entry>>;

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

    fn with(self, key: Key, work: Work) -> RBTreeNode<Key, Option<Entry>> {
        let Self { node, memory } = self;
        node.into_node(key, Some(Entry { work, memory }))
    }
}

/// A work, its key, and the memory of a node.
struct Keyed {
    key: Key,
    node: Node,
    work: Work,
}

/// Works in the order of their keys.
///
/// # Invariants
///
/// The key of `first` is below all keys in `rest`. If `first` is `None`, `rest` is empty.
pub(in crate::provider) struct WorkList {
    first: Option<Keyed>,
    rest: Tree,
}

impl WorkList {
    pub(super) fn new() -> Self {
        // INVARIANT: Both are empty.
        Self {
            first: None,
            rest: RBTree::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The lowest key.
    #[inline]
    fn first(&self) -> Option<Key> {
        self.first.as_ref().map(|first| first.key)
    }

    /// Inserts a work. No other one has this key.
    pub(super) fn insert(&mut self, key: Key, node: Node, work: Work) {
        let new = Keyed { key, node, work };
        // INVARIANT: The lower key stays or becomes the first.
        let later = match &mut self.first {
            None => {
                self.first = Some(new);
                return;
            }
            Some(first) if key < first.key => core::mem::replace(first, new),
            Some(_) => new,
        };
        // Keys are unique, so `insert` replaces no node.
        self.rest.insert(later.node.with(later.key, later.work));
    }

    /// Takes the first work out, with its node.
    #[inline]
    pub(super) fn pop_first(&mut self) -> Option<(Node, Work)> {
        let Keyed { node, work, .. } = self.first.take()?;
        // INVARIANT: The lowest key of `rest` becomes the first.
        if !self.rest.is_empty() {
            self.first = pop_first_of(&mut self.rest);
        }
        Some((node, work))
    }

    /// Takes the work with this key out.
    fn remove(&mut self, key: &Key) -> Option<(Node, Work)> {
        if self.first() == Some(*key) {
            return self.pop_first();
        }
        let mut found = self.rest.find_mut(key)?;
        let entry = found.get_mut().take();
        let node = found.remove_node().into_reservation();
        let Entry { work, memory } = entry?;
        Some((Node { node, memory }, work))
    }

    /// The lowest key that is not below `from`, and whether `is_it` holds for its work.
    fn not_below(&self, from: &Key, is_it: impl Fn(&Work) -> bool) -> Option<(Key, bool)> {
        if let Some(first) = self.first.as_ref().filter(|first| first.key >= *from) {
            return Some((first.key, is_it(&first.work)));
        }
        let cursor = self.rest.cursor_lower_bound(from)?;
        let (key, entry) = cursor.current();
        Some((*key, entry.as_ref().is_some_and(|entry| is_it(&entry.work))))
    }
}

/// Takes the first work out of a tree.
#[inline(never)]
fn pop_first_of(tree: &mut Tree) -> Option<Keyed> {
    let mut cursor = tree.cursor_front_mut()?;
    let key = *cursor.current().0;
    let entry = cursor.current_mut().1.take();
    let node = cursor.remove_current().1.into_reservation();
    let Entry { work, memory } = entry?;
    Some(Keyed {
        key,
        node: Node { node, memory },
        work,
    })
}

/// The works of one kind.
struct Kind {
    list: WorkList,
    len: u32,
}

impl Kind {
    fn new() -> Self {
        Self {
            list: WorkList::new(),
            len: 0,
        }
    }
}

/// The works that wait for a counter, without those that are due.
pub(in crate::provider) struct WorkLists {
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

impl WorkLists {
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
    pub(in crate::provider) fn take_all(&mut self, kind: Compared) -> (WorkList, u32) {
        let kind = core::mem::replace(self.of(kind), Kind::new());
        (kind.list, kind.len)
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
            let (key, found) = self.success.list.not_below(&from, &is_it)?;
            if found {
                return Some(Found::At(key));
            }
            from = Key::new(key.threshold(), key.ticket().wrapping_add(1));
        }
        Some(Found::NotBefore(from))
    }
}

impl WorkMap for WorkLists {
    type Slot = (Node, Work);
    type Token = (Node, Work);

    fn insert(&mut self, kind: Compared, key: Key, (node, work): Self::Slot) {
        let kind = self.of(kind);
        kind.list.insert(key, node, work);
        kind.len = kind.len.wrapping_add(1);
    }

    #[inline]
    fn first(&self, kind: Compared) -> Option<Key> {
        match kind {
            Compared::Success => self.success.list.first(),
            Compared::Sum => self.sum.list.first(),
        }
    }

    fn make_due(&mut self, kind: Compared) {
        let kind = self.of(kind);
        let Some((node, work)) = kind.list.pop_first() else {
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
        let removed = kind.list.remove(key)?;
        kind.len = kind.len.wrapping_sub(1);
        Some(removed)
    }
}
