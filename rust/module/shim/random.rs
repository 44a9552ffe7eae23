// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

/// An unpredictable random number, for example for the seed of a hash.
///
/// Any context.
pub(crate) fn random_u64() -> u64 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u64() }
}

/// An unpredictable random number, for example for a key that others must not guess.
///
/// Any context.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u32() }
}
