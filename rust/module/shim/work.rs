// SPDX-License-Identifier: GPL-2.0

//! The module's workqueues.
//!
//! In [`queue`] what arrives from the wire is dealt with, and what must not be dropped at once is
//! dropped. Its items wait for nobody, because the memory for more threads may be what they give back.
//! In [`slow_queue`] others are called, who may take their time, and may wait for items of the first.
//!
//! They are there as long as their owner, [`WorkQueues`], which the floor `net` keeps from its start
//! to its end. Items run in process context; one item never runs twice at once. Those of [`queue`] run
//! on the CPU that queued them, with the priority of ordinary tasks: see `kfabric_shim_workqueue_alloc`.

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

/// The address of the queue, or 0.
static QUEUE: Atomic<usize> = Atomic::new(0);

/// The address of the slow one, or 0.
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
            // Nobody waits for items of the system's queue when the module is unloaded.
            kernel::warn_on!(true);
            raw_system()
        }
        queue => queue as *mut bindings::workqueue_struct,
    }
}

fn raw_system() -> *mut bindings::workqueue_struct {
    // SAFETY: Reads a variable of the kernel that never changes after boot.
    unsafe { bindings::system_dfl_wq }
}

/// The system's queue for items that run on any CPU. Who queues there [flushes](flush) the item before
/// the module is unloaded. Any context.
pub(super) fn system() -> &'static Queue {
    // SAFETY: The queue is there as long as the kernel runs.
    unsafe { Queue::from_raw(raw_system()) }
}

/// The queue. Any context.
pub(crate) fn queue() -> &'static Queue {
    // SAFETY: Either queue is there as long as somebody has work, and so calls this.
    unsafe { Queue::from_raw(raw_queue()) }
}

/// The queue for items that call others or wait for items of [`queue`]. Any context.
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

/// Keeps the queues. Dropping it waits until all is done that was ever queued, also what waits for a
/// grace period; nobody may queue anything any more but the items themselves.
pub(crate) struct WorkQueues {
    // Dropped in this order: the first one's items queue to the second.
    _slow: WorkQueue,
    _last: Barrier,
    _queue: WorkQueue,
}

/// Waits, when it is dropped, for what waits for a grace period: then that is in the queue.
struct Barrier;

impl Drop for Barrier {
    fn drop(&mut self) {
        rcu::rcu_barrier();
    }
}

impl WorkQueues {
    /// Makes the queues. `ENOMEM`. To be called once at a time. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        let queue = WorkQueue::new(c"kfabric", true, &QUEUE)?;
        Ok(Self {
            _slow: WorkQueue::new(c"kfabric_slow", false, &SLOW)?,
            _last: Barrier,
            _queue: queue,
        })
    }
}
