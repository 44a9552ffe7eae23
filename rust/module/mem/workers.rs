// SPDX-License-Identifier: GPL-2.0

//! The workers of each user that process packets, post started operations and start works.
//!
//! Such a worker may sleep until a task of the user releases a lock, and that task may not be
//! scheduled. All users share the workqueues, and the kernel limits their workers. So each user has
//! at most [`MOST`] workers at a time. A QP beyond that waits in a list of the account, without a
//! timer. A worker that ends queues the QP that has waited longest. That QP enters a worker even if
//! it has nothing to do, so the end of its worker queues the next one. Endpoints try again by a
//! timer (`Submission::try_later`); the executor of deferred work runs fewer steps.
//!
//! ```text
//!   work item of a QP -- enter_or_wait --> runs --> RunningWorker is dropped --.
//!                             |                                                |
//!                             '--> List::waiting ---- WaitingWork::queue <-----'
//! ```

use kernel::{
    cpu::nr_cpu_ids,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        Arc,
        SpinLock, //
    }, //
};

use super::budget::Budget;

/// The most workers of an account, or the number of CPUs if that is more. The kernel limits the
/// workers of one queue on one CPU (1,024), which all users share. So the limit is far below that,
/// and above what a user needs whose tasks are scheduled.
const MOST: u32 = 64;

/// A work item that can wait for a worker.
pub(crate) trait WaitingWork: Send + Sync {
    /// Queues the item. Process context; does not sleep.
    fn queue(self: Arc<Self>);

    /// Its place in the list of its account.
    fn place(&self) -> &Place;
}

/// The place of a work item in the list of its account.
///
/// The number of its node, [`NOWHERE`] or [`NEVER`]. Changed under the lock of the list.
pub(crate) struct Place(Atomic<u64>);

/// The item does not wait.
const NOWHERE: u64 = 0;

/// The item waits no more.
const NEVER: u64 = u64::MAX;

impl Place {
    /// That of an item that does not wait.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(NOWHERE))
    }
}

/// The items that wait, in order.
struct List {
    waiting: RBTree<u64, Arc<dyn WaitingWork>>,
    /// The number of the last item that has waited.
    last: u64,
}

type Node = RBTreeNode<u64, Arc<dyn WaitingWork>>;

impl List {
    /// Adds an item, unless it waits already. Returns false without memory.
    fn add(&mut self, work: impl FnOnce() -> Arc<dyn WaitingWork>, place: &Place) -> bool {
        if place.0.load(Relaxed) != NOWHERE {
            return true;
        }
        let Ok(node) = RBTreeNodeReservation::new(GFP_ATOMIC | __GFP_NOWARN) else {
            return false;
        };
        self.last = self.last.wrapping_add(1);
        self.waiting.insert(node.into_node(self.last, work()));
        place.0.store(self.last, Relaxed);
        true
    }

    /// Takes an item away, which is in this list or in none. The caller drops the node after
    /// unlocking.
    fn remove(&mut self, place: &Place) -> Option<Node> {
        let node = self.waiting.remove_node(&place.0.load(Relaxed))?;
        place.0.store(NOWHERE, Relaxed);
        Some(node)
    }

    /// Takes the item that has waited longest.
    fn take(&mut self) -> Option<Arc<dyn WaitingWork>> {
        let (_, node) = self.waiting.cursor_front_mut()?.remove_current();
        let (_, work) = node.to_key_value();
        work.place().0.store(NOWHERE, Relaxed);
        Some(work)
    }
}

/// The workers of an account, and the items that wait for one.
#[pin_data]
pub(super) struct Workers {
    running: Atomic<u32>,
    /// Whether items wait. Changed under the lock of the list.
    have_waiting: Atomic<bool>,
    #[pin]
    list: SpinLock<List>,
}

impl Workers {
    pub(super) fn new() -> impl PinInit<Self> {
        let list = List {
            waiting: RBTree::new(),
            last: NOWHERE,
        };
        pin_init!(Self {
            running: Atomic::new(0),
            have_waiting: Atomic::new(false),
            list <- new_spinlock!(list, "Workers::list"),
        })
    }

    /// Counts one more. `None`: as many run as are allowed. A refused caller is not counted, also
    /// not for a moment: another one would take it for a worker, and wait for its end.
    fn enter(&self) -> Option<RunningWorker<'_>> {
        let most = MOST.max(nr_cpu_ids());
        let mut now = self.running.load(Relaxed);
        while now < most {
            match self.running.cmpxchg(now, now.wrapping_add(1), Full) {
                Ok(_) => return Some(RunningWorker(self)),
                Err(other) => now = other,
            }
        }
        None
    }

    /// [`Budget::enter_worker_or_wait`], when as many run as are allowed.
    #[cold]
    fn wait(
        &self,
        work: impl FnOnce() -> Arc<dyn WaitingWork>,
        place: &Place,
    ) -> Option<RunningWorker<'_>> {
        let mut list = self.list.lock();
        if !list.add(work, place) {
            drop(list);
            // Without memory for the list it runs: work must not be lost.
            self.running.fetch_add(1, Full);
            return Some(RunningWorker(self));
        }
        self.note(&list);
        // Pairs with the full ordering of the end of a worker: either that sees that an item waits,
        // or this sees that a worker has ended.
        smp_mb(Full);
        let worker = self.enter()?;
        let node = list.remove(place);
        self.note(&list);
        drop(list);
        // The caller has another reference to the item.
        drop(node);
        Some(worker)
    }

    fn note(&self, list: &List) {
        self.have_waiting.store(!list.waiting.is_empty(), Relaxed);
    }

    /// Queues the item that has waited longest.
    #[cold]
    fn queue_next(&self) {
        let mut list = self.list.lock();
        let work = list.take();
        self.note(&list);
        drop(list);
        if let Some(work) = work {
            work.queue();
        }
    }
}

impl Budget {
    /// Counts a worker that runs for the account until the result is dropped. `None`: as many run
    /// as are allowed; the caller continues later, or does less. Process context; does not sleep.
    pub(crate) fn enter_worker(&self) -> Option<RunningWorker<'_>> {
        self.account.0.topmost().workers.enter()
    }

    /// The same for the item that `work` returns, with its `place`. `None`: the item waits, and is
    /// queued again when a worker ends.
    pub(crate) fn enter_worker_or_wait(
        &self,
        work: impl FnOnce() -> Arc<dyn WaitingWork>,
        place: &Place,
    ) -> Option<RunningWorker<'_>> {
        let workers = &self.account.0.topmost().workers;
        workers.enter().or_else(|| workers.wait(work, place))
    }

    /// Removes the item from the list, for ever. A worker that is just ending may still queue it
    /// once. Process context; does not sleep.
    pub(crate) fn wait_no_more(&self, place: &Place) {
        let workers = &self.account.0.topmost().workers;
        let mut list = workers.list.lock();
        let node = list.remove(place);
        place.0.store(NEVER, Relaxed);
        workers.note(&list);
        drop(list);
        // The caller has another reference to the item.
        drop(node);
    }
}

/// A worker that runs for a user, see [`Budget::enter_worker`]. Only process context may drop it.
pub(crate) struct RunningWorker<'a>(&'a Workers);

impl Drop for RunningWorker<'_> {
    fn drop(&mut self) {
        // The full ordering pairs with the barrier in `Workers::wait`.
        self.0.running.fetch_sub(1, Full);
        if self.0.have_waiting.load(Relaxed) {
            self.0.queue_next();
        }
    }
}

#[cfg(kfi_kunit)]
impl Place {
    /// Whether the item waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(self.0.load(Relaxed), NOWHERE | NEVER)
    }
}
