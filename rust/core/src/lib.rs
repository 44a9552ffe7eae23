// SPDX-License-Identifier: GPL-2.0

//! What the objects of kfabric mean: counters, completion queues, event queues, matching, addresses and
//! regions, and the protocol of reliable datagrams ([`rdm`]).
//!
//! The wire below that (packets, RC, UD, connection management) is the crate [`kfi_roce`], which knows
//! nothing of kfabric.
//!
//! State machines without a kernel: no memory of their own (the caller lends
//! it), no locks (`&mut self`, under the caller's lock), no clock (times are
//! arguments), no callbacks kept (who is to be woken is handed out). The module
//! puts them on the kernel's locks, pages and wait queues; cargo's tests put
//! them on a plain model, proptest and loom.
//!
//! What two CPUs touch without a lock is in two places only, each with its
//! argument and its loom test: [`cntr::Gate`] and [`ring`]. They are generic
//! over [`word::Word`], the shared word.
//!
//! Flags, enumerators, error numbers and limits of the interface are those of
//! `include/uapi/kfabric.h`. The module compares them with the header when it is built, and
//! `make check` does.
//!
//! Two builds compile this crate: cargo's for the host and Kbuild's for the
//! kernel. Nothing here may panic: a panic in the kernel is BUG(). Arithmetic on
//! sequence numbers is `wrapping_*`.
//!
//! The unit tests inside the files run in both worlds: under `cargo test`, and
//! as KUnit suites when Kbuild is given `KFI_KUNIT=1` (cfg `kfi_kunit`).

#![no_std]
// A KUnit suite is made of unsafe code by its macro; nothing else is ever let in.
#![cfg_attr(not(kfi_kunit), forbid(unsafe_code))]

pub mod addr;
pub mod av;
pub mod cntr;
pub mod cq;
pub mod due;
pub mod enums;
pub mod eq;
pub mod errno;
pub mod fifo;
pub mod flags;
pub mod info;
pub mod limits;
pub mod matching;
pub mod mr;
pub mod multi_recv;
pub mod op;
pub mod prov_errno;
pub mod rdm;
pub mod ring;
pub mod slab;
pub mod throttle;
pub mod wait;
pub mod word;

#[cfg(any(test, kfi_kunit))]
pub(crate) mod testing;
