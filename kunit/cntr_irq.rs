// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cntr_irq`: changes of a counter without the lock of its waiters, in interrupts.
//!
//! The core crate tests in which order they are seen.

use super::IrqChanger;
use crate::{
    kunit::{
        contexts::{
            in_hard_irqs,
            in_softirq,
            in_softirqs, //
        },
        fixture::{
            count_if,
            eventually,
            ident,
            soon,
            wait_obj,
            within,
            Count,
            TestDomain, //
        },
        helpers::Irq, //
    },
    provider::{
        cntr::{
            Cntr,
            CntrAttr, //
        },
        object::force_close,
        work::Change, //
    },
    shim::errno::to_error, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums::WaitObj,
    errno::Errno,
    wait::Deadline, //
};

/// Opens a counter with a maximum, and what changes it.
fn counter(test: &TestDomain, max_value: u64) -> Result<(Arc<Cntr>, Arc<IrqChanger>)> {
    let attr = CntrAttr {
        wait: wait_obj(WaitObj::Unspec)?,
        max_value,
    };
    let cntr = Cntr::open(&test.domain, attr, ident(3, 3)?)?;
    let changer = IrqChanger::new(&cntr)?;
    Ok((cntr, changer))
}

/// The longest wait of a test that expects no release.
const NEVER: u64 = 30;

#[kunit_tests(kfabric_cntr_irq)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_with_a_maximum_is_changed_in_a_softirq() -> Result {
        let test = TestDomain::open()?;
        let (cntr, changer) = counter(&test, 9)?;
        let (other, done) = (cntr.clone(), Count::new()?);
        let thread = count_if(&done, move || other.wait(9, soon(), &mut 0).is_ok())?;
        ensure!(eventually(|| cntr.counter.waiting().0 == 1));
        let (irq, right) = (changer.clone(), Count::new()?);
        let count = right.clone();
        in_softirq(move || {
            count.add(u32::from(irq.set(10, false) == Err(EINVAL)));
            count.add(u32::from(irq.seterr(10, false) == Err(EINVAL)));
            count.add(u32::from(irq.cntr.read() == 0));
            count.add(u32::from(irq.set(8, false) == Ok(())));
            // It wraps, and is lowered before the worker comes.
            irq.add(5, || false);
            count.add(u32::from(irq.cntr.read() == 3));
            count.add(u32::from(irq.set(1, false) == Ok(())));
        })?;
        ensure_eq!(right.get(), 6);
        thread.join();
        ensure_eq!(done.get(), 1);
        // A wait that begins later does not see the values before.
        ensure_eq!(cntr.wait(2, within(NEVER), &mut 0), Err(ETIMEDOUT));
        changer.adderr(9, false);
        changer.adderr(2, false);
        ensure_eq!((cntr.read(), cntr.err()), (1, 1));
        ensure_eq!(cntr.wait(2, within(NEVER), &mut 0), Err(ETIMEDOUT));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn an_error_that_is_taken_back_in_a_softirq_is_not_missed() -> Result {
        let test = TestDomain::open()?;
        let (cntr, changer) = counter(&test, 0)?;
        let (other, done) = (cntr.clone(), Count::new()?);
        let thread = count_if(&done, move || {
            other.wait(3, soon(), &mut 0) == Err(to_error(Errno::KFI_EAVAIL))
        })?;
        ensure!(eventually(|| cntr.counter.waiting().0 == 1));
        in_softirq(move || {
            // Not a change.
            changer.adderr(0, false);
            let _ = changer.seterr(0, false);
            changer.adderr(1, false);
            let _ = changer.seterr(0, false);
        })?;
        thread.join();
        ensure_eq!((done.get(), cntr.err()), (1, 0));
        force_close(&*cntr);
        Ok(())
    }

    #[test]
    fn a_closed_counter_is_changed_and_releases_nobody() -> Result {
        let test = TestDomain::open()?;
        let (cntr, changer) = counter(&test, 0)?;
        force_close(&*cntr);
        in_softirq(move || {
            let _ = changer.set(7, false);
            changer.adderr(1, false);
            let _ = changer.seterr(3, false);
            changer.add(1, || false);
        })?;
        ensure_eq!((cntr.read(), cntr.err()), (8, 3));
        ensure_eq!(cntr.wait(9, Deadline::Forever, &mut 0), Err(EBADF));
        Ok(())
    }

    /// Interrupts set the value up and down again while tasks arm waiters and queue work: each is
    /// released.
    #[test]
    fn a_value_that_interrupts_lower_again_is_not_missed() -> Result {
        const ROUNDS: u64 = 300;
        let test = TestDomain::open()?;
        for irq in [Irq::Hard, Irq::Soft] {
            let (cntr, changer) = counter(&test, 0)?;
            let (done, _) = counter(&test, 0)?;
            let function = move || {
                let (up, down) = (changer.set(5, false), changer.set(0, false));
                changer.adderr(1, false);
                up.and(down).is_ok()
            };
            let timer = match irq {
                Irq::Hard => (Some(in_hard_irqs(function)?), None),
                _ => (None, Some(in_softirqs(function)?)),
            };
            let (mut reached, mut failed) = (0, 0);
            for round in 1..=ROUNDS {
                // A change of the error value ends a wait, too.
                match cntr.wait(5, soon(), &mut 0) {
                    Ok(()) => reached += 1,
                    Err(error) if error == to_error(Errno::KFI_EAVAIL) => failed += 1,
                    Err(error) => return Err(error),
                }
                let threshold = cntr.err() + 5;
                cntr.queue_change(threshold, &done, Change::Add(1))?;
                ensure!(eventually(|| done.read() == round));
            }
            drop(timer);
            ensure_eq!(reached + failed, ROUNDS);
            for cntr in [cntr, done] {
                force_close(&*cntr);
            }
        }
        Ok(())
    }
}
