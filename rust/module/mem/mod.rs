// SPDX-License-Identifier: GPL-2.0

//! Memory that operations read and write.
//!
//! One type names it, whatever it is: a [`MemRef`] is a range of pinned pages of
//! a program, of a registered region, or of a buffer of the module's own; a
//! [`Source`] is that, or up to 256 bytes taken along. What moves bytes is
//! [`copy`], in the direct map, segment by segment.
//!
//! | file | what |
//! |---|---|
//! | [`account`] | what a user's objects take of the kernel's memory, and its limit |
//! | [`pinned`] | pages of a program, pinned and charged |
//! | [`memref`] | [`MemRef`], [`Source`], and copying between them |
//! | [`shared`] | pages of the module that programs map |
//! | [`wire`] | copying between memory and packets |
//!
//! **Memory that a program can write to is never a Rust slice**: the program may
//! change it at any moment, so it is only ever copied, through C, or accessed as
//! atomic words.

pub(crate) mod account;
pub(crate) mod memref;
pub(crate) mod pinned;
pub(crate) mod shared;
pub(crate) mod wire;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/mem.rs"]
mod kunit;

pub(crate) use account::{
    Allowance,
    Budget,
    Part,
    PartAllowance, //
};
pub(crate) use memref::{
    copy,
    copy_mem,
    copy_part,
    Inline,
    MemRef,
    Source, //
};
pub(crate) use pinned::{
    Access,
    Pinned,
    UserRange, //
};
pub(crate) use shared::{
    MapAccess,
    SharedPages,
    SharedWord, //
};
