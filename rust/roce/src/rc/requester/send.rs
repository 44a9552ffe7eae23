// SPDX-License-Identifier: GPL-2.0
//! Choosing and building the next packet.

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

/// The number of READ requests whose responses fill a window, if the peer allows so many. The next
/// request is then on its way while one is being answered.
const READS_IN_WINDOW: u32 = 4;

/// The number of acknowledgement requests per window, so that the window advances before it is used
/// up.
const ACKS_IN_WINDOW: u32 = 4;

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The packet without the bytes of its payload.
    pub packet: Packet,
    /// The ID of the work request.
    pub wr_id: u64,
    /// The WQE, for [`Requester::fail`].
    pub wqe: Number,
    /// The offset of the payload in the message of `wr_id`.
    pub offset: u32,
    /// Whether the packet is a retransmission.
    pub again: bool,
}

/// A range of PSNs that is sent as one packet.
struct Run {
    /// The index of the first PSN in its message.
    index: u32,
    /// The number of PSNs: more than one for a READ request.
    packets: u32,
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Returns the next packet that can be sent at `now`. The caller calls this until it returns
    /// `None`: after posting, after responses and after a timer.
    ///
    /// Another thread may take the work request as soon as the requester's lock is released. The
    /// sender of a packet therefore holds its own reference to the memory of `wr_id` until it has
    /// read the payload.
    pub fn poll(&mut self, now: u64) -> Option<Outgoing> {
        if !self.attr.state.sends() || self.timers.is_paused(now) {
            return None;
        }
        let at = self.at;
        let wqe = *self.queue.get(at)?;
        let (begins, index) = self.position_in(&wqe);
        if begins && !self.may_begin(&wqe.request) {
            return None;
        }
        let again = self.next != self.max;
        let run = Run {
            index,
            packets: self.fits(&wqe, index)?,
        };

        // No failure is possible from here on.
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
            // INVARIANT: `end` follows the last PSN of `at`, which has begun.
            self.at = at.next();
        }
        let psn = self.next;
        // INVARIANT: The window allows the packet, and it is at most LARGEST.
        self.next = end;
        if !again {
            self.max = end;
        }

        let ack_req = self.wants_ack(&wqe.request);
        let answered = ack_req || wqe.request.op.is_rd_atomic();
        if answered && !again && self.measured.is_none() {
            self.measured = Some((psn, now));
        }
        self.timers.wait(now, self.rtt.patience());

        let mut bth = Bth::new(self.attr.dest_qpn, psn);
        bth.ack_req = ack_req;
        bth.solicited = match wqe.request.op {
            // The bit tells the peer that more requests of the same READ follow.
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

    /// Returns whether the first work request that has not begun may begin.
    fn may_begin(&self, request: &WorkRequest) -> bool {
        let room = self.outstanding.len() < usize::from(self.attr.max_rd_atomic);
        self.attr.state.begins_sends()
            && (!request.fence || self.outstanding.is_empty())
            && (room || !request.op.is_rd_atomic())
    }

    /// Returns how many PSNs of the WQE, from packet `index` on, the next packet covers; `None` if
    /// the window or the peer does not allow it.
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
            // A retransmission covers the rest of the original request, and at least one packet.
            let end = self.outstanding.again().unwrap_or(self.next.next());
            end.since(self.next)
        };
        // A retransmitted request may exceed the present window; it is sent if nothing else is in
        // flight.
        (packets <= room || in_flight == 0).then_some(packets)
    }

    /// Returns whether the packet that was just cut requests an acknowledgement.
    fn wants_ack(&mut self, request: &WorkRequest) -> bool {
        if request.op.is_rd_atomic() {
            self.since_ack_req = 0;
            return false;
        }
        self.since_ack_req = self.since_ack_req.saturating_add(1);
        let share = self.window.size() / ACKS_IN_WINDOW;
        let wants_ack = self.since_ack_req >= share.max(1) || !self.can_continue();
        if wants_ack {
            self.since_ack_req = 0;
        }
        wants_ack
    }

    /// Returns whether another packet can follow without a response to the earlier ones.
    fn can_continue(&self) -> bool {
        let Some(wqe) = self.queue.get(self.at) else {
            return false;
        };
        let (begins, index) = self.position_in(wqe);
        (!begins || self.may_begin(&wqe.request)) && self.fits(wqe, index).is_some()
    }

    /// Returns whether `next` is the first packet of WQE `at`, which has not begun, and the index
    /// of `next` in the message.
    fn position_in(&self, wqe: &Wqe) -> (bool, u32) {
        let begins = self.at == self.queue.begun();
        let first = if begins { self.max } else { wqe.first };
        (begins, self.next.since(first))
    }

    /// Returns the headers of a packet and the length of its payload in bytes.
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
                // The index is that of a packet of the message, so the offset is at most the
                // length. The last packet ends with the message.
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

/// Returns the headers of a packet of a SEND.
fn send(position: Position, end: SendEnd) -> Headers {
    match position {
        Position::First => Headers::SendFirst,
        Position::Middle => Headers::SendMiddle,
        Position::Last => Headers::SendLast(end),
        Position::Only => Headers::SendOnly(end),
    }
}

/// Returns the headers of a packet of an RDMA WRITE.
fn write(position: Position, reth: Reth, imm: Option<u32>) -> Headers {
    match position {
        Position::First => Headers::WriteFirst(reth),
        Position::Middle => Headers::WriteMiddle,
        Position::Last => Headers::WriteLast(imm),
        Position::Only => Headers::WriteOnly(reth, imm),
    }
}
