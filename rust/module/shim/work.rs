// SPDX-License-Identifier: GPL-2.0

//! The module's workqueue: what arrives from the wire is dealt with there, and what must not be
//! dropped at once is dropped there.
//!
//! It is there as long as its owner, a [`WorkQueue`], which the floor `net` keeps from its start to
//! its end. Items run in process context on any CPU; one item never runs twice at once.

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

/// The queue, for calls of C. Any context.
///
/// The system's if there is no [`WorkQueue`], which does not happen while somebody has work.
pub(super) fn raw_queue() -> *mut bindings::workqueue_struct {
    match QUEUE.load(Acquire) {
        // SAFETY: Reads a variable of the kernel that never changes after boot.
        0 => unsafe { bindings::system_dfl_wq },
        queue => queue as *mut bindings::workqueue_struct,
    }
}

/// The queue. Any context.
pub(crate) fn queue() -> &'static Queue {
    // SAFETY: Either queue is there as long as somebody has work, and so calls this.
    unsafe { Queue::from_raw(raw_queue()) }
}

/// Waits until a work item is neither due nor running. Not from the item itself. Sleeps.
pub(crate) fn flush<T, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The item is initialised, as every `Work` is, and lives during the call.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// Keeps the queue. Dropping it waits until all is done that was ever queued, also what waits for
/// a grace period; nobody may queue anything any more.
///
/// # Invariants
///
/// The pointer is that of a workqueue that this value owns.
pub(crate) struct WorkQueue(NonNull<bindings::workqueue_struct>, PhantomData<Queue>);

// SAFETY: A workqueue may be destroyed by any task.
unsafe impl Send for WorkQueue {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Makes the queue. `ENOMEM`. To be called once at a time. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The name is static; process context.
        let queue = unsafe { shim::kfabric_shim_workqueue_alloc(c"kfabric".as_char_ptr()) };
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        // Release pairs with the acquire in `raw_queue`.
        QUEUE.store(queue.as_ptr() as usize, Release);
        // INVARIANT: Made just now.
        Ok(Self(queue, PhantomData))
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // What waits for a grace period gets into the queue.
        rcu::rcu_barrier();
        QUEUE.store(0, Release);
        // SAFETY: By the type invariant it is ours. Runs all that is queued.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
