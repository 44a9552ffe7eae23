// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_work`: destroying a workqueue while its items queue themselves again.

use super::{
    flush,
    impl_work,
    queue,
    raw,
    Place,
    WorkQueue, //
};
use crate::{
    kunit::helpers::a_while,
    shim::bindings as shim, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    workqueue::{
        new_work,
        Queue,
        Work, //
    }, //
};

/// How often an item runs: less than the number of rounds after which the kernel reports that
/// draining does not end.
const RUNS: u32 = 5;

/// The address of the test's queue.
static ADDRESS: Atomic<usize> = Atomic::new(0);

/// An item that queues itself to the queue at [`ADDRESS`] until it has run [`RUNS`] times.
#[pin_data]
struct Again {
    runs: Atomic<u32>,
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for Again { self.work, run: Self::run }
}

impl Again {
    fn run(self: &Arc<Self>) {
        a_while();
        if self.runs.fetch_add(1, Full) + 1 < RUNS {
            self.queue();
        }
    }

    fn queue(self: &Arc<Self>) {
        // SAFETY: The queue at `ADDRESS` exists until its items have run.
        let queue = unsafe { Queue::from_raw(raw(&ADDRESS)) };
        let _ = queue.enqueue(self.clone());
    }
}

/// An item that records the nice value of its worker.
#[pin_data]
struct Nice {
    value: Atomic<i32>,
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for Nice { self.work, run: Self::run }
}

impl Nice {
    fn run(self: &Arc<Self>) {
        // SAFETY: The call reads the current task.
        self.value.xchg(unsafe { shim::kfabric_kunit_nice() }, Full);
    }
}

#[kunit_tests(kfabric_work)]
mod tests {
    use super::*;

    #[test]
    fn packet_workers_have_normal_priority() -> Result {
        let nice = Arc::pin_init(
            pin_init!(Nice {
                value: Atomic::new(i32::MIN),
                work <- new_work!("kfabric::Nice"),
            }),
            GFP_KERNEL,
        )?;
        let _ = queue().enqueue(nice.clone());
        flush(&nice.work);
        ensure_eq!(nice.value.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn requeued_items_finish_before_the_queue_is_freed() -> Result {
        let queue = WorkQueue::new(c"kfi-test", Place::Unbound, &ADDRESS)?;
        let again = Arc::pin_init(
            pin_init!(Again {
                runs: Atomic::new(0),
                work <- new_work!("kfabric::Again"),
            }),
            GFP_KERNEL,
        )?;
        again.queue();
        drop(queue);
        // Every run of the item was on this queue, and the drop waited for it.
        ensure_eq!(again.runs.load(Acquire), RUNS);
        ensure_eq!(ADDRESS.load(Acquire), 0);
        Ok(())
    }
}
