// SPDX-License-Identifier: GPL-2.0
//! Evidence that the packets of an attack have reached the module: counters of the hosts that grow
//! with the packets. Packets that the network or the kernel drops before the module would not test
//! it.

use super::field::Field;
use crate::{
    abi_threads::NetNs,
    host::{link_packets, netns_packets},
};
use kfi::{PacketCounter, Packets};
use std::fs;

/// The counters of the packets of an attack.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    /// Packets to QP 1.
    Gsi,
    /// Counters of QPs, and of packets that no QP takes.
    Packets(&'static [PacketCounter]),
    /// All counters of dropped packets.
    Drops,
    /// ICMP errors, which the kernel receives and counts.
    Icmp,
}

/// The counters to compare, and the least growth.
#[derive(Clone, Copy)]
pub(super) struct Evidence {
    pub(super) counter: Counter,
    /// The least part of the sent packets that must have been counted.
    pub(super) part: f64,
}

impl Evidence {
    pub(super) const fn new(counter: Counter, part: f64) -> Self {
        Self { counter, part }
    }

    /// The sum of the counters at both hosts with the module.
    pub(super) fn count(&self, field: &Field) -> u64 {
        let hosts = [&field.a, &field.b];
        hosts.into_iter().map(|host| self.count_at(host)).sum()
    }

    fn count_at(&self, host: &NetNs) -> u64 {
        host.run(|| match self.counter {
            Counter::Gsi => netns_packets().get(PacketCounter::RxPackets),
            Counter::Packets(counters) => {
                let all = [netns_packets(), link_packets()];
                let of = |packets: &Packets| -> u64 {
                    counters.iter().map(|counter| packets.get(*counter)).sum()
                };
                all.iter().map(of).sum()
            }
            Counter::Drops => netns_packets().dropped() + link_packets().dropped(),
            Counter::Icmp => icmp_errors(),
        })
    }
}

/// All counters of the hosts at one time.
pub(super) struct CounterSnapshot([Packets; 4]);

impl CounterSnapshot {
    pub(super) fn of(field: &Field) -> Self {
        let [[one, two], [three, four]] =
            [&field.a, &field.b].map(|host| host.run(|| [netns_packets(), link_packets()]));
        Self([one, two, three, four])
    }

    /// The counters that have grown since, and their growth.
    pub(super) fn grown(&self, field: &Field) -> String {
        let sum = |all: &Self, counter| -> u64 { all.0.iter().map(|of| of.get(counter)).sum() };
        let now = Self::of(field);
        let all = PacketCounter::ALL.iter().map(|counter| {
            let grown = sum(&now, *counter).saturating_sub(sum(self, *counter));
            (counter.name(), grown)
        });
        let grown = all.filter(|(_, grown)| *grown > 0);
        let words: Vec<_> = grown.map(|(name, by)| format!("{name} {by}")).collect();
        words.join(", ")
    }
}

/// ICMP messages "destination unreachable" that this thread's namespace has received.
fn icmp_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("snmp");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (lines.next(), lines.next());
    let names = names.unwrap_or_default().split_whitespace();
    let mut both = names.zip(values.unwrap_or_default().split_whitespace());
    let value = both.find(|(name, _)| *name == "InDestUnreachs");
    let value = value.and_then(|(_, value)| value.parse().ok());
    value.expect("InDestUnreachs")
}
