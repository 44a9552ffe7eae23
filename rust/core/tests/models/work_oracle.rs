// SPDX-License-Identifier: GPL-2.0

//! A model test: the work of a counter against a model that knows for each work whether its
//! threshold was reached since it was queued.
//!
//! Adders may be delayed between their atomic add and the lock, as in `cntr_oracle`. A wrap takes
//! effect when its adder takes the lock. `loom_cntr` tests adders and queueing tasks on several
//! CPUs.

use crate::support::{
    values,
    TreeMap,
    Values,
    WorkTrees, //
};
use kfi_core::{
    cntr::{
        Changes,
        Compared,
        Outcome,
        ThresholdReached,
        Waiters,
        WorkMap, //
        BATCH,
    },
    due::Key,
    errno::Errno,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// The adder takes the lock immediately if necessary.
    Add(u64),
    /// The adder is delayed before the lock.
    AddDelayed(u64),
    /// A delayed adder takes the lock.
    Fire(prop::sample::Index),
    /// Queues work with the present value of its kind plus this number, modulo 2^64.
    Queue(Compared, u64),
    /// Queues work with this threshold.
    QueueAt(Compared, u64),
    /// Queues work that need not wait, if it is due at once.
    Pass(Compared, u64),
    Cancel(prop::sample::Index),
    Set(u64),
    AddErr(u64),
    SetErr(u64),
    /// The same without the lock. Another task takes it later.
    SetUnlocked(u64),
    AddErrUnlocked(u64),
    SetErrUnlocked(u64),
    /// Takes all works of one kind out.
    Flush,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..12_u64,
        2 => u64::MAX - 4..=u64::MAX,
        1 => any::<u64>(),
    ]
}

fn kind() -> impl Strategy<Value = Compared> {
    prop_oneof![Just(Compared::Success), Just(Compared::Sum)]
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => number().prop_map(Op::Add),
        3 => number().prop_map(Op::AddDelayed),
        4 => index().prop_map(Op::Fire),
        8 => (kind(), number()).prop_map(|(kind, more)| Op::Queue(kind, more)),
        3 => (kind(), number()).prop_map(|(kind, at)| Op::QueueAt(kind, at)),
        2 => (kind(), number()).prop_map(|(kind, at)| Op::Pass(kind, at)),
        2 => index().prop_map(Op::Cancel),
        2 => number().prop_map(Op::Set),
        2 => number().prop_map(Op::AddErr),
        2 => number().prop_map(Op::SetErr),
        2 => number().prop_map(Op::SetUnlocked),
        2 => number().prop_map(Op::AddErrUnlocked),
        2 => number().prop_map(Op::SetErrUnlocked),
        1 => Just(Op::Flush),
    ]
}

struct Work {
    name: u32,
    kind: Compared,
    key: Key,
    /// The threshold was reached.
    met: bool,
}

struct Adder {
    /// `None`: another task comes after an unlocked change.
    reached: Option<ThresholdReached>,
    to_add: Option<u64>,
    wrapped: bool,
}

/// The task that comes after an unlocked change.
const WORKER: Adder = Adder {
    reached: None,
    to_add: None,
    wrapped: false,
};

struct Model {
    max: u64,
    value: u64,
    err: u64,
    works: Vec<Work>,
    delayed: Vec<Adder>,
}

impl Model {
    /// The success value reached this height.
    fn moved(&mut self, height: u64) {
        for work in &mut self.works {
            let reached = match work.kind {
                Compared::Success => height,
                Compared::Sum => height.saturating_add(self.err),
            };
            work.met |= work.key.threshold() <= reached;
        }
    }

    fn add(&mut self, n: u64) {
        let total = u128::from(self.value) + u128::from(n);
        self.value = (total % (u128::from(self.max) + 1)) as u64;
        self.moved(self.value);
    }

    fn arrives(&mut self, adder: &Adder) {
        if let Some(n) = adder.to_add {
            let wraps = n > self.max - self.value;
            self.add(n);
            if wraps {
                self.moved(self.max);
            }
        }
        if adder.wrapped {
            self.moved(self.max);
        }
    }

    fn present(&self, kind: Compared) -> u64 {
        match kind {
            Compared::Success => self.value,
            Compared::Sum => self.value.saturating_add(self.err),
        }
    }
}

type Counter = Waiters<TreeMap, WorkTrees>;

/// The works of a counter, which nobody waits for.
fn works() -> Counter {
    Waiters::with_work(TreeMap::default(), TreeMap::default(), WorkTrees::default())
}

/// Checks the works that one call has made due, and those that it has not.
fn check(waiters: &mut Counter, model: &mut Model) -> Result<(), TestCaseError> {
    // Each work that is due was reached, and they come in order.
    let due = std::mem::take(&mut waiters.works_mut().map_mut().due);
    prop_assert!(due.is_sorted(), "{due:?}");
    for (key, name) in due {
        let index = model.works.iter().position(|work| work.name == name);
        prop_assert!(index.is_some(), "{} is due twice, or was cancelled", name);
        let work = model.works.remove(index.unwrap_or_default());
        prop_assert_eq!(work.key, key);
        prop_assert!(work.met, "{name} came early");
    }
    // Each work that was reached is due: immediately, or by a delayed adder.
    if model.delayed.is_empty() {
        let late = model.works.iter().find(|work| work.met);
        prop_assert!(late.is_none(), "{} stays", late.unwrap().name);
    }
    let works = waiters.works();
    prop_assert_eq!(works.len() as usize, model.works.len());
    prop_assert_eq!(works.is_empty(), model.works.is_empty());
    let lowest = model.works.iter().map(|work| work.key.threshold()).min();
    prop_assert_eq!(works.lowest(), lowest);
    Ok(())
}

fn run(max: u64, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let values = values(max);
    let mut waiters = works();
    let mut changes = Changes::new();
    let mut model = Model {
        max: values.max(),
        value: 0,
        err: 0,
        works: Vec::new(),
        delayed: Vec::new(),
    };
    let mut queued = 0;

    for (name, op) in (0..).zip(ops) {
        let nobody = |_: u32, _: Outcome| panic!("there are no waiters");
        if matches!(
            op,
            Op::Queue(..) | Op::QueueAt(..) | Op::Pass(..) | Op::Cancel(_) | Op::Flush
        ) {
            waiters.release_changes(&values, || &mut changes, nobody);
            check(&mut waiters, &mut model)?;
        }
        match op {
            Op::Add(n) | Op::AddDelayed(n) => {
                let wraps = n > model.max - model.value;
                let reached = values.add(n);
                let to_add = model.max != u64::MAX && wraps;
                if !to_add {
                    model.add(n);
                }
                if let Some(reached) = reached {
                    let adder = Adder {
                        reached: Some(reached),
                        to_add: to_add.then_some(n),
                        wrapped: wraps && !to_add,
                    };
                    if matches!(op, Op::AddDelayed(_)) {
                        model.delayed.push(adder);
                    } else {
                        model.arrives(&adder);
                        waiters.fire(&values, adder.reached.unwrap(), || &mut changes, nobody);
                    }
                }
            }
            Op::Fire(index) => {
                if model.delayed.is_empty() {
                    continue;
                }
                let adder = model.delayed.remove(index.index(model.delayed.len()));
                model.arrives(&adder);
                let reached = adder.reached.unwrap_or_else(|| {
                    waiters.release_changes(&values, || &mut changes, nobody);
                    ThresholdReached::of_unlocked()
                });
                waiters.fire(&values, reached, || &mut changes, nobody);
            }
            Op::Queue(kind, number) | Op::QueueAt(kind, number) => {
                let threshold = match op {
                    Op::Queue(..) => model.present(kind).wrapping_add(number),
                    _ => number,
                };
                let entered = waiters.queue(&values, kind, threshold, name);
                let (key, waits) = entered.expect("nothing is left");
                prop_assert_eq!(key, Key::new(threshold, queued));
                prop_assert_eq!(waits, model.present(kind) < threshold);
                queued += 1;
                model.works.push(Work {
                    name,
                    kind,
                    key,
                    met: !waits,
                });
            }
            Op::Pass(kind, threshold) => {
                let reached = waiters.is_reached(&values, kind, threshold);
                prop_assert_eq!(reached, model.present(kind) >= threshold);
                if reached {
                    // Whatever is due is in front of it.
                    prop_assert_eq!(waiters.works_mut().pass(), queued);
                    queued += 1;
                }
            }
            Op::Cancel(index) => {
                if model.works.is_empty() {
                    continue;
                }
                let work = model.works.remove(index.index(model.works.len()));
                let other = match work.kind {
                    Compared::Success => Compared::Sum,
                    Compared::Sum => Compared::Success,
                };
                prop_assert_eq!(waiters.cancel(&values, other, &work.key), None);
                let cancelled = waiters.cancel(&values, work.kind, &work.key);
                prop_assert_eq!(cancelled, Some(work.name));
                prop_assert_eq!(waiters.cancel(&values, work.kind, &work.key), None);
            }
            Op::Set(value) | Op::SetUnlocked(value) => {
                let set = if matches!(op, Op::Set(_)) {
                    waiters.set(&values, &mut changes, value, nobody)
                } else {
                    model.delayed.push(WORKER);
                    changes.set(&values, value)
                };
                prop_assert_eq!(set.is_ok(), value <= model.max);
                if set.is_ok() {
                    model.value = value;
                    model.moved(value);
                }
            }
            Op::AddErr(n) | Op::AddErrUnlocked(n) => {
                if matches!(op, Op::AddErr(_)) {
                    waiters.add_err(&values, &mut changes, n, nobody);
                } else {
                    model.delayed.push(WORKER);
                    changes.add_err(&values, n);
                }
                let total = u128::from(model.err) + u128::from(n);
                model.err = (total % (u128::from(model.max) + 1)) as u64;
                model.moved(model.value);
            }
            Op::SetErr(err) | Op::SetErrUnlocked(err) => {
                let set = if matches!(op, Op::SetErr(_)) {
                    waiters.set_err(&values, &mut changes, err, nobody)
                } else {
                    model.delayed.push(WORKER);
                    changes.set_err(&values, err)
                };
                if err > model.max {
                    prop_assert_eq!(set, Err(Errno::EINVAL));
                } else {
                    model.err = err;
                    model.moved(model.value);
                }
            }
            Op::Flush => {
                let keys: Vec<_> = (model.works.iter())
                    .filter(|work| work.kind == Compared::Sum)
                    .map(|work| work.key)
                    .collect();
                model.works.retain(|work| work.kind == Compared::Success);
                for key in &keys {
                    use kfi_core::cntr::WorkMap;
                    let map = waiters.works_mut().map_mut();
                    prop_assert!(map.remove(Compared::Sum, key).is_some());
                }
                waiters.taken(&values, keys.len() as u32);
            }
        }
        prop_assert_eq!((values.read(), values.read_err()), (model.value, model.err));

        check(&mut waiters, &mut model)?;
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

/// One add passes works of both kinds: they are due in one order.
#[test]
fn one_add_passes_several() {
    let values = values(0);
    let mut waiters = works();
    let mut changes = Changes::new();
    let kinds = [
        (Compared::Sum, 7),
        (Compared::Success, 3),
        (Compared::Sum, 3),
        (Compared::Success, 7),
        (Compared::Sum, 9),
        (Compared::Success, 3),
    ];
    for (name, (kind, threshold)) in (0..).zip(kinds) {
        assert!(waiters.queue(&values, kind, threshold, name).unwrap().1);
    }
    assert_eq!(values.add(2), None);
    let reached = values.add(6).expect("some are due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    let due = std::mem::take(&mut waiters.works_mut().map_mut().due);
    assert_eq!(
        due.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
        [1, 2, 5, 0, 3]
    );
    assert_eq!((waiters.works().len(), waiters.works().due_ever()), (1, 5));
    // The error value counts for deferred work only.
    assert!(waiters.add_err(&values, &mut changes, 1, |_, _| ()));
    assert_eq!(waiters.works().map().due, [(Key::new(9, 4), 4)]);
}

/// However many works wait, an add that reaches none takes no lock, also with an error value.
#[test]
fn an_add_that_reaches_no_work_takes_no_lock() {
    let values = values(0);
    let mut waiters = works();
    let mut changes = Changes::new();
    assert!(waiters.add_err(&values, &mut changes, 10, |_, _| ()));
    for name in 0..1000 {
        let (kind, at) = match name % 2 {
            0 => (Compared::Success, 1000),
            _ => (Compared::Sum, 1010),
        };
        assert!(waiters.queue(&values, kind, at, name).unwrap().1);
    }
    for _ in 0..999 {
        assert!(values.add(1).is_none());
    }
    let reached = values.add(1).expect("all are due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    // Many works become due in batches, in one order.
    assert_eq!(waiters.works().map().due.len(), BATCH as usize);
    waiters.release_rest(&values);
    let due = &waiters.works().map().due;
    assert_eq!(due.len(), 1000);
    assert!(due.is_sorted());
    assert!(values.add(1).is_none());
}

/// No call makes more than a batch due, also if it lowers a value. What the higher value has
/// reached is due nevertheless, and does not count for work that is queued later.
#[test]
fn no_call_makes_more_than_a_batch_due() {
    type Lower = fn(&mut Counter, &mut Changes, &Values);
    const WORKS: u32 = 3 * BATCH;
    let nobody = |_: u32, _: Outcome| panic!("there are no waiters");
    let by_set: Lower = |waiters, changes, values| {
        assert_eq!(values.add(u64::from(WORKS) - 1), None);
        let reached = values.add(1).expect("the first is due");
        waiters.set(values, &mut *changes, 0, |_, _| ()).unwrap();
        // The adder comes to the lock later.
        waiters.fire(values, reached, || &mut *changes, |_, _| ());
    };
    let by_wrap: Lower = |waiters, changes, values| {
        let reached = values.add(u64::from(WORKS) + 2).expect("it wraps");
        waiters.fire(values, reached, || &mut *changes, |_, _| ());
        waiters.set(values, &mut *changes, 0, |_, _| ()).unwrap();
    };
    let by_error: Lower = |waiters, changes, values| {
        assert!(waiters
            .set_err(values, &mut *changes, u64::from(WORKS), |_, _| ())
            .unwrap());
        assert!(waiters
            .set_err(values, &mut *changes, 0, |_, _| ())
            .unwrap());
    };
    for (lower, max) in [(by_set, 0), (by_wrap, u64::from(WORKS)), (by_error, 0)] {
        let values = values(max);
        let mut waiters = works();
        let mut changes = Changes::new();
        for name in 0..WORKS {
            let queued = waiters.queue(&values, Compared::Sum, u64::from(WORKS), name);
            assert!(queued.unwrap().1);
        }
        lower(&mut waiters, &mut changes, &values);
        assert_eq!((values.read(), values.read_err()), (0, 0));
        let mut due = waiters.works().map().due.len();
        assert!(due > 0 && due <= 2 * BATCH as usize, "{due}");
        // Nothing enters before the rest is due.
        while let Err(name) = waiters.queue(&values, Compared::Sum, 1, WORKS) {
            assert_eq!(name, WORKS);
            waiters.release_rest(&values);
            let now = waiters.works().map().due.len();
            assert!(now > due && now <= due + BATCH as usize, "{now}");
            due = now;
        }
        let due = std::mem::take(&mut waiters.works_mut().map_mut().due);
        assert!(due.iter().map(|(_, name)| *name).eq(0..WORKS));
        // The new work waits.
        assert_eq!(waiters.works().len(), 1);
        let reached = values.add(1).expect("it is due");
        waiters.fire(&values, reached, || &mut changes, nobody);
        assert_eq!(
            waiters.works().map().due,
            [(Key::new(1, u64::from(WORKS)), WORKS)]
        );
    }
}

/// While works are left, adds take no lock and make nothing due. What they reach is due afterwards,
/// also if the value wraps.
#[test]
fn adds_leave_the_rest_to_the_owner() {
    type Add = fn(&mut Counter, &mut Changes, &Values);
    let below: Add = |_, _, values| {
        for _ in 0..8 {
            assert_eq!(values.add(1), None);
        }
    };
    let wraps: Add = |waiters, changes, values| {
        let reached = values.add(u64::MAX).expect("it wraps");
        waiters.fire(values, reached, || &mut *changes, |_, _| ());
        assert_eq!(values.read(), 0);
    };
    for (add, last) in [(below, 9), (wraps, u64::MAX)] {
        let values = values(0);
        let mut waiters = works();
        let mut changes = Changes::new();
        for name in 0..2 * BATCH {
            let kind = Compared::ALL[name as usize % 2];
            assert!(waiters.queue(&values, kind, 1, name).unwrap().1);
        }
        for name in 2 * BATCH..=3 * BATCH {
            assert!(waiters.queue(&values, Compared::Sum, last, name).unwrap().1);
        }
        let reached = values.add(1).expect("the first are due");
        waiters.fire(&values, reached, || &mut changes, |_, _| ());
        add(&mut waiters, &mut changes, &values);
        assert_eq!(waiters.works().map().due.len(), BATCH as usize);
        for batches in 2..=3 {
            waiters.release_rest(&values);
            let due = waiters.works().map().due.len();
            assert_eq!(due, (batches * BATCH) as usize);
        }
        waiters.release_rest(&values);
        assert!(waiters.works().is_empty());
        let due = &waiters.works().map().due;
        assert!(due.iter().map(|(_, name)| *name).eq(0..=3 * BATCH));
    }
}

/// An add that reaches a later work while the last of the rest is made due is not missed.
#[test]
fn a_threshold_counts_that_is_reached_while_works_are_left() {
    let values = values(0);
    let mut waiters = works();
    let mut changes = Changes::new();
    for name in 0..=BATCH {
        assert!(waiters.queue(&values, Compared::Sum, 1, name).unwrap().1);
    }
    let later = BATCH + 1;
    assert!(waiters.queue(&values, Compared::Sum, 5, later).unwrap().1);
    let reached = values.add(1).expect("the first are due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    waiters.release_rest(&values);
    // The rest is due, so an add comes to the lock again.
    let reached = values.add(4).expect("the last is due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    assert!(waiters.works().is_empty());
}

/// A map of works beside which another task adds to the counter: as the work `at` becomes due,
/// before the owner has left the lock.
struct AddedTo<'a> {
    works: WorkTrees,
    values: &'a Values,
    at: usize,
    /// The number of times that works were left.
    left: u32,
}

impl WorkMap for AddedTo<'_> {
    type Slot = <WorkTrees as WorkMap>::Slot;
    type Token = <WorkTrees as WorkMap>::Token;

    fn insert(&mut self, kind: Compared, key: Key, slot: Self::Slot) {
        self.works.insert(kind, key, slot);
    }

    fn first(&self, kind: Compared) -> Option<Key> {
        self.works.first(kind)
    }

    fn make_due(&mut self, kind: Compared) {
        self.works.make_due(kind);
        if self.works.due.len() == self.at {
            // Works are left, so the adder does not come to the lock.
            assert!(self.values.add(4).is_none());
        }
    }

    fn remove(&mut self, kind: Compared, key: &Key) -> Option<Self::Token> {
        self.works.remove(kind, key)
    }

    fn leave_rest(&mut self) {
        self.left += 1;
    }
}

/// The adder comes while the last of the rest is made due. No other task would see what it reaches.
#[test]
fn an_add_beside_the_last_of_the_rest_is_not_missed() {
    let values = values(0);
    let works = AddedTo {
        works: WorkTrees::default(),
        values: &values,
        at: BATCH as usize + 1,
        left: 0,
    };
    let mut waiters = Waiters::with_work(TreeMap::default(), TreeMap::default(), works);
    let mut changes = Changes::new();
    for name in 0..=BATCH {
        assert!(waiters.queue(&values, Compared::Sum, 1, name).unwrap().1);
    }
    let later = BATCH + 1;
    assert!(waiters.queue(&values, Compared::Sum, 5, later).unwrap().1);
    let reached = values.add(1).expect("the first are due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    assert_eq!(waiters.works().map().left, 1);
    waiters.release_rest(&values);
    assert_eq!(values.read(), 5);
    // The owner is told to come once more.
    assert_eq!(waiters.works().map().left, 2);
    waiters.release_rest(&values);
    assert_eq!(waiters.works().map().left, 2);
    assert!(waiters.works().is_empty());
    let due = &waiters.works().map().works.due;
    assert!(due.iter().map(|(_, name)| *name).eq(0..=later));
}

/// Work that was left and is cancelled is not due, and the next work can enter.
#[test]
fn work_that_was_left_can_be_cancelled() {
    let values = values(0);
    let mut waiters = works();
    let mut changes = Changes::new();
    for name in 0..=BATCH {
        assert!(waiters.queue(&values, Compared::Sum, 1, name).unwrap().1);
    }
    let reached = values.add(1).expect("all are due");
    waiters.fire(&values, reached, || &mut changes, |_, _| ());
    assert_eq!(waiters.works().len(), 1);
    let last = Key::new(1, u64::from(BATCH));
    assert_eq!(waiters.cancel(&values, Compared::Sum, &last), Some(BATCH));
    assert!(waiters.queue(&values, Compared::Sum, 9, 1).is_err());
    waiters.release_rest(&values);
    assert!(waiters.queue(&values, Compared::Sum, 9, 1).unwrap().1);
    assert_eq!(waiters.works().map().due.len(), BATCH as usize);
}
