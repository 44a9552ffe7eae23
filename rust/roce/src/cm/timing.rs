// SPDX-License-Identifier: GPL-2.0
//! When a message is sent again, and when its peer is given up.
//!
//! A message that wants an answer is sent again after [`Timing::first`], then after twice as long,
//! and so on up to the longest interval, until it has been sent once and [`Timing::retries`] times
//! more. The longest interval is [`Timing::longest`], or what the peer says it may take to answer, if
//! that is longer and not more than [`Timing::LIMIT`].
//!
//! That is sooner than the specification asks for, which counts on an answer in the time that the
//! peer named; it costs a datagram where a consumer is slow, and saves seconds where one was lost.
//!
//! A REP is sent fewer times ([`Retry::reply`]), because the source of the REQ may be forged: then
//! each REP goes to a host that has not requested it. A peer that loses a REP repeats its REQ and
//! gets the REP again, so the timer is needed for lost RTUs, and for a peer that has been told to
//! wait (MRA), which repeats its REQ only after that time. A repeated REQ is answered at most once
//! in [`Timing::answer_interval`], for the same reason.

use super::Timeout;

/// Times of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After how long a message is sent again for the first time.
    pub first: Timeout,
    /// The longest interval, unless the peer needs longer.
    pub longest: Timeout,
    /// How often a message is sent again.
    pub retries: u8,
    /// After how long a REP is sent again for the first time.
    pub first_reply: Timeout,
    /// How often the timer sends a REP again; a REP that answers a repeated REQ does not count.
    pub reply_retries: u8,
    /// What a peer is asked to wait (MRA) while the consumer makes up its mind.
    pub service: Timeout,
    /// For how long a peer is waited for that asked to.
    pub longest_service: Timeout,
    /// How long a packet travels at most.
    pub life_time: Timeout,
}

impl Timing {
    /// No interval is longer: 4.3 s, which the reference peer names.
    pub const LIMIT: Timeout = Timeout::new(20);

    /// Values for a network with short round-trip times, in the order of the fields: 134 ms, 1.1 s,
    /// 10 times, so that a peer that does not exist is given up after 9.5 s; 0.5 s, 3 times, so
    /// that a requester that does not exist gets four REPs and, after 8.1 s, a REJ; 17 s; 69 s,
    /// which the reference peer asks for; 34 ms.
    pub const DEFAULT: Self = Self {
        first: Timeout::new(15),
        longest: Timeout::new(18),
        retries: 10,
        first_reply: Timeout::new(17),
        reply_retries: 3,
        service: Timeout::new(22),
        longest_service: Timeout::new(24),
        life_time: Timeout::new(13),
    };
}

impl Timing {
    /// Returns the least time in ns between two answers to a repeated REQ: half of
    /// [`first`](Self::first), so 67 ms by default. A peer with the same times gets an answer to
    /// each REQ that it repeats.
    pub(super) const fn answer_interval(&self) -> u64 {
        self.first.ns() / 2
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A message that is sent until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    /// The next interval.
    next: u64,
    /// The longest one.
    longest: u64,
    /// How often it will still be sent.
    left: u8,
}

impl Retry {
    /// The message is sent for the first time, to a peer that says it may take so long.
    pub(super) fn new(timing: &Timing, peer: Timeout) -> Self {
        let longest = timing.longest.max(peer.min(Timing::LIMIT));
        Self {
            next: timing.first.ns(),
            longest: longest.max(timing.first).ns(),
            left: timing.retries,
        }
    }

    /// A REP is sent for the first time. Its intervals do not depend on the peer.
    pub(super) fn reply(timing: &Timing) -> Self {
        Self {
            next: timing.first_reply.ns(),
            longest: Timing::LIMIT.max(timing.first_reply).ns(),
            left: timing.reply_retries,
        }
    }

    /// Returns how long to wait for an answer.
    pub(super) fn wait(&mut self) -> u64 {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait
    }

    /// There was none: returns whether to send again.
    pub(super) fn again(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Returns the longest interval.
    pub(super) const fn longest(&self) -> u64 {
        self.longest
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_timing))]
mod tests {
    use super::*;

    /// The intervals in code, until the peer is given up.
    fn intervals(timing: &Timing, peer: u8) -> [Option<u8>; 16] {
        let mut retry = Retry::new(timing, Timeout::new(peer));
        let mut intervals = [None; 16];
        for place in &mut intervals {
            *place = Some(Timeout::at_least(retry.wait()).code());
            if !retry.again() {
                break;
            }
        }
        intervals
    }

    fn all(codes: &[u8]) -> [Option<u8>; 16] {
        let mut all = [None; 16];
        for (place, code) in all.iter_mut().zip(codes) {
            *place = Some(*code);
        }
        all
    }

    #[test]
    fn intervals_double_up_to_the_longest() {
        let timing = Timing {
            first: Timeout::new(10),
            longest: Timeout::new(12),
            retries: 4,
            ..Timing::DEFAULT
        };
        assert_eq!(intervals(&timing, 0), all(&[10, 11, 12, 12, 12]));
        assert_eq!(intervals(&timing, 12), all(&[10, 11, 12, 12, 12]));
        // A peer may need longer, but not for ever.
        assert_eq!(intervals(&timing, 13), all(&[10, 11, 12, 13, 13]));
        assert_eq!(
            Retry::new(&timing, Timeout::MAX).longest(),
            Timing::LIMIT.ns()
        );
        let long = Timing {
            retries: 15,
            ..timing
        };
        let up = [
            10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 20, 20, 20, 20, 20,
        ];
        assert_eq!(intervals(&long, 31), all(&up));
    }

    #[test]
    fn odd_settings_are_kept() {
        let once = Timing {
            retries: 0,
            ..Timing::DEFAULT
        };
        assert_eq!(intervals(&once, 0), all(&[15]));
        // The first interval is the longest, if it is longer.
        let slow = Timing {
            first: Timeout::new(21),
            retries: 2,
            ..Timing::DEFAULT
        };
        assert_eq!(intervals(&slow, 0), all(&[21, 21, 21]));
    }

    #[test]
    fn a_reply_is_sent_four_times() {
        let mut retry = Retry::reply(&Timing::DEFAULT);
        let waits = [17, 18, 19, 20].map(|code| Timeout::new(code).ns());
        for wait in waits {
            assert_eq!(retry.wait(), wait);
            assert_eq!(retry.again(), wait != Timing::LIMIT.ns());
        }
        assert_eq!(waits.iter().sum::<u64>() / 100_000_000, 80);
    }

    #[test]
    fn a_peer_that_does_not_exist_is_given_up() {
        let mut retry = Retry::new(&Timing::DEFAULT, Timeout::new(0));
        let mut sum = retry.wait();
        while retry.again() {
            sum += retry.wait();
        }
        assert_eq!(sum / 100_000_000, 95);
    }
}
