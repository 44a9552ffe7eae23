// SPDX-License-Identifier: GPL-2.0
//! The interface of a responder to the receives and the memory of its caller.
//!
//! The caller makes a [`Target`] for each packet, with its payload; the responder only says where
//! the payload goes. The payload is therefore copied once, from the receive buffer to its
//! destination, and may lie in several pieces.
//!
//! # The calls for a SEND
//!
//! ```text
//! begin_receive  place...  end_receive     first packet, each packet, last packet
//!                    '---> abort_receive   instead of end_receive, if a request failed or the QP ended
//! ```
//!
//! The last packet of a WRITE with immediate data consumes a receive too: `begin_receive` and
//! `end_receive` are called around its bytes, and no payload is placed in the receive.
//!
//! All functions are called under the responder's lock.

use super::super::headers::{
    AtomicEth,
    Reth,
    SendEnd, //
};

/// The reason for which a request cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No receive is available; the requester gets an RNR NAK. Only [`Target::begin_receive`] may
    /// return this.
    NotReady,
    /// The message is longer than the receive, or the request is otherwise invalid.
    Invalid,
    /// The key does not exist, or does not grant this access, or not to this range; or the address
    /// of an atomic is not aligned.
    Access,
    /// The operation failed locally.
    Operation,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// The bytes become `swap_add` if they are equal to `compare`.
    CompareSwap,
    /// `swap_add` is added to the bytes, modulo 2^64.
    FetchAdd,
}

/// The kind of message that consumes a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A SEND that begins.
    Send {
        /// Whether the payload of this packet is the whole message.
        whole: bool,
    },
    /// A WRITE with immediate data that ends.
    WriteImm,
}

/// A completed receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The length of the SEND or WRITE in bytes.
    pub len: u32,
    /// Immediate data, or the key that the peer wants to invalidate.
    pub end: SendEnd,
    /// Whether the message was a WRITE, which did not use the memory of the receive.
    pub write: bool,
    /// Whether it is a solicited event.
    pub solicited: bool,
}

/// The receives and the memory of the caller, with the payload of one packet.
pub trait Target {
    /// Takes the next receive. The payload of this packet may be used to choose it.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotReady`]: no receive is available; the peer retries. Any other error refuses
    /// the request.
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal>;

    /// Places the payload of this packet at `offset` of the receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: the payload does not fit, and the rest of the message is not wanted.
    /// [`Refusal::Operation`]: the memory is not writable.
    fn place(&mut self, offset: u32) -> Result<(), Refusal>;

    /// Completes the receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`]: the key cannot be invalidated. [`Refusal::Invalid`]: the message was
    /// longer than the receive. After an error `abort_receive` is called.
    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal>;

    /// Aborts the receive in progress. `why` is the reason for which the request was refused;
    /// `None` if the QP ended.
    fn abort_receive(&mut self, why: Option<Refusal>);

    /// Checks whether the peer may write to this memory. Called for the first packet of each WRITE,
    /// and again if that was answered with an RNR NAK. InfiniBand does not require a valid key for
    /// a WRITE of no bytes; the target decides.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`].
    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal>;

    /// Writes the payload of this packet at `offset` of the remote memory `reth`. The key may have
    /// become invalid since `check_write`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`]: the key is invalid. [`Refusal::Operation`]: the memory is not writable.
    fn write(&mut self, reth: &Reth, offset: u32) -> Result<(), Refusal>;

    /// Completes a WRITE.
    fn end_write(&mut self, reth: &Reth);

    /// Checks whether the peer may read this memory; for a READ of no bytes as in
    /// [`check_write`](Self::check_write).
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`].
    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal>;

    /// Executes an atomic on an aligned address. Returns the value before it.
    ///
    /// # Errors
    ///
    /// [`Refusal::Access`], [`Refusal::Operation`].
    fn atomic(&mut self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal>;
}
