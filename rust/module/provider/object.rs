// SPDX-License-Identifier: GPL-2.0

//! Common code of all objects: owner, uses, closing.
//!
//! An object is in an [`Arc`], which keeps its memory. A separate count of *uses* determines
//! whether it may be closed: only when nothing is made from it, bound to it or waiting on it. Uses
//! are counted explicitly and not derived from references. An object that depends on another one
//! holds a [`UseRef`]. It takes that while the other one is open, and releases it at a defined
//! time.
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
//! [`close`] fails while there are uses, and changes nothing then. Otherwise it waits until no
//! operation places data for the object. These operations belong to other tasks, which may not be
//! scheduled for a while. A kernel consumer has to know that its memory is its own again, so no
//! signal ends its wait. A program uses [`close_killable`]: a fatal signal ends the wait, and it
//! fails with `EINTR`. The object cannot be used any more, but is not torn down: `halted`. Another
//! close continues.
//!
//! [`force_close`] is for an owner that is gone (exit, kill). Front ends call it in the order of
//! dependence, so that the only remaining uses are those of wait descriptors, which report that the
//! object is closed. It does not wait for operations. No call of the owner is running. The
//! operations that are still inside ([`Drain`](super::drain::Drain)) belong to peers and to
//! the module's workers. For these the following holds:
//!
//! - **Memory.** An operation has references to its objects, and these to all objects that they are
//!   bound to. The pages that it copies are pinned until the last [`MemRef`](crate::mem::MemRef) is
//!   dropped, also if the process that mapped them has ended. So no other process gets these pages.
//! - **Charges** to the owner's account, its cgroup and its `RLIMIT_MEMLOCK` end with the memory
//!   that they are for: they stay until the copy has ended. The count of locked pages keeps the
//!   `mm_struct`, but not its mappings.
//! - **Completions** go to a CQ and to counters that are closed or will be soon. They are stored in
//!   the memory of these objects and wake no task: the sleepers were woken by the close.
//! - **Additions.** An operation that adds something to an object checks afterwards whether the
//!   object has been shut, and removes it again (`arrive` of an endpoint). Either this check sees
//!   that, or the teardown finds the addition.
//! - **The module.** An operation of a peer is a call of the peer's open file, which holds a
//!   reference to the module. The module's exit waits for workers
//!   ([`WorkQueues`](crate::shim::work::WorkQueues)). The link and its namespace may be removed
//!   before; the operation only updates statistics of the link.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/object.rs"]
mod kunit;

use kernel::sync::atomic::Full;

use kfi_core::word::Word;

use super::prelude::*;
use crate::{
    mem::Budget,
    shim::{
        cred::Owner,
        wait::Signals,
        word::AtomicWord, //
    }, //
};

/// The identity of an object for its owner.
#[derive(Clone)]
pub(crate) struct Ident {
    /// The object's identifier in the front end that made it (a handle; later the address of a
    /// `struct kfid`).
    pub(crate) fid: u64,
    /// The owner's context, returned in events.
    pub(crate) context: u64,
    /// The process that made it.
    pub(crate) owner: Arc<Owner>,
    /// The budget that its memory is charged to.
    pub(crate) budget: Budget,
}

impl Ident {
    /// Notes that a peer has refused the endpoint access to its memory. Does not sleep.
    pub(crate) fn refused(&self) {
        self.budget.refused(self.number());
    }

    /// Whether an access of the endpoint to a peer's memory has to call
    /// [`enter_access`](Self::enter_access). Any context.
    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        self.budget.is_delayed(self.number())
    }

    /// See [`Budget::enter_access`].
    pub(crate) fn enter_access(&self, may_sleep: bool) -> Result {
        self.budget.enter_access(self.number(), may_sleep)
    }

    /// See [`Budget::access_turn`].
    pub(crate) fn access_turn(&self) -> Result<u64> {
        self.budget.access_turn(self.number())
    }

    /// The handle of the object. 0 for an object of another front end, because handles have 32
    /// bits.
    pub(crate) fn handle(&self) -> u32 {
        u32::try_from(self.fid).unwrap_or(0)
    }

    /// A number that differs between the objects of one owner, and mostly between owners.
    fn number(&self) -> u64 {
        let owner: *const Owner = &*self.owner;
        // CAST: A usize is at most 64 bits.
        (owner.addr() as u64) ^ self.fid
    }
}

/// Counts the uses of an object, and records whether it is open.
///
/// # Invariants
///
/// `state` is the number of uses, or one of the constants from [`UseCount::HALTED`] on. Then it
/// never is a number again. [`UseCount::CLOSED`] never changes.
pub(crate) struct UseCount {
    state: AtomicWord,
}

impl UseCount {
    /// Closed. The task that set this state tears the object down.
    const CLOSED: u64 = u64::MAX;

    /// A task is in [`close`].
    const CLOSING: u64 = u64::MAX - 1;

    /// A signal ended a [`close`], and no other one continues it yet.
    const HALTED: u64 = u64::MAX - 2;

    /// The limit of the count.
    const MOST: u64 = i32::MAX as u64;

    /// Makes the count of an open object without uses.
    pub(crate) const fn new() -> Self {
        // INVARIANT: Open, no uses.
        Self {
            state: AtomicWord::new(0),
        }
    }

    /// Adds a use. Fails with `EBADF` if the object is closed, `EBUSY` if the count is at its
    /// limit.
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

    /// Releases a use. Does nothing if the object has been closed by force meanwhile.
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

    /// Begins to close an object without uses, or continues a halted close. Fails with `EBUSY` if
    /// there are uses; `EBADF` if the object is closed, or another task is closing it.
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

    /// Ends the close that [`begin_to_close`](Self::begin_to_close) began.
    fn end_close(&self, state: u64) {
        // INVARIANT: No other task changes CLOSING, and `state` is HALTED or CLOSED.
        self.state.store(state);
    }

    /// Closes in any state. Returns `false` if the object is closed, or another task is closing it.
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

    /// The number of uses; 0 if the object is closed. It may have changed when this returns.
    pub(crate) fn count(&self) -> u64 {
        match self.state.load() {
            closed if closed >= Self::HALTED => 0,
            uses => uses,
        }
    }

    /// Whether the object has been closed, or a close has begun.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load_acquire() >= Self::HALTED
    }
}

/// An object that can be used and closed.
pub(crate) trait Object: Send + Sync {
    fn uses(&self) -> &UseCount;

    /// Releases uses of the object by itself that need not keep it open. [`close`] calls it first,
    /// also if it fails then. Does not sleep.
    fn before_close(&self) {}

    /// Fails with `EBUSY` if operations of its owner keep the object open although it has no uses;
    /// with `EINTR` if a signal ends a wait. Sleeps.
    fn check_idle(&self, _signals: Signals) -> Result {
        Ok(())
    }

    /// Keeps operations of others from beginning to access the object's memory. Called after the
    /// object was marked closed, and again if a signal ended the wait. Does not wait for
    /// operations. Sleeps.
    fn shut(&self) {}

    /// Waits until no operation places data for the object, which has been shut. Fails with `EINTR`
    /// if a signal ends the wait. Sleeps.
    fn wait(&self, _signals: Signals) -> Result {
        Ok(())
    }

    /// Tears the object down. Called once, after it has been shut. Releases the objects that it
    /// uses, and wakes its sleepers. If the owner is gone, operations of others may still be
    /// inside, and nothing waits for them: see the module documentation. Sleeps.
    fn teardown(&self);
}

/// Closes `object`, and waits until no operation places data for it, regardless of signals. Fails
/// with `EBUSY` if it is in use, or `check_idle` finds operations, without any change; `EBADF` if
/// it is closed, or another task is closing it. Sleeps.
pub(crate) fn close<T: Object>(object: &T) -> Result {
    close_with(object, Signals::None)
}

/// [`close`] that also fails with `EINTR` if the current task is being killed. The object is then
/// unchanged if the wait of `check_idle` was interrupted; otherwise it can only be closed again.
pub(crate) fn close_killable<T: Object>(object: &T) -> Result {
    close_with(object, Signals::Fatal)
}

fn close_with<T: Object>(object: &T, signals: Signals) -> Result {
    object.before_close();
    // An operation that is posted from here on is dropped.
    if !object.uses().is_closed() {
        object.check_idle(signals)?;
    }
    object.uses().begin_to_close()?;
    object.shut();
    if let Err(error) = object.wait(signals) {
        object.uses().end_close(UseCount::HALTED);
        return Err(error);
    }
    object.teardown();
    object.uses().end_close(UseCount::CLOSED);
    Ok(())
}

/// Closes `object` even if it is in use, without waiting for operations of others. No call of its
/// owner may be running. Sleeps.
pub(crate) fn force_close<T: Object>(object: &T) {
    if object.uses().force_close() {
        object.shut();
        object.teardown();
    }
}

/// A use of an object for the duration of a call.
pub(crate) struct UseGuard<'a>(&'a UseCount);

impl<'a> UseGuard<'a> {
    /// Takes a use of `object`. Fails with `EBADF` if it is closed.
    #[inline]
    pub(crate) fn new<T: Object>(object: &'a T) -> Result<Self> {
        let uses = object.uses();
        uses.take()?;
        Ok(Self(uses))
    }
}

impl Drop for UseGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.put();
    }
}

/// A use of an object and a reference to it, until it is dropped or [ended](Self::end). It has the
/// size of a reference.
///
/// # Invariants
///
/// It has a reference, unless it was ended.
pub(crate) struct OwnedUse<T: Object>(Option<Arc<T>>);

impl<T: Object> OwnedUse<T> {
    /// Takes a use of `object`. Fails with `EBADF` if it is closed.
    pub(crate) fn new(object: Arc<T>) -> Result<Self> {
        object.uses().take()?;
        // INVARIANT: It has a reference.
        Ok(Self(Some(object)))
    }

    /// The object itself, to be referenced without a use. By the invariant it is there.
    pub(crate) fn arc(&self) -> Option<&Arc<T>> {
        self.0.as_ref()
    }

    /// Ends the use, and returns the reference. By the invariant it is there. Any context.
    #[inline]
    pub(crate) fn end(mut self) -> Option<Arc<T>> {
        // INVARIANT: It is ended.
        let object = self.0.take();
        if let Some(object) = &object {
            object.uses().put();
        }
        object
    }
}

impl<T: Object> Drop for OwnedUse<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = &self.0 {
            object.uses().put();
        }
    }
}

/// A use of an object and a reference to it, until it is [ended](Self::end). For owners that may
/// not drop the last reference. It has the size of a reference.
#[must_use = "a use that does not end keeps the object open"]
pub(crate) struct HeldUse<T: Object>(Arc<T>);

impl<T: Object> HeldUse<T> {
    /// Takes a use of `object`. Fails with `EBADF` if it is closed.
    pub(crate) fn new(object: Arc<T>) -> Result<Self> {
        object.uses().take()?;
        Ok(Self(object))
    }

    /// Ends the use, and returns the reference. Any context.
    #[inline]
    pub(crate) fn end(self) -> Arc<T> {
        self.0.uses().put();
        self.0
    }
}

impl<T: Object> core::ops::Deref for HeldUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A use of an object, until it is released or dropped.
pub(crate) struct UseRef<T: Object> {
    object: Arc<T>,
    held: Atomic<i32>,
}

impl<T: Object> UseRef<T> {
    /// Takes a use of `object`. Fails with `EBADF` if it is closed.
    pub(crate) fn new(object: Arc<T>) -> Result<Self> {
        object.uses().take()?;
        Ok(Self {
            object,
            held: Atomic::new(1),
        })
    }

    /// Releases the use, even if there are references to the object that holds it. Idempotent.
    pub(crate) fn release(&self) {
        if self.held.xchg(0, Full) == 1 {
            self.object.uses().put();
        }
    }

    /// The object itself, to be compared or referenced without a use.
    pub(crate) fn arc(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Object> core::ops::Deref for UseRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Object> Drop for UseRef<T> {
    fn drop(&mut self) {
        self.release();
    }
}
