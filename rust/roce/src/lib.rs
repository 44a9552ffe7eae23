// SPDX-License-Identifier: GPL-2.0

//! RoCEv2, InfiniBand's transport in UDP datagrams, without a device.
//!
//! The crate contains packets (headers, ICRC, parsing and building), the states of a QP, reliable
//! connections (RC), unreliable datagrams (UD) and connection management (CM, with the headers of
//! the RDMA CM). It contains no sockets, no memory registration and no verbs: packets, time and
//! memory are arguments, and each call returns the action that the caller has to take. A test can
//! therefore run two ends and a network between them, reproducibly from a seed.
//!
//! The crate has no dependencies and needs no allocator, no locks (state machines take `&mut
//! self`), no clock and no unsafe code. The caller lends the storage. No input from a peer causes a
//! panic.
//!
//! Cargo compiles the crate for any host; kfabric's Kbuild compiles the same files for the Linux
//! kernel. The unit tests inside the files run under `cargo test`, and as KUnit suites with the cfg
//! `kfi_kunit`.
//!
//! ```text
//!   UDP datagram to port 4791
//!        |  packet: Packet::parse          malformed: counted, dropped
//!        |  (the owner of the QPs finds the QP by its number)
//!        |  icrc: Icrc::matches            wrong: counted, dropped
//!        v
//!   rc: requester or responder      ud: QP, Q key      QP 1: cm, connection management
//!        |                               |                  |
//!        v                               v                  v
//!   Packet::write, payload from the consumer's memory, Icrc::trailer: a datagram to the peer
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | errors of calls |
//! | [`bytes`] | reading and writing fields in wire format |
//! | [`opcode`] | the opcodes of RC and UD |
//! | [`headers`] | BTH and extended headers, AETH syndromes |
//! | [`packet`] | parsing, checking and building whole packets |
//! | [`cm`] | connection management |
//! | [`icrc`] | the invariant CRC of a packet |
//! | [`psn`] | packet sequence numbers: 24 bits that wrap |
//! | [`mtu`] | the path MTU, and the segmentation of messages |
//! | [`state`] | the states of a QP and the transitions between them |
//! | [`rc`] | reliable connections: requester and responder |
//! | [`ud`] | unreliable datagrams |

#![no_std]
// The macro that makes a KUnit suite expands to unsafe code; no other unsafe code is allowed.
#![cfg_attr(not(kfi_kunit), forbid(unsafe_code))]

/// Defines reasons that are counted: an enumeration with a name of each reason for statistics.
#[macro_export]
macro_rules! counted_reasons {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$doc:meta])* $reason:ident = $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $( $(#[$doc])* $reason, )*
        }

        impl $name {
            /// All reasons; `ALL[reason as usize] == reason`.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$reason),*];

            /// Returns the name of the reason in statistics.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$reason => $text, )*
                }
            }
        }
    };
}

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
