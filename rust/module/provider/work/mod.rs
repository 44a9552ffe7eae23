// SPDX-License-Identifier: GPL-2.0

//! Triggered operations and deferred work: fi_trigger(3).
//!
//! A [`Work`] is an operation that waits for a counter. It is a transfer, which was admitted when
//! it was queued ([`Admitted`]), or a change of a counter. It waits in a list of its counter
//! ([`map`]). When the counter reaches its threshold, it moves to the list of the domain's works
//! that are due, from which one task starts them in order ([`queue`]).
//!
//! | | triggered operation | deferred work |
//! |---|---|---|
//! | compares with its threshold | the success value | success + error |
//! | its completion | as that of any operation | its completion counter; on request as any |
//! | is cancelled | by the context of the operation | by its counter, threshold and number |
//!
//! While a work waits, it uses its counter, so that this cannot be closed; its endpoint; and the
//! counter that it changes. These uses end when it starts, before anybody can see what it does: who
//! has waited for its effect can close the objects. All works of a counter together hold one use of
//! it, which a close gives back if none waits. A transfer uses its completion counter until it has
//! completed, and gives the use back before it counts there ([`Deferral`]).
//!
//! Everything that can fail happens when a work is queued, except what a posted operation would
//! report as its completion, too.

mod map;
mod queue;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/deferred.rs"]
mod kunit;

use kfi_core::{
    cntr::Compared,
    due::Key, //
};

use super::{
    cntr::Cntr,
    cq::Credit,
    ep::{
        admit::Admitted,
        Endpoint, //
    },
    prelude::*, //
};

pub(super) use self::map::{
    AfterChange,
    Found,
    Means,
    Missing,
    Starter,
    WorkList,
    WorkLists, //
};
use self::queue::Post;
pub(crate) use self::queue::WorkQueue;

/// Triggered operations that are examined under the lock of their counter at a time.
const SEARCHED: usize = 64;

/// Bytes that one step of an executor transfers.
const STEP_BYTES: usize = 4 << 10;

/// The change of a counter.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// Adds to the success value.
    Add(u64),
    /// Sets the success value, to at most the maximum of the counter.
    Set(u64),
}

/// An operation that waits for a counter.
pub(crate) enum Work {
    /// A transfer of an endpoint.
    Transfer {
        operation: Admitted,
        /// Keeps the endpoint open.
        endpoint: OwnedUse<Endpoint>,
    },
    /// A change of a counter.
    Change {
        cntr: OwnedUse<Cntr>,
        change: Change,
    },
}

impl Work {
    /// A transfer that was admitted. Its endpoint belongs to the domain of the triggering counter.
    /// Fails with `EBADF` if the endpoint is closed.
    pub(crate) fn transfer(endpoint: &Arc<Endpoint>, operation: Admitted) -> Result<Self> {
        Ok(Self::Transfer {
            operation,
            endpoint: OwnedUse::new(endpoint.clone())?,
        })
    }

    /// A change of `cntr`. Fails with `EBADF` if it is closed.
    fn change(cntr: &Arc<Cntr>, change: Change) -> Result<Self> {
        Ok(Self::Change {
            cntr: OwnedUse::new(cntr.clone())?,
            change,
        })
    }

    /// The steps that starting it takes, see [`queue`].
    fn steps(&self) -> usize {
        match self {
            Self::Transfer { operation, .. } => 1 + operation.len() / STEP_BYTES,
            Self::Change { .. } => 1,
        }
    }

    /// Starts it, as the executor of its domain. `steps` are [its steps](Self::steps). Works that
    /// it makes due are started later; the executor starts the returned one next. Sleeps with
    /// [`Post::Here`].
    #[inline(always)]
    fn start(self, post: Post, steps: usize) -> Option<Self> {
        match self {
            Self::Transfer {
                operation,
                endpoint,
            } => {
                start_transfer(operation, endpoint, post, steps);
                None
            }
            Self::Change { cntr, change } => {
                // Before the change is visible.
                let changed = cntr.end()?;
                change.apply(&changed)
            }
        }
    }
}

/// Starts a transfer of `endpoint`. Sleeps with [`Post::Here`].
#[inline(never)]
fn start_transfer(operation: Admitted, endpoint: OwnedUse<Endpoint>, post: Post, steps: usize) {
    // Before the operation completes. A close of the endpoint drops it from now on, as it does
    // other started operations.
    let Some(endpoint) = endpoint.end() else {
        return;
    };
    match post {
        Post::Here => {
            operation.start_here(&endpoint, steps.saturating_mul(STEP_BYTES));
        }
        Post::Workers => operation.start(),
    }
}

impl Change {
    /// Changes a counter of the domain whose executor the current task is. Returns the work that it
    /// starts next. Does not sleep.
    #[inline(always)]
    fn apply(self, cntr: &Cntr) -> Option<Work> {
        let after = match self {
            Self::Add(value) => cntr.add_for(value, Starter::Executor),
            // Its value was checked.
            Self::Set(value) => cntr.set_for(value, Starter::Executor).ok()?,
        };
        match after {
            AfterChange::Start(next) => Some(next),
            // The executor finds the others in the queue.
            AfterChange::Due(_) | AfterChange::Nothing => None,
        }
    }
}

/// The report of a deferred transfer, in addition to or in place of that of an operation.
pub(crate) struct Deferral {
    /// Its completion counter.
    cntr: Option<HeldUse<Cntr>>,
    /// It has KFI_COMPLETION: it completes as any operation, too.
    pub(super) report: bool,
    /// With `report`: the credit for its entry in the CQ, once it was posted.
    pub(super) credit: Option<Credit>,
}

impl Deferral {
    /// The report of a transfer to `cntr`. Fails with `EBADF` if it is closed.
    pub(crate) fn new(cntr: Option<&Arc<Cntr>>, report: bool) -> Result<Self> {
        Ok(Self {
            cntr: cntr.map(|cntr| HeldUse::new(cntr.clone())).transpose()?,
            report,
            credit: None,
        })
    }

    /// Takes the credit, and drops the rest. Does not sleep.
    pub(super) fn into_credit(mut self) -> Option<Credit> {
        self.credit.take()
    }

    /// Counts the completion, once. Does not sleep.
    pub(super) fn count(&mut self, success: bool) {
        let Some(counter) = self.take_cntr() else {
            return;
        };
        if success {
            counter.add(1);
        } else {
            counter.adderr(1);
        }
        // A worker drops the last reference.
        counter.put();
    }

    /// Takes the completion counter, and gives the use of it back.
    fn take_cntr(&mut self) -> Option<Arc<Cntr>> {
        self.cntr.take().map(HeldUse::end)
    }
}

impl Drop for Deferral {
    /// Does not sleep: a worker drops the last reference to the counter.
    fn drop(&mut self) {
        if let Some(counter) = self.take_cntr() {
            counter.put();
        }
    }
}

impl Cntr {
    /// Queues deferred work: a transfer. Returns its number for [`cancel_work`](Self::cancel_work).
    /// Works that are due start in this call, or a worker starts them.
    ///
    /// Fails with `ENOSPC` if [`limits::MAX_WORK`](kfi_core::limits::MAX_WORK) works wait in the
    /// domain; `ENOMEM`; `EBADF` if the counter is closed. Sleeps.
    pub(crate) fn queue_transfer(self: &Arc<Self>, threshold: u64, work: Work) -> Result<u64> {
        self.queue_transfer_with(threshold, work, |_| {})
    }

    /// [`queue_transfer`](Self::queue_transfer), which calls `note` with the number of the work
    /// before a task can start the work: see [`enter_work`](Self::enter_work).
    pub(crate) fn queue_transfer_with(
        self: &Arc<Self>,
        threshold: u64,
        work: Work,
        note: impl Fn(u64),
    ) -> Result<u64> {
        self.queue_work(Compared::Sum, threshold, work, note)
    }

    /// Queues deferred work: a change of `cntr`, which belongs to the same domain. As
    /// [`queue_transfer`](Self::queue_transfer); also fails with `EINVAL` for a value above the
    /// maximum of `cntr`.
    pub(crate) fn queue_change(
        self: &Arc<Self>,
        threshold: u64,
        cntr: &Arc<Cntr>,
        change: Change,
    ) -> Result<u64> {
        self.queue_change_with(threshold, cntr, change, |_| {})
    }

    /// [`queue_change`](Self::queue_change), which calls `note` as
    /// [`queue_transfer_with`](Self::queue_transfer_with) does.
    pub(crate) fn queue_change_with(
        self: &Arc<Self>,
        threshold: u64,
        cntr: &Arc<Cntr>,
        change: Change,
        note: impl Fn(u64),
    ) -> Result<u64> {
        if matches!(change, Change::Set(value) if value > cntr.max()) {
            return Err(EINVAL);
        }
        // Work that can be done at once takes no memory.
        if let Some(id) = self.change_now(threshold, cntr, change, &note) {
            return Ok(id);
        }
        let work = Work::change(cntr, change)?;
        self.queue_waiting(Compared::Sum, threshold, work, note)
    }

    /// Has a triggered operation wait. As [`queue_transfer`](Self::queue_transfer).
    pub(crate) fn trigger(self: &Arc<Self>, threshold: u64, work: Work) -> Result {
        self.queue_work(Compared::Success, threshold, work, |_| {})
            .map(drop)
    }

    /// Changes a counter at once, if the threshold is reached and no other work is due. Returns the
    /// number of the work.
    #[inline]
    fn change_now(
        self: &Arc<Self>,
        threshold: u64,
        cntr: &Arc<Cntr>,
        change: Change,
        note: impl FnOnce(u64),
    ) -> Option<u64> {
        match change {
            Change::Add(n) if cntr.max() == u64::MAX => self.add_now(threshold, cntr, n, note),
            _ => {
                let number = self.begin_now(Compared::Sum, threshold, note)?;
                self.domain().work().go_on(change.apply(cntr));
                Some(number)
            }
        }
    }

    /// Starts a work at once, if it is due and no other work is; otherwise it waits.
    fn queue_work(
        self: &Arc<Self>,
        kind: Compared,
        threshold: u64,
        work: Work,
        note: impl Fn(u64),
    ) -> Result<u64> {
        if let Some(number) = self.begin_now(kind, threshold, &note) {
            let steps = work.steps();
            let next = work.start(Post::Here, steps);
            self.domain().work().go_on(next);
            return Ok(number);
        }
        self.queue_waiting(kind, threshold, work, note)
    }

    /// Has a work wait, and starts it with others if it is due.
    fn queue_waiting(
        self: &Arc<Self>,
        kind: Compared,
        threshold: u64,
        work: Work,
        note: impl Fn(u64),
    ) -> Result<u64> {
        let queue = self.domain().work();
        // The counter stays open: a closed one must not be listed.
        let _using = UseGuard::new(&**self)?;
        self.list_for_work()?;
        queue.enter()?;
        let key = self.enter_work(kind, threshold, work, note);
        if key.is_err() {
            queue.leave(1);
        }
        Ok(key?.ticket())
    }

    /// Cancels deferred work that waits. Nothing reports it. Fails with `ENOENT` if there is none
    /// with this threshold and number. Sleeps.
    pub(crate) fn cancel_work(&self, threshold: u64, number: u64) -> Result {
        let key = Key::new(threshold, number);
        let work = self.take_work(Compared::Sum, &key).ok_or(ENOENT)?;
        self.domain().work().leave(1);
        drop(work);
        Ok(())
    }

    /// Cancels all deferred work that waits for the counter. Returns its number. Sleeps.
    pub(crate) fn flush_work(&self) -> u32 {
        self.drop_works(Compared::Sum)
    }

    /// Drops the works of a kind that wait. Sleeps.
    pub(super) fn drop_works(&self, kind: Compared) -> u32 {
        let (mut works, count) = self.take_works(kind);
        while let Some((node, work)) = works.pop_first() {
            drop(node);
            drop(work);
            cond_resched();
        }
        if count != 0 {
            self.domain().work().leave(count);
        }
        count
    }
}

impl Domain {
    /// Cancels all deferred work of the domain that waits. Returns its number. Sleeps.
    pub(crate) fn flush_work(&self) -> u64 {
        let mut flushed = 0u64;
        self.each_counter(|cntr| flushed += u64::from(cntr.flush_work()));
        flushed
    }

    /// Cancels a triggered operation of `endpoint` with `context`: it completes with ECANCELED.
    /// Returns `false` if none waits. Sleeps.
    pub(super) fn cancel_triggered(&self, endpoint: &Endpoint, context: u64) -> bool {
        if self.work().len() == 0 {
            return false;
        }
        let is_it = |work: &Work| match work {
            Work::Transfer { operation, .. } => operation.is(endpoint, context),
            Work::Change { .. } => false,
        };
        let mut found = None;
        self.each_counter(|cntr| {
            if found.is_none() {
                found = cntr.find_triggered(is_it);
            }
        });
        let Some(Work::Transfer { operation, .. }) = found else {
            return false;
        };
        self.work().leave(1);
        operation.cancel();
        true
    }

    /// Drops all works of the domain, because its file is released. No call of the owner runs.
    /// Waits for no task. Sleeps.
    pub(crate) fn end_work(&self) {
        self.work().close();
        self.each_counter(|cntr| {
            for kind in Compared::ALL {
                cntr.drop_works(kind);
            }
        });
    }

    /// Calls `visit` with each counter for which a work has waited. Sleeps if `visit` does.
    fn each_counter(&self, mut visit: impl FnMut(&Arc<Cntr>)) {
        let mut from = 0;
        while let Some((id, cntr)) = self.work().counter_from(from) {
            visit(&cntr);
            let Some(next) = id.checked_add(1) else {
                break;
            };
            from = next;
            cond_resched();
        }
    }
}

impl Cntr {
    /// Takes a triggered operation out for which `is_it` holds.
    fn find_triggered(&self, is_it: impl Fn(&Work) -> bool) -> Option<Work> {
        let mut from = Key::new(0, 0);
        loop {
            from = match self.search_works(from, SEARCHED, &is_it)? {
                Found::NotBefore(key) => key,
                Found::At(key) => match self.take_work(Compared::Success, &key) {
                    Some(work) => return Some(work),
                    // It has become due meanwhile.
                    None => key,
                },
            };
            cond_resched();
        }
    }
}
