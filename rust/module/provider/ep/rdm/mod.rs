// SPDX-License-Identifier: GPL-2.0

//! Reliable datagrams: messages, RMA and atomics to any endpoint in the AV.
//!
//! An operation reaches a peer on this host by a function call, in the poster's process:
//!
//! ```text
//!  send.rs ---> receive/ of the peer   a message is placed, buffered, or waits (transmit.rs)
//!  tagged.rs -> receive/ of the peer   a posted receive is written or read
//!  rma.rs, atomic.rs ---> regions of the peer
//! ```
//!
//! | file | topic |
//! |---|---|
//! | [`send`] | messages to a peer |
//! | [`transmit`] | the sends of an endpoint that wait at their peers for a receive |
//! | [`rma`] | reading and writing a peer's memory |
//! | [`tagged`] | reading and writing the memory of a peer's tagged receives |
//! | [`atomic`] | changing a peer's memory atomically |
//! | [`remote`] | peers on other hosts: sessions, connections |
//!
//! An address is on another host if no endpoint of this host has it and it is not an address of
//! this host's links.

mod atomic;
pub(super) mod remote;
mod rma;
mod send;
mod tagged;
pub(super) mod transmit;
