// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rcu`: a cell whose value is replaced while it is read.

use super::{
    RcuBox,
    RcuCell, //
};
use crate::{
    kunit::helpers::{
        eventually,
        thread,
        Count, //
    },
    shim::sched::cond_resched, //
};
use core::convert::Infallible;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};

/// A value with the same number twice, which counts its drops and then has two numbers.
struct Twice {
    first: Atomic<u64>,
    second: Atomic<u64>,
    dropped: Arc<Count>,
}

impl Twice {
    fn boxed(n: u64, dropped: &Arc<Count>) -> Result<RcuBox<Self>> {
        RcuBox::pin_init::<Infallible>(Self {
            first: Atomic::new(n),
            second: Atomic::new(n),
            dropped: dropped.clone(),
        })
    }

    fn is_whole(&self) -> bool {
        self.first.load(Acquire) == self.second.load(Acquire)
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        self.first.store(1, Release);
        self.second.store(2, Release);
        self.dropped.add(1);
    }
}

#[kunit_tests(kfabric_rcu)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_one_value_or_none() -> Result {
        let dropped = Count::new()?;
        let cell = RcuCell::empty();
        ensure!(cell.is_empty() && cell.with(Twice::is_whole).is_none());
        ensure!(cell.replace(Some(Twice::boxed(7, &dropped)?)).is_none());
        ensure!(!cell.is_empty());
        let number = |cell: &RcuCell<Twice>| cell.with(|value| value.first.load(Acquire));
        ensure_eq!(number(&cell), Some(7));
        let previous = cell.replace(Some(Twice::boxed(8, &dropped)?));
        ensure_eq!(previous.map(|value| value.first.load(Acquire)), Some(7));
        ensure_eq!(number(&cell), Some(8));
        drop(cell.replace(None));
        ensure!(cell.is_empty());
        drop(cell.replace(Some(Twice::boxed(9, &dropped)?)));
        // With a value in it.
        drop(cell);
        ensure!(eventually(|| dropped.get() == 3));
        Ok(())
    }

    /// A reader uses a value that is not dropped, however often it is replaced.
    #[test]
    fn a_reader_sees_a_whole_value() -> Result {
        const ROUNDS: u32 = 2_000;
        let dropped = Count::new()?;
        let cell = Arc::new(RcuCell::empty(), GFP_KERNEL)?;
        drop(cell.replace(Some(Twice::boxed(0, &dropped)?)));
        let stop = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let broken = Count::new()?;
        let reader = {
            let (cell, stop, broken) = (cell.clone(), stop.clone(), broken.clone());
            thread(move || {
                while !stop.load(Acquire) {
                    let whole = cell.with(|value| (0..100).all(|_| value.is_whole()));
                    broken.add((whole != Some(true)).into());
                    cond_resched();
                }
            })?
        };
        for round in 1..=ROUNDS {
            drop(cell.replace(Some(Twice::boxed(round.into(), &dropped)?)));
            cond_resched();
        }
        stop.store(true, Release);
        reader.join();
        ensure_eq!(broken.get(), 0);
        ensure!(eventually(|| dropped.get() == ROUNDS));
        drop(cell);
        ensure!(eventually(|| dropped.get() == ROUNDS + 1));
        Ok(())
    }
}
