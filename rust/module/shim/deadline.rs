// SPDX-License-Identifier: GPL-2.0

//! A deadline for a task to begin work that it has accepted.
//!
//! A task that accepts work runs it as soon as it holds no lock. It may be preempted before: an
//! idle task (`SCHED_IDLE`) beside a busy loop does not run for seconds. Then the [`Deadline`]
//! calls a function that has another task do the work.
//!
//! # Cost
//!
//! Nearly all work begins within microseconds, so a timer that is started and cancelled for each
//! would cost too much. The timer of a deadline is started when work is offered and the timer is
//! not running. It is not cancelled when the work begins. When it expires, it checks whether work
//! is offered:
//!
//! ```text
//!           offer                 timer                    timer
//!   none ----------> offered ----------------> overdue ------------> none, and `expired` is called
//!    ^                  |   timer restarted       |
//!    '------ begin -----+----------- begin -------'        timer: in state none it stops
//! ```
//!
//! So an offer costs one atomic operation while the timer runs. The timer runs once in
//! [`PERIOD_MS`] while work arrives, and not at all otherwise.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/deadline.rs"]
mod kunit;

use crate::shim::bindings as shim;
use core::marker::PhantomData;
use kernel::{
    bindings,
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// Offered work begins within this time, or within twice this time (and two ticks of the timer
/// wheel) another task does it. The period is longer than the scheduler lets one other task run
/// (about 3 ms), so that a task that shares its CPU with one other of equal weight keeps its work.
/// It is shorter than the time after which a peer sends a packet again (a local ACK timeout is tens
/// of milliseconds), so that the delay causes no retransmissions.
const PERIOD_MS: u32 = 4;

/// Work is offered, and the timer has not expired since then.
const OFFERED: u32 = 1;

/// Work is offered, and the timer has expired once since then.
const OVERDUE: u32 = 2;

/// Either of the two.
const WORK: u32 = OFFERED | OVERDUE;

/// The timer is running, or about to be started. A reference to the object belongs to this flag:
/// the task that clears it gets that reference.
const RUNNING: u32 = 4;

/// The deadline has ended. No other flag is set then.
const ENDED: u32 = 8;

/// The deadline of a `T`.
///
/// # Invariants
///
/// - While [`RUNNING`] is set, one reference to the `T` belongs to `state`.
/// - The timer is pending or its function runs only while `RUNNING` is set, or while
///   [`end`](Self::end) or the timer's function itself is in progress.
#[pin_data]
pub(crate) struct Deadline<T: HasDeadline> {
    #[pin]
    timer: Opaque<bindings::timer_list>,
    state: Atomic<u32>,
    _object: PhantomData<Arc<T>>,
}

// SAFETY: Any task may call the kernel's functions for a timer, and use a `T`.
unsafe impl<T: HasDeadline> Send for Deadline<T> {}

// SAFETY: As above; the kernel locks the timer.
unsafe impl<T: HasDeadline> Sync for Deadline<T> {}

/// An object that has a [`Deadline`]. Implement it with [`impl_has_deadline!`].
///
/// # Safety
///
/// `deadline` returns a field of the object, and `of` returns the object that has this field.
pub(crate) unsafe trait HasDeadline: Sized + Send + Sync + 'static {
    /// The deadline of this object.
    fn deadline(&self) -> &Deadline<Self>;

    /// The object that has this deadline.
    ///
    /// # Safety
    ///
    /// The pointer is a result of [`deadline`](Self::deadline).
    unsafe fn of(deadline: *mut Deadline<Self>) -> *const Self;

    /// Called when offered work has not begun in time. Softirq.
    fn expired(self: &Arc<Self>);
}

/// Implements [`HasDeadline`] for a type: names the field of the [`Deadline`], and the function to
/// call when it expires. The function takes `&Arc<Self>`, in softirq.
macro_rules! impl_has_deadline {
    (
        impl$({$($generics:tt)*})? HasDeadline for $self:ty {
            self.$field:ident, expired: $expired:path $(,)?
        }
    ) => {
        // SAFETY: Both functions refer to the same field.
        unsafe impl$(<$($generics)*>)? $crate::shim::deadline::HasDeadline for $self {
            fn deadline(&self) -> &$crate::shim::deadline::Deadline<Self> {
                &self.$field
            }

            unsafe fn of(
                deadline: *mut $crate::shim::deadline::Deadline<Self>,
            ) -> *const Self {
                // SAFETY: By the requirement it is the field of such an object.
                unsafe { ::kernel::container_of!(deadline, Self, $field) }
            }

            fn expired(self: &::kernel::sync::Arc<Self>) {
                $expired(self);
            }
        }
    };
}
pub(crate) use impl_has_deadline;

impl<T: HasDeadline> Deadline<T> {
    /// A deadline without offered work.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: The timer is not pending.
        pin_init!(Self {
            timer <- Opaque::ffi_init(|timer| {
                // SAFETY: `timer` is memory for a timer, which does not move.
                unsafe { shim::kfabric_shim_deadline_init(timer, Some(Self::timed_out)) }
            }),
            state: Atomic::new(0),
            _object: PhantomData,
        })
    }

    /// Replaces the state by the result of `change`, unless that is `None`. Returns the previous
    /// state.
    fn update(&self, change: impl Fn(u32) -> Option<u32>) -> u32 {
        let mut state = self.state.load(Relaxed);
        while let Some(new) = change(state) {
            match self.state.cmpxchg(state, new, Full) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        state
    }

    fn start(&self) {
        // SAFETY: The timer was initialised by `new`. After `end` the kernel ignores this.
        unsafe { shim::kfabric_shim_deadline_start(self.timer.get(), PERIOD_MS) };
    }

    /// Records that work of `object` was offered to a task. Process context or softirq.
    pub(crate) fn offer(object: &Arc<T>) {
        let deadline = object.deadline();
        let mut state = deadline.state.load(Relaxed);
        let mut reference = None;
        loop {
            if state == ENDED {
                return;
            }
            if state & RUNNING == 0 && reference.is_none() {
                reference = Some(object.clone());
            }
            // INVARIANT: If `RUNNING` was not set, the reference belongs to it from here on.
            match deadline.state.cmpxchg(state, RUNNING | OFFERED, Full) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if let (0, Some(reference)) = (state & RUNNING, reference) {
            let _ = Arc::into_raw(reference);
            deadline.start();
        }
    }

    /// Records that the work begins. The caller looks for work after this call. Any context.
    pub(crate) fn begin(&self) {
        self.update(|state| (state & WORK != 0).then_some(state & !WORK));
    }

    /// Takes the reference that belonged to `RUNNING`.
    ///
    /// # Safety
    ///
    /// The caller has cleared `RUNNING`, and calls this once.
    unsafe fn object(&self) -> Arc<T> {
        let this: *const Self = self;
        // SAFETY: `RUNNING` is set only for an object that has this deadline.
        let object = unsafe { T::of(this.cast_mut()) };
        // SAFETY: By the type invariants there was a reference, which the caller now owns.
        unsafe { Arc::from_raw(object) }
    }

    /// Ends the deadline: when this returns, [`HasDeadline::expired`] is not being called, and will
    /// not be called. Process context, sleeps. Must not be called with a lock held that `expired`
    /// takes.
    pub(crate) fn end(&self) {
        let before = self.state.xchg(ENDED, Full);
        // SAFETY: The timer was initialised by `new`.
        unsafe { shim::kfabric_shim_deadline_end(self.timer.get()) };
        if before & RUNNING != 0 {
            // SAFETY: `RUNNING` was cleared above.
            drop(unsafe { self.object() });
        }
    }

    /// The callback of the timer.
    ///
    /// # Safety
    ///
    /// `timer` is the timer of a deadline.
    unsafe extern "C" fn timed_out(timer: *mut bindings::timer_list) {
        let timer = Opaque::cast_from(timer).cast_mut();
        // SAFETY: By the requirement of this function; the type invariants keep the object alive.
        let deadline: &Self = unsafe { &*container_of!(timer, Self, timer) };
        let before = deadline.update(|state| match state & (WORK | ENDED) {
            ENDED => None,
            OFFERED => Some(RUNNING | OVERDUE),
            _ => Some(0),
        });
        match before & (WORK | ENDED) {
            ENDED => (),
            OFFERED => deadline.start(),
            work => {
                // SAFETY: `RUNNING` was set, because the timer was running, and was cleared above.
                let object = unsafe { deadline.object() };
                if work == OVERDUE {
                    object.expired();
                }
            }
        }
    }
}
