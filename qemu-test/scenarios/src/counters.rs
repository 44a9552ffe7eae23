// SPDX-License-Identifier: GPL-2.0
//! Counters by hand, and what moves them.

use crate::{
    harness::tests,
    host::{SOON, domain, until_asleep},
};
use kfi::{Errno, Wait};
use std::time::{Duration, Instant};

tests![
    values_are_read_and_mapped,
    a_waiter_is_released_when_its_threshold_is_reached,
    time_runs_out,
    an_error_releases,
];

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
}

fn a_waiter_is_released_when_its_threshold_is_reached() {
    let (_, domain) = domain();
    let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
    let waiter = {
        let cntr = cntr.clone();
        std::thread::spawn(move || cntr.wait(10, SOON).map(|values| values.value))
    };
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(!waiter.is_finished() || cntr.value() >= 10);
        cntr.add(1).expect("add");
    }
    assert_eq!(waiter.join().expect("join").expect("wait"), 10);
}

fn time_runs_out() {
    let (_, domain) = domain();
    let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
    let begin = Instant::now();
    let error = cntr
        .wait(1, Duration::from_millis(50))
        .expect_err("nobody added");
    assert_eq!(error.errno(), Some(Errno::ETIMEDOUT));
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let error = cntr.wait(1, Duration::ZERO).expect_err("nobody added");
    assert_eq!(error.errno(), Some(Errno::ETIMEDOUT));
    cntr.add(1).expect("add");
    assert!(cntr.wait(1, Duration::ZERO).is_ok());
}

fn an_error_releases() {
    let (_, domain) = domain();
    let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
    // One that was there before does not.
    cntr.adderr(1).expect("adderr");
    let waiter = {
        let cntr = cntr.clone();
        std::thread::spawn(move || cntr.wait(10, SOON).map(|values| values.value))
    };
    until_asleep(&cntr, 1);
    cntr.adderr(1).expect("adderr");
    let error = waiter.join().expect("join").expect_err("an error came");
    assert_eq!(error.errno(), Some(Errno::KFI_EAVAIL));
}
