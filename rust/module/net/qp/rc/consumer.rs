// SPDX-License-Identifier: GPL-2.0

//! The trait by which an RC QP calls the layer above.

use crate::{
    mem::payload::Payload,
    shim::skb::Room, //
};
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

/// The user of an RC QP, the provider's endpoint or a QP of verbs: provides receives and memory for
/// the peer's requests, and is notified of the results of its own.
///
/// The task that runs the QP (its worker, or a task that sent to it on the same host) calls all of
/// these functions, one at a time: process context, may sleep except for [`read`](Self::read) and
/// [`end_read`](Self::end_read). The functions that serve the peer's requests are called with the
/// lock of the QP's responder held, those that report results with no lock held. None of them may
/// close the QP or call `modify`; [`run_ended`](Self::run_ended) may call `fail`. The latter may
/// post work requests, the former may not.
///
/// Where [`Target`] defines a function, it means the same here.
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

    /// Copies the range of `reth`, a part of a range that [`check_read`](Self::check_read) has
    /// allowed, to `room`, all of it. Bottom halves are disabled: must not sleep, and takes no
    /// mutex.
    ///
    /// Fails if the key is not valid any more, or the memory cannot be read; then
    /// [`abort_receive`](Self::abort_receive) may follow, when bottom halves are enabled again.
    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> Result<(), Refusal>;

    /// The last response to a READ request of the peer was built; the packets are sent after this
    /// call. `more`: the request says that others of the same operation follow. Bottom halves are
    /// disabled, as for [`read`](Self::read): must not sleep.
    fn end_read(&self, reth: &Reth, more: bool);

    /// [`Target::atomic`].
    fn atomic(&self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal>;

    /// A work request has completed. The QP does not use its memory any more, and has dropped its
    /// reference to it. Called in the order of posting.
    fn completed(&self, context: u64, status: Status);

    /// The QP has entered ERR by itself or by `fail`, not by `modify`. Called once. Posted work
    /// requests complete as flushed, before and after this.
    fn failed(&self);

    /// The peer has no receive for a SEND of this QP (RNR NAK); the QP sends it again later. Called
    /// with no lock held, as for a completion.
    fn not_ready(&self) {}

    /// The send queue is drained: a change to SQD requested this report
    /// ([`Attr::en_sqd_async_notify`]). The completions of all sends that had begun were reported
    /// before. Called with no lock held, as for a completion.
    ///
    /// [`Attr::en_sqd_async_notify`]: kfi_roce::rc::Attr::en_sqd_async_notify
    fn drained(&self) {}

    /// The run of the QP ends: all requests are answered, all completions reported. No lock is
    /// held, so the consumer can do here what the functions above may not. It sends what it posts
    /// by [`push_only`](super::super::Qp::push_only).
    fn run_ended(&self) {}
}

/// A consumer and the payload of one packet: the [`Target`] of kfi_roce's responder.
pub(super) struct RequestTarget<'a> {
    /// `None` when the QP is being closed.
    pub(super) consumer: Option<&'a dyn Consumer>,
    /// `None` when no packet is being processed.
    pub(super) payload: Option<Payload<'a>>,
}

impl<'a> RequestTarget<'a> {
    /// Without a packet.
    pub(super) fn new(consumer: Option<&'a dyn Consumer>) -> Self {
        Self {
            consumer,
            payload: None,
        }
    }

    /// Both of them, for a request.
    fn both(&self) -> Result<(&dyn Consumer, &Payload<'_>), Refusal> {
        self.consumer
            .zip(self.payload.as_ref())
            .ok_or(Refusal::Operation)
    }

    fn consumer(&self) -> Result<&dyn Consumer, Refusal> {
        self.consumer.ok_or(Refusal::Operation)
    }
}

impl Target for RequestTarget<'_> {
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
