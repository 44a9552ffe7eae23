// SPDX-License-Identifier: GPL-2.0
//! Timeouts and retransmission of CM messages.
//!
//! A message that needs an answer is retransmitted after [`Timing::first`]. The interval then
//! doubles up to the longest interval, until the message has been retransmitted [`Timing::retries`]
//! times. The longest interval is [`Timing::longest`], or the response time that the peer gives if
//! that is longer, but at most [`Timing::LIMIT`].
//!
//! The specification waits for the response time of the peer before each retransmission. These
//! intervals are shorter: they cost a datagram when a consumer is slow, and save seconds when a
//! datagram was lost.
//!
//! A REP is retransmitted fewer times ([`Retry::reply`]), because the source of the REQ may be
//! forged, and each REP then goes to a host that has not requested it. A peer that loses a REP
//! repeats its REQ and gets the REP again. So the timer is needed only for lost RTUs, and for a
//! peer that an MRA has asked to wait, because that peer repeats its REQ only after that time. For
//! the same reason a repeated REQ is answered at most once in [`Timing::answer_interval`].
//!
//! Times on the wire are codes of 5 bits ([`Timeout`]): the code `n` means 4.096 us * 2^n. Sums can
//! be expressed only approximately, see [`Timeout::ack`].
//!
//! Source: InfiniBand specification, volume 1, sections 12.7.20, 12.7.21, 12.7.34.

/// A time, as a code of 5 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(u8);

impl Timeout {
    /// The longest time, 2.4 hours.
    pub const MAX: Self = Self(31);

    /// Returns the time with the low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & Self::MAX.0)
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time in nanoseconds.
    pub const fn ns(self) -> u64 {
        // At most 2^43.
        4096 << self.0
    }

    /// Returns the shortest time of at least `ns` nanoseconds, or the longest one if there is none.
    pub fn at_least(ns: u64) -> Self {
        (0..Self::MAX.0)
            .map(Self)
            .find(|timeout| timeout.ns() >= ns)
            .unwrap_or(Self::MAX)
    }

    /// Returns the local ACK timeout for a packet life time and the ACK delay of the peer: the time
    /// for a packet and its acknowledgement to travel, and for the peer to respond.
    ///
    /// The sum of two times is approximated by the longer one, or by twice the longer one if they
    /// differ by less than a factor of two.
    pub fn ack(life_time: Self, ack_delay: Self) -> Self {
        let travel = life_time.0.saturating_add(1);
        let (long, short) = (travel.max(ack_delay.0), travel.min(ack_delay.0));
        let near = long.abs_diff(short) <= 1;
        Self(long.saturating_add(u8::from(near)).min(Self::MAX.0))
    }
}

/// Timeouts and retry counts of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time before the first retransmission.
    pub first: Timeout,
    /// The longest interval between retransmissions, unless the peer needs longer.
    pub longest: Timeout,
    /// The number of retransmissions.
    pub retries: u8,
    /// The time before the first retransmission of a REP.
    pub first_reply: Timeout,
    /// The number of retransmissions of a REP by the timer. A REP that answers a repeated REQ does
    /// not count.
    pub reply_retries: u8,
    /// The time for which an MRA asks the peer to wait while the consumer decides.
    pub service: Timeout,
    /// The longest time to wait for a peer that has sent an MRA.
    pub longest_service: Timeout,
    /// The maximum life time of a packet in the network.
    pub life_time: Timeout,
}

impl Timing {
    /// The upper bound of the interval that a peer can cause: 4.3 s, the value that in-tree rxe
    /// uses.
    pub const LIMIT: Timeout = Timeout::new(20);

    /// Values for a network with short round-trip times, in the order of the fields: 134 ms, 1.1 s
    /// and 10 retransmissions, so that a request to a host that does not exist fails after 9.5 s;
    /// 0.5 s and 3 retransmissions, so that a forged requester gets four REPs and, after 8.1 s, a
    /// REJ; 17 s; 69 s, which Linux's RDMA CM asks for; 34 ms.
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
    /// Returns the minimum time in ns between two answers to a repeated REQ: half of
    /// [`first`](Self::first), 67 ms by default. A peer with the same timing gets an answer to each
    /// REQ that it repeats.
    pub(super) const fn answer_interval(&self) -> u64 {
        self.first.ns() / 2
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The retransmission state of a message that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    /// The next interval in ns.
    next: u64,
    /// The longest interval in ns.
    longest: u64,
    /// The number of retransmissions that are left.
    left: u8,
}

impl Retry {
    /// Returns the state for a message that is sent for the first time, to a peer with the response
    /// time `peer`.
    pub(super) fn new(timing: &Timing, peer: Timeout) -> Self {
        let longest = timing.longest.max(peer.min(Timing::LIMIT));
        Self {
            next: timing.first.ns(),
            longest: longest.max(timing.first).ns(),
            left: timing.retries,
        }
    }

    /// Returns the state for a REP that is sent for the first time. Its intervals do not depend on
    /// the peer.
    pub(super) fn reply(timing: &Timing) -> Self {
        Self {
            next: timing.first_reply.ns(),
            longest: Timing::LIMIT.max(timing.first_reply).ns(),
            left: timing.reply_retries,
        }
    }

    /// Returns the time in ns to wait for an answer, and doubles the next interval.
    pub(super) fn wait(&mut self) -> u64 {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait
    }

    /// Counts a timeout. Returns whether to retransmit.
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

    /// Returns the codes of the intervals until the connection fails.
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
        // A peer may extend the interval, up to a limit.
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
    fn a_first_interval_beyond_the_longest_is_used() {
        let once = Timing {
            retries: 0,
            ..Timing::DEFAULT
        };
        assert_eq!(intervals(&once, 0), all(&[15]));
        // The first interval is used even if it is longer than `longest`.
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
    #[test]
    fn codes_convert_to_times_and_back() {
        assert_eq!(Timeout::new(0).ns(), 4_096);
        assert_eq!(Timeout::new(14).ns(), 67_108_864);
        assert_eq!(Timeout::new(20).ns(), 4_294_967_296);
        assert_eq!(Timeout::MAX.ns(), 8_796_093_022_208);
        assert_eq!(Timeout::new(0xff), Timeout::MAX);
        for (ns, code) in [
            (0, 0),
            (4_096, 0),
            (4_097, 1),
            (67_108_864, 14),
            (u64::MAX, 31),
        ] {
            assert_eq!(Timeout::at_least(ns).code(), code);
        }
    }

    #[test]
    fn ack_timeouts_cover_travel_and_delay() {
        // The same values as in-tree rxe: a life time of 16 and no delay give 17.
        for (life, delay, ack) in [
            (16, 0, 17),
            (16, 15, 17),
            (16, 16, 18),
            (16, 17, 18),
            (16, 18, 19),
            (16, 19, 19),
            (0, 0, 2),
            (31, 0, 31),
            (31, 31, 31),
            (0, 31, 31),
        ] {
            let timeout = Timeout::ack(Timeout::new(life), Timeout::new(delay));
            assert_eq!(timeout.code(), ack);
        }
    }
}
