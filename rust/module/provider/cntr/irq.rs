// SPDX-License-Identifier: GPL-2.0

//! Adding to a counter where its lock must not be taken: in interrupts.
//!
//! The lock of a counter's waiters is taken in process context with interrupts enabled, so that
//! waking stays fast. An interrupt of the task that holds it would wait for it for ever. An
//! [`IrqAdder`] adds without the lock. If a threshold is reached, its work item takes the lock in
//! process context and releases the waiters: tasks, descriptors and callbacks. It also wakes the
//! wait queue of a kernel consumer, because the adder may hold the lock of a wait queue: it may be
//! a function that such a queue calls. The error value changes under the lock only, so in process
//! context.

use kernel::{
    sync::atomic::{
        AtomicFlag,
        Full,
        Release, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use kfi_core::cntr::{
    ThresholdReached,
    UnlockedAdd, //
};

use super::Cntr;
use crate::{
    provider::{
        prelude::*,
        wait::WaitObj, //
    },
    shim::work, //
};

/// Adds to a counter in any context. It refers to the counter and is not a use of it: an add to a
/// closed counter wakes no task.
#[pin_data]
pub(crate) struct IrqAdder {
    cntr: Arc<Cntr>,
    /// Whether an add has wrapped whose waiters were not released yet.
    wrapped: AtomicFlag,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for IrqAdder { self.work }
}

impl IrqAdder {
    /// Makes an adder of `cntr`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(cntr: &Arc<Cntr>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                cntr: cntr.clone(),
                wrapped: AtomicFlag::new(false),
                work <- new_work!("kfabric::IrqAdder"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds to the success value, which has changed when this returns. If `may_lock` says that the
    /// caller may take the lock of the counter, waiters are released before this returns too;
    /// otherwise soon after, and those of several adds may be released together. `may_lock` is
    /// called only if there is something to do. Any context but NMIs; the caller's reference is not
    /// the last one.
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
        // An add of 0 changes nothing.
        let signals = match &self.cntr.wait {
            WaitObj::Head(head) => n != 0 && head.has_sleepers(),
            WaitObj::Set(_) => n != 0,
            _ => false,
        };
        if reached.is_some() || signals {
            self.defer(reached.is_some_and(|reached| reached.has_wrapped()));
        }
    }

    #[cold]
    fn defer(self: &Arc<Self>, wrapped: bool) {
        if wrapped {
            self.wrapped.store(true, Release);
        }
        // Not queued if it is already. The run that follows sees the value and the flag: queueing
        // is fully ordered after both, and beginning to run before reading them.
        let _ = work::queue().enqueue(self.clone());
    }
}

impl WorkItem for IrqAdder {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let wrapped = this.wrapped.xchg(false, Full);
        let counter = &this.cntr.counter;
        counter.fire(ThresholdReached::of_unlocked(wrapped));
        this.cntr.wait.signal();
    }
}
