// SPDX-License-Identifier: GPL-2.0
//! Numbers from a seed: splitmix64.

use std::sync::OnceLock;

/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 4 << 20;

/// A source of numbers.
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

    /// Less than `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// 1 to `most`, small ones as often as large ones.
    pub(crate) fn spread(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(most.ilog2()) + 1) + 1;
        (self.next() & ((1 << bits) - 1)).clamp(1, most)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

/// Where the bytes of messages may begin in the noise.
const BEGINNINGS: u64 = 1 << 16;

/// The bytes of a message: each of the same number has the same, a part of the same noise.
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
