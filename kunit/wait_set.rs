// SPDX-License-Identifier: GPL-2.0

//! Suites `kfabric_wait_set` and `kfabric_poll`: wait sets and poll sets that are closed while they
//! are used, and two tasks that wake each other. Guest scenarios test them as programs use them.

use super::{
    WaitObj,
    WaitSet, //
};
use crate::{
    kunit::fixture::{
        count_if,
        eventually,
        ident,
        soon,
        thread,
        Count,
        TestDomain,
        TestFabric, //
    },
    provider::{
        cntr::Cntr,
        object::{
            close,
            force_close, //
        },
        poll::{
            PollSet,
            MAX_MEMBERS, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums,
    wait::Deadline, //
};

fn counter(test: &TestDomain) -> Result<Arc<Cntr>> {
    test.cntr(enums::WaitObj::None, 1)
}

/// Fails like memory that is not present and cannot be brought in.
fn gone(_: usize) -> Result {
    Err(EFAULT)
}

#[kunit_tests(kfabric_wait_set)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_object_uses_its_set() -> Result {
        let fabric = TestFabric::open()?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let member = || WaitObj::new(enums::WaitObj::Set.into(), Some(set.clone()));
        let wait = member()?;
        ensure_eq!(close(&*set), Err(EBUSY));
        wait.release();
        wait.release();
        ensure_eq!(close(&*set), Ok(()));
        ensure_eq!(member().err(), Some(EBADF));
        drop(wait);
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
}

#[kunit_tests(kfabric_poll)]
mod poll_tests {
    use super::*;

    #[test]
    fn closed_objects_are_no_members() -> Result {
        let test = TestDomain::open()?;
        let set = PollSet::open(&test.domain, ident(2, 2)?)?;
        let closed = counter(&test)?;
        ensure_eq!(close(&*closed), Ok(()));
        ensure_eq!(set.add_cntr(&closed), Err(EBADF));
        let mut many = KVec::new();
        while many.len() < MAX_MEMBERS {
            let cntr = counter(&test)?;
            ensure_eq!(set.add_cntr(&cntr), Ok(()));
            cntr.add(1);
            many.push(cntr, GFP_KERNEL)?;
        }
        // One poll reports all members.
        ensure_eq!(set.poll(2000, |_, _| Ok(()), gone), Ok(MAX_MEMBERS));
        ensure_eq!(close(&*set), Ok(()));
        let late = counter(&test)?;
        ensure_eq!(set.add_cntr(&late), Err(EBADF));
        many.push(late, GFP_KERNEL)?;
        for cntr in &many {
            ensure_eq!(close(&**cntr), Ok(()));
        }
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }
}
