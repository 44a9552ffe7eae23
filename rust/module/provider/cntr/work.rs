// SPDX-License-Identifier: GPL-2.0

//! The work that waits for a counter: entering and leaving under the lock of the counter.
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
            Found,
            Node,
            Work,
            WorkList, //
        }, //
    },
    shim::work, //
};

impl Cntr {
    /// Makes the current task the executor of the domain's works, if `threshold` is reached and no
    /// work is due before one with this threshold. Returns the number of the work, which the caller
    /// starts. Process context, does not sleep.
    pub(in crate::provider) fn begin_now(&self, kind: Compared, threshold: u64) -> Option<u64> {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        let begins = line.is_reached(&counter.values, kind, threshold)
            && !counter.is_closed()
            && self.domain.work().begin_idle();
        let number = begins.then(|| line.works_mut().pass());
        let after = line.works_mut().map_mut().after_change();
        drop(line);
        if let Some(queue) = after.queue {
            // An adder is about to call it, too.
            queue.wake();
        }
        number
    }

    /// Enters a work, and starts it with others if it is due. Returns its key. Fails with `EBADF`
    /// if the counter is closed. Sleeps.
    pub(in crate::provider) fn enter_work(
        self: &Arc<Self>,
        kind: Compared,
        threshold: u64,
        slot: (Node, Work),
    ) -> Result<Key> {
        let counter = &self.counter;
        let (mut slot, mut run) = (slot, None);
        let key = loop {
            // A turn that only moves works may leave none, and gives its use back.
            let mut keeper = match UseRef::new(self.clone()) {
                Ok(using) => Some(using),
                Err(error) => break Err(error),
            };
            let mut line = counter.line.lock();
            if counter.is_closed() {
                break Err(EBADF);
            }
            line.works_mut()
                .map_mut()
                .begin(self.domain.work(), &mut keeper);
            let queued = line.queue(&counter.values, kind, threshold, slot);
            if queued.is_err() {
                line.release_rest(&counter.values);
            }
            let after = line.works_mut().map_mut().after_change();
            drop(line);
            run = after.queue.or(run);
            match queued {
                Ok((key, _)) => break Ok(key),
                Err(back) => slot = back,
            }
            cond_resched();
        };
        if let Some(queue) = run {
            queue.run_here();
        }
        key
    }

    /// Takes a work out that waits. Does not sleep.
    pub(in crate::provider) fn take_work(&self, kind: Compared, key: &Key) -> Option<Work> {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        let taken = line.cancel(&counter.values, kind, key);
        let _after = line.works_mut().map_mut().after_change();
        drop(line);
        // The node is freed here.
        taken.map(|(_node, work)| work)
    }

    /// Takes all works of a kind out, and their number. Does not sleep.
    pub(in crate::provider) fn take_works(&self, kind: Compared) -> (WorkList, u32) {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        let (works, count) = line.works_mut().map_mut().take_all(kind);
        line.taken(&counter.values, count);
        let _after = line.works_mut().map_mut().after_change();
        drop(line);
        (works, count)
    }

    /// Makes more of its works due, after it has left some. Called by the executor. Does not sleep.
    pub(in crate::provider) fn release_rest(&self) {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        line.release_rest(&counter.values);
        // The executor finds what is due.
        let _after = line.works_mut().map_mut().after_change();
        drop(line);
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
        let line = self.counter.line.lock();
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
