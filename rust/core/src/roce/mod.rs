// SPDX-License-Identifier: GPL-2.0
//! RoCEv2: InfiniBand's transport in UDP datagrams.
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

mod bytes;
pub mod cm;
pub mod headers;
pub mod icrc;
pub mod mtu;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod rc;
pub mod state;
pub mod ud;
