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
    fn a_closed_descriptor_leaves_its_counter() -> Result {
        let counter = counter(0)?;
        let (one, other) = (Fd::new(counter.clone())?, Fd::new(counter.clone())?);
        drop(one);
        ensure!(!counter.descriptors().is_empty());
        drop(other);
        ensure!(counter.descriptors().is_empty());
        // A descriptor that cannot be armed leaves it, too.
        counter.close();
        ensure_eq!(Fd::new(counter.clone()).err(), Some(EBADF));
        ensure!(counter.descriptors().is_empty());
        Ok(())
    }

    #[test]
    fn a_descriptor_reports_changes() -> Result {
        let counter = counter(0)?;
        counter.add(1);
        let fd = Fd::new(counter.clone())?;
        ensure!(!fd.is_readable());
        ensure_eq!(take(&fd), Err(EAGAIN));
        counter.add(0);
        ensure!(!fd.is_readable());
        counter.add(2);
        ensure!(fd.is_readable());
        // The descriptor has a waiter only while it is armed.
        ensure_eq!(waiting(&counter), 0);
        counter.add(2);
        ensure_eq!(take(&fd), Ok((5, 0)));
        ensure!(!fd.is_readable());
        ensure_eq!(waiting(&counter), 1);
        ensure!(counter.adderr(1));
        ensure_eq!(take(&fd), Ok((5, 1)));
        // The value was set, although it is the same.
        counter.set(5)?;
        ensure_eq!(take(&fd), Ok((5, 1)));
        counter.set(2)?;
        ensure_eq!(take(&fd), Ok((2, 1)));
        counter.seterr(0)?;
        ensure_eq!(take(&fd), Ok((2, 0)));
        ensure_eq!(take(&fd), Err(EAGAIN));
        drop(fd);
        ensure_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn a_descriptor_waits_for_a_threshold() -> Result {
        let counter = counter(0)?;
        let (five, eight) = (Fd::new(counter.clone())?, Fd::new(counter.clone())?);
        five.arm_threshold(5)?;
        eight.arm_threshold(8)?;
        ensure_eq!(counter.waiting(), (2, Some(5)));
        counter.add(4);
        ensure!(!five.is_readable() && !eight.is_readable());
        counter.add(1);
        ensure!(five.is_readable() && !eight.is_readable());
        // The descriptor is readable until it is read, although the value decreases.
        counter.set(0)?;
        ensure!(five.is_readable() && !eight.is_readable());
        ensure_eq!(take(&five), Ok((0, 0)));
        ensure!(counter.adderr(1));
        ensure!(five.is_readable() && eight.is_readable());
        // A threshold that is already reached makes the descriptor readable immediately.
        five.arm_threshold(1)?;
        ensure!(!five.is_readable());
        five.arm_threshold(0)?;
        ensure!(five.is_readable());
        drop((five, eight));
        ensure_eq!(waiting(&counter), 0);
        Ok(())
    }

    #[test]
    fn values_that_cannot_be_copied_are_not_consumed() -> Result {
        let counter = counter(0)?;
        let fd = Fd::new(counter.clone())?;
        counter.add(1);
        ensure_eq!(fd.take(|_| Err(EFAULT)), Err(EFAULT));
        ensure!(fd.is_readable());
        // A change between the copy and the new arming is not lost.
        ensure!(fd
            .take(|values| {
                counter.add(1);
                ensure_eq!(values.value, 1);
                Ok(())
            })
            .is_ok());
        ensure!(fd.is_readable());
        ensure_eq!(take(&fd), Ok((2, 0)));
        Ok(())
    }

    #[test]
    fn a_descriptor_is_read_and_written() -> Result {
        let counter = counter(0)?;
        let fd = Fd::new(counter.clone())?;
        let memory = UserMemory::map(64, true)?;
        let to = |len| UserSlice::new(memory.ptr(0), len).writer();
        let from = |len| UserSlice::new(memory.ptr(32), len).reader();
        ensure_eq!(fd.read(&mut to(16), true), Err(EAGAIN));
        counter.add(7);
        for short in [0, 8, 15] {
            ensure_eq!(fd.read(&mut to(short), true), Err(EINVAL));
        }
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 16);
        ensure_eq!(fd.read(&mut unmapped.writer(), true), Err(EFAULT));
        ensure!(fd.is_readable());
        ensure_eq!(fd.read(&mut to(64), false), Ok(16));
        let mut bytes = [0; 16];
        memory.read(0, &mut bytes)?;
        ensure_eq!(u128::from_ne_bytes(bytes), 7);

        for wrong in [0, 4, 7, 9, 16] {
            ensure_eq!(fd.write(&mut from(wrong), false), Err(EINVAL));
        }
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 8);
        ensure_eq!(fd.write(&mut unmapped.reader(), false), Err(EFAULT));
        ensure!(!fd.is_readable());
        memory.write(32, &9u64.to_ne_bytes())?;
        ensure_eq!(fd.write(&mut from(8), false), Ok(8));
        counter.add(1);
        ensure!(!fd.is_readable());
        counter.add(1);
        ensure!(fd.is_readable());
        counter.close();
        ensure_eq!(fd.read(&mut to(16), false), Err(EBADF));
        ensure_eq!(fd.write(&mut from(8), false), Err(EBADF));
        ensure!(fd.is_readable());
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
            ensure_eq!(fd.read(&mut to, false), Ok(16));
            let mut value = [0; 8];
            memory.read(0, &mut value)?;
            ensure_eq!(u64::from_ne_bytes(value), round);
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
        ensure!(eventually(|| waiting(&counter) == 1));
        let mut fds = KVec::new();
        for _ in 1..MAX_WAITERS {
            fds.push(Fd::new(counter.clone())?, GFP_KERNEL)?;
        }
        ensure_eq!(waiting(&counter), MAX_WAITERS);
        let refused = || -> Result {
            ensure_eq!(Fd::new(counter.clone()).err(), Some(ENOSPC));
            ensure_eq!(counter.wait(9, soon(), &mut 0), Err(ENOSPC));
            ensure_eq!(counter.wait(9, Deadline::Poll, &mut 0), Err(ETIMEDOUT));
            ensure_eq!(counter.wait(0, soon(), &mut 0), Ok(()));
            Ok(())
        };
        refused()?;
        ensure_eq!(waiting(&counter), MAX_WAITERS);
        // All are due at once.
        counter.add(1);
        thread.join();
        ensure_eq!(reached.get(), 1);
        ensure_eq!(waiting(&counter), 0);
        for fd in &fds {
            ensure!(fd.is_readable());
        }
        // The task has left, and the descriptors keep their places: reading and arming find room.
        fds.push(Fd::new(counter.clone())?, GFP_KERNEL)?;
        refused()?;
        for fd in fds.iter().take(fds.len() - 1) {
            ensure_eq!(take(fd), Ok((1, 0)));
            fd.arm_threshold(3)?;
        }
        refused()?;
        drop(fds.pop());
        ensure_eq!(counter.wait(9, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        let last = Fd::new(counter.clone())?;
        refused()?;
        counter.add(2);
        ensure!(fds.iter().all(|fd| fd.is_readable()) && last.is_readable());
        drop((fds, last));
        ensure_eq!(counter.wait(9, Deadline::At(1), &mut 0), Err(ETIMEDOUT));
        Ok(())
    }
}
