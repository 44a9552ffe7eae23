// SPDX-License-Identifier: GPL-2.0

//! Callback: a function of a kernel consumer that waits on a CQ or a counter.
//!
//! A [`Registration`] makes a function a waiter of an object. It is armed for one condition at a
//! time, and called once for that:
//!
//! ```text
//!              arm              the condition holds        a worker takes the call
//!   disarmed -------> armed ------------------------> due -----------------------> running
//!          \
//!           `-> the condition holds already: `arm` returns the reason, and there is no call
//! ```
//!
//! While a call is due or running, the callback may be armed again.
//!
//! - **Once.** An arming leads to one call at most. The consumer arms again in the call or later.
//!   If that arming's condition holds before a due call has begun, this call answers both.
//! - **No lost wake-up.** [`arm`](Callback::arm) checks the condition and enters the line under one
//!   hold of the object's lock. If the condition holds already, it returns the reason, and there is
//!   no call. So a consumer reads until nothing is left, arms, and reads again if arming returns a
//!   reason.
//! - **One at a time.** The calls of one callback do not overlap. Those of different callbacks may.
//!
//! Arming and making a call due neither allocate nor sleep. The memory of a waiter is allocated
//! when the callback is registered.
//!
//! # Context of the call
//!
//! The function is called by a worker of [`slow_queue`], in process context. No lock of the module
//! is held. The function may sleep, read, arm, and close other objects. It runs on behalf of no
//! process: `current` is a worker.
//!
//! # End
//!
//! [`Callback::unregister`] waits until a call that has begun is over. Two callbacks that
//! unregister each other in their calls, at the same time, would wait for each other for ever;
//! consumers must not do this. Dropping a [`Registration`] does the same without waiting, for
//! consumers that are gone. A call that has begun continues, and what the function owns stays until
//! then.
//!
//! A registration is a use of the object. If the object is closed by force nevertheless, an armed
//! callback is called with [`WakeReason::Closed`]. The close does not wait for the call. Arming
//! fails with `EBADF` afterwards.
//!
//! # Locks
//!
//! `Callback::state` is a spin lock. It is taken under the lock of the object's line. A work item
//! is queued under the latter.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/callback.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../../kunit/callback_race.rs"]
mod kunit_race;

use kernel::{
    task::Task,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    line::{
        Entry,
        Memory, //
    },
    WakeReason, //
};
use crate::{
    provider::prelude::*,
    shim::work::slow_queue, //
};

/// An object that callbacks wait on.
pub(crate) trait Watched: Object + Sized + 'static {
    /// A condition to wait for.
    type Cond;

    /// The key of a waiter in the object's line.
    type Key: Send + Unpin;

    /// A waiter of the object's line.
    type Token: Send;

    /// Puts `callback` in the line for `cond`, in place of its previous condition. Returns the
    /// reason instead if `cond` holds. Calls [`Callback::entry`] under the lock of the line. Fails
    /// with `EBADF` if the object was closed by force, and with the errors of `Callback::entry`.
    /// Process context, does not sleep.
    fn arm(&self, callback: &Arc<Callback<Self>>, cond: Self::Cond) -> Result<Option<WakeReason>>;

    /// Removes `callback` from the line, if it is there. Calls [`Callback::last_entry`] under the
    /// lock of the line. Process context, does not sleep.
    fn disarm(&self, callback: &Callback<Self>);
}

/// The function of a callback.
type Function<T> = dyn Fn(&Arc<Callback<T>>, WakeReason) + Send + Sync;

/// The waiter of a consumer's function.
#[pin_data]
pub(crate) struct Callback<T: Watched> {
    object: UseRef<T>,
    function: KBox<Function<T>>,
    #[pin]
    state: SpinLock<State<T>>,
    /// Tasks that wait for the end of a call.
    #[pin]
    idle: WaitQueue,
    #[pin]
    work: Work<Self>,
}

struct State<T: Watched> {
    entry: Entry<T::Key, T::Token>,
    /// The reason of a call that is due.
    due: Option<WakeReason>,
    /// The worker that runs the call.
    running: Option<TaskId>,
    /// Set once. The callback is not armed and no call becomes due afterwards.
    unregistered: bool,
}

/// The address of a task, to be compared only.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskId(usize);

impl TaskId {
    fn current() -> Self {
        let task: &Task = current!();
        Self(core::ptr::from_ref(task).addr())
    }
}

impl_has_work! {
    impl{T: Watched} HasWork<Self> for Callback<T> { self.work }
}

impl<T: Watched> Callback<T> {
    /// The object that it waits on.
    pub(crate) fn object(&self) -> &Arc<T> {
        self.object.arc()
    }

    /// Arms the callback for `cond`, in place of its previous condition. Returns `None` if it is
    /// armed. If `cond` holds already, returns the reason for which the callback would be called,
    /// and the callback is disarmed. A call that is due already is still made.
    ///
    /// Fails with `EBADF` if the object was closed by force; `ESHUTDOWN` if the callback was
    /// unregistered. Process context, does not sleep. The caller holds no lock of the object.
    pub(crate) fn arm(self: &Arc<Self>, cond: T::Cond) -> Result<Option<WakeReason>> {
        self.object.arm(self, cond)
    }

    /// Unregisters the callback: disarms it, withdraws a call that has not begun, and waits until a
    /// call that has begun is over. In a call of this callback it does not wait. Idempotent.
    ///
    /// Fails with `EINTR` if the current task is being killed while it waits: the callback is
    /// unregistered, but a call may still be running. A second call continues to wait. Sleeps.
    pub(crate) fn unregister(&self) -> Result {
        self.shut();
        let task = TaskId::current();
        self.idle
            .wait_killable(|| self.state.lock().running.is_none_or(|it| it == task))
            .map_err(|_| EINTR)
    }

    /// Unregisters the callback without waiting for a call that has begun. Does not sleep.
    fn shut(&self) {
        {
            let mut state = self.state.lock();
            state.unregistered = true;
            state.due = None;
        }
        // A task that armed the callback before has released the lock of the line, or will find it
        // unregistered.
        self.object.disarm(self);
        self.object.release();
    }

    /// Calls `change` with the callback's entry in the line. The caller holds the lock of the line.
    /// Fails with `ESHUTDOWN` if the callback was unregistered.
    pub(in crate::provider) fn entry<R>(
        &self,
        change: impl FnOnce(&mut Entry<T::Key, T::Token>) -> R,
    ) -> Result<R> {
        let mut state = self.state.lock();
        if state.unregistered {
            return Err(ESHUTDOWN);
        }
        Ok(change(&mut state.entry))
    }

    /// Calls `change` with the callback's entry, even if it was unregistered. The caller holds the
    /// lock of the line.
    pub(in crate::provider) fn last_entry(
        &self,
        change: impl FnOnce(&mut Entry<T::Key, T::Token>),
    ) {
        change(&mut self.state.lock().entry);
    }

    /// Makes a call due, because the waiter was removed from the line with `memory`. The caller
    /// holds the lock of the line, so this reference is not the last one: a registration takes that
    /// lock before it drops its own.
    pub(in crate::provider) fn fire(
        self: Arc<Self>,
        why: WakeReason,
        memory: Option<Memory<T::Token>>,
    ) {
        {
            let mut state = self.state.lock();
            state.entry.removed(memory);
            if state.unregistered {
                return;
            }
            // The object does not open again: a later reason adds nothing.
            if state.due != Some(WakeReason::Closed) {
                state.due = Some(why);
            }
        }
        // If the work item is queued already, its run takes the reason.
        let _ = slow_queue().enqueue(self);
    }
}

impl<T: Watched> WorkItem for Callback<T> {
    type Pointer = Arc<Self>;

    /// Makes the call that is due. The workqueue does not run one item twice at the same time.
    fn run(this: Arc<Self>) {
        let why = {
            let mut state = this.state.lock();
            // Unregistered meanwhile, or an earlier run has answered it.
            let Some(why) = state.due.take() else {
                return;
            };
            state.running = Some(TaskId::current());
            why
        };
        (this.function)(&this, why);
        this.state.lock().running = None;
        if this.idle.has_sleepers() {
            this.idle.wake_all();
        }
    }
}

/// Owns a callback for a consumer. Dropping it unregisters the callback and does not wait for a
/// call that has begun. It sleeps only to free memory.
pub(crate) struct Registration<T: Watched>(Arc<Callback<T>>);

impl<T: Watched> Registration<T> {
    /// Registers `function` as a callback of `object`, not armed. It gets the callback, to be armed
    /// again, and the reason of the call.
    ///
    /// Fails with `EBADF` if the object is closed; `ENOMEM`. Sleeps.
    pub(crate) fn new(
        object: &Arc<T>,
        function: impl Fn(&Arc<Callback<T>>, WakeReason) + Send + Sync + 'static,
    ) -> Result<Self> {
        let object = UseRef::new(object.clone())?;
        let function: KBox<Function<T>> = KBox::new(function, GFP_KERNEL_ACCOUNT)?;
        let state = State {
            entry: Entry::new(Some(Memory::new()?)),
            due: None,
            running: None,
            unregistered: false,
        };
        let callback = Arc::pin_init(
            pin_init!(Callback {
                object,
                function,
                state <- new_spinlock!(state, "Callback::state"),
                idle <- new_wait_queue!("Callback::idle"),
                work <- new_work!("kfabric::Callback"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self(callback))
    }
}

impl<T: Watched> core::ops::Deref for Registration<T> {
    type Target = Arc<Callback<T>>;

    fn deref(&self) -> &Arc<Callback<T>> {
        &self.0
    }
}

impl<T: Watched> Drop for Registration<T> {
    fn drop(&mut self) {
        self.0.shut();
    }
}
