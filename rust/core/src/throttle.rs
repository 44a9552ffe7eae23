// SPDX-License-Identifier: GPL-2.0
//! How fast a user may be refused access to memory.
//!
//! A key has 32 bits, so whoever may try as fast as a host answers finds one. A [`Throttle`] belongs to
//! a part of a user's endpoints and is told of each refusal. The first [`FREE`] in a row cost nothing.
//! After that the accesses of these endpoints to peers' memory begin one by one, with a delay between
//! them that is [`FIRST`] after one more refusal, and twice as long after each further one, up to
//! [`LONGEST`]. So many threads try no more keys than one. Each [`FORGET`] without a refusal takes back
//! one.

use crate::errno::{
    Errno,
    Result, //
};

/// Refusals that cost nothing: what a program with an error in it may see before it gives up.
pub const FREE: u32 = 16;

/// Nanoseconds of the first delay.
pub const FIRST: u64 = 1_000_000;

/// Nanoseconds of the longest delay.
pub const LONGEST: u64 = 1_000_000_000;

/// Nanoseconds that one access waits at most for its turn: a call ends in bounded time.
pub const MOST: u64 = 8 * LONGEST;

/// Nanoseconds without a refusal after which one is forgotten.
pub const FORGET: u64 = 1_000_000_000;

/// Refusals that are remembered: those after which the delay is the longest.
const LEVELS: u32 = FREE + 11;

/// The refusals of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Refusals that were not forgotten at `since`.
    level: u32,
    /// When the last was, or when its delay ends: forgetting begins there.
    since: u64,
    /// When the next access may enter; 0: at any time.
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

    /// Returns when the next access may enter; 0: at any time, without [`enter`](Self::enter).
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// An access is to be made at `now`: returns when its turn is. Turns are given in order.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: its turn would be more than [`MOST`] from now; it has none.
    pub fn enter(&mut self, now: u64) -> Result<u64> {
        let turn = self.until.max(now);
        if turn - now > MOST {
            return Err(Errno::EAGAIN);
        }
        self.until = match delay(self.level_at(now)) {
            0 if turn == now => 0,
            delay => turn.saturating_add(delay),
        };
        Ok(turn)
    }

    /// An access was refused at `now`.
    pub fn refused(&mut self, now: u64) {
        self.level = self.level_at(now).saturating_add(1).min(LEVELS);
        let delay = delay(self.level);
        if delay > 0 {
            self.until = self.until.max(now.saturating_add(delay));
        }
        self.since = self.until.max(now);
    }

    /// Refusals that are not forgotten.
    fn level_at(&self, now: u64) -> u32 {
        let forgotten = now.saturating_sub(self.since) / FORGET;
        self.level
            .saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

/// Nanoseconds between two accesses after `level` refusals.
fn delay(level: u32) -> u64 {
    match level.checked_sub(FREE.saturating_add(1)) {
        None => 0,
        Some(beyond) => FIRST.checked_shl(beyond).unwrap_or(LONGEST).min(LONGEST),
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_throttle))]
mod tests {
    use super::*;

    /// A time to begin at.
    const START: u64 = 1 << 40;

    /// Has `count` accesses refused, each as early as it may be made; when the last was.
    fn refuse(throttle: &mut Throttle, mut now: u64, count: u32) -> Result<u64> {
        for _ in 0..count {
            now = throttle.enter(now)?;
            throttle.refused(now);
        }
        Ok(now)
    }

    #[test]
    fn the_first_refusals_cost_nothing() -> Result {
        let mut throttle = Throttle::new();
        assert_eq!(refuse(&mut throttle, START, FREE)?, START);
        assert_eq!((throttle.until(), throttle.enter(START)), (0, Ok(START)));
        throttle.refused(START);
        assert_eq!(throttle.until(), START + FIRST);
        assert_eq!(throttle.enter(START), Ok(START + FIRST));
        Ok(())
    }

    #[test]
    fn delays_grow_to_the_longest() -> Result {
        let mut throttle = Throttle::new();
        let mut now = refuse(&mut throttle, START, FREE)?;
        let mut last = 0;
        for _ in 0..20 {
            let before = now;
            now = refuse(&mut throttle, now, 1)?;
            let delay = now - before;
            assert!(delay == 0 || delay == LONGEST || delay == FIRST || delay == 2 * last);
            last = delay;
        }
        assert_eq!(last, LONGEST);
        Ok(())
    }

    #[test]
    fn many_at_once_are_no_faster_than_one() -> Result {
        let mut throttle = Throttle::new();
        // A thousand threads whose accesses were under way before the first was refused.
        for _ in 0..1000 {
            throttle.refused(START);
        }
        let (mut now, mut tries) = (START, 0);
        for _ in 0..100 {
            // All want to enter at the same time: their turns come one after the other, and whoever
            // would wait too long has none.
            let first = throttle.enter(now)?;
            let mut last = first;
            let mut entered = 1;
            while let Ok(turn) = throttle.enter(now) {
                assert!(turn - now <= MOST && turn == last + LONGEST);
                last = turn;
                entered += 1;
            }
            for number in 0..entered {
                throttle.refused(first + number * LONGEST);
            }
            now = last;
            tries += entered;
        }
        assert!(tries > 100 && tries <= (now - START) / LONGEST + 1);
        Ok(())
    }

    #[test]
    fn good_accesses_are_delayed_for_some_time_only() -> Result {
        let mut throttle = Throttle::new();
        let begin = refuse(&mut throttle, START, 100)?;
        let (mut now, mut entered) = (begin, 0);
        // One after another, as fast as they may.
        while throttle.until() != 0 {
            now = throttle.enter(now)?;
            entered += 1;
        }
        assert!(entered > 1 && now - begin <= u64::from(LEVELS + 2) * LONGEST);
        // Nothing is left of it, but one more refusal counts.
        assert_eq!(throttle.enter(now), Ok(now));
        throttle.refused(now);
        throttle.refused(now);
        assert!(throttle.until() > now);
        Ok(())
    }

    #[test]
    fn quiet_time_is_forgiven() -> Result {
        let mut throttle = Throttle::new();
        let mut now = refuse(&mut throttle, START, 100)?;
        now += FORGET * u64::from(LEVELS) + LONGEST;
        assert_eq!(refuse(&mut throttle, now, FREE)?, now);
        throttle.refused(now);
        assert!(throttle.until() > now);
        // Not by waiting as long as one must.
        let mut throttle = Throttle::new();
        let now = refuse(&mut throttle, START, 100)?;
        let then = refuse(&mut throttle, now, 1)?;
        assert_eq!(throttle.enter(then), Ok(then + LONGEST));
        // Time that runs out does not wrap.
        for _ in 0..100 {
            throttle.refused(u64::MAX);
        }
        assert_eq!(throttle.until(), u64::MAX);
        Ok(())
    }
}
