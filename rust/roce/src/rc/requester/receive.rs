// SPDX-License-Identifier: GPL-2.0
//! Matching responses with requests.
//!
//! A response refers to its own PSN and confirms all requests before it, with one exception: a READ
//! or an atomic is answered only by its own data. If a response to a later PSN arrives first, the
//! data was lost, which counts as a NAK for the PSN of the READ or atomic.
//!
//! Responses to PSNs that are answered, or that were never sent, are counted and ignored. A data
//! response to the oldest outstanding PSN that has a wrong length or position ends that work
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

/// The action that the caller takes for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// None: the response is handled or ignored.
    Nothing,
    /// Place the payload in the memory of `wr_id`, at `offset`.
    Place {
        /// The WQE, for [`Requester::fail`].
        wqe: Number,
        /// The ID of the work request.
        wr_id: u64,
        /// The offset in the message.
        offset: u32,
    },
    /// Place the value that the 8 bytes at the peer had before the atomic.
    Atomic {
        /// The WQE, for [`Requester::fail`].
        wqe: Number,
        /// The ID of the work request.
        wr_id: u64,
        /// The value.
        value: u64,
    },
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Handles a response that arrived at `now`. The caller takes the returned action before anyone
    /// calls [`Self::take`], and then polls, because [`Self::poll`] may return more packets.
    ///
    /// The caller has checked that the packet comes from the peer, is for this QP, and has a
    /// correct ICRC. Packets other than responses are ignored.
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

    /// Returns whether a response belongs to an outstanding request and is of a kind that can
    /// answer it.
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

    /// Returns whether a response to an outstanding PSN is of a kind that can answer it. Data
    /// responses answer only READs and atomics. A forged data response to the PSN of another
    /// request neither confirms earlier requests nor ends the connection.
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
            // The responder is in state ERR, so it will never answer the requests before this one.
            Syndrome::Nak(Nak::InvalidRequest) => self.refuse(psn, Status::RemoteInvalidRequest),
            Syndrome::Nak(Nak::RemoteAccess) => self.refuse(psn, Status::RemoteAccess),
            Syndrome::Nak(Nak::RemoteOperation) => self.refuse(psn, Status::RemoteOperation),
            _ if !reached => {
                if !self.gap.is_reported() {
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
            if self.gap.arrived(psn.since(self.una)) {
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
        // Which packet in the middle of a message ends a response depends on how the requests were
        // cut.
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
            if self.gap.arrived(psn.since(self.una)) {
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

    /// Records that the first outstanding PSN, which belongs to a READ or an atomic, is answered by
    /// its data. If it is the last PSN of the work request, the work request is answered too.
    fn answered(&mut self, now: u64, last: bool) {
        let una = self.una;
        self.una = una.next();
        if last {
            self.queue.answer();
        }
        self.moved(now, una);
    }

    /// Confirms all PSNs before `done`, which is outstanding or the first that was not sent.
    /// Returns false if a READ or an atomic among them has not been answered.
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
                // INVARIANT: `done` lies within the oldest WQE.
                self.una = done;
                break;
            }
            // INVARIANT: `una` is the first PSN of the next WQE.
            self.una = wqe.end();
            self.queue.answer();
        }
        self.moved(now, una);
        self.una == done
    }

    /// Updates window, timers and measurements after `una` may have advanced from `from`.
    fn moved(&mut self, now: u64, from: Psn) {
        let acked = self.una.since(from);
        if acked == 0 {
            return;
        }
        self.outstanding.answered(self.una);
        self.gap = Gap::default();
        let in_flight = self.next.since(from);
        if acked > in_flight {
            // The response confirms more than was sent since going back, so it answers earlier
            // packets. INVARIANT: `una` is at most `max`, and lies in the oldest WQE or is the
            // first PSN of the next one.
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

    /// Handles the refusal of the request with this PSN.
    fn refuse(&mut self, psn: Psn, status: Status) {
        let number = self.number_of(psn);
        self.fail(number, status);
    }

    /// Returns the WQE of an outstanding PSN.
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
