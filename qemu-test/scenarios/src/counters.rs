// SPDX-License-Identifier: GPL-2.0
//! Counters changed by calls: values, thresholds, wake-ups, and the ends of waits.
//!
//! Operations that count are in [`counting`](crate::counting), a counter as a descriptor in
//! [`descriptors`](crate::descriptors).

use crate::{
    alone::stat_of,
    descriptors::{counter, readable},
    harness::tests,
    host::{SOON, domain, errno, until, until_asleep},
    raw::{File, arg, refused},
    threads::{Sleeper, cloned, handle_signals, in_the_handler, signals},
};
use kfi::{Cntr, Deadline, Errno, StatClass, StatValues, Values, Wait, abi};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

tests![
    values_are_read_and_mapped,
    attributes_that_are_not_given_have_defaults,
    an_error_releases_a_waiter,
    success_goes_before_a_new_error,
    an_error_that_is_taken_back_is_not_missed,
    an_error_value_that_stays_the_same_releases_nobody,
    an_error_during_a_signal_handler_releases,
    a_restarting_signal_does_not_end_a_wait,
    a_value_that_was_there_for_a_moment_is_not_missed,
    values_wrap_behind_the_maximum,
    a_wrap_releases_waiters_that_it_passes,
    thresholds_are_unsigned,
    each_add_wakes_exactly_the_due_waiters,
    one_set_wakes_all_due_waiters,
    waiters_that_are_not_due_are_not_woken,
    many_waiters_and_adders_lose_nothing,
    statistics_show_waiters_and_thresholds,
];

/// A thread that waits for `threshold`.
fn waiter(cntr: &Cntr, threshold: u64) -> Sleeper<kfi::Result<Values>> {
    let cntr = cntr.clone();
    Sleeper::new(move || cntr.wait(threshold, SOON))
}

fn values_are_read_and_mapped() {
    let (_, domain) = domain();
    let cntr = domain.cntr().open().expect("cntr");
    cntr.add(5).expect("add");
    cntr.adderr(2).expect("adderr");
    let values = cntr.read().expect("read");
    assert_eq!((values.value, values.err), (5, 2));
    assert_eq!((cntr.value(), cntr.err()), (5, 2));
    cntr.set(1).expect("set");
    cntr.seterr(0).expect("seterr");
    assert_eq!((cntr.value(), cntr.err()), (1, 0));
    cntr.add(u64::MAX).expect("add");
    assert_eq!(cntr.value(), 0, "2^64 values wrap");
    cntr.seterr(u64::MAX).expect("seterr");
    cntr.adderr(2).expect("adderr");
    assert_eq!(cntr.err(), 1, "2^64 errors wrap");
    assert_eq!(cntr.ops_flags().expect("flags"), 0);
}

fn attributes_that_are_not_given_have_defaults() {
    let (file, _, domain) = File::open().and_domain();
    // Events of completions, no wait object, the full width.
    let cntr = file.make(arg!(kfabric_cntr_open: domain));
    file.cntr_modify(cntr, abi::KFABRIC_CNTR_SET, u64::MAX)
        .expect("set");
    assert_eq!(file.cntr_read(cntr), Ok((u64::MAX, 0)));
    // The flags are 0 first, and then those that were set.
    let flags = |set, flags| file.call(arg!(kfabric_opsflag: handle: cntr, set, flags));
    assert_eq!(flags(0, 0).map(|arg| arg.flags), Ok(0));
    for value in [abi::KFI_COMPLETION, abi::KFI_INJECT | abi::KFI_MORE, 0] {
        assert!(flags(1, value).is_ok());
        assert_eq!(flags(0, 0).map(|arg| arg.flags), Ok(value));
    }
    assert!(flags(1, abi::KFI_COMPLETION).is_ok());
    refused(flags(1, 1 << 63), Errno::EINVAL);
    assert_eq!(flags(0, 0).map(|arg| arg.flags), Ok(abi::KFI_COMPLETION));
}

fn an_error_releases_a_waiter() {
    let cntr = counter();
    // One that was there before does not.
    cntr.adderr(1).expect("adderr");
    let waiter = waiter(&cntr, 10);
    until_asleep(&cntr, 1);
    cntr.adderr(1).expect("adderr");
    assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
}

fn success_goes_before_a_new_error() {
    let cntr = counter();
    // Both changes came before the wait.
    cntr.add(5).expect("add");
    cntr.adderr(1).expect("adderr");
    let values = cntr.wait(5, SOON).expect("wait");
    assert_eq!((values.value, values.err), (5, 1));
    // Both changes come before the sleeper runs.
    for round in 1..=50u64 {
        cntr.set(0).expect("set");
        let waiter = waiter(&cntr, 3);
        until_asleep(&cntr, 1);
        cntr.add(3).expect("add");
        cntr.adderr(round).expect("adderr");
        waiter.end().expect("the success came first");
    }
}

fn an_error_that_is_taken_back_is_not_missed() {
    let cntr = counter();
    for back in [0, 7] {
        cntr.seterr(back).expect("seterr");
        let waiter = waiter(&cntr, 1);
        until_asleep(&cntr, 1);
        cntr.adderr(1).expect("adderr");
        cntr.seterr(back).expect("seterr");
        assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
    }
}

/// kfi_cntr(3): a *change* of the error value unblocks.
fn an_error_value_that_stays_the_same_releases_nobody() {
    let cntr = counter();
    cntr.adderr(3).expect("adderr");
    let fd = cntr.wait_fd().expect("fd");
    fd.arm(10).expect("arm");
    let waiter = waiter(&cntr, 10);
    until_asleep(&cntr, 2);
    cntr.adderr(0).expect("adderr");
    cntr.seterr(3).expect("seterr");
    until_asleep(&cntr, 2);
    assert!(!waiter.is_finished());
    assert!(!readable(&fd));
    cntr.seterr(2).expect("seterr");
    assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
    assert!(readable(&fd));
}

/// A thread whose wait is restarted after a signal's handler is inside kfi_cntr_wait all the time.
fn an_error_during_a_signal_handler_releases() {
    let cntr = counter();
    handle_signals(true);
    for taken_back in [false, true] {
        let before = cntr.err();
        let waiter = waiter(&cntr, 10);
        waiter.until_asleep();
        in_the_handler(&waiter, || {
            cntr.adderr(1).expect("adderr");
            if taken_back {
                cntr.seterr(before).expect("seterr");
            }
        });
        assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
    }
    // Without a change the wait continues, and ends as usual.
    let waiter = waiter(&cntr, 10);
    waiter.until_asleep();
    in_the_handler(&waiter, || ());
    until_asleep(&cntr, 1);
    cntr.add(10).expect("add");
    assert_eq!(waiter.end().expect("wait").value, 10);
}

fn a_restarting_signal_does_not_end_a_wait() {
    handle_signals(true);
    let cntr = counter();
    let waiter = Sleeper::new(cloned!(cntr; move || cntr.wait(1, Deadline::FOREVER)));
    for round in 1..=3 {
        until_asleep(&cntr, 1);
        waiter.interrupt();
        until("a signal handled", || signals() == round);
    }
    until_asleep(&cntr, 1);
    assert!(!waiter.is_finished());
    cntr.add(1).expect("add");
    assert_eq!(waiter.end().expect("wait").value, 1);
    // A deadline is a time, not a duration: a restart does not extend it.
    let begin = Instant::now();
    let waiter = Sleeper::new(cloned!(cntr; move || cntr.wait(2, Duration::from_millis(300))));
    for round in 4..=6 {
        std::thread::sleep(Duration::from_millis(60));
        waiter.interrupt();
        until("a signal handled", || signals() == round);
    }
    assert_eq!(errno(waiter.end()), Some(Errno::ETIMEDOUT));
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    // 300 ms after the last signal would be 480 ms.
    assert!(took < Duration::from_millis(470), "{took:?}");
}

fn a_value_that_was_there_for_a_moment_is_not_missed() {
    let cntr = counter();
    for _ in 0..50 {
        cntr.set(0).expect("set");
        let (three, four) = (waiter(&cntr, 3), waiter(&cntr, 4));
        until_asleep(&cntr, 2);
        cntr.set(3).expect("set");
        cntr.set(1).expect("set");
        three.end().expect("3 was reached");
        until_asleep(&cntr, 1);
        cntr.set(4).expect("set");
        four.end().expect("4 was reached");
    }
}

fn values_wrap_behind_the_maximum() {
    let (_, domain) = domain();
    let cntr = domain.cntr().max_value(9).open().expect("cntr");
    let mut model = 0u64;
    for n in [1, 8, 1, 10, 25, 9, 9, u64::MAX, 0, 3] {
        cntr.add(n).expect("add");
        model = ((u128::from(model) + u128::from(n)) % 10) as u64;
        assert_eq!(cntr.value(), model, "after {n} more");
    }
    cntr.set(9).expect("set");
    assert_eq!(errno(cntr.set(10)), Some(Errno::EINVAL));
    assert_eq!(errno(cntr.seterr(10)), Some(Errno::EINVAL));
    cntr.seterr(8).expect("seterr");
    cntr.adderr(3).expect("adderr");
    assert_eq!((cntr.value(), cntr.err()), (9, 1));
    let cntr = domain.cntr().max_value(u64::MAX).open().expect("cntr");
    cntr.set(u64::MAX).expect("set");
    cntr.add(1).expect("add");
    assert_eq!(cntr.value(), 0);
}

fn a_wrap_releases_waiters_that_it_passes() {
    let (_, domain) = domain();
    for max in [9, u64::MAX] {
        let cntr = domain
            .cntr()
            .wait(Wait::Queue)
            .max_value(max)
            .open()
            .expect("cntr");
        cntr.set(max - 2).expect("set");
        let passed = waiter(&cntr, max);
        until_asleep(&cntr, 1);
        cntr.add(5).expect("add");
        assert_eq!(cntr.value(), 2);
        passed.end().expect("it was passed");
    }
    // A threshold above the maximum is never reached.
    let cntr = domain
        .cntr()
        .wait(Wait::Queue)
        .max_value(9)
        .open()
        .expect("cntr");
    let never = Sleeper::new(cloned!(cntr; move || cntr.wait(10, Duration::from_millis(100))));
    until_asleep(&cntr, 1);
    cntr.add(25).expect("add");
    assert_eq!(errno(never.end()), Some(Errno::ETIMEDOUT));
}

fn thresholds_are_unsigned() {
    let cntr = counter();
    let half = 1 << 63;
    cntr.add(1).expect("add");
    assert_eq!(
        errno(cntr.wait(half, Duration::ZERO)),
        Some(Errno::ETIMEDOUT)
    );
    let (above, top) = (waiter(&cntr, half + 1), waiter(&cntr, u64::MAX));
    until_asleep(&cntr, 2);
    cntr.add(half).expect("add");
    above.end().expect("2^63 + 1");
    assert!(cntr.wait(half, Duration::ZERO).is_ok());
    assert!(cntr.wait(1, Duration::ZERO).is_ok());
    assert!(!top.is_finished());
    cntr.set(u64::MAX).expect("set");
    top.end().expect("2^64 - 1");
}

/// `count` threads that wait for 1, 2, ..., and the number of them that were released.
fn crowd(cntr: &Cntr, count: u64) -> (Vec<Sleeper<()>>, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    // The threads start in another order than that of their thresholds.
    let threads = (0..count)
        .map(|i| i * 37 % count + 1)
        .map(|threshold| {
            let (cntr, released) = (cntr.clone(), released.clone());
            Sleeper::new(move || {
                let values = cntr.wait(threshold, SOON).expect("wait");
                assert!(values.value >= threshold);
                released.fetch_add(1, SeqCst);
            })
        })
        .collect();
    until_asleep(cntr, count);
    (threads, released)
}

fn each_add_wakes_exactly_the_due_waiters() {
    let cntr = counter();
    let (threads, released) = crowd(&cntr, 64);
    for value in 1..=64usize {
        cntr.add(1).expect("add");
        until("the one that is due released", || {
            released.load(SeqCst) >= value
        });
        until_asleep(&cntr, 64 - value as u64);
        assert_eq!(released.load(SeqCst), value);
    }
    threads.into_iter().for_each(Sleeper::end);
}

fn one_set_wakes_all_due_waiters() {
    let cntr = counter();
    let (threads, released) = crowd(&cntr, 64);
    for (value, due) in [(40u64, 40), (0, 40), (39, 40), (63, 63), (1000, 64)] {
        cntr.set(value).expect("set");
        until("all who are due released", || released.load(SeqCst) >= due);
        until_asleep(&cntr, 64 - due as u64);
        assert_eq!(released.load(SeqCst), due, "at {value}");
    }
    threads.into_iter().for_each(Sleeper::end);
}

fn waiters_that_are_not_due_are_not_woken() {
    let cntr = counter();
    let sleepers: Vec<_> = [1000, 1001, u64::MAX]
        .map(|threshold| waiter(&cntr, threshold))
        .into();
    until_asleep(&cntr, 3);
    sleepers.iter().for_each(Sleeper::until_asleep);
    let before: Vec<u64> = sleepers.iter().map(Sleeper::sleeps).collect();
    for _ in 0..999 {
        cntr.add(1).expect("add");
    }
    let after: Vec<u64> = sleepers.iter().map(Sleeper::sleeps).collect();
    assert_eq!(before, after, "they ran for nothing");
    cntr.set(u64::MAX).expect("set");
    for sleeper in sleepers {
        sleeper.end().expect("wait");
    }
}

fn many_waiters_and_adders_lose_nothing() {
    const ADDERS: u64 = 3;
    const EACH: u64 = 1500;
    let cntr = counter();
    // Each thread waits for every value, or for every value of its own, one after another.
    let waiters: Vec<_> = (1..=4u64)
        .map(|step| {
            let cntr = cntr.clone();
            Sleeper::new(move || {
                for threshold in (1..=ADDERS * EACH).step_by(step as usize) {
                    let values = cntr.wait(threshold, SOON).expect("a wake-up was lost");
                    assert!(values.value >= threshold);
                }
            })
        })
        .collect();
    let adders: Vec<_> = (0..ADDERS)
        .map(|_| {
            let cntr = cntr.clone();
            Sleeper::new(move || {
                for i in 0..EACH {
                    cntr.add(1).expect("add");
                    if i % 8 == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    adders.into_iter().for_each(Sleeper::join);
    assert_eq!(cntr.value(), ADDERS * EACH);
    waiters.into_iter().for_each(Sleeper::join);
}

fn statistics_show_waiters_and_thresholds() {
    let cntr = counter();
    let values = || stat_of(StatClass::Cntr, cntr.handle()).expect("the counter is listed");
    let is = |value, err, waiters, threshold| StatValues::Cntr {
        value,
        err,
        waiters,
        threshold,
        work: 0,
        work_threshold: None,
        work_due: 0,
    };
    assert_eq!(values(), is(0, 0, 0, None));
    let (seven, nine) = (waiter(&cntr, 7), waiter(&cntr, 9));
    until_asleep(&cntr, 2);
    cntr.add(3).expect("add");
    assert_eq!(values(), is(3, 0, 2, Some(7)));
    cntr.add(4).expect("add");
    seven.end().expect("wait");
    assert_eq!(values(), is(7, 0, 1, Some(9)));
    cntr.adderr(1).expect("adderr");
    assert_eq!(errno(nine.end()), Some(Errno::KFI_EAVAIL));
    assert_eq!(values(), is(7, 1, 0, None));
}
