// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cq_wait`: threads that wait in reads of a completion queue, with the real
//! scheduler and clock.

use super::{
    super::kunit::{
        context,
        push,
        push_err,
        queue,
        readerr,
        sread,
        waiting, //
    },
    Queue, //
};
use crate::{
    kunit::{
        fixture::{
            a_while,
            eventually,
            soon,
            Count,
            LONG, //
        },
        helpers::{
            self,
            Join, //
        }, //
    },
    shim::sched::now_ns, //
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
    }, //
};
use kfi_core::wait::Deadline;

/// Returns a sink that adds up contexts.
fn sum(total: &mut u64) -> impl FnMut(&[u64], u64) -> Result + '_ {
    |words: &[u64], _: u64| {
        *total += context(words);
        Ok(())
    }
}

fn inside(queue: &Queue) -> u32 {
    queue.lock().inside()
}

/// Runs `run` with `queue` in a thread, and counts if it returns true.
fn count_if(
    queue: &Arc<Queue>,
    count: &Arc<Count>,
    run: impl FnOnce(&Queue) -> bool + Send + 'static,
) -> Result<Join> {
    let queue = queue.clone();
    helpers::count_if(count, move || run(&queue))
}

#[kunit_tests(kfabric_cq_wait)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_reaches_a_thread_that_is_not_asleep_yet() -> Result {
        let queue = queue(8)?;
        let (ended, stalled, go_on) = (Count::new()?, Count::new()?, Count::new()?);
        push(&queue, 1)?;
        let reader = {
            let (stalled, go_on) = (stalled.clone(), go_on.clone());
            count_if(&queue, &ended, move |queue| {
                let read = queue.read(1, |_: &[u64], _: u64| {
                    stalled.add(1);
                    eventually(|| go_on.get() == 1);
                    Ok(())
                });
                read == Ok(1)
            })?
        };
        ensure!(eventually(|| stalled.get() == 1));
        let asleep = count_if(&queue, &ended, |queue| {
            sread(queue, 1, 5, soon()) == Err(EAGAIN)
        })?;
        ensure!(eventually(|| waiting(&queue) == 1));
        let waiter = count_if(&queue, &ended, |queue| {
            sread(queue, 1, 1, soon()) == Err(EAGAIN)
        })?;
        ensure!(eventually(|| inside(&queue) == 2));
        a_while();
        ensure_eq!((waiting(&queue), inside(&queue)), (1, 2));
        let begin = now_ns();
        queue.signal();
        go_on.add(1);
        reader.join();
        asleep.join();
        waiter.join();
        ensure_eq!(ended.get(), 3);
        // The thread did not sleep until its deadline.
        ensure!(now_ns() - begin < LONG / 2);
        Ok(())
    }

    #[test]
    fn another_reader_takes_the_error_while_one_waits_for_memory() -> Result {
        let queue = queue(8)?;
        push_err(&queue, 5)?;
        let mut tries = 0;
        let result = queue.readerr(
            |_| {
                tries += 1;
                if tries == 1 {
                    Err(EFAULT)
                } else {
                    Ok(())
                }
            },
            || {
                ensure_eq!(readerr(&queue), Ok(5));
                push_err(&queue, 6)
            },
        );
        ensure_eq!(result, Ok(()));
        ensure_eq!(tries, 2);
        ensure_eq!(readerr(&queue), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn a_reader_that_comes_too_late_sleeps_again() -> Result {
        let queue = queue(8)?;
        let got = Count::new()?;
        let mut threads = KVec::new();
        for _ in 0..3 {
            let thread = count_if(&queue, &got, |queue| sread(queue, 1, 1, soon()) == Ok(1))?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&queue) == 3));
        for n in 1..=3 {
            push(&queue, 1)?;
            ensure!(eventually(|| got.get() == n && waiting(&queue) == 3 - n));
            a_while();
            ensure_eq!(got.get(), n);
        }
        Ok(())
    }

    #[test]
    fn closing_by_force_wakes_all_and_refuses_sleepers() -> Result {
        let queue = queue(8)?;
        let closed = Count::new()?;
        let mut threads = KVec::new();
        for want in [1, 3] {
            let thread = count_if(&queue, &closed, move |queue| {
                sread(queue, 1, want, soon()) == Err(EBADF)
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&queue) == 2));
        queue.close();
        threads.clear();
        ensure_eq!(closed.get(), 2);
        ensure_eq!(sread(&queue, 1, 1, Deadline::Forever), Err(EBADF));
        Ok(())
    }

    #[test]
    fn many_readers_lose_no_completion() -> Result {
        const PRODUCERS: u64 = 2;
        const EACH: u64 = 5000;
        const ALL: u64 = PRODUCERS * EACH;
        let queue = queue(32)?;
        let taken = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
        let total = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
        let good = Count::new()?;
        let mut threads = KVec::new();
        for producer in 0..PRODUCERS {
            let thread = count_if(&queue, &good, move |queue| {
                let end = now_ns() + 20_000_000_000;
                let mut n = producer;
                while n < ALL && now_ns() < end {
                    if push(queue, n).is_ok() {
                        n += PRODUCERS;
                    } else {
                        crate::shim::sched::cond_resched();
                    }
                }
                n >= ALL
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        for want in [1, 1, 7] {
            let (taken, total) = (taken.clone(), total.clone());
            let thread = count_if(&queue, &good, move |queue| loop {
                let mut contexts = 0;
                match queue.sread(5, want, soon(), &mut 0, sum(&mut contexts)) {
                    Ok(n) => {
                        total.fetch_add(contexts, Full);
                        if taken.fetch_add(n as u64, Full) + n as u64 == ALL {
                            // The other threads sleep, or will.
                            queue.close();
                            return true;
                        }
                    }
                    Err(error) => return error == EBADF,
                }
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        // The thread that wants many entries may sleep while few are left; the others take them.
        drop(threads);
        ensure_eq!(good.get(), 5);
        ensure_eq!(taken.load(Acquire), ALL);
        ensure_eq!(total.load(Acquire), ALL * (ALL - 1) / 2);
        let stats = queue.stats();
        ensure_eq!(stats, [32, 0, 0, ALL, 0, 0, 0, 0]);
        Ok(())
    }
}
