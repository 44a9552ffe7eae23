// SPDX-License-Identifier: GPL-2.0

//! A hash with a secret key: SipHash.

use super::{
    bindings,
    random::random_u64, //
};

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
        unsafe { bindings::kfabric_shim_siphash(self.0.as_ptr(), words.as_ptr()) }
    }
}
