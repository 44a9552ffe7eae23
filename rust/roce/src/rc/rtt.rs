// SPDX-License-Identifier: GPL-2.0
//! Round trips measured, and from them the time after which a requester asks again.
//!
//! The local ACK timeout of a QP is made for the worst case: tens of milliseconds, where a round
//! trip takes tens of microseconds. A lost last packet, which no NAK tells of, would stand still so
//! long. So a requester sends one packet again, a *probe*, after [`Rtt::patience`]: the smoothed round
//! trip and four times its mean deviation, as TCP's retransmission timer is computed (RFC 6298). A
//! probe is not a retry: it does not count against `retry_cnt`.
//!
//! One packet is measured at a time, and none that was sent twice: its answer could be to either
//! (Karn's rule). Context: any, under the requester's lock. Times in nanoseconds.

/// Patience while nothing is measured.
pub const INITIAL: u64 = 20_000_000;

/// Patience at least: more than a peer's worker waits for a CPU.
pub const SHORTEST: u64 = 1_000_000;

/// Round trips that count as longer count as so long: keeps sums within bounds.
const LONGEST: u64 = 1 << 40;

/// Measured round trips.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    measured: Option<Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    smoothed: u64,
    deviation: u64,
    least: u64,
}

impl Rtt {
    /// Nothing is measured.
    pub const fn new() -> Self {
        Self { measured: None }
    }

    /// A packet was answered after `ns`.
    pub fn sample(&mut self, ns: u64) {
        let ns = ns.min(LONGEST);
        // Sums of a few times LONGEST.
        self.measured = Some(match self.measured {
            None => Measured {
                smoothed: ns,
                deviation: ns / 2,
                least: ns,
            },
            Some(old) => {
                let off = ns.abs_diff(old.smoothed);
                Measured {
                    smoothed: (old.smoothed.wrapping_mul(7).wrapping_add(ns)) / 8,
                    deviation: (old.deviation.wrapping_mul(3).wrapping_add(off)) / 4,
                    least: old.least.min(ns),
                }
            }
        });
    }

    /// Returns the smoothed round trip, 0 if nothing was measured.
    pub fn smoothed(&self) -> u64 {
        self.measured.map_or(0, |measured| measured.smoothed)
    }

    /// Returns the shortest round trip, 0 if nothing was measured: what comes sooner after a packet
    /// is no answer to it.
    pub fn least(&self) -> u64 {
        self.measured.map_or(0, |measured| measured.least)
    }

    /// Returns how long to wait for an answer before a probe.
    pub fn patience(&self) -> u64 {
        self.measured.map_or(INITIAL, |measured| {
            let wait = measured.deviation.wrapping_mul(4);
            wait.wrapping_add(measured.smoothed).max(SHORTEST)
        })
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_rtt))]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured() {
        let rtt = Rtt::new();
        assert_eq!(rtt.patience(), INITIAL);
        assert_eq!(rtt.smoothed(), 0);
        assert_eq!(rtt.least(), 0);
    }

    #[test]
    fn follows_what_it_sees() {
        let mut rtt = Rtt::new();
        rtt.sample(8_000_000);
        assert_eq!(rtt.smoothed(), 8_000_000);
        assert_eq!(rtt.patience(), 24_000_000);
        for _ in 0..100 {
            rtt.sample(500_000);
        }
        assert!(rtt.smoothed() < 501_000);
        assert_eq!(rtt.least(), 500_000);
        assert_eq!(rtt.patience(), SHORTEST);
        rtt.sample(100_000_000);
        assert!(rtt.patience() > 100_000_000);
        assert_eq!(rtt.least(), 500_000);
    }

    #[test]
    fn absurd_times() {
        let mut rtt = Rtt::new();
        rtt.sample(0);
        assert_eq!(rtt.patience(), SHORTEST);
        for _ in 0..100 {
            rtt.sample(u64::MAX);
        }
        assert!(rtt.patience() <= 8 * LONGEST);
        assert_eq!(rtt.least(), 0);
    }
}
