// SPDX-License-Identifier: GPL-2.0
//! Packet sequence numbers.
//!
//! The packets of a QP are numbered modulo 2^24. Numbers are compared by their distance: a number
//! that is less than half the number space ahead is later, any other is earlier (InfiniBand
//! specification, volume 1, section 9.7.1). A requester therefore has at most [`Psn::HALF`] packets
//! outstanding; with more, the responder would take a new packet for an old one.
//!
//! The message sequence number of a responder (MSN, in every AETH) is counted in the same way and
//! is a [`Psn`] too.

/// A packet sequence number.
///
/// # Invariants
///
/// At most [`Psn::MASK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The 24 bits of a PSN, and the largest one.
    pub const MASK: u32 = 0xff_ffff;

    /// Half the number space: the maximum number of outstanding PSNs.
    pub const HALF: u32 = 0x80_0000;

    /// Returns the PSN in the low 24 bits of `bits`.
    #[inline]
    pub const fn new(bits: u32) -> Self {
        // INVARIANT: The value is masked.
        Self(bits & Self::MASK)
    }

    /// Returns the number, at most [`Psn::MASK`].
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the PSN that is `packets` later.
    #[inline]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// Returns the PSN that is `packets` earlier.
    #[inline]
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// Returns the next PSN.
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns the number of packets from `first`, included, up to this one, excluded: at most
    /// [`Psn::MASK`].
    #[inline]
    pub const fn since(self, first: Self) -> u32 {
        self.0.wrapping_sub(first.0) & Self::MASK
    }

    /// Returns whether this PSN is earlier than `other`: at least half the number space ahead of
    /// it.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) >= Self::HALF
    }

    /// Returns whether this one is among the `packets` PSNs that begin with `first`.
    #[inline]
    pub const fn is_within(self, first: Self, packets: u32) -> bool {
        self.since(first) < packets
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_psn))]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(0xffff_ffff).get(), Psn::MASK);
        assert_eq!(Psn::new(Psn::MASK).next(), Psn::new(0));
        assert_eq!(Psn::new(Psn::MASK - 1).add(5), Psn::new(3));
        assert_eq!(Psn::new(3).sub(5), Psn::new(Psn::MASK - 1));
        assert_eq!(Psn::new(3).since(Psn::new(Psn::MASK - 1)), 5);
        assert_eq!(Psn::new(7).since(Psn::new(7)), 0);
        assert_eq!(Psn::new(7).since(Psn::new(8)), Psn::MASK);
    }

    #[test]
    fn half_the_circle_is_earlier() {
        for base in [0, 1, Psn::HALF, Psn::MASK] {
            let psn = Psn::new(base);
            assert!(!psn.is_before(psn));
            assert!(psn.is_before(psn.add(1)));
            assert!(psn.is_before(psn.add(Psn::HALF - 1)));
            // For a responder that expects `psn`, the PSN half the number space back is still a
            // duplicate.
            assert!(psn.sub(Psn::HALF).is_before(psn));
            assert!(!psn.add(1).is_before(psn));
            assert!(!psn.add(Psn::HALF - 1).is_before(psn));
        }
    }

    #[test]
    fn ranges_may_wrap() {
        let first = Psn::new(Psn::MASK);
        assert!(!first.is_within(first, 0));
        assert!(first.is_within(first, 1));
        assert!(Psn::new(1).is_within(first, 3));
        assert!(!Psn::new(2).is_within(first, 3));
        assert!(!first.sub(1).is_within(first, 3));
    }
}
