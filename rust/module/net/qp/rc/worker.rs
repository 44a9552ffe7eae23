// SPDX-License-Identifier: GPL-2.0

//! A run of an RC QP: packets, the timer, completions, statistics.

use super::{
    super::{
        super::{
            packet,
            path::Path,
            stats::{
                PacketCounter,
                Stat, //
            }, //
        },
        Cause,
        Qp, //
    },
    consumer::{
        Consumer,
        RequestTarget, //
    },
    InlineHeaders,
    Rc,
    Receiving,
    Sending,
    Work, //
};
use crate::{
    mem::{
        payload::{
            self,
            Payload, //
        },
        MemRef, //
    },
    shim::{
        inline_work::{
            InlineList,
            SendBatch, //
        },
        sched::now_ns,
        skb::{
            Room,
            RxBatch,
            RxSkb,
            TxSkb, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_roce::{
    packet::Packet,
    psn::Psn,
    rc::{
        Answering,
        Outgoing,
        Received,
        Refusal,
        Replay,
        Responder,
        Status, //
    },
    state::State, //
};

/// Packets that are sent before packets that arrive on this CPU are processed.
const BATCH: usize = 16;

/// Responses that are sent before the QP's own requests.
const RESPONSES: usize = 128;

/// Completions that are taken at a time.
const COMPLETIONS: usize = 16;

/// Runs the QP. See [`Kind::work`](super::super::Kind::work).
pub(super) fn work(qp: &Arc<Qp<Rc>>, batch: RxBatch, cause: Cause, inline: &InlineList) {
    let consumer = qp.kind.consumer();
    let consumer = consumer.as_deref();
    let mut counter = qp.counter();
    counter.set_inline(cause == Cause::Arrived);
    let now = now_ns();

    let (responses, responder_result) =
        run_responder(qp, batch, cause, consumer, &mut counter, now, inline);
    // Requests alone do not concern the sending half, as responses do not concern the receiving
    // half.
    if cause == Cause::Woken || !responses.is_empty() || responder_result != RecvResult::default() {
        run_requester(
            qp,
            responses,
            &responder_result,
            consumer,
            counter,
            now,
            inline,
        );
    } else {
        drop(counter);
    }
    if let Some(consumer) = consumer {
        consumer.run_ended();
    }
}

/// The results of the receiving half that the sending half needs.
#[derive(Default, PartialEq, Eq)]
struct RecvResult {
    /// The time at which a response is due.
    response_due: Option<u64>,
    /// The responder is in state ERR.
    refused: bool,
}

/// Executes the requests in `batch`, and sends responses to them. Drops requests if the link has
/// lost the QP's address. Returns the packets that are responses.
fn run_responder(
    qp: &Arc<Qp<Rc>>,
    batch: RxBatch,
    cause: Cause,
    consumer: Option<&dyn Consumer>,
    counter: &mut PacketCounter<'_>,
    now: u64,
    inline: &InlineList,
) -> (RxBatch, RecvResult) {
    let mut responses = RxBatch::empty();
    let mut receiving = None;
    if cause == Cause::Woken {
        let receiving = receiving.insert(qp.kind.receiving.lock());
        if qp.is_gone() {
            let mut target = RequestTarget::new(consumer);
            receiving.responder.error(&mut target);
        }
    }
    for skb in batch {
        // It was parsed when it arrived, and its headers have not changed.
        let Ok(packet) = packet::parse(&skb) else {
            continue;
        };
        if !qp.still_accepts(&skb) {
            counter.count(Stat::DropState);
            continue;
        }
        if packet.opcode().is_response() {
            counter.received(packet.len());
            responses.push(skb);
            continue;
        }
        let receiving = receiving.get_or_insert_with(|| qp.kind.receiving.lock());
        let path = receiving.path.as_ref();
        if path.is_some_and(|path| path.has_lost_address()) {
            counter.count(Stat::DropDestination);
            continue;
        }
        counter.received(packet.len());
        let mut target = RequestTarget {
            consumer,
            payload: Some(Payload::new(&skb, packet.payload())),
        };
        receiving.responder.receive(now, &packet, &mut target);
    }
    let Some(mut receiving) = receiving else {
        return (responses, RecvResult::default());
    };
    send_responses(qp, &mut receiving, consumer, counter, now, inline);
    add_responder(&mut receiving, counter);
    let responder_result = RecvResult {
        response_due: receiving.responder.deadline(),
        refused: receiving.responder.state() == State::Error,
    };
    (responses, responder_result)
}

/// Processes responses, sends the packets that they or the time allow, and reports completions.
fn run_requester(
    qp: &Arc<Qp<Rc>>,
    responses: RxBatch,
    responder_result: &RecvResult,
    consumer: Option<&dyn Consumer>,
    mut counter: PacketCounter<'_>,
    now: u64,
    inline: &InlineList,
) {
    let mut completions = Completions::none();
    let (failed, rnr_received, drained) = {
        let mut sending = qp.kind.sending.lock();
        let rnr = sending.requester.stats().rnr;
        for skb in responses {
            if let Ok(packet) = packet::parse(&skb) {
                receive_response(&mut sending, now, &packet, &skb);
            }
        }
        if responder_result.refused {
            sending.requester.error();
        }
        sending.requester.expired(now);
        transmit(qp, &mut sending, &mut counter, now, Some(inline));
        add_requester(&mut sending, &counter);
        set_alarm(qp, &mut sending, now, responder_result.response_due);
        completions.take(&mut sending);
        let rnr_received = sending.requester.stats().rnr != rnr;
        let drained = sending.requester.take_drained();
        let failed = sending.requester.state() == State::Error;
        (failed, rnr_received, drained)
    };
    // Add up the statistics first: the consumer may read them when a completion is reported.
    drop(counter);

    if failed && !responder_result.refused {
        let mut target = RequestTarget::new(consumer);
        qp.kind.receiving.lock().responder.error(&mut target);
    }
    report(qp, consumer, completions, failed);
    if let (true, Some(consumer)) = (drained, consumer) {
        consumer.drained();
    }
    if let (true, Some(consumer)) = (rnr_received, consumer) {
        consumer.not_ready();
    }
}

/// Sends queued work requests, as far as the window allows.
pub(super) fn send(qp: &Arc<Qp<Rc>>, sending: &mut Sending, inline: Option<&InlineList>) {
    let now = now_ns();
    transmit(qp, sending, &mut qp.counter(), now, inline);
    set_alarm(qp, sending, now, None);
}

/// Sets the timer to the next time at which the worker has something to do. `now` may be as old as
/// the run; then the timer expires later by the same time.
fn set_alarm(qp: &Arc<Qp<Rc>>, sending: &mut Sending, now: u64, response_due: Option<u64>) {
    let at = [sending.requester.deadline(), response_due];
    let Some(at) = at.into_iter().flatten().min() else {
        return;
    };
    if at <= now {
        qp.wake();
    } else if !qp.is_closed() {
        // `detach` drops the alarm after `closed` is set, under this lock.
        sending.alarm.set(qp, &qp.due, now, at);
    }
}

/// Sends the packet that was built, and counts it. Returns false if it is lost.
fn send_packet(
    path: &Path,
    built: Result<TxSkb>,
    packet: &Packet,
    counter: &mut PacketCounter<'_>,
) -> bool {
    let sent = built.and_then(|skb| path.send(skb)).is_ok();
    if sent {
        counter.sent(packet.len());
    } else {
        counter.count(Stat::TxNotSent);
    }
    sent
}

/// Sends the requests that may be sent.
fn transmit(
    qp: &Qp<Rc>,
    sending: &mut Sending,
    counter: &mut PacketCounter<'_>,
    now: u64,
    inline: Option<&InlineList>,
) {
    let Sending {
        requester,
        path,
        works,
        inline_headers,
        ..
    } = sending;
    let Some(path) = path.as_deref() else {
        return;
    };
    let mut next = requester.poll(now);
    while next.is_some() {
        let together = SendBatch::begin();
        for _ in 0..BATCH {
            let Some(outgoing) = next else {
                break;
            };
            let packet = &outgoing.packet;
            let built = path.build(qp.source_port(), qp.kind.next_ip_id(), packet, |room| {
                put_payload(works, inline_headers, &outgoing, room);
                Ok(())
            });
            if !send_packet(path, built, packet, counter) {
                requester.not_sent(now, packet.bth.psn);
            }
            next = requester.poll(now);
        }
        together.end(inline);
    }
}

/// Sends responses, at most [`RESPONSES`] of them: the rest is due at once.
fn send_responses(
    qp: &Qp<Rc>,
    receiving: &mut Receiving,
    consumer: Option<&dyn Consumer>,
    counter: &mut PacketCounter<'_>,
    now: u64,
    inline: &InlineList,
) {
    let Receiving {
        responder, path, ..
    } = receiving;
    let Some(path) = path.as_deref() else {
        return;
    };
    for _ in 0..RESPONSES / BATCH {
        let mut failed = None;
        let together = SendBatch::begin();
        let more = (0..BATCH).all(|_| {
            let response = responder.poll(now);
            response.is_some_and(|response| {
                let sent = send_response(qp, path, responder, consumer, counter, now, &response);
                failed = sent.err();
                failed.is_none()
            })
        });
        together.end(Some(inline));
        if let Some((psn, why)) = failed {
            // Not before the end of the batch: the consumer takes mutexes and unpins memory.
            responder.fail_read(psn, why, &mut RequestTarget::new(consumer));
        } else if !more {
            return;
        }
    }
}

/// Sends a response. It fails if the memory cannot be read; then nothing else may be sent until the
/// responder knows of the error. Does not sleep.
fn send_response(
    qp: &Qp<Rc>,
    path: &Path,
    responder: &mut Responder<KVec<Replay>>,
    consumer: Option<&dyn Consumer>,
    counter: &mut PacketCounter<'_>,
    now: u64,
    response: &Answering,
) -> Result<(), (Psn, Refusal)> {
    let packet = &response.packet;
    let mut refused = None;
    let built = path.build(qp.source_port(), qp.kind.next_ip_id(), packet, |room| {
        read(consumer, response, room).map_err(|why| {
            refused = Some(why);
            EFAULT
        })
    });
    if let Some(why) = refused {
        return Err((packet.bth.psn, why));
    }
    if !send_packet(path, built, packet, counter) {
        responder.not_sent(now, packet);
    }
    if let (Some(reth), Some(consumer)) = (response.completes, consumer) {
        consumer.end_read(&reth, response.more);
    }
    Ok(())
}

/// Copies the payload of a response.
fn read(
    consumer: Option<&dyn Consumer>,
    response: &Answering,
    room: &mut Room<'_>,
) -> Result<(), Refusal> {
    match &response.read {
        Some(reth) => consumer.ok_or(Refusal::Operation)?.read(reth, room),
        None => Ok(()),
    }
}

/// Processes a response.
fn receive_response(sending: &mut Sending, now: u64, packet: &Packet, skb: &RxSkb) {
    let (wqe, placed) = match sending.requester.receive(now, packet) {
        Received::Nothing => return,
        Received::Place { wqe, wr_id, offset } => {
            let payload = Payload::new(skb, packet.payload());
            let placed = memory(&sending.works, wr_id)
                .map_or(0, |memory| payload.place(memory, offset as usize));
            (wqe, placed == payload.len())
        }
        Received::Atomic { wqe, wr_id, value } => {
            let bytes = value.to_ne_bytes();
            let placed =
                memory(&sending.works, wr_id).map_or(0, |memory| payload::store(memory, 0, &bytes));
            (wqe, placed == bytes.len())
        }
    };
    if !placed {
        sending.requester.fail(wqe, Status::LocalProtection);
    }
}

/// The memory of a work request.
fn memory(works: &[Option<Work>], wr_id: u64) -> Option<&MemRef> {
    let slot = usize::try_from(wr_id).ok()?;
    Some(&works.get(slot)?.as_ref()?.memory)
}

/// Copies the payload of a request.
fn put_payload(
    works: &[Option<Work>],
    inline_headers: &InlineHeaders,
    outgoing: &Outgoing,
    room: &mut Room<'_>,
) {
    if room.left() == 0 {
        return;
    }
    match memory(works, outgoing.wr_id) {
        Some(memory) => {
            let (slot, offset) = (outgoing.wr_id as usize, outgoing.offset as usize);
            inline_headers.gather(slot, memory, offset, room);
        }
        // Cannot happen: the memory stays until the completion is taken.
        None => room.fill(0),
    }
}

/// Whether packets of the path MTU are longer than the path to the peer carries now, according to
/// ICMP messages of routers. Those may be forged, so this is checked only when the peer has not
/// answered.
fn is_too_long(sending: &Sending) -> bool {
    let Some(path) = &sending.path else {
        return false;
    };
    match path.mtu() {
        Ok(carried) => carried < sending.requester.mtu(),
        Err(error) => error == EMSGSIZE,
    }
}

/// Completed work requests and their status.
struct Completions([Option<(Work, Status)>; COMPLETIONS]);

impl Completions {
    /// No work requests.
    fn none() -> Self {
        Self([const { None }; COMPLETIONS])
    }

    /// Takes completions, as many as there is room for.
    fn take(&mut self, sending: &mut Sending) {
        for slot in &mut self.0 {
            let Some(completion) = sending.requester.take() else {
                break;
            };
            let index = completion.request.wr_id as usize;
            let work = sending.works.get_mut(index).and_then(Option::take);
            let status = match completion.status {
                Status::RetryExceeded if is_too_long(sending) => Status::LocalLength,
                status => status,
            };
            *slot = work.map(|work| (work, status));
        }
    }

    /// Reports them to the consumer. Returns whether there may be more.
    fn report(&mut self, consumer: Option<&dyn Consumer>) -> bool {
        for slot in &mut self.0 {
            let Some((work, status)) = slot.take() else {
                return false;
            };
            // The consumer may rely on the memory being released.
            drop(work.memory);
            if let Some(consumer) = consumer {
                consumer.completed(work.context, status);
            }
        }
        true
    }
}

/// Reports completions to the consumer, and that the QP has failed.
fn report(
    qp: &Qp<Rc>,
    consumer: Option<&dyn Consumer>,
    mut completions: Completions,
    failed: bool,
) {
    while completions.report(consumer) {
        completions.take(&mut qp.kind.sending.lock());
    }
    if failed {
        let reported = core::mem::replace(&mut qp.kind.sending.lock().error_reported, true);
        if let (false, Some(consumer)) = (reported, consumer) {
            consumer.failed();
        }
    }
}

/// Adds the increase since the statistics in `added`.
macro_rules! add {
    ($counter:ident, $now:ident, $added:ident: $($field:ident => $stat:ident,)*) => {
        $(
            let grown = $now.$field.wrapping_sub($added.$field);
            if grown != 0 {
                $counter.add(Stat::$stat, grown);
            }
        )*
    };
}

/// Adds what the requester has counted since the last call.
fn add_requester(sending: &mut Sending, counter: &PacketCounter<'_>) {
    let now = *sending.requester.stats();
    let added = core::mem::replace(&mut sending.added, now);
    add!(counter, now, added:
        resent => Resent,
        retries => Retries,
        timeouts => Timeouts,
        probes => Probes,
        duplicates => Duplicates,
        strays => Strays,
        responses => AckRx,
        nak_sequence => NakSequenceRx,
        nak_invalid => NakInvalidRx,
        nak_access => NakAccessRx,
        nak_operation => NakOperationRx,
        rnr => RnrRx,
    );
}

/// Adds what the responder has counted since the last call.
fn add_responder(receiving: &mut Receiving, counter: &PacketCounter<'_>) {
    let now = *receiving.responder.stats();
    let added = core::mem::replace(&mut receiving.added, now);
    add!(counter, now, added:
        duplicates => Duplicates,
        out_of_sequence => OutOfSequence,
        too_far => DropPsn,
        unready => DropState,
        acks => AckTx,
        nak_sequence => NakSequenceTx,
        nak_invalid => NakInvalidTx,
        nak_access => NakAccessTx,
        nak_operation => NakOperationTx,
        rnr => RnrTx,
    );
}
