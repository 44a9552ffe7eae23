// SPDX-License-Identifier: GPL-2.0

//! A step that a worker leaves to the holder of a lock.
//!
//! A worker has a step to execute under a lock. The holder of the lock may be a task that is not
//! scheduled for a long time, so the worker does not wait for it. It stores the step, calls
//! [`LeftStep::leave`], and tries to take the lock:
//!
//! - It gets the lock: it executes the step, unless another holder has done that meanwhile.
//! - It does not: it returns. The holder executes the step before it unlocks, if it sees the step
//!   by then ([`LeftStep::is_left`]). After the unlock it looks again, and queues the worker if
//!   there is a step. The worker then tries again.
//!
//! An event that stays in a queue can take the place of a step (`Msg::event_left`).
//!
//! # No step is forgotten
//!
//! [`LeftStep::leave`] writes the word and is a full barrier; then the worker reads the lock. A
//! holder writes the lock, and its unlock is a full barrier; then it reads the word. So if the
//! worker finds the lock taken, the unlock by that holder comes after the worker's read, and the
//! holder's read after the unlock sees the word. It does not matter who held the lock before. If
//! the word has been cleared by then, a holder has cleared it under the lock, before it looked for
//! the stored step ([`LeftStep::take`]).
//!
//! The word alone does not say that there is a step: the step is where the worker has stored it. A
//! holder that finds the word set and no step has nothing to do.

use crate::word::Word;

/// Whether a worker has left a step, see the module documentation.
pub struct LeftStep<W>(W);

impl<W: Word> LeftStep<W> {
    /// Makes it, with a word that is 0.
    pub const fn new(word: W) -> Self {
        Self(word)
    }

    /// Called by the worker: says that it has stored a step. The worker tries to take the lock
    /// afterwards. Any context.
    pub fn leave(&self) {
        // ORDERING: fully ordered. The step is stored before, the lock is read afterwards.
        self.0.swap(1);
    }

    /// Returns whether there may be a step. Called before an unlock, and after it; the unlock is a
    /// full barrier. A load. Any context.
    #[inline(always)]
    pub fn is_left(&self) -> bool {
        self.0.load() != 0
    }

    /// Clears the word. The caller looks for the step afterwards: under the lock to execute it, or
    /// after the unlock to queue the worker. Any context.
    pub fn take(&self) {
        // ORDERING: fully ordered. The caller sees the step that was stored before the word was
        // written; a step that is stored later sets the word again.
        self.0.swap(0);
    }
}
