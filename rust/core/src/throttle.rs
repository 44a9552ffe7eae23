// SPDX-License-Identifier: GPL-2.0
//! A limit on the rate of refused memory accesses of a user.
//!
//! A key has 32 bits, so a user could find a key by trying as fast as a host answers. A
//! [`Throttle`] belongs to a group of a user's endpoints and counts their refusals. The first
//! [`FREE`] consecutive refusals have no effect. After that, the accesses of these endpoints to
//! peers' memory begin one at a time, with a delay between them: [`FIRST`] after one more refusal,
//! and twice as long after each further one, up to [`LONGEST`]. Several threads therefore try no
//! more keys than one. Each [`FORGET`] without a refusal reduces the count by one.

use crate::errno::{
    Errno,
    Result, //
};

/// The number of refusals without a delay: a defective program may see as many before it stops.
pub const FREE: u32 = 16;

/// The first delay in nanoseconds.
pub const FIRST: u64 = 1_000_000;

/// The longest delay in nanoseconds.
pub const LONGEST: u64 = 1_000_000_000;

/// The maximum time in nanoseconds that one access waits for its turn, which bounds the time of a
/// call.
pub const MOST: u64 = 8 * LONGEST;

/// The time in nanoseconds without a refusal that reduces the count by one.
pub const FORGET: u64 = 1_000_000_000;

/// The maximum count: the refusals after which the delay is the longest.
const LEVELS: u32 = FREE + 11;

/// The refusals of a group of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// The count at the time `since`.
    level: u32,
    /// The time of the last refusal, or the end of its delay. The count decreases from then on.
    since: u64,
    /// The time at which the next access may begin; 0 means at any time.
    until: u64,
}

impl Throttle {
    /// Returns the state without refusals.
    pub const fn new() -> Self {
        Self {
            level: 0,
            since: 0,
            until: 0,
        }
    }

    /// Returns the time at which the next access may begin. 0 means at any time, without calling
    /// [`enter`](Self::enter).
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// Assigns a turn to an access at time `now`. Returns the time of the turn. Turns are assigned
    /// in order.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the turn would be more than [`MOST`] from now; none is assigned.
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

    /// Records that an access was refused at `now`.
    pub fn refused(&mut self, now: u64) {
        self.level = self.level_at(now).saturating_add(1).min(LEVELS);
        let delay = delay(self.level);
        if delay > 0 {
            self.until = self.until.max(now.saturating_add(delay));
        }
        self.since = self.until.max(now);
    }

    /// Returns the count at `now`.
    fn level_at(&self, now: u64) -> u32 {
        let forgotten = now.saturating_sub(self.since) / FORGET;
        self.level
            .saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

/// Returns the delay in nanoseconds between two accesses after `level` refusals.
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

    /// The time at which the tests begin.
    const START: u64 = 1 << 40;

    /// Refuses `count` accesses, each at the earliest time. Returns the time of the last one.
    fn refuse(throttle: &mut Throttle, mut now: u64, count: u32) -> Result<u64> {
        for _ in 0..count {
            now = throttle.enter(now)?;
            throttle.refused(now);
        }
        Ok(now)
    }

    #[test]
    fn the_first_refusals_cause_no_delay() -> Result {
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
    fn many_threads_are_no_faster_than_one() -> Result {
        let mut throttle = Throttle::new();
        // The accesses of a thousand threads began before the first was refused.
        for _ in 0..1000 {
            throttle.refused(START);
        }
        let (mut now, mut tries) = (START, 0);
        for _ in 0..100 {
            // All want to begin at the same time. They get consecutive turns, and an access that
            // would wait too long gets none.
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
    fn allowed_accesses_are_delayed_for_a_limited_time() -> Result {
        let mut throttle = Throttle::new();
        let begin = refuse(&mut throttle, START, 100)?;
        let (mut now, mut entered) = (begin, 0);
        // The accesses follow each other as fast as allowed.
        while throttle.until() != 0 {
            now = throttle.enter(now)?;
            entered += 1;
        }
        assert!(entered > 1 && now - begin <= u64::from(LEVELS + 2) * LONGEST);
        // No delay is left, but one more refusal counts.
        assert_eq!(throttle.enter(now), Ok(now));
        throttle.refused(now);
        throttle.refused(now);
        assert!(throttle.until() > now);
        Ok(())
    }

    #[test]
    fn time_without_refusals_reduces_the_count() -> Result {
        let mut throttle = Throttle::new();
        let mut now = refuse(&mut throttle, START, 100)?;
        now += FORGET * u64::from(LEVELS) + LONGEST;
        assert_eq!(refuse(&mut throttle, now, FREE)?, now);
        throttle.refused(now);
        assert!(throttle.until() > now);
        // Waiting for the required delay does not reduce the count.
        let mut throttle = Throttle::new();
        let now = refuse(&mut throttle, START, 100)?;
        let then = refuse(&mut throttle, now, 1)?;
        assert_eq!(throttle.enter(then), Ok(then + LONGEST));
        // The times saturate at the end of the number range.
        for _ in 0..100 {
            throttle.refused(u64::MAX);
        }
        assert_eq!(throttle.until(), u64::MAX);
        Ok(())
    }
}
