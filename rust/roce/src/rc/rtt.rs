// SPDX-License-Identifier: GPL-2.0
//! Measurement of round-trip times, and the probe interval that follows from it.
//!
//! The local ACK timeout of a QP allows for the worst case: tens of milliseconds, where a round
//! trip takes tens of microseconds. If the last packet is lost, no NAK reports it, and the QP would
//! wait that long. A requester therefore retransmits one packet, a *probe*, after
//! [`Rtt::patience`]: the smoothed round-trip time plus four times its mean deviation, like the
//! retransmission timer of TCP (RFC 6298). A probe is not a retry: it does not count against
//! `retry_cnt`.
//!
//! One packet is measured at a time, and never a retransmitted one, because its response could
//! belong to either transmission (Karn's algorithm). Context: any, under the requester's lock.
//! Times are in nanoseconds.

/// The probe interval before the first measurement.
pub const INITIAL: u64 = 20_000_000;

/// The shortest probe interval: longer than a worker of the peer waits for a CPU.
pub const SHORTEST: u64 = 1_000_000;

/// The upper bound of a measured round-trip time. It keeps the sums in range.
const LONGEST: u64 = 1 << 40;

/// The measured round-trip times.
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
    /// Returns the state before the first measurement.
    pub const fn new() -> Self {
        Self { measured: None }
    }

    /// Adds a measurement of `ns`.
    pub fn sample(&mut self, ns: u64) {
        let ns = ns.min(LONGEST);
        // The sums are a few times LONGEST at most.
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

    /// Returns the smoothed round-trip time; 0 before the first measurement.
    pub fn smoothed(&self) -> u64 {
        self.measured.map_or(0, |measured| measured.smoothed)
    }

    /// Returns the shortest round-trip time; 0 before the first measurement. A packet that arrives
    /// sooner after a transmission is not a response to it.
    pub fn least(&self) -> u64 {
        self.measured.map_or(0, |measured| measured.least)
    }

    /// Returns how long to wait for a response before a probe.
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
    fn the_interval_is_fixed_before_the_first_measurement() {
        let rtt = Rtt::new();
        assert_eq!(rtt.patience(), INITIAL);
        assert_eq!(rtt.smoothed(), 0);
        assert_eq!(rtt.least(), 0);
    }

    #[test]
    fn the_interval_follows_the_measurements() {
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
    fn very_long_round_trips_are_limited() {
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
