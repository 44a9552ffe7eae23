// SPDX-License-Identifier: GPL-2.0

//! Sleeping until a condition holds, and waking tasks.
//!
//! There are two types:
//!
//! - [`WaitQueue`] is a `wait_queue_head_t`, as `KFI_WAIT_QUEUE` and poll(2) require. A wake-up
//!   reaches all entries of the queue; each task checks its own condition.
//! - [`Sleeper`] is one task that waits for one decision. Another task holds its [`Waker`] in any
//!   data structure, and wakes exactly that task: one store and one `wake_up_process()`, without a
//!   queue or a lock. So a counter with a thousand waiters wakes one.
//!
//! No wake-up is lost. A task that sleeps first announces it (`set_current_state()`, a full
//! barrier), then checks the condition. A task that wakes first changes the condition, then checks
//! for the announcement (`try_to_wake_up()`, a full barrier). One of the two sees the other.
//!
//! Deadlines are absolute, on `CLOCK_MONOTONIC`, and use an hrtimer. Sleeps are interruptible.
//! [`WaitError::Interrupted`] becomes `ERESTARTSYS`; because the deadline is absolute, the
//! restarted call ends at the same time.

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

/// The reason why a wait ended before its condition held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// A signal is pending; for a killable wait, a fatal one.
    Interrupted,
}

/// What ends a wait for other tasks before its condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    /// A fatal signal: a process that is being killed waits for no other task.
    Fatal,
    /// No signal: the caller has to know that the condition holds. The other task may be of low
    /// priority, so the kernel's detector of hung tasks does not look at this wait (TASK_IDLE).
    None,
}

impl From<WaitError> for Error {
    /// `ETIMEDOUT`, or `ERESTARTSYS`, with which the system call layer restarts the call or returns
    /// `EINTR`.
    fn from(error: WaitError) -> Error {
        match error {
            WaitError::TimedOut => ETIMEDOUT,
            WaitError::Interrupted => ERESTARTSYS,
        }
    }
}

/// Sleeps in the state that the current task has announced, until `deadline` at the latest. The
/// task is in state running afterwards.
///
/// Returns whether the deadline has passed.
fn sleep_until(deadline: Deadline) -> bool {
    let ns = match deadline {
        Deadline::Poll => 0,
        // `u64::MAX` means "without limit"; the clock reaches it after 584 years.
        Deadline::At(ns) => ns.min(u64::MAX - 1),
        Deadline::Forever => u64::MAX,
    };
    // SAFETY: Process context: all callers in this file have called `might_sleep()`.
    unsafe { shim::kfabric_shim_sleep_until(ns) }
}

/// Creates a [`WaitQueue`] with its own lock class.
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
/// `head` is initialized. Each entry belongs to a task in a method of this type, which borrows it,
/// to a poll(2) of a file that keeps it alive ([`PollTable`](crate::shim::anon_file::PollTable)),
/// or to a consumer of [`as_ptr`](Self::as_ptr), which is responsible for removing it.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: Any task on any CPU may use and destroy a `wait_queue_head`.
unsafe impl Send for WaitQueue {}

// SAFETY: A `wait_queue_head` has its own lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// An empty queue; see [`new_wait_queue!`].
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: Initialized here, without entries.
            // SAFETY: `slot` is valid while the closure runs; `name` and `key` are static.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// The queue itself, which `KFI_GETWAIT` returns to kernel consumers.
    ///
    /// A consumer that adds an entry to the queue must remove it before the object that owns the
    /// queue is closed.
    pub(crate) fn as_ptr(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Wakes all entries, for any event. Any context, with any spin lock held.
    #[inline]
    pub(crate) fn wake_all(&self) {
        self.wake_poll(0);
    }

    /// Wakes all sleepers, and the tasks that poll for one of the events in `mask` (`EPOLLIN`,
    /// ...). Any context, with any spin lock held.
    pub(crate) fn wake_poll(&self, mask: u32) {
        // SAFETY: `head` is initialized by the type invariants. The key is a set of events cast to
        // a pointer, as by `poll_to_key()`; 0 means all events.
        unsafe {
            bindings::__wake_up(
                self.head.get(),
                bindings::TASK_NORMAL,
                0,
                core::ptr::without_provenance_mut(mask as usize),
            );
        }
    }

    /// Whether a task sleeps or polls here.
    ///
    /// A full barrier precedes the check: if a condition was changed before the call and the answer
    /// is no, a task that comes later sees the change. Any context.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        // SAFETY: `head` is initialized by the type invariants.
        unsafe { shim::kfabric_shim_has_sleeper(self.head.get()) }
    }

    /// Sleeps until `cond` returns a value.
    ///
    /// It calls `cond` first, at each wake-up, and once more when the deadline has passed. A value
    /// of `cond` has precedence over a signal and the deadline. `cond` runs while the task has
    /// announced that it will sleep: it may take spin locks, and must not sleep. Process context,
    /// no spin lock held.
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

    /// Sleeps until `cond` holds, regardless of signals, and until `deadline` at the latest: for
    /// waits that the module itself bounds. Returns whether `cond` holds.
    ///
    /// `cond` as in [`wait_until`](Self::wait_until). Process context, no spin lock held.
    pub(crate) fn wait_uninterruptible(
        &self,
        deadline: Deadline,
        mut cond: impl FnMut() -> bool,
    ) -> bool {
        task::might_sleep();
        let wait = || cond().then_some(());
        self.sleep(bindings::TASK_UNINTERRUPTIBLE, deadline, wait)
            .is_ok()
    }

    /// Sleeps until `cond` holds, or the task is being killed: for waits that other tasks end.
    /// `cond` has precedence over the signal.
    ///
    /// `cond` as in [`wait_until`](Self::wait_until). Process context, no spin lock held.
    pub(crate) fn wait_killable(&self, mut cond: impl FnMut() -> bool) -> Result<(), WaitError> {
        task::might_sleep();
        if cond() {
            return Ok(());
        }
        let state = bindings::TASK_WAKEKILL | bindings::TASK_UNINTERRUPTIBLE;
        self.sleep(state, Deadline::Forever, || cond().then_some(()))
    }

    /// [`wait_killable`](Self::wait_killable), for the signals that are named.
    pub(crate) fn wait_for(
        &self,
        signals: Signals,
        mut cond: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        if signals == Signals::Fatal {
            return self.wait_killable(cond);
        }
        task::might_sleep();
        if cond() {
            return Ok(());
        }
        let state = bindings::TASK_UNINTERRUPTIBLE | bindings::TASK_NOLOAD;
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
        // SAFETY: `entry` is memory for an entry, which does not move until this function returns.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };
        let result = loop {
            // SAFETY: `head` is initialized by the type invariants, `entry` was initialized above;
            // it belongs to the current task.
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
        // SAFETY: As above; afterwards no queue refers to `entry`, and the task is running.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}

/// The current task, which waits for one decision of another task.
///
/// It is on the task's stack, and nothing is allocated for it. Others get its [`Waker`], which is
/// used once. The sleeper outlives its waker: if there is still one when the sleeper is dropped,
/// the drop waits.
///
/// To keep a list of sleepers without losing wake-ups: Lock the list and check the condition. If it
/// does not hold, add the [`Waker`] to the list, unlock, and call [`wait`](Self::wait). A task that
/// makes a condition true removes the waker from the list and wakes, both under the lock. After a
/// timeout or a signal, the sleeper takes the lock: if the waker is in the list, the sleeper
/// removes it; otherwise [`reason`](Self::reason) returns the reason of the wake-up.
///
/// A sleeper belongs to the task that created it and cannot leave that task.
///
/// # Invariants
///
/// This is on the stack of `task`. While `state` is [`WAITING`](Self::WAITING) there is one
/// [`Waker`] of it, otherwise none.
#[pin_data(PinnedDrop)]
pub(crate) struct Sleeper {
    /// The state of the waker: the reason of the wake-up, or one of the constants.
    state: AtomicWord,
    task: NonNull<bindings::task_struct>,
    /// A waker points to this.
    #[pin]
    _pinned: PhantomPinned,
    _not_send: NotThreadSafe,
}

impl Sleeper {
    /// There is a waker. Not a reason, because reasons are not 0.
    const WAITING: u64 = 0;

    /// There is no waker and no reason since: none was made, or it was dropped. Not a reason,
    /// because reasons have 32 bits.
    const IDLE: u64 = u64::MAX;

    /// The current task, not woken yet; to be pinned to its stack.
    #[inline]
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: `task` is the current task, which a sleeper cannot leave; there is no waker.
        pin_init!(Self {
            state: AtomicWord::new(Self::IDLE),
            task: current_task(),
            _pinned: PhantomPinned,
            _not_send: NotThreadSafe,
        })
    }

    /// Creates the waker of this sleeper, which is used once. The last reason is lost. Process
    /// context. Sleeps only if there is a waker already.
    #[inline]
    pub(crate) fn waker(self: Pin<&Self>) -> Waker {
        self.settle();
        // INVARIANT: There was no waker, and now there is one.
        self.state.store(Self::WAITING);
        // INVARIANT: This sleeper is pinned, so it does not move until it is dropped, and the drop
        // waits for the end of the waker.
        Waker(NonNull::from(self.get_ref()))
    }

    /// Sleeps until this sleeper is woken, and returns the reason; returns at once if it was woken
    /// before.
    ///
    /// A reason has precedence over a timeout or a signal. Process context, no spin lock held.
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
            // SAFETY: Announces that the current task will sleep; withdrawn below on every path.
            unsafe { shim::kfabric_shim_set_interruptible() };
            let over = if let Some(reason) = self.reason() {
                Some(Ok(reason))
            } else if current!().signal_pending() {
                Some(Err(WaitError::Interrupted))
            } else {
                None
            };
            if let Some(result) = over {
                // SAFETY: The current task does not sleep.
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

    /// The reason, if the sleeper was woken.
    #[inline]
    pub(crate) fn reason(&self) -> Option<NonZeroU32> {
        // Acquire: writes before the wake-up are visible after it.
        let state = self.state.load_acquire();
        u32::try_from(state).ok().and_then(NonZeroU32::new)
    }

    /// Waits until there is no waker. Usually there is none.
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
            // SAFETY: Announces that the current task will sleep; withdrawn below.
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

/// The right to wake a [`Sleeper`], once. Dropping the waker gives up that right.
///
/// # Invariants
///
/// The sleeper is valid, and its state is [`Sleeper::WAITING`]; this is its only waker.
pub(crate) struct Waker(NonNull<Sleeper>);

// SAFETY: A waker reads a task pointer that does not change and writes an atomic word; any task
// may.
unsafe impl Send for Waker {}

// SAFETY: A shared reference to a waker has no methods.
unsafe impl Sync for Waker {}

impl Waker {
    /// Wakes the sleeper with a reason.
    ///
    /// The sleeper sees writes before this call when it has read the reason. Any context, with any
    /// spin lock held. The sleeper continues as soon as it has read the reason, without waiting for
    /// this function to return.
    #[inline]
    pub(crate) fn wake(self, reason: NonZeroU32) {
        ManuallyDrop::new(self).end(reason.get().into());
    }

    /// Ends the waker: this is the last access to the sleeper.
    #[inline]
    fn end(&self, state: u64) {
        let sleeper = self.0.as_ptr();
        // INVARIANT: There is no waker any more: the caller does not use it again. SAFETY: By the
        // type invariants the sleeper is valid, and so is its task, until its state is written,
        // which is the last access to it. The task is woken after that, under RCU. A wake-up that
        // it does not need any more does no harm, because a sleeping task checks its condition.
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
