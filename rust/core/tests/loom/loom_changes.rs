// SPDX-License-Identifier: GPL-2.0

//! The changes of a counter without the lock of its waiters, under loom: beside adders, beside
//! holders of that lock, and beside waiters that arm. No waiter or work is missed whose condition
//! held at any moment, and none is released for a moment before it came.

use crate::loom_support::{
    LoomWord,
    TreeMap,
    WorkTrees, //
};
use kfi_core::cntr::{
    Armed,
    Changes,
    Compared,
    CounterValues,
    Outcome,
    ThresholdReached,
    UnlockedAdd,
    WaitCondition,
    Waiters, //
};
use loom::{
    sync::{
        Arc,
        Mutex,
        MutexGuard, //
    },
    thread, //
};

type Values = CounterValues<LoomWord, LoomWord>;

/// A counter like the module's.
struct Counter {
    values: Values,
    locked: Mutex<Locked>,
    changes: Mutex<Changes>,
}

struct Locked {
    waiters: Waiters<TreeMap, WorkTrees>,
    released: Vec<(u32, Outcome)>,
}

impl Counter {
    fn new(max: u64) -> Arc<Self> {
        let word = LoomWord::new;
        Arc::new(Self {
            values: CounterValues::new(word(), word(), [word(), word()], max),
            locked: Mutex::new(Locked {
                waiters: Waiters::with_work(
                    TreeMap::default(),
                    TreeMap::default(),
                    WorkTrees::default(),
                ),
                released: Vec::new(),
            }),
            changes: Mutex::new(Changes::new()),
        })
    }

    /// Takes the lock of the waiters, as a task that arms one.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        let mut locked = self.locked.lock().unwrap();
        let Locked { waiters, released } = &mut *locked;
        let release = |name, why| released.push((name, why));
        waiters.release_changes(&self.values, || self.changes.lock().unwrap(), release);
        locked
    }

    fn add(&self, n: u64) {
        if let Some(reached) = self.values.add(n) {
            self.fire(&mut self.locked.lock().unwrap(), reached);
        }
    }

    fn fire(&self, locked: &mut Locked, reached: ThresholdReached) {
        let Locked { waiters, released } = locked;
        let release = |name, why| released.push((name, why));
        let changes = || self.changes.lock().unwrap();
        waiters.fire(&self.values, reached, changes, release);
    }

    /// Makes a change without the lock of the waiters.
    fn change<R>(&self, change: impl FnOnce(&mut Changes, &Values) -> R) -> R {
        change(&mut self.changes.lock().unwrap(), &self.values)
    }

    fn set(&self, value: u64) {
        self.change(|changes, values| changes.set(values, value).unwrap());
    }

    fn add_err(&self, n: u64) {
        self.change(|changes, values| assert!(changes.add_err(values, n)));
    }

    fn set_err(&self, err: u64) {
        self.change(|changes, values| assert!(changes.set_err(values, err).unwrap()));
    }

    /// An add without the lock of the waiters.
    fn add_unlocked(&self, n: u64) {
        if let Some(reached) = self.values.add(n) {
            self.change(|changes, values| changes.pass(values, &reached));
        }
    }

    fn set_locked(&self, value: u64) {
        let Locked { waiters, released } = &mut *self.locked.lock().unwrap();
        let release = |name, why| released.push((name, why));
        let changes = self.changes.lock().unwrap();
        let set = waiters.set(&self.values, changes, value, release);
        set.unwrap();
    }

    fn add_err_locked(&self, n: u64) {
        let Locked { waiters, released } = &mut *self.locked.lock().unwrap();
        let release = |name, why| released.push((name, why));
        let changes = self.changes.lock().unwrap();
        assert!(waiters.add_err(&self.values, changes, n, release));
    }

    /// The worker releases what unlocked changes and adds have reached.
    fn work(&self) {
        let mut locked = self.lock();
        self.fire(&mut locked, ThresholdReached::of_unlocked());
    }

    /// Waits for this threshold, which is also the name. Returns whether it has to.
    fn wait(&self, threshold: u32) -> bool {
        let entered = self.change(|changes, values| changes.entered(values));
        self.arm(WaitCondition::AtLeast(threshold.into(), entered), threshold)
    }

    fn arm(&self, cond: WaitCondition, name: u32) -> bool {
        let armed = self.lock().waiters.arm(&self.values, cond, name);
        matches!(armed, Armed::Waiting(_))
    }

    fn queue(&self, kind: Compared, threshold: u64, name: u32) {
        let mut locked = self.lock();
        let queued = locked.waiters.queue(&self.values, kind, threshold, name);
        queued.expect("nothing is left");
    }

    fn released(&self) -> Vec<(u32, Outcome)> {
        self.locked.lock().unwrap().released.clone()
    }

    /// The names of the works that are due, in order.
    fn due(&self) -> Vec<u32> {
        let locked = self.locked.lock().unwrap();
        let due = &locked.waiters.works().map().due;
        due.iter().map(|(_, name)| *name).collect()
    }
}

/// Runs each closure on a CPU of its own, the last one on this CPU.
macro_rules! on_cpus {
    ($counter:ident: $first:expr, $($other:expr),*) => {{
        let threads = [$({
            let $counter = $counter.clone();
            thread::spawn(move || { $other; })
        }),*];
        let result = $first;
        for thread in threads {
            thread.join().unwrap();
        }
        result
    }};
}

/// Runs a model in all orders with at most this number of preemptions.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

#[test]
fn a_set_up_meets_a_waiter_that_arms() {
    model(3, || {
        let c = Counter::new(0);
        let armed = on_cpus!(c: c.wait(2), {
            c.set(2);
            c.work();
        });
        let expected: &[_] = if armed { &[(2, Outcome::Reached)] } else { &[] };
        assert_eq!(c.released(), expected);
    });
}

#[test]
fn a_set_down_misses_no_add_before_it() {
    model(2, || {
        let c = Counter::new(0);
        assert!(c.wait(3));
        on_cpus!(c: c.work(), c.add(3), c.set(1));
        // The worker may have come before the set.
        c.work();
        assert!(matches!(c.values.read(), 1 | 4));
        assert_eq!(c.released(), [(3, Outcome::Reached)]);
    });
}

#[test]
fn two_sets_beside_an_add_miss_nothing() {
    model(2, || {
        let c = Counter::new(0);
        c.set_locked(1);
        assert!(c.wait(4));
        let begun = on_cpus!(
            c: {
                let begun = c.values.begin_unlocked(3);
                let reached = c.values.finish_unlocked(3, begun);
                if let Some(reached) = reached {
                    c.fire(&mut c.locked.lock().unwrap(), reached);
                }
                begun
            },
            c.set(0),
            c.set_locked(0)
        );
        c.work();
        match begun {
            // The add came before both sets.
            UnlockedAdd::Passed(1) => assert_eq!(c.released(), [(4, Outcome::Reached)]),
            // After a set, or the waiter is released already.
            UnlockedAdd::Below => assert!(c.released().len() <= 1),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_waiter_after_a_set_down_is_not_released_by_it() {
    model(2, || {
        let c = Counter::new(0);
        c.set_locked(5);
        let armed = on_cpus!(
            c: {
                c.set(0);
                c.wait(2)
            },
            c.work(),
            c.set_locked(1)
        );
        c.work();
        assert!(armed);
        assert!(c.released().is_empty());
    });
}

#[test]
fn a_waiter_that_has_seen_a_set_down_is_not_released_by_it() {
    model(3, || {
        let c = Counter::new(0);
        c.set_locked(5);
        // The waiter may have seen the value of a set that has not returned.
        let armed = on_cpus!(
            c: (c.values.read() == 0).then(|| c.wait(2)),
            {
                c.set(0);
                c.work();
            }
        );
        if let Some(armed) = armed {
            assert!(armed);
            assert!(c.released().is_empty());
        }
    });
}

#[test]
fn a_waiter_that_has_seen_an_error_is_not_ended_by_it() {
    model(3, || {
        let c = Counter::new(0);
        let armed = on_cpus!(
            c: (c.values.read_err() == 1).then(|| c.wait(2)),
            {
                c.add_err(1);
                c.work();
            }
        );
        if let Some(armed) = armed {
            assert!(armed);
            assert!(c.released().is_empty());
        }
    });
}

#[test]
fn an_error_ends_a_wait_that_has_begun() {
    model(3, || {
        let c = Counter::new(0);
        let entered = c.change(|changes, values| changes.entered(values));
        let armed = on_cpus!(
            c: c.arm(WaitCondition::AtLeast(5, entered), 5),
            {
                c.add_err(1);
                c.set_err(0);
                c.work();
            }
        );
        // The waiter was armed and is released, or it did not arm.
        let expected: &[_] = if armed {
            &[(5, Outcome::ErrorChanged)]
        } else {
            &[]
        };
        assert_eq!(c.released(), expected);
    });
}

#[test]
fn no_error_of_three_cpus_is_lost() {
    model(2, || {
        let c = Counter::new(2);
        assert!(c.wait(2));
        on_cpus!(c: c.add_err(1), c.add_err_locked(1), {
            c.add_err(1);
            c.work();
        });
        // Modulo 3.
        assert_eq!(c.values.read_err(), 0);
        assert_eq!(c.released(), [(2, Outcome::ErrorChanged)]);
    });
}

#[test]
fn a_set_of_the_same_value_is_a_change() {
    model(3, || {
        let c = Counter::new(0);
        let (seen, armed) = on_cpus!(
            c: {
                let seen = c.change(|changes, values| changes.seen(values));
                (seen, c.arm(WaitCondition::AnyChange(seen), 7))
            },
            {
                c.set(0);
                c.work();
            }
        );
        let released = c.released().len();
        if seen == c.change(|changes, values| changes.seen(values)) {
            // The snapshot was taken after the change.
            assert!(armed && released == 0);
        } else {
            assert_eq!(released, usize::from(armed));
        }
    });
}

#[test]
fn a_wrap_without_the_lock_misses_nothing() {
    for max in [0, 2] {
        model(2, move || {
            let c = Counter::new(max);
            let last = c.values.max();
            c.set_locked(last - 1);
            let entered = c.change(|changes, values| changes.entered(values));
            assert!(c.arm(WaitCondition::AtLeast(last, entered), 9));
            on_cpus!(c: c.add_unlocked(2), c.work());
            c.work();
            assert_eq!(c.values.read(), 0);
            assert_eq!(c.released(), [(9, Outcome::Reached)]);
        });
    }
}

#[test]
fn a_sum_that_an_error_and_an_add_reach_is_due() {
    model(2, || {
        let c = Counter::new(0);
        c.queue(Compared::Sum, 2, 2);
        on_cpus!(c: c.add(1), {
            c.add_err(1);
            c.work();
        });
        assert_eq!(c.due(), [2]);
    });
}

#[test]
fn an_error_meets_work_that_is_queued() {
    model(3, || {
        let c = Counter::new(0);
        on_cpus!(c: c.queue(Compared::Sum, 1, 1), {
            c.add_err(1);
            c.work();
        });
        assert_eq!(c.due(), [1]);
    });
}

#[test]
fn a_lower_error_misses_no_sum_before_it() {
    model(2, || {
        let c = Counter::new(0);
        c.add_err_locked(1);
        c.queue(Compared::Sum, 2, 2);
        let before = on_cpus!(
            c: {
                let reached = c.values.add(1);
                // The error value was lowered after the add.
                let before = c.values.read_err() == 1;
                if let Some(reached) = reached {
                    c.fire(&mut c.locked.lock().unwrap(), reached);
                }
                before
            },
            c.set_err(0),
            c.set_locked(0)
        );
        c.work();
        if before {
            assert_eq!(c.due(), [2]);
        }
    });
}

#[test]
fn a_sum_of_two_moments_is_not_due() {
    model(3, || {
        let c = Counter::new(0);
        c.set_locked(1);
        c.queue(Compared::Sum, 2, 2);
        c.queue(Compared::Success, 3, 3);
        // (1, 0), (0, 0), (0, 1)
        on_cpus!(
            c: c.fire(&mut c.locked.lock().unwrap(), ThresholdReached::of_unlocked()),
            {
                c.set(0);
                c.add_err(1);
            }
        );
        assert!(c.due().is_empty());
        c.work();
        assert!(c.due().is_empty());
    });
}
