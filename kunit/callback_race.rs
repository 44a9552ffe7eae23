// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_callback_race`: callbacks, interrupts and many tasks at the same time.

use super::{
    kunit::{
        at_least,
        counter,
        cq,
        drain,
        push,
        record,
        Calls, //
    },
    Callback,
    Registration, //
};
use crate::{
    kunit::{
        contexts::{
            in_hard_irqs,
            in_softirqs, //
        },
        fixture::{
            a_while,
            eventually,
            soon,
            thread,
            within,
            Count,
            TestDomain, //
        },
        helpers::Irq, //
    },
    provider::{
        cntr::{
            irq::IrqChanger,
            Cntr, //
        },
        cq::Cq,
        object::force_close,
        object_list::StatsSource, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kfi_core::{
    cntr::WaitCondition,
    cq::CallbackCondition::Ready,
    enums::WaitObj, //
};

/// Returns a function that adds 1 in interrupts of this kind, `times` times, and counts those.
fn adds(cntr: &Arc<Cntr>, irq: Irq, times: u64, count: &Arc<Count>) -> Result<impl Fn() -> bool> {
    let (adder, count) = (IrqChanger::new(cntr)?, count.clone());
    Ok(move || {
        count.add(u32::from(Irq::current() == irq));
        adder.add(1, || false);
        u64::from(count.get()) < times
    })
}

/// Returns the number of waiters.
fn waiting(cntr: &Cntr) -> u64 {
    let [_, _, waiters, ..] = cntr.stats().values;
    waiters
}

/// Sleeps for this many microseconds.
fn sleep_us(us: u64) {
    // CAST: Small.
    fsleep(Delta::from_micros(us as i64));
}

#[kunit_tests(kfabric_callback_race)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_both_kinds_lead_to_calls() -> Result {
        const ADDS: u64 = 100;
        let test = TestDomain::open()?;
        for irq in [Irq::Hard, Irq::Soft] {
            let cntr = counter(&test, WaitObj::Unspec)?;
            let (calls, count) = (Calls::new()?, Count::new()?);
            let callback = record(&cntr, &calls)?;
            ensure_eq!(callback.arm(at_least(&cntr, ADDS)), Ok(None));
            let function = adds(&cntr, irq, ADDS, &count)?;
            let _timer = match irq {
                Irq::Hard => (Some(in_hard_irqs(function)?), None),
                _ => (None, Some(in_softirqs(function)?)),
            };
            // A task waits for the same value.
            ensure_eq!(cntr.wait(ADDS, soon(), &mut 0), Ok(()));
            ensure!(eventually(|| calls.are(1)));
            a_while();
            ensure!(calls.are(1));
            ensure_eq!((u64::from(count.get()), cntr.read()), (ADDS, ADDS));
            force_close(&*cntr);
        }
        Ok(())
    }

    #[test]
    fn interrupts_add_while_tasks_hold_the_lock() -> Result {
        const ADDS: u64 = 4000;
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::Unspec)?;
        let (hard, soft) = (Count::new()?, Count::new()?);
        let calls = Calls::new()?;
        let callback = {
            let calls = calls.clone();
            // Arms for the next value until none is left to come.
            Registration::new(&cntr, move |callback: &Arc<Callback<Cntr>>, why| {
                calls.call(why, || {
                    let cntr = callback.object();
                    while cntr.read() < 2 * ADDS {
                        let next = (cntr.read() + 1).min(2 * ADDS);
                        if !matches!(callback.arm(at_least(cntr, next)), Ok(Some(_))) {
                            return;
                        }
                    }
                })
            })?
        };
        ensure_eq!(callback.arm(at_least(&cntr, 1)), Ok(None));
        let _hard = in_hard_irqs(adds(&cntr, Irq::Hard, ADDS, &hard)?)?;
        let _soft = in_softirqs(adds(&cntr, Irq::Soft, ADDS, &soft)?)?;
        let other = cntr.clone();
        let busy = thread(move || {
            while other.read() < 2 * ADDS {
                let _ = other.wait(other.read() + 1, within(10), &mut 0);
                other.add(0);
            }
        })?;
        ensure_eq!(cntr.wait(2 * ADDS, soon(), &mut 0), Ok(()));
        busy.join();
        ensure_eq!((u64::from(hard.get()), u64::from(soft.get())), (ADDS, ADDS));
        ensure_eq!(callback.unregister(), Ok(()));
        let made = calls.get();
        ensure!(made >= 1 && calls.are(made));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn no_completion_is_left_behind() -> Result {
        const COMPLETIONS: u32 = 20000;
        let test = TestDomain::open()?;
        let cq = cq(&test, WaitObj::None)?;
        let (calls, read) = (Calls::new()?, Count::new()?);
        let callback = {
            let (calls, read) = (calls.clone(), read.clone());
            Registration::new(&cq, move |callback: &Arc<Callback<Cq>>, why| {
                calls.call(why, || loop {
                    read.add(drain(callback.object()) as u32);
                    if !matches!(callback.arm(Ready(1)), Ok(Some(_))) {
                        return;
                    }
                })
            })?
        };
        ensure_eq!(callback.arm(Ready(1)), Ok(None));
        let mut threads = KVec::new();
        for _ in 0..2 {
            let cq = cq.clone();
            let producer = thread(move || {
                for _ in 0..COMPLETIONS / 2 {
                    if !eventually(|| push(&cq).is_ok()) {
                        return;
                    }
                }
            })?;
            threads.push(producer, GFP_KERNEL)?;
        }
        drop(threads);
        ensure!(eventually(|| read.get() == COMPLETIONS));
        ensure_eq!(callback.unregister(), Ok(()));
        let made = calls.get();
        ensure!((1..=COMPLETIONS).contains(&made) && calls.are(made));
        force_close(&*cq);
        Ok(())
    }

    #[test]
    fn there_is_no_call_after_unregistering() -> Result {
        const ROUNDS: u64 = 2000;
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let (calls, stop, late) = (Calls::new()?, Count::new()?, Count::new()?);
        let adder = {
            let (cntr, stop) = (cntr.clone(), stop.clone());
            thread(move || {
                while stop.get() == 0 {
                    cntr.add(1);
                    core::hint::spin_loop();
                }
            })?
        };
        for round in 0..ROUNDS {
            let gone = Count::new()?;
            let callback = {
                let (calls, gone, late) = (calls.clone(), gone.clone(), late.clone());
                Registration::new(&cntr, move |callback: &Arc<Callback<Cntr>>, why| {
                    calls.call(why, || {
                        late.add(gone.get());
                        let cntr = callback.object();
                        let _ = callback.arm(at_least(cntr, cntr.read() + 1));
                        late.add(gone.get());
                    })
                })?
            };
            let _ = callback.arm(at_least(&cntr, cntr.read() + round % 100));
            if round % 4 == 0 {
                sleep_us(round % 16 * 10);
            }
            if callback.unregister().is_ok() {
                gone.add(1);
            }
        }
        stop.add(1);
        adder.join();
        ensure_eq!(late.get(), 0);
        ensure!(calls.are(calls.get()));
        // No waiter was left behind.
        ensure_eq!(waiting(&cntr), 0);
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn tasks_arm_and_unregister_at_the_same_time() -> Result {
        const ROUNDS: u32 = 300;
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let calls = Calls::new()?;
        let mut armed = 0;
        for _ in 0..ROUNDS {
            let callback = record(&cntr, &calls)?;
            let arming = {
                let (callback, cntr) = (Arc::clone(&callback), cntr.clone());
                thread(move || {
                    while callback.arm(at_least(&cntr, cntr.read() + 1)) != Err(ESHUTDOWN) {
                        cntr.add(1);
                    }
                })?
            };
            armed += u32::from(eventually(|| calls.get() != 0));
            ensure_eq!(callback.unregister(), Ok(()));
            arming.join();
            ensure_eq!(waiting(&cntr), 0);
        }
        ensure_eq!(armed, ROUNDS);
        ensure!(calls.are(calls.get()));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn callbacks_and_tasks_enter_and_leave_the_line_of_a_counter() -> Result {
        const ROUNDS: u64 = 3000;
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::Unspec)?;
        let (calls, woken) = (Calls::new()?, Count::new()?);
        let mut threads = KVec::new();
        for step in 1..4 {
            let (cntr, woken) = (cntr.clone(), woken.clone());
            let sleeper = thread(move || {
                while cntr.read() < ROUNDS {
                    let next = (cntr.read() + step).min(ROUNDS);
                    if cntr.wait(next, soon(), &mut 0).is_err() {
                        return;
                    }
                }
                woken.add(1);
            })?;
            threads.push(sleeper, GFP_KERNEL)?;
        }
        let mut callbacks = KVec::new();
        for step in 1..8 {
            let (calls, woken) = (Calls::new()?, woken.clone());
            let callback = Registration::new(&cntr, move |callback: &Arc<Callback<Cntr>>, why| {
                calls.call(why, || loop {
                    let cntr = callback.object();
                    if cntr.read() >= ROUNDS {
                        return woken.add(u32::from(calls.are(calls.get())));
                    }
                    let next = (cntr.read() + step).min(ROUNDS);
                    // Arming needs no memory, whatever the position in the line was.
                    if matches!(callback.arm(at_least(cntr, next)), Ok(None)) {
                        return;
                    }
                })
            })?;
            ensure_eq!(callback.arm(at_least(&cntr, step)), Ok(None));
            callbacks.push(callback, GFP_KERNEL)?;
        }
        let last = record(&cntr, &calls)?;
        let seen = cntr.seen();
        ensure_eq!(last.arm(WaitCondition::AnyChange(seen)), Ok(None));
        for _ in 0..ROUNDS {
            cntr.add(1);
            core::hint::spin_loop();
        }
        drop(threads);
        ensure!(eventually(|| woken.get() == 3 + 7));
        ensure!(eventually(|| calls.are(1)));
        ensure_eq!(waiting(&cntr), 0);
        force_close(&*cntr);
        Ok(())
    }
}
