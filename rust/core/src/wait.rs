// SPDX-License-Identifier: GPL-2.0

//! Deadlines, and the state of a wait set.
//!
//! A [`Deadline`] is the internal form of a time limit. The front end converts to it the ABI's
//! absolute nanoseconds of CLOCK_MONOTONIC.
//!
//! CQs, EQs and counters that were opened with KFI_WAIT_SET signal a [`WaitSet`]. The wait set does
//! not know the state of its members: a member calls [`WaitSet::signal`] when it has something new.
//! Exactly one waiter takes a signal: the one that has slept the longest, or, without a sleeper,
//! the next that would sleep. Several signals that were not taken count as one, because the waiter
//! that takes it looks at all members. A waiter can therefore find nothing left to read if another
//! one was faster.
//!
//! Each operation takes O(log n) in the number of sleepers. Context: any, under the wait set's
//! lock.

use crate::due::{
    Due,
    DueMap,
    Key, //
};

/// A time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Do not wait.
    Poll,
    /// Wait until this time, in ns of CLOCK_MONOTONIC.
    At(u64),
    /// Wait without limit.
    Forever,
}

/// The ABI's deadline without limit: `KFABRIC_FOREVER`.
pub const FOREVER: u64 = u64::MAX;

impl Deadline {
    /// Converts the ABI's `deadline` at `now` (ns). KFABRIC_FOREVER means without limit; other
    /// values are absolute ns. 0, and any time that has passed, means polling.
    pub const fn from_abi(deadline: u64, now: u64) -> Self {
        match deadline {
            FOREVER => Self::Forever,
            at if at <= now => Self::Poll,
            at => Self::At(at),
        }
    }

    /// Returns the nanoseconds left at `now`; `None` without limit.
    pub const fn left(self, now: u64) -> Option<u64> {
        match self {
            Self::Poll => Some(0),
            Self::At(at) => Some(at.saturating_sub(now)),
            Self::Forever => None,
        }
    }
}

/// The result of arming a waiter of a wait set.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// A signal was pending, and was taken. The slot is returned.
    Signalled(S),
    /// The thread sleeps until its token is released. The key is for [`WaitSet::disarm`].
    Waiting(Key),
}

/// The pending signal and the sleepers of a wait set.
pub struct WaitSet<M: DueMap> {
    pending: bool,
    sleepers: Due<M>,
}

impl<M: DueMap> WaitSet<M> {
    /// Makes a wait set without a pending signal. `sleepers` must be empty.
    pub const fn new(sleepers: M) -> Self {
        Self {
            pending: false,
            sleepers: Due::new(sleepers),
        }
    }

    /// Signals that a member has something new. Returns the sleeper to wake, which has taken the
    /// signal; without a sleeper, keeps the signal.
    #[must_use = "the sleeper has taken the signal and must be woken"]
    pub fn signal(&mut self) -> Option<M::Token> {
        match self.sleepers.pop() {
            Some((_, token)) => Some(token),
            None => {
                self.pending = true;
                None
            }
        }
    }

    /// Takes a pending signal without waiting.
    pub fn take(&mut self) -> bool {
        core::mem::replace(&mut self.pending, false)
    }

    /// Returns whether a signal is pending. poll(2) on the set's file descriptor uses this.
    pub fn pending(&self) -> bool {
        self.pending
    }

    /// Takes a pending signal, or arms a sleeper.
    pub fn arm(&mut self, slot: M::Slot) -> Armed<M::Slot> {
        if self.take() {
            return Armed::Signalled(slot);
        }
        Armed::Waiting(self.sleepers.insert(0, slot))
    }

    /// Removes a sleeper after a timeout or a signal of the system. Returns `None` if it was
    /// released before. It has then taken a signal and must report that instead of the timeout;
    /// otherwise the signal would be lost.
    pub fn disarm(&mut self, key: &Key) -> Option<M::Token> {
        self.sleepers.remove(key)
    }

    /// Releases all sleepers, because the wait set is closed by force. The pending signal does not
    /// change.
    pub fn release_all(&mut self, mut release: impl FnMut(M::Token)) {
        while let Some((_, token)) = self.sleepers.pop() {
            release(token);
        }
    }

    /// Returns the number of sleepers.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.len()
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_wait))]
mod tests {
    use super::*;
    use crate::testing::ArrayMap;

    #[test]
    fn deadlines_of_the_abi_are_converted() {
        for now in [0, 7, u64::MAX] {
            assert_eq!(Deadline::from_abi(0, now), Deadline::Poll);
            assert_eq!(Deadline::from_abi(u64::MAX, now), Deadline::Forever);
        }
        assert_eq!(Deadline::from_abi(8, 7), Deadline::At(8));
        assert_eq!(
            Deadline::from_abi(u64::MAX - 1, 7),
            Deadline::At(u64::MAX - 1)
        );
        // A time that has passed means polling.
        assert_eq!(Deadline::from_abi(7, 7), Deadline::Poll);
        assert_eq!(Deadline::from_abi(1, 7), Deadline::Poll);
    }

    #[test]
    fn deadlines_have_time_left() {
        assert_eq!(Deadline::Poll.left(3), Some(0));
        assert_eq!(Deadline::At(7).left(3), Some(4));
        assert_eq!(Deadline::At(7).left(8), Some(0));
        assert_eq!(Deadline::Forever.left(3), None);
    }

    #[test]
    fn signals_without_a_sleeper_count_as_one() {
        let mut set = WaitSet::new(ArrayMap::new());
        assert!(!set.pending());
        assert_eq!(set.signal(), None);
        assert_eq!(set.signal(), None);
        assert!(set.pending());
        assert_eq!(set.arm(1), Armed::Signalled(1));
        assert!(!set.pending());
        assert!(matches!(set.arm(2), Armed::Waiting(_)));
        assert!(!set.take());
    }

    #[test]
    fn a_signal_is_taken_by_the_longest_sleeper() {
        let mut set = WaitSet::new(ArrayMap::new());
        assert!(matches!(set.arm(1), Armed::Waiting(_)));
        assert!(matches!(set.arm(2), Armed::Waiting(_)));
        assert_eq!(set.sleepers(), 2);
        assert_eq!(set.signal(), Some(1));
        assert!(!set.pending());
        assert_eq!(set.signal(), Some(2));
        assert_eq!(set.signal(), None);
        assert!(set.take());
    }

    #[test]
    fn a_sleeper_that_leaves_is_not_woken() {
        let mut set = WaitSet::new(ArrayMap::new());
        if let Armed::Waiting(key) = set.arm(1) {
            assert_eq!(set.disarm(&key), Some(1));
            assert_eq!(set.disarm(&key), None);
        }
        assert!(matches!(set.arm(2), Armed::Waiting(_)));
        let mut gone = None;
        set.release_all(|name| gone = Some(name));
        assert_eq!(gone, Some(2));
        assert_eq!(set.sleepers(), 0);
        assert_eq!(set.signal(), None);
        assert!(set.pending());
    }
}
