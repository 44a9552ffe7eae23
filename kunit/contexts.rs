// SPDX-License-Identifier: GPL-2.0

//! Calls closures of the suites in softirqs, and in hard interrupts.
//!
//! Both are callbacks of a timer. With `PREEMPT_RT` the interrupt is a thread, as most interrupts
//! are there.

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

/// The time between two interrupts.
const PERIOD: Delta = Delta::from_micros(50);

/// A function that is called in interrupts until it returns false.
type Function = KBox<dyn Fn() -> bool + Send + Sync>;

/// Defines a timer of a mode, and functions that run a closure in the timer's context.
macro_rules! context {
    ($type:ident, $repeat:ident, $once:ident, $mode:ident, $context:literal) => {
        #[pin_data]
        struct $type {
            function: Function,
            #[pin]
            timer: HrTimer<Self>,
        }

        impl_has_hr_timer! {
            impl HasHrTimer<Self> for $type {
                mode: $mode<Monotonic>, field: self.timer
            }
        }

        impl HrTimerCallback for $type {
            type Pointer<'a> = Arc<Self>;

            fn run(
                this: ArcBorrow<'_, Self>,
                mut context: HrTimerCallbackContext<'_, Self>,
            ) -> HrTimerRestart {
                if !(this.function)() {
                    return HrTimerRestart::NoRestart;
                }
                context.forward_now(PERIOD);
                HrTimerRestart::Restart
            }
        }

        #[doc = concat!("Calls `function` in ", $context, "s until it returns false or the result")]
        /// is dropped. Fails with `ENOMEM`.
        pub(crate) fn $repeat(
            function: impl Fn() -> bool + Send + Sync + 'static,
        ) -> Result<impl Sized> {
            let function: Function = KBox::new(function, GFP_KERNEL)?;
            let timer = Arc::pin_init(
                pin_init!($type {
                    function,
                    timer <- HrTimer::new(),
                }),
                GFP_KERNEL,
            )?;
            Ok(timer.start(PERIOD))
        }

        #[doc = concat!("Runs `run` once in a ", $context, ".")]
        ///
        /// Returns when it has run. Fails with `ENOMEM`.
        pub(crate) fn $once(run: impl Fn() + Send + Sync + 'static) -> Result {
            let ran = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
            let done = ran.clone();
            let timer = $repeat(move || {
                run();
                done.complete_all();
                false
            })?;
            ran.wait_for_completion();
            drop(timer);
            Ok(())
        }
    };
}

context!(
    SoftTimer,
    in_softirqs,
    in_softirq,
    RelativeSoftMode,
    "softirq"
);
context!(
    HardTimer,
    in_hard_irqs,
    in_hard_irq,
    RelativeMode,
    "hard interrupt"
);
