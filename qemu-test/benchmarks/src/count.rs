// SPDX-License-Identifier: GPL-2.0
//! The clock of the guest, and the rows that need a clock that measures time.
//!
//! `make bench COUNT=1` runs the rows in a guest whose clock advances by one nanosecond with each
//! instruction of any of its CPUs (QEMU's `-icount`), and to the next timer when all of them are
//! idle. All CPUs share one thread of the host there: a program that polls in a loop keeps the
//! other CPU from running, so both sides sleep instead.

/// The quantity that the guest's clock measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Time.
    Time,
    /// Instructions, a nanosecond each.
    Instructions,
}

const NO_EVENTS: &str = "perftest has no --events for WRITE and looks for its end in a loop";
const FIO: &str = "fio works for some seconds of the clock, and each instruction is a part of them";
const TIMERS: &str = "it mostly waits for timers after random losses, and waiting is not counted";

/// The rows that cannot be counted, and why.
pub(crate) const NOT_COUNTED: [(&str, &str); 13] = [
    ("roce/write_lat_8B", NO_EVENTS),
    ("roce/write_lat_8B_mtu9000", NO_EVENTS),
    ("roce/write_bw_64K", NO_EVENTS),
    ("roce/write_bw_64K_mtu9000", NO_EVENTS),
    ("roce/send_bw_64K_loss1", TIMERS),
    ("roce/send_bw_64K_loss1_mtu9000", TIMERS),
    (
        "roce/peers_1000_memory",
        "it measures memory, which is the same with any clock",
    ),
    ("verbs/write_lat_8B", NO_EVENTS),
    ("verbs/write_bw_64K", NO_EVENTS),
    ("storage/nvme_randread_4K", FIO),
    ("storage/nvme_randwrite_4K", FIO),
    ("storage/nvme_read_128K", FIO),
    ("storage/nvme_write_128K", FIO),
];

/// The reason why the row `name` cannot be counted; `None`: it can.
pub(crate) fn why_not(name: &str) -> Option<&'static str> {
    NOT_COUNTED
        .iter()
        .find(|(not_counted, _)| *not_counted == name)
        .map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_that_cannot_be_counted_is_a_row_with_a_reason() {
        let cases = crate::all_cases();
        for (name, reason) in NOT_COUNTED {
            assert!(cases.iter().any(|case| case.name == name), "{name}");
            assert!(!reason.is_empty(), "{name}");
            assert_eq!(why_not(name), Some(reason));
        }
        assert_eq!(why_not("ioctl/empty"), None);
    }
}
