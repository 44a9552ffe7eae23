// SPDX-License-Identifier: GPL-2.0

//! Turns: what a task's packets make others of the same host do, done by the task itself.
//!
//! What is sent to a peer on the same host arrives before sending returns, in a softirq on top of the
//! task that sends. Who is to deal with it could be woken; that costs two switches of tasks. A task
//! that holds no lock can do it instead: it sends with a [`SendBatch`] that ends [in](SendBatch::end)
//! its [`Turns`], the softirq leaves there [who is due](Turns::offer), and the task
//! [runs](Turns::run) them when it has let go of all locks. Turns make more turns; what is still due
//! after some, or does not fit, is done [later](Turn::later), by whoever would have been woken.
//!
//! # Whose work
//!
//! A task takes only turns of its own [`Principal`]: the same user, user namespace and memory cgroup. So
//! what the work allocates is charged where it belongs, the work has the priority of a task of its
//! owner, and a lock that is held during a turn is not held by a task of another user, which can be
//! preempted for as long as that user likes. A worker of a QP that sends answers takes turns of the
//! principal of that QP only: otherwise one user's work would wait for another's in that worker.
//!
//! A task that accepts work and is not scheduled afterwards keeps it waiting. Who offers work sees to
//! that: see [`deadline`](super::deadline).
//!
//! ```text
//! task:    lock, SendBatch::begin, send ... end(&turns), unlock         turns.run -> Turn::turn
//! softirq:                           `- arrives -> Turns::offer -'
//! ```

#[cfg(kfi_kunit)]
#[path = "../../../kunit/turns.rs"]
mod kunit;

use crate::shim::{
    bindings as shim,
    cred::Principal, //
};
use core::cell::Cell;
use kernel::{
    sync::Arc,
    types::NotThreadSafe, //
};

/// Who may be due.
pub(crate) trait Turn: Send + Sync {
    /// Does what is due; what it sends may end in `turns`. Process context, no lock is held.
    fn turn(self: Arc<Self>, turns: &Turns);

    /// Has it done by somebody else, soon. Any context.
    fn later(self: Arc<Self>);
}

/// Who is due at the same time at most: what one task sends in a row goes to few.
const PLACES: usize = 4;

/// Turns that a task takes at most before others go on.
const MOST: usize = 8;

/// Who is due because of what this task sent. Empty when dropped: what is left is done later.
pub(crate) struct Turns {
    due: [Cell<Option<Arc<dyn Turn>>>; PLACES],
    /// For whom a worker takes them; `None` for a task, which takes them for itself.
    principal: Option<Arc<Principal>>,
}

impl Turns {
    /// Nobody is due. For a task that runs for itself: not for a worker.
    pub(crate) const fn new() -> Self {
        Self::of(None)
    }

    /// Nobody is due. For a worker that runs for `principal`; it takes no turns if there is none.
    pub(crate) fn of_worker(principal: Option<&Arc<Principal>>) -> Self {
        Self::of(principal.cloned())
    }

    const fn of(principal: Option<Arc<Principal>>) -> Self {
        Self {
            due: [const { Cell::new(None) }; PLACES],
            principal,
        }
    }

    /// Leaves `turn`, which is work for `principal`, to the task on top of which this softirq runs.
    /// Gives it back if that runs for another principal, takes no turns or has no place, and in any
    /// other context. Any context.
    pub(crate) fn offer(
        turn: Arc<dyn Turn>,
        principal: &Principal,
    ) -> Result<(), Arc<dyn Turn>> {
        // SAFETY: The pointer is null, or this is a softirq and it is what `SendBatch::end` gave: a
        // reference that is good while softirqs on top of that task run, of which this is one. They do
        // not interrupt each other, interrupts get null, and the task itself does not go on meanwhile,
        // so nobody else has the cells.
        let turns = unsafe { shim::kfabric_shim_turns().cast::<Self>().as_ref() };
        match turns {
            Some(turns) if turns.runs_for(principal) => turns.put(turn),
            _ => Err(turn),
        }
    }

    /// Whether the task that takes these turns runs for `principal`. In a softirq on top of it.
    fn runs_for(&self, principal: &Principal) -> bool {
        match &self.principal {
            Some(own) => **own == *principal,
            // Never so for a worker.
            None => principal.is_current(),
        }
    }

    fn put(&self, turn: Arc<dyn Turn>) -> Result<(), Arc<dyn Turn>> {
        for place in &self.due {
            match place.take() {
                None => {
                    place.set(Some(turn));
                    return Ok(());
                }
                taken => place.set(taken),
            }
        }
        Err(turn)
    }

    fn take(&self) -> Option<Arc<dyn Turn>> {
        self.due.iter().find_map(Cell::take)
    }

    /// Whether somebody is due.
    #[cfg(kfi_kunit)]
    pub(crate) fn has_work(&self) -> bool {
        match self.take() {
            Some(turn) => self.put(turn).is_ok(),
            None => false,
        }
    }

    /// Has all who are due take their turns. Process context, no lock is held.
    pub(crate) fn run(self) {
        for _ in 0..MOST {
            match self.take() {
                Some(turn) => turn.turn(&self),
                None => return,
            }
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        while let Some(turn) = self.take() {
            turn.later();
        }
    }
}

/// While it exists, what this CPU sends to peers on this host waits, and arrives there together.
pub(crate) struct SendBatch(NotThreadSafe);

impl SendBatch {
    /// Begins: does not sleep until it is dropped.
    pub(crate) fn begin() -> Self {
        // SAFETY: Undone when it ends, by the same task.
        unsafe { shim::kfabric_shim_bh_disable() };
        Self(NotThreadSafe)
    }

    /// Ends; who is due because of what arrives is left in `turns`, if there are some.
    pub(crate) fn end(self, turns: Option<&Turns>) {
        let Some(turns) = turns else {
            return;
        };
        core::mem::forget(self);
        // SAFETY: Disabled by `begin`. The reference is good, and nothing else is done with it, until
        // the function returns; `Turns` is no type that another task can have at the same time, as
        // cells are not `Sync`.
        unsafe { shim::kfabric_shim_bh_enable_with(core::ptr::from_ref(turns).cast_mut().cast()) };
    }
}

impl Drop for SendBatch {
    fn drop(&mut self) {
        // SAFETY: Disabled by `begin`.
        unsafe { shim::kfabric_shim_bh_enable() }
    }
}
