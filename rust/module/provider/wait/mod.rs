// SPDX-License-Identifier: GPL-2.0

//! Wait objects: how a caller learns that there is something for it.
//!
//! A counter, CQ or EQ is opened with one of four wait objects ([`WaitObj`]):
//!
//! | | calls that sleep | descriptor | wait set |
//! |---|---|---|---|
//! | `KFI_WAIT_NONE` | no | no | no |
//! | `KFI_WAIT_UNSPEC` | yes | yes | no |
//! | `KFI_WAIT_QUEUE` | yes | yes | no |
//! | `KFI_WAIT_SET` | counter only | the set's | yes |
//!
//! Who sleeps in a call is one task that waits for one decision: it stands in a line of the object
//! that it waits on, in the order of what it waits for, and who makes its condition true takes it
//! out of the line and wakes it, and nobody else. The lines are state machines of the core crate
//! under the object's spin lock; a place in one is memory that was got before the lock was taken.
//!
//! Two rules make every line safe:
//!
//! - Who takes a sleeper out of a line wakes it before it lets go of the line's lock. So a sleeper
//!   whose time is over, or that got a signal, and that does not find itself in the line any more
//!   ([`sleep`]) has been woken and knows why.
//! - An object that is closed by force marks itself closed and then empties its lines under their
//!   locks; nobody enters a line of a closed object. So nobody sleeps on something that is gone.
//!
//! | file | what |
//! |---|---|
//! | [`line`] | the line: who waits, in the order in which they become due |
//! | [`set`] | the wait set: one thing to wait on for many objects |
//! | [`fd`] | a CQ or EQ as a descriptor for poll(2), epoll and io_uring |

pub(crate) mod fd;
pub(super) mod line;
pub(crate) mod set;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/fixture.rs"]
pub(super) mod fixture;
#[cfg(kfi_kunit)]
#[path = "../../../../kunit/wait_set.rs"]
mod kunit;

use core::num::NonZeroU32;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    enums,
    wait::Deadline, //
};

use super::{
    fabric::Fabric,
    object::{
        Object,
        Used,
        Using, //
    }, //
};
use crate::shim::{
    anon_file::PendingFd,
    errno::to_error,
    wait::{
        Sleeper,
        WaitError,
        Waker, //
    }, //
};

use line::{
    Left,
    Memory, //
};

pub(crate) use set::WaitSet;

/// The wait object that a counter, CQ or EQ was opened with.
pub(crate) enum WaitObj {
    /// Nobody waits.
    None,
    /// Calls that sleep.
    Unspec,
    /// The object signals this wait set.
    Set(Used<WaitSet>),
    /// Calls that sleep, and descriptors.
    Queue,
}

impl WaitObj {
    /// Makes one of what a caller gave: `enum kfi_wait_obj`, and the wait set, which is ignored
    /// unless it is `KFI_WAIT_SET`.
    ///
    /// `EINVAL` no such wait object, or `KFI_WAIT_SET` without a set; `EBADF` the set is closed.
    /// Does not sleep.
    pub(crate) fn new(wait_obj: u32, set: Option<Arc<WaitSet>>) -> Result<Self> {
        match enums::WaitObj::try_from(wait_obj).map_err(to_error)? {
            enums::WaitObj::None => Ok(Self::None),
            enums::WaitObj::Unspec => Ok(Self::Unspec),
            enums::WaitObj::Set => Ok(Self::Set(Used::new(set.ok_or(EINVAL)?)?)),
            enums::WaitObj::Queue => Ok(Self::Queue),
        }
    }

    /// `EINVAL` if it is a wait set of another fabric than `fabric`.
    pub(super) fn check_fabric(&self, fabric: &Arc<Fabric>) -> Result {
        match self {
            Self::Set(set) if !Arc::ptr_eq(set.fabric(), fabric) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// Whether a read of a queue with this wait object may sleep.
    pub(super) fn allows_sread(&self) -> bool {
        matches!(self, Self::Unspec | Self::Queue)
    }

    /// Whether the object itself has descriptors.
    pub(super) fn is_pollable(&self) -> bool {
        matches!(self, Self::Unspec | Self::Queue)
    }

    /// Makes a descriptor of what `object`, with this wait object, is waited for with (KFI_GETWAIT):
    /// that of the wait set, or the one that `open` makes.
    ///
    /// `EINVAL` there is no wait object; `EBADF` closed; the errors of `open` and of
    /// [`WaitSet::getwait`]. Sleeps.
    pub(super) fn getwait(
        &self,
        object: &impl Object,
        open: impl FnOnce() -> Result<PendingFd>,
    ) -> Result<PendingFd> {
        match self {
            Self::None => Err(EINVAL),
            Self::Unspec | Self::Queue => open(),
            Self::Set(set) => {
                let _using = Using::new(object)?;
                set.arc().getwait()
            }
        }
    }

    /// Signals the wait set, if there is one. Does not sleep. Process context, no spin lock of a counter,
    /// CQ or EQ held; that of a multi-receive buffer may be.
    #[inline]
    pub(super) fn signal(&self) {
        if let Self::Set(set) = self {
            set.signal();
        }
    }

    /// Ends the use of the wait set, if there is one. Idempotent.
    pub(super) fn release(&self) {
        if let Self::Set(set) = self {
            set.release();
        }
    }
}

/// Why a sleeper was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// What it waits for is there.
    Ready,
    /// The error value of the counter has changed.
    ErrorChanged,
    /// Somebody called `kfi_cq_signal()`.
    Signalled,
    /// The object was closed by force.
    Closed,
}

impl Why {
    /// As a [`Waker`](crate::shim::wait::Waker) carries it.
    #[inline]
    pub(super) const fn reason(self) -> NonZeroU32 {
        NonZeroU32::MIN.saturating_add(self as u32)
    }

    fn from_reason(reason: NonZeroU32) -> Self {
        match reason {
            reason if reason == Self::Ready.reason() => Self::Ready,
            reason if reason == Self::ErrorChanged.reason() => Self::ErrorChanged,
            reason if reason == Self::Signalled.reason() => Self::Signalled,
            _ => Self::Closed,
        }
    }
}

/// Wakes sleepers that have left a line, under the line's lock, and gives back the memory of the
/// last of them when the lock has been dropped: mostly there is one at most.
#[derive(Default)]
pub(super) struct Wakeup {
    last: Option<Memory<Waker>>,
}

impl Wakeup {
    /// Wakes one.
    #[inline]
    pub(super) fn one(&mut self, left: Left<Waker>, why: Why) {
        left.who.wake(why.reason());
        if left.memory.is_some() {
            self.last = left.memory;
        }
    }
}

/// Sleeps in a line until woken; at once if that was done before.
///
/// `leave` takes the sleeper out of the line and tells whether it was still there; it is called
/// when the deadline has passed or a signal is pending. Being woken goes before both. Sleeps.
pub(super) fn sleep(
    sleeper: &Sleeper,
    deadline: Deadline,
    leave: impl FnOnce() -> bool,
) -> Result<Why, WaitError> {
    match sleeper.wait(deadline) {
        Ok(reason) => Ok(Why::from_reason(reason)),
        Err(error) if leave() => Err(error),
        // Whoever took it out woke it under the lock that `leave` has just held.
        Err(error) => sleeper.reason().map(Why::from_reason).ok_or(error),
    }
}
