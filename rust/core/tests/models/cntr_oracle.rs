// SPDX-License-Identifier: GPL-2.0

//! A model test: the counter against a model that knows for each waiter whether its condition has
//! been met.
//!
//! Adders may be delayed between their atomic add and the lock, which allows everything that
//! another CPU could do in between. A wrap takes effect for waiters when its adder takes the lock.
//! A change without the lock takes effect at once, and a waiter that is armed before the next task
//! takes the lock is not released by it.
//! A thread may also be delayed between entering a wait and arming: kfi_cntr(3) requires that every
//! change of the error value releases all threads inside kfi_cntr_wait. `loom_cntr` tests the order
//! in which CPUs see each other's accesses, with `loom_changes`.

use crate::support::{
    values,
    TreeMap,
    Values, //
};
use kfi_core::{
    cntr::{
        Armed,
        Changes,
        Outcome,
        Seen,
        ThresholdReached,
        WaitCondition,
        WaitStart,
        Waiter,
        Waiters, //
    },
    errno::Errno,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// The adder takes the lock immediately if necessary.
    Add(u64),
    /// The adder is delayed before the lock.
    AddDelayed(u64),
    /// The adder cannot take the lock; another task takes it later.
    AddUnlocked(u64),
    /// A delayed adder takes the lock, or another task does in its index.
    Fire(prop::sample::Index),
    /// A thread enters a wait.
    Enter,
    /// A thread that has entered, or that enters now, waits for the present value plus this number,
    /// modulo 2^64.
    Wait(u64, Option<prop::sample::Index>),
    Snapshot,
    WaitForChange(prop::sample::Index),
    Disarm(prop::sample::Index),
    Set(u64),
    AddErr(u64),
    SetErr(u64),
    /// The same without the lock; another task takes it later.
    SetUnlocked(u64),
    AddErrUnlocked(u64),
    SetErrUnlocked(u64),
}

/// Returns numbers near 0, near 2^64, and around the maxima used below.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..12_u64,
        2 => u64::MAX - 4..=u64::MAX,
        1 => any::<u64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => number().prop_map(Op::Add),
        2 => number().prop_map(Op::AddDelayed),
        2 => number().prop_map(Op::AddUnlocked),
        4 => index().prop_map(Op::Fire),
        2 => Just(Op::Enter),
        5 => (number(), proptest::option::of(index()))
            .prop_map(|(more, which)| Op::Wait(more, which)),
        1 => Just(Op::Snapshot),
        2 => index().prop_map(Op::WaitForChange),
        1 => index().prop_map(Op::Disarm),
        2 => number().prop_map(Op::Set),
        1 => number().prop_map(Op::AddErr),
        1 => number().prop_map(Op::SetErr),
        2 => number().prop_map(Op::SetUnlocked),
        1 => number().prop_map(Op::AddErrUnlocked),
        1 => number().prop_map(Op::SetErrUnlocked),
    ]
}

/// An armed waiter in the model.
struct Waiting {
    name: u32,
    cond: WaitCondition,
    waiter: Waiter,
    /// The condition has been met.
    met: bool,
    /// The error value has changed.
    err_changed: bool,
}

/// An adder between its atomic add and the lock.
struct Adder {
    /// `None`: another task comes after an unlocked add or change.
    reached: Option<ThresholdReached>,
    /// The amount that is still to be added under the lock.
    to_add: Option<u64>,
    /// The add wrapped the full width.
    wrapped: bool,
}

/// The task that comes after an unlocked add or change.
const WORKER: Adder = Adder {
    reached: None,
    to_add: None,
    wrapped: false,
};

struct Model {
    max: u64,
    value: u64,
    err: u64,
    writes: u64,
    armed: Vec<Waiting>,
    delayed: Vec<Adder>,
    /// The threads that have entered and are not armed, and whether the error value has changed
    /// since.
    entered: Vec<(WaitStart, bool)>,
    seen: Vec<(Seen, u64, u64, u64)>,
}

impl Model {
    /// Records that the value reached this height, and changed.
    fn moved(&mut self, height: u64) {
        for waiting in &mut self.armed {
            waiting.met |= match waiting.cond {
                WaitCondition::AtLeast(threshold, _) => threshold <= height,
                WaitCondition::AnyChange(_) => true,
            };
        }
    }

    /// Adds, without the effect of a wrap on waiters.
    fn add(&mut self, n: u64) {
        let total = u128::from(self.value) + u128::from(n);
        self.value = (total % (u128::from(self.max) + 1)) as u64;
        if n != 0 {
            self.moved(self.value);
        }
    }

    /// Applies the effect of a wrap on waiters, under the lock.
    fn wrapped(&mut self) {
        self.writes += 1;
        self.moved(self.max);
    }

    /// An adder takes the lock.
    fn arrives(&mut self, adder: &Adder) {
        if let Some(n) = adder.to_add {
            let wraps = n > self.max - self.value;
            self.add(n);
            if wraps {
                self.wrapped();
            }
        }
        if adder.wrapped {
            self.wrapped();
        }
    }
}

/// The counter, whose lock is free between two calls.
struct Counter {
    values: Values,
    waiters: Waiters<TreeMap>,
    changes: Changes,
    released: Vec<(u32, Outcome)>,
}

impl Counter {
    fn new(max: u64) -> Self {
        Self {
            values: values(max),
            waiters: Waiters::new(TreeMap::default(), TreeMap::default()),
            changes: Changes::new(),
            released: Vec::new(),
        }
    }

    /// An adder, or the task that comes after an unlocked change, takes the lock.
    fn arrives(&mut self, adder: Adder) {
        let Some(reached) = adder.reached else {
            self.release_changes();
            return self.fire(ThresholdReached::of_unlocked());
        };
        self.fire(reached);
    }

    fn fire(&mut self, reached: ThresholdReached) {
        let (changes, released) = (&mut self.changes, &mut self.released);
        let release = |name, why| released.push((name, why));
        self.waiters
            .fire(&self.values, reached, move || changes, release);
    }

    fn release_changes(&mut self) {
        let (changes, released) = (&mut self.changes, &mut self.released);
        let release = |name, why| released.push((name, why));
        self.waiters
            .release_changes(&self.values, move || changes, release);
    }

    fn set(&mut self, value: u64) -> Result<(), Errno> {
        let (changes, released) = (&mut self.changes, &mut self.released);
        let release = |name, why| released.push((name, why));
        self.waiters.set(&self.values, changes, value, release)
    }

    fn add_err(&mut self, n: u64) -> bool {
        let (changes, released) = (&mut self.changes, &mut self.released);
        let release = |name, why| released.push((name, why));
        self.waiters.add_err(&self.values, changes, n, release)
    }

    fn set_err(&mut self, err: u64) -> Result<bool, Errno> {
        let (changes, released) = (&mut self.changes, &mut self.released);
        let release = |name, why| released.push((name, why));
        self.waiters.set_err(&self.values, changes, err, release)
    }
}

/// Checks the waiters that one call has released, and those that it has not.
fn check(c: &mut Counter, model: &mut Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        (c.values.read(), c.values.read_err()),
        (model.value, model.err)
    );
    // Every released waiter was due.
    let mut order = Vec::new();
    for (released, outcome) in std::mem::take(&mut c.released) {
        let index = model
            .armed
            .iter()
            .position(|waiting| waiting.name == released);
        prop_assert!(index.is_some(), "{} was released twice", released);
        let waiting = model.armed.remove(index.unwrap_or_default());
        match (outcome, waiting.cond) {
            (Outcome::Reached, cond) => {
                prop_assert!(waiting.met, "{released} came early");
                if let WaitCondition::AtLeast(threshold, _) = cond {
                    order.push((0, threshold, released));
                }
            }
            (Outcome::ErrorChanged, WaitCondition::AtLeast(threshold, _)) => {
                // A wrap whose adder has not taken the lock hides the value that was reached.
                let hidden = model.delayed.iter().any(|adder| adder.wrapped);
                prop_assert!(waiting.err_changed && (!waiting.met || hidden));
                order.push((1, threshold, released));
            }
            (Outcome::ErrorChanged, WaitCondition::AnyChange(_)) => prop_assert!(false),
        }
    }
    // Waiters are released in the order in which they became due. Names count arrivals.
    prop_assert!(order.is_sorted(), "{order:?}");

    // Every waiter that was due is released: immediately, or by a delayed task.
    if model.delayed.is_empty() {
        let late: Vec<_> = model.armed.iter().filter(|waiting| waiting.met).collect();
        prop_assert!(late.is_empty(), "{} sleeps on", late[0].name);
        prop_assert!(c.waiters.has_released_changes(&c.values));
    }
    if c.waiters.has_released_changes(&c.values) {
        let late = model.armed.iter().any(|waiting| waiting.err_changed);
        prop_assert!(!late, "a change ends every wait");
    }
    prop_assert_eq!(c.waiters.len() as usize, model.armed.len());
    prop_assert_eq!(c.waiters.is_empty(), model.armed.is_empty());
    let lowest = model.armed.iter().filter_map(|waiting| match waiting.cond {
        WaitCondition::AtLeast(threshold, _) => Some(threshold),
        WaitCondition::AnyChange(_) => None,
    });
    prop_assert_eq!(c.waiters.lowest(), lowest.min());
    Ok(())
}

fn run(max: u64, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut c = Counter::new(max);
    let mut model = Model {
        max: c.values.max(),
        value: 0,
        err: 0,
        writes: 0,
        armed: Vec::new(),
        delayed: Vec::new(),
        entered: Vec::new(),
        seen: Vec::new(),
    };
    prop_assert_eq!(model.max, if max == 0 { u64::MAX } else { max });

    for (name, op) in (0..).zip(ops) {
        if matches!(op, Op::Wait(..) | Op::WaitForChange(_) | Op::Disarm(_)) {
            c.release_changes();
            check(&mut c, &mut model)?;
        }
        let mut error_changed = false;
        match op {
            Op::Add(n) | Op::AddDelayed(n) => {
                let wraps = n > model.max - model.value;
                let reached = c.values.add(n);
                let is_delayed = matches!(op, Op::AddDelayed(_));
                let to_add = model.max != u64::MAX && wraps;
                if to_add {
                    // The add is left to the lock, with or without waiters.
                    prop_assert!(reached.is_some());
                } else {
                    model.add(n);
                }
                if let Some(reached) = reached {
                    let adder = Adder {
                        reached: Some(reached),
                        to_add: to_add.then_some(n),
                        wrapped: wraps && !to_add,
                    };
                    if is_delayed {
                        model.delayed.push(adder);
                    } else {
                        model.arrives(&adder);
                        c.arrives(adder);
                    }
                }
            }
            Op::AddUnlocked(n) => {
                let wraps = n > model.max - model.value;
                let reached = c.values.add(n);
                model.add(n);
                if let Some(reached) = reached {
                    c.changes.pass(&c.values, &reached);
                    model.delayed.push(WORKER);
                    if wraps {
                        model.wrapped();
                    }
                }
            }
            Op::Fire(index) => {
                if model.delayed.is_empty() {
                    continue;
                }
                let adder = model.delayed.remove(index.index(model.delayed.len()));
                model.arrives(&adder);
                c.arrives(adder);
            }
            Op::Enter => model.entered.push((c.changes.entered(&c.values), false)),
            Op::Wait(more, which) => {
                let threshold = model.value.wrapping_add(more);
                let (entered, err_changed) = match which {
                    Some(which) if !model.entered.is_empty() => {
                        let (entered, changed) =
                            model.entered.remove(which.index(model.entered.len()));
                        // A restarted wait is equivalent.
                        prop_assert_ne!(entered.number(), 0);
                        (WaitStart::again(entered.number()), changed)
                    }
                    _ => (c.changes.entered(&c.values), false),
                };
                let cond = WaitCondition::AtLeast(threshold, entered);
                match c.waiters.arm(&c.values, cond, name) {
                    Armed::Over(outcome, slot) => {
                        prop_assert_eq!(slot, name);
                        if outcome == Outcome::Reached {
                            prop_assert!(model.value >= threshold);
                        } else {
                            prop_assert!(model.value < threshold && err_changed);
                        }
                    }
                    Armed::Waiting(waiter) => {
                        prop_assert!(model.value < threshold && !err_changed);
                        model.armed.push(Waiting {
                            name,
                            cond,
                            waiter,
                            met: false,
                            err_changed: false,
                        });
                    }
                }
            }
            Op::Snapshot => {
                let seen = c.changes.seen(&c.values);
                prop_assert_eq!((seen.value, seen.err), (model.value, model.err));
                model
                    .seen
                    .push((seen, model.value, model.err, model.writes));
            }
            Op::WaitForChange(index) => {
                if model.seen.is_empty() {
                    continue;
                }
                let (seen, value, err, writes) = *index.get(&model.seen);
                let changed = (value, err, writes) != (model.value, model.err, model.writes);
                prop_assert_eq!(c.changes.seen(&c.values) != seen, changed);
                let cond = WaitCondition::AnyChange(seen);
                match c.waiters.arm(&c.values, cond, name) {
                    Armed::Over(outcome, _) => {
                        prop_assert!(changed && outcome == Outcome::Reached);
                    }
                    Armed::Waiting(waiter) => {
                        prop_assert!(!changed);
                        model.armed.push(Waiting {
                            name,
                            cond,
                            waiter,
                            met: false,
                            err_changed: false,
                        });
                    }
                }
            }
            Op::Disarm(index) => {
                if model.armed.is_empty() {
                    continue;
                }
                let waiting = model.armed.remove(index.index(model.armed.len()));
                prop_assert_eq!(
                    c.waiters.disarm(&c.values, &waiting.waiter),
                    Some(waiting.name)
                );
                prop_assert_eq!(c.waiters.disarm(&c.values, &waiting.waiter), None);
            }
            Op::Set(value) | Op::SetUnlocked(value) => {
                let set = if matches!(op, Op::Set(_)) {
                    c.set(value)
                } else {
                    model.delayed.push(WORKER);
                    c.changes.set(&c.values, value)
                };
                if value > model.max {
                    prop_assert_eq!(set, Err(Errno::EINVAL));
                } else {
                    prop_assert_eq!(set, Ok(()));
                    model.value = value;
                    model.writes += 1;
                    model.moved(value);
                }
            }
            Op::AddErr(n) | Op::AddErrUnlocked(n) => {
                let changed = if matches!(op, Op::AddErr(_)) {
                    c.add_err(n)
                } else {
                    model.delayed.push(WORKER);
                    c.changes.add_err(&c.values, n)
                };
                let total = u128::from(model.err) + u128::from(n);
                let err = (total % (u128::from(model.max) + 1)) as u64;
                // An add of a full cycle changes nothing, like an add of 0.
                error_changed = err != model.err;
                model.err = err;
                prop_assert_eq!(changed, error_changed);
            }
            Op::SetErr(err) | Op::SetErrUnlocked(err) => {
                let set = if matches!(op, Op::SetErr(_)) {
                    c.set_err(err)
                } else {
                    model.delayed.push(WORKER);
                    c.changes.set_err(&c.values, err)
                };
                if err > model.max {
                    prop_assert_eq!(set, Err(Errno::EINVAL));
                } else {
                    error_changed = err != model.err;
                    prop_assert_eq!(set, Ok(error_changed));
                    model.err = err;
                }
            }
        }
        if error_changed {
            model.writes += 1;
            for (_, changed) in &mut model.entered {
                *changed = true;
            }
            for waiting in &mut model.armed {
                match waiting.cond {
                    WaitCondition::AnyChange(_) => waiting.met = true,
                    WaitCondition::AtLeast(..) => waiting.err_changed = true,
                }
            }
        }
        check(&mut c, &mut model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn of_full_width(ops in prop::collection::vec(op(), 0..60)) {
        run(0, ops)?;
    }

    #[test]
    fn with_a_maximum(max in prop_oneof![1..12_u64, Just(u64::MAX - 1)],
                      ops in prop::collection::vec(op(), 0..60)) {
        run(max, ops)?;
    }
}

/// An add without a due waiter never takes the lock, whatever other waiters there are.
#[test]
fn an_add_without_a_due_waiter_takes_no_lock() {
    let values = values(0);
    let mut waiters = Waiters::new(TreeMap::default(), TreeMap::default());
    let mut changes = Changes::new();
    for name in 0..1000 {
        let cond = WaitCondition::AtLeast(1000 + u64::from(name), changes.entered(&values));
        assert!(matches!(
            waiters.arm(&values, cond, name),
            Armed::Waiting(_)
        ));
    }
    for _ in 0..999 {
        assert!(values.add(1).is_none());
    }
    for name in 0..1000 {
        let mut released = Vec::new();
        let reached = values.add(1);
        if let Some(reached) = reached {
            waiters.fire(
                &values,
                reached,
                || &mut changes,
                |name, _| {
                    released.push(name);
                },
            );
        }
        assert_eq!(released, [name]);
    }
    assert!(values.add(1).is_none());
}
