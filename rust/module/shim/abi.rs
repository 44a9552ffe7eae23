// SPDX-License-Identifier: GPL-2.0

//! Copying structures of the ABI from and to user space.
//!
//! Every structure of `<uapi/kfabric.h>` implements [`Abi`]. `lists.awk` makes the list of
//! structures and their fields from the header, and the compiler checks that a structure consists
//! of exactly the listed fields: a structure with padding does not compile.
//!
//! [`Versioned`] are the structures that begin with their size and can grow: the arguments of
//! calls, from the table `uapi/calls.rs`.

use crate::shim::bindings::*;
use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

/// A structure of the ABI: integers and arrays of integers, without padding.
pub(crate) trait Abi: FromBytes + AsBytes + Default + Copy + Send {
    /// Whether it is short enough to be copied word by word. The size of each structure is a
    /// multiple of 8.
    const IN_WORDS: bool = size_of::<Self>() <= 256;

    /// Number of words, if it is copied word by word.
    const WORDS: usize = size_of::<Self>() / size_of::<u64>();
}

/// A structure of the ABI that begins with `size`, its length as the caller knows it.
pub(crate) trait Versioned: Abi {
    /// Size of the first version of the structure, which all callers know. It stays when the
    /// structure grows.
    const V1_SIZE: usize;

    /// The structure's first member.
    fn size(&self) -> u32;

    /// Sets the structure's first member.
    fn set_size(&mut self, size: u32);
}

/// The type of a field of a structure of the ABI.
///
/// # Safety
///
/// An integer, or an array or a structure of integers without padding: every bit pattern is a valid
/// value, and every byte of a value is initialized.
// rustc 1.85 does not count a use in an anonymous constant.
#[allow(dead_code)]
unsafe trait Field {}

// SAFETY: An integer.
unsafe impl Field for u8 {}
// SAFETY: As above.
unsafe impl Field for u16 {}
// SAFETY: As above.
unsafe impl Field for u32 {}
// SAFETY: As above.
unsafe impl Field for u64 {}
// SAFETY: As above.
unsafe impl Field for i32 {}
// SAFETY: An array has no padding between its elements.
unsafe impl<T: Field, const N: usize> Field for [T; N] {}

/// The size of a field in bytes.
#[allow(dead_code)]
const fn bytes<S, F: Field>(_field: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! structures {
    ($($name:ident { $($field:ident)* })*) => {
        $(
            const _: () = assert!(
                0 $(+ bytes(|value: &$name| &value.$field))* == size_of::<$name>(),
                concat!("include/uapi/kfabric.h: struct ", stringify!($name), " has padding")
            );
            const _: () = assert!(
                size_of::<$name>() % size_of::<u64>() == 0,
                concat!("include/uapi/kfabric.h: the size of struct ", stringify!($name), " is not a multiple of 8")
            );

            // SAFETY: Each field is a `Field`, and there is no padding between them: the sum of
            // their sizes is the size of the structure.
            unsafe impl Field for $name {}

            // SAFETY: It is a `Field`; it has no interior mutability.
            unsafe impl FromBytes for $name {}

            // SAFETY: It is a `Field`; it has no interior mutability.
            unsafe impl AsBytes for $name {}

            impl Abi for $name {}
        )*
    };
}
every_structure!(structures);
