// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cntr`: waiters of counters, where no call of a program can have them: counters
//! that are closed by force, a wait that has begun and has not armed, and two tasks that wake each
//! other.
//!
//! The core crate tests the semantics of values, thresholds and wrapping. Guest scenarios test
//! counters as programs use them.

use super::{
    counter::Counter,
    fd::Fd, //
};
use crate::{
    kunit::fixture::{
        count_if,
        eventually,
        soon,
        thread,
        within,
        Count,
        TestDomain, //
    },
    provider::object::{
        close,
        force_close, //
    },
    shim::errno::to_error, //
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

#[kunit_tests(kfabric_cntr)]
mod tests {
    use super::*;

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
        counter.add(3);
        let closed = Count::new()?;
        let mut threads = KVec::new();
        for threshold in 4..=8 {
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
        // A closed counter accepts no waiter, but a threshold that is reached needs none.
        for deadline in [Deadline::Poll, Deadline::At(1), Deadline::Forever] {
            ensure_eq!(counter.wait(3, deadline, &mut 0), Ok(()));
        }
        for deadline in [Deadline::At(1), Deadline::Forever] {
            ensure_eq!(counter.wait(4, deadline, &mut 0), Err(EBADF));
        }
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
