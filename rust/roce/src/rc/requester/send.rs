// SPDX-License-Identifier: GPL-2.0
//! Which packet is next.

use super::{
    super::{
        super::{
            headers::{
                AtomicEth,
                Bth,
                Headers,
                Reth,
                SendEnd, //
            },
            opcode::Position,
            packet::Packet, //
        },
        outstanding::Slot,
        queue::{
            Number,
            Op,
            WorkRequest,
            Wqe, //
        },
        stats, //
    },
    Requester, //
};
use core::ops::DerefMut;

/// A window holds answers to so many READ requests, if the peer allows so many: then the next is on
/// its way while one is being answered.
const READS_IN_WINDOW: u32 = 4;

/// An answer is asked for so many times in a window, so that it moves on before it is used up.
const ACKS_IN_WINDOW: u32 = 4;

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// All but its payload, of which it says the length.
    pub packet: Packet,
    /// Whose it is.
    pub wr_id: u64,
    /// Whose it is, for [`Requester::fail`].
    pub wqe: Number,
    /// Where in the message of `wr_id` its payload begins.
    pub offset: u32,
    /// Whether it was sent before.
    pub again: bool,
}

/// PSNs to be sent as one packet.
struct Run {
    /// Which packet of the message is the first.
    index: u32,
    /// How many: more than one for a READ request.
    packets: u32,
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Returns the next packet that can be sent at `now`. To be asked until it gives none: after
    /// posting, after responses, after a timer.
    ///
    /// A work request may be taken by another thread as soon as the requester's lock is let go: who
    /// sends a packet holds the memory of its `wr_id` by itself until the payload was read.
    pub fn poll(&mut self, now: u64) -> Option<Outgoing> {
        if !self.attr.state.sends() || self.timers.is_paused(now) {
            return None;
        }
        let at = self.at;
        let wqe = *self.queue.get(at)?;
        let (begins, index) = self.place_in(&wqe);
        if begins && !self.may_begin(&wqe.request) {
            return None;
        }
        let again = self.next != self.max;
        let run = Run {
            index,
            packets: self.fits(&wqe, index)?,
        };

        // From here on it is sent.
        if begins {
            self.queue.begin(self.next);
        }
        let end = self.next.add(run.packets);
        if wqe.request.op.is_rd_atomic() {
            if again {
                self.outstanding.sent_again();
            } else {
                self.outstanding.push(end);
            }
        }
        let last = index.wrapping_add(run.packets) >= wqe.packets;
        if last {
            // INVARIANT: `end` is behind the last PSN of `at`, which has begun.
            self.at = at.next();
        }
        let psn = self.next;
        // INVARIANT: The window allows it, and it is below its largest size.
        self.next = end;
        if !again {
            self.max = end;
        }

        let ack_req = self.asks(&wqe.request);
        let answered = ack_req || wqe.request.op.is_rd_atomic();
        if answered && !again && self.measured.is_none() {
            self.measured = Some((psn, now));
        }
        self.timers.wait(now, self.rtt.patience());

        let mut bth = Bth::new(self.attr.dest_qpn, psn);
        bth.ack_req = ack_req;
        bth.solicited = match wqe.request.op {
            // Tells the peer that more requests of the same READ follow.
            Op::Read { .. } => wqe.request.solicited || !last,
            _ => wqe.request.solicited && last,
        };
        let mtu = self.mtu();
        let (headers, len) = self.headers(&wqe, &run);
        let outgoing = Outgoing {
            packet: Packet::new(bth, headers, len as usize),
            wr_id: wqe.request.wr_id,
            wqe: at,
            offset: mtu.offset(index),
            again,
        };
        stats::add(&mut self.stats.packets, 1);
        stats::add(&mut self.stats.resent, u64::from(again));
        // A usize is at most 64 bits.
        let bytes = outgoing.packet.payload_len() as u64;
        stats::add(&mut self.stats.bytes, bytes);
        Some(outgoing)
    }

    /// Whether the first work request that has not begun may begin.
    fn may_begin(&self, request: &WorkRequest) -> bool {
        let room = self.outstanding.len() < usize::from(self.attr.max_rd_atomic);
        self.attr.state.begins_sends()
            && (!request.fence || self.outstanding.is_empty())
            && (room || !request.op.is_rd_atomic())
    }

    /// How many PSNs of the WQE, from packet `index` on, are sent with the next packet, if the window
    /// and the peer allow it.
    fn fits(&self, wqe: &Wqe, index: u32) -> Option<u32> {
        let size = self.window.size();
        let in_flight = self.in_flight();
        let room = size.saturating_sub(in_flight);
        if !matches!(wqe.request.op, Op::Read { .. }) {
            return (room > 0).then_some(1);
        }
        let packets = if self.next == self.max {
            let allowed = u32::from(self.attr.max_rd_atomic);
            if self.outstanding.len() >= usize::from(self.attr.max_rd_atomic) {
                return None;
            }
            let share = size / READS_IN_WINDOW.min(allowed).max(1);
            share.max(1).min(wqe.packets.saturating_sub(index))
        } else {
            // As far as the request went of which it was a part, and at least one packet.
            let end = self.outstanding.again().unwrap_or(self.next.next());
            end.since(self.next)
        };
        // A request sent again may be longer than the window is by now.
        (packets <= room || in_flight == 0).then_some(packets)
    }

    /// Whether the packet just cut is to ask for an answer.
    fn asks(&mut self, request: &WorkRequest) -> bool {
        if request.op.is_rd_atomic() {
            self.unasked = 0;
            return false;
        }
        self.unasked = self.unasked.saturating_add(1);
        let share = self.window.size() / ACKS_IN_WINDOW;
        let asks = self.unasked >= share.max(1) || !self.goes_on();
        if asks {
            self.unasked = 0;
        }
        asks
    }

    /// Whether a packet follows, without an answer to those before it.
    fn goes_on(&self) -> bool {
        let Some(wqe) = self.queue.get(self.at) else {
            return false;
        };
        let (begins, index) = self.place_in(wqe);
        (!begins || self.may_begin(&wqe.request)) && self.fits(wqe, index).is_some()
    }

    /// Whether `next` is the first packet of WQE `at`, which has not begun; which of its packets it is.
    fn place_in(&self, wqe: &Wqe) -> (bool, u32) {
        let begins = self.at == self.queue.begun();
        let first = if begins { self.max } else { wqe.first };
        (begins, self.next.since(first))
    }

    /// The headers of a packet, and the bytes of its payload.
    fn headers(&self, wqe: &Wqe, run: &Run) -> (Headers, u32) {
        let mtu = self.mtu();
        let len = wqe.request.len;
        let offset = mtu.offset(run.index);
        let starts = run.index == 0;
        let ends = run.index.wrapping_add(run.packets) >= wqe.packets;
        let position = match (starts, ends) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let payload = mtu.payload(len, run.index);
        match wqe.request.op {
            Op::Send(end) => (send(position, end), payload),
            Op::Write { va, rkey, imm } => (write(position, Reth { va, rkey, len }, imm), payload),
            Op::Read { va, rkey } => {
                // Not less than 0: the index is one of its packets. The last one ends with the
                // message.
                let rest = len.saturating_sub(offset);
                let reth = Reth {
                    va: va.wrapping_add(u64::from(offset)),
                    rkey,
                    len: rest.min(mtu.offset(run.packets)),
                };
                (Headers::ReadRequest(reth), 0)
            }
            Op::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            } => {
                let atomic = AtomicEth {
                    va,
                    rkey,
                    swap_add: swap,
                    compare,
                };
                (Headers::CompareSwap(atomic), 0)
            }
            Op::FetchAdd { va, rkey, add } => {
                let atomic = AtomicEth {
                    va,
                    rkey,
                    swap_add: add,
                    compare: 0,
                };
                (Headers::FetchAdd(atomic), 0)
            }
        }
    }
}

/// The headers of a packet of a SEND.
fn send(position: Position, end: SendEnd) -> Headers {
    match position {
        Position::First => Headers::SendFirst,
        Position::Middle => Headers::SendMiddle,
        Position::Last => Headers::SendLast(end),
        Position::Only => Headers::SendOnly(end),
    }
}

/// The headers of a packet of an RDMA WRITE.
fn write(position: Position, reth: Reth, imm: Option<u32>) -> Headers {
    match position {
        Position::First => Headers::WriteFirst(reth),
        Position::Middle => Headers::WriteMiddle,
        Position::Last => Headers::WriteLast(imm),
        Position::Only => Headers::WriteOnly(reth, imm),
    }
}
