// SPDX-License-Identifier: GPL-2.0

//! The copies of a completion counter's values in external memory under loom: in every order in
//! which CPUs can see each other's accesses, the last value that is written to a copy is the last
//! value of the counter, and a reader of a copy sees no value twice with another one between them.

use crate::loom_support::{
    LoomWord,
    TreeMap, //
};
use kfi_core::{
    cntr::{
        Changes,
        CounterValues,
        Waiters, //
    },
    comp_cntr::{
        ExternalValues,
        ExternalWord, //
    },
    enums::CompCntrEntry,
    word::Word, //
};
use loom::{
    sync::{
        Arc,
        Mutex, //
    },
    thread, //
};

/// A word of the program's memory.
#[derive(Clone)]
struct External(std::sync::Arc<LoomWord>);

impl ExternalWord for External {
    fn store_release(&self, value: u64) {
        self.0.store_release(value);
    }
}

impl External {
    fn load(&self) -> u64 {
        self.0.load()
    }
}

/// A counter with external memory, like the module's.
struct Counter {
    values: CounterValues<LoomWord, LoomWord>,
    waiters: Mutex<Waiters<TreeMap>>,
    changes: Mutex<Changes>,
    copies: Mutex<ExternalValues<External>>,
    comp: External,
    err: External,
}

impl Counter {
    fn new(max: u64) -> Arc<Self> {
        let word = || External(std::sync::Arc::new(LoomWord::new()));
        let (comp, err) = (word(), word());
        Arc::new(Self {
            values: CounterValues::new(
                LoomWord::new(),
                LoomWord::new(),
                [LoomWord::new(), LoomWord::new()],
                max,
            ),
            waiters: Mutex::new(Waiters::new(TreeMap::default(), TreeMap::default())),
            changes: Mutex::new(Changes::new()),
            copies: Mutex::new(ExternalValues::new(comp.clone(), err.clone())),
            comp,
            err,
        })
    }

    fn write(&self, entry: CompCntrEntry) {
        let mut copies = self.copies.lock().unwrap();
        copies.write(entry, || match entry {
            CompCntrEntry::Comp => self.values.read(),
            CompCntrEntry::Err => self.values.read_err(),
        });
    }

    fn inc(&self, n: u64) {
        if let Some(reached) = self.values.add(n) {
            let mut waiters = self.waiters.lock().unwrap();
            let changes = || self.changes.lock().unwrap();
            waiters.fire(&self.values, reached, changes, |_, _| ());
        }
        self.write(CompCntrEntry::Comp);
    }

    fn set(&self, value: u64) {
        let mut waiters = self.waiters.lock().unwrap();
        let changes = self.changes.lock().unwrap();
        let set = waiters.set(&self.values, changes, value, |_, _| ());
        set.unwrap();
        drop(waiters);
        self.write(CompCntrEntry::Comp);
    }

    fn inc_err(&self, n: u64) {
        let mut waiters = self.waiters.lock().unwrap();
        let changes = self.changes.lock().unwrap();
        waiters.add_err(&self.values, changes, n, |_, _| ());
        drop(waiters);
        self.write(CompCntrEntry::Err);
    }

    /// Both copies are the values.
    fn check(&self) {
        assert_eq!(self.comp.load(), self.values.read());
        assert_eq!(self.err.load(), self.values.read_err());
    }
}

/// Runs each closure on a CPU of its own, the last one on this CPU, and then checks the copies.
macro_rules! on_cpus {
    ($counter:ident: $($other:expr),* ; $last:expr) => {{
        let threads = [$({
            let $counter = $counter.clone();
            thread::spawn(move || { $other; })
        }),*];
        $last;
        for thread in threads {
            thread.join().unwrap();
        }
        $counter.check();
    }};
}

#[test]
fn the_copy_is_the_value_after_two_adds() {
    loom::model(|| {
        let c = Counter::new(0);
        on_cpus!(c: c.inc(1) ; c.inc(2));
        assert_eq!(c.comp.load(), 3);
    });
}

#[test]
fn the_copy_is_the_value_after_three_adds() {
    loom::model(|| {
        let c = Counter::new(0);
        on_cpus!(c: c.inc(1), c.inc(2) ; c.inc(4));
        assert_eq!(c.comp.load(), 7);
    });
}

#[test]
fn the_copy_is_the_value_after_an_add_and_a_set() {
    loom::model(|| {
        let c = Counter::new(0);
        on_cpus!(c: c.inc(1) ; c.set(5));
        assert!([5, 6].contains(&c.comp.load()));
    });
}

#[test]
fn the_copy_is_the_value_after_adds_that_wrap() {
    loom::model(|| {
        let c = Counter::new(2);
        on_cpus!(c: c.inc(2) ; c.inc(2));
        assert_eq!(c.comp.load(), 1);
    });
}

#[test]
fn the_copy_is_the_error_value_after_two_errors() {
    loom::model(|| {
        let c = Counter::new(0);
        on_cpus!(c: c.inc_err(1) ; c.inc_err(2));
        assert_eq!((c.comp.load(), c.err.load()), (0, 3));
    });
}

#[test]
fn a_reader_sees_no_old_value_after_a_new_one() {
    loom::model(|| {
        let c = Counter::new(0);
        on_cpus!(
            c: {
                let first = c.comp.load();
                let second = c.comp.load();
                assert!(first <= second, "{second} after {first}");
            },
            c.inc(1) ;
            c.inc(1)
        );
    });
}

#[test]
fn what_the_program_writes_changes_no_value() {
    loom::model(|| {
        let c = Counter::new(0);
        let program = c.clone();
        let thread = thread::spawn(move || program.comp.store_release(100));
        c.inc(1);
        thread.join().unwrap();
        // The program has overwritten the copy, or the counter the program's value.
        assert!([1, 100].contains(&c.comp.load()));
        c.inc(1);
        c.check();
        assert_eq!(c.values.read(), 2);
    });
}
