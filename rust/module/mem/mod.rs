// SPDX-License-Identifier: GPL-2.0

//! Memory that operations read and write.
//!
//! One type names it, whatever it is: a [`MemRef`] is a range of pinned pages of
//! a program, of a buffer of the module's own, of memory of a kernel consumer
//! (kvec, bio_vec, scatterlist, DMA-BUF), or of several of these in a row; a
//! [`Source`] is that, or up to 256 bytes taken along. What moves bytes is
//! [`copy`], segment by segment. What can be registered is [`Memory`].
//!
//! | file | what |
//! |---|---|
//! | [`account`] | what a user's objects take of the kernel's memory, and its limit |
//! | [`segments`] | where bytes lie: the list that all kinds have |
//! | [`backing`] | what keeps them there: the kinds, gather lists |
//! | [`pinned`] | pages of a program, pinned and charged |
//! | [`consumer`] | memory that kernel consumers name: kvec, bio_vec, scatterlist |
//! | [`dma_buf`] | DMA-BUFs, and CPU access to them |
//! | [`memory`] | memory that can be registered |
//! | [`memref`] | [`MemRef`], [`Source`], and copying between them |
//! | [`shared`] | pages of the module that programs map |
//! | [`wire`] | copying between memory and packets |
//!
//! **Memory that a program can write to is never a Rust slice**: the program may
//! change it at any moment, so it is only ever copied, through C, or accessed as
//! atomic words.

pub(crate) mod account;
mod backing;
#[cfg_attr(
    not(kfi_kunit),
    expect(
        dead_code,
        reason = "for kernel consumers; so far the test suites are the only ones"
    )
)]
pub(crate) mod consumer;
#[cfg_attr(
    not(kfi_kunit),
    expect(
        dead_code,
        reason = "for kernel consumers; so far the test suites are the only ones"
    )
)]
pub(crate) mod dma_buf;
pub(crate) mod memory;
pub(crate) mod memref;
pub(crate) mod pinned;
pub(crate) mod segments;
pub(crate) mod shared;
pub(crate) mod wire;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/mem.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/memory_kinds.rs"]
pub(crate) mod kunit_kinds;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/memory.rs"]
mod kunit_memory;

pub(crate) use account::{
    Allowance,
    Budget,
    Part,
    PartAllowance, //
};
pub(crate) use memory::Memory;
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
