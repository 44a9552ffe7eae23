// SPDX-License-Identifier: GPL-2.0

//! The generation of the addresses of a network namespace: a number that grows when an address of
//! the namespace changes, when an interface with a link changes, and when a link is removed.
//!
//! The kernel may take an address from an interface at any time, and an administrator may give it
//! to another host. So each use of an address checks that the link still has it. The check is a
//! load and a compare ([`Checked`]). After a change, the addresses of the interface are read again.
//!
//! Each namespace has its own generation: a user who may change the addresses of one namespace does
//! not cause look-ups in others.
//!
//! The kernel reports a change after it was made ([`Receive::addrs_changed`]), so a check that
//! begins with the new generation sees the change. Only a positive result is kept, so nothing has
//! to be told when an address comes.
//!
//! [`Receive::addrs_changed`]: crate::shim::udp::Receive::addrs_changed

use super::link::Link;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// The generation of a namespace. 0 is that of what was never checked.
pub(super) struct Generation(Atomic<u64>);

impl Generation {
    /// Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(1)), GFP_KERNEL_ACCOUNT)?)
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        // Acquire pairs with the full order in `advance`: whoever sees a generation sees the change
        // that began it.
        self.0.load(Acquire)
    }

    /// Begins a new generation, after a change. Any context.
    pub(super) fn advance(&self) {
        self.0.fetch_add(1, Full);
    }
}

/// Caches that a condition on the addresses of a namespace held: the generation of the check.
pub(crate) struct Checked {
    found: Atomic<u64>,
    generation: Arc<Generation>,
}

impl Checked {
    /// Nothing was checked yet in the namespace of `link`. Process context; does not sleep.
    pub(crate) fn new(link: &Link) -> Self {
        Self {
            found: Atomic::new(0),
            generation: link.socket().receiver().generation().clone(),
        }
    }

    /// The present generation. Any context.
    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.generation.now()
    }

    /// Whether it was found to be so in `generation`. Any context.
    #[inline(always)]
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.found.load(Relaxed) == generation
    }

    /// It was found to be so, by a check that began in `generation`. Any context.
    pub(super) fn set(&self, generation: u64) {
        self.found.store(generation, Relaxed);
    }

    /// Returns whether the condition holds. Calls `check` only if the generation has changed since
    /// the last check that succeeded. Any context that `check` allows.
    #[inline(always)]
    pub(crate) fn still(&self, check: impl FnOnce() -> bool) -> bool {
        let now = self.now();
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
