// SPDX-License-Identifier: GPL-2.0

//! Sleepers, callbacks and signals of a CQ.
//!
//! **Sleepers** wait for a number of entries (KFI_CQ_COND_THRESHOLD; otherwise 1). All sleepers
//! whose number is reached are released. A sleeper that then finds the queue emptied by another
//! reader arms itself again. An error entry and an overrun release all sleepers.
//!
//! **Callbacks** wait among the sleepers, for a [`CallbackCondition`]. They are released for the
//! same reasons, and by each signal, but they are inside no blocking read.
//!
//! **Signals.** [`CompletionQueue::signal`] releases every thread inside a blocking read with
//! EAGAIN. A thread is inside from [`enter`](CompletionQueue::enter) to
//! [`leave`](CompletionQueue::leave), whether it sleeps or not. The thread compares the number of
//! signals with the number at its entry. If no thread is inside, one signal is kept for the next
//! thread that would sleep. Otherwise a thread could check a stop flag, find it clear, and then
//! miss the signal that follows the setting of the flag. A read that finds an entry does not
//! consume a kept signal.
//!
//! Each operation takes O(log n) in the number of sleepers for each that is armed or released.
//! Context: any, under the CQ's lock.
//!
//! Source: fi_cq(3).

use super::{
    CompletionQueue,
    ErrEntry,
    Records, //
};
use crate::{
    due::{
        DueMap,
        Key, //
    },
    word::Word,
};
use core::ops::DerefMut;

/// The reason for which a sleeper was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is something to read. If another reader was faster, the sleeper arms again.
    Ready,
    /// The CQ was signalled: the read returns EAGAIN.
    Signalled,
}

/// A thread inside a blocking read. It must be returned to the same CQ by
/// [`CompletionQueue::leave`]. While a thread is inside, no signal is kept.
#[must_use = "no signal is kept while a thread is inside"]
#[derive(Debug, PartialEq, Eq)]
pub struct BlockingRead {
    /// The number of signals before the thread entered.
    signals: u64,
}

impl BlockingRead {
    /// Returns the number for [`CompletionQueue::enter_again`]; not 0.
    pub fn number(&self) -> u64 {
        // The number of signals never reaches 2^64.
        self.signals.wrapping_add(1)
    }
}

/// The condition of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackCondition {
    /// A blocking read that waits for this number of entries would not sleep.
    Ready(u64),
    /// Something arrives after the arming: an entry, an error entry, or a completion that is lost.
    /// Source: ibv_req_notify_cq(3).
    Next,
}

/// The result of arming a sleeper or a callback.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// The condition holds: the thread reads. The slot is returned.
    Ready(S),
    /// A signal came since the thread entered, or one was kept: the thread returns EAGAIN. The slot
    /// is returned.
    Signalled(S),
    /// The thread sleeps until its token is released. The key is for [`CompletionQueue::disarm`].
    Waiting(Key),
}

impl<W: Word, E: DerefMut<Target = [ErrEntry]>, M: DueMap, R: Records> CompletionQueue<W, E, M, R> {
    /// Records that a thread enters a blocking read: every signal from now on releases it.
    pub fn enter(&mut self) -> BlockingRead {
        // The number is bounded by the number of tasks.
        self.inside = self.inside.wrapping_add(1);
        BlockingRead {
            signals: self.signals,
        }
    }

    /// Records that a thread continues an interrupted read with the
    /// [`number`](BlockingRead::number) of its first entry, so that signals since then count. Any
    /// other number can only release this thread, and at once.
    pub fn enter_again(&mut self, number: u64) -> BlockingRead {
        self.inside = self.inside.wrapping_add(1);
        BlockingRead {
            signals: number.wrapping_sub(1),
        }
    }

    /// Records that a thread leaves.
    pub fn leave(&mut self, inside: BlockingRead) {
        let BlockingRead { signals: _ } = inside;
        // Only `enter` and `enter_again` make an `BlockingRead`.
        self.inside = self.inside.saturating_sub(1);
    }

    /// Arms a sleeper, unless there is a reason not to sleep. `want` is the number of entries to
    /// wait for, limited to at least 1 and at most the size.
    pub fn arm(&mut self, inside: &BlockingRead, want: u64, slot: M::Slot) -> Armed<M::Slot> {
        if self.holds(want) {
            return Armed::Ready(slot);
        }
        // A kept signal is consumed too, because this is the next thread that would sleep.
        let kept = core::mem::replace(&mut self.kept, false);
        if kept || inside.signals != self.signals {
            return Armed::Signalled(slot);
        }
        Armed::Waiting(self.sleepers.insert(self.wanted(want), slot))
    }

    /// Arms a callback, unless its condition holds. Returns [`Armed::Ready`] or
    /// [`Armed::Waiting`]. The reader of a CQ that arms after its last read loses no completion.
    pub fn arm_callback(&mut self, cond: CallbackCondition, slot: M::Slot) -> Armed<M::Slot> {
        let threshold = match cond {
            CallbackCondition::Ready(want) if self.holds(want) => return Armed::Ready(slot),
            CallbackCondition::Ready(want) => self.wanted(want),
            // Each entry releases those that wait for a number up to that of the queued entries.
            CallbackCondition::Next => 0,
        };
        Armed::Waiting(self.sleepers.insert(threshold, slot))
    }

    /// Removes a sleeper after a timeout or a signal of the system, or a callback. Returns `None`
    /// if it was released before. O(log n).
    pub fn disarm(&mut self, key: &Key) -> Option<M::Token> {
        self.sleepers.remove(key)
    }

    /// Releases every thread inside a blocking read; if there is none, keeps a signal for the next
    /// thread that would sleep (fi_cq_signal).
    pub fn signal(&mut self, wake: impl FnMut(M::Token, Woken)) {
        self.signals = self.signals.wrapping_add(1);
        if self.inside == 0 {
            self.kept = true;
        }
        self.wake_all(Woken::Signalled, wake);
    }

    /// Returns whether a thread that waits for this many entries must not sleep; `want` as in
    /// [`Self::arm`].
    pub fn holds(&mut self, want: u64) -> bool {
        self.update_head();
        self.ring.has_invalid_head()
            || self.has_errors()
            || self.ring.lost()
            || u64::from(self.ring.queued()) >= self.wanted(want)
    }

    /// Returns the number of entries to wait for, between 1 and the size.
    fn wanted(&self, want: u64) -> u64 {
        want.max(1).min(u64::from(self.ring.size()))
    }

    /// Releases all sleepers, because the CQ is closed by force. The queue does not change.
    pub fn release_all(&mut self, mut release: impl FnMut(M::Token)) {
        self.wake_all(Woken::Ready, |token, _| release(token));
    }

    pub(super) fn wake_all(&mut self, why: Woken, mut wake: impl FnMut(M::Token, Woken)) {
        while let Some((_, token)) = self.sleepers.pop() {
            wake(token, why);
        }
    }
}
