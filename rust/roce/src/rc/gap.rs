// SPDX-License-Identifier: GPL-2.0
//! Detection of a packet that was lost again after the gap was reported to the sender.
//!
//! A receiver that finds a packet missing reports that once. Packets that were sent before the
//! report continue to arrive, and do not cause further reports. If one of them arrives a second
//! time, the sender has gone back and the missing packet was lost again; then it is reported again,
//! without waiting for the sender's timer. A packet that is only late arrives once, so reordering
//! alone does not cause a report.
//!
//! Both ends use this: a responder for requests, a requester for the responses to READs.

/// The packets that have arrived behind a missing one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// Whether the gap was reported to the sender.
    reported: bool,
    /// A bit for each of the 64 packets behind the missing one that has arrived since the last
    /// report.
    seen: u64,
}

impl Gap {
    /// Records that the packet `ahead` PSNs behind the missing one has arrived. Returns whether to
    /// report the gap.
    pub(super) fn arrived(&mut self, ahead: u32) -> bool {
        let bit = 1_u64.checked_shl(ahead.wrapping_sub(1)).unwrap_or(0);
        let again = self.seen & bit != 0;
        if again {
            self.seen = 0;
        }
        self.seen |= bit;
        again || !self.reported
    }

    /// Records that the gap was reported.
    pub(super) fn set_reported(&mut self) {
        self.reported = true;
    }

    /// Returns whether the gap was reported.
    pub(super) fn is_reported(&self) -> bool {
        self.reported
    }

    /// Records that the sender will start again with the missing packet for another reason.
    pub(super) fn restart(&mut self) {
        self.seen = 0;
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_gap))]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_reported_again_when_a_packet_is_repeated() {
        let mut gap = Gap::default();
        assert!(gap.arrived(1));
        gap.set_reported();
        // Reordered packets do not cause a report.
        for ahead in [2, 4, 3, 64, 63] {
            assert!(!gap.arrived(ahead));
        }
        // The missing packet was lost again.
        assert!(gap.arrived(1));
        gap.set_reported();
        assert!(!gap.arrived(2));
        assert!(!gap.arrived(3));
        assert!(gap.arrived(2));
    }

    #[test]
    fn packets_more_than_64_behind_are_not_tracked() {
        let mut gap = Gap::default();
        assert!(gap.arrived(65));
        gap.set_reported();
        for ahead in [65, 65, 1 << 23, 1 << 23, 0, 0] {
            assert!(!gap.arrived(ahead));
        }
    }

    #[test]
    fn a_restart_clears_the_packets_seen() {
        let mut gap = Gap::default();
        assert!(gap.arrived(1));
        gap.set_reported();
        gap.restart();
        assert!(!gap.arrived(1));
        assert!(gap.arrived(1));
        assert!(gap.is_reported());
    }
}
