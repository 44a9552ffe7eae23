// SPDX-License-Identifier: GPL-2.0
//! What a responder acts on: receives and memory, which are the caller's.
//!
//! A [`Target`] is made for each packet and knows its payload; the responder only says where it goes.
//! So the payload is copied once, from where it came in to where it belongs, and may lie in pieces.
//!
//! # The life of a SEND
//!
//! ```text
//! begin_receive  place...  end_receive     with the first packet, with each, with the last
//!                    '---> abort_receive   instead of the end, if anything failed or the QP ended
//! ```
//!
//! A WRITE with immediate data takes a receive too, with its last packet: `begin_receive` and
//! `end_receive` around its bytes, nothing is placed in it.
//!
//! Everything is called under the responder's lock.

use super::super::headers::{
    AtomicEth,
    Reth,
    SendEnd, //
};

/// Why a request cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No receive is there yet: an RNR NAK. Only [`Target::begin_receive`] may say so.
    NotReady,
    /// The message is longer than the receive, or the request is otherwise invalid.
    Invalid,
    /// No such key, not this right, outside its bounds, an address that is not aligned to it.
    Access,
    /// It failed here.
    Operation,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// They become `swap_add` if they are `compare`.
    CompareSwap,
    /// `swap_add` is added to them, modulo 2^64.
    FetchAdd,
}

/// What takes a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A SEND begins. If `whole`, the payload of this packet is all of it.
    Send {
        /// Whether it is one packet.
        whole: bool,
    },
    /// A WRITE with immediate data ends.
    WriteImm,
}

/// A receive that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Bytes of the SEND, or of the WRITE.
    pub len: u32,
    /// Immediate data, or the key that the peer wants invalidated.
    pub end: SendEnd,
    /// Whether it is of a WRITE, and the receive's memory was not used.
    pub write: bool,
    /// Whether it is a solicited event.
    pub solicited: bool,
}

/// Receives and memory, with the payload of one packet.
pub trait Target {
    /// Takes the next receive. The payload of this packet may be looked at to find it.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotReady`]: there is none; the peer shall try again. Any other refuses the request.
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal>;

    /// Places the payload of this packet at `offset` of the receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: it does not fit, and the rest is not wanted. [`Refusal::Operation`]: the
    /// memory cannot be written.
    fn place(&mut self, offset: u32) -> Result<(), Refusal>;

    /// The receive is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`]: the key to be invalidated cannot be. [`Refusal::Invalid`]: the message was
    /// longer than the receive. `abort_receive` follows.
    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal>;

    /// The receive that began will not be completed: the request was refused, or `None`: the QP ended.
    fn abort_receive(&mut self, why: Option<Refusal>);

    /// Says whether the peer may write there. Called with the first packet of each WRITE, and once more
    /// if that is answered with an RNR NAK. InfiniBand has no key checked for a WRITE of no bytes: the
    /// target decides.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`].
    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal>;

    /// Places the payload of this packet at `offset` of the memory that the peer writes. The key may
    /// have gone since `check_write`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`]: it has. [`Refusal::Operation`]: the memory cannot be written.
    fn write(&mut self, reth: &Reth, offset: u32) -> Result<(), Refusal>;

    /// A WRITE is complete.
    fn end_write(&mut self, reth: &Reth);

    /// Says whether the peer may read there; for no bytes as in [`check_write`](Self::check_write).
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`].
    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal>;

    /// Does an atomic, on an aligned address, and returns what was there before.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`], [`Refusal::Operation`].
    fn atomic(&mut self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal>;
}
