// SPDX-License-Identifier: GPL-2.0

//! The semantics of the kfabric objects: counters and the work that waits for them, completion
//! counters of verbs, completion queues, event queues, matching, addresses and regions, atomics,
//! flows, and the protocol of reliable datagrams ([`rdm`]).
//!
//! The crate [`kfi_roce`] contains the wire protocol below: packets, RC, UD and connection
//! management. It does not depend on kfabric.
//!
//! The crate consists of state machines without a kernel: they have no memory of their own (the
//! caller lends it), no locks (`&mut self`, under the caller's lock), no clock (times are
//! arguments), and they keep no callbacks (waiters to be woken are returned or passed to an
//! argument). The module adds the kernel's locks, pages and wait queues; cargo's tests add a simple
//! model, proptest and loom.
//!
//! Several CPUs access data without a lock in three places only, each with its argument and its
//! loom test: [`cntr::CounterValues`], [`ring`] and [`left_step`]. All are generic over
//! [`word::Word`], the shared word.
//!
//! Flags, enumerators, error numbers and limits are those of `include/uapi/kfabric.h`. The module
//! compares them with the header when it is built, and so does `make check`.
//!
//! Cargo compiles this crate for the host, and Kbuild compiles it for the kernel. No function may
//! panic, because a panic in the kernel is BUG(). Arithmetic on sequence numbers is `wrapping_*`.
//!
//! The unit tests inside the files run under `cargo test`, and as KUnit suites when Kbuild is given
//! `KFI_KUNIT=1` (cfg `kfi_kunit`).

#![no_std]
// The macro that makes a KUnit suite expands to unsafe code; no other unsafe code is allowed.
#![cfg_attr(not(kfi_kunit), forbid(unsafe_code))]

pub mod addr;
pub mod atomic;
pub mod auth_key;
pub mod av;
pub mod cntr;
pub mod comp_cntr;
pub mod cq;
pub mod due;
pub mod enums;
pub mod eq;
pub mod errno;
pub mod fifo;
pub mod flags;
pub mod flow;
pub mod info;
pub mod left_step;
pub mod limits;
pub mod matching;
pub mod mr;
pub mod multi_recv;
pub mod op;
pub mod peer;
pub mod prov_errno;
pub mod rdm;
pub mod refusals;
pub mod ring;
pub mod share;
pub mod slab;
pub mod throttle;
pub mod token_bucket;
pub mod wait;
pub mod word;

#[cfg(any(test, kfi_kunit))]
pub(crate) mod testing;
