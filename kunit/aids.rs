// SPDX-License-Identifier: GPL-2.0

//! What the suites of all floors stand on: threads that can be waited for, and patience.

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

/// Time in which everything that must happen has happened, or it never does.
pub(crate) const LONG: u64 = 10_000 * MS;

/// Sleeps until `holds`; false: it never did.
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

/// Gives those time who would do what they must not.
pub(crate) fn a_while() {
    fsleep(Delta::from_millis(20));
}

/// A number that threads count with.
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

/// Runs `run` in a thread.
pub(crate) fn thread(run: impl FnOnce() + Send + 'static) -> Result<Join> {
    kthread::spawn(c"kfi-test", run)
}

/// A user that no task has. Those of different suites have different numbers.
pub(crate) fn user(n: u32) -> Kuid {
    Kuid::from_raw(bindings::kuid_t {
        val: 0xf00d_0000 + n,
    })
}
