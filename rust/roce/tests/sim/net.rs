// SPDX-License-Identifier: GPL-2.0
//! The simulated network: delays and faults of datagrams.

use super::rng::Rng;

/// The parameters of a network. Chances are in 10,000; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub corrupt: u32,
    /// The number of consecutive losses.
    pub burst: u32,
    /// The minimum delay.
    pub delay: u64,
    /// The maximum additional delay that keeps the order.
    pub jitter: u64,
    /// The maximum additional delay of a reordered datagram.
    pub late: u64,
    /// Transmission time per byte.
    pub per_byte: u64,
    /// The maximum number of datagrams that wait for the wire; more are lost.
    pub queue: usize,
}

/// The longest run of losses in nanoseconds.
const BURST: u64 = 200_000;

/// One direction of the network.
pub struct Network {
    faults: Faults,
    rng: Rng,
    /// The number of datagrams still to be lost, and the time at which the run of losses ends at
    /// the latest.
    losing: u32,
    losing_until: u64,
    /// The time at which the wire is free.
    free: u64,
    /// The latest arrival of a datagram that is in order.
    last: u64,
    /// The times at which the waiting datagrams leave.
    queued: std::collections::VecDeque<u64>,
    pub cut: bool,
    pub lost: u64,
    pub corrupted: u64,
}

impl Network {
    pub fn new(faults: Faults, rng: Rng) -> Self {
        Self {
            faults,
            rng,
            losing: 0,
            losing_until: 0,
            free: 0,
            last: 0,
            queued: Default::default(),
            cut: false,
            lost: 0,
            corrupted: 0,
        }
    }

    /// Sends a datagram at `now`. Returns its arrivals: none, one or two, with their times and
    /// bytes.
    pub fn send(&mut self, now: u64, datagram: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let faults = self.faults;
        while self.queued.front().is_some_and(|time| *time <= now) {
            self.queued.pop_front();
        }
        if now >= self.losing_until {
            self.losing = 0;
        }
        if self.losing == 0 && self.rng.chance(faults.loss) {
            self.losing = self.rng.range(1, u64::from(faults.burst)) as u32;
            self.losing_until = now + BURST;
        }
        if self.cut || self.losing > 0 || self.queued.len() >= faults.queue {
            self.losing = self.losing.saturating_sub(1);
            self.lost += 1;
            return Vec::new();
        }
        self.free = self.free.max(now) + faults.per_byte * datagram.len() as u64;
        self.queued.push_back(self.free);
        let copies = if self.rng.chance(faults.duplicate) {
            2
        } else {
            1
        };
        let mut arrivals = Vec::with_capacity(copies);
        for _ in 0..copies {
            let mut time = self.free + faults.delay;
            if self.rng.chance(faults.reorder) {
                time += self.rng.range(1, faults.late.max(1));
            } else {
                time += self.rng.below(faults.jitter + 1);
                self.last = self.last.max(time);
                time = self.last;
            }
            let mut datagram = datagram.to_vec();
            if self.rng.chance(faults.corrupt) {
                self.corrupted += 1;
                self.corrupt(&mut datagram);
            }
            arrivals.push((time, datagram));
        }
        arrivals
    }

    /// Flips bits, truncates the datagram, or changes its payload.
    fn corrupt(&mut self, datagram: &mut Vec<u8>) {
        let len = datagram.len() as u64;
        match self.rng.below(8) {
            0 => datagram.truncate(self.rng.below(len) as usize),
            1 => {
                let from = self.rng.range(28, len - 1) as usize;
                for byte in &mut datagram[from..] {
                    *byte = byte.wrapping_add(1);
                }
            }
            _ => {
                for _ in 0..self.rng.range(1, 3) {
                    let bit = self.rng.below(len * 8);
                    datagram[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
        }
    }
}
