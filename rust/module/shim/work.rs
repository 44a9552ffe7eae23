// SPDX-License-Identifier: GPL-2.0

//! The module's workqueues.
//!
//! | queue | items | may wait for |
//! |---|---|---|
//! | [`queue`] | received packets; drops after a grace period | nothing: they free memory |
//! | [`control_queue`] | messages, timeouts and link removals of connection management | memory |
//! | [`slow_queue`] | calls of consumers and listeners | anything, also items of the other two |
//!
//! The queues exist as long as their owner, [`WorkQueues`], which `net` keeps from its start to its
//! end. Items run in process context; one item never runs twice at once. Those of [`queue`] run on
//! the CPU that queued them, with the priority of ordinary tasks: see
//! `kfabric_shim_workqueue_alloc`.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/work.rs"]
mod kunit;

use crate::shim::bindings as shim;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        rcu, //
    },
    workqueue::{
        Queue,
        Work, //
    }, //
};

/// The address of [`queue`], or 0.
static QUEUE: Atomic<usize> = Atomic::new(0);

/// The address of [`control_queue`], or 0.
static CONTROL: Atomic<usize> = Atomic::new(0);

/// The address of [`slow_queue`], or 0.
static SLOW: Atomic<usize> = Atomic::new(0);

/// The queue, for calls of C. Any context.
///
/// The system's if there is no [`WorkQueues`], which does not happen while somebody has work.
pub(super) fn raw_queue() -> *mut bindings::workqueue_struct {
    raw(&QUEUE)
}

fn raw(place: &Atomic<usize>) -> *mut bindings::workqueue_struct {
    match place.load(Acquire) {
        0 => {
            // Unloading the module does not wait for items of the system's queue.
            kernel::warn_on!(true);
            // SAFETY: Reads a variable of the kernel that never changes after boot.
            unsafe { bindings::system_dfl_wq }
        }
        queue => queue as *mut bindings::workqueue_struct,
    }
}

/// The queue for packets, and for values that are dropped after a grace period. Any context.
pub(crate) fn queue() -> &'static Queue {
    // SAFETY: Each queue exists as long as any owner of a work item, which alone calls this.
    unsafe { Queue::from_raw(raw_queue()) }
}

/// The queue of connection management's own work items. Any context.
pub(crate) fn control_queue() -> &'static Queue {
    // SAFETY: As above.
    unsafe { Queue::from_raw(raw(&CONTROL)) }
}

/// The queue for items that call consumers, or wait for items of the other queues. Any context.
pub(crate) fn slow_queue() -> &'static Queue {
    // SAFETY: As above.
    unsafe { Queue::from_raw(raw(&SLOW)) }
}

/// Waits until a work item is neither due nor running. Not from the item itself, nor from an item of
/// [`queue`]. Sleeps.
pub(crate) fn flush<T, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The item is initialised, as every `Work` is, and lives during the call.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// A workqueue. Dropping it waits until all is done that was ever queued, also by its own items while
/// it waits; nobody else may queue anything any more.
///
/// # Invariants
///
/// The pointer is that of a workqueue that this value owns, and whose address stands at `place`.
struct WorkQueue {
    queue: NonNull<bindings::workqueue_struct>,
    place: &'static Atomic<usize>,
    _queue: PhantomData<Queue>,
}

// SAFETY: A workqueue may be destroyed by any task.
unsafe impl Send for WorkQueue {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    fn new(name: &'static CStr, packets: bool, place: &'static Atomic<usize>) -> Result<Self> {
        // SAFETY: The name is static; process context.
        let queue = unsafe { shim::kfabric_shim_workqueue_alloc(name.as_char_ptr(), packets) };
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        // Release pairs with the acquire in `raw`.
        place.store(queue.as_ptr() as usize, Release);
        // INVARIANT: Made just now.
        Ok(Self {
            queue,
            place,
            _queue: PhantomData,
        })
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // Before the place is cleared: what its items queue must come here, and not to a queue for
        // which nobody waits.
        // SAFETY: By the type invariant it is ours. Runs all that is queued.
        unsafe { bindings::drain_workqueue(self.queue.as_ptr()) };
        self.place.store(0, Release);
        // SAFETY: As above; nobody finds it any more.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) };
    }
}

/// When it is dropped, waits until closed sockets receive no packet any more, and then until the
/// items that are in the queue at that time have run.
struct Flush(&'static Atomic<usize>);

impl Drop for Flush {
    fn drop(&mut self) {
        rcu::synchronize_rcu();
        // SAFETY: The queue exists: the owner drops this value before the queue.
        unsafe { shim::kfabric_shim_workqueue_flush(raw(self.0)) };
    }
}

/// When it is dropped, waits for the grace periods of `queue_rcu_work()`: after that the items are
/// in [`queue`].
struct Barrier;

impl Drop for Barrier {
    fn drop(&mut self) {
        rcu::rcu_barrier();
    }
}

/// Owns the queues. A drop waits until all items have run, also those that wait for a grace period.
/// Only items themselves may queue items then.
///
/// A value that is dropped after a grace period may queue another one for a grace period: the last
/// QP or link of a namespace queues the sockets. So the drop waits for two rounds of grace periods.
pub(crate) struct WorkQueues {
    // Dropped in this order. A service of connection management ends in the control queue, which
    // queues the closing of QP 1 to the slow queue. When QP 1 is closed, packets do not wake the
    // service.
    _ended: Flush,
    _slow: WorkQueue,
    _control: WorkQueue,
    _first: (Barrier, Flush),
    _second: Barrier,
    _queue: WorkQueue,
}

impl WorkQueues {
    /// Makes the queues. `ENOMEM`. To be called once at a time. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        let queue = WorkQueue::new(c"kfabric", true, &QUEUE)?;
        let control = WorkQueue::new(c"kfabric_cm", false, &CONTROL)?;
        Ok(Self {
            _ended: Flush(&CONTROL),
            _slow: WorkQueue::new(c"kfabric_slow", false, &SLOW)?,
            _control: control,
            _first: (Barrier, Flush(&QUEUE)),
            _second: Barrier,
            _queue: queue,
        })
    }
}
