// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_deadline`: work that a task has accepted, and the deadline after which a worker
//! does it.

use super::{
    impl_has_deadline,
    Deadline,
    HasDeadline,
    Relaxed,
    WORK, //
};
use crate::kunit::helpers::{
    a_while,
    eventually,
    Count, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Counts how often its deadline expires.
#[pin_data]
struct Work {
    expired: Arc<Count>,
    #[pin]
    deadline: Deadline<Self>,
}

impl_has_deadline! {
    impl HasDeadline for Work { self.deadline, expired: Self::count }
}

impl Work {
    fn new(expired: &Arc<Count>) -> Result<Arc<Self>> {
        let expired = expired.clone();
        Arc::pin_init(
            pin_init!(Self {
                expired,
                deadline <- Deadline::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn count(self: &Arc<Self>) {
        self.expired.add(1);
    }
}

impl<T: HasDeadline> Deadline<T> {
    /// Whether work is offered and has not begun.
    pub(crate) fn has_offer(&self) -> bool {
        self.state.load(Relaxed) & WORK != 0
    }
}

/// Ends the deadline when it is dropped.
struct Ending(Arc<Work>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.deadline.end();
    }
}

#[kunit_tests(kfabric_deadline)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_begin_expires_once() -> Result {
        let expired = Count::new()?;
        let work = Ending(Work::new(&expired)?);
        for round in 1..=3 {
            Deadline::offer(&work.0);
            ensure!(eventually(|| expired.get() == round));
            a_while();
            ensure_eq!(expired.get(), round);
        }
        Ok(())
    }

    #[test]
    fn work_that_begins_does_not_expire() -> Result {
        let expired = Count::new()?;
        let work = Ending(Work::new(&expired)?);
        for _ in 0..1000 {
            Deadline::offer(&work.0);
            work.0.deadline.begin();
        }
        a_while();
        ensure_eq!(expired.get(), 0);
        // The last one of many is not lost.
        for _ in 0..1000 {
            Deadline::offer(&work.0);
            work.0.deadline.begin();
        }
        Deadline::offer(&work.0);
        ensure!(eventually(|| expired.get() == 1));
        Ok(())
    }

    #[test]
    fn nothing_expires_after_the_end() -> Result {
        let expired = Count::new()?;
        for late in [false, true] {
            let work = Work::new(&expired)?;
            if !late {
                Deadline::offer(&work);
            }
            work.deadline.end();
            Deadline::offer(&work);
            a_while();
            ensure_eq!(expired.get(), 0);
            // The timer holds no reference: this is the last one.
            ensure!(Arc::into_unique_or_drop(work).is_some());
        }
        Ok(())
    }
}
