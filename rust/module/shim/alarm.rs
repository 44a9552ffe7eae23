// SPDX-License-Identifier: GPL-2.0

//! One timer of an object, which is set again and again.
//!
//! The kernel crate's timers give a handle each time they are started, and cancel when one is
//! dropped. An [`Alarm`] keeps the first handle, and starts the timer anew under it. Whose it is says
//! with [`impl_alarm!`] what happens when it rings.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/alarm.rs"]
mod kunit;

use kernel::{
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HasHrTimer,
            HrTimerCallback,
            HrTimerMode,
            HrTimerPointer, //
        },
        Delta, //
    }, //
};

/// When the timer of an object rings, or that it does not: in nanoseconds of the monotonic clock.
pub(crate) struct Due(Atomic<u64>);

impl Due {
    /// Not at all.
    const NEVER: u64 = u64::MAX;

    /// Not at all.
    pub(crate) fn never() -> Self {
        Self(Atomic::new(Self::NEVER))
    }

    /// The timer has rung. For its callback, see [`impl_alarm!`].
    pub(crate) fn rung(&self) {
        self.0.store(Self::NEVER, Relaxed);
    }
}

/// Keeps the handle of the timer of a `T`, and so the `T`, until it is dropped: then the timer is
/// cancelled, and no callback is running.
pub(crate) struct Alarm<T: HasHrTimer<T>> {
    kept: Option<Kept<T>>,
}

/// An object, and the handle of its timer.
///
/// # Invariants
///
/// `_handle` is what starting the timer of `object` gave.
struct Kept<T: HasHrTimer<T>> {
    _handle: ArcHrTimerHandle<T>,
    object: Arc<T>,
}

impl<T> Alarm<T>
where
    T: 'static + Send + Sync + HasHrTimer<T> + for<'a> HrTimerCallback<Pointer<'a> = Arc<T>>,
    T::TimerMode: HrTimerMode<Expires = Delta>,
{
    /// Not set.
    pub(crate) const fn new() -> Self {
        Self { kept: None }
    }

    /// Has the timer of `this` ring at `at`, or when it was to ring before, whichever is earlier.
    /// `due` is of the same timer, whose callback says [`Due::rung`] before it does anything else.
    ///
    /// An alarm is of one object for all its life, the first that it is set for: set for another, it
    /// does nothing. Any context.
    pub(crate) fn set(&mut self, this: &Arc<T>, due: &Due, now: u64, at: u64) {
        if let Some(kept) = &self.kept {
            if !Arc::ptr_eq(&kept.object, this) {
                return;
            }
        }
        // One that rings too early does no harm: who is woken sets it again.
        if due.0.load(Relaxed) <= at {
            return;
        }
        due.0.xchg(at, Full);
        let after = i64::try_from(at.saturating_sub(now)).unwrap_or(i64::MAX);
        let after = Delta::from_nanos(after);
        match &self.kept {
            // INVARIANT: The timer of `this` is started here.
            None => {
                self.kept = Some(Kept {
                    _handle: this.clone().start(after),
                    object: this.clone(),
                });
            }
            // SAFETY: By the type invariant of `Kept`, its handle keeps the object alive until the
            // timer is cancelled.
            Some(kept) => unsafe { T::start(Arc::as_ptr(&kept.object), after) },
        }
    }
}

/// Says which fields of a type are the timer that an [`Alarm`] sets and the timer's [`Due`], and what is
/// called when it rings: a function of `&Arc<Self>`, in hard interrupt context.
macro_rules! impl_alarm {
    (
        impl$({$($generics:tt)*})? Alarm for $self:ty {
            timer: self.$timer:ident, due: self.$due:ident, rings: $rings:path $(,)?
        }
    ) => {
        ::kernel::impl_has_hr_timer! {
            impl$({$($generics)*})? HasHrTimer<Self> for $self {
                mode: ::kernel::time::hrtimer::RelativeMode<::kernel::time::Monotonic>,
                field: self.$timer
            }
        }

        impl$(<$($generics)*>)? ::kernel::time::hrtimer::HrTimerCallback for $self {
            type Pointer<'a> = ::kernel::sync::Arc<Self>;

            fn run(
                this: ::kernel::sync::ArcBorrow<'_, Self>,
                _context: ::kernel::time::hrtimer::HrTimerCallbackContext<'_, Self>,
            ) -> ::kernel::time::hrtimer::HrTimerRestart {
                this.$due.rung();
                $rings(&this.into());
                ::kernel::time::hrtimer::HrTimerRestart::NoRestart
            }
        }
    };
}
pub(crate) use impl_alarm;
