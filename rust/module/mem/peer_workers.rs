// SPDX-License-Identifier: GPL-2.0

//! The workers that handle what peers do to the objects of a user: sessions, connections and
//! listeners.
//!
//! Such a worker may have to wait until a task of the user releases a lock of a QP, and that task
//! may not be scheduled. All users share the workqueue, and the kernel limits the number of its
//! workers. So each user has at most [`MOST`] of them at a time. Work beyond that waits in a list
//! of the account. Each worker of the user that ends hands its slot over to the first item of the
//! list: the item is queued again, and no other one takes the slot.
//!
//! An item may have nothing to do any more when it runs. Then it returns the slot
//! ([`Budget::return_peer_slot`]). The last worker that ends queues all items, without slots.
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
            Relaxed, //
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

    /// Where the item is.
    fn place(&self) -> &PeerPlace;
}

/// Where an item is: a place of its own for each. Changed under the lock of the account's
/// [`PeerWorkers`].
pub(crate) struct PeerPlace(Atomic<u32>);

impl PeerPlace {
    /// Elsewhere.
    const NONE: u32 = 0;
    /// In the list of its account.
    const LISTED: u32 = 1;
    /// It was queued from the list, with a slot.
    const HAS_SLOT: u32 = 2;

    /// That of a new item.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(Self::NONE))
    }
}

/// The workers of an account, and the work that waits for one.
pub(super) struct PeerWorkers {
    running: u32,
    /// Items that were queued with a slot and have not taken it.
    handed_over: u32,
    /// In order. Entries before `next` are `None`.
    waiting: KVec<Option<Arc<dyn PeerWork>>>,
    next: usize,
}

impl PeerWorkers {
    pub(super) const fn new() -> Self {
        Self {
            running: 0,
            handed_over: 0,
            waiting: KVec::new(),
            next: 0,
        }
    }

    /// Takes the work that has waited longest, to be queued with a slot or without.
    fn take(&mut self, with_slot: bool) -> Option<Arc<dyn PeerWork>> {
        let work = self.waiting.get_mut(self.next)?.take();
        self.next = self.next.wrapping_add(1);
        if self.next > self.waiting.len() / 2 {
            self.waiting.retain(|work| work.is_some());
            self.next = 0;
        }
        let work = work?;
        let place = if with_slot {
            self.handed_over = self.handed_over.saturating_add(1);
            PeerPlace::HAS_SLOT
        } else {
            PeerPlace::NONE
        };
        work.place().0.store(place, Relaxed);
        Some(work)
    }

    /// Takes a slot for `work`, or adds it to the list. Returns whether it has a slot.
    fn enter(&mut self, work: Arc<dyn PeerWork>) -> bool {
        let place = &work.place().0;
        let most = MOST.max(nr_cpu_ids());
        let before = place.load(Relaxed);
        if before == PeerPlace::HAS_SLOT {
            place.store(PeerPlace::NONE, Relaxed);
            self.handed_over = self.handed_over.saturating_sub(1);
        } else if self.running == 0 {
            self.handed_over = 0;
        }
        let others = match before {
            PeerPlace::HAS_SLOT => 0,
            _ => self.handed_over,
        };
        if self.running.saturating_add(others) >= most {
            if before == PeerPlace::LISTED {
                // `work` is not the last reference: the list has one.
                return false;
            }
            if self.waiting.push(Some(work.clone()), GFP_ATOMIC).is_ok() {
                place.store(PeerPlace::LISTED, Relaxed);
                return false;
            }
            // Without memory for the list it runs: work must not be lost.
        }
        self.running = self.running.saturating_add(1);
        true
    }
}

impl Budget {
    /// Returns the slot of an item with this `place` that has nothing to do any more, if it has
    /// one: the next item gets the slot. Process context; does not sleep.
    pub(crate) fn return_peer_slot(&self, place: &PeerPlace) {
        let next = {
            let mut workers = self.account.0.topmost().peer_workers.lock();
            if place.0.load(Relaxed) != PeerPlace::HAS_SLOT {
                return;
            }
            place.0.store(PeerPlace::NONE, Relaxed);
            workers.handed_over = workers.handed_over.saturating_sub(1);
            workers.take(true)
        };
        if let Some(work) = next {
            work.queue();
        }
    }

    /// Begins to run `work`, an item of `owner`, in a worker with the owner's nice value. `None`:
    /// as many run for the account as are allowed, and `work` is queued again when one of them
    /// ends. Process context; does not sleep.
    pub(crate) fn enter_peer_worker(
        &self,
        owner: &Owner,
        work: Arc<dyn PeerWork>,
    ) -> Option<PeerWorker<'_>> {
        let workers = &self.account.0.topmost().peer_workers;
        if !workers.lock().enter(work) {
            return None;
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
            let is_last = workers.running == 0;
            (workers.take(!is_last), is_last)
        };
        while let Some(work) = next {
            work.queue();
            next = if is_last {
                workers.lock().take(false)
            } else {
                None
            };
        }
    }
}
