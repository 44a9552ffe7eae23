// SPDX-License-Identifier: GPL-2.0

//! A timer that an object sets repeatedly.
//!
//! The kernel crate's timers return a handle each time they are started, and dropping the handle
//! cancels the timer. An [`Alarm`] keeps the first handle and restarts the timer with it. The
//! object's type uses [`impl_alarm!`] to define its timer and the function to call on expiry.

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

/// The expiry time of an object's timer in nanoseconds of the monotonic clock, or never.
pub(crate) struct Due(Atomic<u64>);

impl Due {
    /// The timer is not set.
    const NEVER: u64 = u64::MAX;

    /// The timer is not set.
    pub(crate) fn never() -> Self {
        Self(Atomic::new(Self::NEVER))
    }

    /// Records that the timer has expired. Called by its callback, see [`impl_alarm!`].
    pub(crate) fn clear(&self) {
        self.0.store(Self::NEVER, Relaxed);
    }
}

/// Keeps the handle of the timer of a `T`, and so the `T`. Dropping it cancels the timer;
/// afterwards no callback is running.
pub(crate) struct Alarm<T: HasHrTimer<T>> {
    armed: Option<Armed<T>>,
}

/// An object, and the handle of its timer.
///
/// # Invariants
///
/// `_handle` is the result of starting the timer of `object`.
struct Armed<T: HasHrTimer<T>> {
    _handle: ArcHrTimerHandle<T>,
    object: Arc<T>,
}

impl<T> Alarm<T>
where
    T: 'static + Send + Sync + HasHrTimer<T> + for<'a> HrTimerCallback<Pointer<'a> = Arc<T>>,
    T::TimerMode: HrTimerMode<Expires = Delta>,
{
    /// An alarm that is not set.
    pub(crate) const fn new() -> Self {
        Self { armed: None }
    }

    /// Whether the alarm keeps an object.
    #[cfg(kfi_kunit)]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Sets the timer of `this` to expire at `at`, unless it expires earlier. `due` belongs to the
    /// same timer, whose callback calls [`Due::clear`] before anything else.
    ///
    /// An alarm belongs to the first object that it is set for: for another one, this does nothing.
    /// Any context.
    pub(crate) fn set(&mut self, this: &Arc<T>, due: &Due, now: u64, at: u64) {
        if let Some(armed) = &self.armed {
            if !Arc::ptr_eq(&armed.object, this) {
                return;
            }
        }
        // A timer that expires too early does no harm: its callback's work sets it again.
        if due.0.load(Relaxed) <= at {
            return;
        }
        due.0.xchg(at, Full);
        let after = i64::try_from(at.saturating_sub(now)).unwrap_or(i64::MAX);
        let after = Delta::from_nanos(after);
        match &self.armed {
            // INVARIANT: The timer of `this` is started here.
            None => {
                self.armed = Some(Armed {
                    _handle: this.clone().start(after),
                    object: this.clone(),
                });
            }
            // SAFETY: By the type invariant of `Armed`, its handle keeps the object alive until the
            // timer is cancelled.
            Some(armed) => unsafe { T::start(Arc::as_ptr(&armed.object), after) },
        }
    }
}

/// Implements an alarm for a type: names the field of the timer, the field of its [`Due`], and the
/// function to call when it expires. The function takes `&Arc<Self>`, in hard interrupt context.
macro_rules! impl_alarm {
    (
        impl$({$($generics:tt)*})? Alarm for $self:ty {
            timer: self.$timer:ident, due: self.$due:ident, expired: $expired:path $(,)?
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
                this.$due.clear();
                $expired(&this.into());
                ::kernel::time::hrtimer::HrTimerRestart::NoRestart
            }
        }
    };
}
pub(crate) use impl_alarm;
