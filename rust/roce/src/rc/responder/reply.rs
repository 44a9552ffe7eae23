// SPDX-License-Identifier: GPL-2.0
//! Answers: READ data, results of atomics, ACKs and NAKs.

use super::{
    super::{
        super::{
            headers::{
                Aeth,
                Bth,
                Headers,
                Nak,
                Reth,
                RnrTimer,
                Syndrome, //
            },
            packet::Packet,
            psn::Psn,
            state::State, //
        },
        gap::Gap,
        requester::LOCAL_PAUSE,
        stats,
        target::{
            Refusal,
            Target, //
        },
    },
    replay::{
        Answer,
        Part, //
    },
    AckPolicy,
    Replay,
    Responder, //
};
use core::ops::DerefMut;

/// An answer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answering {
    /// The packet without the bytes of its payload.
    pub packet: Packet,
    /// The memory of its payload, if it has one. The key may have become invalid since it was
    /// checked; see [`Responder::fail_read`].
    pub read: Option<Reth>,
    /// The original READ request, if this packet completes its answer.
    pub completes: Option<Reth>,
    /// Whether more requests of the same READ operation follow, so that the READ must not be
    /// counted yet. The requester says so with the solicited event bit, which is otherwise unused
    /// in READ requests.
    pub more: bool,
}

/// A negative answer that refers to `expected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nack {
    /// The request `expected` is missing, but this PSN arrived.
    Missing(Psn),
    /// No receive is available for it.
    NotReady(RnrTimer),
    /// The request was refused.
    Refused(Nak),
}

/// The pending answers other than READ data and results of atomics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// The time at which an ACK is due.
    ack: Option<u64>,
    /// The number of requests that wait for the ACK.
    waiting: u32,
    nack: Option<Nack>,
    /// The requests that have arrived behind `expected`.
    gap: Gap,
    /// No packet is sent before this time, because the local stack refused one.
    pause: Option<u64>,
}

impl Pending {
    /// Records that a request was executed; `expected` is the next one. Returns whether its ACK
    /// also answers an earlier request.
    pub(super) fn executed(
        &mut self,
        now: u64,
        policy: &AckPolicy,
        packet: &Packet,
        expected: Psn,
    ) -> bool {
        self.gap = Gap::default();
        self.nack = match self.nack {
            // The packet behind it was dropped and is still missing.
            Some(Nack::Missing(psn)) if !psn.is_before(expected) => self.nack,
            _ => None,
        };
        if is_rd_atomic(packet) {
            // The answer with data also acknowledges earlier requests.
            self.ack = None;
            self.waiting = 0;
            return false;
        }
        if !packet.bth.ack_req {
            return false;
        }
        let coalesced = self.ack.is_some();
        self.waiting = self.waiting.saturating_add(1);
        let due = if self.waiting >= policy.requests {
            now
        } else {
            now.saturating_add(policy.delay)
        };
        self.ack = Some(self.ack.map_or(due, |ack| ack.min(due)));
        coalesced
    }

    /// Records a request that was executed before: an ACK is due at once.
    pub(super) fn again(&mut self, now: u64) {
        self.ack = Some(self.ack.map_or(now, |due| due.min(now)));
    }

    /// Records that `psn` arrived although `expected`, which is before it, is missing.
    pub(super) fn missing(&mut self, psn: Psn, expected: Psn) {
        let is_new = self.gap.arrived(psn.since(expected));
        match self.nack {
            None if is_new => self.nack = Some(Nack::Missing(psn)),
            // The PSN that is furthest ahead keeps the NAK necessary for the longest time.
            Some(Nack::Missing(seen)) if seen.is_before(psn) => {
                self.nack = Some(Nack::Missing(psn));
            }
            _ => {}
        }
    }

    pub(super) fn not_ready(&mut self, timer: RnrTimer) {
        self.nack = Some(Nack::NotReady(timer));
        self.gap.restart();
    }

    pub(super) fn refused(&mut self, nak: Nak) {
        self.nack = Some(Nack::Refused(nak));
    }

    fn pause(&mut self, now: u64) {
        self.pause = Some(now.saturating_add(LOCAL_PAUSE));
    }

    fn is_paused(&self, now: u64) -> bool {
        self.pause.is_some_and(|until| now < until)
    }
}

/// Returns whether a request is answered with data.
fn is_rd_atomic(packet: &Packet) -> bool {
    matches!(
        packet.headers(),
        Headers::ReadRequest(_) | Headers::CompareSwap(_) | Headers::FetchAdd(_)
    )
}

impl<P: DerefMut<Target = [Replay]>> Responder<P> {
    /// Returns the next answer to send at `now`. The caller calls this until it returns `None`:
    /// after requests and after a timer. A long READ returns many packets; the caller may serve
    /// other QPs in between.
    pub fn poll(&mut self, now: u64) -> Option<Answering> {
        if self.is_silent() || self.pending.is_paused(now) {
            return None;
        }
        self.pending.pause = None;
        if let Some(part) = self.store.next() {
            return Some(self.part(&part));
        }
        let syndrome = match self.pending.nack.take() {
            Some(Nack::Missing(_)) => {
                self.pending.gap.set_reported();
                stats::add(&mut self.stats.nak_sequence, 1);
                Syndrome::Nak(Nak::Sequence)
            }
            Some(Nack::NotReady(timer)) => {
                self.pending.gap.set_reported();
                stats::add(&mut self.stats.rnr, 1);
                Syndrome::Rnr(timer)
            }
            Some(Nack::Refused(nak)) => {
                stats::add(self.refusals(nak), 1);
                Syndrome::Nak(nak)
            }
            None => {
                if self.pending.ack? > now {
                    return None;
                }
                stats::add(&mut self.stats.acks, 1);
                Syndrome::ACK
            }
        };
        // A NAK also acknowledges all requests before it.
        self.pending.ack = None;
        self.pending.waiting = 0;
        let psn = match syndrome {
            Syndrome::Ack(_) => self.expected.sub(1),
            Syndrome::Rnr(_) | Syndrome::Nak(_) => self.expected,
        };
        let aeth = Aeth {
            syndrome,
            msn: self.msn,
        };
        Some(Answering {
            packet: self.packet(psn, Headers::Acknowledge(aeth), 0),
            read: None,
            completes: None,
            more: false,
        })
    }

    /// Returns the time at which [`Self::poll`] may return a packet that it does not return now,
    /// unless another call comes first. `None` if there is nothing to send.
    pub fn deadline(&self) -> Option<u64> {
        if self.is_silent() {
            return None;
        }
        let due = if self.pending.nack.is_some() || self.store.is_pending() {
            Some(0)
        } else {
            self.pending.ack
        };
        due.max(due.and(self.pending.pause))
    }

    /// Records that the local stack refused a packet that [`Self::poll`] returned. `poll` returns
    /// it again after a pause.
    pub fn not_sent(&mut self, now: u64, packet: &Packet) {
        stats::add(&mut self.stats.not_sent, 1);
        let Headers::Acknowledge(aeth) = packet.headers() else {
            self.pending.pause(now);
            self.store.put_back(packet.bth.psn);
            return;
        };
        let psn = packet.bth.psn;
        match aeth.syndrome {
            // The NAK of a refused request is the last packet, so it must not be lost here.
            Syndrome::Nak(nak) if nak != Nak::Sequence => {
                if self.attr.state == State::Error && psn == self.expected {
                    self.pending.pause(now);
                    self.pending.refused(nak);
                }
            }
            _ if self.is_silent() || self.pending.nack.is_some() => {}
            syndrome => {
                self.pending.pause(now);
                let nack = match syndrome {
                    _ if psn != self.expected => None,
                    Syndrome::Rnr(timer) => Some(Nack::NotReady(timer)),
                    Syndrome::Nak(_) => Some(Nack::Missing(psn.next())),
                    Syndrome::Ack(_) => None,
                };
                self.pending.nack = nack;
                if nack.is_none() {
                    self.pending.again(now);
                }
            }
        }
    }

    /// Refuses `psn`, which [`Self::poll`] returned, because the memory of an accepted READ is no
    /// longer readable. The QP goes to ERR; the caller moves the requester to ERR too.
    pub fn fail_read<T: Target>(&mut self, psn: Psn, why: Refusal, target: &mut T) {
        // The QP may have failed since the packet was polled.
        if self.is_silent() {
            return;
        }
        self.stop(Some(why), target);
        self.attr.state = State::Error;
        self.expected = psn;
        self.pending.refused(match why {
            Refusal::Access => Nak::RemoteAccess,
            Refusal::Invalid => Nak::InvalidRequest,
            Refusal::NotReady | Refusal::Operation => Nak::RemoteOperation,
        });
    }

    /// Returns whether there is nothing to send, not even the NAK of a refused request.
    fn is_silent(&self) -> bool {
        let has_last_nak = matches!(self.pending.nack, Some(Nack::Refused(_)));
        match self.attr.state {
            State::Error => !has_last_nak,
            state => !state.executes(),
        }
    }

    fn packet(&self, psn: Psn, headers: Headers, len: u32) -> Packet {
        Packet::new(Bth::new(self.attr.dest_qpn, psn), headers, len as usize)
    }

    /// Builds a packet that answers a READ or an atomic.
    fn part(&mut self, part: &Part) -> Answering {
        let aeth = Aeth {
            syndrome: Syndrome::ACK,
            msn: part.msn,
        };
        let psn = part.replay_first.add(part.index);
        let (reth, more) = match part.answer {
            Answer::Atomic(value) => {
                stats::add(&mut self.stats.atomic_responses, 1);
                return Answering {
                    packet: self.packet(psn, Headers::AtomicAcknowledge(aeth, value), 0),
                    read: None,
                    completes: None,
                    more: false,
                };
            }
            Answer::Read(reth, more) => (reth, more),
        };
        let headers = match (part.starts, part.ends) {
            (true, true) => Headers::ReadResponseOnly(aeth),
            (true, false) => Headers::ReadResponseFirst(aeth),
            (false, false) => Headers::ReadResponseMiddle,
            (false, true) => Headers::ReadResponseLast(aeth),
        };
        let mtu = self.mtu();
        let len = mtu.payload(reth.len, part.index);
        stats::add(&mut self.stats.read_responses, 1);
        stats::add(&mut self.stats.read_bytes, u64::from(len));
        let read = Reth {
            va: reth.va.wrapping_add(u64::from(mtu.offset(part.index))),
            rkey: reth.rkey,
            len,
        };
        Answering {
            packet: self.packet(psn, headers, len),
            read: (len > 0).then_some(read),
            completes: part.completes.then_some(reth),
            more,
        }
    }

    fn refusals(&mut self, nak: Nak) -> &mut u64 {
        match nak {
            Nak::Sequence => &mut self.stats.nak_sequence,
            Nak::InvalidRequest => &mut self.stats.nak_invalid,
            Nak::RemoteAccess => &mut self.stats.nak_access,
            Nak::RemoteOperation => &mut self.stats.nak_operation,
        }
    }
}
