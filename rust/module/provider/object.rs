// SPDX-License-Identifier: GPL-2.0

//! What all objects have in common: who made them, who uses them, how they end.
//!
//! An object lives in an [`Arc`], so memory is never the question. The question is *use*: an
//! object may be closed only when nothing is made from it, bound to it or waiting on it. Use is
//! counted by binding and never guessed from references: whoever builds on an object holds a
//! [`Used`], taken while the object was open, and gives it back at a moment of its own choosing.
//!
//! ```text
//!            take            take/put
//!   open,0 --------> open,n --------> open,0 --close---> closing -----------> closed
//!                                                          |  ^                 ^
//!                                                 a signal |  | close           |
//!                                                          v  |                 |
//!                                                         halted --force_close--'
//!   open,n --close--> EBUSY, and nothing changes
//!   open,n --force_close (the owner is gone)-------------------------------> closed
//! ```
//!
//! [`close`] refuses while there is use and changes nothing then. It waits until no operation
//! places data for the object any more. These operations are other tasks', which may not be
//! scheduled, so a fatal signal ends the wait, and `close` fails with `EINTR`. The object is useless
//! then, but not torn down: `halted`. Another [`close`] goes on from there.
//!
//! [`force_close`] is for an owner that has gone (exit, kill): faces call it in order of dependence,
//! so that the only uses still there are those of wait descriptors, which find the object closed.
//! It waits for no operation. No call of the owner is running then, so those that are still inside
//! ([`Rundown`](super::rundown::Rundown)) are of peers, and of the module's workers. They find this:
//!
//! - **Memory.** An operation has references to the objects that it works with, and these to all
//!   that they are bound to. The bytes that it copies are in pages which are pinned until the
//!   last [`MemRef`](crate::mem::MemRef) goes, also if the process that mapped them has ended. So
//!   they are not anybody else's.
//! - **Charges** to the owner's account, its cgroup and its `RLIMIT_MEMLOCK` end with the memory that
//!   they are for: the owner's user pays for it until the copy has ended. The count of locked pages
//!   keeps the `mm_struct`, but not its mappings.
//! - **Completions** go to a CQ and counters which are closed, or will be soon. They store what is
//!   told in memory that these still have, and wake nobody: whoever slept there was woken with the
//!   close.
//! - **What is left behind.** An operation that puts something into an object looks behind that
//!   whether the object has been shut, and takes it out again (`arrive` of an endpoint). Either it
//!   sees that, or the teardown sees what was put in.
//! - **The module.** A peer's operation is a call of the peer's open file, which holds the module;
//!   that of a worker is waited for by the module's end
//!   ([`WorkQueues`](crate::shim::work::WorkQueues)). The link and its namespace may go
//!   before: they are only counted in.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/object.rs"]
mod kunit;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

use kfi_core::word::Word;

use crate::{
    mem::Budget,
    shim::{
        cred::Owner,
        word::AtomicWord, //
    }, //
};

/// Who an object is to its owner.
#[derive(Clone)]
pub(crate) struct Ident {
    /// The object's name at the face that made it (a handle; later the address of a `struct kfid`).
    pub(crate) fid: u64,
    /// The owner's context, returned in events.
    pub(crate) context: u64,
    /// The process that made it.
    pub(crate) owner: Arc<Owner>,
    /// What its memory is charged to.
    pub(crate) budget: Budget,
}

impl Ident {
    /// A peer has refused the endpoint access to its memory. Does not sleep.
    pub(crate) fn refused(&self) {
        self.budget.refused(self.number());
    }

    /// Whether an access of the endpoint to a peer's memory has to [enter](Self::enter_access). Any
    /// context.
    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        self.budget.is_delayed(self.number())
    }

    /// See [`Budget::enter_access`].
    pub(crate) fn enter_access(&self, may_sleep: bool) -> Result {
        self.budget.enter_access(self.number(), may_sleep)
    }

    /// A number that differs between the objects of one owner, and mostly between owners.
    fn number(&self) -> u64 {
        let owner: *const Owner = &*self.owner;
        // CAST: A usize is at most 64 bits.
        (owner.addr() as u64) ^ self.fid
    }
}

/// Counts the uses of an object and knows whether it is open.
///
/// # Invariants
///
/// `state` is the number of uses, or one of the constants from [`Uses::HALTED`] on: then it is
/// never a number again, and [`Uses::CLOSED`] stays.
pub(crate) struct Uses {
    state: AtomicWord,
}

impl Uses {
    /// Closed for ever, and torn down by whoever made it so.
    const CLOSED: u64 = u64::MAX;

    /// Somebody is in [`close`].
    const CLOSING: u64 = u64::MAX - 1;

    /// A [`close`] was ended by a signal, and nobody goes on with it yet.
    const HALTED: u64 = u64::MAX - 2;

    /// More are too many to count.
    const MOST: u64 = i32::MAX as u64;

    /// An open object without uses.
    pub(crate) const fn new() -> Self {
        // INVARIANT: Open, no uses.
        Self {
            state: AtomicWord::new(0),
        }
    }

    /// Adds a use; `EBADF` if the object is closed, `EBUSY` if there are too many to count.
    #[inline]
    fn take(&self) -> Result {
        let mut seen = self.state.load();
        loop {
            if seen >= Self::MOST {
                return Err(if seen >= Self::HALTED { EBADF } else { EBUSY });
            }
            match self.state.compare_exchange(seen, seen.wrapping_add(1)) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Gives a use back; nothing if the object has been closed by force meanwhile.
    #[inline]
    fn put(&self) {
        let mut seen = self.state.load();
        while seen != 0 && seen < Self::HALTED {
            match self.state.compare_exchange(seen, seen.wrapping_sub(1)) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Begins to close an object without uses, or goes on with a close that was halted: `EBUSY` if
    /// there are uses, `EBADF` if it was closed already, or somebody is closing it.
    fn begin_to_close(&self) -> Result {
        match self.state.compare_exchange(0, Self::CLOSING) {
            Ok(_) => Ok(()),
            Err(Self::HALTED) => match self.state.compare_exchange(Self::HALTED, Self::CLOSING) {
                Ok(_) => Ok(()),
                Err(_) => Err(EBADF),
            },
            Err(Self::CLOSING | Self::CLOSED) => Err(EBADF),
            Err(_) => Err(EBUSY),
        }
    }

    /// Ends what [`begin_to_close`](Self::begin_to_close) began.
    fn end_close(&self, state: u64) {
        // INVARIANT: Nobody changes what is CLOSING, and `state` is HALTED or CLOSED.
        self.state.store(state);
    }

    /// Closes in any state; `false` if it was closed already, or somebody is closing it.
    fn force_close(&self) -> bool {
        let mut seen = self.state.load();
        while seen < Self::CLOSING {
            match self.state.compare_exchange(seen, Self::CLOSED) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Whether the object has been closed, or a close has begun.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load_acquire() >= Self::HALTED
    }
}

/// An object that can be used and closed.
pub(crate) trait Object: Send + Sync {
    /// Its uses.
    fn uses(&self) -> &Uses;

    /// Lets no operation of others reach the object's memory any more. Called after it has been
    /// marked closed; again, if a wait was ended by a signal. Does not wait for operations. Sleeps.
    fn shut(&self) {}

    /// Waits until no operation places data on behalf of the object, which has been shut. `EINTR`
    /// the current task is being killed. Sleeps.
    fn wait(&self) -> Result {
        Ok(())
    }

    /// Ends it: called once, after it has been shut. Gives back what it uses, and wakes who sleeps
    /// on it. If the owner is gone, operations of others may still be under way inside, and nothing
    /// waits for them: see the module documentation. Sleeps.
    fn teardown(&self);
}

/// Closes `object`, and waits until no operation places data on its behalf any more. `EBUSY` while
/// it is used (nothing has changed then); `EBADF` it was closed, or somebody closes it; `EINTR` the
/// current task is being killed, and the object is to be closed once more. Sleeps.
pub(crate) fn close<T: Object>(object: &T) -> Result {
    object.uses().begin_to_close()?;
    object.shut();
    if let Err(error) = object.wait() {
        object.uses().end_close(Uses::HALTED);
        return Err(error);
    }
    object.teardown();
    object.uses().end_close(Uses::CLOSED);
    Ok(())
}

/// Closes `object` whatever uses it, without waiting for operations of others. For an object of an
/// owner of which no call is running. Sleeps.
pub(crate) fn force_close<T: Object>(object: &T) {
    if object.uses().force_close() {
        object.shut();
        object.teardown();
    }
}

/// A use of an object by a call, for as long as that takes.
pub(crate) struct Using<'a>(&'a Uses);

impl<'a> Using<'a> {
    /// Takes a use of `object`; `EBADF` if it is closed.
    #[inline]
    pub(crate) fn new<T: Object>(object: &'a T) -> Result<Self> {
        let uses = object.uses();
        uses.take()?;
        Ok(Self(uses))
    }
}

impl Drop for Using<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.put();
    }
}

/// A use of an object, until it is released or dropped.
pub(crate) struct Used<T: Object> {
    object: Arc<T>,
    held: Atomic<i32>,
}

impl<T: Object> Used<T> {
    /// Takes a use of `object`; `EBADF` if it is closed.
    pub(crate) fn new(object: Arc<T>) -> Result<Self> {
        object.uses().take()?;
        Ok(Self {
            object,
            held: Atomic::new(1),
        })
    }

    /// Ends the use now, though others may still hold a reference to the user. Idempotent.
    pub(crate) fn release(&self) {
        if self.held.xchg(0, Full) == 1 {
            self.object.uses().put();
        }
    }

    /// The object itself, for comparing and for references that are no uses.
    pub(crate) fn arc(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Object> core::ops::Deref for Used<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Object> Drop for Used<T> {
    fn drop(&mut self) {
        self.release();
    }
}
