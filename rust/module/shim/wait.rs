// SPDX-License-Identifier: GPL-2.0

//! Sleeping until something is so, and waking those for whom it is.
//!
//! Two things, for two needs:
//!
//! - [`WaitQueue`] is a real `wait_queue_head_t`, as `KFI_WAIT_QUEUE` promises it
//!   and poll(2) needs it. A wake-up reaches everybody on the queue; each looks
//!   at its own condition.
//! - [`Sleeper`] is one task that waits for one decision. Others hold its
//!   [`Waker`], sorted in whatever way tells them whose turn it is, and wake
//!   exactly that task: one `cmpxchg` and one `wake_up_process()`, no queue and
//!   no lock. This is how a counter with a thousand waiters wakes one.
//!
//! No wake-up is lost. Who sleeps first announces it (`set_current_state()`, a
//! full barrier), then looks at the condition; who wakes first changes the
//! condition, then looks for the announcement (`try_to_wake_up()`, a full
//! barrier). One of the two sees the other.
//!
//! Deadlines are absolute, on `CLOCK_MONOTONIC`, kept by an hrtimer. Sleeps are
//! interruptible; [`WaitError::Interrupted`] becomes `ERESTARTSYS`, and because
//! the deadline is absolute, the restarted call is right.

use crate::shim::bindings as shim;
use core::num::NonZeroU32;
use kernel::{
    bindings,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering::{
                Acquire,
                Full,
                Relaxed, //
            },
            Atomic, //
        },
        Arc,
        LockClassKey, //
    },
    task::{
        self,
        Task, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

pub(crate) use kfi_core::wait::Deadline;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/wait.rs"]
mod kunit;

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// A signal is pending.
    Interrupted,
}

impl From<WaitError> for Error {
    /// `ETIMEDOUT`; `ERESTARTSYS`, which the system call layer turns into a
    /// restart or `EINTR`.
    fn from(error: WaitError) -> Error {
        match error {
            WaitError::TimedOut => ETIMEDOUT,
            WaitError::Interrupted => ERESTARTSYS,
        }
    }
}

/// Sleeps in the state that the current task has announced, at most until
/// `deadline`; the task is running again afterwards.
///
/// Returns whether the deadline has passed.
fn sleep_until(deadline: Deadline) -> bool {
    let ns = match deadline {
        Deadline::Poll => 0,
        // One nanosecond in 584 years is no loss: `u64::MAX` is "for ever".
        Deadline::At(ns) => ns.min(u64::MAX - 1),
        Deadline::Forever => u64::MAX,
    };
    // SAFETY: Process context, by the requirements of this file's callers, which all have called
    // `might_sleep()`.
    unsafe { shim::kfabric_shim_sleep_until(ns) }
}

/// Makes a [`WaitQueue`] with a lock class of its own.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::shim::wait::WaitQueue::new(
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_wait_queue;

/// A `wait_queue_head_t`.
///
/// # Invariants
///
/// `head` is initialized. Whoever is on it is a task in a method of this type,
/// which borrows it, or a poll(2) on a file that keeps it alive
/// ([`PollTable`](crate::shim::anon_file::PollTable)), or was put there by a
/// consumer of [`as_ptr`](Self::as_ptr), who answers for it.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A `wait_queue_head` may be used and destroyed on any CPU, by any task.
unsafe impl Send for WaitQueue {}

// SAFETY: A `wait_queue_head` has a lock of its own.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// An empty queue; see [`new_wait_queue!`].
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: Initialized here; nobody is on it yet.
            // SAFETY: `slot` is valid while the closure runs; `name` and `key` are static.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// The queue itself, as `KFI_GETWAIT` gives it to kernel consumers.
    ///
    /// Who puts an entry of its own on the queue must take it off before the
    /// object that owns the queue is closed.
    pub(crate) fn as_ptr(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Wakes everybody, whatever they poll for.
    ///
    /// Any context, under any spinlock.
    #[inline]
    pub(crate) fn wake_all(&self) {
        self.wake(0);
    }

    /// Wakes every sleeper, and those who poll for one of the events in `mask`
    /// (`EPOLLIN`, ...).
    ///
    /// Any context, under any spinlock.
    #[inline]
    pub(crate) fn wake_poll(&self, mask: u32) {
        self.wake(mask);
    }

    fn wake(&self, key: u32) {
        // SAFETY: `head` is initialized by the type invariants. The key is a set of events in the
        // shape of a pointer, as `poll_to_key()` makes it; 0 means all.
        unsafe {
            bindings::__wake_up(
                self.head.get(),
                bindings::TASK_NORMAL,
                0,
                core::ptr::without_provenance_mut(key as usize),
            );
        }
    }

    /// Whether anybody sleeps or polls here.
    ///
    /// A full barrier precedes the look: if a condition was changed before the
    /// call and the answer is no, whoever comes later sees the change. Any
    /// context.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        // SAFETY: `head` is initialized by the type invariants.
        unsafe { shim::kfabric_shim_has_sleeper(self.head.get()) }
    }

    /// Sleeps until `cond` gives something.
    ///
    /// `cond` is looked at first, at each wake-up, and once more when the
    /// deadline has passed; what it gives goes before everything else. It runs
    /// while the task has announced that it will sleep: it may take spinlocks,
    /// and must not sleep.
    ///
    /// Process context, no spinlock held.
    pub(crate) fn wait_until<T>(
        &self,
        deadline: Deadline,
        mut cond: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        task::might_sleep();
        if let Some(value) = cond() {
            return Ok(value);
        }
        if deadline == Deadline::Poll {
            return Err(WaitError::TimedOut);
        }
        self.sleep(bindings::TASK_INTERRUPTIBLE, deadline, cond)
    }

    /// Sleeps until `cond` holds, signals or not: for waits that are bounded by
    /// what the module itself does.
    ///
    /// `cond` as in [`wait_until`](Self::wait_until). Process context, no
    /// spinlock held.
    pub(crate) fn wait_uninterruptible(&self, mut cond: impl FnMut() -> bool) {
        task::might_sleep();
        if cond() {
            return;
        }
        // Neither a signal nor a deadline can end this one.
        let _ = self.sleep(bindings::TASK_UNINTERRUPTIBLE, Deadline::Forever, || {
            cond().then_some(())
        });
    }

    /// The loop of both waits, with the task on the queue.
    fn sleep<T>(
        &self,
        state: u32,
        deadline: Deadline,
        mut cond: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is memory for an entry, which stays where it is until this function
        // returns.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };
        let result = loop {
            // SAFETY: `head` is initialized by the type invariants, `entry` since above; its task
            // is this one.
            let interrupted = unsafe {
                // CAST: States are small.
                bindings::prepare_to_wait_event(self.head.get(), entry.get(), state as c_int)
            } != 0;
            if let Some(value) = cond() {
                break Ok(value);
            }
            if interrupted {
                break Err(WaitError::Interrupted);
            }
            if sleep_until(deadline) {
                break cond().ok_or(WaitError::TimedOut);
            }
        };
        // SAFETY: As above; afterwards nobody knows `entry`, and the task is running.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}

/// What others hold of a [`Sleeper`]: the means to wake it.
///
/// Made by [`Sleeper::new`], shared in an [`Arc`]. Dropping it frees memory
/// and may drop the last reference to a task: any context but a hard interrupt.
pub(crate) struct Waker {
    task: ARef<Task>,
    /// Why the sleeper was woken; 0: it was not.
    reason: Atomic<u32>,
}

impl Waker {
    /// Wakes the sleeper with a reason, unless that was done already: the first
    /// reason stays.
    ///
    /// Returns whether this call did it. What was written before the call is
    /// seen by the sleeper after it learnt the reason. Any context, under any
    /// spinlock. Once the sleeper knows the reason it goes on, without waiting
    /// for this function to return.
    #[inline]
    pub(crate) fn wake(&self, reason: NonZeroU32) -> bool {
        let first = self.reason.cmpxchg(0, reason.get(), Full).is_ok();
        if first {
            self.task.wake_up();
        }
        first
    }

    /// The reason, if there was a wake-up.
    #[inline]
    pub(crate) fn reason(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.reason.load(Acquire))
    }
}

/// The current task, waiting for one decision of somebody else's.
///
/// How a list of sleepers is kept without losing anybody: under the lock of the
/// list, look at the condition; if it does not hold, put the [`Waker`] on the
/// list; unlock; [`wait`](Self::wait). Who makes a condition true takes its
/// waker off the list and wakes it, both under the lock. After a timeout or a
/// signal, take the lock: if the waker is on the list, take it off; if it is not,
/// [`reason`](Self::reason) tells why.
///
/// It belongs to the task that made it and cannot leave it.
pub(crate) struct Sleeper {
    waker: Arc<Waker>,
    _not_send: NotThreadSafe,
}

impl Sleeper {
    /// The current task, not woken yet.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let waker = Waker {
            task: ARef::from(&**current!()),
            reason: Atomic::new(0),
        };
        Ok(Self {
            waker: Arc::new(waker, GFP_KERNEL_ACCOUNT)?,
            _not_send: NotThreadSafe,
        })
    }

    /// What wakes this sleeper.
    #[inline]
    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Sleeps until somebody has woken this sleeper, and returns the reason;
    /// at once if that was done before.
    ///
    /// A reason goes before a timeout or a signal. Process context, no spinlock
    /// held.
    pub(crate) fn wait(&self, deadline: Deadline) -> Result<NonZeroU32, WaitError> {
        task::might_sleep();
        if let Some(reason) = self.reason() {
            return Ok(reason);
        }
        if deadline == Deadline::Poll {
            return Err(WaitError::TimedOut);
        }
        loop {
            // SAFETY: Announces that the current task sleeps; taken back below on every way out.
            unsafe { shim::kfabric_shim_set_interruptible() };
            let over = if let Some(reason) = self.reason() {
                Some(Ok(reason))
            } else if current!().signal_pending() {
                Some(Err(WaitError::Interrupted))
            } else {
                None
            };
            if let Some(result) = over {
                // SAFETY: The current task does not sleep after all.
                unsafe { shim::kfabric_shim_set_running() };
                return result;
            }
            if sleep_until(deadline) {
                return self.reason().ok_or(WaitError::TimedOut);
            }
        }
    }

    /// The reason, if there was a wake-up.
    #[inline]
    pub(crate) fn reason(&self) -> Option<NonZeroU32> {
        self.waker.reason()
    }

    /// Makes the sleeper ready to wait again.
    ///
    /// Nobody may have its waker to use meanwhile: call it under the lock of the
    /// list, with the waker off the list.
    #[inline]
    pub(crate) fn rearm(&mut self) {
        self.waker.reason.store(0, Relaxed);
    }
}
