// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_drain`: which operations are admitted, and for which of them a close waits.

use super::Drain;
use crate::{
    kunit::fixture::{
        a_while,
        allow_kill,
        count_if,
        eventually,
        Count, //
    },
    shim::{
        sched::fatal_signal_pending,
        wait::Signals, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

fn drain() -> Result<Arc<Drain>> {
    Arc::pin_init(Drain::new(), GFP_KERNEL)
}

#[kunit_tests(kfabric_drain)]
mod tests {
    use super::*;

    #[test]
    fn operations_enter_only_between_start_and_shut() -> Result {
        let drain = Arc::pin_init(Drain::new_shut(), GFP_KERNEL)?;
        ensure!(drain.enter().is_none());
        drain.start();
        ensure!(drain.is_open());
        ensure!(drain.enter().is_some());
        ensure!(drain.shut());
        ensure!(!drain.is_open());
        ensure!(drain.enter().is_none());
        ensure!(!drain.shut());
        ensure_eq!(drain.wait(Signals::Fatal), Ok(()));
        Ok(())
    }

    #[test]
    fn a_drain_that_is_opened_again_admits_operations() -> Result {
        let drain = drain()?;
        for _ in 0..3 {
            let inside = drain.enter();
            ensure!(inside.is_some());
            ensure!(drain.shut());
            ensure!(drain.enter().is_none());
            drop(inside);
            ensure_eq!(drain.wait(Signals::Fatal), Ok(()));
            drain.reopen();
            ensure!(drain.is_open());
        }
        Ok(())
    }

    #[test]
    fn shutting_does_not_wait_for_operations_inside() -> Result {
        let drain = drain()?;
        let inside = drain.enter();
        ensure!(inside.is_some());
        ensure!(drain.shut());
        ensure!(drain.enter().is_none());
        drop(inside);
        ensure!(drain.enter().is_none());
        ensure_eq!(drain.wait(Signals::Fatal), Ok(()));
        Ok(())
    }

    #[test]
    fn a_wait_ends_when_all_have_left() -> Result {
        let drain = drain()?;
        let waited = Count::new()?;
        let (one, other) = (drain.enter(), drain.enter());
        ensure!(one.is_some() && other.is_some());
        ensure!(drain.shut());
        let same = drain.clone();
        let closer = count_if(&waited, move || same.wait(Signals::Fatal).is_ok())?;
        drop(one);
        a_while();
        ensure_eq!(waited.get(), 0);
        drop(other);
        closer.join();
        ensure_eq!(waited.get(), 1);
        Ok(())
    }

    #[test]
    fn a_fatal_signal_ends_a_wait() -> Result {
        let drain = drain()?;
        let (began, killed) = (Count::new()?, Count::new()?);
        let inside = drain.enter();
        ensure!(inside.is_some());
        ensure!(drain.shut());
        let closer = {
            let (drain, began) = (drain.clone(), began.clone());
            count_if(&killed, move || {
                allow_kill();
                began.add(1);
                drain.wait(Signals::Fatal) == Err(EINTR)
            })?
        };
        ensure!(eventually(|| began.get() == 1));
        a_while();
        ensure_eq!(killed.get(), 0);
        closer.kill();
        closer.join();
        ensure_eq!(killed.get(), 1);
        // A second wait starts again.
        ensure!(drain.enter().is_none());
        drop(inside);
        ensure_eq!(drain.wait(Signals::Fatal), Ok(()));
        Ok(())
    }

    #[test]
    fn a_killed_task_can_shut_without_operations_inside() -> Result {
        let drain = drain()?;
        let (began, waited) = (Count::new()?, Count::new()?);
        drain.shut();
        let closer = {
            let (drain, began) = (drain.clone(), began.clone());
            count_if(&waited, move || {
                allow_kill();
                began.add(1);
                eventually(fatal_signal_pending) && drain.wait(Signals::Fatal).is_ok()
            })?
        };
        ensure!(eventually(|| began.get() == 1));
        closer.kill();
        closer.join();
        ensure_eq!(waited.get(), 1);
        Ok(())
    }

    #[test]
    fn a_wait_does_not_wait_for_tasks_that_try_to_enter() -> Result {
        const MANY: u32 = 4;
        let drain = drain()?;
        let (inside, refused) = (Count::new()?, Count::new()?);
        let mut threads = KVec::new();
        for _ in 0..MANY {
            let (drain, inside) = (drain.clone(), inside.clone());
            let thread = count_if(&refused, move || {
                inside.add(1);
                while drain.enter().is_some() {}
                (0..1_000_000).all(|_| drain.enter().is_none())
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| inside.get() == MANY));
        ensure!(drain.shut());
        ensure_eq!(drain.wait(Signals::Fatal), Ok(()));
        drop(threads);
        ensure_eq!(refused.get(), MANY);
        Ok(())
    }
}
