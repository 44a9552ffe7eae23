// SPDX-License-Identifier: GPL-2.0

//! Tests of deferred work where only a kernel can make them: adds in interrupts and under locks, an
//! executor that stands still, the end of a domain, and the size of a work.

use kernel::prelude::*;

use kernel::sync::Arc;

use kfi_core::{
    cntr::BATCH,
    enums, //
};

use super::{
    map::Node,
    Change, //
};
use crate::{
    kunit::{
        contexts::in_softirq,
        fixture::{
            eventually,
            TestDomain, //
        }, //
    },
    provider::{
        cntr::{
            irq::IrqChanger,
            Cntr, //
        },
        object::{
            close,
            force_close, //
        },
        object_list::StatsSource,
        prelude::*, //
    }, //
};

/// The counters of a test, closed when dropped.
struct Cntrs {
    cntrs: KVec<Arc<Cntr>>,
    test: TestDomain,
}

impl Cntrs {
    fn open(count: usize) -> Result<Self> {
        let test = TestDomain::open()?;
        let mut cntrs = KVec::with_capacity(count, GFP_KERNEL)?;
        for context in 0..count {
            cntrs.push(
                test.cntr(enums::WaitObj::Queue, context as u64)?,
                GFP_KERNEL,
            )?;
        }
        Ok(Self { cntrs, test })
    }

    fn get(&self, index: usize) -> Result<&Arc<Cntr>> {
        self.cntrs.get(index).ok_or(EINVAL)
    }
}

impl Drop for Cntrs {
    fn drop(&mut self) {
        for cntr in &self.cntrs {
            force_close(&**cntr);
        }
    }
}

#[kunit_tests(kfabric_deferred)]
mod tests {
    use super::*;

    /// The worker starts the work.
    #[test]
    fn an_add_in_a_softirq_starts_work() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        for threshold in 1..=100 {
            go.queue_change(threshold, done, Change::Add(1))?;
        }
        let adder = IrqChanger::new(go)?;
        in_softirq(move || {
            for _ in 0..100 {
                adder.add(1, || false);
            }
        })?;
        ensure!(eventually(|| done.read() == 100));
        Ok(())
    }

    /// A task that adds under a lock starts nothing.
    #[test]
    fn an_add_under_a_lock_leaves_work_to_the_worker() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        let lock = Arc::pin_init(new_spinlock!((), "kunit::deferred"), GFP_KERNEL)?;
        for round in 1..=20 {
            go.queue_change(round, done, Change::Add(1))?;
            let guard = lock.lock();
            go.add(1);
            drop(guard);
            ensure!(eventually(|| done.read() == round));
        }
        Ok(())
    }

    /// Works that wait, and works that are due while an executor runs, are dropped when the file is
    /// released.
    #[test]
    fn the_end_of_a_domain_drops_its_work() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        for threshold in 1..=3000 {
            go.queue_change(threshold, go, Change::Add(1))?;
            go.queue_change(threshold + 10_000, done, Change::Add(1))?;
        }
        // The worker begins.
        go.add(1);
        cntrs.test.domain.end_work();
        ensure!(eventually(|| cntrs.test.domain.work().len() == 0));
        // No work starts any more.
        go.set(100_000)?;
        ensure_eq!(done.read(), 0);
        Ok(())
    }

    /// Works are left while an executor runs, and flushed. A work that is queued afterwards keeps
    /// its counter open.
    #[test]
    fn work_after_a_flushed_rest_uses_its_counter() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        let queue = cntrs.test.domain.work();
        for _ in 0..=BATCH {
            go.queue_change(1, done, Change::Add(1))?;
        }
        ensure!(queue.begin_idle());
        go.add(1);
        ensure_eq!(go.flush_work(), 1);
        go.queue_change(2, done, Change::Add(1))?;
        ensure_eq!(close(&**go), Err(EBUSY));
        ensure_eq!(go.flush_work(), 1);
        queue.go_on(None);
        ensure_eq!(done.read(), u64::from(BATCH));
        Ok(())
    }

    /// The adds after the one that made works due do not make more of them due: a peer does not pay
    /// for the works of the counter that it counts at.
    #[test]
    fn adds_leave_the_rest_to_the_executor() -> Result {
        const WORKS: u64 = 8 * BATCH as u64;
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        let queue = cntrs.test.domain.work();
        for number in 0..WORKS {
            go.queue_change(1 + number / u64::from(BATCH), done, Change::Add(1))?;
        }
        let waiting = || go.stats().values.get(4).copied();
        ensure!(queue.begin_idle());
        go.add(WORKS);
        for _ in 0..100 {
            ensure_eq!(waiting(), Some(WORKS - u64::from(BATCH)));
            go.add(1);
        }
        queue.go_on(None);
        ensure!(eventually(|| done.read() == WORKS));
        ensure_eq!(waiting(), Some(0));
        Ok(())
    }

    /// Works of several counters start in the order in which they have become due: the first of
    /// them, which waits without a node, and the others.
    #[test]
    fn works_start_in_the_order_in_which_they_become_due() -> Result {
        let cntrs = Cntrs::open(4)?;
        let done = cntrs.get(3)?;
        let queue = cntrs.test.domain.work();
        let changes = [Change::Add(5), Change::Set(10), Change::Add(1)];
        for (at, change) in changes.iter().enumerate() {
            cntrs.get(at)?.queue_change(1, done, *change)?;
        }
        ensure!(queue.begin_idle());
        for at in 0..changes.len() {
            cntrs.get(at)?.add(1);
        }
        ensure_eq!((done.read(), queue.len()), (0, 3));
        queue.go_on(None);
        ensure_eq!((done.read(), queue.len()), (11, 0));
        Ok(())
    }

    /// Several counters have left works. The executor makes the works of each due, one of them was
    /// flushed meanwhile.
    #[test]
    fn several_counters_leave_works() -> Result {
        const WORKS: u64 = 3 * BATCH as u64;
        const COUNTERS: usize = 4;
        let cntrs = Cntrs::open(COUNTERS + 1)?;
        let done = cntrs.get(COUNTERS)?;
        let queue = cntrs.test.domain.work();
        ensure!(queue.begin_idle());
        for number in 0..COUNTERS {
            let go = cntrs.get(number)?;
            for _ in 0..WORKS {
                go.queue_change(1, done, Change::Add(1))?;
            }
            go.add(1);
        }
        let flushed = u64::from(cntrs.get(1)?.flush_work());
        ensure_eq!(flushed, WORKS - u64::from(BATCH));
        ensure_eq!(done.read(), 0);
        queue.go_on(None);
        let all = WORKS * COUNTERS as u64 - flushed;
        ensure!(eventually(|| done.read() == all));
        ensure!(eventually(|| queue.len() == 0));
        Ok(())
    }

    /// A chain in one call takes no more stack and no more time than its length.
    #[test]
    fn a_chain_in_one_call() -> Result {
        const LINKS: usize = 500;
        let cntrs = Cntrs::open(LINKS + 1)?;
        for link in 0..LINKS {
            cntrs
                .get(link)?
                .queue_change(1, cntrs.get(link + 1)?, Change::Add(1))?;
        }
        cntrs.get(0)?.add_here(1);
        ensure_eq!(cntrs.get(LINKS)?.read(), 1);
        Ok(())
    }

    /// Adds that are due when they are queued do not overtake a work of their counter that is due
    /// and not started yet.
    #[test]
    fn an_add_that_is_due_waits_for_earlier_work() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        let queue = cntrs.test.domain.work();
        go.queue_change(1, done, Change::Set(40))?;
        ensure!(queue.begin_idle());
        go.add(1);
        go.queue_change(1, done, Change::Add(1))?;
        go.queue_change(0, done, Change::Add(1))?;
        ensure_eq!((done.read(), queue.len()), (0, 3));
        queue.go_on(None);
        ensure_eq!((done.read(), queue.len()), (42, 0));
        go.queue_change(0, done, Change::Add(1))?;
        ensure_eq!(done.read(), 43);
        Ok(())
    }

    /// A counter can be closed as soon as its works are due, and not before.
    #[test]
    fn work_keeps_its_counter_open_while_it_waits() -> Result {
        let cntrs = Cntrs::open(2)?;
        let (go, done) = (cntrs.get(0)?, cntrs.get(1)?);
        for threshold in 1..=3 {
            go.queue_change(threshold, done, Change::Add(1))?;
        }
        for round in 1..=3 {
            ensure_eq!(close(&**go), Err(EBUSY));
            ensure_eq!(close(&**done), Err(EBUSY));
            go.add_here(1);
            ensure_eq!(done.read(), round);
        }
        close(&**go)?;
        close(&**done)?;
        ensure_eq!(go.queue_change(0, go, Change::Add(1)), Err(EBADF));
        Ok(())
    }

    /// A work that changes a counter is one node in a slab of 96 bytes.
    #[test]
    fn a_work_is_small() -> Result {
        ensure!(Node::BYTES <= 96 + 16);
        Ok(())
    }
}
