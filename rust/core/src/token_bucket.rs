// SPDX-License-Identifier: GPL-2.0
//! Token bucket: a limit on the rate of events.

/// A token bucket: it gets a token each `INTERVAL` ns, and holds at most `BURST` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket<const INTERVAL: u64, const BURST: u64> {
    /// The time in ns at which the bucket is full again. Each token that is taken moves it by
    /// `INTERVAL`.
    full_at: u64,
}

impl<const INTERVAL: u64, const BURST: u64> TokenBucket<INTERVAL, BURST> {
    /// Returns a full bucket.
    pub const fn new() -> Self {
        Self { full_at: 0 }
    }

    /// Takes a token at time `now` in ns. Returns false if there is none.
    pub fn take(&mut self, now: u64) -> bool {
        let full_at = self.full_at.max(now).saturating_add(INTERVAL);
        let has_token = full_at.saturating_sub(now) <= INTERVAL.saturating_mul(BURST);
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_token_bucket))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_a_burst_and_then_a_token_each_interval() {
        let mut bucket = TokenBucket::<10, 3>::new();
        let taken =
            |bucket: &mut TokenBucket<10, 3>, now| (0..9).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(&mut bucket, 1_000), 3);
        assert_eq!(taken(&mut bucket, 1_009), 0);
        assert_eq!(taken(&mut bucket, 1_010), 1);
        assert_eq!(taken(&mut bucket, 1_035), 2);
        // At most a burst is saved up.
        assert_eq!(taken(&mut bucket, 9_000), 3);
    }

    #[test]
    fn the_first_and_the_last_time_are_valid() {
        let mut bucket = TokenBucket::<10, 1>::new();
        assert!(bucket.take(0) && !bucket.take(0));
        assert!(bucket.take(u64::MAX));
    }
}
