// SPDX-License-Identifier: GPL-2.0

//! Suites `kfabric_wait_set` and `kfabric_poll`: wait objects, wait sets and poll sets.

use super::{
    set::SetFd,
    WaitObj,
    WaitSet, //
};
use crate::{
    kunit::{
        fixture::{
            a_while,
            count_if,
            eventually,
            ident,
            soon,
            thread,
            Count,
            TestDomain,
            TestFabric,
            MS, //
        },
        helpers::{
            Join,
            UserMemory, //
        }, //
    },
    provider::{
        cntr::Cntr,
        cq::Cq,
        object::{
            close,
            force_close,
            UseRef, //
        },
        poll::{
            PollSet,
            MAX_MEMBERS, //
        }, //
    },
    shim::{
        anon_file::AnonFile,
        sched::now_ns, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use kfi_core::{
    cq::Entry,
    enums,
    wait::Deadline, //
};

/// Starts a thread that counts if it took a signal.
fn waiter(set: &Arc<WaitSet>, count: &Arc<Count>) -> Result<Join> {
    let set = set.clone();
    count_if(count, move || set.wait(soon()).is_ok())
}

fn counter(test: &TestDomain, context: u64) -> Result<Arc<Cntr>> {
    test.cntr(enums::WaitObj::None, context)
}

fn cq(test: &TestDomain, context: u64) -> Result<Arc<Cq>> {
    test.cq(4, enums::WaitObj::None, context)
}

/// Fails like memory that is not present and cannot be brought in.
fn gone(_: usize) -> Result {
    Err(EFAULT)
}

/// Polls with room for `count` contexts. Returns the contexts as decimal digits.
fn poll(set: &PollSet, count: usize) -> Result<u64> {
    let mut contexts = 0;
    let report = |_, context| {
        contexts = contexts * 10 + context;
        Ok(())
    };
    let reported = set.poll(count, report, gone)?;
    ensure!(reported <= count);
    Ok(contexts)
}

#[kunit_tests(kfabric_wait_set)]
mod tests {
    use super::*;

    #[test]
    fn wait_objects_are_checked() -> Result {
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let with_set = |kind| WaitObj::new(kind, Some(set.clone()));
        for kind in [0, 1, 3] {
            ensure!(WaitObj::new(kind, None).is_ok());
            // The set is ignored, and not used.
            let wait = with_set(kind)?;
            ensure!(!matches!(wait, WaitObj::Set(_)));
        }
        ensure_eq!(WaitObj::new(2, None).err(), Some(EINVAL));
        ensure_eq!(WaitObj::new(4, None).err(), Some(EINVAL));
        ensure_eq!(with_set(4).err(), Some(EINVAL));
        let wait = with_set(2)?;
        ensure_eq!(close(&*set), Err(EBUSY));
        wait.release();
        wait.release();
        ensure_eq!(close(&*set), Ok(()));
        ensure_eq!(with_set(2).err(), Some(EBADF));
        drop(wait);
        Ok(())
    }

    #[test]
    fn a_signal_is_kept_once() -> Result {
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        ensure_eq!(set.wait(Deadline::At(1)), Err(ETIMEDOUT));
        set.signal();
        set.signal();
        ensure!(set.pending());
        ensure_eq!(set.wait(Deadline::Forever), Ok(()));
        ensure!(!set.pending());
        let end = now_ns() + 20 * MS;
        ensure_eq!(set.wait(Deadline::At(end)), Err(ETIMEDOUT));
        ensure!(now_ns() >= end);
        ensure_eq!(set.sleepers(), 0);
        Ok(())
    }

    #[test]
    fn a_signal_wakes_exactly_one() -> Result {
        const MANY: u32 = 10;
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let woken = Count::new()?;
        let mut threads = KVec::new();
        for _ in 0..MANY {
            threads.push(waiter(&set, &woken)?, GFP_KERNEL)?;
        }
        ensure!(eventually(|| set.sleepers() == MANY));
        for n in 1..=MANY {
            set.signal();
            ensure_eq!(set.sleepers(), MANY - n);
            ensure!(eventually(|| woken.get() == n));
        }
        a_while();
        ensure!(!set.pending());
        drop(threads);
        ensure_eq!(woken.get(), MANY);
        Ok(())
    }

    #[test]
    fn no_signal_is_lost() -> Result {
        const ROUNDS: u32 = 1000;
        let fabric = TestFabric::open()?;
        let (ping, pong) = (
            WaitSet::open(&fabric.0, ident(2, 2)?)?,
            WaitSet::open(&fabric.0, ident(3, 3)?)?,
        );
        let (their_ping, their_pong) = (ping.clone(), pong.clone());
        let rounds = Count::new()?;
        let count = rounds.clone();
        let thread = thread(move || {
            for _ in 0..ROUNDS {
                if their_ping.wait(soon()).is_err() {
                    return;
                }
                count.add(1);
                their_pong.signal();
            }
        })?;
        for _ in 0..ROUNDS {
            ping.signal();
            if pong.wait(soon()).is_err() {
                break;
            }
        }
        thread.join();
        ensure_eq!(rounds.get(), ROUNDS);
        Ok(())
    }

    #[test]
    fn waiters_use_the_set() -> Result {
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        ensure_eq!(close(&*fabric.0), Err(EBUSY));
        let (other, refused) = (set.clone(), Count::new()?);
        let thread = count_if(&refused, move || other.wait(soon()) == Err(EBADF))?;
        ensure!(eventually(|| set.sleepers() == 1));
        ensure_eq!(close(&*set), Err(EBUSY));
        force_close(&*set);
        thread.join();
        ensure_eq!(refused.get(), 1);
        ensure_eq!(set.wait(Deadline::Forever), Err(EBADF));
        ensure_eq!(set.getwait().err(), Some(EBADF));
        ensure_eq!(close(&*fabric.0), Ok(()));
        Ok(())
    }

    #[test]
    fn a_descriptor_is_read() -> Result {
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let fd = SetFd {
            set: UseRef::new(set.clone())?,
        };
        ensure_eq!(close(&*set), Err(EBUSY));
        let memory = UserMemory::map(16, true)?;
        let to = |len| UserSlice::new(memory.ptr(0), len).writer();
        ensure_eq!(fd.read(&mut to(8), true), Err(EAGAIN));
        set.signal();
        ensure_eq!(fd.read(&mut to(7), true), Err(EINVAL));
        // A signal that cannot be copied stays pending.
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 8);
        ensure_eq!(fd.read(&mut unmapped.writer(), true), Err(EFAULT));
        ensure!(set.pending());
        ensure_eq!(fd.read(&mut to(16), true), Ok(8));
        let mut one = [0; 8];
        memory.read(0, &mut one)?;
        ensure_eq!(u64::from_ne_bytes(one), 1);
        ensure_eq!(fd.read(&mut to(8), true), Err(EAGAIN));
        let other = set.clone();
        let thread = thread(move || {
            if eventually(|| other.sleepers() == 1) {
                other.signal();
            }
        })?;
        ensure_eq!(fd.read(&mut to(8), false), Ok(8));
        thread.join();
        force_close(&*set);
        ensure_eq!(fd.read(&mut to(8), false), Err(EBADF));
        Ok(())
    }
}

#[kunit_tests(kfabric_poll)]
mod poll_tests {
    use super::*;

    #[test]
    fn members_with_events_are_reported() -> Result {
        let test = TestDomain::open()?;
        let set = PollSet::open(&test.domain, ident(2, 2)?)?;
        let (one, two) = (counter(&test, 1)?, cq(&test, 2)?);
        // The change was before the counter was added, so it is not reported.
        one.add(1);
        set.add_cntr(&one)?;
        set.add_cq(&two)?;
        ensure_eq!(poll(&set, 8), Ok(0));
        one.add(1);
        ensure_eq!(poll(&set, 8), Ok(1));
        ensure_eq!(poll(&set, 8), Ok(0));
        one.adderr(1);
        ensure_eq!(poll(&set, 8), Ok(1));
        two.push_unposted(&Entry::default());
        // A CQ is reported as long as it has an entry.
        ensure_eq!(poll(&set, 8), Ok(2));
        ensure_eq!(poll(&set, 8), Ok(2));
        ensure_eq!(
            two.sread(1, 0, Deadline::Poll, &mut 0, |_: &[u64], _: u64| Ok(())),
            Ok(1)
        );
        ensure_eq!(poll(&set, 8), Ok(0));
        // A member that could not be reported is reported the next time.
        one.add(1);
        ensure_eq!(set.poll(1, |_, _| Err(EFAULT), gone), Err(EFAULT));
        ensure_eq!(poll(&set, 8), Ok(1));
        force_close(&*set);
        ensure_eq!(close(&*one), Ok(()));
        ensure_eq!(close(&*two), Ok(()));
        Ok(())
    }

    #[test]
    fn busy_members_do_not_hide_others() -> Result {
        let test = TestDomain::open()?;
        let set = PollSet::open(&test.domain, ident(2, 2)?)?;
        let cqs = [cq(&test, 1)?, cq(&test, 2)?, cq(&test, 3)?];
        for cq in &cqs {
            cq.push_unposted(&Entry::default());
            set.add_cq(cq)?;
        }
        ensure_eq!(poll(&set, 2), Ok(12));
        ensure_eq!(poll(&set, 2), Ok(31));
        ensure_eq!(poll(&set, 3), Ok(231));
        ensure_eq!(poll(&set, 1), Ok(2));
        force_close(&*set);
        for cq in &cqs {
            ensure_eq!(close(&**cq), Ok(()));
        }
        Ok(())
    }

    #[test]
    fn membership_is_checked() -> Result {
        let test = TestDomain::open()?;
        let set = PollSet::open(&test.domain, ident(2, 2)?)?;
        let (cntr, cq) = (counter(&test, 1)?, cq(&test, 2)?);
        ensure_eq!(set.remove_cntr(&cntr), Err(ENOENT));
        ensure_eq!(set.remove_cq(&cq), Err(ENOENT));
        ensure_eq!(set.add_cntr(&cntr), Ok(()));
        ensure_eq!(set.add_cntr(&cntr), Err(EEXIST));
        ensure_eq!(set.add_cq(&cq), Ok(()));
        ensure_eq!(set.add_cq(&cq), Err(EEXIST));
        ensure_eq!(close(&*cntr), Err(EBUSY));
        ensure_eq!(close(&*cq), Err(EBUSY));
        ensure_eq!(set.remove_cntr(&cntr), Ok(()));
        ensure_eq!(set.remove_cntr(&cntr), Err(ENOENT));
        ensure_eq!(close(&*cntr), Ok(()));
        ensure_eq!(set.add_cntr(&cntr), Err(EBADF));
        let mut many = KVec::new();
        while many.len() < MAX_MEMBERS - 1 {
            let cntr = counter(&test, 1)?;
            ensure_eq!(set.add_cntr(&cntr), Ok(()));
            many.push(cntr, GFP_KERNEL)?;
        }
        let one_more = counter(&test, 1)?;
        ensure_eq!(set.add_cntr(&one_more), Err(ENOSPC));
        for cntr in &many {
            cntr.add(1);
        }
        ensure_eq!(set.poll(2000, |_, _| Ok(()), gone), Ok(MAX_MEMBERS - 1));
        ensure_eq!(close(&*set), Ok(()));
        ensure_eq!(set.add_cntr(&one_more), Err(EBADF));
        many.push(one_more, GFP_KERNEL)?;
        for cntr in &many {
            ensure_eq!(close(&**cntr), Ok(()));
        }
        ensure_eq!(close(&*cq), Ok(()));
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }
}
