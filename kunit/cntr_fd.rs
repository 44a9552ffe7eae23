// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cntr_fd`: the waiters of descriptors of counters, changes in the middle of a
//! read, and a task that is woken again and again.
//!
//! Guest scenarios test descriptors as programs use them.

use super::{
    CounterRef,
    Fd, //
};
use crate::{
    kunit::{
        fixture::{
            soon,
            thread, //
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
        // A descriptor has a waiter only while it is armed.
        ensure_eq!(waiting(&counter), 1);
        counter.add(1);
        ensure_eq!(waiting(&counter), 0);
        // A value that is set is a change, although it is the same.
        for _ in 0..2 {
            ensure_eq!(take(&other), Ok((1, 0)));
            ensure_eq!(waiting(&counter), 1);
            counter.set(1)?;
        }
        ensure_eq!(take(&other), Ok((1, 0)));
        drop(other);
        ensure!(counter.descriptors().is_empty());
        ensure_eq!(waiting(&counter), 0);
        // A descriptor that cannot be armed leaves it, too.
        counter.close();
        ensure_eq!(Fd::new(counter.clone()).err(), Some(EBADF));
        ensure!(counter.descriptors().is_empty());
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
        // A threshold that cannot be copied changes nothing.
        let unmapped = UserSlice::new(UserPtr::from_addr(0), 8);
        ensure_eq!(fd.write(&mut unmapped.reader(), false), Err(EFAULT));
        ensure!(!fd.is_readable());
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
}
