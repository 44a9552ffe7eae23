// SPDX-License-Identifier: GPL-2.0
//! Answers: READ data, atomics' results, ACKs, NAKs.

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

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answering {
    /// All but its payload, of which it says the length.
    pub packet: Packet,
    /// Which memory its payload is, if it has one. The key may have gone since it was checked; see
    /// [`Responder::fail_read`].
    pub read: Option<Reth>,
    /// The READ request that is answered with it, as it was first asked for.
    pub completes: Option<Reth>,
    /// Whether more requests of the same READ follow, so that it is not to be counted yet. The
    /// requester says so with the bit of a solicited event, which no READ request has.
    pub more: bool,
}

/// What else is to be said about `expected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nack {
    /// It is missing, but this one came.
    Missing(Psn),
    /// There is no receive for it.
    NotReady(RnrTimer),
    /// It was refused.
    Refused(Nak),
}

/// What is to be answered besides READs and atomics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// When an ACK is due.
    ack: Option<u64>,
    /// Requests that wait for it.
    waiting: u32,
    nack: Option<Nack>,
    /// What has come behind `expected`.
    gap: Gap,
    /// The local stack refused a packet: nothing is sent before.
    pause: Option<u64>,
}

impl Pending {
    /// A request was executed; the next one is `expected`. Returns whether its ACK is that of an
    /// earlier one, too.
    pub(super) fn executed(
        &mut self,
        now: u64,
        policy: &AckPolicy,
        packet: &Packet,
        expected: Psn,
    ) -> bool {
        self.gap = Gap::default();
        self.nack = match self.nack {
            // What came behind it was dropped and is still missing.
            Some(Nack::Missing(psn)) if !psn.is_before(expected) => self.nack,
            _ => None,
        };
        if is_rd_atomic(packet) {
            // Its own answer says more.
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

    /// A request came that was executed before.
    pub(super) fn again(&mut self, now: u64) {
        self.ack = Some(self.ack.map_or(now, |due| due.min(now)));
    }

    /// `psn` came and `expected`, before it, did not.
    pub(super) fn missing(&mut self, psn: Psn, expected: Psn) {
        let tell = self.gap.came(psn.since(expected));
        match self.nack {
            None if tell => self.nack = Some(Nack::Missing(psn)),
            // One that is further along keeps the NAK necessary for longer.
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

/// Whether a request is answered with data.
fn is_rd_atomic(packet: &Packet) -> bool {
    matches!(
        packet.headers(),
        Headers::ReadRequest(_) | Headers::CompareSwap(_) | Headers::FetchAdd(_)
    )
}

impl<P: DerefMut<Target = [Replay]>> Responder<P> {
    /// Returns the next answer that is to be sent at `now`. To be asked until it gives none: after
    /// requests, after a timer. A long READ gives many; in between, others may have their turn.
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
                self.pending.gap.told();
                stats::add(&mut self.stats.nak_sequence, 1);
                Syndrome::Nak(Nak::Sequence)
            }
            Some(Nack::NotReady(timer)) => {
                self.pending.gap.told();
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
        // A NAK acknowledges what is before it.
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

    /// Returns when [`Self::poll`] may give something that it does not give now, unless something
    /// happens before. `None`: nothing is to be sent.
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

    /// The local stack refused a packet that [`Self::poll`] gave: it will give it again after a while.
    pub fn not_sent(&mut self, now: u64, packet: &Packet) {
        stats::add(&mut self.stats.not_sent, 1);
        let Headers::Acknowledge(aeth) = packet.headers() else {
            self.pending.pause(now);
            self.store.put_back(packet.bth.psn);
            return;
        };
        let psn = packet.bth.psn;
        match aeth.syndrome {
            // Last words.
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

    /// The memory of a READ that was accepted cannot be read any more: `psn`, which [`Self::poll`] gave,
    /// is refused, and the QP goes to ERR. The requester is to follow.
    pub fn fail_read<T: Target>(&mut self, psn: Psn, why: Refusal, target: &mut T) {
        // Last words may be in the middle of the READ.
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

    /// Whether there is nothing to be said: not even last words.
    fn is_silent(&self) -> bool {
        let last_words = matches!(self.pending.nack, Some(Nack::Refused(_)));
        match self.attr.state {
            State::Error => !last_words,
            state => !state.executes(),
        }
    }

    fn packet(&self, psn: Psn, headers: Headers, len: u32) -> Packet {
        Packet::new(Bth::new(self.attr.dest_qpn, psn), headers, len as usize)
    }

    /// A packet that answers a READ or an atomic.
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
