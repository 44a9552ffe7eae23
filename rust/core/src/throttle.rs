// SPDX-License-Identifier: GPL-2.0
//! How fast a user may be refused access to memory.
//!
//! A key has 32 bits, so whoever may try as fast as a host answers finds one. A [`Throttle`] belongs to
//! a user and is told of each refusal. The first [`FREE`] in a row cost nothing; each one more delays
//! the user's next access to a peer's memory, by [`FIRST`] and then twice as long each time, up to
//! [`LONGEST`]. Delays of refusals that came at the same time add up, so that many threads try no more
//! keys than one; one access waits at most [`MOST`]. Each [`FORGET`] without a refusal, behind the last
//! delay, takes back one.

/// Refusals that cost nothing: what a program with an error in it may see before it gives up.
pub const FREE: u32 = 16;

/// Nanoseconds of the first delay.
pub const FIRST: u64 = 1_000_000;

/// Nanoseconds of the longest delay of one refusal.
pub const LONGEST: u64 = 1_000_000_000;

/// Nanoseconds that one access waits at most, whatever was refused: a call ends in bounded time.
pub const MOST: u64 = 8 * LONGEST;

/// Nanoseconds without a refusal after which one is forgotten.
pub const FORGET: u64 = 1_000_000_000;

/// Refusals that are remembered: those after which the delay is the longest.
const LEVELS: u32 = FREE + 11;

/// The refusals of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Refusals that are not forgotten.
    level: u32,
    /// When the last was, or when its delay ends: forgetting begins there.
    since: u64,
    /// When the next access may be made.
    until: u64,
}

impl Throttle {
    /// Nothing was refused.
    pub const fn new() -> Self {
        Self {
            level: 0,
            since: 0,
            until: 0,
        }
    }

    /// An access was refused at `now`. Returns when the user's next may be made.
    pub fn refused(&mut self, now: u64) -> u64 {
        let forgotten = now.saturating_sub(self.since) / FORGET;
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        self.level = self.level.saturating_sub(forgotten).saturating_add(1);
        self.level = self.level.min(LEVELS);
        if let Some(beyond) = self.level.checked_sub(FREE.saturating_add(1)) {
            let delay = FIRST.checked_shl(beyond).unwrap_or(LONGEST).min(LONGEST);
            let most = now.saturating_add(MOST);
            self.until = self.until.max(now).saturating_add(delay).min(most);
        }
        self.since = self.until.max(now);
        self.until
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_throttle))]
mod tests {
    use super::*;

    /// A time to begin at.
    const START: u64 = 1 << 40;

    #[test]
    fn the_first_refusals_cost_nothing() {
        let mut throttle = Throttle::new();
        for _ in 0..FREE {
            assert!(throttle.refused(START) <= START);
        }
        assert_eq!(throttle.refused(START), START + FIRST);
    }

    #[test]
    fn delays_grow_to_the_longest() {
        let mut throttle = Throttle::new();
        let mut now = START;
        let mut last = 0;
        for count in 0..100 {
            let until = throttle.refused(now);
            if count >= FREE {
                let delay = until - now;
                assert!(delay == LONGEST || delay == FIRST || delay == 2 * last);
                last = delay;
                now = until;
            }
        }
        assert_eq!(last, LONGEST);
    }

    #[test]
    fn many_at_once_are_no_faster() {
        let mut throttle = Throttle::new();
        for _ in 0..100 {
            throttle.refused(START);
        }
        // Eight seconds' worth of guesses each eight seconds.
        assert_eq!(throttle.refused(START), START + MOST);
        let (mut now, mut tries) = (START, 0u64);
        while now < START + 1000 * LONGEST {
            now = throttle.refused(now).max(now);
            tries += 1;
        }
        assert!(tries <= 1001);
    }

    #[test]
    fn quiet_time_is_forgiven() {
        let mut throttle = Throttle::new();
        let mut now = START;
        for _ in 0..100 {
            now = throttle.refused(now).max(now);
        }
        now += FORGET * u64::from(LEVELS);
        for _ in 0..FREE {
            assert!(throttle.refused(now) <= now);
        }
        assert!(throttle.refused(now) > now);
        // Not by waiting as long as one must.
        let mut throttle = Throttle::new();
        for _ in 0..100 {
            throttle.refused(START);
        }
        let until = throttle.refused(START);
        assert_eq!(throttle.refused(until), until + LONGEST);
        // Time that runs out does not wrap.
        for _ in 0..100 {
            throttle.refused(u64::MAX);
        }
        assert_eq!(throttle.refused(u64::MAX), u64::MAX);
    }
}
