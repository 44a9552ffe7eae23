// SPDX-License-Identifier: GPL-2.0

//! The counter: two values and those who wait for them.
//!
//! This is the primitive under all that counts: `kfi_cntr` ([`Cntr`](super::Cntr)), and later the
//! completion counters of verbs and the source of triggered operations. What its values and
//! conditions mean is the core crate's ([`kfi_core::cntr`]); here it gets memory, a lock, and tasks
//! to wake.
//!
//! ```text
//!   add: one atomic add, one compare --- below every threshold ---> done, no lock
//!                                   \--- a threshold was met --> lock, wake who is due, unlock
//! ```
//!
//! The values stand at the beginning of a page that programs map read-only, so reading them costs
//! a program a load. Who waits stands in line under a spin lock in the order of the thresholds: a
//! task in a call, or a descriptor ([`Fd`](super::fd::Fd)); exactly those that are due are taken
//! out and woken, in O(log n) each, whatever the number of those that are not.
//!
//! # Context
//!
//! Reading and adding: process context, under any lock that is not the counter's. Nothing here
//! allocates or sleeps except where it says so.
//!
//! # Locks
//!
//! `Counter::line` is a spin lock; under it the lock of a descriptor's wait queue is taken.

use core::mem::offset_of;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::{
    cntr::{
        Armed,
        Cond,
        Crossed,
        Gate,
        Outcome,
        Seen,
        Waiter,
        Waiters, //
    },
    errno::Errno,
    wait::Deadline, //
};

use super::fd::Bell;
use crate::{
    mem::{
        SharedPages,
        SharedWord, //
    },
    provider::wait::{
        sleep,
        Why, //
    },
    shim::{
        bindings::kfabric_cntr_values,
        errno::to_error,
        rb::{
            RbDueMap,
            RbSlot, //
        },
        wait::{
            Sleeper,
            Waker, //
        },
        word::AtomicWord, //
    }, //
};

/// Who stands in line.
pub(super) enum Token {
    /// A task that sleeps in a call.
    Sleeper(Arc<Waker>),
    /// A descriptor.
    Fd(Arc<Bell>),
}

/// A place in line to be: what [`Counter::enter`] needs.
pub(super) type Slot = RbSlot<Token>;

type Line = Waiters<RbDueMap<Token>>;

impl Token {
    fn wake(self, why: Why) {
        match self {
            Self::Sleeper(waker) => {
                waker.wake(why.reason());
            }
            Self::Fd(bell) if why == Why::Closed => bell.hang_up(),
            Self::Fd(bell) => bell.ring(),
        }
    }

    fn release(self, outcome: Outcome) {
        self.wake(match outcome {
            Outcome::Reached => Why::Ready,
            Outcome::ErrorChanged => Why::ErrorChanged,
        });
    }
}

/// See the module's story.
#[pin_data]
pub(crate) struct Counter {
    gate: Gate<SharedWord, AtomicWord>,
    page: Arc<SharedPages>,
    /// Set under the lock of `line`, which nobody enters any more afterwards.
    closed: AtomicFlag,
    #[pin]
    line: SpinLock<Line>,
}

impl Counter {
    /// A counter of (0, 0) that wraps after `max_value`; 0 stands for 2^64 - 1. `ENOMEM`. Sleeps.
    pub(crate) fn new(max_value: u64) -> Result<impl PinInit<Self>> {
        let page = SharedPages::new(size_of::<kfabric_cntr_values>())?;
        let word = |offset| page.word(offset).ok_or(EINVAL);
        let gate = Gate::new(
            word(offset_of!(kfabric_cntr_values, value))?,
            word(offset_of!(kfabric_cntr_values, err))?,
            AtomicWord::new(0),
            max_value,
        );
        Ok(pin_init!(Self {
            gate,
            page,
            closed: AtomicFlag::new(false),
            line <- new_spinlock!(
                Waiters::new(RbDueMap::new(), RbDueMap::new()),
                "Counter::line"
            ),
        }))
    }

    /// The page that programs map read-only: `struct kfabric_cntr_values`.
    pub(crate) fn page(&self) -> &Arc<SharedPages> {
        &self.page
    }

    /// The success value.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.gate.read()
    }

    /// The error value.
    #[inline]
    pub(crate) fn err(&self) -> u64 {
        self.gate.read_err()
    }

    /// Adds to the success value and wakes who is due.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        if let Some(crossed) = self.gate.add(n) {
            self.fire(crossed);
        }
    }

    #[cold]
    #[inline(never)]
    fn fire(&self, crossed: Crossed) {
        self.line.lock().fire(&self.gate, crossed, Token::release);
    }

    /// Adds to the error value and ends every wait.
    pub(crate) fn adderr(&self, n: u64) {
        self.line.lock().add_err(&self.gate, n, Token::release);
    }

    /// Sets the success value. `EINVAL` above the maximum.
    pub(crate) fn set(&self, value: u64) -> Result {
        let mut line = self.line.lock();
        line.set(&self.gate, value, Token::release)
            .map_err(to_error)
    }

    /// Sets the error value and ends every wait. `EINVAL` above the maximum.
    pub(crate) fn seterr(&self, value: u64) -> Result {
        let mut line = self.line.lock();
        line.set_err(&self.gate, value, Token::release)
            .map_err(to_error)
    }

    /// Both values as they are now, for [`changed`](Self::changed).
    pub(crate) fn seen(&self) -> Seen {
        self.line.lock().seen(&self.gate)
    }

    /// Both values as they are now, if anything was written since `since`.
    pub(crate) fn changed(&self, since: &Seen) -> Option<Seen> {
        let line = self.line.lock();
        line.changed(&self.gate, since)
            .then(|| line.seen(&self.gate))
    }

    /// Waits until the success value reaches `threshold`.
    ///
    /// `ETIMEDOUT`; `KFI_EAVAIL` the error value was written meanwhile; `ERESTARTSYS` a signal is
    /// pending; `EBADF` the counter was closed by force; `ENOMEM`. Success goes before all of
    /// these. Sleeps, unless the deadline polls.
    pub(crate) fn wait(&self, threshold: u64, deadline: Deadline) -> Result {
        if self.read() >= threshold {
            return Ok(());
        }
        if deadline == Deadline::Poll {
            return Err(ETIMEDOUT);
        }
        let sleeper = Sleeper::new()?;
        let slot = RbSlot::new(Token::Sleeper(sleeper.waker()))?;
        let Some(waiter) = self.enter(Cond::AtLeast(threshold), slot)? else {
            return Ok(());
        };
        match sleep(&sleeper, deadline, || self.leave(&waiter))? {
            Why::Ready | Why::Signalled => Ok(()),
            Why::ErrorChanged => Err(to_error(Errno::KFI_EAVAIL)),
            Why::Closed => Err(EBADF),
        }
    }

    /// Gets in line, or tells that there is nothing to wait for (`None`). `EBADF` the counter was
    /// closed by force.
    fn enter(&self, cond: Cond, slot: Slot) -> Result<Option<Waiter>> {
        self.enter_locked(&mut self.line.lock(), cond, slot)
    }

    fn enter_locked(&self, line: &mut Line, cond: Cond, slot: Slot) -> Result<Option<Waiter>> {
        if self.is_closed() {
            return Err(EBADF);
        }
        Ok(match line.arm(&self.gate, cond, slot) {
            Armed::Reached(_slot) => None,
            Armed::Waiting(waiter) => Some(waiter),
        })
    }

    /// Leaves the line. False: was taken out and woken before.
    pub(super) fn leave(&self, waiter: &Waiter) -> bool {
        self.line.lock().disarm(&self.gate, waiter).is_some()
    }

    /// Takes a descriptor from `old`, its place in line, to a new one, and silences its bell, all
    /// at once. Otherwise as [`enter`](Self::enter).
    pub(super) fn move_bell(
        &self,
        bell: &Bell,
        old: Option<Waiter>,
        cond: Cond,
        slot: Slot,
    ) -> Result<Option<Waiter>> {
        let mut line = self.line.lock();
        if let Some(waiter) = old {
            line.disarm(&self.gate, &waiter);
        }
        // Bells are rung under the lock, so whatever rang this one is over.
        bell.silence();
        self.enter_locked(&mut line, cond, slot)
    }

    /// Ends it by force: all who wait are woken and get `EBADF`, as does who comes later.
    /// Idempotent.
    pub(crate) fn close(&self) {
        let mut line = self.line.lock();
        self.closed.store(true, Release);
        line.release_all(&self.gate, |token| token.wake(Why::Closed));
    }

    /// Whether it was ended by force.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// How many wait, and the lowest threshold that is waited for.
    pub(crate) fn waiting(&self) -> (u32, Option<u64>) {
        let line = self.line.lock();
        (line.len(), line.lowest())
    }
}
