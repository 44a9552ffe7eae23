// SPDX-License-Identifier: GPL-2.0

//! The counter under loom: every order in which two or three CPUs can see each
//! other's accesses. `cntr_oracle` tests what the calls mean; this, that the
//! lock-free add loses no wake-up and wakes nobody who has no reason.

mod loom_support;

use kfi_core::cntr::{
    Armed,
    Cond,
    Crossed,
    Entered,
    Gate,
    Outcome,
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
use loom_support::{
    LoomWord,
    TreeMap, //
};

/// A counter as the module has it: the gate, and the waiters under a lock.
struct Counter {
    gate: Gate<LoomWord, LoomWord>,
    locked: Mutex<Locked>,
}

struct Locked {
    waiters: Waiters<TreeMap>,
    released: Vec<(u32, Outcome)>,
    /// A set was made.
    set: bool,
}

impl Counter {
    fn new(max: u64) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(LoomWord::new(), LoomWord::new(), LoomWord::new(), max),
            locked: Mutex::new(Locked {
                waiters: Waiters::new(TreeMap::default(), TreeMap::default()),
                released: Vec::new(),
                set: false,
            }),
        })
    }

    fn add(&self, n: u64) {
        if let Some(crossed) = self.gate.add(n) {
            self.fire(crossed);
        }
    }

    fn fire(&self, crossed: Crossed) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        locked.waiters.fire(&self.gate, crossed, release);
    }

    fn set(&self, value: u64) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        locked.waiters.set(&self.gate, value, release).unwrap();
        locked.set = true;
    }

    fn add_err(&self, n: u64) {
        let locked = &mut *self.locked.lock().unwrap();
        let released = &mut locked.released;
        let release = |name, why| released.push((name, why));
        locked.waiters.add_err(&self.gate, n, release);
    }

    /// `None`: the condition holds.
    fn arm(&self, cond: Cond, name: u32) -> Option<Waiter> {
        let mut locked = self.locked.lock().unwrap();
        match locked.waiters.arm(&self.gate, cond, name) {
            Armed::Over(..) => None,
            Armed::Waiting(waiter) => Some(waiter),
        }
    }

    fn entered(&self) -> Entered {
        self.locked.lock().unwrap().waiters.entered()
    }

    /// Waits for this threshold, which is the name.
    fn wait(&self, threshold: u32) -> Option<Waiter> {
        let entered = self.entered();
        self.arm(Cond::AtLeast(threshold.into(), entered), threshold)
    }

    /// How often a waiter was released.
    fn released(&self, name: u32) -> usize {
        let locked = self.locked.lock().unwrap();
        let times = locked.released.iter().filter(|(who, _)| *who == name);
        times.count()
    }
}

/// Runs each closure on a CPU of its own, the last on this one.
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
                locked.waiters.disarm(&c.gate, &one).is_some()
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
                let cond = Cond::AtLeast(3, locked.waiters.entered());
                let armed = locked.waiters.arm(&c.gate, cond, 3);
                (matches!(armed, Armed::Waiting(_)), locked.set)
            },
            c.add(3),
            c.set(1)
        );
        let released = match (armed, c.gate.read(), after_set) {
            (false, _, _) => 0,
            // The set came first, then the add: reached, and still so.
            (true, 4, _) => 1,
            // The add came first, and the waiter before the set: reached, though
            // it did not last.
            (true, 1, false) => 1,
            // The waiter came after both.
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
                let seen = c.locked.lock().unwrap().waiters.seen(&c.gate);
                c.arm(Cond::AnyChange(seen), 7).map(|_| seen.value)
            },
            c.add(1)
        );
        // Who has seen the add is not woken by it.
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
            c: c.arm(Cond::AtLeast(5, entered), 5).is_some(),
            c.add_err(1)
        );
        // It was in line and is released, or it does not sleep.
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
        assert_eq!(c.gate.read(), 0);
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
                let seen = c.locked.lock().unwrap().waiters.seen(&c.gate);
                c.arm(Cond::AnyChange(seen), 7).map(|_| seen.value)
            },
            c.add(1)
        );
        match seen {
            Some(u64::MAX) => assert_eq!(c.released(7), 1),
            // Slipped in between the add and its way to the lock, perhaps.
            Some(_) => assert!(c.released(7) <= 1),
            None => assert_eq!(c.released(7), 0),
        }
    });
}

// In the next two the reader is the CPU that is started: loom tries an access
// against the last one to the same word, and a writer's own load would hide the
// reader's from it.

#[test]
fn what_happened_before_an_add_is_seen_by_who_reads_it() {
    loom::model(|| {
        let c = Counter::new(0);
        let data = Arc::new(AtomicU64::new(0));
        let theirs = data.clone();
        on_cpus!(
            c: {
                data.store(5, Relaxed);
                c.add(1);
            },
            if c.gate.read() == 1 {
                assert_eq!(theirs.load(Relaxed), 5);
            }
        );
    });
}

#[test]
fn what_happened_before_an_error_is_seen_by_who_reads_it() {
    loom::model(|| {
        let c = Counter::new(0);
        let data = Arc::new(AtomicU64::new(0));
        let theirs = data.clone();
        on_cpus!(
            c: {
                data.store(5, Relaxed);
                c.add_err(1);
            },
            if c.gate.read_err() == 1 {
                assert_eq!(theirs.load(Relaxed), 5);
            }
        );
    });
}
