// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cntr`: counters with the real scheduler, clock and user memory.
//!
//! The core crate tests the semantics of values, thresholds and wrapping. Guest scenarios test
//! signals, poll(2) and mappings, because the threads of these tests have none of them.

use super::{
    counter::Counter,
    fd::Fd,
    Cntr,
    CntrAttr, //
};
use crate::{
    kunit::fixture::{
        a_while,
        count_if,
        eventually,
        ident,
        soon,
        thread,
        wait_obj,
        within,
        Count,
        TestDomain,
        TestFabric,
        MS, //
    },
    provider::{
        object::{
            close,
            force_close, //
        },
        wait::{
            WaitObj,
            WaitSet, //
        }, //
    },
    shim::{
        errno::to_error,
        sched::now_ns, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums,
    errno::Errno,
    wait::Deadline, //
};

fn counter(max: u64) -> Result<Arc<Counter>> {
    Arc::pin_init(Counter::new(max)?, GFP_KERNEL)
}

fn error_changed() -> Error {
    to_error(Errno::KFI_EAVAIL)
}

/// Returns the number of waiters.
fn waiting(counter: &Counter) -> u32 {
    counter.waiting().0
}

/// Returns the values in the page that programs map.
fn mapped(counter: &Counter) -> Result<(u64, u64)> {
    let (mut value, mut err) = ([0; 8], [0; 8]);
    counter.page().read_bytes(0, &mut value)?;
    counter.page().read_bytes(8, &mut err)?;
    Ok((u64::from_ne_bytes(value), u64::from_ne_bytes(err)))
}

#[kunit_tests(kfabric_cntr)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_mapped_page() -> Result {
        let counter = counter(0)?;
        ensure_eq!(mapped(&counter)?, (0, 0));
        counter.add(5);
        ensure!(counter.adderr(2));
        ensure_eq!((counter.read(), counter.err()), (5, 2));
        ensure_eq!(mapped(&counter)?, (5, 2));
        counter.set(100)?;
        counter.seterr(0)?;
        ensure_eq!(mapped(&counter)?, (100, 0));
        counter.set(u64::MAX)?;
        counter.add(3);
        ensure_eq!(mapped(&counter)?, (2, 0));
        Ok(())
    }

    #[test]
    fn a_counter_wraps_after_its_maximum() -> Result {
        let counter = counter(9)?;
        counter.add(9);
        counter.add(1);
        ensure_eq!(counter.read(), 0);
        counter.add(25);
        ensure_eq!(counter.read(), 5);
        ensure_eq!(counter.set(10), Err(EINVAL));
        ensure_eq!(counter.seterr(10), Err(EINVAL));
        ensure_eq!((counter.read(), counter.err()), (5, 0));
        Ok(())
    }

    #[test]
    fn a_reached_threshold_needs_no_wait() -> Result {
        let counter = counter(0)?;
        counter.add(3);
        ensure!(counter.adderr(1));
        let check = |counter: &Counter, met: Result, unmet: Result| -> Result {
            for deadline in [Deadline::Poll, Deadline::At(1), Deadline::Forever] {
                for threshold in [0, 1, 3] {
                    ensure_eq!(counter.wait(threshold, deadline, &mut 0), met);
                }
            }
            ensure_eq!(counter.wait(4, Deadline::At(1), &mut 0), unmet);
            Ok(())
        };
        check(&counter, Ok(()), Err(ETIMEDOUT))?;
        // A closed counter accepts no waiter, but a threshold that is reached needs none.
        counter.close();
        check(&counter, Ok(()), Err(EBADF))?;
        Ok(())
    }

    #[test]
    fn a_wait_that_times_out_leaves_no_waiter() -> Result {
        let counter = counter(0)?;
        ensure_eq!(counter.wait(1, Deadline::Poll, &mut 0), Err(ETIMEDOUT));
        ensure_eq!(counter.wait(1, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        let end = now_ns() + 20 * MS;
        // An earlier error is not a change.
        ensure!(counter.adderr(1));
        ensure_eq!(counter.wait(1, Deadline::At(end), &mut 0), Err(ETIMEDOUT));
        ensure!(now_ns() >= end);
        ensure_eq!(waiting(&counter), 0);
        ensure_eq!(counter.err(), 1);
        Ok(())
    }

    #[test]
    fn exactly_those_due_are_woken() -> Result {
        const MANY: u32 = 200;
        let counter = counter(0)?;
        let woken = Count::new()?;
        let mut threads = KVec::with_capacity(MANY as usize, GFP_KERNEL)?;
        // The highest thresholds arm first, so the order of arrival differs from that of release.
        for threshold in (1..=MANY).rev() {
            let counter = counter.clone();
            let thread = count_if(&woken, move || {
                counter.wait(threshold.into(), soon(), &mut 0).is_ok()
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&counter) == MANY));
        ensure_eq!(counter.waiting().1, Some(1));
        a_while();
        ensure_eq!(woken.get(), 0);
        for reached in 1..=50 {
            counter.add(1);
            // When the add returns, exactly the waiters that are due have been removed.
            ensure_eq!(
                counter.waiting(),
                (MANY - reached, Some(u64::from(reached) + 1))
            );
        }
        ensure!(eventually(|| woken.get() == 50));
        a_while();
        ensure_eq!(woken.get(), 50);
        counter.add(70);
        ensure_eq!(waiting(&counter), MANY - 120);
        ensure!(eventually(|| woken.get() == 120));
        counter.set(u64::from(MANY))?;
        drop(threads);
        ensure_eq!(woken.get(), MANY);
        Ok(())
    }

    #[test]
    fn an_error_ends_every_wait() -> Result {
        let counter = counter(0)?;
        let (ended, reached) = (Count::new()?, Count::new()?);
        let mut threads = KVec::new();
        for threshold in 1..=10 {
            let (counter, ended, reached) = (counter.clone(), ended.clone(), reached.clone());
            let thread = thread(move || match counter.wait(threshold, soon(), &mut 0) {
                Err(error) if error == error_changed() => ended.add(1),
                Ok(()) => reached.add(1),
                Err(_) => {}
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&counter) == 10));
        counter.add(4);
        ensure!(counter.adderr(1));
        drop(threads);
        ensure_eq!(reached.get(), 4);
        ensure_eq!(ended.get(), 6);
        Ok(())
    }

    #[test]
    fn a_value_that_decreases_again_is_not_missed() -> Result {
        let counter = counter(0)?;
        let (other, done) = (counter.clone(), Count::new()?);
        let thread = count_if(&done, move || other.wait(3, soon(), &mut 0).is_ok())?;
        ensure!(eventually(|| waiting(&counter) == 1));
        counter.set(3)?;
        counter.set(1)?;
        thread.join();
        ensure_eq!(done.get(), 1);
        Ok(())
    }

    #[test]
    fn an_error_that_is_taken_back_is_not_missed() -> Result {
        let counter = counter(0)?;
        let (other, done) = (counter.clone(), Count::new()?);
        let thread = count_if(&done, move || {
            other.wait(3, soon(), &mut 0) == Err(error_changed())
        })?;
        ensure!(eventually(|| waiting(&counter) == 1));
        // The value stays the same, so this is not a change.
        ensure!(!counter.adderr(0));
        ensure_eq!(counter.seterr(0), Ok(false));
        ensure_eq!(waiting(&counter), 1);
        ensure!(counter.adderr(1));
        ensure_eq!(counter.seterr(0), Ok(true));
        thread.join();
        ensure_eq!(done.get(), 1);
        Ok(())
    }

    /// kfi_cntr(3): any change of the error value unblocks any thread inside kfi_cntr_wait. This
    /// wait has begun, and is interrupted by the handler of a signal, or has not armed yet.
    #[test]
    fn an_error_before_the_line_ends_a_wait_that_has_begun() -> Result {
        let counter = counter(0)?;
        let mut began = counter.entered().number();
        ensure!(counter.adderr(1));
        ensure_eq!(counter.seterr(0), Ok(true));
        for deadline in [Deadline::Poll, Deadline::At(1), Deadline::Forever] {
            let mut again = began;
            ensure_eq!(counter.wait(3, deadline, &mut again), Err(error_changed()));
            // The wait has ended.
            ensure_eq!(again, 0);
        }
        ensure_eq!(counter.wait(0, Deadline::Forever, &mut began), Ok(()));
        ensure_eq!(began, 0);
        // A wait that begins now is not affected.
        ensure_eq!(counter.wait(3, within(20), &mut 0), Err(ETIMEDOUT));
        ensure_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn closing_by_force_wakes_all_and_refuses_waiters() -> Result {
        let counter = counter(0)?;
        let closed = Count::new()?;
        let mut threads = KVec::new();
        for threshold in 1..=5 {
            let counter = counter.clone();
            let thread = count_if(&closed, move || {
                counter.wait(threshold, soon(), &mut 0) == Err(EBADF)
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&counter) == 5));
        counter.close();
        counter.close();
        drop(threads);
        ensure_eq!(closed.get(), 5);
        ensure_eq!(counter.wait(1, Deadline::Forever, &mut 0), Err(EBADF));
        Ok(())
    }

    #[test]
    fn no_wake_up_is_lost_between_two() -> Result {
        const ROUNDS: u64 = 1000;
        let (ping, pong) = (counter(0)?, counter(0)?);
        let (their_ping, their_pong) = (ping.clone(), pong.clone());
        let thread = thread(move || {
            for round in 1..=ROUNDS {
                if their_ping.wait(round, soon(), &mut 0).is_err() {
                    return;
                }
                their_pong.add(1);
            }
        })?;
        for round in 1..=ROUNDS {
            ping.add(1);
            if pong.wait(round, soon(), &mut 0).is_err() {
                break;
            }
        }
        thread.join();
        ensure_eq!(ping.read(), ROUNDS);
        ensure_eq!(pong.read(), ROUNDS);
        Ok(())
    }

    #[test]
    fn no_wake_up_is_lost_among_many() -> Result {
        const ADDERS: u64 = 3;
        const ADDS: u64 = 20_000;
        let counter = counter(0)?;
        let reached = Count::new()?;
        let mut threads = KVec::new();
        for waiter in 0..4 {
            let counter = counter.clone();
            let thread = count_if(&reached, move || {
                // Each waiter uses a sequence of thresholds.
                (1..=ADDERS * ADDS / 100).all(|step| {
                    let threshold = step * 100 - waiter;
                    counter.wait(threshold, soon(), &mut 0).is_ok() && counter.read() >= threshold
                })
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        for _ in 0..ADDERS {
            let counter = counter.clone();
            let thread = thread(move || {
                for i in 0..ADDS {
                    counter.add(1);
                    if i % 512 == 0 {
                        crate::shim::sched::cond_resched();
                    }
                }
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        drop(threads);
        ensure_eq!(counter.read(), ADDERS * ADDS);
        ensure_eq!(reached.get(), 4);
        ensure_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn a_deadline_can_coincide_with_an_add() -> Result {
        const ROUNDS: u64 = 2000;
        let counter = counter(0)?;
        let other = counter.clone();
        let thread = thread(move || {
            for _ in 0..ROUNDS {
                other.add(1);
                kernel::time::delay::fsleep(kernel::time::Delta::from_micros(30));
            }
        })?;
        let mut timeouts = 0u64;
        let mut threshold = 1;
        let end = now_ns() + 10_000_000_000;
        while threshold <= ROUNDS && now_ns() < end {
            // The deadlines are between 0 and twice the time between two adds.
            let patience = (threshold + timeouts) * 7919 % 60_000;
            match counter.wait(threshold, Deadline::At(now_ns() + patience), &mut 0) {
                Ok(()) => {
                    ensure!(counter.read() >= threshold);
                    threshold += 1;
                }
                Err(error) => {
                    ensure_eq!(error, ETIMEDOUT);
                    timeouts += 1;
                }
            }
        }
        thread.join();
        ensure_eq!(threshold, ROUNDS + 1);
        ensure_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn the_wait_object_determines_how_to_wait() -> Result {
        let test = TestDomain::open()?;
        let open = |wait: WaitObj| {
            let attr = CntrAttr { wait, max_value: 0 };
            Cntr::open(&test.domain, attr, ident(3, 3)?)
        };
        let none = open(wait_obj(enums::WaitObj::None)?)?;
        ensure_eq!(none.wait(1, Deadline::Poll, &mut 0), Err(ETIMEDOUT));
        ensure_eq!(none.wait(1, Deadline::At(1), &mut 0), Err(EINVAL));
        ensure_eq!(none.wait(0, Deadline::Forever, &mut 0), Err(EINVAL));
        ensure_eq!(none.wait(0, Deadline::Poll, &mut 0), Ok(()));
        let unspec = open(wait_obj(enums::WaitObj::Unspec)?)?;
        ensure_eq!(unspec.wait(1, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        ensure_eq!(none.getwait().err(), Some(EINVAL));

        let set = WaitSet::open(&test.fabric.0, ident(4, 4)?)?;
        let member = open(WaitObj::new(enums::WaitObj::Set.into(), Some(set.clone()))?)?;
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        member.add(0);
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        member.add(1);
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.adderr(1);
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.set(0)?;
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.seterr(0)?;
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));

        let elsewhere = TestFabric::open()?;
        let foreign = WaitSet::open(&elsewhere.0, ident(5, 5)?)?;
        let wait = WaitObj::new(enums::WaitObj::Set.into(), Some(foreign.clone()))?;
        ensure_eq!(open(wait).err(), Some(EINVAL));
        ensure_eq!(close(&*foreign), Ok(()));

        ensure_eq!(none.flags(), 0);
        ensure_eq!(none.set_flags(0), Ok(()));
        ensure_eq!(none.set_flags(1), Err(EINVAL));
        for cntr in [none, unspec, member] {
            ensure_eq!(close(&*cntr), Ok(()));
        }
        ensure_eq!(close(&*set), Ok(()));
        Ok(())
    }

    #[test]
    fn waiters_use_the_counter() -> Result {
        let test = TestDomain::open()?;
        let cntr = test.cntr(enums::WaitObj::Queue, 3)?;
        ensure_eq!(close(&*test.domain), Err(EBUSY));
        let (other, refused) = (cntr.clone(), Count::new()?);
        let thread = count_if(&refused, move || {
            other.wait(1, soon(), &mut 0) == Err(EBADF)
        })?;
        ensure!(eventually(|| waiting(&cntr.counter) == 1));
        ensure_eq!(close(&*cntr), Err(EBUSY));
        force_close(&*cntr);
        thread.join();
        ensure_eq!(refused.get(), 1);
        ensure_eq!(close(&*cntr), Err(EBADF));
        ensure_eq!(cntr.wait(1, Deadline::Forever, &mut 0), Err(EBADF));
        ensure_eq!(cntr.getwait().err(), Some(EBADF));
        // The holder of a descriptor uses the counter, not the descriptor itself.
        let cntr = test.cntr(enums::WaitObj::Queue, 3)?;
        let fd = Fd::new(crate::provider::object::UseRef::new(cntr.clone())?)?;
        ensure_eq!(close(&*cntr), Err(EBUSY));
        cntr.add(1);
        let taken = fd.take(|values| {
            ensure_eq!((values.value, values.err), (1, 0));
            Ok(())
        });
        ensure_eq!(taken, Ok(()));
        drop(fd);
        ensure_eq!(close(&*cntr), Ok(()));
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }
}
