// SPDX-License-Identifier: GPL-2.0

//! Reliable datagrams: messages and RMA to any endpoint that the AV names.
//!
//! A peer on this host is reached by a function call, in the poster's process:
//!
//! ```text
//!  send.rs ---> peer's receive.rs        a message finds a receive, a buffer, or waits (pending.rs)
//!  rma.rs  ---> peer's regions
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`send`] | how a message gets to its peer |
//! | [`pending`] | a message that waits at its peer for a receive |
//! | [`transmit`] | the sends of an endpoint that wait at their peers |
//! | [`rma`] | reading and writing a peer's memory |
//! | [`remote`] | peers on other hosts: sessions, connections |
//!
//! An address that nobody on this host has is another host's.

pub(super) mod pending;
pub(super) mod remote;
mod rma;
mod send;
pub(super) mod transmit;
