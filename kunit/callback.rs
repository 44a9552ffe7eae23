// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_callback`: callbacks on CQs and counters, their context and their end.

use super::{
    Callback,
    Registration,
    WakeReason,
    Watched, //
};
use crate::{
    kunit::{
        fixture::{
            a_while,
            allow_kill,
            count_if,
            eventually,
            soon,
            thread,
            Count,
            TestDomain, //
        },
        helpers::{
            may_sleep,
            Join,
            UserFd,
            UserMemory, //
        }, //
    },
    provider::{
        cntr::Cntr,
        cq::Cq,
        object::{
            close,
            force_close, //
        }, //
    },
    shim::anon_file::{
        EPOLLIN,
        EPOLLRDNORM, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_core::{
    cntr::WaitCondition,
    cq::{
        CallbackCondition::{
            Next,
            Ready, //
        },
        Entry,
        ErrEntry, //
    },
    enums::WaitObj,
    wait::Deadline, //
};

pub(super) fn counter(test: &TestDomain, wait: WaitObj) -> Result<Arc<Cntr>> {
    test.cntr(wait, 3)
}

pub(super) fn cq(test: &TestDomain, wait: WaitObj) -> Result<Arc<Cq>> {
    test.cq(4, wait, 4)
}

/// Returns the condition that `cntr` reaches `threshold` or its error value changes from now on.
pub(super) fn at_least(cntr: &Cntr, threshold: u64) -> WaitCondition {
    WaitCondition::AtLeast(threshold, cntr.entered())
}

pub(super) fn push(cq: &Cq) -> Result {
    cq.push(cq.reserve()?, &Entry::default());
    Ok(())
}

/// Reads all entries. Returns their number.
pub(super) fn drain(cq: &Arc<Cq>) -> usize {
    let sink = |_: &[u64], _: u64| Ok(());
    cq.sread(100, 0, Deadline::Poll, &mut 0, sink).unwrap_or(0)
}

/// The calls of callbacks.
pub(super) struct Calls {
    count: Atomic<u32>,
    /// The last reason.
    why: Atomic<u32>,
    inside: Atomic<u32>,
    /// Calls that overlapped another one, or where sleeping was not allowed.
    bad: Atomic<u32>,
}

impl Calls {
    pub(super) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                count: Atomic::new(0),
                why: Atomic::new(0),
                inside: Atomic::new(0),
                bad: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// Records a call. `body` is the rest of the callback.
    pub(super) fn call(&self, why: WakeReason, body: impl FnOnce()) {
        let alone = self.inside.fetch_add(1, Full) == 0;
        if !(alone && may_sleep()) {
            self.bad.fetch_add(1, Full);
        }
        self.why.xchg(why.reason().get(), Full);
        body();
        self.inside.fetch_add(u32::MAX, Full);
        self.count.fetch_add(1, Full);
    }

    /// The number of calls that are over.
    pub(super) fn get(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// Whether a call is running.
    pub(super) fn running(&self) -> bool {
        self.inside.load(Acquire) != 0
    }

    /// Whether there have been `n` calls, all of them in the documented context.
    pub(super) fn are(&self, n: u32) -> bool {
        self.get() == n && self.bad.load(Acquire) == 0
    }

    /// Waits for the `n`th call, and then for calls that should not happen. Returns its reason.
    fn nth(&self, n: u32) -> Option<WakeReason> {
        use WakeReason::{
            Closed,
            ErrorChanged,
            Ready,
            Signalled, //
        };
        if !eventually(|| self.get() >= n) {
            return None;
        }
        a_while();
        let why = self.why.load(Acquire);
        [Ready, ErrorChanged, Signalled, Closed]
            .into_iter()
            .find(|reason| self.are(n) && reason.reason().get() == why)
    }
}

/// Registers a callback that records its calls.
pub(super) fn record<T: Watched>(object: &Arc<T>, calls: &Arc<Calls>) -> Result<Registration<T>> {
    let calls = calls.clone();
    Registration::new(object, move |_, why| calls.call(why, || ()))
}

/// Registers a callback of `cntr` that runs until `go_on` counts.
fn slow(cntr: &Arc<Cntr>, calls: &Arc<Calls>, go_on: &Arc<Count>) -> Result<Registration<Cntr>> {
    let (calls, go_on) = (calls.clone(), go_on.clone());
    Registration::new(cntr, move |_, why| {
        calls.call(why, || {
            eventually(|| go_on.get() != 0);
        })
    })
}

/// Unregisters `callback` in a thread, which counts `done` for success and `ended` for `EINTR`.
fn unregister(
    callback: &Arc<Callback<Cntr>>,
    done: &Arc<Count>,
    ended: &Arc<Count>,
) -> Result<Join> {
    let (callback, done, ended) = (callback.clone(), done.clone(), ended.clone());
    thread(move || {
        allow_kill();
        match callback.unregister() {
            Ok(()) => done.add(1),
            Err(error) if error == EINTR => ended.add(1),
            Err(_) => {}
        }
    })
}

#[kunit_tests(kfabric_callback)]
mod tests {
    use super::*;

    #[test]
    fn an_arming_leads_to_one_call() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let calls = Calls::new()?;
        let callback = record(&cntr, &calls)?;
        // The callback is not armed yet.
        cntr.add(1);
        ensure_eq!(callback.arm(at_least(&cntr, 4)), Ok(None));
        cntr.add(2);
        a_while();
        ensure!(calls.are(0));
        cntr.add(1);
        ensure_eq!(calls.nth(1), Some(WakeReason::Ready));
        cntr.add(10);
        cntr.adderr(1);
        a_while();
        ensure!(calls.are(1));
        // Arming again replaces the condition.
        ensure_eq!(callback.arm(at_least(&cntr, 16)), Ok(None));
        ensure_eq!(callback.arm(at_least(&cntr, 20)), Ok(None));
        cntr.add(3);
        a_while();
        ensure!(calls.are(1));
        cntr.add(3);
        ensure_eq!(calls.nth(2), Some(WakeReason::Ready));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn a_condition_that_holds_is_returned_and_makes_no_call() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let calls = Calls::new()?;
        let callback = record(&cntr, &calls)?;
        cntr.add(5);
        ensure_eq!(callback.arm(at_least(&cntr, 9)), Ok(None));
        // The earlier condition is given up.
        let ready = Ok(Some(WakeReason::Ready));
        ensure_eq!(callback.arm(at_least(&cntr, 5)), ready);
        cntr.add(10);
        let seen = cntr.seen();
        cntr.set(15)?;
        ensure_eq!(callback.arm(WaitCondition::AnyChange(seen)), ready);
        let entered = cntr.entered();
        cntr.adderr(1);
        let cond = WaitCondition::AtLeast(50, entered);
        ensure_eq!(callback.arm(cond), Ok(Some(WakeReason::ErrorChanged)));

        let cq = cq(&test, WaitObj::None)?;
        let of_cq = record(&cq, &calls)?;
        push(&cq)?;
        ensure_eq!(of_cq.arm(Ready(2)), Ok(None));
        ensure_eq!(of_cq.arm(Ready(1)), ready);
        push(&cq)?;
        cq.push_err(cq.reserve()?, &ErrEntry::default());
        ensure_eq!(of_cq.arm(Ready(4)), ready);
        a_while();
        ensure!(calls.are(0));
        force_close(&*cq);
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn an_error_of_a_counter_is_a_reason() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let calls = Calls::new()?;
        let callback = record(&cntr, &calls)?;
        cntr.adderr(1);
        ensure_eq!(callback.arm(at_least(&cntr, 50)), Ok(None));
        cntr.seterr(0)?;
        ensure_eq!(calls.nth(1), Some(WakeReason::ErrorChanged));
        ensure_eq!(
            callback.arm(WaitCondition::AnyChange(cntr.seen())),
            Ok(None)
        );
        cntr.adderr(1);
        ensure_eq!(calls.nth(2), Some(WakeReason::Ready));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn completions_errors_losses_and_signals_call_a_callback_of_a_cq() -> Result {
        let test = TestDomain::open()?;
        let cq = cq(&test, WaitObj::Unspec)?;
        let calls = Calls::new()?;
        let callback = record(&cq, &calls)?;
        ensure_eq!(callback.arm(Ready(2)), Ok(None));
        push(&cq)?;
        a_while();
        ensure!(calls.are(0));
        push(&cq)?;
        ensure_eq!(calls.nth(1), Some(WakeReason::Ready));
        // The entries that are queued are not the next completion.
        ensure_eq!(callback.arm(Next), Ok(None));
        a_while();
        ensure!(calls.are(1));
        cq.push_unposted(&Entry::default());
        ensure_eq!(calls.nth(2), Some(WakeReason::Ready));
        ensure_eq!(callback.arm(Next), Ok(None));
        cq.signal()?;
        ensure_eq!(calls.nth(3), Some(WakeReason::Signalled));
        ensure_eq!(callback.arm(Next), Ok(None));
        cq.push_err_unposted(&ErrEntry::default());
        ensure_eq!(calls.nth(4), Some(WakeReason::Ready));
        // The CQ is full.
        ensure_eq!(callback.arm(Next), Ok(None));
        cq.push_unposted(&Entry::default());
        ensure_eq!(calls.nth(5), Some(WakeReason::Ready));
        force_close(&*cq);
        Ok(())
    }

    #[test]
    fn waiters_of_all_kinds_are_woken_at_their_thresholds() -> Result {
        const EACH: u32 = 20;
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::Unspec)?;
        let memory = UserMemory::map(4096, true)?;
        let (calls, woken) = (Calls::new()?, Count::new()?);
        let (mut threads, mut callbacks, mut fds) = (KVec::new(), KVec::new(), KVec::new());
        for threshold in (1..=EACH).rev() {
            let threshold = u64::from(threshold);
            let other = cntr.clone();
            let sleeper = count_if(&woken, move || {
                other.wait(threshold, soon(), &mut 0).is_ok()
            })?;
            threads.push(sleeper, GFP_KERNEL)?;
            // A registration that is dropped leaves no waiter.
            let callback = record(&cntr, &Calls::new()?)?;
            ensure_eq!(callback.arm(at_least(&cntr, threshold)), Ok(None));
            drop(callback);
            let callback = {
                let calls = calls.clone();
                Registration::new(&cntr, move |_, _| {
                    calls.count.fetch_add(1, Full);
                })?
            };
            ensure_eq!(callback.arm(at_least(&cntr, threshold)), Ok(None));
            callbacks.push(callback, GFP_KERNEL)?;
            let pending = cntr.getwait()?;
            let fd = UserFd::new(pending.fd());
            pending.install();
            memory.write(0, &threshold.to_ne_bytes())?;
            ensure_eq!(fd.write(&memory, 8, false), Ok(8));
            fds.push(fd, GFP_KERNEL)?;
        }
        let readable = |fd: &UserFd| fd.poll() == EPOLLIN | EPOLLRDNORM;
        for reached in 1..=EACH {
            cntr.add(1);
            ensure!(eventually(
                || calls.get() >= reached && woken.get() >= reached
            ));
            let found = fds.iter().filter(|fd| readable(fd)).count();
            ensure_eq!(found, reached as usize);
        }
        drop(threads);
        a_while();
        ensure_eq!((calls.get(), woken.get()), (EACH, EACH));
        drop(fds);
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn a_callback_reads_arms_and_closes() -> Result {
        let test = TestDomain::open()?;
        let (first, other) = (cq(&test, WaitObj::None)?, cq(&test, WaitObj::None)?);
        let (calls, read, closed) = (Calls::new()?, Count::new()?, Count::new()?);
        let callback = {
            let (calls, read, closed) = (calls.clone(), read.clone(), closed.clone());
            let (cntr, other) = (counter(&test, WaitObj::None)?, other.clone());
            let of_other = Arc::pin_init(
                new_mutex!(Some(record(&other, &Calls::new()?)?)),
                GFP_KERNEL,
            )?;
            Registration::new(&first, move |callback: &Arc<Callback<Cq>>, why| {
                calls.call(why, || {
                    a_while();
                    read.add(drain(callback.object()) as u32);
                    // The first call closes two objects, one of which has a callback.
                    let of_other: &Mutex<_> = &of_other;
                    drop(of_other.lock().take());
                    for done in [close(&*other), close(&*cntr)] {
                        closed.add(u32::from(done.is_ok()));
                    }
                    if !matches!(callback.arm(Ready(1)), Ok(None)) {
                        closed.add(100);
                    }
                })
            })?
        };
        ensure_eq!(callback.arm(Ready(1)), Ok(None));
        for round in 1..=5 {
            push(&first)?;
            ensure_eq!(calls.nth(round), Some(WakeReason::Ready));
            ensure_eq!((read.get(), closed.get()), (round, 2));
        }
        ensure_eq!(callback.unregister(), Ok(()));
        ensure_eq!(close(&*first), Ok(()));
        Ok(())
    }

    #[test]
    fn an_object_with_a_callback_is_in_use() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let calls = Calls::new()?;
        let (first, second) = (record(&cntr, &calls)?, record(&cntr, &calls)?);
        ensure_eq!(first.arm(at_least(&cntr, 1)), Ok(None));
        ensure_eq!(close(&*cntr), Err(EBUSY));
        ensure_eq!(first.unregister(), Ok(()));
        ensure_eq!(first.unregister(), Ok(()));
        ensure_eq!(first.arm(at_least(&cntr, 1)), Err(ESHUTDOWN));
        ensure_eq!(close(&*cntr), Err(EBUSY));
        drop(second);
        cntr.add(1);
        ensure_eq!(close(&*cntr), Ok(()));
        drop(first);
        ensure_eq!(record(&cntr, &calls).err(), Some(EBADF));
        a_while();
        ensure!(calls.are(0));
        Ok(())
    }

    #[test]
    fn a_close_by_force_calls_armed_callbacks() -> Result {
        let test = TestDomain::open()?;
        let (cntr, cq) = (counter(&test, WaitObj::None)?, cq(&test, WaitObj::None)?);
        let (armed, idle) = (Calls::new()?, Calls::new()?);
        let (of_cntr, of_cq) = (record(&cntr, &armed)?, record(&cq, &armed)?);
        let idle_one = record(&cq, &idle)?;
        ensure_eq!(of_cntr.arm(at_least(&cntr, 1)), Ok(None));
        force_close(&*cntr);
        ensure_eq!(armed.nth(1), Some(WakeReason::Closed));
        ensure_eq!(of_cq.arm(Next), Ok(None));
        force_close(&*cq);
        ensure_eq!(armed.nth(2), Some(WakeReason::Closed));
        ensure!(idle.are(0));
        ensure_eq!(of_cntr.arm(at_least(&cntr, 0)), Err(EBADF));
        ensure_eq!(idle_one.arm(Next), Err(EBADF));
        ensure_eq!(of_cq.unregister(), Ok(()));
        Ok(())
    }

    #[test]
    fn unregistering_waits_for_a_call() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let (calls, go_on) = (Calls::new()?, Count::new()?);
        let callback = slow(&cntr, &calls, &go_on)?;
        let (done, ended) = (Count::new()?, Count::new()?);
        ensure_eq!(callback.arm(at_least(&cntr, 1)), Ok(None));
        cntr.add(1);
        ensure!(eventually(|| calls.running()));
        // A call that becomes due meanwhile is not made after the end.
        ensure_eq!(callback.arm(at_least(&cntr, 2)), Ok(None));
        cntr.add(1);
        let killed = unregister(&callback, &done, &ended)?;
        let waiting = unregister(&callback, &done, &ended)?;
        a_while();
        ensure_eq!((done.get(), ended.get()), (0, 0));
        ensure_eq!(callback.arm(at_least(&cntr, 9)), Err(ESHUTDOWN));
        // A task that is being killed does not wait for the call.
        killed.kill();
        killed.join();
        ensure_eq!((done.get(), ended.get()), (0, 1));
        ensure!(calls.running());
        // The callback is no use of the counter any more.
        ensure_eq!(close(&*cntr), Ok(()));
        go_on.add(1);
        waiting.join();
        ensure_eq!((done.get(), ended.get()), (1, 1));
        ensure!(calls.are(1));
        ensure_eq!(callback.unregister(), Ok(()));
        a_while();
        ensure!(calls.are(1));
        Ok(())
    }

    #[test]
    fn dropping_a_registration_does_not_wait() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let (calls, go_on) = (Calls::new()?, Count::new()?);
        let callback = slow(&cntr, &calls, &go_on)?;
        ensure_eq!(callback.arm(at_least(&cntr, 1)), Ok(None));
        cntr.add(1);
        ensure!(eventually(|| calls.running()));
        ensure_eq!(callback.arm(at_least(&cntr, 2)), Ok(None));
        drop(callback);
        // Closing by force does not wait either.
        force_close(&*cntr);
        ensure!(calls.running());
        go_on.add(1);
        ensure_eq!(calls.nth(1), Some(WakeReason::Ready));
        Ok(())
    }

    #[test]
    fn a_callback_unregisters_itself() -> Result {
        let test = TestDomain::open()?;
        let cntr = counter(&test, WaitObj::None)?;
        let (calls, done) = (Calls::new()?, Count::new()?);
        let callback = {
            let (calls, done) = (calls.clone(), done.clone());
            Registration::new(&cntr, move |callback: &Arc<Callback<Cntr>>, why| {
                calls.call(why, || {
                    let armed = callback.arm(at_least(callback.object(), 2));
                    let gone = callback.unregister();
                    let closed = close(&**callback.object());
                    done.add(u32::from(
                        (armed, gone, closed) == (Ok(None), Ok(()), Ok(())),
                    ));
                })
            })?
        };
        ensure_eq!(callback.arm(at_least(&cntr, 1)), Ok(None));
        cntr.add(1);
        ensure!(eventually(|| calls.get() == 1));
        cntr.add(1);
        a_while();
        ensure!(calls.are(1));
        ensure_eq!(done.get(), 1);
        ensure_eq!(callback.unregister(), Ok(()));
        Ok(())
    }
}
