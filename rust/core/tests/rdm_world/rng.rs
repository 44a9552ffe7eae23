// SPDX-License-Identifier: GPL-2.0
//! Pseudo-random numbers from a seed: SplitMix64.

use std::sync::OnceLock;

/// The length of the longest message in bytes.
pub(crate) const LONGEST: usize = 4 << 20;

/// A pseudo-random number generator.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 1 to `most`; small ones are as likely as large ones.
    pub(crate) fn spread(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(most.ilog2()) + 1) + 1;
        (self.next() & ((1 << bits) - 1)).clamp(1, most)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

/// The number of offsets at which the bytes of messages may begin.
const BEGINNINGS: u64 = 1 << 16;

/// Returns the bytes of a message, which depend only on its number: a part of a random block.
pub(crate) fn bytes(number: u64, len: usize) -> Vec<u8> {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut rng = Rng::new(1);
        let words = (LONGEST + BEGINNINGS as usize) / 8;
        (0..words).flat_map(|_| rng.next().to_le_bytes()).collect()
    });
    let from = Rng::new(number).below(BEGINNINGS) as usize;
    noise[from..from + len].to_vec()
}
