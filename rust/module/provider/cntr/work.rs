// SPDX-License-Identifier: GPL-2.0

//! The work that waits for a counter: entering and leaving under the lock of the waiters.
//!
//! [`provider::work`](crate::provider::work) has the rules, and the callers of these functions.

use kernel::{
    rbtree::RBTreeNodeReservation,
    sync::atomic::Full,
    workqueue::{
        impl_has_work,
        WorkItem, //
    }, //
};

use kfi_core::{
    cntr::Compared,
    due::Key, //
};

use super::Cntr;
use crate::{
    provider::{
        prelude::*,
        work::{
            AfterChange,
            Found,
            Means,
            Missing,
            Starter,
            Work,
            WorkList, //
        }, //
    },
    shim::work, //
};

impl Cntr {
    /// Makes the current task the executor of the domain's works, if `threshold` is reached and no
    /// work is due before one with this threshold. Returns the number of the work, which the caller
    /// starts. `note` is called as that of [`enter_work`](Self::enter_work). Process context, does
    /// not sleep.
    pub(in crate::provider) fn begin_now(
        &self,
        kind: Compared,
        threshold: u64,
        note: impl FnOnce(u64),
    ) -> Option<u64> {
        let counter = &self.counter;
        let mut line = counter.line();
        let reached = line.is_reached(&counter.values, kind, threshold) && !counter.is_closed();
        let after = line.works_mut().map_mut().after_change(Starter::Worker);
        let begins = reached && self.domain.work().begin_idle();
        let number = begins.then(|| line.works_mut().pass());
        if let Some(number) = number {
            note(number);
        }
        drop(line);
        // An adder is about to call it, too.
        after.wake();
        number
    }

    /// Adds to `target` as a work of this counter that is due at once, under the conditions of
    /// [`begin_now`](Self::begin_now), and starts what that makes due. Returns the number of the
    /// work, with which it has called `note` before it added. `target` has no maximum of its own.
    /// Process context, in a call of the owner. Sleeps.
    ///
    /// The value changes under the lock of this counter's waiters. So no later work of it can be
    /// started before, and the current task need not be the executor.
    pub(in crate::provider) fn add_now(
        &self,
        threshold: u64,
        target: &Cntr,
        n: u64,
        note: impl FnOnce(u64),
    ) -> Option<u64> {
        let counter = &self.counter;
        let mut line = counter.line();
        let reached =
            line.is_reached(&counter.values, Compared::Sum, threshold) && !counter.is_closed();
        let after = line.works_mut().map_mut().after_change(Starter::Worker);
        let added = (reached && self.domain.work().is_idle()).then(|| {
            let number = line.works_mut().pass();
            note(number);
            (number, target.counter.values.add(n))
        });
        drop(line);
        after.wake();
        let (number, crossed) = added?;
        target.signal_add(n);
        if let Some(crossed) = crossed {
            target.start_here(target.counter.fire_for(crossed, Starter::Call));
        }
        Some(number)
    }

    /// Starts what a change by [`Starter::Call`] has made due. In a call of the owner. Sleeps.
    #[inline]
    pub(super) fn start_here(&self, after: AfterChange) {
        match after {
            AfterChange::Nothing => {}
            AfterChange::Due(queue) => queue.run_here(),
            AfterChange::Start(next) => self.domain.work().go_on(Some(next)),
        }
    }

    /// Enters a work, and starts it with others if it is due. Returns its key.
    ///
    /// `note` is called with the number of the work before a task can start it. That is under the
    /// lock of the waiters, so `note` does not sleep. It is called again for another number; the
    /// last one counts.
    ///
    /// Fails with `EBADF` if the counter is closed, also after a call of `note`. Sleeps.
    pub(in crate::provider) fn enter_work(
        self: &Arc<Self>,
        kind: Compared,
        threshold: u64,
        work: Work,
        note: impl Fn(u64),
    ) -> Result<Key> {
        let (counter, queue) = (&self.counter, self.domain.work());
        let (mut work, mut means, mut moved) = (work, Means::default(), false);
        let entered = loop {
            let mut line = counter.line();
            if counter.is_closed() {
                break Err(EBADF);
            }
            let node = match line.works_mut().map_mut().begin(kind, queue, &mut means) {
                Ok(node) => node,
                Err(missing) => {
                    drop(line);
                    match self.bring(missing, &mut means) {
                        Ok(()) => continue,
                        Err(error) => break Err(error),
                    }
                }
            };
            note(line.works().next_ticket());
            match line.queue(&counter.values, kind, threshold, (node, work)) {
                Ok((key, _)) => {
                    let after = line.works_mut().map_mut().after_change(Starter::Call);
                    break Ok((key, after));
                }
                Err((node, back)) => {
                    means.node = node;
                    work = back;
                }
            }
            // Works that were due before move to the queue first.
            line.release_rest(&counter.values);
            let after = line.works_mut().map_mut().after_change(Starter::Worker);
            drop(line);
            moved |= matches!(after, AfterChange::Due(_));
            cond_resched();
        };
        let key = entered.map(|(key, after)| {
            self.start_here(after);
            key
        });
        if moved {
            queue.run_here();
        }
        key
    }

    /// Brings what the counter does not have for a work. Fails with `EBADF` if it is closed,
    /// `ENOMEM`. Sleeps.
    fn bring(self: &Arc<Self>, missing: Missing, means: &mut Means) -> Result {
        match missing {
            Missing::Keeper => means.keeper = Some(OwnedUse::new(self.clone())?),
            Missing::Node => means.node = Some(self.domain.work().new_node()?),
        }
        Ok(())
    }

    /// Takes a work out that waits. Does not sleep.
    pub(in crate::provider) fn take_work(&self, kind: Compared, key: &Key) -> Option<Work> {
        let counter = &self.counter;
        let mut line = counter.line();
        let taken = line.cancel(&counter.values, kind, key);
        drop(line);
        // The node is freed here.
        taken.map(|(_node, work)| work)
    }

    /// Takes all works of a kind out, and their number. Does not sleep.
    pub(in crate::provider) fn take_works(&self, kind: Compared) -> (WorkList, u32) {
        let counter = &self.counter;
        let mut line = counter.line();
        let (works, count) = line.works_mut().map_mut().take_all(kind);
        line.taken(&counter.values, count);
        drop(line);
        (works, count)
    }

    /// Gives the use of the counter by its works back, if none waits. Does not sleep.
    pub(super) fn release_keeper(&self) {
        let keeper = self.counter.line().works_mut().map_mut().take_keeper();
        drop(keeper);
    }

    /// Makes more of its works due, after it has left some. Returns the next counter that has left
    /// some. Called by the executor. Does not sleep.
    pub(in crate::provider) fn release_rest(&self) -> Option<Arc<Self>> {
        let counter = &self.counter;
        let mut line = counter.line();
        // It enters the list again if it leaves more.
        let next = line.works_mut().map_mut().end_rest();
        line.release_rest(&counter.values);
        let after = line.works_mut().map_mut().after_change(Starter::Worker);
        drop(line);
        // The executor, which the current task is, finds what is due.
        drop(after);
        next
    }

    /// Searches some of the triggered operations. See
    /// [`WorkLists::find_triggered`](crate::provider::work::WorkLists::find_triggered). Does not
    /// sleep.
    pub(in crate::provider) fn search_works(
        &self,
        from: Key,
        most: usize,
        is_it: impl Fn(&Work) -> bool,
    ) -> Option<Found> {
        let line = self.counter.line();
        line.works().map().find_triggered(from, most, is_it)
    }

    /// A number that no other counter has.
    fn id(&self) -> u64 {
        let this: *const Self = self;
        // CAST: A usize is at most 64 bits.
        this.addr() as u64
    }

    /// Has the domain find the counter by its work. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider) fn list_for_work(self: &Arc<Self>) -> Result {
        if self.listed.load(Relaxed) {
            return Ok(());
        }
        let listing = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        self.domain.work().list(self.id(), self, listing);
        self.listed.store(true, Relaxed);
        Ok(())
    }

    /// Drops the works of a counter that was closed. Sleeps.
    pub(super) fn end_work(&self) {
        for kind in Compared::ALL {
            self.drop_works(kind);
        }
        // It keeps the memory of the counter.
        self.release_keeper();
        if self.listed.xchg(false, Full) {
            self.domain.work().unlist(self.id());
        }
    }

    /// Drops a reference where nothing may sleep. The worker drops the last one.
    pub(in crate::provider) fn put(self: Arc<Self>) {
        if let Some(last) = Arc::into_unique_or_drop(self) {
            // The queue takes it: an item that is queued already would have another reference.
            let _ = work::queue().enqueue(Arc::from(last));
        }
    }
}

impl_has_work! {
    impl HasWork<Self> for Cntr { self.last }
}

impl WorkItem for Cntr {
    type Pointer = Arc<Self>;

    fn run(_this: Arc<Self>) {}
}
