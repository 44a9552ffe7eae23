// SPDX-License-Identifier: GPL-2.0

//! Random numbers, and SipHash: a hash with a secret random key.

use crate::shim::bindings as shim;

/// An unpredictable random number, for example for the seed of a hash. Any context.
pub(crate) fn random_u64() -> u64 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u64() }
}

/// An unpredictable random number, for example for a key that others must not guess. Any context.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u32() }
}

/// A key. The hash of a value cannot be predicted without it, even from many other hashes.
pub(crate) struct SipKey([u64; 2]);

impl SipKey {
    /// A random key. Any context.
    pub(crate) fn random() -> Self {
        Self([random_u64(), random_u64()])
    }

    /// The hash of four words. Any context.
    pub(crate) fn hash(&self, words: &[u64; 4]) -> u64 {
        // SAFETY: The two pointers are valid for reads of 2 and 4 words during the call.
        unsafe { shim::kfabric_shim_siphash(self.0.as_ptr(), words.as_ptr()) }
    }
}
