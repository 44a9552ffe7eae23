// SPDX-License-Identifier: GPL-2.0

//! Handler: the function of a kernel consumer that is told that a queue has something to read.
//!
//! kfi_cq_open() and kfi_eq_open() take such a function. It is armed and called as follows:
//!
//! ```text
//!                 something arrives
//!        armed ------------------------> disarmed, and a call is due
//!          ^                                |
//!          '--------------------------------'
//!             a read finds the queue empty
//! ```
//!
//! It is armed when the queue is opened. A read of entries finds the queue empty if it returns
//! fewer than its caller asked for and nothing is left; a read of error entries does not arm. So a
//! consumer that reads until nothing is left misses nothing, in its function or elsewhere. A call
//! may find the queue empty, because another reader was faster.
//!
//! A [`ConsumerSide`] is also what makes a read of an empty queue fast: while the handler is armed,
//! the queue is empty, and a reader needs no lock to see that. A queue has one without a function
//! too.
//!
//! # Context of the call
//!
//! A worker calls the function ([`call_handler`](crate::shim::work::call_handler)), in process
//! context, with no lock held. The function may sleep, read, and close other objects. The calls of
//! one handler do not overlap, because one work item never runs twice at the same time. With an
//! affinity, they are on that CPU while it is online.
//!
//! # End
//!
//! [`ConsumerSide::stop`] waits until a call that has begun is over; no call begins afterwards. A
//! handler cannot wait for itself, so closing its own queue fails with `EBUSY`. Nothing detects two
//! handlers that close each other's queue, and so wait for each other; the headers forbid that.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/handler.rs"]
mod kunit;

use kernel::{
    sync::atomic::{
        Acquire,
        Atomic,
        AtomicFlag,
        Full,
        Relaxed, //
    },
    task::Task,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use kfi_core::word::Word;

use crate::{
    provider::prelude::*,
    shim::{
        cpu::Cpu,
        word::AtomicWord,
        work, //
    }, //
};

/// What a queue has for the kernel consumer that reads it.
pub(crate) struct ConsumerSide {
    /// 1: a read has found the queue empty, and nothing has arrived since. Otherwise 0. Changed
    /// under the lock of the queue. A word, because reading a flag is a call.
    found_empty: AtomicWord,
    handler: Option<Arc<Handler>>,
}

impl ConsumerSide {
    /// The side of a queue that is opened, so empty, with a handler or without.
    pub(crate) fn new(handler: Option<Arc<Handler>>) -> Self {
        Self {
            found_empty: AtomicWord::new(1),
            handler,
        }
    }

    /// Whether a read has found the queue empty and nothing has arrived since. Any context, without
    /// the lock of the queue.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: what the caller reads afterwards is not older than this.
        self.found_empty.load_acquire() != 0
    }

    /// Notes that a read finds the queue empty, which arms the handler. The caller holds the lock
    /// of the queue.
    #[inline]
    pub(in crate::provider) fn finds_empty(&self) {
        self.found_empty.store_release(1);
    }

    /// Notes that something arrives, which makes a call due if the handler is armed. The caller
    /// holds the lock of the queue.
    #[inline]
    pub(in crate::provider) fn arrives(&self) {
        if self.found_empty.load() != 0 {
            self.found_empty.store_release(0);
            if let Some(handler) = &self.handler {
                handler.fire();
            }
        }
    }

    /// Fails with `EBUSY` in a call of the handler.
    pub(crate) fn check_close(&self) -> Result {
        match &self.handler {
            Some(handler) if handler.is_current() => Err(EBUSY),
            _ => Ok(()),
        }
    }

    /// Ends the calls of the handler, and waits for one that has begun. Not in such a call. Sleeps.
    pub(crate) fn stop(&self) {
        if let Some(handler) = &self.handler {
            handler.stop();
        }
    }
}

/// A function of a consumer.
type Function = dyn Fn() + Send + Sync;

/// The function of a consumer, and the work item that calls it.
#[pin_data]
pub(crate) struct Handler {
    function: KBox<Function>,
    cpu: Option<Cpu>,
    /// Set once. No call begins afterwards.
    stopped: AtomicFlag,
    /// The address of the worker that runs the call, or 0.
    running: Atomic<usize>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Handler { self.work }
}

/// The address of the current task, to be compared only.
fn current_task() -> usize {
    let task: &Task = current!();
    core::ptr::from_ref(task).addr()
}

impl Handler {
    /// Makes a handler that calls `function`, on `cpu` or on that of the arrival. Fails with
    /// `ENOMEM`. Sleeps.
    pub(crate) fn new(
        cpu: Option<Cpu>,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let function: KBox<Function> = KBox::new(function, GFP_KERNEL_ACCOUNT)?;
        Arc::pin_init(
            pin_init!(Self {
                function,
                cpu,
                stopped: AtomicFlag::new(false),
                running: Atomic::new(0),
                work <- new_work!("kfabric::Handler"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Makes a call due. Any context but NMIs.
    #[cold]
    fn fire(self: &Arc<Self>) {
        work::call_handler(self.clone(), self.cpu);
    }

    fn is_current(&self) -> bool {
        self.running.load(Relaxed) == current_task()
    }

    /// Does not wait for a call that has not begun: it might need a worker that runs the caller.
    fn stop(self: &Arc<Self>) {
        // A run that begins after this is ordered after it by the lock of the workqueue, so it sees
        // the flag.
        self.stopped.xchg(true, Full);
        work::cancel(self);
    }
}

impl WorkItem for Handler {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.stopped.load(Acquire) {
            return;
        }
        this.running.store(current_task(), Relaxed);
        (this.function)();
        this.running.store(0, Relaxed);
    }
}
