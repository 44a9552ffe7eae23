// SPDX-License-Identifier: GPL-2.0

//! The counter under loom, in every order in which two or three CPUs can see each other's accesses.
//! `cntr_oracle` tests the semantics of the calls; these tests check that the lock-free add loses
//! no wake-up and wakes no waiter without a reason. `loom_changes` has the changes without the lock
//! of the waiters.

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
    Seen,
    ThresholdReached,
    WaitCondition,
    WaitStart,
    Waiter,
    Waiters, //
};
use loom::{
    sync::{
        atomic::{
            AtomicU64,
            Ordering::Relaxed, //
        },
        Arc,
        Mutex, //
    },
    thread, //
};

/// A counter like the module's: the values, and the waiters under a lock.
struct Counter {
    values: CounterValues<LoomWord, LoomWord>,
    locked: Mutex<Locked>,
    changes: Mutex<Changes>,
}

struct Locked {
    waiters: Waiters<TreeMap>,
    released: Vec<(u32, Outcome)>,
    /// A set was executed.
    set: bool,
}

impl Counter {
    fn new(max: u64) -> Arc<Self> {
        Arc::new(Self {
            values: CounterValues::new(
                LoomWord::new(),
                LoomWord::new(),
                [LoomWord::new(), LoomWord::new()],
                max,
            ),
            locked: Mutex::new(Locked {
                waiters: Waiters::new(TreeMap::default(), TreeMap::default()),
                released: Vec::new(),
                set: false,
            }),
            changes: Mutex::new(Changes::new()),
        })
    }

    fn add(&self, n: u64) {
        if let Some(reached) = self.values.add(n) {
            self.fire(reached);
        }
    }

    fn fire(&self, reached: ThresholdReached) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        let changes = || self.changes.lock().unwrap();
        locked.waiters.fire(&self.values, reached, changes, release);
    }

    fn set(&self, value: u64) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        let changes = self.changes.lock().unwrap();
        let set = locked.waiters.set(&self.values, changes, value, release);
        set.unwrap();
        locked.set = true;
    }

    fn add_err(&self, n: u64) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        let changes = self.changes.lock().unwrap();
        locked.waiters.add_err(&self.values, changes, n, release);
    }

    /// Returns `None` if the condition holds.
    fn arm(&self, cond: WaitCondition, name: u32) -> Option<Waiter> {
        let mut locked = self.locked.lock().unwrap();
        match locked.waiters.arm(&self.values, cond, name) {
            Armed::Over(..) => None,
            Armed::Waiting(waiter) => Some(waiter),
        }
    }

    fn entered(&self) -> WaitStart {
        self.changes.lock().unwrap().entered(&self.values)
    }

    fn seen(&self) -> Seen {
        self.changes.lock().unwrap().seen(&self.values)
    }

    /// Waits for this threshold, which is also the name.
    fn wait(&self, threshold: u32) -> Option<Waiter> {
        let entered = self.entered();
        self.arm(WaitCondition::AtLeast(threshold.into(), entered), threshold)
    }

    /// Returns how often a waiter was released.
    fn released(&self, name: u32) -> usize {
        let locked = self.locked.lock().unwrap();
        let times = locked.released.iter().filter(|(who, _)| *who == name);
        times.count()
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

#[test]
fn an_add_meets_a_waiter_that_arms() {
    for max in [0, 5] {
        loom::model(move || {
            let c = Counter::new(max);
            let armed = on_cpus!(c: c.wait(1), c.add(1));
            assert_eq!(c.released(1), usize::from(armed.is_some()));
        });
    }
}

#[test]
fn two_adds_make_one_threshold() {
    for max in [0, 5] {
        loom::model(move || {
            let c = Counter::new(max);
            let armed = on_cpus!(c: c.wait(2), c.add(1), c.add(1));
            assert_eq!(c.released(2), usize::from(armed.is_some()));
        });
    }
}

#[test]
fn an_add_passes_an_adder_that_is_on_its_way() {
    loom::model(|| {
        let c = Counter::new(0);
        assert!(c.wait(1).is_some());
        assert!(c.wait(2).is_some());
        on_cpus!(c: c.add(1), c.add(1));
        assert_eq!((c.released(1), c.released(2)), (1, 1));
    });
}

#[test]
fn due_is_raised_while_an_add_passes() {
    loom::model(|| {
        let c = Counter::new(0);
        let one = c.wait(1).unwrap();
        assert!(c.wait(2).is_some());
        let left = on_cpus!(
            c: {
                let mut locked = c.locked.lock().unwrap();
                locked.waiters.disarm(&c.values, &one).is_some()
            },
            c.add(2)
        );
        assert_eq!(c.released(1), usize::from(!left));
        assert_eq!(c.released(2), 1);
    });
}

#[test]
fn a_set_down_meets_an_add_and_a_waiter() {
    loom::model(|| {
        let c = Counter::new(0);
        let (armed, after_set) = on_cpus!(
            c: {
                let mut locked = c.locked.lock().unwrap();
                let cond = WaitCondition::AtLeast(3, c.entered());
                let armed = locked.waiters.arm(&c.values, cond, 3);
                (matches!(armed, Armed::Waiting(_)), locked.set)
            },
            c.add(3),
            c.set(1)
        );
        let released = match (armed, c.values.read(), after_set) {
            (false, _, _) => 0,
            // The set came first, then the add: the threshold is reached.
            (true, 4, _) => 1,
            // The add came first, and the waiter armed before the set: the threshold was reached
            // for a time.
            (true, 1, false) => 1,
            // The waiter armed after both.
            (true, 1, true) => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(c.released(3), released);
    });
}

#[test]
fn a_change_is_seen_or_wakes() {
    loom::model(|| {
        let c = Counter::new(0);
        let seen = on_cpus!(
            c: {
                let seen = c.seen();
                c.arm(WaitCondition::AnyChange(seen), 7).map(|_| seen.value)
            },
            c.add(1)
        );
        // A snapshot taken after the add is not affected by the add.
        assert_eq!(c.released(7), usize::from(seen == Some(0)));
    });
}

#[test]
fn an_error_ends_a_wait_unless_it_is_reached() {
    loom::model(|| {
        let c = Counter::new(0);
        assert!(c.wait(1).is_some());
        on_cpus!(c: c.add_err(1), c.add(1));
        assert_eq!(c.released(1), 1);
    });
}

#[test]
fn an_error_ends_a_wait_that_has_begun() {
    loom::model(|| {
        let c = Counter::new(0);
        let entered = c.entered();
        let armed = on_cpus!(
            c: c.arm(WaitCondition::AtLeast(5, entered), 5).is_some(),
            c.add_err(1)
        );
        // The waiter was armed and is released, or it did not arm.
        assert_eq!(c.released(5), usize::from(armed));
    });
}

#[test]
fn a_maximum_is_wrapped_by_one_of_two_adds() {
    loom::model(|| {
        let c = Counter::new(2);
        c.add(1);
        assert!(c.wait(2).is_some());
        on_cpus!(c: c.add(1), c.add(1));
        assert_eq!(c.values.read(), 0);
        assert_eq!(c.released(2), 1);
    });
}

#[test]
fn the_full_width_is_wrapped_while_a_waiter_arms() {
    loom::model(|| {
        let c = Counter::new(0);
        c.set(u64::MAX);
        let seen = on_cpus!(
            c: {
                let seen = c.seen();
                c.arm(WaitCondition::AnyChange(seen), 7).map(|_| seen.value)
            },
            c.add(1)
        );
        match seen {
            Some(u64::MAX) => assert_eq!(c.released(7), 1),
            // The waiter may have armed between the add and its taking of the lock.
            Some(_) => assert!(c.released(7) <= 1),
            None => assert_eq!(c.released(7), 0),
        }
    });
}

// In the next two tests the reader runs on the CPU that is started. loom tries an access against
// the last access to the same word, and a load of the writer itself would hide the load of the
// reader.

#[test]
fn a_reader_of_a_value_sees_accesses_before_the_add() {
    loom::model(|| {
        let c = Counter::new(0);
        let data = Arc::new(AtomicU64::new(0));
        let theirs = data.clone();
        on_cpus!(
            c: {
                data.store(5, Relaxed);
                c.add(1);
            },
            if c.values.read() == 1 {
                assert_eq!(theirs.load(Relaxed), 5);
            }
        );
    });
}

#[test]
fn a_reader_of_an_error_sees_accesses_before_it() {
    loom::model(|| {
        let c = Counter::new(0);
        let data = Arc::new(AtomicU64::new(0));
        let theirs = data.clone();
        on_cpus!(
            c: {
                data.store(5, Relaxed);
                c.add_err(1);
            },
            if c.values.read_err() == 1 {
                assert_eq!(theirs.load(Relaxed), 5);
            }
        );
    });
}

/// A counter with work.
struct Triggers {
    values: CounterValues<LoomWord, LoomWord>,
    waiters: Mutex<Waiters<TreeMap, WorkTrees>>,
    changes: Mutex<Changes>,
}

impl Triggers {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            values: CounterValues::new(
                LoomWord::new(),
                LoomWord::new(),
                [LoomWord::new(), LoomWord::new()],
                0,
            ),
            waiters: Mutex::new(Waiters::with_work(
                TreeMap::default(),
                TreeMap::default(),
                WorkTrees::default(),
            )),
            changes: Mutex::new(Changes::new()),
        })
    }

    fn add(&self, n: u64) {
        if let Some(reached) = self.values.add(n) {
            let mut waiters = self.waiters.lock().unwrap();
            let changes = || self.changes.lock().unwrap();
            waiters.fire(&self.values, reached, changes, |_, _| ());
        }
    }

    /// Returns whether it waits.
    fn queue(&self, kind: Compared, threshold: u64, name: u32) -> bool {
        let mut waiters = self.waiters.lock().unwrap();
        let queued = waiters.queue(&self.values, kind, threshold, name);
        queued.expect("nothing is left").1
    }

    /// The names of the works that are due, in order.
    fn due(&self) -> Vec<u32> {
        let waiters = self.waiters.lock().unwrap();
        let due = &waiters.works().map().due;
        due.iter().map(|(_, name)| *name).collect()
    }
}

#[test]
fn an_add_meets_work_that_is_queued() {
    for kind in Compared::ALL {
        loom::model(move || {
            let c = Triggers::new();
            on_cpus!(c: { c.queue(kind, 1, 1); }, c.add(1));
            assert_eq!(c.due(), [1]);
        });
    }
}

#[test]
fn two_adds_and_work_that_is_queued() {
    loom::model(|| {
        let c = Triggers::new();
        c.queue(Compared::Sum, 2, 2);
        on_cpus!(c: { c.queue(Compared::Success, 1, 1); }, c.add(1), c.add(1));
        let mut due = c.due();
        due.sort_unstable();
        assert_eq!(due, [1, 2]);
    });
}

#[test]
fn work_is_due_in_order_with_two_adders() {
    loom::model(|| {
        let c = Triggers::new();
        c.queue(Compared::Sum, 2, 2);
        c.queue(Compared::Success, 1, 1);
        on_cpus!(c: c.add(1), c.add(1));
        assert_eq!(c.due(), [1, 2]);
    });
}

#[test]
fn an_error_and_an_add_make_work_due() {
    loom::model(|| {
        let c = Triggers::new();
        c.queue(Compared::Sum, 2, 2);
        on_cpus!(
            c: {
                let mut waiters = c.waiters.lock().unwrap();
                let changes = c.changes.lock().unwrap();
                waiters.add_err(&c.values, changes, 1, |_, _| ());
            },
            c.add(1)
        );
        assert_eq!(c.due(), [2]);
    });
}
