// SPDX-License-Identifier: GPL-2.0

//! Counter: two values, and the waiters for them.
//!
//! `kfi_cntr` ([`Cntr`](super::Cntr)) is built on this primitive, with the work that waits for it
//! ([`work`](crate::provider::work)), and so are the completion counters of verbs
//! ([`comp_cntr`](crate::provider::comp_cntr)). The core defines the values and the conditions
//! ([`kfi_core::cntr`]). This file adds memory, a lock, and tasks to wake.
//!
//! ```text
//!   add: one atomic add, one compare --- below every threshold ---> done, no lock
//!                                   \--- a threshold is reached --> lock, wake waiters, unlock
//! ```
//!
//! The values are at the beginning of a page that programs map read-only, so a program reads them
//! with a load. Waiters are queued under a spin lock in the order of their thresholds. A waiter is
//! a task in a call, a descriptor ([`Fd`](super::fd::Fd)) or a callback. Exactly the waiters that
//! are due are removed and woken, in O(log n) each, however many others wait. They are woken under
//! the lock, possibly by another user's completion, so their number is limited
//! ([`limits::MAX_WAITERS`]).
//!
//! # Context
//!
//! Reading and adding: process context, under any lock that is not the counter's. Nothing here
//! allocates or sleeps unless its documentation says so. Interrupts change the values without the
//! lock of the waiters (`cntr/irq.rs`).
//!
//! # Locks
//!
//! `Counter::line` is a spin lock. The locks of a descriptor are taken under it: that of its entry
//! in the line (`FdNotifier::entry`), then that of its wait queue. So are the lock of a callback
//! and that of the domain's due works (`WorkQueue::due`). `Counter::changes` is taken in any
//! context, under all of them too; no lock is taken under it. The lock of [`Descriptors`] is not
//! taken under `Counter::line`, nor the other way round; the locks of wait queues are taken under
//! it.

use core::mem::offset_of;

use kernel::{
    new_spinlock_irq,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        SpinLockGuard,
        SpinLockIrq, //
    }, //
};

use kfi_core::{
    cntr::{
        Armed,
        Changes,
        CounterValues,
        Outcome,
        Seen,
        ThresholdReached,
        WaitCondition,
        WaitStart,
        Waiter,
        Waiters, //
    },
    limits, //
};

use super::fd::{
    Descriptors,
    FdNotifier, //
};
use crate::{
    mem::{
        SharedPages,
        SharedWord, //
    },
    provider::{
        prelude::*,
        wait::{
            line::{
                self,
                with_memory,
                Entry,
                Memory,
                NewWaiter,
                RemovedWaiter, //
            },
            sleep,
            WakeReason, //
        },
        work::{
            AfterChange,
            Starter,
            WorkLists, //
        }, //
    },
    shim::{
        bindings::kfabric_cntr_values,
        wait::{
            Sleeper,
            Waker, //
        },
        word::AtomicWord, //
    }, //
};

#[cfg(kfi_kunit)]
use super::Cntr;
#[cfg(kfi_kunit)]
use crate::provider::wait::callback::Callback;

/// A waiter of a counter.
pub(crate) enum Token {
    /// A task that sleeps in a call.
    Sleeper(Waker),
    /// A descriptor, `Fd`.
    Fd(Arc<FdNotifier>),
    /// A callback of a kernel consumer.
    #[cfg(kfi_kunit)]
    Callback(Arc<Callback<Cntr>>),
}

/// The waiters and the work of a counter.
pub(super) type Line = Waiters<line::Line<Token>, WorkLists>;

/// The reason for which a wait ended.
#[inline]
pub(super) fn reason(outcome: Outcome) -> WakeReason {
    match outcome {
        Outcome::Reached => WakeReason::Ready,
        Outcome::ErrorChanged => WakeReason::ErrorChanged,
    }
}

/// Wakes the waiters that are due. All but the last descriptor are woken under the lock of the
/// waiters, the last descriptor after its release.
///
/// A task that polls a descriptor reads it next and takes the lock. In most cases only one waiter
/// is due, and then it need not wait until the waking task releases the lock. A task that sleeps in
/// a call does not take the lock after it was woken.
#[derive(Default)]
struct Due {
    last: Option<Arc<FdNotifier>>,
    /// The memory of the last sleeper. It is freed when the lock has been released.
    memory: Option<Memory<Token>>,
}

impl Due {
    /// Handles one waiter that is due. The caller holds the lock of the waiters.
    #[inline(always)]
    fn one(&mut self, left: RemovedWaiter<Token>, outcome: Outcome) {
        let RemovedWaiter { token, memory } = left;
        match token {
            Token::Sleeper(waker) => {
                waker.wake(reason(outcome).reason());
                if memory.is_some() {
                    self.memory = memory;
                }
            }
            Token::Fd(notifier) => {
                notifier.entry().removed(memory);
                notifier.set_readable();
                if let Some(before) = self.last.replace(notifier) {
                    before.wake();
                }
            }
            #[cfg(kfi_kunit)]
            Token::Callback(callback) => {
                callback.fire(reason(outcome), memory);
            }
        }
    }

    /// Wakes the last descriptor. The caller has released the lock.
    #[inline(always)]
    fn finish(self) {
        if let Some(notifier) = self.last {
            notifier.wake();
        }
    }
}

/// Has the worker start the work that a change has left. Returns the change's result.
#[inline]
fn started_by_worker<R>((result, after): (R, AfterChange)) -> R {
    after.wake();
    result
}

/// A waiter of a counter, counted against [`limits::MAX_WAITERS`] until it is dropped.
struct CountedWaiter<'a>(&'a Counter);

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.0.leave_waiters();
    }
}

/// The counter primitive.
#[pin_data]
pub(crate) struct Counter {
    pub(super) values: CounterValues<SharedWord, AtomicWord>,
    page: Arc<SharedPages>,
    /// Set under the lock of `line`. No waiter enters afterwards.
    closed: AtomicFlag,
    /// The tasks in a wait, and the descriptors, whether they are in the line or not.
    waiters: Atomic<u32>,
    /// Held for each change of a value that is not an add.
    #[pin]
    pub(super) changes: SpinLockIrq<Changes>,
    #[pin]
    line: SpinLock<Line>,
    /// All descriptors, in `line` or readable.
    #[pin]
    descriptors: Descriptors,
}

impl Counter {
    /// Makes a counter with both values 0. It wraps after `max_value`; 0 stands for 2^64 - 1. Fails
    /// with `ENOMEM`. Sleeps.
    pub(crate) fn new(max_value: u64) -> Result<impl PinInit<Self>> {
        let page = SharedPages::new(size_of::<kfabric_cntr_values>())?;
        let word = |offset| page.word(offset).ok_or(EINVAL);
        let values = CounterValues::new(
            word(offset_of!(kfabric_cntr_values, value))?,
            word(offset_of!(kfabric_cntr_values, err))?,
            [AtomicWord::new(0), AtomicWord::new(0)],
            max_value,
        );
        Ok(pin_init!(Self {
            values,
            page,
            closed: AtomicFlag::new(false),
            waiters: Atomic::new(0),
            changes <- new_spinlock_irq!(Changes::new(), "Counter::changes"),
            line <- new_spinlock!(
                Waiters::with_work(line::Line::new(), line::Line::new(), WorkLists::new()),
                "Counter::line"
            ),
            descriptors <- Descriptors::new(),
        }))
    }

    /// Its descriptors.
    pub(super) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The page that programs map read-only: `struct kfabric_cntr_values`.
    pub(crate) fn page(&self) -> &Arc<SharedPages> {
        &self.page
    }

    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.values.read()
    }

    #[inline]
    pub(crate) fn err(&self) -> u64 {
        self.values.read_err()
    }

    /// Adds to the success value, wakes the waiters that are due, and has the worker start the work
    /// that is due.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        if let Some(crossed) = self.values.add(n) {
            self.fire(crossed);
        }
    }

    /// [`add`](Self::add) that leaves the work to the caller.
    #[inline(always)]
    pub(super) fn add_for(&self, n: u64, starter: Starter) -> AfterChange {
        match self.values.add(n) {
            None => AfterChange::Nothing,
            Some(crossed) => self.fire_for(crossed, starter),
        }
    }

    #[cold]
    #[inline(never)]
    #[link_section = ".text.hot"]
    pub(super) fn fire(&self, crossed: ThresholdReached) {
        self.fire_for(crossed, Starter::Worker).wake();
    }

    /// [`fire`](Self::fire) that leaves the work to the caller.
    #[inline(never)]
    #[link_section = ".text.hot"]
    pub(super) fn fire_for(&self, crossed: ThresholdReached, starter: Starter) -> AfterChange {
        let ((), after) = self.with_line(starter, |line, due| {
            let changes = || self.changes.lock();
            line.fire(&self.values, crossed, changes, |left, why| {
                due.one(left, why)
            })
        });
        after
    }

    /// Takes the lock of the waiters, for a caller that adds or removes a waiter or a work. First
    /// wakes those that are due after a change without the lock of the waiters.
    #[inline]
    pub(super) fn line(&self) -> SpinLockGuard<'_, Line> {
        let mut line = self.line.lock();
        if !line.has_released_changes(&self.values) {
            self.release_changes(&mut line);
        }
        line
    }

    #[cold]
    #[inline(never)]
    fn release_changes(&self, line: &mut Line) {
        let mut due = Due::default();
        let changes = || self.changes.lock();
        line.release_changes(&self.values, changes, |left, why| due.one(left, why));
        line.works_mut()
            .map_mut()
            .after_change(Starter::Worker)
            .wake();
        // Under the lock, unlike elsewhere: the caller goes on.
        due.finish();
    }

    /// Calls `change` under the lock of the waiters, and wakes those that are due. Also returns
    /// what the caller has to do with the works that are due.
    #[inline(always)]
    fn with_line<R>(
        &self,
        starter: Starter,
        change: impl FnOnce(&mut Line, &mut Due) -> R,
    ) -> (R, AfterChange) {
        let mut due = Due::default();
        let mut line = self.line.lock();
        let result = change(&mut line, &mut due);
        let after = line.works_mut().map_mut().after_change(starter);
        drop(line);
        due.finish();
        (result, after)
    }

    /// Adds to the error value. A change of the value ends every wait. Returns whether it changed.
    pub(crate) fn adderr(&self, n: u64) -> bool {
        started_by_worker(self.adderr_for(n, Starter::Worker))
    }

    /// Sets the success value. Fails with `EINVAL` for a value above the maximum.
    pub(crate) fn set(&self, value: u64) -> Result {
        started_by_worker(self.set_for(value, Starter::Worker))
    }

    /// Sets the error value. A change of the value ends every wait. Returns whether it changed.
    /// Fails with `EINVAL` for a value above the maximum.
    pub(crate) fn seterr(&self, value: u64) -> Result<bool> {
        started_by_worker(self.seterr_for(value, Starter::Worker))
    }

    /// [`adderr`](Self::adderr) that leaves the work to the caller.
    pub(super) fn adderr_for(&self, n: u64, starter: Starter) -> (bool, AfterChange) {
        self.with_line(starter, |line, due| {
            let changes = self.changes.lock();
            line.add_err(&self.values, changes, n, |left, why| due.one(left, why))
        })
    }

    /// [`set`](Self::set) that leaves the work to the caller.
    pub(super) fn set_for(&self, value: u64, starter: Starter) -> (Result, AfterChange) {
        let (result, after) = self.with_line(starter, |line, due| {
            let changes = self.changes.lock();
            line.set(&self.values, changes, value, |left, why| due.one(left, why))
        });
        (result.map_err(to_error), after)
    }

    /// [`seterr`](Self::seterr) that leaves the work to the caller.
    pub(super) fn seterr_for(&self, value: u64, starter: Starter) -> (Result<bool>, AfterChange) {
        let (result, after) = self.with_line(starter, |line, due| {
            let changes = self.changes.lock();
            line.set_err(&self.values, changes, value, |left, why| due.one(left, why))
        });
        (result.map_err(to_error), after)
    }

    /// The largest value.
    pub(super) fn max(&self) -> u64 {
        self.values.max()
    }

    /// The number of works that wait, the lowest threshold of one, and the number of works that
    /// have become due.
    pub(super) fn working(&self) -> (u32, Option<u64>, u64) {
        let line = self.line.lock();
        let works = line.works();
        (works.len(), works.lowest(), works.due_ever())
    }

    /// Both values as they are now, to be given to [`changed`](Self::changed).
    pub(crate) fn seen(&self) -> Seen {
        self.changes.lock().seen(&self.values)
    }

    /// Both values as they are now, if either was written since `since`.
    pub(crate) fn changed(&self, since: &Seen) -> Option<Seen> {
        let now = self.seen();
        (now != *since).then_some(now)
    }

    /// The number of changes so far, for a wait that begins now.
    pub(super) fn entered(&self) -> WaitStart {
        self.changes.lock().entered(&self.values)
    }

    /// [`Cntr::wait`](super::Cntr::wait), whatever the wait object. Success takes precedence over
    /// all errors. `began` is 0 afterwards unless the call was interrupted.
    pub(crate) fn wait(&self, threshold: u64, deadline: Deadline, began: &mut u64) -> Result {
        let number = core::mem::replace(began, 0);
        if self.read() >= threshold {
            return Ok(());
        }
        if deadline == Deadline::Poll && number == 0 {
            return Err(ETIMEDOUT);
        }
        // Taken before anything that takes time: a later change of the error value ends this wait.
        let entered = match number {
            0 => self.entered(),
            number => WaitStart::again(number),
        };
        let result = self.wait_since(threshold, deadline, entered);
        if result == Err(ERESTARTSYS) {
            *began = entered.number();
        }
        result
    }

    /// Counts a waiter. Fails with `ENOSPC` at the limit.
    pub(super) fn enter_waiters(&self) -> Result {
        if self.waiters.fetch_add(1, Relaxed) < limits::MAX_WAITERS {
            return Ok(());
        }
        self.leave_waiters();
        Err(ENOSPC)
    }

    /// Counts a waiter that waits no more.
    pub(super) fn leave_waiters(&self) {
        self.waiters.fetch_sub(1, Relaxed);
    }

    /// [`wait`](Self::wait) for a thread that has `entered`. Also fails with `ENOSPC`.
    fn wait_since(&self, threshold: u64, deadline: Deadline, entered: WaitStart) -> Result {
        self.enter_waiters()?;
        let _counted = CountedWaiter(self);
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        let cond = WaitCondition::AtLeast(threshold, entered);
        let waiter = match with_memory(|memory| self.enter(cond, sleeper, memory))? {
            Ok(waiter) => waiter,
            Err(outcome) => return outcome.into_result().map_err(to_error),
        };
        match sleep(&sleeper, deadline, || self.leave(&waiter))? {
            WakeReason::Ready | WakeReason::Signalled => Ok(()),
            WakeReason::ErrorChanged => Err(to_error(Errno::KFI_EAVAIL)),
            WakeReason::Closed => Err(EBADF),
        }
    }

    /// Queues a waiter, or returns the outcome if the wait is over already (`Some(Err)`). `None`:
    /// the caller must bring memory for the waiter. Fails with `EBADF` if the counter was closed by
    /// force.
    fn enter(
        &self,
        cond: WaitCondition,
        sleeper: Pin<&Sleeper>,
        memory: &mut Option<Memory<Token>>,
    ) -> Result<Option<core::result::Result<Waiter, Outcome>>> {
        let token = Token::Sleeper(sleeper.waker());
        let mut line = self.line();
        if self.is_closed() {
            return Err(EBADF);
        }
        if memory.is_none() && !line.is_empty() {
            return Ok(None);
        }
        let memory = memory.take();
        Ok(Some(
            match line.arm(&self.values, cond, NewWaiter { token, memory }) {
                Armed::Over(outcome, _) => Err(outcome),
                Armed::Waiting(waiter) => Ok(waiter),
            },
        ))
    }

    /// Removes a waiter. False: it was removed and woken before.
    fn leave(&self, waiter: &Waiter) -> bool {
        self.line().disarm(&self.values, waiter).is_some()
    }

    /// Arms a descriptor for `cond` instead of its previous condition. The descriptor becomes
    /// readable at once if the condition holds. False: the waiter has no memory, and nothing has
    /// changed; the caller repeats the call with memory in `spare`. Fails with `EBADF` if the
    /// counter was closed by force.
    pub(super) fn arm(
        &self,
        notifier: &Arc<FdNotifier>,
        cond: WaitCondition,
        spare: &mut Option<Memory<Token>>,
    ) -> Result<bool> {
        self.arm_locked(&mut self.line(), notifier, cond, spare)
    }

    /// Returns both values as they are now and arms a readable descriptor for the next change.
    /// Fails with `EAGAIN` if the descriptor is not readable. Otherwise as [`arm`](Self::arm), with
    /// `None` in place of false.
    #[link_section = ".text.hot"]
    pub(super) fn take(
        &self,
        notifier: &Arc<FdNotifier>,
        spare: &mut Option<Memory<Token>>,
    ) -> Result<Option<Seen>> {
        let mut line = self.line.lock();
        if !notifier.is_readable() {
            return Err(EAGAIN);
        }
        // The waiters of the changes that the snapshot has seen are released before the descriptor
        // is armed.
        let seen = self.seen();
        if !line.has_released_changes(&self.values) {
            self.release_changes(&mut line);
        }
        let armed = self.arm_locked(&mut line, notifier, WaitCondition::AnyChange(seen), spare)?;
        Ok(armed.then_some(seen))
    }

    /// The caller has [released](Self::release_changes) the waiters of the changes.
    #[link_section = ".text.hot"]
    fn arm_locked(
        &self,
        line: &mut Line,
        notifier: &Arc<FdNotifier>,
        cond: WaitCondition,
        spare: &mut Option<Memory<Token>>,
    ) -> Result<bool> {
        if self.is_closed() {
            return Err(EBADF);
        }
        let mut entry = notifier.entry();
        if entry.memory.is_none() {
            entry.memory = spare.take();
        }
        if entry.memory.is_none() {
            return Ok(false);
        }
        let memory = entry.memory.take();
        self.disarm(line, &mut entry);
        notifier.clear_readable();
        let token = Token::Fd(notifier.clone());
        match line.arm(&self.values, cond, NewWaiter { token, memory }) {
            Armed::Waiting(key) => entry.key = Some(key),
            Armed::Over(_, waiter) => {
                entry.memory = waiter.memory;
                notifier.notify();
            }
        }
        Ok(true)
    }

    /// Removes the waiter of a descriptor or a callback from the line, if it is there.
    pub(super) fn disarm(&self, line: &mut Line, entry: &mut Entry<Waiter, Token>) {
        if let Some(key) = entry.key.take() {
            if let Some(left) = line.disarm(&self.values, &key) {
                entry.removed(left.memory);
            }
        }
    }

    /// Makes a descriptor readable, as if its condition held.
    pub(super) fn notify(&self, notifier: &FdNotifier) {
        let mut line = self.line.lock();
        self.disarm(&mut line, &mut notifier.entry());
        notifier.notify();
    }

    /// Removes the waiter of a descriptor, if there is one.
    pub(super) fn remove(&self, notifier: &FdNotifier) {
        let mut line = self.line.lock();
        self.disarm(&mut line, &mut notifier.entry());
    }

    /// Closes the counter by force. All waits, and those that begin later, end with `EBADF`.
    /// Idempotent.
    pub(crate) fn close(&self) {
        {
            let mut line = self.line();
            self.closed.store(true, Release);
            line.release_all(&self.values, |left| match left.token {
                Token::Sleeper(waker) => waker.wake(WakeReason::Closed.reason()),
                Token::Fd(notifier) => {
                    notifier.entry().removed(left.memory);
                    notifier.set_readable();
                }
                #[cfg(kfi_kunit)]
                Token::Callback(callback) => callback.fire(WakeReason::Closed, left.memory),
            });
        }
        self.descriptors.hang_up();
    }

    /// Whether the counter was closed by force.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// The number of waiters, and the lowest threshold of a waiter.
    pub(crate) fn waiting(&self) -> (u32, Option<u64>) {
        let line = self.line.lock();
        (line.len(), line.lowest())
    }
}
