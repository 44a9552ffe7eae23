// SPDX-License-Identifier: GPL-2.0
//! A missing packet, and what comes behind it.
//!
//! Who misses a packet says so once: what was sent before that goes on to come in, and says nothing new.
//! But if one of those comes a second time, the sender has gone back, and the missing packet was lost
//! again: then it is said again, and not left to the sender's timer. A packet that is merely late comes
//! once, so reordering alone does not look like that.
//!
//! Both ends use it: a responder for requests, a requester for the answers to READs.

/// What came behind a missing packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// Whether its sender was told.
    told: bool,
    /// Which of the 64 packets behind it have come since it was sent last.
    seen: u64,
}

impl Gap {
    /// The packet that is `ahead` behind the missing one has come. Returns whether the sender is to be
    /// told.
    pub(super) fn came(&mut self, ahead: u32) -> bool {
        let bit = 1_u64.checked_shl(ahead.wrapping_sub(1)).unwrap_or(0);
        let again = self.seen & bit != 0;
        if again {
            self.seen = 0;
        }
        self.seen |= bit;
        again || !self.told
    }

    /// The sender was told.
    pub(super) fn told(&mut self) {
        self.told = true;
    }

    /// Whether the sender was told.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    /// The sender will begin with the missing packet again, whatever was lost.
    pub(super) fn restart(&mut self) {
        self.seen = 0;
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_gap))]
mod tests {
    use super::*;

    #[test]
    fn once_unless_something_comes_again() {
        let mut gap = Gap::default();
        assert!(gap.came(1));
        gap.told();
        // Late ones, too.
        for ahead in [2, 4, 3, 64, 63] {
            assert!(!gap.came(ahead));
        }
        // Lost again.
        assert!(gap.came(1));
        gap.told();
        assert!(!gap.came(2));
        assert!(!gap.came(3));
        assert!(gap.came(2));
    }

    #[test]
    fn nothing_is_known_of_those_far_behind() {
        let mut gap = Gap::default();
        assert!(gap.came(65));
        gap.told();
        for ahead in [65, 65, 1 << 23, 1 << 23, 0, 0] {
            assert!(!gap.came(ahead));
        }
    }

    #[test]
    fn a_restart_is_no_loss() {
        let mut gap = Gap::default();
        assert!(gap.came(1));
        gap.told();
        gap.restart();
        assert!(!gap.came(1));
        assert!(gap.came(1));
        assert!(gap.is_told());
    }
}
