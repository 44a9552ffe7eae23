// SPDX-License-Identifier: GPL-2.0
//! The congestion window: how many packets a requester may have outstanding.
//!
//! A requester does not know the capacity of the network and of its peer, so it adapts. It begins
//! with [`INITIAL`] packets, doubles the window with each round trip until packets are lost, then
//! halves it, and from then on adds one packet with each round trip. Without losses the window
//! reaches the largest size that the QP allows. With one packet in a hundred lost it stays at about
//! a dozen: go-back-N retransmits a whole window for each lost packet, so a small window is better
//! there.
//!
//! A loss that a NAK reports halves the window. A loss that only a timer detects means that no
//! response came, and reduces the window to [`AFTER_SILENCE`]. If a response then shows that only
//! the response was late, [`Window::undo`] restores the window.
//!
//! READ responses count like requests: the requester asks for no more than the window holds.
//! Context: any, under the requester's lock.

/// The initial number of packets: a message of 64 KiB at an MTU of 1024.
pub const INITIAL: u32 = 64;

/// The smallest window after reported losses: if one packet is lost, the other one causes a
/// response.
pub const SMALLEST: u32 = 2;

/// The window after a timer has expired: one packet, which requests a response.
pub const AFTER_SILENCE: u32 = 1;

/// The default for the largest window: 1 MiB at an MTU of 4096.
pub const DEFAULT_LARGEST: u32 = 256;

/// The largest window that a QP can be given. It is far below half the number space of PSNs, and
/// more than a network holds.
pub const LARGEST: u32 = 1 << 16;

/// An adaptive window.
///
/// # Invariants
///
/// `1 <= size <= largest <= LARGEST`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: u32,
    largest: u32,
    /// Below this size the window grows with each packet, from it on with each window of packets.
    threshold: u32,
    /// The number of acknowledged packets that count towards the next step.
    credit: u32,
    /// Size and threshold before the last timeout.
    before: Option<(u32, u32)>,
}

impl Window {
    /// Makes a window of at most `largest` packets, limited to 1 to [`LARGEST`].
    pub const fn new(largest: u32) -> Self {
        let largest = match largest {
            0 => 1,
            1..=LARGEST => largest,
            _ => LARGEST,
        };
        // INVARIANT: The cases above ensure the range.
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

    /// Returns the largest size that the window can reach.
    pub const fn largest(&self) -> u32 {
        self.largest
    }

    /// Records that `acked` more packets were acknowledged when `outstanding` were outstanding. The
    /// window grows only if it was in use, because the capacity beyond the used part is unknown.
    pub fn acknowledged(&mut self, acked: u32, outstanding: u32) {
        self.before = None;
        if outstanding < self.size / 2 || self.size >= self.largest {
            return;
        }
        let size = if self.size < self.threshold {
            // One step does not go beyond the threshold.
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
        // INVARIANT: The size grew, and is at most the largest.
        self.size = size.min(self.largest);
    }

    /// Records a loss that the responder or the local stack reported. Called once for all packets
    /// of a window.
    pub fn lost(&mut self) {
        self.before = None;
        // INVARIANT: The size is smaller, and not 0.
        self.size = (self.size / 2).max(SMALLEST).min(self.largest);
        self.threshold = self.size;
        self.credit = 0;
    }

    /// Records that a timer expired.
    pub fn silence(&mut self) {
        if self.before.is_none() {
            self.before = Some((self.size, self.threshold));
            self.threshold = (self.size / 2).max(SMALLEST);
        }
        // INVARIANT: The size is at most the largest, which is not 0.
        self.size = AFTER_SILENCE;
        self.credit = 0;
    }

    /// Restores the window because a response to a packet from before the timeout shows that no
    /// packet was lost. Returns whether there was a timeout to undo.
    pub fn undo(&mut self) -> bool {
        let Some((size, threshold)) = self.before.take() else {
            return false;
        };
        // INVARIANT: The size is as it was before.
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
    fn a_window_stays_within_its_limits() {
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
    fn the_window_doubles_then_halves_then_grows_by_one() {
        let mut window = Window::new(1000);
        window.acknowledged(64, 64);
        assert_eq!(window.size(), 128);
        window.acknowledged(128, 128);
        assert_eq!(window.size(), 256);
        window.lost();
        assert_eq!(window.size(), 128);
        // Two round trips add two packets.
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
    fn an_unused_window_does_not_grow() {
        let mut window = Window::new(1000);
        window.acknowledged(31, 31);
        assert_eq!(window.size(), 64);
        window.acknowledged(1, 32);
        assert_eq!(window.size(), 65);
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_half_the_threshold() {
        let mut window = Window::new(100);
        window.silence();
        assert_eq!(window.size(), AFTER_SILENCE);
        window.silence();
        for _ in 0..10 {
            let size = window.size();
            window.acknowledged(size, size);
        }
        // The size goes 1, 2, 4, 8, 16, 32, and then grows by one.
        assert_eq!(window.size(), 37);
    }

    #[test]
    fn an_unnecessary_timeout_is_undone() {
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
