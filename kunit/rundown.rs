// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rundown`: which operations are admitted, and for which of them a close waits.

use super::Rundown;
use crate::{
    provider::wait::fixture::{
        a_while,
        allow_kill,
        eventually,
        thread,
        Count, //
    },
    shim::sched::fatal_signal_pending, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

fn rundown() -> Result<Arc<Rundown>> {
    Arc::pin_init(Rundown::new(), GFP_KERNEL)
}

#[kunit_tests(kfabric_rundown)]
mod tests {
    use super::*;

    #[test]
    fn operations_enter_only_between_start_and_shut() -> Result {
        let rundown = Arc::pin_init(Rundown::new_shut(), GFP_KERNEL)?;
        assert!(rundown.enter().is_none());
        rundown.start();
        assert!(rundown.is_open());
        assert!(rundown.enter().is_some());
        assert!(rundown.shut());
        assert!(!rundown.is_open());
        assert!(rundown.enter().is_none());
        assert!(!rundown.shut());
        assert_eq!(rundown.wait(), Ok(()));
        Ok(())
    }

    #[test]
    fn shutting_does_not_wait_for_operations_inside() -> Result {
        let rundown = rundown()?;
        let inside = rundown.enter();
        assert!(inside.is_some());
        assert!(rundown.shut());
        assert!(rundown.enter().is_none());
        drop(inside);
        assert!(rundown.enter().is_none());
        assert_eq!(rundown.wait(), Ok(()));
        Ok(())
    }

    #[test]
    fn a_wait_ends_when_all_have_left() -> Result {
        let rundown = rundown()?;
        let waited = Count::new()?;
        let (one, other) = (rundown.enter(), rundown.enter());
        assert!(one.is_some() && other.is_some());
        assert!(rundown.shut());
        let (theirs, count) = (rundown.clone(), waited.clone());
        let closer = thread(move || {
            if theirs.wait().is_ok() {
                count.add(1);
            }
        })?;
        drop(one);
        a_while();
        assert_eq!(waited.get(), 0);
        drop(other);
        closer.join();
        assert_eq!(waited.get(), 1);
        Ok(())
    }

    #[test]
    fn a_fatal_signal_ends_a_wait() -> Result {
        let rundown = rundown()?;
        let (began, killed) = (Count::new()?, Count::new()?);
        let inside = rundown.enter();
        assert!(inside.is_some());
        assert!(rundown.shut());
        let closer = {
            let (rundown, began, killed) = (rundown.clone(), began.clone(), killed.clone());
            thread(move || {
                allow_kill();
                began.add(1);
                if rundown.wait() == Err(EINTR) {
                    killed.add(1);
                }
            })?
        };
        assert!(eventually(|| began.get() == 1));
        a_while();
        assert_eq!(killed.get(), 0);
        closer.kill();
        closer.join();
        assert_eq!(killed.get(), 1);
        // A second wait starts again.
        assert!(rundown.enter().is_none());
        drop(inside);
        assert_eq!(rundown.wait(), Ok(()));
        Ok(())
    }

    #[test]
    fn a_killed_task_can_shut_without_operations_inside() -> Result {
        let rundown = rundown()?;
        let (began, waited) = (Count::new()?, Count::new()?);
        rundown.shut();
        let closer = {
            let (rundown, began, waited) = (rundown.clone(), began.clone(), waited.clone());
            thread(move || {
                allow_kill();
                began.add(1);
                if eventually(fatal_signal_pending) && rundown.wait().is_ok() {
                    waited.add(1);
                }
            })?
        };
        assert!(eventually(|| began.get() == 1));
        closer.kill();
        closer.join();
        assert_eq!(waited.get(), 1);
        Ok(())
    }

    #[test]
    fn a_wait_does_not_wait_for_tasks_that_try_to_enter() -> Result {
        const MANY: u32 = 4;
        let rundown = rundown()?;
        let (inside, turned_away) = (Count::new()?, Count::new()?);
        let mut threads = KVec::new();
        for _ in 0..MANY {
            let (rundown, inside, away) = (rundown.clone(), inside.clone(), turned_away.clone());
            let knock = move || {
                inside.add(1);
                while rundown.enter().is_some() {}
                for _ in 0..1_000_000 {
                    if rundown.enter().is_some() {
                        return;
                    }
                }
                away.add(1);
            };
            threads.push(thread(knock)?, GFP_KERNEL)?;
        }
        assert!(eventually(|| inside.get() == MANY));
        assert!(rundown.shut());
        assert_eq!(rundown.wait(), Ok(()));
        drop(threads);
        assert_eq!(turned_away.get(), MANY);
        Ok(())
    }
}
