// SPDX-License-Identifier: GPL-2.0
//! The window: how many packets a requester has outstanding.
//!
//! Nobody tells a requester how much the network and its peer can hold, so it finds out: it begins
//! with [`INITIAL`] packets, doubles with each round trip until packets are lost, halves then, and
//! from there on grows by one packet with each round trip. Where nothing is lost that ends at the
//! largest window that the QP was given, where one packet in a hundred is lost at about a dozen:
//! go-back-N sends a whole window again for each lost packet, so a small one is the better one
//! there.
//!
//! A loss that a NAK tells of halves the window; one that only a timer tells of means that nothing
//! came through, and leaves [`AFTER_SILENCE`]. If it turns out then that everything had come through
//! and just the answer was late, [`Window::undo`] takes it back.
//!
//! Responses to a READ count as much as requests: the requester asks for no more than the window
//! holds. Context: any, under the requester's lock.

/// Packets at the beginning: a message of 64 KiB at an MTU of 1024, in one go.
pub const INITIAL: u32 = 64;

/// Packets at least, after however many losses: with one lost another comes through and tells.
pub const SMALLEST: u32 = 2;

/// Packets when a timer has expired: one, which shall be answered.
pub const AFTER_SILENCE: u32 = 1;

/// Packets at most, unless the QP is given another limit: 1 MiB at an MTU of 4096.
pub const DEFAULT_LARGEST: u32 = 256;

/// Largest limit that a QP can be given. Far below half the circle of PSNs, and more than fits into
/// a network.
pub const LARGEST: u32 = 1 << 16;

/// A window that adapts.
///
/// # Invariants
///
/// `1 <= size <= largest <= LARGEST`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: u32,
    largest: u32,
    /// Below it the window grows with each packet, from it on with each window of packets.
    threshold: u32,
    /// Packets acknowledged towards the next step.
    credit: u32,
    /// Size and threshold before the last silence.
    before: Option<(u32, u32)>,
}

impl Window {
    /// Makes a window that holds `largest` packets at most: within 1 and [`LARGEST`].
    pub const fn new(largest: u32) -> Self {
        let largest = match largest {
            0 => 1,
            1..=LARGEST => largest,
            _ => LARGEST,
        };
        // INVARIANT: By the cases.
        Self {
            size: if largest < INITIAL { largest } else { INITIAL },
            largest,
            threshold: largest,
            credit: 0,
            before: None,
        }
    }

    /// Returns how many packets may be outstanding.
    #[inline]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns how many there may ever be.
    pub const fn largest(&self) -> u32 {
        self.largest
    }

    /// `acked` packets more were acknowledged, when `outstanding` were outstanding. The window grows
    /// only if it was in use: what is not used is not known to hold.
    pub fn acknowledged(&mut self, acked: u32, outstanding: u32) {
        self.before = None;
        if outstanding < self.size / 2 || self.size >= self.largest {
            return;
        }
        let size = if self.size < self.threshold {
            // Not beyond the threshold in one step.
            let step = acked.min(self.threshold.wrapping_sub(self.size));
            self.size.saturating_add(step)
        } else {
            self.credit = self.credit.saturating_add(acked);
            if self.credit < self.size {
                return;
            }
            self.credit = 0;
            self.size.saturating_add(1)
        };
        // INVARIANT: It grew, and not beyond the largest.
        self.size = size.min(self.largest);
    }

    /// A packet was lost: the responder or the local stack says so. Once for all packets of a window.
    pub fn lost(&mut self) {
        self.before = None;
        // INVARIANT: Smaller, and not 0.
        self.size = (self.size / 2).max(SMALLEST).min(self.largest);
        self.threshold = self.size;
        self.credit = 0;
    }

    /// A timer expired.
    pub fn silence(&mut self) {
        if self.before.is_none() {
            self.before = Some((self.size, self.threshold));
            self.threshold = (self.size / 2).max(SMALLEST);
        }
        // INVARIANT: At most the largest, which is not 0.
        self.size = AFTER_SILENCE;
        self.credit = 0;
    }

    /// The silence was no loss: an answer came to what was sent before it. Returns whether there was
    /// a silence.
    pub fn undo(&mut self) -> bool {
        let Some((size, threshold)) = self.before.take() else {
            return false;
        };
        // INVARIANT: As it was.
        self.size = size;
        self.threshold = threshold;
        true
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_window))]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (largest, size) in [
            (0, 1),
            (1, 1),
            (10, 10),
            (INITIAL, INITIAL),
            (1000, INITIAL),
            (u32::MAX, INITIAL),
        ] {
            let window = Window::new(largest);
            assert_eq!(window.size(), size);
            assert_eq!(window.largest(), largest.clamp(1, LARGEST));
        }
        let mut one = Window::new(1);
        one.lost();
        assert_eq!(one.size(), 1);
        one.silence();
        one.acknowledged(5, 1);
        assert_eq!(one.size(), 1);
        let mut wide = Window::new(u32::MAX);
        for _ in 0..40 {
            let size = wide.size();
            wide.acknowledged(size, size);
        }
        assert_eq!(wide.size(), LARGEST);
    }

    #[test]
    fn doubles_then_halves_then_creeps() {
        let mut window = Window::new(1000);
        window.acknowledged(64, 64);
        assert_eq!(window.size(), 128);
        window.acknowledged(128, 128);
        assert_eq!(window.size(), 256);
        window.lost();
        assert_eq!(window.size(), 128);
        // Two round trips, two packets.
        window.acknowledged(127, 128);
        assert_eq!(window.size(), 128);
        window.acknowledged(1, 128);
        assert_eq!(window.size(), 129);
        window.acknowledged(129, 129);
        assert_eq!(window.size(), 130);
        for _ in 0..20 {
            window.lost();
        }
        assert_eq!(window.size(), SMALLEST);
    }

    #[test]
    fn does_not_grow_unused() {
        let mut window = Window::new(1000);
        window.acknowledged(31, 31);
        assert_eq!(window.size(), 64);
        window.acknowledged(1, 32);
        assert_eq!(window.size(), 65);
    }

    #[test]
    fn silence_leaves_one_and_regains_half() {
        let mut window = Window::new(100);
        window.silence();
        assert_eq!(window.size(), AFTER_SILENCE);
        window.silence();
        for _ in 0..10 {
            let size = window.size();
            window.acknowledged(size, size);
        }
        // 1, 2, 4, 8, 16, 32, and then one by one.
        assert_eq!(window.size(), 37);
    }

    #[test]
    fn a_silence_that_was_none_is_undone() {
        let mut window = Window::new(100);
        assert!(!window.undo());
        window.silence();
        window.silence();
        assert!(window.undo());
        assert_eq!(window.size(), 64);
        assert!(!window.undo());
        window.acknowledged(64, 64);
        assert_eq!(window.size(), 100);
        window.silence();
        window.acknowledged(1, 1);
        assert!(!window.undo());
    }
}
