// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rundown`: who is let in, and for whom a stop waits.

use super::Rundown;
use crate::provider::wait::fixture::{
    a_while,
    eventually,
    thread,
    Count, //
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
    fn nobody_enters_before_the_start_nor_after_the_stop() -> Result {
        let rundown = Arc::pin_init(Rundown::new_shut(), GFP_KERNEL)?;
        assert!(rundown.enter().is_none());
        rundown.start();
        assert!(rundown.is_open());
        assert!(rundown.enter().is_some());
        assert!(rundown.stop());
        assert!(!rundown.is_open());
        assert!(rundown.enter().is_none());
        assert!(!rundown.stop());
        Ok(())
    }

    #[test]
    fn a_stop_waits_for_all_who_are_inside() -> Result {
        let rundown = rundown()?;
        let stopped = Count::new()?;
        let (one, other) = (rundown.enter(), rundown.enter());
        assert!(one.is_some() && other.is_some());
        let (theirs, count) = (rundown.clone(), stopped.clone());
        let closer = thread(move || {
            if theirs.stop() {
                count.add(1);
            }
        })?;
        assert!(eventually(|| !rundown.is_open()));
        assert!(rundown.enter().is_none());
        drop(one);
        a_while();
        assert_eq!(stopped.get(), 0);
        drop(other);
        closer.join();
        assert_eq!(stopped.get(), 1);
        Ok(())
    }

    #[test]
    fn a_stop_does_not_wait_for_those_who_go_on_knocking() -> Result {
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
        assert!(rundown.stop());
        drop(threads);
        assert_eq!(turned_away.get(), MANY);
        Ok(())
    }
}
