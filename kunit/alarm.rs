// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_alarm`: an alarm sets the timer of one object.

use super::{
    impl_alarm,
    Alarm,
    Due, //
};
use crate::{
    kunit::helpers::{
        a_while,
        eventually,
        Count,
        MS, //
    },
    shim::sched::now_ns, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::hrtimer::HrTimer, //
};

/// An object with a timer, which counts the expirations.
#[pin_data]
struct TimedObject {
    expired: Arc<Count>,
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
}

impl_alarm! {
    impl Alarm for TimedObject { timer: self.timer, due: self.due, expired: Self::count }
}

impl TimedObject {
    fn new() -> Result<Arc<Self>> {
        let expired = Count::new()?;
        Arc::pin_init(
            pin_init!(Self {
                expired,
                due: Due::never(),
                timer <- HrTimer::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn count(self: &Arc<Self>) {
        self.expired.add(1);
    }
}

#[kunit_tests(kfabric_alarm)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_expires_repeatedly() -> Result {
        let object = TimedObject::new()?;
        let mut alarm = Alarm::new();
        for round in 1..4 {
            let now = now_ns();
            alarm.set(&object, &object.due, now, now + MS);
            ensure!(eventually(|| object.expired.get() == round));
        }
        let now = now_ns();
        let due = now + 5 * MS;
        alarm.set(&object, &object.due, now, due);
        drop(alarm);
        // On a loaded machine it may have expired before.
        let late = now_ns() >= due;
        a_while();
        ensure!(late || object.expired.get() == 3);
        Ok(())
    }

    #[test]
    fn an_alarm_sets_the_timer_of_its_first_object_only() -> Result {
        let (first, second) = (TimedObject::new()?, TimedObject::new()?);
        let mut alarm = Alarm::new();
        let now = now_ns();
        alarm.set(&first, &first.due, now, now + MS);
        ensure!(eventually(|| first.expired.get() == 1));
        // The timer of the second object would expire without a reference to that object.
        let now = now_ns();
        alarm.set(&second, &second.due, now, now + MS);
        a_while();
        ensure_eq!(second.expired.get(), 0);
        // The alarm still works for the first object.
        let now = now_ns();
        alarm.set(&first, &first.due, now, now + MS);
        ensure!(eventually(|| first.expired.get() == 2));
        Ok(())
    }
}
