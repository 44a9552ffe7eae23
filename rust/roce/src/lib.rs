// SPDX-License-Identifier: GPL-2.0

//! RoCEv2, InfiniBand's transport in UDP datagrams, without a device.
//!
//! The crate has the packets (headers, ICRC, parsing and building), the states of a QP, reliable
//! connections (RC), unreliable datagrams (UD) and connection management (CM, with the RDMA CM's
//! headers). It has no sockets, no memory registration and no verbs: packets, time and memory are
//! arguments, and what is to be done comes back as a value. Two ends and a network between them can
//! therefore be run in a test, from a seed.
//!
//! It has no dependencies and needs no allocator, no locks (state machines take `&mut self`), no clock
//! and no unsafe code. Storage is lent by the caller. Nothing here panics, whatever a peer sends.
//!
//! Cargo compiles it for any host; kfabric's Kbuild compiles the same files for the Linux kernel. The
//! unit tests inside the files run in both worlds: under `cargo test`, and as KUnit suites with the cfg
//! `kfi_kunit`.
//!
//! ```text
//!   UDP datagram to port 4791
//!        |  packet: Packet::parse          malformed? counted, dropped
//!        |  (the owner of QPs finds the QP by its number)
//!        |  icrc: Icrc::matches            else counted, dropped
//!        v
//!   rc: requester or responder      ud: QP, Q key      QP 1: cm, connection management
//!        |                               |                  |
//!        v                               v                  v
//!   Packet::write, payload from where it lies, Icrc::trailer: a datagram to the peer
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`error`] | why a call was refused |
//! | [`bytes`] | fields of the wire, read and written in turn |
//! | [`opcode`] | the opcodes of RC and UD |
//! | [`headers`] | BTH and extended headers, AETH syndromes |
//! | [`packet`] | a whole packet: parsed, built, judged |
//! | [`cm`] | connection management |
//! | [`icrc`] | the packet's checksum, over what does not change on the way |
//! | [`psn`] | packet sequence numbers: 24 bits that wrap |
//! | [`mtu`] | the path MTU, and how messages are cut |
//! | [`state`] | the states of a QP, and the way from one to another |
//! | [`rc`] | reliable connections: requester and responder |
//! | [`ud`] | unreliable datagrams |

#![no_std]
// A KUnit suite is made of unsafe code by its macro; nothing else is ever let in.
#![cfg_attr(not(kfi_kunit), forbid(unsafe_code))]

pub mod bytes;
pub mod cm;
pub mod error;
pub mod headers;
pub mod icrc;
pub mod mtu;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod rc;
pub mod state;
pub mod ud;

pub use error::Error;

#[cfg(any(test, kfi_kunit))]
pub(crate) mod testing;
