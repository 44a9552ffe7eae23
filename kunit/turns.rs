// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_turns`: who may leave a turn to a task.

use super::{
    shim,
    Principal,
    Turn,
    Turns, //
};
use crate::shim::aids::Count;
use kernel::{
    prelude::*,
    sync::Arc,
    task::Kuid, //
};

/// Counts what is done by whom.
struct Counted {
    turns: Arc<Count>,
    later: Arc<Count>,
}

impl Turn for Counted {
    fn turn(self: Arc<Self>, _: &Turns) {
        self.turns.add(1);
    }

    fn later(self: Arc<Self>) {
        self.later.add(1);
    }
}

#[kunit_tests(kfabric_turns)]
mod tests {
    use super::*;

    #[test]
    fn only_a_softirq_leaves_a_turn() -> Result {
        let (taken, later) = (Count::new()?, Count::new()?);
        let counted = Counted {
            turns: taken.clone(),
            later: later.clone(),
        };
        let turn: Arc<dyn Turn> = Arc::new(counted, GFP_KERNEL)?;
        let turns = Turns::new();
        let here = core::ptr::from_ref(&turns).cast_mut().cast();
        // SAFETY: The reference is good until it is taken away again, three lines below.
        unsafe { shim::kfabric_shim_kunit_turns_begin(here) };
        // The task itself could be using the cells.
        let refused = Turns::offer(turn, &Principal::with_user(Kuid::current_euid()));
        // SAFETY: Begun above, by the same task.
        unsafe { shim::kfabric_shim_kunit_turns_end() };
        assert!(refused.is_err());
        drop(refused);
        turns.run();
        assert_eq!((taken.get(), later.get()), (0, 0));
        Ok(())
    }
}
