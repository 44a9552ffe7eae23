// SPDX-License-Identifier: GPL-2.0
//! InfiniBand's encoding of times: codes of 5 bits.
//!
//! The code `n` means 4.096 us * 2^n. Sums can be expressed only approximately, see
//! [`Timeout::ack`].
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

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_timeout))]
mod tests {
    use super::*;

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
