// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_wait`: sleeping and waking with the real scheduler and clock.
//!
//! Guest scenarios test signals, because the threads of these tests get none.

use super::*;
use crate::{
    kunit::helpers::{
        soon,
        thread,
        LONG,
        MS, //
    },
    shim::sched::now_ns, //
};
use kernel::{
    new_spinlock,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};

/// Returns the result of `wait`, and fails if `wait` took until its deadline. A wake-up was lost
/// then, although the last check of the condition may have hidden that.
fn woken<T>(wait: impl FnOnce(Deadline) -> Result<T, WaitError>) -> Result<T, WaitError> {
    let end = now_ns() + LONG;
    let value = wait(Deadline::At(end))?;
    if now_ns() >= end {
        return Err(WaitError::TimedOut);
    }
    Ok(value)
}

/// The data that two threads share.
#[pin_data]
struct Shared {
    #[pin]
    queue: WaitQueue,
    value: Atomic<u32>,
    #[pin]
    wakers: SpinLock<KVec<Waker>>,
}

impl Shared {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_wait_queue!("kunit::queue"),
                value: Atomic::new(0),
                wakers <- new_spinlock!(KVec::new(), "kunit::wakers"),
            }),
            GFP_KERNEL,
        )
    }

    fn value(&self) -> u32 {
        self.value.load(Acquire)
    }

    /// A condition: returns the value if it is `value`.
    fn is(&self, value: u32) -> Option<u32> {
        Some(self.value()).filter(|now| *now == value)
    }

    fn set(&self, value: u32) {
        self.value.store(value, Relaxed);
        self.queue.wake_all();
    }
}

const fn reason(value: u32) -> NonZeroU32 {
    match NonZeroU32::new(value) {
        Some(value) => value,
        None => NonZeroU32::MIN,
    }
}

#[kunit_tests(kfabric_wait)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_holds_needs_no_wait() -> Result {
        let shared = Shared::new()?;
        for deadline in [Deadline::Poll, Deadline::At(1), soon(), Deadline::Forever] {
            ensure_eq!(shared.queue.wait_until(deadline, || Some(7)), Ok(7));
            ensure!(shared.queue.wait_uninterruptible(deadline, || true));
        }
        ensure!(!shared.queue.wait_uninterruptible(Deadline::At(1), || false));
        Ok(())
    }

    #[test]
    fn polling_and_a_past_deadline_do_not_sleep() -> Result {
        let shared = Shared::new()?;
        let before = now_ns();
        for deadline in [
            Deadline::Poll,
            Deadline::At(0),
            Deadline::At(1),
            Deadline::At(before),
        ] {
            let mut looks = 0;
            let result = shared.queue.wait_until(deadline, || {
                looks += 1;
                None::<()>
            });
            ensure_eq!(result, Err(WaitError::TimedOut));
            ensure!(looks >= 1);
        }
        ensure!(now_ns() - before < LONG / 2);
        Ok(())
    }

    #[test]
    fn a_deadline_is_kept() -> Result {
        let shared = Shared::new()?;
        let deadline = now_ns() + 20 * MS;
        let result = shared
            .queue
            .wait_until(Deadline::At(deadline), || None::<()>);
        ensure_eq!(result, Err(WaitError::TimedOut));
        ensure!(now_ns() >= deadline);

        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let deadline = now_ns() + 20 * MS;
        ensure_eq!(
            sleeper.wait(Deadline::At(deadline)),
            Err(WaitError::TimedOut)
        );
        ensure!(now_ns() >= deadline);
        Ok(())
    }

    #[test]
    fn the_condition_is_checked_again_at_the_deadline() -> Result {
        let shared = Shared::new()?;
        let deadline = now_ns() + 20 * MS;
        let result = shared.queue.wait_until(Deadline::At(deadline), || {
            (now_ns() >= deadline).then_some(5)
        });
        ensure_eq!(result, Ok(5));
        Ok(())
    }

    #[test]
    fn a_deadline_beyond_the_clock_waits() -> Result {
        let shared = Shared::new()?;
        let other = shared.clone();
        let thread = thread(move || {
            let _ = other
                .queue
                .wait_until(Deadline::At(now_ns() + 20 * MS), || None::<()>);
            other.set(1);
        })?;
        let late = Deadline::At(u64::MAX - 1);
        ensure_eq!(shared.queue.wait_until(late, || shared.is(1)), Ok(1));
        thread.join();
        Ok(())
    }

    #[test]
    fn a_queue_reports_its_sleepers() -> Result {
        let shared = Shared::new()?;
        ensure!(!shared.queue.has_sleepers());
        let other = shared.clone();
        let thread = thread(move || {
            let _ = other.queue.wait_until(Deadline::Forever, || other.is(1));
            let is_two = || other.value() == 2;
            let _ = other.queue.wait_uninterruptible(Deadline::Forever, is_two);
        })?;
        for value in [1, 2] {
            while !shared.queue.has_sleepers() {
                kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
            }
            shared.set(value);
        }
        thread.join();
        ensure!(!shared.queue.has_sleepers());
        Ok(())
    }

    #[test]
    fn no_wake_up_of_a_queue_is_lost() -> Result {
        const ROUNDS: u32 = 2000;
        let shared = Shared::new()?;
        let other = shared.clone();
        let thread = thread(move || {
            for round in 0..ROUNDS {
                let odd = 2 * round + 1;
                if woken(|end| other.queue.wait_until(end, || other.is(odd))).is_err() {
                    return;
                }
                other.set(odd + 1);
            }
        })?;
        for round in 0..ROUNDS {
            shared.set(2 * round + 1);
            let even = 2 * round + 2;
            if woken(|end| shared.queue.wait_until(end, || shared.is(even))).is_err() {
                break;
            }
        }
        thread.join();
        ensure_eq!(shared.value(), 2 * ROUNDS);
        Ok(())
    }

    #[test]
    fn a_waker_wakes_once() -> Result {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        ensure_eq!(sleeper.reason(), None);
        for round in 1..=3 {
            let waker = sleeper.waker();
            ensure_eq!(sleeper.reason(), None);
            ensure_eq!(sleeper.wait(Deadline::Poll), Err(WaitError::TimedOut));
            ensure_eq!(sleeper.wait(Deadline::At(1)), Err(WaitError::TimedOut));
            waker.wake(reason(round));
            ensure_eq!(sleeper.reason(), Some(reason(round)));
            for deadline in [Deadline::Poll, Deadline::At(1), Deadline::Forever] {
                ensure_eq!(sleeper.wait(deadline), Ok(reason(round)));
            }
        }
        Ok(())
    }

    #[test]
    fn a_waker_that_is_dropped_gives_no_reason() -> Result {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        drop(sleeper.waker());
        ensure_eq!(sleeper.reason(), None);
        ensure_eq!(sleeper.wait(Deadline::At(1)), Err(WaitError::TimedOut));
        // The largest reason is not mistaken for a dropped waker.
        sleeper.waker().wake(reason(u32::MAX));
        ensure_eq!(sleeper.wait(Deadline::Forever), Ok(reason(u32::MAX)));
        Ok(())
    }

    #[test]
    fn a_sleeper_outlives_its_waker() -> Result {
        let shared = Shared::new()?;
        shared.wakers.lock().reserve(2, GFP_ATOMIC)?;
        for dropped in [false, true] {
            let other = shared.clone();
            let thread = thread(move || {
                {
                    pin_init::stack_pin_init!(let sleeper = Sleeper::new());
                    let waker = sleeper.as_ref().waker();
                    let _ = other.wakers.lock().push(waker, GFP_ATOMIC);
                    other.queue.wake_all();
                }
                other.value.store(1, Relaxed);
                other.queue.wake_all();
            })?;
            let pop = || shared.wakers.lock().pop();
            let waker = shared.queue.wait_until(soon(), pop)?;
            let later = Deadline::At(now_ns() + 20 * MS);
            let gone = shared.queue.wait_until(later, || shared.is(1));
            ensure_eq!(gone, Err(WaitError::TimedOut));
            if dropped {
                drop(waker);
            } else {
                waker.wake(reason(1));
            }
            ensure_eq!(shared.queue.wait_until(soon(), || shared.is(1)), Ok(1));
            thread.join();
            shared.set(0);
        }
        Ok(())
    }

    #[test]
    fn no_wake_up_of_a_sleeper_is_lost() -> Result {
        const ROUNDS: u32 = 2000;
        let shared = Shared::new()?;
        let other = shared.clone();
        // In each round the thread puts a waker on the list, waits for the reason, and checks that
        // it is that of the round.
        let thread = thread(move || {
            for round in 1..=ROUNDS {
                pin_init::stack_pin_init!(let sleeper = Sleeper::new());
                let waker = sleeper.as_ref().waker();
                let _ = other.wakers.lock().push(waker, GFP_ATOMIC);
                other.queue.wake_all();
                if woken(|end| sleeper.wait(end)) != Ok(reason(round)) {
                    return;
                }
                other.value.store(round, Relaxed);
            }
        })?;
        for round in 1..=ROUNDS {
            let waker = woken(|end| {
                let pop = || shared.wakers.lock().pop();
                shared.queue.wait_until(end, pop)
            });
            match waker {
                Ok(waker) => waker.wake(reason(round)),
                Err(_) => break,
            }
        }
        thread.join();
        ensure_eq!(shared.value(), ROUNDS);
        Ok(())
    }

    #[test]
    fn one_of_many_sleepers_is_woken() -> Result {
        const MANY: usize = 50;
        let shared = Shared::new()?;
        shared.wakers.lock().reserve(0, GFP_ATOMIC)?;
        let mut threads = KVec::new();
        let mut wakers = KVec::with_capacity(MANY, GFP_KERNEL)?;
        for _ in 0..MANY {
            let other = shared.clone();
            let thread = thread(move || {
                pin_init::stack_pin_init!(let sleeper = Sleeper::new());
                let waker = sleeper.as_ref().waker();
                let _ = other.wakers.lock().push(waker, GFP_ATOMIC);
                other.queue.wake_all();
                if sleeper.wait(Deadline::Forever).is_ok() {
                    other.value.fetch_add(1, Full);
                    other.queue.wake_all();
                }
            })?;
            threads.push(thread, GFP_KERNEL)?;
            let waker = shared
                .queue
                .wait_until(soon(), || shared.wakers.lock().pop());
            wakers.push(waker?, GFP_KERNEL)?;
        }
        let middle = wakers.remove(MANY / 2).map_err(|_| EINVAL)?;
        middle.wake(reason(1));
        ensure_eq!(shared.queue.wait_until(soon(), || shared.is(1)), Ok(1));
        // No other thread is woken; this gives them time to run.
        let later = Deadline::At(now_ns() + 50 * MS);
        let other = shared
            .queue
            .wait_until(later, || (shared.value() != 1).then_some(()));
        ensure_eq!(other, Err(WaitError::TimedOut));
        for waker in wakers {
            waker.wake(reason(2));
        }
        drop(threads);
        ensure_eq!(shared.value(), MANY as u32);
        Ok(())
    }

    #[test]
    fn errors_have_their_numbers() -> Result {
        ensure_eq!(Error::from(WaitError::TimedOut), ETIMEDOUT);
        ensure_eq!(Error::from(WaitError::Interrupted), ERESTARTSYS);
        Ok(())
    }
}
