// SPDX-License-Identifier: GPL-2.0

//! The submission queues of an endpoint: operations that were started and not posted yet.
//!
//! An [`Admitted`](super::admit::Admitted) operation can be started in any context, under a
//! counter's lock or in an interrupt. Posting copies, allocates and takes mutexes. So a start puts
//! the operation in a queue, and a task posts it: the caller, if it may sleep, or a worker.
//!
//! ```text
//!   start (any context) --> queue of the side --> worker, or a task that posts --> Poster::run
//!                                ^                         |
//!                                '--- EAGAIN: first again -'   a timer, or a completion, tries again
//! ```
//!
//! Each side of the endpoint has a queue, so transmits that wait for room do not delay receives.
//! Operations are posted in the order of their starts. A call that posts to a side first posts the
//! started operations of this side, or waits until another task has. If one of them finds no room,
//! or there are too many for one call, the call fails with `EAGAIN`, so it cannot overtake them.
//!
//! # Attempts
//!
//! One task at a time takes operations from a queue: a [`Run`]. An operation that finds no room (in
//! the CQ, among `tx_size` or `rx_size`, at its peer), or that is delayed after refused accesses,
//! stays the first one, and the queue is blocked. The next completion of the endpoint unblocks it.
//! The endpoint does not learn that entries of a CQ were read or that a peer has room again, so a
//! timer tries again, too: after [`FIRST_DELAY`](queue::FIRST_DELAY), and after twice as long if
//! that was in vain, at most [`LAST_DELAY`](queue::LAST_DELAY). Each queue has its own delay.
//!
//! # Room
//!
//! Where a call may not sleep, its operation waits here however long the attempts are in vain. So
//! such a call first asks for room ([`Endpoint::check_started`]): at most as many operations of a
//! side wait as may be posted, and one more for each CPU. Operations that waited for a counter are
//! limited by their domain.
//!
//! # Memory
//!
//! An operation brings the memory for its entry in the queue. It holds a reference to the endpoint,
//! so the endpoint is not freed before its queues are empty. When the endpoint closes, started
//! operations are dropped without completions, like posted ones. A close by the owner waits for the
//! end of a run. A close by force does not; the task of the run then tears the endpoint down.
//!
//! # Locks
//!
//! The lock of both queues is taken in any context, with interrupts disabled, under any lock of the
//! callers. Only the lock of the workqueue and that of the timer are taken under it. It is held for
//! some instructions. On a kernel with `PREEMPT_RT` it is a sleeping lock, so there an operation is
//! not started in hard interrupt context.

mod queue;

use kernel::{
    new_spinlock_irq,
    sync::SpinLockIrq,
    workqueue::{
        impl_has_work,
        WorkItem, //
    }, //
};

use kfi_core::word::Word;

use self::queue::{
    Backoff,
    Queue,
    Stack, //
};
use super::{
    admit::Entry,
    op::Op,
    prelude::*, //
};
use crate::shim::{
    alarm::{
        impl_alarm,
        Alarm, //
    },
    sched::now_ns,
    wait::Signals,
    word::AtomicWord,
    work, //
};

/// Bytes that a worker posts before it lets other items of the workqueue run.
const WORKER_BUDGET: usize = 1 << 20;

/// Bytes of started operations that a call posts before its own operation.
pub(super) const CALL_BUDGET: usize = 16 << 20;

/// Bytes that an operation counts at least in a budget.
const MIN_CHARGE: usize = 4 << 10;

struct Inner {
    transmit: Queue,
    receive: Queue,
    /// The endpoint was closed by force during a [`Run`]. The task that ends it tears the endpoint
    /// down.
    must_teardown: bool,
    /// The endpoint is shut, and no task posts to it any more. A later run only drops operations,
    /// and the timer is not set again: it would keep the endpoint.
    ended: bool,
    /// If too many workers of the user run: the next attempt.
    worker_retry: Backoff,
    alarm: Alarm<Endpoint>,
}

impl Inner {
    fn queue(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::Transmit => &mut self.transmit,
            Side::Receive => &mut self.receive,
        }
    }

    /// Whether the endpoint is closed, or is closed at the end of a run.
    fn is_closing(&self) -> bool {
        self.must_teardown || self.ended
    }

    /// Sets the timer of `endpoint`. Without effect if the endpoint is closing: the timer would
    /// keep it.
    fn wake_at(&mut self, endpoint: &Arc<Endpoint>, now: u64, at: u64) {
        if !self.is_closing() {
            self.alarm.set(endpoint, &endpoint.retry_due, now, at);
        }
    }
}

/// The submission queues of an endpoint.
#[pin_data]
pub(super) struct Submission {
    #[pin]
    inner: SpinLockIrq<Inner>,
    /// The operations of each side that were started and are not posted yet.
    transmits: AtomicWord,
    receives: AtomicWord,
    /// Whether a queue may be blocked.
    blocked: AtomicWord,
    /// The most transmits and receives that are posted at a time.
    tx_size: u64,
    rx_size: u64,
    /// The tasks that wait for the end of a [`Run`].
    #[pin]
    idle: WaitQueue,
}

/// The result of posting the operations of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The queue is empty.
    Empty,
    /// The first operation has found no room.
    Blocked,
    /// The budget is used up.
    More,
}

impl Submission {
    /// For `tx_size` transmits and `rx_size` receives that are posted at a time.
    pub(super) fn new(tx_size: usize, rx_size: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- new_spinlock_irq!(
                Inner {
                    transmit: Queue::new(),
                    receive: Queue::new(),
                    must_teardown: false,
                    ended: false,
                    worker_retry: Backoff::new(),
                    alarm: Alarm::new(),
                },
                "Submission::inner"
            ),
            transmits: AtomicWord::new(0),
            receives: AtomicWord::new(0),
            blocked: AtomicWord::new(0),
            // CASTS: A usize has 64 bits.
            tx_size: tx_size as u64,
            rx_size: rx_size as u64,
            idle <- new_wait_queue!("Submission::idle"),
        })
    }

    fn count(&self, side: Side) -> &AtomicWord {
        match side {
            Side::Transmit => &self.transmits,
            Side::Receive => &self.receives,
        }
    }

    /// The delay in ns after a side's next attempt.
    #[cfg(kfi_kunit)]
    pub(super) fn delay(&self, side: Side) -> u64 {
        self.inner.lock().queue(side).retry.delay
    }

    /// Whether the timer keeps the endpoint.
    #[cfg(kfi_kunit)]
    pub(super) fn is_armed(&self) -> bool {
        self.inner.lock().alarm.is_armed()
    }

    /// Whether operations of a side were started and are not posted yet. Any context.
    #[inline(always)]
    pub(super) fn has_started(&self, side: Side) -> bool {
        self.count(side).load() != 0
    }

    /// Begins to take operations from the queue of a side; `None` if another task does that.
    /// Process context.
    pub(super) fn begin(&self, side: Side) -> Option<Run<'_>> {
        self.begin_in(&mut self.inner.lock(), side)
    }

    /// [`begin`](Self::begin), for the worker of `endpoint`: also `None` if the queue is empty, or
    /// blocked until a later time. Process context.
    fn begin_due(&self, endpoint: &Arc<Endpoint>, side: Side) -> Option<Run<'_>> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        inner.worker_retry = Backoff::new();
        let queue = inner.queue(side);
        if queue.busy || queue.endpoint().is_none() {
            return None;
        }
        let (now, at) = (now_ns(), queue.retry.at);
        if queue.blocked && now < at && !inner.is_closing() {
            // The timer has expired for the other queue.
            inner.wake_at(endpoint, now, at);
            return None;
        }
        self.begin_in(inner, side)
    }

    fn begin_in(&self, inner: &mut Inner, side: Side) -> Option<Run<'_>> {
        let queue = inner.queue(side);
        if core::mem::replace(&mut queue.busy, true) {
            return None;
        }
        queue.kicked = false;
        let ready = core::mem::replace(&mut queue.ready, Stack(None));
        Some(Run {
            submission: self,
            side,
            ready,
        })
    }

    /// Makes a blocked queue try again, because an operation of the endpoint has completed. Any
    /// context.
    #[inline(always)]
    pub(super) fn kick(&self) {
        if self.blocked.load() != 0 {
            self.unblock();
        }
    }

    #[cold]
    fn unblock(&self) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.must_teardown {
            return;
        }
        let is_busy = inner.transmit.busy || inner.receive.busy;
        self.blocked.store(is_busy.into());
        for queue in [&mut inner.transmit, &mut inner.receive] {
            // The task of a run tries again.
            queue.kicked = queue.busy;
            if queue.busy || !core::mem::replace(&mut queue.blocked, false) {
                continue;
            }
            if let Some(first) = &queue.ready.0 {
                // The queue keeps its reference, so this one is not the last.
                first.endpoint.wake_submission();
            }
        }
    }

    /// Notes that an operation has found no room. It is tried once more after this call: room that
    /// is freed after that attempt makes a [`kick`](Self::kick) that the end of the run sees.
    /// Process context.
    fn expect_kick(&self) {
        self.blocked.swap(1);
    }

    /// Waits until no task posts started operations. The endpoint is shut. Fails with `EINTR` if a
    /// signal ends the wait. Sleeps.
    pub(super) fn settle(&self, signals: Signals) -> Result {
        let is_idle = || {
            let mut inner = self.inner.lock();
            inner.ended = !inner.transmit.busy && !inner.receive.busy;
            inner.ended
        };
        self.idle.wait_for(signals, is_idle).map_err(|_| EINTR)
    }

    /// Waits until no task takes operations from the queue of a side. Fails with `EINTR` if a
    /// signal ends the wait. Sleeps.
    pub(super) fn wait_idle(&self, side: Side, signals: Signals) -> Result {
        let is_idle = || !self.inner.lock().queue(side).busy;
        self.idle.wait_for(signals, is_idle).map_err(|_| EINTR)
    }

    /// Leaves the teardown of the endpoint, which is shut, to the task that posts its started
    /// operations. Returns `false` if there is no such task. Sleeps.
    pub(super) fn leave_teardown(&self) -> bool {
        let mut inner = self.inner.lock();
        let must_teardown = !inner.ended && (inner.transmit.busy || inner.receive.busy);
        inner.must_teardown = must_teardown;
        inner.ended = !must_teardown;
        let alarm = core::mem::replace(&mut inner.alarm, Alarm::new());
        drop(inner);
        // Waits for the callback of the timer, which takes no lock.
        drop(alarm);
        must_teardown
    }

    /// Whether a task posts started operations. Process context.
    pub(super) fn is_busy(&self) -> bool {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.transmit.busy || inner.receive.busy
    }

    /// For teardown: drops the started operations without completions. Sleeps.
    pub(super) fn drop_all(&self) {
        for side in [Side::Transmit, Side::Receive] {
            let Some(mut run) = self.begin(side) else {
                continue;
            };
            while let Some(entry) = run.next() {
                drop(entry);
                run.posted();
                cond_resched();
            }
            run.end(Progress::Empty, false);
        }
    }

    /// Has the worker run again after a while, because too many workers of the user run. Returns
    /// `false` if the endpoint is shut: the worker then only drops operations. Process context.
    fn try_later(&self, endpoint: &Arc<Endpoint>) -> bool {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if inner.ended {
            return false;
        }
        let now = now_ns();
        let at = inner.worker_retry.after(now);
        inner.wake_at(endpoint, now, at);
        true
    }

    /// [`begin`](Self::begin), as soon as no other task takes operations from the queue. Fails with
    /// `EINTR` if the current task is being killed. Sleeps.
    pub(super) fn begin_killable(&self, side: Side) -> Result<Run<'_>> {
        loop {
            if let Some(run) = self.begin(side) {
                return Ok(run);
            }
            self.wait_idle(side, Signals::Fatal)?;
        }
    }
}

/// Adds a started operation of `endpoint` to its queue, for the worker. Any context.
pub(super) fn push(endpoint: &Arc<Endpoint>, entry: KBox<Entry>) {
    let (submission, side) = (&endpoint.submission, entry.op.side());
    let mut inner = submission.inner.lock();
    submission.count(side).fetch_add(1);
    let queue = inner.queue(side);
    queue.started.push(entry);
    // A run that is in progress finds it, or wakes the worker when it ends.
    if !queue.busy && !queue.blocked {
        endpoint.wake_submission();
    }
}

/// Adds a started operation of `endpoint` to its queue, and begins to take operations from there;
/// `None` if another task does that. Process context.
pub(super) fn push_and_begin(endpoint: &Arc<Endpoint>, entry: KBox<Entry>) -> Option<Run<'_>> {
    let (submission, side) = (&endpoint.submission, entry.op.side());
    let mut inner = submission.inner.lock();
    submission.count(side).fetch_add(1);
    let queue = inner.queue(side);
    // The oldest one, if it is alone: the run need not fetch it.
    let is_oldest = !queue.busy && queue.endpoint().is_none();
    let operations = if is_oldest {
        &mut queue.ready
    } else {
        &mut queue.started
    };
    operations.push(entry);
    submission.begin_in(&mut inner, side)
}

/// The right to take operations from the queue of one side. Ends with [`end`](Self::end).
#[must_use = "the queue stays busy"]
pub(super) struct Run<'a> {
    submission: &'a Submission,
    side: Side,
    /// The oldest first.
    ready: Stack,
}

impl Run<'_> {
    /// Takes the oldest operation. Sleeps.
    fn next(&mut self) -> Option<KBox<Entry>> {
        if self.ready.0.is_none() {
            // The end of the run finds those that are started from now on.
            if !self.submission.has_started(self.side) {
                return None;
            }
            let mut started = {
                let mut inner = self.submission.inner.lock();
                core::mem::replace(&mut inner.queue(self.side).started, Stack(None))
            };
            // Outside the lock: there may be very many.
            while let Some(entry) = started.pop() {
                self.ready.push(entry);
                cond_resched();
            }
        }
        self.ready.pop()
    }

    /// Makes an operation the oldest one again.
    fn put_back(&mut self, entry: KBox<Entry>) {
        self.ready.push(entry);
    }

    /// An operation that was taken will not be put back.
    fn posted(&self) {
        self.submission.count(self.side).fetch_add(u64::MAX);
    }

    /// Ends the run, which has posted operations or not (`moved`). Returns whether the caller has
    /// to tear the endpoint down. Process context.
    pub(super) fn end(mut self, progress: Progress, moved: bool) -> bool {
        let submission = self.submission;
        let mut guard = submission.inner.lock();
        let inner = &mut *guard;
        let must_teardown = inner.must_teardown;
        let queue = inner.queue(self.side);
        core::mem::swap(&mut queue.ready, &mut self.ready);
        queue.busy = false;
        let was_blocked = queue.blocked;
        queue.blocked = progress == Progress::Blocked && !queue.kicked;
        if queue.blocked {
            if moved || !was_blocked {
                queue.retry = Backoff::new();
            }
            let now = now_ns();
            let at = queue.retry.after(now);
            // The queue keeps its reference, so this one is not the last.
            if let Some(endpoint) = queue.endpoint().cloned() {
                inner.wake_at(&endpoint, now, at);
            }
        } else if let (Some(endpoint), false) = (queue.endpoint(), must_teardown) {
            endpoint.wake_submission();
        }
        let (transmit, receive) = (&inner.transmit, &inner.receive);
        // The other side may be about to be blocked.
        let blocked = transmit.blocked || receive.blocked || transmit.busy || receive.busy;
        submission.blocked.store(blocked.into());
        let is_last = !inner.transmit.busy && !inner.receive.busy;
        let must_teardown = is_last && core::mem::replace(&mut inner.must_teardown, false);
        inner.ended |= must_teardown;
        drop(guard);
        // A task that begins to wait now sees that the queue is not busy.
        if submission.idle.has_sleepers() {
            submission.idle.wake_all();
        }
        must_teardown
    }
}

impl_has_work! {
    impl HasWork<Self> for Endpoint { self.work }
}

impl_alarm! {
    impl Alarm for Endpoint {
        timer: self.retry, due: self.retry_due, expired: Self::wake_submission
    }
}

/// The worker, which posts started operations.
impl WorkItem for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The worker may sleep until a task of the user releases a lock. So the workers of a user
        // are limited, like those of QPs.
        let running = this.ident.budget.enter_worker();
        if running.is_none() && this.submission.try_later(&this) {
            return;
        }
        let _nice = this.ident.owner.borrow_nice();
        // Allocations are charged to the owner of the endpoint.
        this.ident.owner.charge(|| {
            for side in [Side::Transmit, Side::Receive] {
                // If another task posts them, that task wakes the worker again when it ends.
                if let Some(run) = this.submission.begin_due(&this, side) {
                    let _ = Poster::new(&this).post_started(run, WORKER_BUDGET);
                }
            }
        });
    }
}

impl Endpoint {
    /// Has the worker post started operations. Any context. The caller has another reference that
    /// is dropped later.
    pub(super) fn wake_submission(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::submit_queue(self.ident.owner.kind()).enqueue::<_, 0>(self.clone());
    }

    /// Checks whether a call that may not sleep can start an operation. Fails with `EAGAIN` if as
    /// many of its side wait to be posted as may be posted at a time. Any context.
    pub(crate) fn check_started(&self, op: &Op<'_>) -> Result {
        let (submission, side) = (&self.submission, op.side());
        let most = match side {
            Side::Transmit => submission.tx_size,
            Side::Receive => submission.rx_size,
        };
        if submission.count(side).load() >= most {
            return Err(EAGAIN);
        }
        Ok(())
    }

    /// Cancels the oldest started operation of a side with `context`: it completes with ECANCELED.
    /// Returns `false` if there is none. Waits while another task posts started operations of this
    /// side. Fails with `EINTR` if the current task is being killed. Sleeps.
    pub(super) fn cancel_started(&self, bound: &Bound, side: Side, context: u64) -> Result<bool> {
        if !self.submission.has_started(side) {
            return Ok(false);
        }
        let mut run = self.submission.begin_killable(side)?;
        let (mut found, mut before) = (None, Stack(None));
        while let Some(entry) = run.next() {
            if entry.op.kind_and_context().1 == context {
                run.posted();
                found = Some(entry);
                break;
            }
            before.push(entry);
            cond_resched();
        }
        while let Some(entry) = before.pop() {
            run.put_back(entry);
            cond_resched();
        }
        if run.end(Progress::More, false) {
            self.teardown_left();
        }
        let Some(entry) = found else {
            return Ok(false);
        };
        self.fail_admitted(bound, entry, ECANCELED);
        Ok(true)
    }
}

impl Poster<'_> {
    /// Posts the started operations of a side in their order, until their bytes exceed `budget` or
    /// one finds no room. Sleeps.
    pub(super) fn post_started(&mut self, mut run: Run<'_>, budget: usize) -> Progress {
        let endpoint = self.endpoint;
        let (mut left, mut moved) = (Some(budget), false);
        let progress = loop {
            let Some(mut entry) = run.next() else {
                break Progress::Empty;
            };
            let bytes = entry.op.len().max(MIN_CHARGE);
            let Some(rest) = left else {
                run.put_back(entry);
                break Progress::More;
            };
            left = rest.checked_sub(bytes);
            let mut result = self.post_admitted(&mut entry);
            if result == Err(EAGAIN) {
                endpoint.submission.expect_kick();
                result = self.post_admitted(&mut entry);
            }
            moved |= result != Err(EAGAIN);
            match result {
                Err(error) if error == EAGAIN => {
                    run.put_back(entry);
                    break Progress::Blocked;
                }
                Err(error) => {
                    run.posted();
                    match endpoint.bound.as_ref() {
                        Some(bound) if endpoint.drain.is_open() => {
                            endpoint.fail_admitted(bound, entry, error);
                        }
                        // A closed endpoint reports nothing.
                        _ => drop(entry),
                    }
                }
                Ok(()) => {
                    run.posted();
                    drop(entry);
                }
            }
            cond_resched();
        };
        if run.end(progress, moved) {
            // The teardown waits for peers.
            self.forget_peer();
            endpoint.teardown_left();
        }
        progress
    }
}
