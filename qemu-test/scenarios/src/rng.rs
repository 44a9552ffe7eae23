// SPDX-License-Identifier: GPL-2.0
//! Random numbers from a seed, with boundary values (edges), at which defects are more likely.

/// The seed of the round after that of `seed`.
pub(crate) fn next_seed(seed: u64) -> u64 {
    Rng::new(seed).next()
}

/// A seed as it is printed, or decimal.
pub(crate) fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A generator (splitmix64).
pub(crate) struct Rng(u64);

impl Rng {
    /// With this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
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

    /// True, once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Some of these bits, mostly few.
    pub(crate) fn bits(&mut self, of: &[u64]) -> u64 {
        (0..self.below(4)).fold(0, |bits, _| bits | self.pick(of))
    }

    /// A boundary value, or any number.
    pub(crate) fn edge(&mut self) -> u64 {
        const EDGES: [u64; 27] = [
            0,
            1,
            2,
            3,
            7,
            8,
            63,
            64,
            255,
            256,
            257,
            4095,
            4096,
            4097,
            8192,
            16_384,
            65_535,
            65_536,
            1 << 20,
            1 << 30,
            (1 << 30) + 1,
            (1 << 31) - 1,
            1 << 31,
            (1 << 32) - 1,
            1 << 32,
            1 << 63,
            u64::MAX,
        ];
        match self.below(8) {
            0 => self.next(),
            1 => 1 << self.below(64),
            2 => u64::MAX - self.below(32),
            3 => self.below(16),
            _ => self.pick(&EDGES),
        }
    }
}
