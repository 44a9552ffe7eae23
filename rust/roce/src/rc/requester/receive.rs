// SPDX-License-Identifier: GPL-2.0
//! What a response answers.
//!
//! A response says something about its own PSN and confirms all before it, with one exception: a READ
//! or an atomic is answered by its own data alone. If a response to a later PSN comes first, the data
//! was lost, which counts as a NAK for its PSN.
//!
//! Responses to PSNs that are answered, or that were never sent, are counted and ignored. A response
//! to the oldest outstanding PSN that cannot be one (another kind, another length) ends that work
//! request with [`Status::BadResponse`].

use super::{
    super::{
        super::{
            headers::{
                Headers,
                Nak,
                Syndrome, //
            },
            packet::Packet,
            psn::Psn, //
        },
        gap::Gap,
        outstanding::Slot,
        queue::{
            Number,
            Op,
            Status,
            Wqe, //
        },
        stats, //
    },
    Requester, //
};
use core::ops::DerefMut;

/// What the caller has to do with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing: it is done, or ignored.
    Nothing,
    /// Place its payload in the memory of `wr_id`, from `offset` on.
    Place {
        /// Whose it is, for [`Requester::fail`].
        wqe: Number,
        /// Whose it is.
        wr_id: u64,
        /// Where in the message.
        offset: u32,
    },
    /// Place what the 8 bytes at the peer were before the atomic.
    Atomic {
        /// Whose it is, for [`Requester::fail`].
        wqe: Number,
        /// Whose it is.
        wr_id: u64,
        /// The 8 bytes, as a number.
        value: u64,
    },
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Takes in a response that came at `now`. What it says is to be done before anybody takes
    /// completions ([`Self::take`]). Then [`Self::poll`] may give more packets.
    ///
    /// The packet is from the peer to this QP, and its ICRC is right. Anything but a response is
    /// ignored.
    pub fn receive(&mut self, now: u64, packet: &Packet) -> Received {
        let psn = packet.bth.psn;
        if !self.attr.state.sends() || !self.expects(packet) {
            return Received::Nothing;
        }
        match packet.headers() {
            Headers::Acknowledge(aeth) => {
                self.acknowledged(now, psn, aeth.syndrome);
                Received::Nothing
            }
            Headers::AtomicAcknowledge(_, value) => self.atomic(now, psn, value),
            Headers::ReadResponseMiddle => self.read(now, packet, false),
            Headers::ReadResponseFirst(_) => self.read(now, packet, false),
            Headers::ReadResponseLast(_) => self.read(now, packet, true),
            Headers::ReadResponseOnly(_) => self.read(now, packet, true),
            _ => Received::Nothing,
        }
    }

    /// Whether a response is to something outstanding, and of the kind that answers that.
    fn expects(&mut self, packet: &Packet) -> bool {
        if !packet.opcode().is_response() {
            return false;
        }
        let psn = packet.bth.psn;
        let is_outstanding = psn.is_within(self.una, self.max.since(self.una));
        let expected = is_outstanding && self.answers(packet);
        let count = if expected {
            &mut self.stats.responses
        } else if psn.is_before(self.una) {
            &mut self.stats.duplicates
        } else {
            &mut self.stats.strays
        };
        stats::add(count, 1);
        expected
    }

    /// Whether a response to something outstanding is of the kind that answers it. Data are for READs
    /// and atomics only: anybody can send them to a PSN that is another request's, and they neither
    /// confirm what is before it nor end the connection.
    fn answers(&self, packet: &Packet) -> bool {
        let wqe = || self.queue.get(self.number_of(packet.bth.psn));
        match packet.headers() {
            Headers::Acknowledge(_) => true,
            Headers::AtomicAcknowledge(..) => wqe().is_some_and(|wqe| wqe.request.op.is_atomic()),
            _ => wqe().is_some_and(|wqe| matches!(wqe.request.op, Op::Read { .. })),
        }
    }

    fn acknowledged(&mut self, now: u64, psn: Psn, syndrome: Syndrome) {
        let (done, count) = match syndrome {
            Syndrome::Ack(_) => (psn.next(), None),
            Syndrome::Rnr(_) => (psn, Some(&mut self.stats.rnr)),
            Syndrome::Nak(Nak::Sequence) => (psn, Some(&mut self.stats.nak_sequence)),
            Syndrome::Nak(Nak::InvalidRequest) => (psn, Some(&mut self.stats.nak_invalid)),
            Syndrome::Nak(Nak::RemoteAccess) => (psn, Some(&mut self.stats.nak_access)),
            Syndrome::Nak(Nak::RemoteOperation) => (psn, Some(&mut self.stats.nak_operation)),
        };
        if let Some(count) = count {
            stats::add(count, 1);
        }
        let reached = self.advance(now, done);
        match syndrome {
            // The responder is in state ERR: what is before it will never be answered.
            Syndrome::Nak(Nak::InvalidRequest) => self.refuse(psn, Status::RemoteInvalidRequest),
            Syndrome::Nak(Nak::RemoteAccess) => self.refuse(psn, Status::RemoteAccess),
            Syndrome::Nak(Nak::RemoteOperation) => self.refuse(psn, Status::RemoteOperation),
            _ if !reached => {
                if !self.gap.is_told() {
                    self.implied_nak(now);
                }
            }
            Syndrome::Ack(_) => {}
            Syndrome::Rnr(timer) => self.not_ready(now, timer.ns()),
            Syndrome::Nak(Nak::Sequence) => self.lost(now),
        }
    }

    fn read(&mut self, now: u64, packet: &Packet, ends: bool) -> Received {
        let psn = packet.bth.psn;
        if !self.advance(now, psn) {
            if self.gap.came(psn.since(self.una)) {
                self.implied_nak(now);
            }
            return Received::Nothing;
        }
        let number = self.queue.oldest();
        let Some(wqe) = self.queue.get(number).copied() else {
            return Received::Nothing;
        };
        let index = psn.since(wqe.first);
        let last = index.wrapping_add(1) >= wqe.packets;
        let len = self.mtu().payload(wqe.request.len, index) as usize;
        // Which packets in the middle end a response depends on how the requests were cut.
        if !matches!(wqe.request.op, Op::Read { .. })
            || packet.payload_len() != len
            || last && !ends
        {
            self.fail(number, Status::BadResponse);
            return Received::Nothing;
        }
        // A usize is at most 64 bits.
        stats::add(&mut self.stats.response_bytes, len as u64);
        self.answered(now, last);
        Received::Place {
            wqe: number,
            wr_id: wqe.request.wr_id,
            offset: self.mtu().offset(index),
        }
    }

    fn atomic(&mut self, now: u64, psn: Psn, value: u64) -> Received {
        if !self.advance(now, psn) {
            if self.gap.came(psn.since(self.una)) {
                self.implied_nak(now);
            }
            return Received::Nothing;
        }
        let number = self.queue.oldest();
        let Some(wqe) = self.queue.get(number).copied() else {
            return Received::Nothing;
        };
        if !wqe.request.op.is_atomic() {
            self.fail(number, Status::BadResponse);
            return Received::Nothing;
        }
        self.answered(now, true);
        Received::Atomic {
            wqe: number,
            wr_id: wqe.request.wr_id,
            value,
        }
    }

    /// The first outstanding PSN, of a READ or an atomic, is answered by its data; with it the work
    /// request, if it is its `last`.
    fn answered(&mut self, now: u64, last: bool) {
        let una = self.una;
        self.una = una.next();
        if last {
            self.queue.answer();
        }
        self.moved(now, una);
    }

    /// All before `done`, which is outstanding or the first that was not sent, is confirmed. False: a
    /// READ or an atomic among them is not.
    fn advance(&mut self, now: u64, done: Psn) -> bool {
        let una = self.una;
        while self.una != done && !self.queue.is_quiet() {
            let Some(wqe) = self.queue.get(self.queue.oldest()) else {
                break;
            };
            if wqe.request.op.is_rd_atomic() {
                break;
            }
            let rest = wqe.end().since(self.una);
            if rest > done.since(self.una) {
                // INVARIANT: Within the oldest WQE.
                self.una = done;
                break;
            }
            // INVARIANT: At the beginning of the next one.
            self.una = wqe.end();
            self.queue.answer();
        }
        self.moved(now, una);
        self.una == done
    }

    /// `una` has moved on from `from`, or not.
    fn moved(&mut self, now: u64, from: Psn) {
        let acked = self.una.since(from);
        if acked == 0 {
            return;
        }
        self.outstanding.answered(self.una);
        self.gap = Gap::default();
        let in_flight = self.next.since(from);
        if acked > in_flight {
            // More than was sent since going back: the answer is to what was sent before.
            // INVARIANT: `una` is at most `max`, and in the oldest WQE or the first to begin.
            self.next = self.una;
            self.at = self.queue.oldest();
            if self.window.undo() {
                stats::add(&mut self.stats.spurious, 1);
                self.forward();
            }
        }
        self.window.acknowledged(acked, in_flight.max(acked));
        if self.recovered.is_some_and(|psn| !self.una.is_before(psn)) {
            self.recovered = None;
        }
        if let Some((psn, sent)) = self.measured {
            if psn.is_before(self.una) {
                self.rtt.sample(now.saturating_sub(sent));
                self.measured = None;
            }
        }
        self.timers.progress(&self.attr);
        if self.una != self.max {
            self.timers.wait(now, self.rtt.patience());
        }
    }

    /// The responder refused the request with this PSN.
    fn refuse(&mut self, psn: Psn, status: Status) {
        let number = self.number_of(psn);
        self.fail(number, status);
    }

    /// The WQE of an outstanding PSN.
    pub(super) fn number_of(&self, psn: Psn) -> Number {
        let mut number = self.queue.oldest();
        while let Some(wqe) = self.queue.get(number) {
            if number == self.queue.begun() || psn.since(self.una) < wqe.end().since(self.una) {
                break;
            }
            number = number.next();
        }
        number
    }
}
