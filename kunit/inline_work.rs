// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_inline_work`: the contexts in which work may be offered to a task.

use super::{
    shim,
    InlineList,
    InlineWork,
    Principal, //
};
use crate::{
    kunit::helpers::Count,
    shim::reclaim::OwnerKind, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    task::Kuid, //
};

/// Counts how often a task runs it, and how often it is queued to a worker.
struct Counted {
    run: Arc<Count>,
    queued: Arc<Count>,
}

impl InlineWork for Counted {
    fn run(self: Arc<Self>, _: &InlineList) {
        self.run.add(1);
    }

    fn queue(self: Arc<Self>) {
        self.queued.add(1);
    }
}

#[kunit_tests(kfabric_inline_work)]
mod tests {
    use super::*;

    #[test]
    fn only_a_softirq_offers_work() -> Result {
        let (run, queued) = (Count::new()?, Count::new()?);
        let counted = Counted {
            run: run.clone(),
            queued: queued.clone(),
        };
        let work: Arc<dyn InlineWork> = Arc::new(counted, GFP_KERNEL)?;
        let principal = Principal::with_user(OwnerKind::Program, Kuid::current_euid());
        let list = InlineList::of_task(OwnerKind::Program);
        let here = core::ptr::from_ref(&list).cast_mut().cast();
        // SAFETY: The reference is valid until `kfabric_kunit_inline_end()` below takes it away.
        unsafe { shim::kfabric_kunit_inline_begin(here) };
        // In task context the task itself could be using the cells.
        let refused = InlineList::offer(work, &principal);
        // SAFETY: The same task has begun it above.
        unsafe { shim::kfabric_kunit_inline_end() };
        ensure!(refused.is_err());
        drop(refused);
        list.run();
        ensure_eq!((run.get(), queued.get()), (0, 0));
        Ok(())
    }
}
