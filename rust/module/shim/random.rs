// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

/// A random number that nobody can guess, for the seed of a hash.
///
/// Any context.
pub(crate) fn random_u64() -> u64 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u64() }
}

/// A random number that nobody can guess, for a name that is to be known to those only who were
/// told.
///
/// Any context.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: No requirements.
    unsafe { kernel::bindings::get_random_u32() }
}
