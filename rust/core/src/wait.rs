// SPDX-License-Identifier: GPL-2.0

//! Waiting: how long, and the state of a wait set.
//!
//! A [`Deadline`] is the one form of a time limit inside: the ABI's absolute
//! nanoseconds of CLOCK_MONOTONIC, or the relative milliseconds of the kernel
//! interface, become one at the face.
//!
//! A [`WaitSet`] is what CQs, EQs and counters signal when they were opened with
//! KFI_WAIT_SET. It does not know its members' state: a member says "something
//! happened here" by [`WaitSet::signal`], and that is all. A signal is taken by
//! exactly one waiter: the one that sleeps longest, or, if nobody sleeps, the
//! next that would. Signals that nobody has taken yet are one signal: who takes
//! it is to look at all members, so a second one would tell nothing new. It
//! follows that a waiter can find nothing left to read, where another was faster.
//!
//! Everything is O(log n) in the number of sleepers. Context: any, under the
//! wait set's lock.

use crate::due::{
    Due,
    DueMap,
    Key, //
};

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Not at all.
    Poll,
    /// Until this time, ns of CLOCK_MONOTONIC.
    At(u64),
    /// Without limit.
    Forever,
}

/// The ABI's deadline that never comes: `KFABRIC_FOREVER`.
pub const FOREVER: u64 = u64::MAX;

/// Nanoseconds in a millisecond.
const NS_PER_MS: u64 = 1_000_000;

impl Deadline {
    /// The limit that the ABI's `deadline` means at `now` (ns): KFABRIC_FOREVER is
    /// without limit, else it is absolute ns. 0, and any time that has passed, polls.
    pub const fn from_abi(deadline: u64, now: u64) -> Self {
        match deadline {
            FOREVER => Self::Forever,
            at if at <= now => Self::Poll,
            at => Self::At(at),
        }
    }

    /// The limit that the kernel interface's `timeout` means: ms from `now`
    /// (ns); 0 polls, negative is without limit. Source: kfi_cntr(3).
    pub const fn from_timeout(timeout: i32, now: u64) -> Self {
        if timeout < 0 {
            return Self::Forever;
        }
        if timeout == 0 {
            return Self::Poll;
        }
        // At most 2^31 * 10^6: no overflow before the sum.
        Self::At(now.saturating_add((timeout.unsigned_abs() as u64).wrapping_mul(NS_PER_MS)))
    }

    /// Whether it has passed at `now` (ns).
    pub const fn passed(self, now: u64) -> bool {
        match self {
            Self::Poll => true,
            Self::At(at) => at <= now,
            Self::Forever => false,
        }
    }

    /// Nanoseconds left at `now`; `None`: without limit.
    pub const fn left(self, now: u64) -> Option<u64> {
        match self {
            Self::Poll => Some(0),
            Self::At(at) => Some(at.saturating_sub(now)),
            Self::Forever => None,
        }
    }
}

/// What came of arming a waiter of a wait set.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// A signal was there, and is taken. The slot comes back.
    Signalled(S),
    /// To sleep until the token is released; the key is for
    /// [`WaitSet::disarm`].
    Waiting(Key),
}

/// The signal of a wait set and who sleeps on it.
pub struct WaitSet<M: DueMap> {
    pending: bool,
    sleepers: Due<M>,
}

impl<M: DueMap> WaitSet<M> {
    /// Without a signal. `sleepers` must be empty.
    pub const fn new(sleepers: M) -> Self {
        Self {
            pending: false,
            sleepers: Due::new(sleepers),
        }
    }

    /// A member has something new: gives back the sleeper to wake, which has
    /// thereby taken the signal, or keeps the signal if nobody sleeps.
    #[must_use = "the sleeper must be woken: the signal is its own"]
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

    /// Whether a signal is pending: what poll(2) on the set's fd asks.
    pub fn pending(&self) -> bool {
        self.pending
    }

    /// Takes a pending signal, or puts a sleeper in line.
    pub fn arm(&mut self, slot: M::Slot) -> Armed<M::Slot> {
        if self.take() {
            return Armed::Signalled(slot);
        }
        Armed::Waiting(self.sleepers.insert(0, slot))
    }

    /// Takes a sleeper out, when its time is over or a signal came. `None`: it
    /// was released before, so it has taken a signal and must report that and
    /// not the timeout, or the signal would be lost.
    pub fn disarm(&mut self, key: &Key) -> Option<M::Token> {
        self.sleepers.remove(key)
    }

    /// Takes all sleepers out of the line, for a wait set that is closed by force.
    /// Nothing else changes.
    pub fn release_all(&mut self, mut release: impl FnMut(M::Token)) {
        while let Some((_, token)) = self.sleepers.pop() {
            release(token);
        }
    }

    /// How many sleep.
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
    fn deadline_of_the_abi() {
        for now in [0, 7, u64::MAX] {
            assert_eq!(Deadline::from_abi(0, now), Deadline::Poll);
            assert_eq!(Deadline::from_abi(u64::MAX, now), Deadline::Forever);
        }
        assert_eq!(Deadline::from_abi(8, 7), Deadline::At(8));
        assert_eq!(
            Deadline::from_abi(u64::MAX - 1, 7),
            Deadline::At(u64::MAX - 1)
        );
        // A time that has passed polls.
        assert_eq!(Deadline::from_abi(7, 7), Deadline::Poll);
        assert_eq!(Deadline::from_abi(1, 7), Deadline::Poll);
    }

    #[test]
    fn deadline_of_the_kernel_interface() {
        assert_eq!(Deadline::from_timeout(0, 5), Deadline::Poll);
        assert_eq!(Deadline::from_timeout(-1, 5), Deadline::Forever);
        assert_eq!(Deadline::from_timeout(i32::MIN, 5), Deadline::Forever);
        assert_eq!(Deadline::from_timeout(3, 5), Deadline::At(3_000_005));
        assert_eq!(
            Deadline::from_timeout(i32::MAX, 0),
            Deadline::At(2_147_483_647_000_000)
        );
        assert_eq!(Deadline::from_timeout(1, u64::MAX), Deadline::At(u64::MAX));
    }

    #[test]
    fn deadline_passes() {
        assert!(Deadline::Poll.passed(0));
        assert!(!Deadline::At(7).passed(6));
        assert!(Deadline::At(7).passed(7));
        assert!(!Deadline::Forever.passed(u64::MAX));
        assert_eq!(Deadline::Poll.left(3), Some(0));
        assert_eq!(Deadline::At(7).left(3), Some(4));
        assert_eq!(Deadline::At(7).left(8), Some(0));
        assert_eq!(Deadline::Forever.left(3), None);
    }

    #[test]
    fn a_signal_nobody_slept_for_is_one_signal() {
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
    fn who_leaves_is_not_woken() {
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
