// SPDX-License-Identifier: GPL-2.0

//! Runs closures of the suites in a softirq, and in a hard interrupt.
//!
//! Both are callbacks of a timer that expires at once. With `PREEMPT_RT` the interrupt is a thread,
//! as most interrupts are there.

use kernel::{
    impl_has_hr_timer,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Completion, //
    },
    time::{
        hrtimer::{
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    }, //
};

/// Defines a type with a timer of a mode, and the function that uses it.
macro_rules! context {
    ($name:ident, $type:ident, $mode:ident, $doc:literal) => {
        #[pin_data]
        struct $type<F: Fn() + Send + Sync + 'static> {
            #[pin]
            timer: HrTimer<Self>,
            #[pin]
            ran: Completion,
            run: F,
        }

        impl_has_hr_timer! {
            impl{F: Fn() + Send + Sync + 'static} HasHrTimer<Self> for $type<F> {
                mode: $mode<Monotonic>,
                field: self.timer
            }
        }

        impl<F: Fn() + Send + Sync + 'static> HrTimerCallback for $type<F> {
            type Pointer<'a> = Arc<Self>;

            fn run(
                this: ArcBorrow<'_, Self>,
                _context: HrTimerCallbackContext<'_, Self>,
            ) -> HrTimerRestart {
                (this.run)();
                this.ran.complete_all();
                HrTimerRestart::NoRestart
            }
        }

        #[doc = $doc]
        ///
        /// Returns when it has run. Fails with `ENOMEM`.
        pub(crate) fn $name(run: impl Fn() + Send + Sync + 'static) -> Result {
            let timer = Arc::pin_init(
                pin_init!($type {
                    timer <- HrTimer::new(),
                    ran <- Completion::new(),
                    run,
                }),
                GFP_KERNEL,
            )?;
            let handle = timer.clone().start(Delta::from_nanos(1));
            timer.ran.wait_for_completion();
            drop(handle);
            Ok(())
        }
    };
}

context!(
    in_softirq,
    Softirq,
    RelativeSoftMode,
    "Runs `run` once in a softirq."
);
context!(
    in_hard_irq,
    HardIrq,
    RelativeMode,
    "Runs `run` once in a hard interrupt."
);
