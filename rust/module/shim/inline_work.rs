// SPDX-License-Identifier: GPL-2.0

//! Run to completion: the sender's task runs the receive work that a local send causes.
//!
//! A packet to a peer on the same host arrives before the send returns, in a softirq on top of the task
//! that sends. The softirq could wake a worker for the receive work; that costs two switches of tasks. A
//! task that holds no lock can do the work instead: it sends with a [`SendBatch`] that ends
//! [with](SendBatch::end) its [`InlineList`], the softirq [offers](InlineList::offer) the work to the
//! list, and the task [runs](InlineList::run) it when it has released all locks. Such work may send
//! packets and so add work to the list. Work that does not fit, or is left after some, is
//! [queued](InlineWork::queue) to the worker.
//!
//! ```text
//! task:    lock, SendBatch::begin, send ... end(&list), unlock        list.run -> InlineWork::run
//! softirq:                           `- arrives -> InlineList::offer -'
//! ```
//!
//! # Whose work
//!
//! A task runs only work of its own [`Principal`]: the same user, user namespace and memory cgroup. So
//! what the work allocates is charged where it belongs, the work has the priority of a task of its
//! owner, and no lock of the work is held by a task of another user, which can be preempted for as long
//! as that user likes. A worker that sends packets for a QP runs work of that QP's principal only:
//! otherwise the QP's own work would wait for work of another user in that worker.
//!
//! A task that accepts work and is not scheduled afterwards delays it. The object that offers work
//! handles that with a deadline: see [`deadline`](super::deadline).

#[cfg(kfi_kunit)]
#[path = "../../../kunit/inline_work.rs"]
mod kunit;

use crate::shim::{
    bindings as shim,
    cred::Principal, //
};
use core::cell::Cell;
use kernel::{
    sync::Arc,
    types::NotThreadSafe, //
};

/// Work that a task may run to completion.
pub(crate) trait InlineWork: Send + Sync {
    /// Does the work; packets that it sends may add work to `list`. Process context, no lock is held.
    fn run(self: Arc<Self>, list: &InlineList);

    /// Queues the work to a worker. Any context.
    fn queue(self: Arc<Self>);
}

/// Work that a list can hold at the same time: packets that one task sends in a row go to few QPs.
const CAPACITY: usize = 4;

/// Work that a task runs from one list. A worker does what is left.
const BUDGET: usize = 8;

/// Work that a worker runs from one list: other QPs wait for the worker.
const WORKER_BUDGET: usize = 2;

/// Runs in a row of one QP by a task, as long as more arrives for it.
const RUNS: usize = 4;

/// Work that packets of this task have caused. If it is dropped, workers do what is left.
pub(crate) struct InlineList {
    work: [Cell<Option<Arc<dyn InlineWork>>>; CAPACITY],
    /// The principal for which a worker runs; `None` for a task, which runs for itself.
    principal: Option<Arc<Principal>>,
}

impl InlineList {
    /// An empty list of a task that runs for itself. A worker that uses it is offered nothing.
    pub(crate) const fn new() -> Self {
        Self::of(None)
    }

    /// An empty list of a worker that runs for `principal`. It is offered nothing if there is none.
    pub(crate) fn of_worker(principal: Option<&Arc<Principal>>) -> Self {
        Self::of(principal.cloned())
    }

    const fn of(principal: Option<Arc<Principal>>) -> Self {
        Self {
            work: [const { Cell::new(None) }; CAPACITY],
            principal,
        }
    }

    /// Offers `work`, which is done for `principal`, to the task on top of which this softirq runs.
    /// Gives it back if the task runs for another principal, or has no list or no room, and in any
    /// other context. Any context.
    pub(crate) fn offer(
        work: Arc<dyn InlineWork>,
        principal: &Principal,
    ) -> Result<(), Arc<dyn InlineWork>> {
        // SAFETY: The pointer is null, or this is a softirq and it is what `SendBatch::end` gave: a
        // reference that is good while softirqs on top of that task run, of which this is one. They do
        // not interrupt each other, interrupts get null, and the task itself does not go on meanwhile,
        // so nothing else uses the cells.
        let list = unsafe { shim::kfabric_shim_inline_list().cast::<Self>().as_ref() };
        match list {
            Some(list) if list.runs_for(principal) => list.put(work),
            _ => Err(work),
        }
    }

    /// Whether the task of this list runs for `principal`. In a softirq on top of the task.
    fn runs_for(&self, principal: &Principal) -> bool {
        match &self.principal {
            Some(own) => **own == *principal,
            // Never so for a worker.
            None => principal.is_current(),
        }
    }

    fn put(&self, work: Arc<dyn InlineWork>) -> Result<(), Arc<dyn InlineWork>> {
        for cell in &self.work {
            match cell.take() {
                None => {
                    cell.set(Some(work));
                    return Ok(());
                }
                other => cell.set(other),
            }
        }
        Err(work)
    }

    /// How often in a row the work may run.
    pub(crate) fn runs(&self) -> usize {
        match self.principal {
            Some(_) => 1,
            None => RUNS,
        }
    }

    fn take(&self) -> Option<Arc<dyn InlineWork>> {
        self.work.iter().find_map(Cell::take)
    }

    /// Whether there is work.
    #[cfg(kfi_kunit)]
    pub(crate) fn has_work(&self) -> bool {
        match self.take() {
            Some(work) => self.put(work).is_ok(),
            None => false,
        }
    }

    /// Runs the work. Process context, no lock is held.
    pub(crate) fn run(self) {
        let budget = match self.principal {
            Some(_) => WORKER_BUDGET,
            None => BUDGET,
        };
        for _ in 0..budget {
            match self.take() {
                Some(work) => work.run(&self),
                None => return,
            }
        }
    }
}

impl Drop for InlineList {
    fn drop(&mut self) {
        while let Some(work) = self.take() {
            work.queue();
        }
    }
}

/// While it exists, packets that this CPU sends to peers on this host wait, and arrive there together.
pub(crate) struct SendBatch(NotThreadSafe);

impl SendBatch {
    /// Begins: does not sleep until it is dropped.
    pub(crate) fn begin() -> Self {
        // SAFETY: Undone when it ends, by the same task.
        unsafe { shim::kfabric_shim_bh_disable() };
        Self(NotThreadSafe)
    }

    /// Ends; the receive work that the packets cause is offered to `list`, if there is one.
    pub(crate) fn end(self, list: Option<&InlineList>) {
        let Some(list) = list else {
            return;
        };
        core::mem::forget(self);
        // SAFETY: Disabled by `begin`. The reference is good, and nothing else is done with it, until
        // the function returns; no other task can have an `InlineList` at the same time, as cells are
        // not `Sync`.
        unsafe { shim::kfabric_shim_bh_enable_with(core::ptr::from_ref(list).cast_mut().cast()) };
    }
}

impl Drop for SendBatch {
    fn drop(&mut self) {
        // SAFETY: Disabled by `begin`.
        unsafe { shim::kfabric_shim_bh_enable() }
    }
}
