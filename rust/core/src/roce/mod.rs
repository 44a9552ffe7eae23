// SPDX-License-Identifier: GPL-2.0
//! RoCEv2: InfiniBand's transport in UDP datagrams.
//!
//! What a RoCE device means, without a device: packets, time and memory are arguments, and what is to
//! be done comes back as a value. Two ends and a network between them can therefore be run in a test,
//! from a seed.
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
//! | [`rdm`] | reliable datagrams to any peer, above RC |

mod bytes;
pub mod cm;
pub mod headers;
pub mod icrc;
pub mod mtu;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod rc;
pub mod rdm;
pub mod state;
pub mod ud;
