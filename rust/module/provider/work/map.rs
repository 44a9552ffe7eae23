// SPDX-License-Identifier: GPL-2.0

//! The works that wait for a counter, in two ordered lists, and their way to the domain's queue.
//!
//! The core defines the order and decides what is due ([`kfi_core::cntr::Works`]). This file is the
//! map that it uses. A list keeps its first work in itself, and the others in a red-black tree. So
//! a counter for which one work waits, as in most chains, needs no operation of a tree. Each work
//! brings the memory of a tree node, so nothing is allocated under the counter's lock. When the
//! work becomes due, it takes a node along to the list of the domain's [`WorkQueue`]. If the
//! executor starts it without that list, the node stays in the list of the counter for its next
//! work.
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

/// A work and its key.
struct Keyed {
    key: Key,
    work: Work,
}

/// Works in the order of their keys.
///
/// # Invariants
///
/// The key of `first` is below all keys in `rest`. If `first` is `None`, `rest` is empty; otherwise
/// `node` is `Some`.
pub(in crate::provider) struct WorkList {
    first: Option<Keyed>,
    /// The memory of the first work. It stays when the last work leaves.
    node: Option<Node>,
    rest: Tree,
}

impl WorkList {
    pub(super) fn new() -> Self {
        // INVARIANT: Both are empty.
        Self {
            first: None,
            node: None,
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

    /// Whether [`insert`](Self::insert) needs a node.
    fn needs_node(&self) -> bool {
        self.node.is_none() || self.first.is_some()
    }

    /// Takes the node that the last work has left.
    fn take_spare(&mut self) -> Option<Node> {
        if self.first.is_some() {
            return None;
        }
        self.node.take()
    }

    /// Inserts a work, with `node` if it is [needed](Self::needs_node). No other one has this key.
    /// Returns the node if it was not needed.
    pub(super) fn insert(&mut self, key: Key, node: Option<Node>, work: Work) -> Option<Node> {
        let new = Keyed { key, work };
        // INVARIANT: The lower key stays or becomes the first.
        let later = match &mut self.first {
            None => {
                self.first = Some(new);
                if self.node.is_some() {
                    return node;
                }
                self.node = node;
                return None;
            }
            Some(first) if key < first.key => core::mem::replace(first, new),
            Some(_) => new,
        };
        // Keys are unique, so `insert` replaces no node.
        self.rest.insert(node?.with(later.key, later.work));
        None
    }

    /// Takes the first work out, with a node unless it was the last work.
    #[inline(always)]
    pub(super) fn pop_first(&mut self) -> Option<(Option<Node>, Work)> {
        let Keyed { work, .. } = self.first.take()?;
        if self.rest.is_empty() {
            return Some((None, work));
        }
        // INVARIANT: The lowest key of `rest` becomes the first.
        let (node, next) = pop_first_of(&mut self.rest)?;
        self.first = Some(next);
        Some((Some(node), work))
    }

    /// Takes the work with this key out, with a node unless it was the last work.
    fn remove(&mut self, key: &Key) -> Option<(Option<Node>, Work)> {
        if self.first() == Some(*key) {
            return self.pop_first();
        }
        let mut found = self.rest.find_mut(key)?;
        let entry = found.get_mut().take();
        let node = found.remove_node().into_reservation();
        let Entry { work, memory } = entry?;
        Some((Some(Node { node, memory }), work))
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

/// Takes the first work out of a tree, and its node.
#[inline(never)]
fn pop_first_of(tree: &mut Tree) -> Option<(Node, Keyed)> {
    let mut cursor = tree.cursor_front_mut()?;
    let key = *cursor.current().0;
    let entry = cursor.current_mut().1.take();
    let node = cursor.remove_current().1.into_reservation();
    let Entry { work, memory } = entry?;
    Some((Node { node, memory }, Keyed { key, work }))
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
    /// A use of the counter, from the first work until it is closed. A close takes it, if no work
    /// waits.
    keeper: Option<OwnedUse<Cntr>>,
    /// The last work that the present change has made due. It is in no list. `None` when the lock
    /// is released.
    fresh: Option<Work>,
    /// The node of `fresh`, unless that has left it in its list as the last work.
    fresh_node: Option<Node>,
    /// A work is due, and no task starts those that are due: a task has to be woken.
    wake: bool,
    /// The counter is in the queue's list of counters that have left works.
    in_rest: bool,
    /// The counter behind it in that list.
    next_rest: Option<Arc<Cntr>>,
}

/// The task that changes a counter, and what it may do with the works that are due then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Starter {
    /// Any task. It leaves the works to the worker.
    Worker,
    /// A call of the owner. It may become the executor.
    Call,
    /// The executor of the counter's domain.
    Executor,
}

/// What a change of a counter leaves to be done when its lock was released.
#[must_use = "the works that are due are not started otherwise"]
pub(in crate::provider) enum AfterChange {
    Nothing,
    /// Works are due in this queue, and no task starts them.
    Due(Arc<WorkQueue>),
    /// The current task, which is no [`Starter::Worker`], is the executor and starts this work
    /// next.
    Start(Work),
}

impl AfterChange {
    /// Has the worker start the works that are due, after a change by [`Starter::Worker`]. Any
    /// context.
    pub(in crate::provider) fn wake(self) {
        if let Self::Due(queue) = self {
            queue.wake();
        }
    }
}

/// What a caller brings for a work that is about to wait, if the counter does not have it.
#[derive(Default)]
pub(in crate::provider) struct Means {
    pub(in crate::provider) keeper: Option<OwnedUse<Cntr>>,
    pub(in crate::provider) node: Option<Node>,
}

/// The part of the [`Means`] that is missing.
pub(in crate::provider) enum Missing {
    Keeper,
    Node,
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
            fresh: None,
            fresh_node: None,
            wake: false,
            in_rest: false,
            next_rest: None,
        }
    }

    fn of(&mut self, kind: Compared) -> &mut Kind {
        match kind {
            Compared::Success => &mut self.success,
            Compared::Sum => &mut self.sum,
        }
    }

    /// Prepares for a work of a kind: the works have a use of the counter, and `queue`, which is
    /// that of its domain. Returns a node for the work, if its list needs one.
    pub(in crate::provider) fn begin(
        &mut self,
        kind: Compared,
        queue: &Arc<WorkQueue>,
        means: &mut Means,
    ) -> core::result::Result<Option<Node>, Missing> {
        if self.keeper.is_none() {
            self.keeper = means.keeper.take();
        }
        if self.keeper.is_none() {
            return Err(Missing::Keeper);
        }
        if self.queue.is_none() {
            self.queue = Some(queue.clone());
        }
        if !self.of(kind).list.needs_node() {
            return Ok(None);
        }
        let node = means.node.take().or_else(|| queue.unused_node());
        node.ok_or(Missing::Node).map(Some)
    }

    /// Takes the counter out of the queue's list of counters that have left works, of which it is
    /// the first. Returns the next one.
    pub(in crate::provider) fn end_rest(&mut self) -> Option<Arc<Cntr>> {
        self.in_rest = false;
        self.next_rest.take()
    }

    /// Takes the use of the counter, if no work waits.
    pub(in crate::provider) fn take_keeper(&mut self) -> Option<OwnedUse<Cntr>> {
        let is_empty = self.success.len == 0 && self.sum.len == 0;
        is_empty.then(|| self.keeper.take()).flatten()
    }

    /// Returns what is to be done when the lock was released. Called after each change.
    #[inline(always)]
    pub(in crate::provider) fn after_change(&mut self, starter: Starter) -> AfterChange {
        // Most changes make no work due.
        if self.fresh.is_none() {
            return AfterChange::Nothing;
        }
        self.after_change_of_some(starter)
    }

    /// The executor starts the work that has become due next, if no other one is due. Otherwise the
    /// work goes to the end of the queue. Works of this counter enter the queue under its lock
    /// only, so if the queue is empty, all earlier works of the counter have been started.
    // Always: see `Waiters::fire`.
    #[inline(always)]
    fn after_change_of_some(&mut self, starter: Starter) -> AfterChange {
        let (Some(queue), Some(work)) = (&self.queue, self.fresh.take()) else {
            return AfterChange::Nothing;
        };
        let starts = match starter {
            Starter::Worker => false,
            Starter::Call => queue.begin_idle(),
            Starter::Executor => queue.has_only_executor(),
        };
        if starts {
            if let Some(node) = self.fresh_node.take() {
                queue.keep(node);
            }
            return AfterChange::Start(work);
        }
        self.push(work);
        // If it is left over from a change whose works have been started meanwhile, a task is woken
        // without need.
        if !core::mem::replace(&mut self.wake, false) {
            return AfterChange::Nothing;
        }
        self.queue
            .clone()
            .map_or(AfterChange::Nothing, AfterChange::Due)
    }

    /// Moves the work that was `fresh` to the queue. Unless it is the only one that is due, it
    /// takes its node or the one that it has left in its list.
    #[inline(never)]
    fn push(&mut self, work: Work) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut work = Some(work);
        self.wake |= queue.push_single(&mut work);
        let Some(work) = work else {
            if let Some(node) = self.fresh_node.take() {
                queue.keep(node);
            }
            return;
        };
        let node = self.fresh_node.take();
        let left = node.or_else(|| self.success.list.take_spare());
        let node = left.or_else(|| self.sum.list.take_spare());
        self.wake |= queue.push(node, work);
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
    type Slot = (Option<Node>, Work);
    type Token = (Option<Node>, Work);

    fn insert(&mut self, kind: Compared, key: Key, (node, work): Self::Slot) {
        let kind = self.of(kind);
        // `begin` brings a node only if it is needed.
        let _unused = kind.list.insert(key, node, work);
        kind.len = kind.len.wrapping_add(1);
    }

    #[inline]
    fn first(&self, kind: Compared) -> Option<Key> {
        match kind {
            Compared::Success => self.success.list.first(),
            Compared::Sum => self.sum.list.first(),
        }
    }

    #[inline(always)]
    fn make_due(&mut self, kind: Compared) {
        let kind = self.of(kind);
        let Some((node, work)) = kind.list.pop_first() else {
            return;
        };
        kind.len = kind.len.wrapping_sub(1);
        if let Some(before) = self.fresh.replace(work) {
            self.push(before);
        }
        if node.is_some() {
            self.fresh_node = node;
        }
    }

    fn leave_rest(&mut self) {
        // The last work that is due follows in `after_change`, before the rest. While works wait,
        // there is a keeper.
        let counter = self.keeper.as_ref().and_then(OwnedUse::arc);
        let (Some(queue), Some(counter), false) = (&self.queue, counter, self.in_rest) else {
            return;
        };
        self.in_rest = true;
        let (next, wake) = queue.leave_rest(counter.clone());
        self.next_rest = next;
        self.wake |= wake;
    }

    fn remove(&mut self, kind: Compared, key: &Key) -> Option<Self::Token> {
        let kind = self.of(kind);
        let removed = kind.list.remove(key)?;
        kind.len = kind.len.wrapping_sub(1);
        Some(removed)
    }
}
