// SPDX-License-Identifier: GPL-2.0

//! Changing a counter where the lock of its waiters must not be taken: in interrupts.
//!
//! The lock of a counter's waiters is taken in process context with interrupts enabled, so that
//! waking stays fast. An interrupt of the task that holds it would wait for it for ever. An
//! [`IrqChanger`] changes the values without that lock: adds without any, and the other changes
//! under the lock of the changes, which is held for a few instructions with interrupts disabled. If
//! a threshold may have been reached, the work item of the [`IrqChanger`] takes the lock of the
//! waiters in process context and releases the waiters: tasks, descriptors, callbacks and works. It
//! also wakes the wait queue of a kernel consumer, because the caller may hold the lock of a wait
//! queue: it may be a function that such a queue calls.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cntr_irq.rs"]
mod kunit;

use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work,
    WorkItem, //
};

use kfi_core::cntr::{
    ThresholdReached,
    UnlockedAdd, //
};

use super::{
    counter::Counter,
    Cntr, //
};
use crate::{
    provider::{
        prelude::*,
        wait::WaitObj, //
    },
    shim::{
        reclaim::OwnerKind,
        work, //
    },
};

impl Counter {
    /// Wakes the waiters that are due after adds and changes without the lock of the waiters, and
    /// has the worker start the work that is due.
    fn fire_unlocked(&self) {
        drop(self.line());
        self.fire(ThresholdReached::of_unlocked());
    }

    /// Ends an add without the lock of the waiters, which has reached a threshold.
    /// [`fire_unlocked`](Self::fire_unlocked) must follow. Any context but NMIs.
    fn pass_unlocked(&self, crossed: &ThresholdReached) {
        if crossed.is_change() {
            self.changes.lock().pass(&self.values, crossed);
        }
    }

    /// [`set`](Self::set) without the lock of the waiters.
    /// [`fire_unlocked`](Self::fire_unlocked) must follow. Any context but hard interrupts and
    /// NMIs.
    fn set_unlocked(&self, value: u64) -> Result {
        let set = self.changes.lock().set(&self.values, value);
        set.map_err(to_error)
    }

    /// [`adderr`](Self::adderr) without the lock of the waiters.
    /// [`fire_unlocked`](Self::fire_unlocked) must follow a change. Context as for a set.
    fn adderr_unlocked(&self, n: u64) -> bool {
        self.changes.lock().add_err(&self.values, n)
    }

    /// [`seterr`](Self::seterr) without the lock of the waiters.
    /// [`fire_unlocked`](Self::fire_unlocked) must follow a change. Context as for a set.
    fn seterr_unlocked(&self, value: u64) -> Result<bool> {
        let set = self.changes.lock().set_err(&self.values, value);
        set.map_err(to_error)
    }
}

/// Changes a counter: adds in any context but NMIs, other changes in any but hard interrupts and
/// NMIs. It refers to the counter and is not a use of it: a change of a closed counter wakes no
/// task.
///
/// A value has changed when a call returns. `may_lock` says whether the caller may take the lock of
/// the waiters. Then they are released before the call returns, too. Otherwise the worker releases
/// them soon after, and those of several changes together.
#[pin_data]
pub(crate) struct IrqChanger {
    cntr: Arc<Cntr>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for IrqChanger { self.work }
}

impl IrqChanger {
    /// Makes a changer of `cntr`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(cntr: &Arc<Cntr>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                cntr: cntr.clone(),
                work <- new_work!("kfabric::IrqChanger"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds to the success value. `may_lock` is called only if there is something to do. The
    /// caller's reference is not the last one, here and below.
    #[inline]
    pub(crate) fn add(self: &Arc<Self>, n: u64, may_lock: fn() -> bool) {
        let begun = self.cntr.counter.values.begin_unlocked(n);
        if begun != UnlockedAdd::Below || self.cntr.wait.is_signalled() {
            self.finish(n, begun, may_lock);
        }
    }

    /// Ends an add: releases the waiters that it has reached, and signals the wait object. One call
    /// at the end of the caller, so that an add that reaches nothing saves no registers.
    #[inline(never)]
    fn finish(self: &Arc<Self>, n: u64, begun: UnlockedAdd, may_lock: fn() -> bool) {
        let reached = self.cntr.counter.values.finish_unlocked(n, begun);
        if reached.is_none() && !self.cntr.wait.is_signalled() {
            return;
        }
        let may_lock = may_lock();
        if may_lock {
            if let Some(reached) = reached {
                self.cntr.counter.fire(reached);
            }
            self.cntr.signal_add(n);
            return;
        }
        if let Some(reached) = &reached {
            self.cntr.counter.pass_unlocked(reached);
        }
        // An add of 0 changes nothing.
        let signals = match &self.cntr.wait {
            WaitObj::Head(head) => n != 0 && head.has_sleepers(),
            WaitObj::Set(_) => n != 0,
            _ => false,
        };
        if reached.is_some() || signals {
            self.defer();
        }
    }

    /// Sets the success value. Fails with `EINVAL` for a value above the maximum.
    pub(crate) fn set(self: &Arc<Self>, value: u64, may_lock: bool) -> Result {
        if may_lock {
            return self.cntr.set(value);
        }
        self.cntr.counter.set_unlocked(value)?;
        self.defer();
        Ok(())
    }

    /// Adds to the error value.
    pub(crate) fn adderr(self: &Arc<Self>, n: u64, may_lock: bool) {
        if may_lock {
            self.cntr.adderr(n);
        } else if self.cntr.counter.adderr_unlocked(n) {
            self.defer();
        }
    }

    /// Sets the error value. Fails with `EINVAL` for a value above the maximum.
    pub(crate) fn seterr(self: &Arc<Self>, value: u64, may_lock: bool) -> Result {
        if may_lock {
            return self.cntr.seterr(value);
        }
        if self.cntr.counter.seterr_unlocked(value)? {
            self.defer();
        }
        Ok(())
    }

    /// Has the worker release the waiters.
    #[cold]
    fn defer(self: &Arc<Self>) {
        // Not queued if it is already. The run that follows sees the change: queueing is fully
        // ordered after it, and beginning to run before taking the lock of the waiters. Only kernel
        // consumers change counters in interrupts. The item wakes waiters at once, as those for
        // packets do, so it shares their queue.
        let _ = work::packet_queue(OwnerKind::Consumer).enqueue(self.clone());
    }
}

impl WorkItem for IrqChanger {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.cntr.counter.fire_unlocked();
        this.cntr.wait.signal();
    }
}
