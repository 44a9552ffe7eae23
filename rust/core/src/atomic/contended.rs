// SPDX-License-Identifier: GPL-2.0
//! Changing an element that others change at the same time.
//!
//! A compare-exchange fails if another party has changed the element since it was read. The owner
//! of the memory can change an element all the time, so the rounds of an operation are counted:
//!
//! ```text
//!   a failed round --> one instruction, if the CPU has one for the operation --> done
//!        | otherwise
//!        v
//!   a burst of rounds --> done
//!        | BURST rounds of the operation have failed: pause; ROUNDS: the operation fails
//!        '--> the next burst
//! ```
//!
//! An operation that fails has not changed the element. To complete it without a successful
//! exchange would be wrong: if the other party adds to the element, the result would show that the
//! operation was lost.

/// Failed rounds of an operation after which its task pauses. A task that computes floating point
/// has disabled preemption during a burst, for some tens of microseconds.
pub const BURST: u32 = 64;

/// Failed rounds of an operation, of all its elements together, after which it fails. They take
/// some tens of milliseconds. Tasks that use a word together do not reach this: one that succeeds
/// in each hundredth round fails so often with a probability below 10^-280. The largest operation
/// has 4,096 elements, each of which can fail 16 times.
pub const ROUNDS: u32 = 1 << 16;

// Each pause is at the end of a burst.
const _: () = assert!(ROUNDS % BURST == 0);

/// An element that a round has failed to change.
pub trait Contended {
    /// Changes it by one instruction, which cannot fail, and returns its old value. `None`: the CPU
    /// has no instruction for the operation.
    fn change_at_once(&mut self) -> Option<u64>;

    /// Tries to change it until a round succeeds or `rounds` is 0. Each failed round takes 1 from
    /// `rounds`. Returns the old value if a round has succeeded.
    fn burst(&mut self, rounds: &mut u32) -> Option<u64>;

    /// Gives the CPU to other tasks.
    fn pause(&mut self);
}

/// An operation has failed because an element was changed by others in each of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention;

/// The failed rounds of an operation.
#[derive(Debug, Default)]
pub struct Rounds {
    failed: u32,
}

impl Rounds {
    /// Returns those of a new operation.
    pub const fn new() -> Self {
        Self { failed: 0 }
    }

    /// Changes `element`, an element of the operation, and returns its old value.
    ///
    /// # Errors
    ///
    /// The operation has failed in [`ROUNDS`] rounds. The element was not changed.
    pub fn change(&mut self, element: &mut impl Contended) -> Result<u64, Contention> {
        if let Some(old) = element.change_at_once() {
            return Ok(old);
        }
        while self.failed < ROUNDS {
            let burst = BURST.saturating_sub(self.failed % BURST);
            let mut left = burst;
            let old = element.burst(&mut left);
            // A burst takes no more rounds than it has.
            self.failed = self.failed.saturating_add(burst.saturating_sub(left));
            if let Some(old) = old {
                return Ok(old);
            }
            element.pause();
        }
        Err(Contention)
    }
}
