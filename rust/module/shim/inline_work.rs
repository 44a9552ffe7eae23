// SPDX-License-Identifier: GPL-2.0

//! Run to completion: the sender's task runs the receive work that a local send causes.
//!
//! A packet to a peer on the same host arrives before the send returns, in a softirq that
//! interrupts the sending task. The softirq could wake a worker for the receive work; that costs
//! two task switches. A task that holds no lock can do the work instead: it sends with a
//! [`SendBatch`] that ends [with](SendBatch::end) its [`InlineList`], the softirq
//! [offers](InlineList::offer) the work to the list, and the task [runs](InlineList::run) it when
//! it has released all locks. Such work may send packets and so add work to the list. Work that
//! does not fit, or exceeds the budget of the list, is [queued](InlineWork::queue) to the worker.
//!
//! ```text
//! task:    lock, SendBatch::begin, send ... end(&list), unlock        list.run -> InlineWork::run
//! softirq:                           `- arrives -> InlineList::offer -'
//! ```
//!
//! # Principals
//!
//! A task runs only work of its own [`Principal`]: the same user, user namespace and memory cgroup,
//! and both for programs, or both for kernel consumers. So the allocations of the work are charged
//! to its owner, the work has the priority of a task of its owner, and no lock of the work is held
//! by a task of another user, which may be preempted for as long as that user likes. A worker that
//! sends packets for a QP runs work of that QP's principal only: otherwise the QP's own work would
//! wait for work of another user in that worker.
//!
//! A task that accepts work and is not scheduled afterwards delays the work. The object that offers
//! work limits the delay with a deadline: see [`deadline`](super::deadline).

#[cfg(kfi_kunit)]
#[path = "../../../kunit/inline_work.rs"]
mod kunit;

use crate::shim::{
    bindings as shim,
    cred::Principal,
    reclaim::OwnerKind, //
};
use core::cell::Cell;
use kernel::{
    sync::Arc,
    types::NotThreadSafe, //
};

/// Work that a task may run to completion.
pub(crate) trait InlineWork: Send + Sync {
    /// Does the work; packets that it sends may add work to `list`. Process context, no lock held.
    fn run(self: Arc<Self>, list: &InlineList);

    /// Queues the work to a worker. Any context.
    fn queue(self: Arc<Self>);
}

/// Entries of a list. Packets that one task sends in a row go to few QPs.
const CAPACITY: usize = 4;

/// The most work that a task runs from one list. Workers do the rest.
const BUDGET: usize = 8;

/// The most work that a worker runs from one list, because other QPs wait for the worker.
const WORKER_BUDGET: usize = 2;

/// The most consecutive runs of one QP by a task, while packets arrive for it.
const RUNS: usize = 4;

/// The receive work that packets of this task have caused. Dropping it queues the rest to workers.
pub(crate) struct InlineList {
    work: [Cell<Option<Arc<dyn InlineWork>>>; CAPACITY],
    runner: Runner,
}

/// The task that has a list.
enum Runner {
    /// A task that runs on its own behalf, in a call of a program or of a kernel consumer.
    Task(OwnerKind),
    /// A worker, and the principal on whose behalf it runs.
    Worker(Option<Arc<Principal>>),
}

impl InlineList {
    /// An empty list of a task that runs on its own behalf, and uses an object of an owner of this
    /// kind. A worker that uses it is offered nothing.
    pub(crate) const fn of_task(kind: OwnerKind) -> Self {
        Self::of(Runner::Task(kind))
    }

    /// An empty list of a worker that runs on behalf of `principal`. Without one it is offered
    /// nothing.
    pub(crate) fn of_worker(principal: Option<&Arc<Principal>>) -> Self {
        Self::of(Runner::Worker(principal.cloned()))
    }

    const fn of(runner: Runner) -> Self {
        Self {
            work: [const { Cell::new(None) }; CAPACITY],
            runner,
        }
    }

    /// Offers `work` of `principal` to the task that this softirq has interrupted. Returns it if
    /// the task runs on behalf of another principal, has no list or no free entry, and in any other
    /// context. Any context.
    pub(crate) fn offer(
        work: Arc<dyn InlineWork>,
        principal: &Principal,
    ) -> Result<(), Arc<dyn InlineWork>> {
        // SAFETY: The pointer is null, or this is a softirq and the pointer is the argument of
        // `SendBatch::end`: a reference that is valid while softirqs that interrupt that task run,
        // of which this is one. Softirqs do not interrupt each other, interrupts get null, and the
        // task itself does not continue meanwhile, so nothing else uses the cells.
        let list = unsafe { shim::kfabric_shim_inline_list().cast::<Self>().as_ref() };
        match list {
            Some(list) if list.runs_for(principal) => list.put(work),
            _ => Err(work),
        }
    }

    /// Whether the task of this list runs on behalf of `principal`. In a softirq that interrupts
    /// the task.
    fn runs_for(&self, principal: &Principal) -> bool {
        match &self.runner {
            Runner::Worker(own) => own.as_ref().is_some_and(|own| **own == *principal),
            // Never true in a worker.
            Runner::Task(kind) => *kind == principal.kind() && principal.is_current(),
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
        match self.runner {
            Runner::Worker(_) => 1,
            Runner::Task(_) => RUNS,
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

    /// Runs the work, up to the budget. Process context, no lock held.
    pub(crate) fn run(self) {
        let budget = match self.runner {
            Runner::Worker(_) => WORKER_BUDGET,
            Runner::Task(_) => BUDGET,
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

/// Delays the packets that this CPU sends to peers on this host: they arrive together when it ends.
pub(crate) struct SendBatch(NotThreadSafe);

impl SendBatch {
    /// Begins a batch. The caller must not sleep until the batch ends.
    pub(crate) fn begin() -> Self {
        // SAFETY: Undone by the same task when the batch ends.
        unsafe { shim::kfabric_shim_bh_disable() };
        Self(NotThreadSafe)
    }

    /// Ends the batch. The receive work that its packets cause is offered to `list`, if there is
    /// one.
    pub(crate) fn end(self, list: Option<&InlineList>) {
        let Some(list) = list else {
            return;
        };
        core::mem::forget(self);
        // SAFETY: Softirqs were disabled by `begin`. The reference is valid and not used otherwise
        // until the function returns. No other task can have access to the list at the same time,
        // because cells are not `Sync`.
        unsafe { shim::kfabric_shim_bh_enable_with(core::ptr::from_ref(list).cast_mut().cast()) };
    }
}

impl Drop for SendBatch {
    fn drop(&mut self) {
        // SAFETY: Softirqs were disabled by `begin`.
        unsafe { shim::kfabric_shim_bh_enable() }
    }
}
