// SPDX-License-Identifier: GPL-2.0
//! Deadlines: until when a blocking call may sleep.
//!
//! The interface takes absolute times of `CLOCK_MONOTONIC` in nanoseconds, so
//! that a call that a signal interrupts can be made again without waiting
//! longer.  Most programs use durations; every blocking call here takes `impl
//! Into<Deadline>`, and a [`Duration`] counts from now.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::abi;

/// An absolute time of `CLOCK_MONOTONIC`, in nanoseconds, as the calls take it.
///
/// ```
/// use kfi::Deadline;
/// use std::time::Duration;
///
/// assert_eq!(Deadline::from(Duration::ZERO), Deadline::POLL);
/// assert_eq!(Deadline::from(None), Deadline::FOREVER);
/// let soon = Deadline::after(Duration::from_millis(10));
/// assert!(soon > Deadline::POLL && soon < Deadline::FOREVER);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// Do not wait: look once.
    pub const POLL: Self = Self(0);

    /// Wait without limit.
    pub const FOREVER: Self = Self(abi::KFABRIC_FOREVER);

    /// That long from now.  [`Duration::ZERO`] is [`Deadline::POLL`], and
    /// more than the clock can hold is [`Deadline::FOREVER`].
    pub fn after(duration: Duration) -> Self {
        if duration.is_zero() {
            return Self::POLL;
        }
        Self::at(monotonic(), duration)
    }

    /// An absolute time of `CLOCK_MONOTONIC` in nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The number that the calls take.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether the time has passed.
    pub fn has_passed(self) -> bool {
        self != Self::FOREVER && self.0 <= monotonic()
    }

    /// The remaining time, `None` for ever; for `poll(2)` and the like.
    pub fn remaining(self) -> Option<Duration> {
        (self != Self::FOREVER).then(|| Duration::from_nanos(self.0.saturating_sub(monotonic())))
    }

    fn at(now: u64, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(now.saturating_add(nanos))
    }
}

impl From<Duration> for Deadline {
    fn from(duration: Duration) -> Self {
        Self::after(duration)
    }
}

/// `None` is for ever.
impl From<Option<Duration>> for Deadline {
    fn from(duration: Option<Duration>) -> Self {
        duration.map_or(Self::FOREVER, Self::after)
    }
}

/// `CLOCK_MONOTONIC` now, in nanoseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts from boot: neither part is ever negative, and 2^64 ns
    // are 584 years.
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_polls() {
        assert_eq!(Deadline::after(Duration::ZERO), Deadline::POLL);
        assert_eq!(Deadline::POLL.as_nanos(), 0);
        assert!(Deadline::POLL.has_passed());
        assert_eq!(Deadline::POLL.remaining(), Some(Duration::ZERO));
    }

    #[test]
    fn forever_never_passes() {
        assert_eq!(Deadline::FOREVER.as_nanos(), u64::MAX);
        assert!(!Deadline::FOREVER.has_passed());
        assert_eq!(Deadline::FOREVER.remaining(), None);
        assert_eq!(Deadline::from(None), Deadline::FOREVER);
    }

    #[test]
    fn saturates() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::FOREVER);
        assert_eq!(
            Deadline::at(u64::MAX - 1, Duration::from_nanos(1)),
            Deadline::FOREVER
        );
        assert_eq!(
            Deadline::at(u64::MAX - 1, Duration::from_nanos(9)),
            Deadline::FOREVER
        );
        assert_eq!(Deadline::at(5, Duration::from_nanos(7)).as_nanos(), 12);
    }

    #[test]
    fn counts_from_now() {
        let before = monotonic();
        let deadline = Deadline::from(Duration::from_secs(100));
        let after = monotonic();
        let start = deadline.as_nanos() - 100_000_000_000;
        assert!((before..=after).contains(&start));
        assert!(!deadline.has_passed());
        let left = deadline.remaining().unwrap();
        assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(90));
    }

    #[test]
    fn passes() {
        let deadline = Deadline::after(Duration::from_nanos(1));
        std::thread::sleep(Duration::from_millis(1));
        assert!(deadline.has_passed());
    }
}
