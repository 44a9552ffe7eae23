// SPDX-License-Identifier: GPL-2.0

//! Tests of waiters: thresholds, errors and the order of release.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_cntr_waiters))]
mod suite {
    use super::super::*;
    use crate::testing::{
        ArrayMap,
        Log,
        Plain, //
    };

    /// A counter whose lock is always held, with a log of its releases.
    struct Counter {
        values: CounterValues<Plain, Plain>,
        waiters: Waiters<ArrayMap>,
        changes: Changes,
        log: Log<(u32, Outcome)>,
    }

    use Outcome::{
        ErrorChanged,
        Reached, //
    };

    impl Counter {
        fn new(max: u64) -> Self {
            Self {
                values: CounterValues::new(
                    Plain::new(0),
                    Plain::new(0),
                    [Plain::new(0), Plain::new(0)],
                    max,
                ),
                waiters: Waiters::new(ArrayMap::new(), ArrayMap::new()),
                changes: Changes::new(),
                log: Log::new(),
            }
        }

        /// Arms a waiter with this threshold as its name.
        fn wait(&mut self, threshold: u32) -> Option<Waiter> {
            let cond = WaitCondition::AtLeast(u64::from(threshold), self.entered());
            self.wait_for(cond, threshold)
        }

        /// Arms a waiter that has entered before. Returns the outcome if it does not wait.
        fn wait_since(&mut self, threshold: u32, entered: WaitStart) -> Option<Outcome> {
            let cond = WaitCondition::AtLeast(u64::from(threshold), entered);
            match self.waiters.arm(&self.values, cond, threshold) {
                Armed::Waiting(_) => None,
                Armed::Over(outcome, name) => {
                    assert_eq!(name, threshold);
                    Some(outcome)
                }
            }
        }

        fn wait_for(&mut self, cond: WaitCondition, name: u32) -> Option<Waiter> {
            match self.waiters.arm(&self.values, cond, name) {
                Armed::Waiting(waiter) => Some(waiter),
                Armed::Over(..) => None,
            }
        }

        fn entered(&self) -> WaitStart {
            self.changes.entered(&self.values)
        }

        fn seen(&self) -> Seen {
            self.changes.seen(&self.values)
        }

        fn changed(&self, since: &Seen) -> bool {
            self.seen() != *since
        }

        fn fire(&mut self, reached: ThresholdReached) {
            let (changes, log) = (&mut self.changes, &mut self.log);
            let release = |name, why| log.push((name, why));
            self.waiters
                .fire(&self.values, reached, move || changes, release);
        }

        /// A task releases what changes without the lock of the waiters have reached.
        fn release_changes(&mut self) {
            let (changes, log) = (&mut self.changes, &mut self.log);
            let release = |name, why| log.push((name, why));
            self.waiters
                .release_changes(&self.values, move || changes, release);
        }

        fn add(&mut self, n: u64) {
            if let Some(reached) = self.values.add(n) {
                self.fire(reached);
            }
        }

        fn set(&mut self, value: u64) -> Result {
            let (changes, log) = (&mut self.changes, &mut self.log);
            let release = |name, why| log.push((name, why));
            self.waiters.set(&self.values, changes, value, release)
        }

        fn add_err(&mut self, n: u64) -> bool {
            let (changes, log) = (&mut self.changes, &mut self.log);
            let release = |name, why| log.push((name, why));
            self.waiters.add_err(&self.values, changes, n, release)
        }

        fn set_err(&mut self, err: u64) -> Result<bool> {
            let (changes, log) = (&mut self.changes, &mut self.log);
            let release = |name, why| log.push((name, why));
            self.waiters.set_err(&self.values, changes, err, release)
        }
    }

    #[test]
    fn an_add_releases_only_the_waiters_that_are_due() {
        let mut c = Counter::new(0);
        assert!(c.wait(5).is_some());
        assert!(c.wait(3).is_some());
        assert!(c.wait(9).is_some());
        c.add(2);
        assert_eq!(c.log, Log::of(&[]));
        c.add(4);
        assert_eq!(c.log, Log::of(&[(3, Reached), (5, Reached)]));
        assert_eq!(c.waiters.lowest(), Some(9));
        assert_eq!(c.waiters.len(), 1);
        c.add(3);
        assert_eq!(c.log, Log::of(&[(3, Reached), (5, Reached), (9, Reached)]));
        assert!(c.waiters.is_empty());
    }

    #[test]
    fn another_task_releases_the_waiters_of_unlocked_adds() {
        let mut c = Counter::new(9);
        assert!(c.wait(3).is_some());
        assert!(c.wait(8).is_some());
        for (n, value) in [(4, 4), (7, 1)] {
            if let Some(reached) = c.values.add(n) {
                c.changes.pass(&c.values, &reached);
            }
            assert_eq!(c.values.read(), value);
        }
        assert_eq!(c.log, Log::of(&[]));
        // One release stands for both adds.
        c.release_changes();
        assert_eq!(c.log, Log::of(&[(3, Reached), (8, Reached)]));
        c.fire(ThresholdReached::of_unlocked());
        assert_eq!(c.log, Log::of(&[(3, Reached), (8, Reached)]));
    }

    #[test]
    fn another_task_releases_the_waiters_of_an_unlocked_set() {
        let mut c = Counter::new(9);
        c.add(2);
        assert!(c.wait(3).is_some());
        assert!(c.wait(4).is_some());
        assert!(c.wait(6).is_some());
        assert_eq!(c.changes.set(&c.values, 10), Err(Errno::EINVAL));
        assert!(c.waiters.has_released_changes(&c.values));
        assert_eq!(c.changes.set(&c.values, 4), Ok(()));
        assert_eq!(c.changes.set(&c.values, 0), Ok(()));
        assert_eq!((c.values.read(), c.log), (0, Log::of(&[])));
        assert!(!c.waiters.has_released_changes(&c.values));
        c.log = Log::new();
        c.release_changes();
        assert_eq!(c.log, Log::of(&[(3, Reached), (4, Reached)]));
        // A later waiter is not released for what was before.
        assert!(c.waiters.has_released_changes(&c.values));
        assert!(c.wait(1).is_some());
        c.release_changes();
        c.fire(ThresholdReached::of_unlocked());
        assert_eq!(c.waiters.len(), 2);
        // A change under the lock of the waiters takes the notes, too.
        assert_eq!(c.changes.set(&c.values, 7), Ok(()));
        assert_eq!(c.set(0), Ok(()));
        assert!(c.waiters.is_empty() && c.waiters.has_released_changes(&c.values));
    }

    #[test]
    fn an_unlocked_change_of_the_error_value_ends_waits_that_have_entered() {
        let mut c = Counter::new(9);
        let (before, seen) = (c.entered(), c.seen());
        assert!(c.wait(2).is_some());
        assert!(c.changes.add_err(&c.values, 9));
        assert!(c.changes.add_err(&c.values, 1));
        assert_eq!((c.values.read_err(), c.log), (0, Log::of(&[])));
        c.log = Log::new();
        assert!(c.changed(&seen));
        let after = c.entered();
        c.release_changes();
        assert_eq!(c.log, Log::of(&[(2, ErrorChanged)]));
        assert_eq!(c.wait_since(3, before), Some(ErrorChanged));
        assert_eq!(c.wait_since(4, after), None);
        // No change.
        assert_eq!(c.changes.set_err(&c.values, 0), Ok(false));
        assert_eq!(c.changes.set_err(&c.values, 10), Err(Errno::EINVAL));
        assert!(!c.changes.add_err(&c.values, 10));
        assert!(c.waiters.has_released_changes(&c.values));
        assert_eq!(c.changes.set_err(&c.values, 1), Ok(true));
        c.release_changes();
        assert_eq!(c.log, Log::of(&[(2, ErrorChanged), (4, ErrorChanged)]));
    }

    #[test]
    fn an_add_below_every_threshold_takes_no_lock() {
        let mut c = Counter::new(0);
        let five = c.wait(5);
        assert!(c.wait(8).is_some());
        if let Some(five) = five {
            assert_eq!(c.waiters.disarm(&c.values, &five), Some(5));
            assert_eq!(c.waiters.disarm(&c.values, &five), None);
        }
        assert_eq!(c.values.add(7), None);
        assert!(c.values.add(1).is_some());
    }

    #[test]
    fn a_condition_that_holds_is_over_at_once() {
        let mut c = Counter::new(0);
        assert_eq!(c.wait(0), None);
        c.add(5);
        assert_eq!(c.wait(5), None);
        assert!(c.waiters.is_empty());
        // The waiter leaves no trace in `due`.
        assert_eq!(c.values.add(1000), None);
    }

    #[test]
    fn set_up_and_down_again_is_not_missed() {
        let mut c = Counter::new(0);
        assert!(c.wait(3).is_some());
        assert!(c.wait(4).is_some());
        assert_eq!(c.set(3), Ok(()));
        assert_eq!(c.set(1), Ok(()));
        assert_eq!(c.values.read(), 1);
        assert_eq!(c.log, Log::of(&[(3, Reached)]));
        c.add(3);
        assert_eq!(c.log, Log::of(&[(3, Reached), (4, Reached)]));
    }

    #[test]
    fn a_set_releases_for_an_add_whose_adder_is_late() {
        let mut c = Counter::new(0);
        assert!(c.wait(3).is_some());
        let reached = c.values.add(3);
        assert_eq!(c.set(1), Ok(()));
        assert_eq!(c.log, Log::of(&[(3, Reached)]));
        // A waiter that arms after the set is not released by the add before it.
        assert!(c.wait(2).is_some());
        if let Some(reached) = reached {
            c.fire(reached);
        }
        assert_eq!(c.log, Log::of(&[(3, Reached)]));
        c.add(1);
        assert_eq!(c.log, Log::of(&[(3, Reached), (2, Reached)]));
    }

    #[test]
    fn a_wrap_releases_all_reachable_thresholds() {
        let mut c = Counter::new(9);
        assert_eq!(c.set(7), Ok(()));
        assert!(c.wait(9).is_some());
        assert!(c.wait(8).is_some());
        assert!(c.wait(10).is_some());
        c.add(4);
        assert_eq!(c.values.read(), 1);
        assert_eq!(c.log, Log::of(&[(8, Reached), (9, Reached)]));
        assert_eq!(c.waiters.lowest(), Some(10));
    }

    #[test]
    fn a_counter_of_the_full_width_wraps_in_the_same_way() {
        let mut c = Counter::new(0);
        assert_eq!(c.set(u64::MAX - 1), Ok(()));
        let far = WaitCondition::AtLeast(u64::MAX, c.entered());
        assert!(c.wait_for(far, 1).is_some());
        assert!(c.wait_for(WaitCondition::AnyChange(c.seen()), 2).is_some());
        c.add(5);
        assert_eq!(c.values.read(), 3);
        assert_eq!(c.log, Log::of(&[(1, Reached), (2, Reached)]));
        // The largest threshold is reached, and a value one below it is not enough.
        assert!(c.wait_for(far, 3).is_some());
        assert_eq!(c.set(u64::MAX - 1), Ok(()));
        assert_eq!(c.waiters.len(), 1);
        c.add(1);
        assert_eq!(c.log, Log::of(&[(1, Reached), (2, Reached), (3, Reached)]));
    }

    #[test]
    fn a_changed_error_value_ends_waits() {
        let mut c = Counter::new(0);
        assert!(c.add_err(1));
        assert!(c.wait(2).is_some());
        assert!(c.wait(1).is_some());
        assert_eq!(c.log, Log::of(&[]));
        assert!(c.add_err(1));
        assert_eq!(c.set_err(0), Ok(true));
        assert_eq!(c.log, Log::of(&[(1, ErrorChanged), (2, ErrorChanged)]));
        assert_eq!(c.values.read_err(), 0);
        assert!(c.wait(1).is_some());
        assert_eq!(c.set_err(3), Ok(true));
        assert_eq!(
            c.log,
            Log::of(&[(1, ErrorChanged), (2, ErrorChanged), (1, ErrorChanged)])
        );
        assert_eq!(c.values.add(1000), None);
    }

    #[test]
    fn an_error_value_that_stays_the_same_ends_no_wait() {
        let mut c = Counter::new(0);
        assert!(c.add_err(5));
        let (seen, entered) = (c.seen(), c.entered());
        assert!(c.wait(1).is_some());
        assert!(c.wait_for(WaitCondition::AnyChange(seen), 7).is_some());
        assert!(!c.add_err(0));
        assert_eq!(c.set_err(5), Ok(false));
        assert_eq!(c.log, Log::of(&[]));
        assert!(!c.waiters.err_changed(entered) && !c.changed(&seen));
        assert_eq!(c.wait_since(2, entered), None);
        assert!(c.add_err(1));
        assert_eq!(
            c.log,
            Log::of(&[(7, Reached), (1, ErrorChanged), (2, ErrorChanged)])
        );
    }

    #[test]
    fn a_change_between_entering_and_arming_ends_the_wait() {
        let mut c = Counter::new(0);
        let before = c.entered();
        assert!(c.add_err(1));
        assert_eq!(c.set_err(0), Ok(true));
        // The value is the same as before, but it changed.
        assert_eq!(c.wait_since(1, before), Some(ErrorChanged));
        assert!(c.waiters.is_empty());
        assert_eq!(c.values.add(1), None);
        assert_eq!(c.wait_since(1, before), Some(Reached));
        // A change before the thread entered does not count.
        let after = c.entered();
        assert_eq!(c.wait_since(2, after), None);
        // An interrupted wait continues with the number of its entry.
        assert_ne!(before.number(), 0);
        let again = WaitStart::again(before.number());
        assert_eq!(again, before);
        assert_eq!(c.wait_since(3, again), Some(ErrorChanged));
        assert_eq!(c.wait_since(3, WaitStart::again(after.number())), None);
    }

    #[test]
    fn success_is_checked_before_the_error() {
        let mut c = Counter::new(0);
        assert!(c.wait(2).is_some());
        assert!(c.wait(3).is_some());
        let reached = c.values.add(2);
        assert!(reached.is_some());
        // The error is written before the adder takes the lock.
        assert!(c.add_err(1));
        assert_eq!(c.log, Log::of(&[(2, Reached), (3, ErrorChanged)]));
    }

    #[test]
    fn outcomes_as_the_call_returns_them() {
        assert_eq!(Reached.into_result(), Ok(()));
        assert_eq!(ErrorChanged.into_result(), Err(Errno::KFI_EAVAIL));
    }

    #[test]
    fn values_above_the_maximum() {
        let mut c = Counter::new(9);
        assert!(c.wait(5).is_some());
        assert_eq!(c.set(10), Err(Errno::EINVAL));
        assert_eq!(c.set_err(10), Err(Errno::EINVAL));
        assert_eq!((c.values.read(), c.values.read_err()), (0, 0));
        assert_eq!(c.log, Log::of(&[]));
        assert_eq!(c.set_err(9), Ok(true));
        assert!(c.add_err(2));
        assert_eq!(c.values.read_err(), 1);
        assert_eq!(c.set(9), Ok(()));
    }

    #[test]
    fn any_change_waits_end_at_every_change() {
        let mut c = Counter::new(0);
        c.add(5);
        for (i, change) in [
            |c: &mut Counter| c.add(1),
            |c: &mut Counter| assert_eq!(c.set(3), Ok(())),
            |c: &mut Counter| assert_eq!(c.set(3), Ok(())),
            |c: &mut Counter| assert!(c.add_err(1)),
            |c: &mut Counter| assert_eq!(c.set_err(0), Ok(true)),
        ]
        .into_iter()
        .enumerate()
        {
            let seen = c.seen();
            c.log = Log::new();
            assert!(!c.changed(&seen));
            c.add(0);
            assert!(!c.changed(&seen));
            assert!(c
                .wait_for(WaitCondition::AnyChange(seen), i as u32)
                .is_some());
            change(&mut c);
            assert_eq!(c.log, Log::of(&[(i as u32, Reached)]));
            assert!(c.changed(&seen));
            // The snapshot is older than the change, so the waiter does not sleep.
            assert_eq!(c.wait_for(WaitCondition::AnyChange(seen), 9), None);
        }
    }

    #[test]
    fn closing_by_force_releases_all() {
        let mut c = Counter::new(0);
        assert!(c.wait(5).is_some());
        assert!(c.wait_for(WaitCondition::AnyChange(c.seen()), 7).is_some());
        let mut gone = Log::new();
        c.waiters.release_all(&c.values, |name| gone.push(name));
        assert_eq!(gone, Log::of(&[5, 7]));
        assert!(c.waiters.is_empty());
        assert_eq!(c.values.add(100), None);
    }

    #[test]
    fn a_late_adder_does_not_release_a_waiter_that_saw_its_add() {
        let mut c = Counter::new(0);
        assert!(c.wait(1).is_some());
        let reached = c.values.add(1);
        assert!(c.wait_for(WaitCondition::AnyChange(c.seen()), 7).is_some());
        if let Some(reached) = reached {
            c.fire(reached);
        }
        assert_eq!(c.log, Log::of(&[(1, Reached)]));
        c.add(1);
        assert_eq!(c.log, Log::of(&[(1, Reached), (7, Reached)]));
    }
}
