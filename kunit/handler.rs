// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_handler`: completion handlers of kernel consumers, and reads of their CQs in
//! process context and in softirqs.

use super::Handler;
use crate::{
    kunit::{
        contexts::{
            in_softirq,
            in_softirqs, //
        },
        fixture::{
            a_while,
            eventually,
            ident,
            soon,
            thread,
            wait_obj,
            within,
            Count,
            TestDomain, //
        },
        helpers::may_sleep, //
    },
    provider::{
        cq::{
            Cq,
            CqAttr, //
        },
        object::{
            close,
            force_close, //
        }, //
    },
    shim::{
        cpu::Cpu,
        errno::to_error,
        sched::now_ns, //
    }, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};
use kfi_core::{
    cq::{
        Entry,
        ErrEntry, //
    },
    enums::WaitObj,
    errno::Errno,
    wait::Deadline, //
};

/// Returns a CQ of a consumer, of `entries` and with a handler.
fn cq(test: &TestDomain, entries: u32, handler: Option<Arc<Handler>>) -> Result<Arc<Cq>> {
    let attr = CqAttr::new(entries, 4, wait_obj(WaitObj::Unspec)?, 0)?;
    Cq::open(&test.domain, attr.of_consumer(handler), ident(4, 4)?)
}

/// Ends the handler of a CQ and closes it.
fn end(cq: &Cq) {
    force_close(cq);
    if let Some(consumer) = cq.consumer() {
        consumer.stop();
    }
}

/// Queues an entry with this context.
fn push(cq: &Cq, op_context: u64) -> Result {
    let entry = Entry {
        op_context,
        ..Entry::default()
    };
    cq.push(cq.reserve()?, &entry);
    Ok(())
}

/// Takes at most `count` entries.
fn read(cq: &Cq, count: usize) -> Result<usize> {
    cq.read(count, |_: &[u64], _| Ok(()))
}

/// Calls of a handler.
struct Calls {
    count: Arc<Count>,
    /// Those that overlapped another one, or that could not sleep.
    bad: Arc<Count>,
}

impl Calls {
    fn new() -> Result<Self> {
        Ok(Self {
            count: Count::new()?,
            bad: Count::new()?,
        })
    }

    /// Returns a handler that counts its calls.
    fn handler(&self, cpu: Option<Cpu>) -> Result<Arc<Handler>> {
        let (count, bad) = (self.count.clone(), self.bad.clone());
        let inside = Atomic::<u32>::new(0);
        Handler::new(cpu, move || {
            let alone = inside.fetch_add(1, Full) == 0;
            bad.add(u32::from(!alone || !may_sleep()));
            a_while();
            inside.fetch_add(u32::MAX, Full);
            count.add(1);
        })
    }

    /// Waits for the call with number `n`, and for calls that should not happen.
    fn are(&self, n: u32) -> bool {
        let come = eventually(|| self.count.get() >= n);
        a_while();
        a_while();
        come && self.count.get() == n && self.bad.get() == 0
    }
}

/// Returns whether a handler ends while a call of another one on the same CPU is running, and its
/// own call waits for that.
fn ends_beside_another(cpu: Cpu) -> Result<bool> {
    /// Below the time after which the workqueue begins the next call beside this one.
    const BUSY: u64 = 8_000_000;
    let test = TestDomain::open()?;
    let (began, ended, done, seen) = (Count::new()?, Count::new()?, Count::new()?, Count::new()?);
    let busy = {
        let (began, ended) = (began.clone(), ended.clone());
        let (done, seen) = (done.clone(), seen.clone());
        Handler::new(Some(cpu), move || {
            began.add(1);
            let until = now_ns() + BUSY;
            while ended.get() == 0 && now_ns() < until {
                core::hint::spin_loop();
            }
            seen.add(ended.get());
            done.add(1);
        })?
    };
    let first = cq(&test, 8, Some(busy))?;
    let second = cq(&test, 8, Some(Handler::new(Some(cpu), || {})?))?;
    push(&first, 1)?;
    let has_begun = eventually(|| began.get() == 1);
    push(&second, 1)?;
    end(&second);
    ended.add(1);
    // Waits for its call.
    end(&first);
    Ok(has_begun && done.get() == 1 && seen.get() == 1)
}

#[kunit_tests(kfabric_handler)]
mod tests {
    use super::*;

    /// Otherwise the end may wait for ever: without memory for another worker, one runs all calls,
    /// and a call may close another queue.
    #[test]
    fn a_call_that_has_not_begun_is_withdrawn() -> Result {
        let mut ends = false;
        for round in 0..20 {
            if let Ok(cpu) = Cpu::new(round % 2) {
                ends |= ends_beside_another(cpu)?;
            }
        }
        ensure!(ends);
        Ok(())
    }

    #[test]
    fn a_read_that_finds_nothing_arms() -> Result {
        let test = TestDomain::open()?;
        let calls = Calls::new()?;
        let cq = cq(&test, 8, Some(calls.handler(None)?))?;
        ensure!(calls.are(0));
        // It is armed when the CQ is opened.
        push(&cq, 1)?;
        ensure!(calls.are(1));
        push(&cq, 2)?;
        ensure_eq!(read(&cq, 1), Ok(1));
        // This read takes the last entry, and does not find the queue empty.
        ensure_eq!(read(&cq, 1), Ok(1));
        push(&cq, 3)?;
        ensure!(calls.are(1));
        // A short read does.
        ensure_eq!(read(&cq, 2), Ok(1));
        push(&cq, 4)?;
        ensure!(calls.are(2));
        ensure_eq!(read(&cq, 1), Ok(1));
        ensure_eq!(read(&cq, 1), Err(EAGAIN));
        ensure_eq!(read(&cq, 1), Err(EAGAIN));
        push(&cq, 5)?;
        ensure!(calls.are(3));
        ensure_eq!(read(&cq, 0), Ok(0));
        ensure_eq!(read(&cq, 8), Ok(1));
        ensure_eq!(read(&cq, 0), Err(EAGAIN));
        push(&cq, 6)?;
        ensure!(calls.are(4));
        end(&cq);
        Ok(())
    }

    #[test]
    fn errors_and_losses_call_too() -> Result {
        let test = TestDomain::open()?;
        let calls = Calls::new()?;
        let cq = cq(&test, 1, Some(calls.handler(None)?))?;
        cq.push_err_unposted(&ErrEntry::default());
        ensure!(calls.are(1));
        ensure_eq!(read(&cq, 1), Err(to_error(Errno::KFI_EAVAIL)));
        ensure_eq!(cq.readerr(|_| Ok(()), || Ok(())), Ok(()));
        ensure_eq!(cq.readerr(|_| Ok(()), || Ok(())), Err(EAGAIN));
        // A read of error entries does not arm.
        cq.push_unposted(&Entry::default());
        ensure!(calls.are(1));
        // This one is lost.
        cq.push_unposted(&Entry::default());
        ensure_eq!(read(&cq, 2), Ok(1));
        ensure_eq!(read(&cq, 2), Err(to_error(Errno::KFI_EOVERRUN)));
        ensure_eq!(read(&cq, 2), Err(EAGAIN));
        cq.push_unposted(&Entry::default());
        ensure!(calls.are(2));
        // A signal is for threads that wait.
        ensure_eq!(read(&cq, 2), Ok(1));
        cq.signal()?;
        ensure!(calls.are(2));
        end(&cq);
        Ok(())
    }

    #[test]
    fn calls_are_on_the_cpu_that_was_asked_for() -> Result {
        let test = TestDomain::open()?;
        for number in 0..2 {
            // The guest may have one CPU.
            let Ok(cpu) = Cpu::new(number) else {
                continue;
            };
            let (here, elsewhere) = (Count::new()?, Count::new()?);
            let handler = {
                let (here, elsewhere) = (here.clone(), elsewhere.clone());
                Handler::new(Some(cpu), move || {
                    match CpuId::current().as_u32() == number as u32 {
                        true => here.add(1),
                        false => elsewhere.add(1),
                    }
                })?
            };
            let cq = cq(&test, 4, Some(handler))?;
            for round in 1..=20 {
                push(&cq, 1)?;
                ensure!(eventually(|| here.get() == round));
                ensure_eq!(read(&cq, 2), Ok(1));
            }
            ensure_eq!(elsewhere.get(), 0);
            end(&cq);
        }
        ensure_eq!(Cpu::new(-1).err(), Some(EINVAL));
        ensure_eq!(Cpu::new(i32::MAX).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn a_close_waits_for_a_call_and_a_call_cannot_close() -> Result {
        let test = TestDomain::open()?;
        let (began, go_on, refused) = (Count::new()?, Count::new()?, Count::new()?);
        let handler = {
            let (began, go_on) = (began.clone(), go_on.clone());
            Handler::new(None, move || {
                began.add(1);
                eventually(|| go_on.get() != 0);
                go_on.add(1);
            })?
        };
        let cq = cq(&test, 4, Some(handler))?;
        let consumer = cq.consumer().ok_or(EINVAL)?;
        ensure_eq!(consumer.check_close(), Ok(()));
        push(&cq, 1)?;
        ensure!(eventually(|| began.get() == 1));
        let ended = Count::new()?;
        let closing = {
            let (cq, ended) = (cq.clone(), ended.clone());
            thread(move || {
                end(&cq);
                ended.add(1);
            })?
        };
        a_while();
        a_while();
        ensure_eq!(ended.get(), 0);
        go_on.add(1);
        closing.join();
        ensure_eq!((ended.get(), go_on.get()), (1, 2));
        // No call begins afterwards.
        ensure_eq!(read(&cq, 2), Ok(1));
        push(&cq, 2)?;
        a_while();
        ensure_eq!(began.get(), 1);

        // In its own call a queue is not closed; another one is.
        let other = super::cq(&test, 4, None)?;
        let own: Arc<Atomic<usize>> = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let handler = {
            let (own, refused, other) = (own.clone(), refused.clone(), other.clone());
            Handler::new(None, move || {
                // SAFETY: The address of a CQ that lives until this handler has been stopped.
                let cq = unsafe { &*(own.load(Relaxed) as *const Cq) };
                let result = cq.consumer().map(|consumer| consumer.check_close());
                let closed = close(&*other);
                refused.add(u32::from((result, closed) == (Some(Err(EBUSY)), Ok(()))));
            })?
        };
        let cq = super::cq(&test, 4, Some(handler))?;
        own.store(core::ptr::from_ref(&*cq) as usize, Relaxed);
        push(&cq, 1)?;
        ensure!(eventually(|| refused.get() == 1));
        end(&cq);
        Ok(())
    }

    #[test]
    fn softirqs_read() -> Result {
        const ENTRIES: u64 = 20_000;
        let test = TestDomain::open()?;
        let cq = cq(&test, 64, None)?;
        let (read, sum) = (Count::new()?, Arc::new(Atomic::<u64>::new(0), GFP_KERNEL)?);
        let take = {
            let (cq, read, sum) = (cq.clone(), read.clone(), sum.clone());
            move |count| {
                let sink = |words: &[u64], _| {
                    sum.fetch_add(words.first().copied().unwrap_or(0), Relaxed);
                    Ok(())
                };
                read.add(cq.read(count, sink).unwrap_or(0) as u32);
            }
        };
        let all = read.clone();
        let in_interrupts = take.clone();
        // The softirqs interrupt the tasks that push and read, on their CPU too.
        let _timer = in_softirqs(move || {
            in_interrupts(3);
            u64::from(all.get()) < ENTRIES
        })?;
        for context in 1..=ENTRIES {
            while push(&cq, context).is_err() {
                take(1);
            }
        }
        ensure!(eventually(|| u64::from(read.get()) == ENTRIES));
        ensure_eq!(sum.load(Relaxed), ENTRIES * (ENTRIES + 1) / 2);
        cq.push_err_unposted(&ErrEntry::default());
        let errors = Count::new()?;
        {
            let (cq, errors) = (cq.clone(), errors.clone());
            in_softirq(move || {
                errors.add(u32::from(cq.readerr(|_| Ok(()), || Ok(())) == Ok(())));
                errors.add(u32::from(super::read(&cq, 1) == Err(EAGAIN)));
            })?;
        }
        ensure_eq!(errors.get(), 2);
        end(&cq);
        Ok(())
    }

    #[test]
    fn no_completion_is_left_behind() -> Result {
        const ENTRIES: u32 = 20_000;
        let test = TestDomain::open()?;
        let (read, own) = (
            Count::new()?,
            Arc::new(Atomic::<usize>::new(0), GFP_KERNEL)?,
        );
        let handler = {
            let (read, own) = (read.clone(), own.clone());
            Handler::new(None, move || {
                // SAFETY: The address of a CQ that lives until this handler has been stopped.
                let cq = unsafe { &*(own.load(Relaxed) as *const Cq) };
                while let Ok(count) = super::read(cq, 1) {
                    read.add(count as u32);
                }
            })?
        };
        let cq = cq(&test, 16, Some(handler))?;
        own.store(core::ptr::from_ref(&*cq) as usize, Relaxed);
        // Another reader takes some of them, and thereby arms the handler too.
        let other = {
            let (cq, read) = (cq.clone(), read.clone());
            thread(move || {
                while read.get() < ENTRIES {
                    read.add(super::read(&cq, 5).unwrap_or(0) as u32);
                    a_while();
                }
            })?
        };
        for context in 0..ENTRIES {
            ensure!(eventually(|| push(&cq, context.into()).is_ok()));
        }
        ensure!(eventually(|| read.get() == ENTRIES));
        other.join();
        end(&cq);
        Ok(())
    }

    #[test]
    fn a_consumer_waits_for_entries() -> Result {
        let test = TestDomain::open()?;
        let calls = Calls::new()?;
        let cq = cq(&test, 4, Some(calls.handler(None)?))?;
        let none = |_: &[u64], _: u64| Ok(());
        ensure_eq!(cq.sread(4, 0, within(10), &mut 0, none), Err(EAGAIN));
        ensure_eq!(cq.sread(4, 0, Deadline::Poll, &mut 0, none), Err(EAGAIN));
        let taken = Count::new()?;
        let waiter = {
            let (cq, taken) = (cq.clone(), taken.clone());
            thread(move || {
                let result = cq.sread(4, 0, soon(), &mut 0, |_: &[u64], _: u64| Ok(()));
                taken.add(result.unwrap_or(0) as u32);
            })?
        };
        a_while();
        push(&cq, 1)?;
        waiter.join();
        // The read returns, and the handler is called.
        ensure_eq!(taken.get(), 1);
        ensure!(calls.are(1));
        end(&cq);
        Ok(())
    }
}
