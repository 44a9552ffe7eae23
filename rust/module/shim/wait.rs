// SPDX-License-Identifier: GPL-2.0

//! Sleeping until something is so, and waking those for whom it is.
//!
//! Two things, for two needs:
//!
//! - [`WaitQueue`] is a real `wait_queue_head_t`, as `KFI_WAIT_QUEUE` promises it
//!   and poll(2) needs it. A wake-up reaches everybody on the queue; each looks
//!   at its own condition.
//! - [`Sleeper`] is one task that waits for one decision. Somebody else holds
//!   its [`Waker`], sorted in whatever way tells whose turn it is, and wakes
//!   exactly that task: one store and one `wake_up_process()`, no queue and no
//!   lock. This is how a counter with a thousand waiters wakes one.
//!
//! No wake-up is lost. Who sleeps first announces it (`set_current_state()`, a
//! full barrier), then looks at the condition; who wakes first changes the
//! condition, then looks for the announcement (`try_to_wake_up()`, a full
//! barrier). One of the two sees the other.
//!
//! Deadlines are absolute, on `CLOCK_MONOTONIC`, kept by an hrtimer. Sleeps are
//! interruptible; [`WaitError::Interrupted`] becomes `ERESTARTSYS`, and because
//! the deadline is absolute, the restarted call is right.

use crate::shim::{
    bindings as shim,
    word::AtomicWord, //
};
use core::{
    marker::PhantomPinned,
    mem::ManuallyDrop,
    num::NonZeroU32,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::LockClassKey,
    task::{
        self,
        Task, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

use kfi_core::word::Word;

pub(crate) use kfi_core::wait::Deadline;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/wait.rs"]
mod kunit;

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// A signal is pending: a fatal one, if the wait is killable.
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

    /// Sleeps until `cond` holds, or the task is being killed: for waits that
    /// other tasks end. `cond` goes before the signal.
    ///
    /// `cond` as in [`wait_until`](Self::wait_until). Process context, no
    /// spinlock held.
    pub(crate) fn wait_killable(&self, mut cond: impl FnMut() -> bool) -> Result<(), WaitError> {
        task::might_sleep();
        if cond() {
            return Ok(());
        }
        let state = bindings::TASK_WAKEKILL | bindings::TASK_UNINTERRUPTIBLE;
        self.sleep(state, Deadline::Forever, || cond().then_some(()))
    }

    /// The loop of all waits, with the task on the queue.
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

/// The current task, waiting for one decision of somebody else's.
///
/// It stands on the task's stack, and nothing is allocated for it. Others get its [`Waker`], which
/// is used once, and the sleeper does not go before that: if there is still one when it is dropped,
/// that waits.
///
/// How a list of sleepers is kept without losing anybody: under the lock of the list, look at the
/// condition; if it does not hold, put the [`Waker`] on the list; unlock; [`wait`](Self::wait). Who
/// makes a condition true takes the waker off the list and wakes, both under the lock. After a
/// timeout or a signal, take the lock: if the waker is on the list, take it off; if it is not,
/// [`reason`](Self::reason) tells why.
///
/// It belongs to the task that made it and cannot leave it.
///
/// # Invariants
///
/// `task` is the task on whose stack this is. While `state` is [`WAITING`](Self::WAITING) there is
/// one [`Waker`] of it, else none.
#[pin_data(PinnedDrop)]
pub(crate) struct Sleeper {
    /// What became of the waker: a reason, or one of the constants.
    state: AtomicWord,
    task: NonNull<bindings::task_struct>,
    /// A waker points here.
    #[pin]
    _pinned: PhantomPinned,
    _not_send: NotThreadSafe,
}

impl Sleeper {
    /// Somebody has the waker. Not a reason, as those are not 0.
    const WAITING: u64 = 0;

    /// Nobody has or had one since the last reason, or it was dropped. Not a reason, as those have
    /// 32 bits.
    const IDLE: u64 = u64::MAX;

    /// The current task, not woken yet; to be pinned to its stack.
    #[inline]
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: The current task, as a sleeper cannot leave it; no waker.
        pin_init!(Self {
            state: AtomicWord::new(Self::IDLE),
            task: current_task(),
            _pinned: PhantomPinned,
            _not_send: NotThreadSafe,
        })
    }

    /// What wakes this sleeper, once. The last reason is forgotten.
    ///
    /// Process context. Sleeps only if there is one already.
    #[inline]
    pub(crate) fn waker(self: Pin<&Self>) -> Waker {
        self.settle();
        // INVARIANT: There was no waker, and there is one now.
        self.state.store(Self::WAITING);
        // INVARIANT: This sleeper stays where it is until it is dropped, as it is pinned, and that
        // waits for the waker's end.
        Waker(NonNull::from(self.get_ref()))
    }

    /// Sleeps until somebody has woken this sleeper, and returns the reason;
    /// at once if that was done before.
    ///
    /// A reason goes before a timeout or a signal. Process context, no spinlock
    /// held.
    #[link_section = ".text.hot"]
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
            let over = sleep_until(deadline);
            if let Some(reason) = self.reason() {
                return Ok(reason);
            }
            if over {
                return Err(WaitError::TimedOut);
            }
        }
    }

    /// The reason, if there was a wake-up.
    #[inline]
    pub(crate) fn reason(&self) -> Option<NonZeroU32> {
        // Acquire: what was written before the wake-up is seen after it.
        let state = self.state.load_acquire();
        u32::try_from(state).ok().and_then(NonZeroU32::new)
    }

    /// Waits until there is no waker. Mostly there is none.
    #[inline]
    fn settle(&self) {
        if self.state.load_acquire() == Self::WAITING {
            self.wait_for_waker();
        }
    }

    #[cold]
    fn wait_for_waker(&self) {
        task::might_sleep();
        loop {
            // SAFETY: Announces that the current task sleeps; taken back below.
            unsafe { shim::kfabric_shim_set_uninterruptible() };
            if self.state.load_acquire() != Self::WAITING {
                break;
            }
            sleep_until(Deadline::Forever);
        }
        // SAFETY: The current task does not sleep any more.
        unsafe { shim::kfabric_shim_set_running() };
    }
}

#[pinned_drop]
impl PinnedDrop for Sleeper {
    #[inline]
    fn drop(self: Pin<&mut Self>) {
        self.settle();
    }
}

/// The current task.
#[inline]
fn current_task() -> NonNull<bindings::task_struct> {
    let task: &Task = current!();
    // CAST: `Task` is transparent over `task_struct`.
    NonNull::from(task).cast()
}

/// The right to wake a [`Sleeper`], once. A waker that is dropped gives it up.
///
/// # Invariants
///
/// The sleeper is valid, and its state [`Sleeper::WAITING`]; this is its only waker.
pub(crate) struct Waker(NonNull<Sleeper>);

// SAFETY: A waker reads a task that does not change and writes an atomic word; any task may.
unsafe impl Send for Waker {}

// SAFETY: A shared reference to a waker is good for nothing.
unsafe impl Sync for Waker {}

impl Waker {
    /// Wakes the sleeper with a reason.
    ///
    /// What was written before the call is seen by the sleeper after it learnt the reason. Any
    /// context, under any spinlock. Once the sleeper knows the reason it goes on, without waiting
    /// for this function to return.
    #[inline]
    pub(crate) fn wake(self, reason: NonZeroU32) {
        ManuallyDrop::new(self).end(reason.get().into());
    }

    /// Ends the life of the waker, and of what it may touch of the sleeper.
    #[inline]
    fn end(&self, state: u64) {
        let sleeper = self.0.as_ptr();
        // INVARIANT: No waker any more: whoever called this forgets it.
        // SAFETY: By the type invariants the sleeper is valid, and so is its task, until its state
        // is written, which is the last that is done with it. The task is woken behind that, under
        // RCU. A wake-up that it does not need any more does no harm: who sleeps looks at its
        // condition.
        unsafe {
            let task = (*sleeper).task;
            shim::kfabric_shim_wake((*sleeper).state.as_ptr(), state, task.as_ptr());
        }
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.end(Sleeper::IDLE);
    }
}
