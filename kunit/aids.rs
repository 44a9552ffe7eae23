// SPDX-License-Identifier: GPL-2.0

//! Helpers of the suites of all layers: threads, and waiting with a time limit.

pub(crate) use super::kthread::allow_kill;
use super::{
    kthread::{
        self,
        Join, //
    },
    sched::now_ns, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// A time in ns after which an event that has not happened never will.
pub(crate) const LONG: u64 = 10_000 * MS;

/// Sleeps until `holds` returns true. Returns false if it does not within [`LONG`].
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = now_ns() + LONG;
    while !holds() {
        if now_ns() > end {
            return false;
        }
        fsleep(Delta::from_micros(200));
    }
    true
}

/// Sleeps for a short time, in which unwanted events would happen.
pub(crate) fn a_while() {
    fsleep(Delta::from_millis(20));
}

/// A counter for threads.
pub(crate) struct Count(Atomic<u32>);

impl Count {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    pub(crate) fn add(&self, n: u32) {
        self.0.fetch_add(n, Full);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
}

/// Runs `run` in a kernel thread.
pub(crate) fn thread(run: impl FnOnce() + Send + 'static) -> Result<Join> {
    kthread::spawn(c"kfi-test", run)
}

/// Returns a user that no task has. Suites use different numbers.
pub(crate) fn user(n: u32) -> Kuid {
    Kuid::from_raw(bindings::kuid_t {
        val: 0xf00d_0000 + n,
    })
}
