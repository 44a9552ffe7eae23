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
//!   open,0 --------> open,n --------> open,0 --close--> closed   (close of open,n: EBUSY)
//!   any    --force_close-------------------------------> closed   (the owner is gone)
//! ```
//!
//! [`close`] refuses while there is use and changes nothing then. [`force_close`] is for an owner
//! that has gone (exit, kill): faces call it in order of dependence, so that the only uses still
//! there are those of wait descriptors, which find the object closed.

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
/// `state` is the number of uses, or [`Uses::CLOSED`] for ever.
pub(crate) struct Uses {
    state: AtomicWord,
}

impl Uses {
    const CLOSED: u64 = u64::MAX;

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
                return Err(if seen == Self::CLOSED { EBADF } else { EBUSY });
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
        while seen != 0 && seen != Self::CLOSED {
            match self.state.compare_exchange(seen, seen.wrapping_sub(1)) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Closes an object without uses: `EBUSY` if there are any, `EBADF` if it was closed already.
    fn close(&self) -> Result {
        match self.state.compare_exchange(0, Self::CLOSED) {
            Ok(_) => Ok(()),
            Err(Self::CLOSED) => Err(EBADF),
            Err(_) => Err(EBUSY),
        }
    }

    /// Closes in any state; `false` if it was closed already.
    fn force_close(&self) -> bool {
        self.state.swap(Self::CLOSED) != Self::CLOSED
    }

    /// Whether the object has been closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load_acquire() == Self::CLOSED
    }
}

/// An object that can be used and closed.
pub(crate) trait Object: Send + Sync {
    /// Its uses.
    fn uses(&self) -> &Uses;

    /// Ends it: called once, after it has been marked closed. Gives back what it uses, wakes who
    /// sleeps on it, and waits until nobody places data on its behalf. May sleep.
    fn teardown(&self);
}

/// Closes `object`; `EBUSY` while it is used (nothing has changed then), `EBADF` if it was closed.
pub(crate) fn close<T: Object>(object: &T) -> Result {
    object.uses().close()?;
    object.teardown();
    Ok(())
}

/// Closes `object` whatever uses it.
pub(crate) fn force_close<T: Object>(object: &T) {
    if object.uses().force_close() {
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
