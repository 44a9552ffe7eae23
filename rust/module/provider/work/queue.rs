// SPDX-License-Identifier: GPL-2.0

//! The works of a domain that are due, and the task that starts them.
//!
//! ```text
//!   counter's lists --- threshold reached ---> due works, in order ---> one task starts them
//!    (`map.rs`)          (counter's lock)        (this file)             one after the other
//! ```
//!
//! A change of a counter moves the works that it makes due to the end of the domain's list, under
//! the lock of the counter, at most [`BATCH`](kfi_core::cntr::BATCH) at once; the executor makes
//! the rest due when it has started these. So the list has the works of a counter in their order,
//! also if several tasks add to it. One task at a time takes works from the list and starts them:
//! the *executor*. A work that it starts may change another counter, whose works come to the end of
//! the list and are started by the same executor. So a chain of works takes no recursion and no
//! lock of two counters.
//!
//! If a change makes one work due, by the executor or by a task that becomes it, and the list is
//! empty, this work needs no list: the executor starts it next. The links of a chain are such
//! works. A single work that another change makes due needs no node ([`Due::single`]): mostly the
//! change is the completion of a transfer that the executor has just posted. While the list is not
//! empty, each work goes to its end, so a chain delays no other work for longer than one step.
//!
//! # The executor
//!
//! A task that changes a counter of its own file (`KFABRIC_IOC_CNTR_MODIFY`,
//! `KFABRIC_IOC_QUEUE_WORK`) becomes the executor when its call has released all locks, for
//! [`CALL_STEPS`] at most. In all other cases, and for the rest, a worker does it on behalf of the
//! owner of the domain: an operation of a peer that completes here only queues the worker. The
//! worker goes to the end of the workqueue after [`WORKER_STEPS`], so works that go round in
//! circles delay others as little as any user's work does. It has the nice value that the owner had
//! when it opened the file. If too many workers of the user run, it takes few steps in a turn, and
//! leaves the posting of transfers to the workers of the endpoints.
//!
//! # Memory
//!
//! A work that waits takes memory, and nothing else. The number of works of a domain is limited
//! ([`limits::MAX_WORK`]); their memory is charged to the owner of the domain. A counter keeps the
//! memory of one work for its next one, the domain that of [`POOL_SIZE`] works.
//!
//! # Locks
//!
//! `WorkQueue::due` is taken under the lock of a counter. Only the lock of the workqueue is taken
//! under it. `WorkQueue::state` says without the lock whether a work is due and whether there is an
//! executor. A task becomes the executor, and ceases to be it, with an atomic change of `state`; it
//! ceases without the lock only if no work is due. So either the executor sees a new work, or who
//! adds the work sees that there is no executor. `WorkQueue::counters` is a leaf.

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work as WorkStruct,
        WorkItem, //
    },
};

use kfi_core::{
    due::Key,
    limits,
    word::Word, //
};

use super::{
    map::{
        Node,
        WorkList, //
    },
    Work, //
};
use crate::{
    mem::Budget,
    provider::{
        cntr::Cntr,
        prelude::*, //
    },
    shim::{
        cred::Owner,
        sched::fatal_signal_pending,
        word::AtomicWord,
        work, //
    }, //
};

/// Steps of a call: works, and a step more for each 4 KiB that a transfer posts.
const CALL_STEPS: usize = 4096;

/// Steps of a worker before it lets other items of the workqueue run.
const WORKER_STEPS: usize = 1024;

/// Unused nodes that a domain keeps for its next works: allocating, charging and freeing one costs
/// more than the rest of a work that changes a counter.
const POOL_SIZE: usize = 64;

/// Works that are dropped or started between two calls of `cond_resched()`.
const STRIDE: usize = 32;

/// Bits of `WorkQueue::state`: a task is the executor.
const BUSY: u64 = 1 << 0;

/// Works are due, beside one that the executor has.
const DUE: u64 = 1 << 1;

/// The domain closes by force.
const CLOSED: u64 = 1 << 2;

struct Due {
    /// A work that an executor had no steps left for. It comes first.
    left: Option<Work>,
    /// A work that became due when no other one was. It comes before `works`.
    single: Option<Work>,
    /// By the order in which they became due.
    works: WorkList,
    /// The key of the next one.
    next: u64,
    /// The first of the counters that have reached works which are still in their lists. The lists
    /// of the others name the next one. These works come after `works`.
    rest: Option<Arc<Cntr>>,
    /// The domain closes by force: works are dropped.
    closed: bool,
    /// Whether [`WorkQueue::state`] has [`DUE`].
    noted: bool,
    /// Unused nodes, at most [`POOL_SIZE`]. They stay charged.
    pool: KVec<Node>,
}

impl Due {
    /// Whether no work is due.
    #[inline]
    fn is_empty(&self) -> bool {
        self.left.is_none() && self.single.is_none() && self.works.is_empty() && self.rest.is_none()
    }

    /// Keeps an unused node, if there are not enough.
    fn keep(&mut self, node: Option<Node>) {
        if let Some(node) = node {
            // A refused one is freed, which does not sleep.
            let _refused = self.pool.push_within_capacity(node);
        }
    }

    /// Takes the first work that is due.
    fn pop(&mut self) -> Option<Work> {
        if let Some(work) = self.left.take().or_else(|| self.single.take()) {
            return Some(work);
        }
        let (node, work) = self.works.pop_first()?;
        self.keep(node);
        Some(work)
    }
}

/// What the executor does next.
enum Turn {
    Start(Work),
    /// The domain closes by force.
    Drop(Work),
    /// It makes more works due of the counters that have left some, from this one on.
    ReleaseRest(Arc<Cntr>),
    /// It is no executor any more. Works may be left.
    Ended {
        more: bool,
    },
}

/// The works of a domain.
#[pin_data]
pub(crate) struct WorkQueue {
    #[pin]
    due: SpinLock<Due>,
    /// [`BUSY`], changed atomically; [`DUE`] and [`CLOSED`], changed under the lock of `due`, too.
    state: AtomicWord,
    /// Works that wait or are due.
    len: Atomic<u32>,
    /// The counters for which a work has waited, by identifier.
    #[pin]
    counters: SpinLock<RBTree<u64, Arc<Cntr>>>,
    /// On whose behalf the worker runs.
    owner: Arc<Owner>,
    budget: Budget,
    #[pin]
    worker: WorkStruct<Self>,
}

impl_has_work! {
    impl HasWork<Self> for WorkQueue { self.worker }
}

/// The memory of a counter's entry in the list of counters with work.
pub(in crate::provider) type Listing = RBTreeNodeReservation<u64, Arc<Cntr>>;

/// The tasks that start the operations of transfers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Post {
    /// The executor, which may sleep.
    Here,
    /// The workers of the endpoints.
    Workers,
}

impl WorkQueue {
    /// Bytes of the pool.
    pub(in crate::provider) const POOL_BYTES: usize = POOL_SIZE * size_of::<Node>();

    /// An empty queue of a domain with this owner. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider) fn new(owner: Arc<Owner>, budget: Budget) -> Result<Arc<Self>> {
        let pool = KVec::with_capacity(POOL_SIZE, GFP_KERNEL_ACCOUNT)?;
        Arc::pin_init(
            pin_init!(Self {
                due <- new_spinlock!(
                    Due {
                        left: None,
                        single: None,
                        works: WorkList::new(),
                        next: 0,
                        rest: None,
                        closed: false,
                        noted: false,
                        pool,
                    },
                    "WorkQueue::due"
                ),
                state: AtomicWord::new(0),
                len: Atomic::new(0),
                counters <- new_spinlock!(RBTree::new(), "WorkQueue::counters"),
                owner,
                budget,
                worker <- new_work!("kfabric::WorkQueue"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Changes what is due, and notes in `state` whether something is. Returns the change's result,
    /// and whether a task was the executor afterwards.
    #[inline(always)]
    fn change<R>(&self, change: impl FnOnce(&mut Due) -> R) -> (R, bool) {
        let mut due = self.due.lock();
        let result = change(&mut due);
        let is_due = !due.is_empty();
        let state = match (core::mem::replace(&mut due.noted, is_due), is_due) {
            (false, true) => self.state.fetch_add(DUE),
            // The bit is set.
            (true, false) => self.state.fetch_add(DUE.wrapping_neg()),
            _ => self.state.load(),
        };
        (result, state & BUSY != 0)
    }

    /// Memory for a work, if an unused node is left. Does not sleep.
    pub(super) fn unused_node(&self) -> Option<Node> {
        self.due.lock().pool.pop()
    }

    /// Memory for a work. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider) fn new_node(&self) -> Result<Node> {
        Node::new(&self.budget)
    }

    /// The number of works that wait or are due. Any context.
    pub(in crate::provider) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Counts a work that is about to wait. Fails with `ENOSPC` at the limit. Any context.
    pub(in crate::provider) fn enter(&self) -> Result {
        if self.len.fetch_add(1, Relaxed) < limits::MAX_WORK {
            return Ok(());
        }
        self.leave(1);
        Err(ENOSPC)
    }

    /// Counts works that neither wait nor are due any more. Any context.
    pub(in crate::provider) fn leave(&self, count: u32) {
        self.len.fetch_sub(count, Relaxed);
    }

    /// Keeps an unused node. Does not sleep.
    #[inline(never)]
    pub(super) fn keep(&self, node: Node) {
        self.due.lock().keep(Some(node));
    }

    /// Takes a work that is due, if no other one is; otherwise leaves it. It needs no node. Returns
    /// whether a task has to be woken to start it, because there is no executor. Called under the
    /// lock of its counter.
    #[inline(always)]
    pub(super) fn push_single(&self, work: &mut Option<Work>) -> bool {
        if self.state.load() & DUE != 0 {
            return false;
        }
        let (moved, busy) = self.change(|due| {
            let is_empty = due.is_empty();
            if is_empty {
                core::mem::swap(&mut due.single, work);
            }
            is_empty
        });
        moved && !busy
    }

    /// Adds a work that is due. `node` is `Some`. Otherwise as [`push_single`](Self::push_single).
    pub(super) fn push(&self, node: Option<Node>, work: Work) -> bool {
        let ((), busy) = self.change(|due| {
            // With one work per nanosecond the number wraps after 584 years.
            let key = Key::new(due.next, 0);
            due.next = due.next.wrapping_add(1);
            let unused = due.works.insert(key, node, work);
            due.keep(unused);
        });
        !busy
    }

    /// Notes that a counter, which is not in the list of those, has more works that are due.
    /// Returns the counter behind it in the list, and what [`push`](Self::push) returns.
    pub(super) fn leave_rest(&self, cntr: Arc<Cntr>) -> (Option<Arc<Cntr>>, bool) {
        let (next, busy) = self.change(|due| due.rest.replace(cntr));
        (next, !busy)
    }

    /// Makes the current task the executor if no work is due and there is none. Called under the
    /// lock of the counter whose work it is about to start, so no earlier work of this counter can
    /// become due in between.
    #[inline]
    pub(in crate::provider) fn begin_idle(&self) -> bool {
        // ORDERING: fully ordered, see `is_idle`.
        self.state.compare_exchange(0, BUSY).is_ok()
    }

    /// Whether no work is due and there is no executor. Called under the lock of a counter: then
    /// all works of this counter that were due have been started, and none becomes due before the
    /// lock is released. Those of other counters may.
    #[inline]
    pub(in crate::provider) fn is_idle(&self) -> bool {
        // ORDERING: acquire: who sees that no work is due sees the effects of those that were. All
        // changes of `state` are fully ordered.
        self.state.load_acquire() == 0
    }

    /// Whether no work is due, except for those that the executor has taken, which is the current
    /// task. As [`is_idle`](Self::is_idle).
    #[inline]
    pub(super) fn has_only_executor(&self) -> bool {
        self.state.load_acquire() == BUSY
    }

    /// Has the worker start the works that are due. Any context.
    pub(in crate::provider) fn wake(self: &Arc<Self>) {
        // The workqueue refuses an item that is queued already.
        let _ = work::submit_queue(self.owner.kind()).enqueue(self.clone());
    }

    /// Starts the works that are due, unless another task does. The worker does the rest. Process
    /// context, in a call of the owner. Sleeps.
    pub(crate) fn run_here(self: &Arc<Self>) {
        if self.begin() {
            self.go_on(None);
        }
    }

    /// Starts `next`, and then the works that are due, as the executor, which the current task is.
    /// As [`run_here`](Self::run_here).
    pub(in crate::provider) fn go_on(self: &Arc<Self>, next: Option<Work>) {
        if self.execute(next, CALL_STEPS, Post::Here) {
            self.wake();
        }
    }

    /// Makes the current task the executor, if works are due and there is none.
    fn begin(&self) -> bool {
        self.begin_if(|state| state & DUE != 0)
    }

    /// Makes the current task the executor, if there is none and `wanted` holds for `state`.
    fn begin_if(&self, wanted: impl Fn(u64) -> bool) -> bool {
        let mut seen = self.state.load();
        while seen & BUSY == 0 && wanted(seen) {
            match self.state.compare_exchange(seen, seen | BUSY) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Starts `next` and the works that are due, as the executor, until there is none or so many
    /// steps were taken. Then the current task is no executor any more. Returns whether works are
    /// left. Sleeps.
    fn execute(self: &Arc<Self>, next: Option<Work>, steps: usize, post: Post) -> bool {
        let (mut next, mut left, mut count) = (next, Some(steps), 0usize);
        loop {
            let may_start = left.is_some() && !fatal_signal_pending();
            let turn = match next {
                Some(work) if may_start => Turn::Start(work),
                Some(work) => {
                    self.change(|due| due.left = Some(work));
                    self.take_from(false)
                }
                None => self.take_turn(may_start),
            };
            next = match turn {
                Turn::Start(work) => {
                    self.leave(1);
                    let steps = work.steps();
                    left = left.and_then(|left| left.checked_sub(steps));
                    work.start(post, steps)
                }
                Turn::Drop(work) => {
                    self.leave(1);
                    drop(work);
                    None
                }
                Turn::ReleaseRest(first) => {
                    Self::release_rest(first);
                    None
                }
                Turn::Ended { more } => return more,
            };
            count = count.wrapping_add(1);
            if count % STRIDE == 0 {
                cond_resched();
            }
        }
    }

    /// Decides what the executor does next. Does not sleep.
    #[inline]
    fn take_turn(&self, may_start: bool) -> Turn {
        // A work that becomes due after this finds no executor.
        if self.state.load() == BUSY && self.state.compare_exchange(BUSY, 0).is_ok() {
            return Turn::Ended { more: false };
        }
        self.take_from(may_start)
    }

    /// [`take_turn`](Self::take_turn), if a work may be due.
    #[inline(never)]
    fn take_from(&self, may_start: bool) -> Turn {
        let (turn, _) = self.change(|due| {
            if !due.closed && !may_start {
                return None;
            }
            match due.pop() {
                Some(work) if due.closed => Some(Turn::Drop(work)),
                Some(work) => Some(Turn::Start(work)),
                None => due.rest.take().map(Turn::ReleaseRest),
            }
        });
        if let Some(turn) = turn {
            return turn;
        }
        // The bit is set.
        let state = self.state.fetch_add(BUSY.wrapping_neg());
        Turn::Ended {
            more: state & DUE != 0,
        }
    }

    /// Makes more works due of the counters that have left some, of which `first` is the first. A
    /// counter is in the list because works of it are due, so the visits cost less than the works.
    /// The executor calls it. Sleeps.
    fn release_rest(first: Arc<Cntr>) {
        let (mut next, mut count) = (Some(first), 0usize);
        while let Some(cntr) = next {
            next = cntr.release_rest();
            count = count.wrapping_add(1);
            if count % STRIDE == 0 {
                cond_resched();
            }
        }
    }

    /// Lists a counter for which a work is about to wait. `listing`: memory for its entry. Does not
    /// sleep.
    pub(in crate::provider) fn list(&self, id: u64, cntr: &Arc<Cntr>, listing: Listing) {
        // A second entry of the same counter replaces the first.
        let before = (self.counters.lock()).insert(listing.into_node(id, cntr.clone()));
        drop(before);
    }

    /// Removes a counter from the list. Sleeps.
    pub(in crate::provider) fn unlist(&self, id: u64) {
        let before = self.counters.lock().remove_node(&id);
        drop(before);
    }

    /// The counter with the lowest identifier from `from` on, and its identifier. Does not sleep.
    pub(super) fn counter_from(&self, from: u64) -> Option<(u64, Arc<Cntr>)> {
        let counters = self.counters.lock();
        let cursor = counters.cursor_lower_bound(&from)?;
        let (id, cntr) = cursor.current();
        Some((*id, cntr.clone()))
    }

    /// Closes the queue by force: drops the works that are due, and those that become due. The
    /// executor is not waited for. Sleeps.
    pub(super) fn close(self: &Arc<Self>) {
        let (was_closed, _) = self.change(|due| core::mem::replace(&mut due.closed, true));
        if !was_closed {
            self.state.fetch_add(CLOSED);
        }
        // An executor that ends after this sees that the queue is closed.
        let begins = self.begin_if(|_| true);
        // Otherwise the executor drops them.
        if begins {
            self.execute(None, 0, Post::Here);
        }
    }
}

/// The worker, which starts works that are due on behalf of the owner.
impl WorkItem for WorkQueue {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if !this.begin() {
            return;
        }
        let running = this.budget.enter_worker();
        let (steps, post) = match running {
            Some(_) => (WORKER_STEPS, Post::Here),
            None => (STRIDE, Post::Workers),
        };
        let _nice = this.owner.borrow_nice();
        // Allocations are charged to the owner of the domain.
        let more = this.owner.charge(|| this.execute(None, steps, post));
        if more {
            this.wake();
        }
    }
}
