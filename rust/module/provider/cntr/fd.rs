// SPDX-License-Identifier: GPL-2.0

//! A counter as a file descriptor: `KFI_GETWAIT` of a counter.
//!
//! A descriptor is armed for one condition at a time. It is readable once the condition has held:
//!
//! ```text
//!               armed for a change of a value since the last read
//!                  |                                         ^
//!   write(2) of    |       the value changes                 | read(2): struct kfabric_cntr_values
//!   a threshold    v                                         |
//!               armed for a value of at least t ---------> readable
//!                               the value reaches t, or the
//!                               error value changes
//! ```
//!
//! A new descriptor is armed for the next change. A readable one stays readable until it is read or
//! armed again, also if the value falls meanwhile.
//!
//! An armed descriptor is a waiter of the counter like a task in a call ([`FdNotifier`]), so an add
//! that does not reach its threshold does no work for it. A readable descriptor is not a waiter.
//! Each descriptor has its own wait queue, so that a wake-up reaches only the tasks that wait for a
//! descriptor that has become readable. The counter knows all its descriptors ([`Descriptors`]), so
//! that its close reaches the tasks that poll readable ones too.
//!
//! read(2) loses no change: it takes the values and arms the descriptor for later changes in one
//! step. If the values cannot be copied to the program, the descriptor becomes readable again.
//!
//! After the counter was closed by force, read(2) and write(2) give `EBADF`.
//!
//! Arming and taking the values each hold the lock of the waiters once. The memory of the waiter
//! stays with the descriptor, so nothing is allocated while one reader uses it.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cntr_fd.rs"]
mod kunit;

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        SpinLockGuard, //
    },
    uaccess::{
        UserSliceReader,
        UserSliceWriter, //
    }, //
};

use kfi_core::cntr::{
    WaitCondition,
    Waiter, //
};

use super::counter::{
    Counter,
    Token, //
};
use crate::{
    provider::{
        prelude::*,
        wait::{
            line::{
                Entry,
                Memory, //
            },
            poll_events,
            READABLE, //
        }, //
    },
    shim::{
        anon_file::{
            AnonFile,
            PollTable, //
        },
        bindings::kfabric_cntr_values, //
    }, //
};

/// The part of a descriptor that its counter refers to: whether it is readable, and the tasks that
/// wait for that.
#[pin_data]
pub(crate) struct FdNotifier {
    /// Changed under the counter's line lock.
    readable: AtomicFlag,
    /// Its entry in the counter's line. Locked under the line's lock, where it is never contended.
    #[pin]
    entry: SpinLock<Entry<Waiter, Token>>,
    #[pin]
    queue: WaitQueue,
}

impl FdNotifier {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            readable: AtomicFlag::new(false),
            entry <- new_spinlock!(Entry::new(None), "cntr::FdNotifier::entry"),
            queue <- new_wait_queue!("cntr::FdNotifier::queue"),
        })
    }

    /// Its entry in the line. The caller holds the counter's line lock.
    pub(super) fn entry(&self) -> SpinLockGuard<'_, Entry<Waiter, Token>> {
        self.entry.lock()
    }

    /// Makes the descriptor readable and wakes its pollers. The caller holds the counter's line
    /// lock.
    pub(super) fn notify(&self) {
        self.set_readable();
        self.wake();
    }

    /// Makes the descriptor readable. The caller holds the counter's line lock, and wakes the
    /// pollers afterwards.
    pub(super) fn set_readable(&self) {
        self.readable.store(true, Release);
    }

    /// Wakes the tasks that wait until the descriptor is readable.
    pub(super) fn wake(&self) {
        // The wait queue's lock orders this wake-up with a task that enters the queue and then
        // looks at the flag.
        self.queue.wake_poll(READABLE);
    }

    /// Wakes all tasks on the wait queue, including those that poll only for the close of the
    /// counter.
    fn hang_up(&self) {
        self.queue.wake_all();
    }

    /// The descriptor was armed and is not readable any more. The caller holds the counter's line
    /// lock.
    pub(super) fn clear_readable(&self) {
        self.readable.store(false, Release);
    }

    /// Whether the descriptor is readable.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.readable.load(Acquire)
    }
}

/// The descriptors of a counter, by the addresses of their notifiers.
///
/// Their number is limited ([`Counter::enter_waiters`]). The lock is taken when a descriptor is
/// opened or closed and when the counter is closed, never by a change or a poll. The locks of the
/// wait queues are taken under it. It is a spin lock, because the end of every process that has a
/// descriptor takes it: no task is preempted while it holds it.
#[pin_data]
pub(super) struct Descriptors {
    #[pin]
    all: SpinLock<RBTree<usize, Arc<FdNotifier>>>,
}

impl Descriptors {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            all <- new_spinlock!(RBTree::new(), "cntr::Descriptors::all"),
        })
    }

    fn key(notifier: &Arc<FdNotifier>) -> usize {
        Arc::as_ptr(notifier).addr()
    }

    /// Enters a new descriptor. Fails with `ENOMEM`. Sleeps.
    fn enter(&self, notifier: &Arc<FdNotifier>) -> Result {
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let node = reservation.into_node(Self::key(notifier), notifier.clone());
        self.all.lock().insert(node);
        Ok(())
    }

    /// Removes a descriptor, if it was entered. Process context. Does not sleep.
    fn leave(&self, notifier: &Arc<FdNotifier>) {
        let left = self.all.lock().remove(&Self::key(notifier));
        // Dropped without the lock.
        drop(left);
    }

    /// Wakes all tasks that poll a descriptor. The counter is closed, so a descriptor that enters
    /// later is refused when it is armed. Process context. Does not sleep.
    pub(super) fn hang_up(&self) {
        let all = self.all.lock();
        for notifier in all.values() {
            notifier.hang_up();
        }
    }

    #[cfg(kfi_kunit)]
    fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }
}

/// Keeps a counter for a descriptor. Implemented by a use of a [`Cntr`](super::Cntr).
pub(super) trait CounterRef: Send + Sync + 'static {
    fn counter(&self) -> &Counter;
}

/// A descriptor of a counter.
pub(super) struct Fd<H: CounterRef> {
    holder: H,
    notifier: Arc<FdNotifier>,
}

impl<H: CounterRef> Fd<H> {
    /// Makes a descriptor of `holder`'s counter, armed for the next change. Fails with `EBADF` if
    /// the counter was closed by force, `ENOSPC` if it has too many waiters, `ENOMEM`. Sleeps.
    pub(super) fn new(holder: H) -> Result<Arc<Self>> {
        let notifier = Arc::pin_init(FdNotifier::new(), GFP_KERNEL_ACCOUNT)?;
        // A descriptor is counted until it is dropped, so arming and reading it find room.
        holder.counter().enter_waiters()?;
        let fd = Arc::new(Self { holder, notifier }, GFP_KERNEL_ACCOUNT)?;
        fd.counter().descriptors().enter(&fd.notifier)?;
        fd.arm(WaitCondition::AnyChange(fd.counter().seen()))?;
        Ok(fd)
    }

    fn counter(&self) -> &Counter {
        self.holder.counter()
    }

    fn arm(&self, cond: WaitCondition) -> Result {
        let mut spare = None;
        while !self.counter().arm(&self.notifier, cond, &mut spare)? {
            spare = Some(Memory::new()?);
        }
        Ok(())
    }

    /// Arms the descriptor for a value of at least `threshold`. Fails with `EBADF`, `ENOMEM`.
    /// Sleeps.
    pub(super) fn arm_threshold(&self, threshold: u64) -> Result {
        self.arm(WaitCondition::AtLeast(threshold, self.counter().entered()))
    }

    /// Gives the current values to `sink` and arms the descriptor for the next change. Fails with
    /// `EAGAIN` if it is not readable; `EBADF`; `ENOMEM`; the error of `sink`, after which the
    /// descriptor is readable again. Sleeps.
    pub(super) fn take(&self, sink: impl FnOnce(&kfabric_cntr_values) -> Result) -> Result {
        if !self.is_readable() {
            return Err(EAGAIN);
        }
        let mut spare = None;
        let seen = loop {
            if let Some(seen) = self.counter().take(&self.notifier, &mut spare)? {
                break seen;
            }
            spare = Some(Memory::new()?);
        };
        let values = kfabric_cntr_values {
            value: seen.value,
            err: seen.err,
        };
        sink(&values).inspect_err(|_| self.counter().notify(&self.notifier))
    }

    /// Whether the descriptor is readable. Does not sleep.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.notifier.is_readable()
    }
}

impl<H: CounterRef> Drop for Fd<H> {
    fn drop(&mut self) {
        self.counter().descriptors().leave(&self.notifier);
        self.counter().remove(&self.notifier);
        self.counter().leave_waiters();
    }
}

impl<H: CounterRef> AnonFile for Fd<H> {
    const NAME: &'static CStr = c"[kfabric-cntr]";

    #[link_section = ".text.hot"]
    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(&self.notifier.queue);
        poll_events(self.counter().is_closed(), || self.is_readable())
    }

    /// Fails with `EINVAL` for less room than `struct kfabric_cntr_values`; `EAGAIN`; `EBADF`;
    /// `ERESTARTSYS`; `EFAULT` and `ENOMEM`, after which nothing has changed.
    #[link_section = ".text.hot"]
    fn read(&self, to: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        const SIZE: usize = size_of::<kfabric_cntr_values>();
        if to.len() < SIZE {
            return Err(EINVAL);
        }
        loop {
            match self.take(|values| to.write(values)) {
                Ok(()) => return Ok(SIZE),
                // Not readable, or another reader was faster.
                Err(error) if error == EAGAIN && !nonblock => {
                    self.notifier
                        .queue
                        .wait_until(Deadline::Forever, || self.is_readable().then_some(()))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails with `EINVAL` if the length is not 8 bytes; `EBADF`; `EFAULT` and `ENOMEM`, after
    /// which nothing has changed.
    fn write(&self, from: &mut UserSliceReader, _nonblock: bool) -> Result<usize> {
        const SIZE: usize = size_of::<u64>();
        if from.len() != SIZE {
            return Err(EINVAL);
        }
        self.arm_threshold(from.read()?)?;
        Ok(SIZE)
    }
}
