// SPDX-License-Identifier: GPL-2.0

//! What an RC QP asks of the floor above.

use super::super::payload::Payload;
use crate::shim::skb::Room;
use kfi_roce::{
    headers::{
        AtomicEth,
        Reth, //
    },
    rc::{
        target::{
            Atomic,
            Ended,
            Incoming,
            Target, //
        },
        Refusal,
        Status, //
    }, //
};

/// Receives and memory for the peer's requests, and ears for what becomes of one's own: the
/// provider's endpoint.
///
/// All of it is called by the one who runs the QP, its worker or a task that sent to it on the same
/// host, one after the other: process context, may sleep but for [`read`](Self::read) and
/// [`end_read`](Self::end_read). What the peer asks for is asked with the lock of the QP's responder held; what has ended is told with no
/// lock held. None of it may close the QP or change its state; posting is allowed while being told,
/// not while being asked.
///
/// Where [`Target`] says what a function means, it means the same here.
pub(crate) trait Consumer: Send + Sync {
    /// [`Target::begin_receive`]. `payload` is that of the first packet.
    fn begin_receive(&self, incoming: Incoming, payload: &Payload<'_>) -> Result<(), Refusal>;

    /// [`Target::place`].
    fn place(&self, offset: u32, payload: &Payload<'_>) -> Result<(), Refusal>;

    /// [`Target::end_receive`].
    fn end_receive(&self, ended: Ended) -> Result<(), Refusal>;

    /// [`Target::abort_receive`].
    fn abort_receive(&self, why: Option<Refusal>);

    /// [`Target::check_write`].
    fn check_write(&self, reth: &Reth) -> Result<(), Refusal>;

    /// [`Target::write`].
    fn write(&self, reth: &Reth, offset: u32, payload: &Payload<'_>) -> Result<(), Refusal>;

    /// [`Target::end_write`].
    fn end_write(&self, reth: &Reth);

    /// [`Target::check_read`].
    fn check_read(&self, reth: &Reth) -> Result<(), Refusal>;

    /// Copies what `reth` names, a part of what [`check_read`](Self::check_read) was asked for, to
    /// `room`, all of it. Bottom halves are disabled: must not sleep, and takes no mutex.
    ///
    /// Fails if the key has gone since, or the memory cannot be read; then
    /// [`abort_receive`](Self::abort_receive) may follow, when bottom halves are enabled again.
    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> Result<(), Refusal>;

    /// The peer is being sent all that it wanted to read with one request: the packets leave when this
    /// has been told. `more`: it says that others of the same operation follow. Bottom halves are
    /// disabled, as for [`read`](Self::read): must not sleep.
    fn end_read(&self, reth: &Reth, more: bool);

    /// [`Target::atomic`].
    fn atomic(&self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal>;

    /// A work request has ended; its memory is not used any more, and the reference to it has been
    /// dropped. In the order of posting.
    fn completed(&self, context: u64, status: Status);

    /// The QP went to ERR, and not because it was told to. Once; what was posted is completed, as
    /// flushed, before and after.
    fn failed(&self);

    /// The peer has no receive for a SEND of this QP's (RNR NAK): it is sent again later. Told like the
    /// end of a work request, with no lock held.
    fn not_ready(&self) {}

    /// The run of the QP ends: what was asked for is answered, what has ended is told. No lock is
    /// held, so what could not be done while being asked can be done now.
    fn run_ended(&self) {}
}

/// A consumer, with the payload of one packet: what kfi_roce's responder acts on.
pub(super) struct Asked<'a> {
    /// None: the QP is being closed.
    pub(super) consumer: Option<&'a dyn Consumer>,
    /// None: no packet is being dealt with.
    pub(super) payload: Option<Payload<'a>>,
}

impl Asked<'_> {
    /// Both, for a request.
    fn both(&self) -> Result<(&dyn Consumer, &Payload<'_>), Refusal> {
        self.consumer
            .zip(self.payload.as_ref())
            .ok_or(Refusal::Operation)
    }

    fn consumer(&self) -> Result<&dyn Consumer, Refusal> {
        self.consumer.ok_or(Refusal::Operation)
    }
}

impl Target for Asked<'_> {
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal> {
        let (consumer, payload) = self.both()?;
        consumer.begin_receive(incoming, payload)
    }

    fn place(&mut self, offset: u32) -> Result<(), Refusal> {
        let (consumer, payload) = self.both()?;
        consumer.place(offset, payload)
    }

    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal> {
        self.consumer()?.end_receive(ended)
    }

    fn abort_receive(&mut self, why: Option<Refusal>) {
        if let Some(consumer) = self.consumer {
            consumer.abort_receive(why);
        }
    }

    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal> {
        self.consumer()?.check_write(reth)
    }

    fn write(&mut self, reth: &Reth, offset: u32) -> Result<(), Refusal> {
        let (consumer, payload) = self.both()?;
        consumer.write(reth, offset, payload)
    }

    fn end_write(&mut self, reth: &Reth) {
        if let Some(consumer) = self.consumer {
            consumer.end_write(reth);
        }
    }

    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal> {
        self.consumer()?.check_read(reth)
    }

    fn atomic(&mut self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal> {
        self.consumer()?.atomic(atomic, eth)
    }
}
