// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cntr_fd`: descriptors of counters, and the limit of a counter's waiters.
//!
//! Guest scenarios test poll(2), and signals that end a read(2).

use super::{
    CounterRef,
    Fd, //
};
use crate::{
    kunit::{
        fixture::{
            count_if,
            eventually,
            soon,
            thread,
            Count, //
        },
        helpers::UserMemory, //
    },
    provider::cntr::Counter,
    shim::anon_file::AnonFile, //
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
    limits::MAX_WAITERS,
    wait::Deadline, //
};

fn counter(max: u64) -> Result<Arc<Counter>> {
    Arc::pin_init(Counter::new(max)?, GFP_KERNEL)
}

/// Returns the number of waiters that are in the line.
fn waiting(counter: &Counter) -> u32 {
    counter.waiting().0
}

impl CounterRef for Arc<Counter> {
    fn counter(&self) -> &Counter {
        self
    }
}

/// Reads both values from a descriptor.
fn take<H: CounterRef>(fd: &Fd<H>) -> Result<(u64, u64)> {
    let mut values = (0, 0);
    fd.take(|taken| {
        values = (taken.value, taken.err);
        Ok(())
    })?;
    Ok(values)
}

#[kunit_tests(kfabric_cntr_fd)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_reports_changes() -> Result {
        let counter = counter(0)?;
        counter.add(1);
        let fd = Fd::new(counter.clone())?;
        assert!(!fd.is_readable());
        assert_eq!(take(&fd), Err(EAGAIN));
        counter.add(0);
        assert!(!fd.is_readable());
        counter.add(2);
        assert!(fd.is_readable());
        // The descriptor has a waiter only while it is armed.
        assert_eq!(waiting(&counter), 0);
        counter.add(2);
        assert_eq!(take(&fd), Ok((5, 0)));
        assert!(!fd.is_readable());
        assert_eq!(waiting(&counter), 1);
        assert!(counter.adderr(1));
        assert_eq!(take(&fd), Ok((5, 1)));
        // The value was set, although it is the same.
        counter.set(5)?;
        assert_eq!(take(&fd), Ok((5, 1)));
        counter.set(2)?;
        assert_eq!(take(&fd), Ok((2, 1)));
        counter.seterr(0)?;
        assert_eq!(take(&fd), Ok((2, 0)));
        assert_eq!(take(&fd), Err(EAGAIN));
        drop(fd);
        assert_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn a_descriptor_waits_for_a_threshold() -> Result {
        let counter = counter(0)?;
        let (five, eight) = (Fd::new(counter.clone())?, Fd::new(counter.clone())?);
        five.arm_threshold(5)?;
        eight.arm_threshold(8)?;
        assert_eq!(counter.waiting(), (2, Some(5)));
        counter.add(4);
        assert!(!five.is_readable() && !eight.is_readable());
        counter.add(1);
        assert!(five.is_readable() && !eight.is_readable());
        // The descriptor is readable until it is read, although the value decreases.
        counter.set(0)?;
        assert!(five.is_readable() && !eight.is_readable());
        assert_eq!(take(&five), Ok((0, 0)));
        assert!(counter.adderr(1));
        assert!(five.is_readable() && eight.is_readable());
        // A threshold that is already reached makes the descriptor readable immediately.
        five.arm_threshold(1)?;
        assert!(!five.is_readable());
        five.arm_threshold(0)?;
        assert!(five.is_readable());
        drop((five, eight));
        assert_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn values_that_cannot_be_copied_are_not_consumed() -> Result {
        let counter = counter(0)?;
        let fd = Fd::new(counter.clone())?;
        counter.add(1);
        assert_eq!(fd.take(|_| Err(EFAULT)), Err(EFAULT));
        assert!(fd.is_readable());
        // A change between the copy and the new arming is not lost.
        assert!(fd
            .take(|values| {
                counter.add(1);
                assert_eq!(values.value, 1);
                Ok(())
            })
            .is_ok());
        assert!(fd.is_readable());
        assert_eq!(take(&fd), Ok((2, 0)));
        Ok(())
    }

    #[test]
    fn a_descriptor_is_read_and_written() -> Result {
        let counter = counter(0)?;
        let fd = Fd::new(counter.clone())?;
        let memory = UserMemory::map(64, true)?;
        let to = |len| UserSlice::new(memory.ptr(0), len).writer();
        let from = |len| UserSlice::new(memory.ptr(32), len).reader();
        assert_eq!(fd.read(&mut to(16), true), Err(EAGAIN));
        counter.add(7);
        for short in [0, 8, 15] {
            assert_eq!(fd.read(&mut to(short), true), Err(EINVAL));
        }
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 16);
        assert_eq!(fd.read(&mut unmapped.writer(), true), Err(EFAULT));
        assert!(fd.is_readable());
        assert_eq!(fd.read(&mut to(64), false), Ok(16));
        let mut bytes = [0; 16];
        memory.read(0, &mut bytes)?;
        assert_eq!(u128::from_ne_bytes(bytes), 7);

        for wrong in [0, 4, 7, 9, 16] {
            assert_eq!(fd.write(&mut from(wrong), false), Err(EINVAL));
        }
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 8);
        assert_eq!(fd.write(&mut unmapped.reader(), false), Err(EFAULT));
        assert!(!fd.is_readable());
        memory.write(32, &9u64.to_ne_bytes())?;
        assert_eq!(fd.write(&mut from(8), false), Ok(8));
        counter.add(1);
        assert!(!fd.is_readable());
        counter.add(1);
        assert!(fd.is_readable());
        counter.close();
        assert_eq!(fd.read(&mut to(16), false), Err(EBADF));
        assert_eq!(fd.write(&mut from(8), false), Err(EBADF));
        assert!(fd.is_readable());
        Ok(())
    }

    #[test]
    fn reading_a_descriptor_waits() -> Result {
        const ROUNDS: u64 = 300;
        let (ping, pong) = (counter(0)?, counter(0)?);
        let fd = Fd::new(pong.clone())?;
        let memory = UserMemory::map(16, true)?;
        let other = ping.clone();
        let answers = pong.clone();
        let thread = thread(move || {
            for round in 1..=ROUNDS {
                if other.wait(round, soon(), &mut 0).is_err() {
                    break;
                }
                answers.add(1);
            }
        })?;
        for round in 1..=ROUNDS {
            ping.add(1);
            let mut to = UserSlice::new(memory.ptr(0), 16).writer();
            assert_eq!(fd.read(&mut to, false), Ok(16));
            let mut value = [0; 8];
            memory.read(0, &mut value)?;
            assert_eq!(u64::from_ne_bytes(value), round);
        }
        thread.join();
        Ok(())
    }

    /// One waiter is a task, the others are descriptors.
    #[test]
    fn waiters_beyond_the_limit_are_refused() -> Result {
        let counter = counter(0)?;
        let (other, reached) = (counter.clone(), Count::new()?);
        let thread = count_if(&reached, move || other.wait(1, soon(), &mut 0).is_ok())?;
        assert!(eventually(|| waiting(&counter) == 1));
        let mut fds = KVec::new();
        for _ in 1..MAX_WAITERS {
            fds.push(Fd::new(counter.clone())?, GFP_KERNEL)?;
        }
        assert_eq!(waiting(&counter), MAX_WAITERS);
        let refused = || {
            assert_eq!(Fd::new(counter.clone()).err(), Some(ENOSPC));
            assert_eq!(counter.wait(9, soon(), &mut 0), Err(ENOSPC));
            assert_eq!(counter.wait(9, Deadline::Poll, &mut 0), Err(ETIMEDOUT));
            assert_eq!(counter.wait(0, soon(), &mut 0), Ok(()));
        };
        refused();
        assert_eq!(waiting(&counter), MAX_WAITERS);
        // All are due at once.
        counter.add(1);
        thread.join();
        assert_eq!(reached.get(), 1);
        assert_eq!(waiting(&counter), 0);
        for fd in &fds {
            assert!(fd.is_readable());
        }
        // The task has left, and the descriptors keep their places: reading and arming find room.
        fds.push(Fd::new(counter.clone())?, GFP_KERNEL)?;
        refused();
        for fd in fds.iter().take(fds.len() - 1) {
            assert_eq!(take(fd), Ok((1, 0)));
            fd.arm_threshold(3)?;
        }
        refused();
        drop(fds.pop());
        assert_eq!(counter.wait(9, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        let last = Fd::new(counter.clone())?;
        refused();
        counter.add(2);
        assert!(fds.iter().all(|fd| fd.is_readable()) && last.is_readable());
        drop((fds, last));
        assert_eq!(counter.wait(9, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        Ok(())
    }
}
