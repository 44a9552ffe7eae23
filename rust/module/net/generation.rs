// SPDX-License-Identifier: GPL-2.0

//! The generation of addresses: a number that grows whenever an address, an interface or a link of
//! any namespace changes.
//!
//! The kernel may take an address from an interface at any time, and give it to another one. So
//! whoever uses an address asks at each use whether it still is its link's. With a [`Checked`] that
//! is a load and a compare; only after a change the addresses of the interface are looked up again.
//!
//! The kernel's notifiers advance the generation after they have changed an address, so a check that
//! begins with the new generation sees the change. Only a positive result is kept, so nothing has to
//! be told when an address comes.

use crate::shim::net::AddrEvents;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed, //
};

/// 0 is the generation of what was never checked.
static GENERATION: Atomic<u64> = Atomic::new(1);

/// The present generation. Any context.
#[inline(always)]
pub(super) fn generation() -> u64 {
    // Acquire pairs with the full order in `advance`: whoever sees a generation sees the change that
    // began it.
    GENERATION.load(Acquire)
}

/// Begins a new generation, after a change. Any context.
pub(super) fn advance() {
    GENERATION.fetch_add(1, Full);
}

/// Handles the kernel's events of addresses.
pub(super) struct AddrHandler;

impl AddrEvents for AddrHandler {
    fn event() {
        advance();
    }
}

/// The generation in which something about addresses was found to be so.
pub(crate) struct Checked(Atomic<u64>);

impl Checked {
    /// Nothing was checked yet.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether it was found to be so in `generation`. Any context.
    #[inline(always)]
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.0.load(Relaxed) == generation
    }

    /// It was found to be so, by a check that began in `generation`. Any context.
    pub(super) fn set(&self, generation: u64) {
        self.0.store(generation, Relaxed);
    }

    /// Whether it still is so, which `check` finds out if anything has changed since. Any context
    /// that `check` allows.
    #[inline(always)]
    pub(crate) fn still(&self, check: impl FnOnce() -> bool) -> bool {
        let now = generation();
        self.is_of(now) || self.check_again(now, check)
    }

    #[cold]
    #[inline(never)]
    fn check_again(&self, now: u64, check: impl FnOnce() -> bool) -> bool {
        let is_so = check();
        if is_so {
            self.set(now);
        }
        is_so
    }
}
