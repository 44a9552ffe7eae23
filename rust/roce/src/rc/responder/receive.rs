// SPDX-License-Identifier: GPL-2.0
//! Checking and executing requests.
//!
//! A request is checked in this order: the state; the PSN; the opcode after the previous one; the
//! operations that the QP allows; the length; the key; whether a receive is available. Then it is
//! executed, and only then the expected PSN advances.

use super::{
    super::{
        super::{
            headers::{
                AtomicEth,
                Headers,
                Nak,
                Reth,
                SendEnd, //
            },
            opcode::Position,
            packet::Packet,
            psn::Psn,
            state::State, //
        },
        requester::ATOMIC_LEN,
        stats,
        target::{
            Atomic,
            Ended,
            Incoming,
            Refusal,
            Target, //
        },
        window::LARGEST,
        MAX_LEN, //
    },
    replay::Answer,
    Message,
    Replay,
    Responder, //
};
use core::ops::DerefMut;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestResult {
    /// The request was executed.
    Executed,
    /// The request is a duplicate. It will be answered again if possible.
    Duplicate,
    /// Earlier requests are missing. The request was dropped.
    OutOfSequence,
    /// No receive is available. The requester gets an RNR NAK.
    NotReady,
    /// The request was refused and the QP is in state ERR. The caller moves the requester to ERR
    /// too ([`Requester::error`](super::super::Requester::error)).
    Refused(Nak),
    /// The state accepts no requests, the packet is not a request, or its PSN is further ahead than
    /// any requester's window ([`LARGEST`]). It was dropped without an answer.
    Dropped,
}

/// The reason for which a request is not executed.
enum Stop {
    NotReady,
    /// The NAK, and the reason for aborting a receive in progress.
    Refuse(Nak, Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        let nak = match refusal {
            Refusal::NotReady => return Self::NotReady,
            Refusal::Invalid => Nak::InvalidRequest,
            Refusal::Access => Nak::RemoteAccess,
            Refusal::Operation => Nak::RemoteOperation,
        };
        Self::Refuse(nak, refusal)
    }
}

/// The request is invalid.
const INVALID: Stop = Stop::Refuse(Nak::InvalidRequest, Refusal::Invalid);

impl<P: DerefMut<Target = [Replay]>> Responder<P> {
    /// Handles a request that arrived at `now`; `target` has its payload. [`Self::poll`] may return
    /// answers then; the caller best polls after it has passed all requests that have arrived.
    ///
    /// The caller has checked that the packet comes from the peer, is for this QP, and has a
    /// correct ICRC. A response is ignored.
    pub fn receive<T: Target>(
        &mut self,
        now: u64,
        packet: &Packet,
        target: &mut T,
    ) -> RequestResult {
        if !packet.opcode().is_request() {
            return RequestResult::Dropped;
        }
        if !self.attr.state.executes() {
            stats::add(&mut self.stats.unready, 1);
            return RequestResult::Dropped;
        }
        let psn = packet.bth.psn;
        if psn.is_before(self.expected) {
            self.duplicate(now, packet);
            return RequestResult::Duplicate;
        }
        if psn.since(self.expected) > LARGEST {
            stats::add(&mut self.stats.too_far, 1);
            return RequestResult::Dropped;
        }
        if psn != self.expected {
            stats::add(&mut self.stats.out_of_sequence, 1);
            self.pending.missing(psn, self.expected);
            return RequestResult::OutOfSequence;
        }
        match self.execute(packet, target) {
            Ok(packets) => {
                self.expected = psn.add(packets);
                stats::add(&mut self.stats.packets, 1);
                // A usize is at most 64 bits.
                stats::add(&mut self.stats.bytes, packet.payload_len() as u64);
                let coalesced = self
                    .pending
                    .executed(now, &self.policy, packet, self.expected);
                stats::add(&mut self.stats.coalesced, u64::from(coalesced));
                RequestResult::Executed
            }
            Err(Stop::NotReady) => {
                self.pending.not_ready(self.attr.min_rnr_timer);
                RequestResult::NotReady
            }
            Err(Stop::Refuse(nak, why)) => {
                self.abort(Some(why), target);
                self.attr.state = State::Error;
                self.pending.refused(nak);
                RequestResult::Refused(nak)
            }
        }
    }

    /// Executes the next request. Returns the number of its PSNs.
    fn execute<T: Target>(&mut self, packet: &Packet, target: &mut T) -> Result<u32, Stop> {
        // A datagram is shorter than 2^32 bytes.
        let len = u32::try_from(packet.payload_len()).map_err(|_| INVALID)?;
        let position = packet.opcode().position();
        let solicited = packet.bth.solicited;
        let headers = packet.headers();
        match headers {
            Headers::SendFirst | Headers::SendMiddle => {
                self.send(target, position, len, SendEnd::Plain, solicited)
            }
            Headers::SendLast(end) | Headers::SendOnly(end) => {
                self.send(target, position, len, end, solicited)
            }
            Headers::WriteFirst(reth) => {
                self.begin_write(target, position, &reth)?;
                self.write(target, reth, 0, len, position, None, solicited)
            }
            Headers::WriteOnly(reth, imm) => {
                self.begin_write(target, position, &reth)?;
                self.write(target, reth, 0, len, position, imm, solicited)
            }
            Headers::WriteMiddle | Headers::WriteLast(_) => {
                let Message::Write(reth, done) = self.message else {
                    return Err(INVALID);
                };
                let imm = match headers {
                    Headers::WriteLast(imm) => imm,
                    _ => None,
                };
                self.write(target, reth, done, len, position, imm, solicited)
            }
            Headers::ReadRequest(reth) => self.read(target, packet.bth.psn, &reth, solicited),
            Headers::CompareSwap(eth) => {
                self.atomic(target, packet.bth.psn, Atomic::CompareSwap, &eth)
            }
            Headers::FetchAdd(eth) => self.atomic(target, packet.bth.psn, Atomic::FetchAdd, &eth),
            _ => Err(INVALID),
        }
    }

    /// Returns whether a packet in this position may have `len` bytes: first and middle packets
    /// have exactly the path MTU, a last packet at least one byte.
    fn fits(&self, position: Position, len: u32) -> bool {
        let mtu = self.mtu().bytes();
        match position {
            Position::First | Position::Middle => len == mtu,
            Position::Last => len > 0 && len <= mtu,
            Position::Only => len <= mtu,
        }
    }

    fn send<T: Target>(
        &mut self,
        target: &mut T,
        position: Position,
        len: u32,
        end: SendEnd,
        solicited: bool,
    ) -> Result<u32, Stop> {
        let done = match self.message {
            Message::Between if position.starts() => 0,
            Message::Send(done) if !position.starts() => done,
            _ => return Err(INVALID),
        };
        let sum = done.saturating_add(len);
        if !self.fits(position, len) || sum > MAX_LEN {
            return Err(INVALID);
        }
        if position.starts() {
            target.begin_receive(Incoming::Send {
                whole: position.ends(),
            })?;
        }
        // INVARIANT: The receive has begun. An error aborts it.
        self.message = Message::Send(sum);
        if len > 0 {
            target.place(done)?;
        }
        if position.ends() {
            target.end_receive(Ended {
                len: sum,
                end,
                write: false,
                solicited,
            })?;
            // INVARIANT: The receive has ended.
            self.complete();
        }
        Ok(1)
    }

    /// Checks the first packet of a WRITE.
    fn begin_write<T: Target>(
        &mut self,
        target: &mut T,
        position: Position,
        reth: &Reth,
    ) -> Result<(), Stop> {
        let mtu = self.mtu().bytes();
        let fits = match position {
            Position::First => reth.len > mtu,
            _ => reth.len <= mtu,
        };
        if self.message != Message::Between
            || !self.attr.access.write
            || !fits
            || reth.len > MAX_LEN
        {
            return Err(INVALID);
        }
        target.check_write(reth)?;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a packet")]
    fn write<T: Target>(
        &mut self,
        target: &mut T,
        reth: Reth,
        done: u32,
        len: u32,
        position: Position,
        imm: Option<u32>,
        solicited: bool,
    ) -> Result<u32, Stop> {
        let sum = done.saturating_add(len);
        let whole = if position.ends() {
            sum == reth.len
        } else {
            sum < reth.len
        };
        if !self.fits(position, len) || !whole {
            return Err(INVALID);
        }
        if imm.is_some() {
            target.begin_receive(Incoming::WriteImm)?;
        }
        let mut result = Ok(());
        if len > 0 {
            result = target.write(&reth, done);
        }
        if let (Some(imm), Ok(())) = (imm, result) {
            result = target.end_receive(Ended {
                len: reth.len,
                end: SendEnd::Imm(imm),
                write: true,
                solicited,
            });
        }
        if let Err(refusal) = result {
            if imm.is_some() {
                target.abort_receive(Some(refusal));
            }
            return Err(refusal.into());
        }
        // INVARIANT: No receive is in progress.
        self.message = Message::Write(reth, sum);
        if position.ends() {
            target.end_write(&reth);
            self.complete();
        }
        Ok(1)
    }

    fn read<T: Target>(
        &mut self,
        target: &mut T,
        psn: Psn,
        reth: &Reth,
        more: bool,
    ) -> Result<u32, Stop> {
        if self.message != Message::Between
            || !self.attr.access.read
            || reth.len > MAX_LEN
            || !self.store.has_room()
        {
            return Err(INVALID);
        }
        target.check_read(reth)?;
        let packets = self.mtu().packets(reth.len);
        self.complete();
        self.store
            .push(psn, packets, Answer::Read(*reth, more), self.msn);
        Ok(packets)
    }

    fn atomic<T: Target>(
        &mut self,
        target: &mut T,
        psn: Psn,
        atomic: Atomic,
        eth: &AtomicEth,
    ) -> Result<u32, Stop> {
        if self.message != Message::Between
            || !self.attr.access.atomic
            || eth.va % u64::from(ATOMIC_LEN) != 0
            || !self.store.has_room()
        {
            return Err(INVALID);
        }
        let found = target.atomic(atomic, eth)?;
        self.complete();
        self.store.push(psn, 1, Answer::Atomic(found), self.msn);
        Ok(1)
    }

    /// Records that a message was executed.
    fn complete(&mut self) {
        self.message = Message::Between;
        self.msn = self.msn.next();
    }

    /// Handles a request that was executed before.
    fn duplicate(&mut self, now: u64, packet: &Packet) {
        stats::add(&mut self.stats.duplicates, 1);
        let psn = packet.bth.psn;
        let again = match packet.headers() {
            Headers::ReadRequest(reth) => {
                let mtu = self.mtu();
                self.store.read_again(psn, &reth, mtu)
            }
            Headers::CompareSwap(_) | Headers::FetchAdd(_) => self.store.atomic_again(psn),
            _ => {
                self.pending.again(now);
                return;
            }
        };
        let count = if again {
            &mut self.stats.replays
        } else {
            &mut self.stats.forgotten
        };
        stats::add(count, 1);
    }
}
