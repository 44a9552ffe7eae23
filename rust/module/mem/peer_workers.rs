// SPDX-License-Identifier: GPL-2.0

//! The workers that handle what peers do to the objects of a user: sessions, connections and
//! listeners.
//!
//! Such a worker may have to wait until a task of the user releases a lock, and that task may not be
//! scheduled. All users share the workqueue, and the kernel limits the number of its workers. So
//! each user has at most [`MOST`] of them at a time. Work beyond that waits in a list of the account.
//! Each worker of the user that ends queues one item of it again, and the last one queues all: an item
//! may have nothing to do any more, and then no worker of it ends.
//!
//! ```text
//!   work item -- enter_peer_worker --> runs --> PeerWorker is dropped --.
//!                       |                                               |
//!                       '--> PeerWorkers::waiting ---- PeerWork::queue <'
//! ```

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    }, //
};

use super::budget::Budget;
use crate::shim::{
    cred::Owner,
    sched::BorrowedNice, //
};

/// The most workers of an account, or the number of CPUs if that is more.
const MOST: u32 = 64;

/// A work item that handles what peers do.
pub(crate) trait PeerWork: Send + Sync {
    /// Queues the item. Process context.
    fn queue(self: Arc<Self>);

    /// Whether the item is in the list of its account. Only this file changes it.
    fn is_waiting(&self) -> &Atomic<bool>;
}

/// The workers of an account, and the work that waits for one.
pub(super) struct PeerWorkers {
    running: u32,
    /// In order. Entries before `next` are `None`.
    waiting: KVec<Option<Arc<dyn PeerWork>>>,
    next: usize,
}

impl PeerWorkers {
    pub(super) const fn new() -> Self {
        Self {
            running: 0,
            waiting: KVec::new(),
            next: 0,
        }
    }

    /// Takes the work that has waited longest.
    fn take(&mut self) -> Option<Arc<dyn PeerWork>> {
        let work = self.waiting.get_mut(self.next)?.take();
        self.next = self.next.wrapping_add(1);
        if self.next > self.waiting.len() / 2 {
            self.waiting.retain(|work| work.is_some());
            self.next = 0;
        }
        work
    }
}

impl Budget {
    /// Begins to run `work`, an item of `owner`, in a worker with the owner's nice value. `None`: as
    /// many run for the account as are allowed, and `work` is queued again when one of them ends.
    /// Process context; does not sleep.
    pub(crate) fn enter_peer_worker(
        &self,
        owner: &Owner,
        work: Arc<dyn PeerWork>,
    ) -> Option<PeerWorker<'_>> {
        {
            let mut workers = self.account.0.topmost().peer_workers.lock();
            if workers.running >= MOST.max(nr_cpu_ids()) {
                if work.is_waiting().xchg(true, Full) {
                    // `work` is not the last reference: the list has one.
                    return None;
                }
                match workers.waiting.push(Some(work.clone()), GFP_ATOMIC) {
                    Ok(()) => return None,
                    // Without memory for the list it runs: work must not be lost.
                    Err(_) => work.is_waiting().store(false, Release),
                }
            }
            workers.running = workers.running.saturating_add(1);
        }
        Some(PeerWorker {
            budget: self,
            _nice: owner.borrow_nice(),
        })
    }
}

/// A worker that handles what peers do, until it is dropped.
pub(crate) struct PeerWorker<'a> {
    budget: &'a Budget,
    _nice: Option<BorrowedNice>,
}

impl Drop for PeerWorker<'_> {
    fn drop(&mut self) {
        let workers = &self.budget.account.0.topmost().peer_workers;
        let (mut next, is_last) = {
            let mut workers = workers.lock();
            workers.running = workers.running.saturating_sub(1);
            (workers.take(), workers.running == 0)
        };
        while let Some(work) = next {
            work.is_waiting().store(false, Release);
            work.queue();
            next = if is_last { workers.lock().take() } else { None };
        }
    }
}
