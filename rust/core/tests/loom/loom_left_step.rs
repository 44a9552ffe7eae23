// SPDX-License-Identifier: GPL-2.0

//! A step that a worker leaves to the holder of a lock, under loom: the worker never waits, and the
//! step is executed once, or the worker is queued again.

use crate::loom_support::LoomWord;
use kfi_core::{
    left_step::LeftStep,
    word::Word, //
};
use loom::{
    sync::{
        Arc,
        Mutex, //
    },
    thread, //
};
use std::sync::atomic::{
    AtomicU32,
    Ordering::SeqCst, //
};

/// A session like the module's.
struct Session {
    /// 0: free. An unlock is fully ordered, as that of the kernel's mutex on x86-64.
    lock: LoomWord,
    left: LeftStep<LoomWord>,
    /// A step is stored.
    step: Mutex<bool>,
    /// How often a step was executed. This and the next one are not part of the model.
    executed: AtomicU32,
    /// How often the worker was queued.
    queued: AtomicU32,
}

impl Session {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: LoomWord::new(),
            left: LeftStep::new(LoomWord::new()),
            step: Mutex::new(false),
            executed: AtomicU32::new(0),
            queued: AtomicU32::new(0),
        })
    }

    fn try_lock(&self) -> bool {
        self.lock.compare_exchange(0, 1).is_ok()
    }

    /// Executes the step if there is one. Called under the lock.
    fn execute(&self) -> bool {
        self.left.take();
        let found = core::mem::take(&mut *self.step.lock().unwrap());
        if found {
            self.executed.fetch_add(1, SeqCst);
        }
        found
    }

    fn unlock(&self) {
        self.lock.swap(0);
        if self.left.is_left() {
            self.queued.fetch_add(1, SeqCst);
        }
    }

    /// A run of the worker.
    fn work(&self) {
        *self.step.lock().unwrap() = true;
        self.left.leave();
        if self.try_lock() {
            self.execute();
            self.unlock();
        }
    }

    /// A task of a user. It does not wait either, so that the model stays small.
    fn task(&self) {
        if !self.try_lock() {
            return;
        }
        if self.left.is_left() && self.execute() {
            self.queued.fetch_add(1, SeqCst);
        }
        self.unlock();
    }

    /// The step was executed once; if it was not, the worker has been queued.
    fn check(&self) {
        let executed = self.executed.load(SeqCst);
        assert!(executed <= 1);
        assert!(executed == 1 || self.queued.load(SeqCst) > 0);
        assert_eq!(*self.step.lock().unwrap(), executed == 0);
    }
}

#[test]
fn a_step_is_executed_by_the_holder_or_the_worker_is_queued() {
    loom::model(|| {
        let session = Session::new();
        let task = session.clone();
        let task = thread::spawn(move || task.task());
        session.work();
        task.join().unwrap();
        session.check();
    });
}

#[test]
fn a_step_is_not_lost_between_two_holders() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let session = Session::new();
        let tasks = [(); 2].map(|()| {
            let session = session.clone();
            thread::spawn(move || session.task())
        });
        session.work();
        for task in tasks {
            task.join().unwrap();
        }
        session.check();
    });
}
