// SPDX-License-Identifier: GPL-2.0

//! A wait queue for kernel consumers, which KFI_GETWAIT returns.
//!
//! Each change of the object wakes all of the queue. The sleepers check the condition that they
//! wait for themselves, as `wait_event()` does. Sleepers of calls and descriptors are not in this
//! queue, so only a consumer that uses it is woken for changes that it does not wait for.

use super::super::prelude::*;

/// A wait queue that every change of an object wakes.
#[pin_data]
pub(crate) struct WaitHead {
    #[pin]
    queue: WaitQueue,
}

impl WaitHead {
    /// Makes a queue. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_wait_queue!("WaitHead::queue"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// Whether [`wake`](Self::wake) has a task to wake. The change was made before. Any context.
    #[inline]
    pub(in crate::provider) fn has_sleepers(&self) -> bool {
        // A sleeper enters the queue before it checks its condition. So either it saw the change,
        // or this check finds it.
        self.queue.has_sleepers()
    }

    /// Wakes all sleepers. The change was made before. Any context, with any spin lock held but
    /// that of a wait queue.
    #[inline]
    pub(in crate::provider) fn wake(&self) {
        if self.has_sleepers() {
            self.queue.wake_all();
        }
    }
}
