// SPDX-License-Identifier: GPL-2.0

//! Wait objects: how a caller waits until an object has something for it.
//!
//! A counter, CQ or EQ is opened with one of four wait objects ([`WaitObj`]):
//!
//! | | calls that sleep | descriptor | wait set |
//! |---|---|---|---|
//! | `KFI_WAIT_NONE` | no | no | no |
//! | `KFI_WAIT_UNSPEC` | yes | yes | no |
//! | `KFI_WAIT_QUEUE` | yes | yes | no |
//! | the same of a kernel consumer | yes | no | no |
//! | `KFI_WAIT_SET` | counter only | the set's | yes |
//!
//! A task that sleeps in a call waits for one condition. It is in a line of the object that it
//! waits on, in the order of the conditions. The task that makes its condition true removes it from
//! the line and wakes it, and no other one. The lines are state machines of the core under the
//! object's spin lock. The memory of a waiter is allocated before the lock is taken.
//!
//! There are three kinds of waiters: a task that sleeps, a descriptor, and a callback of a kernel
//! consumer, which needs no wait object. So far the suites are the only users of callbacks, and
//! builds without suites leave them out (cfg `kfi_kunit`). The handler of a kernel consumer's CQ or
//! EQ is no waiter: it has no condition, and the queue calls it.
//!
//! A descriptor of a CQ or an EQ ([`Readable`]) is readable while the queue has something to read,
//! by a call or through the mapped ring. All descriptors of a queue share its wait queue, because
//! they wait for the same condition. read(2) and write(2) on such a descriptor fail with `EINVAL`.
//!
//! A descriptor is a use of its object. The object can be closed by force while another process
//! holds the descriptor, when the owner's device file is released. Then poll(2) gives `POLLERR |
//! POLLHUP`.
//!
//! Two rules make every line safe:
//!
//! - A task that removes a sleeper from a line wakes it before it releases the line's lock. So a
//!   sleeper that has reached its deadline or got a signal, and finds that it is not in the line
//!   any more ([`sleep`]), has been woken and knows the reason.
//! - An object that is closed by force is marked closed, and then its lines are emptied under their
//!   locks. No task enters a line of a closed object. So no task sleeps on an object that is gone.
//!
//! | file | topic |
//! |---|---|
//! | [`line`] | the line: waiters in the order in which they become due |
//! | [`set`] | the wait set: one object to wait on for many |
//! | [`head`] | a `wait_queue_head_t` for kernel consumers |
//! | [`handler`] | the function of a kernel consumer that is told of completions and events |
//! | `callback` | a callback of a kernel consumer |

#[cfg(kfi_kunit)]
pub(crate) mod callback;
pub(crate) mod handler;
pub(crate) mod head;
pub(super) mod line;
pub(crate) mod set;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/wait_set.rs"]
mod kunit;

use core::num::NonZeroU32;

use kfi_core::enums;

use self::{
    head::WaitHead,
    line::{
        Memory,
        RemovedWaiter, //
    }, //
};
use super::{
    fabric::Fabric,
    prelude::*, //
};
use crate::shim::{
    anon_file::{
        AnonFile,
        PendingFd,
        PollTable,
        EPOLLERR,
        EPOLLHUP,
        EPOLLIN,
        EPOLLRDNORM, //
    },
    wait::{
        Sleeper,
        WaitError,
        Waker, //
    }, //
};

pub(crate) use set::WaitSet;

/// The wait object of a counter, CQ or EQ.
pub(crate) enum WaitObj {
    /// No waiting.
    None,
    /// Calls that sleep, and descriptors.
    Unspec,
    /// The object signals this wait set.
    Set(UseRef<WaitSet>),
    /// Calls that sleep, and descriptors.
    Queue,
    /// Calls that sleep, and a wait queue that every change wakes.
    Head(Arc<WaitHead>),
}

impl WaitObj {
    /// Makes a wait object from a caller's values: `enum kfi_wait_obj`, and the wait set, which is
    /// ignored unless the former is `KFI_WAIT_SET`.
    ///
    /// Fails with `EINVAL` for an unknown wait object, or `KFI_WAIT_SET` without a set; `EBADF` if
    /// the set is closed. Does not sleep.
    pub(crate) fn new(wait_obj: u32, set: Option<Arc<WaitSet>>) -> Result<Self> {
        match enums::WaitObj::try_from(wait_obj).map_err(to_error)? {
            enums::WaitObj::None => Ok(Self::None),
            enums::WaitObj::Unspec => Ok(Self::Unspec),
            enums::WaitObj::Set => Ok(Self::Set(UseRef::new(set.ok_or(EINVAL)?)?)),
            enums::WaitObj::Queue => Ok(Self::Queue),
        }
    }

    /// Checks the fabric of a wait set. Fails with `EINVAL` if it belongs to another fabric than
    /// `fabric`.
    pub(super) fn check_fabric(&self, fabric: &Arc<Fabric>) -> Result {
        match self {
            Self::Set(set) if !Arc::ptr_eq(set.fabric(), fabric) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// Whether the object itself has descriptors, and whether a read of a queue with this wait
    /// object may sleep.
    pub(super) fn is_pollable(&self) -> bool {
        matches!(self, Self::Unspec | Self::Queue | Self::Head(_))
    }

    /// Makes a descriptor for waiting on `object`, which has this wait object (KFI_GETWAIT): that
    /// of the wait set, or the one that `open` makes.
    ///
    /// Fails with `EINVAL` for `KFI_WAIT_NONE`; `EBADF` if the object is closed; those of `open`
    /// and of [`WaitSet::getwait`]. Sleeps.
    pub(super) fn getwait(
        &self,
        object: &impl Object,
        open: impl FnOnce() -> Result<PendingFd>,
    ) -> Result<PendingFd> {
        match self {
            // A kernel consumer gets no descriptor.
            Self::None | Self::Head(_) => Err(EINVAL),
            Self::Unspec | Self::Queue => open(),
            Self::Set(set) => {
                let _using = UseGuard::new(object)?;
                set.arc().getwait()
            }
        }
    }

    /// The wait queue for a kernel consumer (KFI_GETWAIT): that of the object, or of its wait set.
    /// Fails with `EINVAL` if there is none. Does not sleep.
    pub(crate) fn queue(&self) -> Result<&WaitQueue> {
        match self {
            Self::Head(head) => Ok(head.queue()),
            Self::Set(set) => Ok(set.arc().queue()),
            Self::None | Self::Unspec | Self::Queue => Err(EINVAL),
        }
    }

    /// Whether a change of the object has to be signalled.
    #[inline]
    pub(super) fn is_signalled(&self) -> bool {
        matches!(self, Self::Set(_) | Self::Head(_))
    }

    /// Signals the wait set, or wakes the wait queue, if there is one. Does not sleep. Process
    /// context. The caller holds no spin lock of a counter, CQ or EQ; it may hold that of a
    /// multi-receive buffer.
    #[inline]
    pub(super) fn signal(&self) {
        match self {
            Self::Set(set) => set.signal(),
            Self::Head(head) => head.wake(),
            Self::None | Self::Unspec | Self::Queue => {}
        }
    }

    /// Releases the use of the wait set, if there is one. Idempotent.
    pub(super) fn release(&self) {
        if let Self::Set(set) = self {
            set.release();
        }
    }
}

/// The reason for waking a sleeper or calling a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Its condition holds.
    Ready,
    /// The error value of the counter has changed.
    ErrorChanged,
    /// `kfi_cq_signal()` was called.
    Signalled,
    /// The object was closed by force.
    Closed,
}

impl WakeReason {
    /// The reason as a [`Waker`](crate::shim::wait::Waker) carries it.
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

/// A waiter of a line that [`Wakeup`] wakes.
pub(super) trait Wake: Sized {
    /// Wakes it, under the lock of the line. Returns the memory that it does not keep.
    fn wake(left: RemovedWaiter<Self>, why: WakeReason) -> Option<Memory<Self>>;
}

impl Wake for Waker {
    #[inline]
    fn wake(left: RemovedWaiter<Self>, why: WakeReason) -> Option<Memory<Self>> {
        left.token.wake(why.reason());
        left.memory
    }
}

/// Wakes waiters that have left a line, under the lock of the line. The memory of the last one is
/// freed after the lock was released; in most cases there is at most one.
pub(super) struct Wakeup<T: Wake> {
    last: Option<Memory<T>>,
}

impl<T: Wake> Wakeup<T> {
    /// Has woken nothing yet.
    #[inline]
    pub(super) fn new() -> Self {
        Self { last: None }
    }

    /// Wakes one waiter.
    #[inline]
    pub(super) fn one(&mut self, left: RemovedWaiter<T>, why: WakeReason) {
        let memory = T::wake(left, why);
        if memory.is_some() {
            self.last = memory;
        }
    }
}

/// Sleeps in a line until woken. Returns at once if that was done before.
///
/// `leave` removes the sleeper from the line and returns whether it was still there. It is called
/// when the deadline has passed or a signal is pending. A wake-up takes precedence over both.
/// Sleeps.
pub(super) fn sleep(
    sleeper: &Sleeper,
    deadline: Deadline,
    leave: impl FnOnce() -> bool,
) -> Result<WakeReason, WaitError> {
    match sleeper.wait(deadline) {
        Ok(reason) => Ok(WakeReason::from_reason(reason)),
        Err(error) if leave() => Err(error),
        // The sleeper was removed and woken under the lock that `leave` has just held.
        Err(error) => sleeper.reason().map(WakeReason::from_reason).ok_or(error),
    }
}

/// The events of a readable descriptor.
pub(super) const READABLE: u32 = EPOLLIN | EPOLLRDNORM;

/// The events that poll(2) reports for a descriptor of an object.
#[inline]
pub(super) fn poll_events(is_closed: bool, is_readable: impl FnOnce() -> bool) -> u32 {
    if is_closed {
        EPOLLERR | EPOLLHUP
    } else if is_readable() {
        READABLE
    } else {
        0
    }
}

/// A queue with descriptors that are readable while it has something to read.
pub(super) trait Readable: Object + 'static {
    /// The name of its descriptors in `/proc/PID/fd`.
    const NAME: &'static CStr;

    /// The wait queue of pollers. It is woken with [`READABLE`] when there is something to read,
    /// and with all events when the queue was closed.
    fn readable(&self) -> &WaitQueue;

    /// Whether there is something to read. Does not sleep.
    fn is_ready(&self) -> bool;
}

/// The file behind a descriptor of a queue.
struct QueueFd<T: Readable>(UseRef<T>);

/// Makes a descriptor for `queue`, which is a use of it. Fails with `EBADF` if the queue is closed;
/// `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
pub(super) fn open_fd<T: Readable>(queue: &Arc<T>) -> Result<PendingFd> {
    let queue = UseRef::new(queue.clone())?;
    PendingFd::new(Arc::new(QueueFd(queue), GFP_KERNEL_ACCOUNT)?)
}

impl<T: Readable> AnonFile for QueueFd<T> {
    const NAME: &'static CStr = T::NAME;

    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(self.0.readable());
        poll_events(self.0.uses().is_closed(), || self.0.is_ready())
    }
}
