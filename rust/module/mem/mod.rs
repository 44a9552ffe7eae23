// SPDX-License-Identifier: GPL-2.0

//! Memory that operations read and write, and its accounting.
//!
//! [`MemRef`] is the one type for all kinds of memory: a range of pinned pages of a program, of a
//! buffer of the module, of memory of a kernel consumer (kvec, bio_vec, scatterlist, DMA-BUF), or
//! of a gather list of several of these. [`Source`] is a `MemRef` or up to 256 inline bytes.
//! [`copy`] copies bytes segment by segment. [`Memory`] is memory that can be registered.
//!
//! | file | content |
//! |---|---|
//! | [`account`] | accounts: kernel memory of a user's objects, and its limit |
//! | [`budget`] | budgets, which charge an account, and the charges |
//! | [`peer_share`] | the share of each peer in what peers use up |
//! | [`workers`] | the workers of each user for packets, operations and works |
//! | [`peer_workers`] | the workers of each user that handle what peers do |
//! | [`segments`] | segment lists: the addresses of the bytes |
//! | [`backing`] | the kinds of memory, and what keeps each valid; gather lists |
//! | [`pinned`] | pages of a program, pinned and charged |
//! | [`consumer`] | memory of kernel consumers: kvec, bio_vec, scatterlist |
//! | [`page_list`] | memory of the kernel for fast registration |
//! | [`dma_buf`] | DMA-BUFs, and CPU access to them |
//! | [`external`] | words of a program's memory that the module writes |
//! | [`memory`] | memory that can be registered |
//! | [`memref`] | [`MemRef`], [`Source`], and copying between them |
//! | [`shared`] | pages of the module that programs map |
//! | [`payload`] | copying between memory and packets |
//! | [`atomic`] | executing atomics on memory |
//!
//! **Memory that a program can write to is never a Rust slice**: the program may change it at any
//! moment. So the module only copies it, in C, or accesses it as atomic words.

pub(crate) mod account;
pub(crate) mod atomic;
mod backing;
mod budget;
pub(crate) mod consumer;
pub(crate) mod dma_buf;
pub(crate) mod external;
pub(crate) mod memory;
pub(crate) mod memref;
pub(crate) mod page_list;
pub(crate) mod payload;
mod peer_share;
mod peer_workers;
pub(crate) mod pinned;
pub(crate) mod segments;
pub(crate) mod shared;
mod workers;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/mem.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/memory_kinds.rs"]
pub(crate) mod kunit_kinds;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/segments.rs"]
mod kunit_segments;

pub(crate) use account::Part;
pub(crate) use budget::{
    Allowance,
    Budget,
    PartAllowance, //
};
pub(crate) use external::PinnedWord;
pub(crate) use memory::Memory;
pub(crate) use memref::{
    copy,
    copy_mem,
    copy_part,
    Inline,
    Kept,
    MemRef,
    Source,
    INLINE_MAX, //
};
pub(crate) use peer_share::PeerShare;
#[cfg(kfi_kunit)]
pub(crate) use peer_workers::PeerWorker;
pub(crate) use peer_workers::{
    PeerPlace,
    PeerWork, //
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
pub(crate) use workers::{
    Place,
    RunningWorker,
    WaitingWork, //
};
