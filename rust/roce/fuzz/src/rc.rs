// SPDX-License-Identifier: GPL-2.0
//! A fuzz target: a whole RC QP that gets hostile packets and arbitrary calls of its owner.
//!
//! Conditions that must always hold:
//! - The calls of the target come in the documented order, with bytes within the limits that it
//!   allowed.
//! - Every work request is completed once and in order, and accesses its memory within the bounds.
//! - A deadline lies in the future when there is nothing to send, and there is none in the end.
//! - Every packet sent is valid, and the window is not exceeded.
//! - After a refusal both halves go to ERR, and nothing is sent after the NAK.

use super::Bytes;
use kfi_roce::{
    headers::{
        Aeth,
        AtomicEth,
        Bth,
        Headers,
        Nak,
        Qpn,
        Reth,
        RnrTimer,
        SendEnd,
        Syndrome,
        MAX_HEADERS, //
    },
    mtu::PathMtu,
    packet::Packet,
    psn::Psn,
    rc::{
        target::{
            Atomic,
            Ended,
            Incoming, //
        },
        Access,
        AckPolicy,
        AckTimeout,
        Attr,
        Event,
        Op,
        Qp,
        Received,
        Refusal,
        Replay,
        RequestResult,
        Requester,
        Responder,
        Status,
        Target,
        WorkRequest,
        Wqe, //
    },
    state::{
        Mask,
        State, //
    }, //
};
use std::collections::VecDeque;

/// The maximum number of packets taken from the QP at a time, because a READ can request millions.
const POLLS: u32 = 40;

/// The only valid key, which allows everything.
const KEY: u32 = 7;

/// A target that checks its calls.
#[derive(Default)]
struct CheckedTarget {
    receives: u32,
    /// The bytes placed in the receive in progress.
    begun: Option<u32>,
    /// The WRITE that was allowed, and its bytes so far.
    write: Option<(Reth, u32)>,
    /// The length of the payload of this packet.
    payload: u32,
    /// The READs that were allowed.
    reads: Vec<Reth>,
    /// The next refusal.
    refuses: Option<Refusal>,
}

impl CheckedTarget {
    fn refuses(&mut self) -> Result<(), Refusal> {
        self.refuses.take().map_or(Ok(()), Err)
    }
}

impl Target for CheckedTarget {
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal> {
        assert_eq!(self.begun, None);
        self.refuses()?;
        self.receives = self.receives.checked_sub(1).ok_or(Refusal::NotReady)?;
        let _ = incoming;
        self.begun = Some(0);
        Ok(())
    }

    fn place(&mut self, offset: u32) -> Result<(), Refusal> {
        assert_eq!(self.begun, Some(offset));
        assert!(self.payload > 0);
        self.refuses()?;
        self.begun = Some(offset + self.payload);
        Ok(())
    }

    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal> {
        let placed = self.begun.expect("a receive that has begun");
        assert!(ended.write || placed == ended.len);
        self.refuses()?;
        self.begun = None;
        Ok(())
    }

    fn abort_receive(&mut self, _: Option<Refusal>) {
        assert!(self.begun.take().is_some());
    }

    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal> {
        assert!(reth.len <= 1 << 31);
        if reth.len == 0 {
            return Ok(());
        }
        if reth.rkey != KEY {
            return Err(Refusal::Access);
        }
        self.refuses()?;
        self.write = Some((*reth, 0));
        Ok(())
    }

    fn write(&mut self, reth: &Reth, offset: u32) -> Result<(), Refusal> {
        let (allowed, done) = self.write.as_mut().expect("a WRITE that was allowed");
        assert_eq!((&*allowed, *done), (reth, offset));
        assert!(self.payload > 0 && self.payload <= reth.len - offset);
        *done += self.payload;
        self.refuses()
    }

    fn end_write(&mut self, reth: &Reth) {
        if reth.len > 0 {
            assert_eq!(self.write.take(), Some((*reth, reth.len)));
        }
    }

    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal> {
        assert!(reth.len <= 1 << 31);
        if reth.len == 0 {
            return Ok(());
        }
        if reth.rkey != KEY {
            return Err(Refusal::Access);
        }
        self.refuses()?;
        self.reads.push(*reth);
        Ok(())
    }

    fn atomic(&mut self, _: Atomic, eth: &AtomicEth) -> Result<u64, Refusal> {
        assert!(eth.va % 8 == 0);
        if eth.rkey != KEY {
            return Err(Refusal::Access);
        }
        self.refuses()?;
        Ok(eth.swap_add)
    }
}

type RcQp = Qp<Vec<Wqe>, Vec<Psn>, Vec<Replay>>;

/// A QP with its owner and an attacker.
struct Harness<'a> {
    bytes: Bytes<'a>,
    qp: RcQp,
    target: CheckedTarget,
    now: u64,
    window: u32,
    mtu: PathMtu,
    /// The PSN after the last packet sent.
    next: Psn,
    /// The responses to the packets that were sent: PSN, headers, length.
    sent: Vec<(Psn, Headers, u32)>,
    /// The work requests that have not been taken.
    posted: VecDeque<WorkRequest>,
    next_id: u64,
}

/// Executes arbitrary events on a QP.
pub fn rc_qp(data: &[u8]) {
    let mut bytes = Bytes(data);
    let few = |byte: u8| usize::from(byte % 5);
    let slots = few(bytes.byte());
    let dest_slots = few(bytes.byte());
    let window = [1, 2, 5, 64][few(bytes.byte()).min(3)];
    let policy = AckPolicy {
        delay: u64::from(bytes.byte() & 1) * 1000,
        requests: u32::from(bytes.byte() & 3),
    };
    let mut harness = Harness {
        qp: Qp::new(
            Requester::new(vec![Wqe::EMPTY; 8], vec![Psn::default(); slots], window),
            Responder::new(vec![Replay::EMPTY; dest_slots], policy),
        ),
        target: CheckedTarget {
            receives: u32::from(bytes.byte()),
            ..CheckedTarget::default()
        },
        now: 1,
        window,
        mtu: PathMtu::from_code(bytes.byte() % 6).unwrap_or(PathMtu::Mtu256),
        next: Psn::default(),
        sent: Vec::new(),
        posted: VecDeque::new(),
        next_id: 0,
        bytes,
    };
    harness.connect();
    while !harness.bytes.0.is_empty() {
        harness.step();
    }
    harness.finish();
}

impl Harness<'_> {
    fn attr(&mut self, state: State) -> Attr {
        let bits = self.bytes.byte();
        Attr {
            state,
            cur_state: self.qp.state(),
            access: Access {
                write: bits & 1 == 0,
                read: bits & 2 == 0,
                atomic: bits & 4 == 0,
            },
            path_mtu: self.mtu,
            rq_psn: Psn::new(Psn::MASK - u32::from(bits)),
            sq_psn: Psn::new(Psn::HALF - u32::from(bits)),
            max_rd_atomic: self.qp.requester.max_rd_atomic() as u8,
            max_dest_rd_atomic: self.qp.responder.max_dest_rd_atomic() as u8,
            min_rnr_timer: RnrTimer::from_code(bits & 31).unwrap_or(RnrTimer::at_least(0)),
            timeout: AckTimeout::from_code(bits >> 3).unwrap_or_default(),
            retry_cnt: bits & 7,
            rnr_retry: bits >> 5,
            ..Attr::default()
        }
    }

    /// Moves the QP to a state with all required attributes.
    fn modify(&mut self, state: State) -> bool {
        let attr = self.attr(state);
        let from = self.qp.state();
        let all = kfi_roce::state::attributes(kfi_roce::opcode::Service::Rc, from, state);
        let mask = all.map_or(Mask::NONE, |(required, _)| required);
        let draining = from == State::Sqd && !self.qp.requester.is_drained();
        let ends = matches!(state, State::Error | State::Reset);
        let done = self.qp.modify(&attr, mask, &mut self.target).is_ok();
        assert_eq!(done, all.is_some() && (ends || !draining));
        assert_eq!(self.qp.state(), if done { state } else { from });
        if done && state == State::Reset {
            // RESET removes all work requests.
            self.posted.clear();
        }
        if done && matches!(state, State::Reset | State::Error) {
            assert_eq!(self.target.begun, None);
            self.target.write = None;
        }
        done
    }

    fn connect(&mut self) {
        for state in [State::Init, State::Rtr, State::Rts] {
            assert!(self.modify(state));
        }
    }

    fn step(&mut self) {
        if self.qp.state() == State::Error && self.bytes.byte() & 3 == 0 {
            assert!(self.modify(State::Reset));
            self.connect();
        }
        match self.bytes.byte() % 20 {
            0..=2 => {
                let packet = self.packet();
                self.receive(&packet);
            }
            3..=5 => {
                let packet = self.good_request();
                self.receive(&packet);
            }
            6 | 7 | 16 | 17 => {
                if let Some(packet) = self.good_response() {
                    self.receive(&packet);
                }
            }
            18 | 19 => self.post(),
            8 => {
                let len = usize::from(self.bytes.byte() % 64);
                let datagram = self.bytes.take(len);
                if let Ok(packet) = Packet::parse(datagram, len) {
                    self.receive(&packet);
                }
            }
            9 | 10 => self.post(),
            11 => {
                let time = [1, 10_000, 1_000_000, 1 << 40][usize::from(self.bytes.byte() % 4)];
                self.now += time;
            }
            12 => {
                if let Some(deadline) = self.qp.deadline() {
                    self.now = self.now.max(deadline);
                }
            }
            13 => {
                let states = State::ALL;
                let state = states[usize::from(self.bytes.byte()) % states.len()];
                self.modify(state);
                if self.qp.state() == State::Reset && self.bytes.byte() & 1 == 0 {
                    self.connect();
                }
            }
            14 => self.target.receives = u32::from(self.bytes.byte()),
            _ => {
                let why = [
                    Refusal::Invalid,
                    Refusal::Access,
                    Refusal::Operation,
                    Refusal::NotReady,
                ];
                // Only the beginning of a receive may be refused as not ready.
                self.target.refuses = Some(why[usize::from(self.bytes.byte() % 3)]);
            }
        }
        self.drive();
    }

    /// Returns a PSN near an important one, or any.
    fn psn(&mut self, near: Psn) -> Psn {
        match self.bytes.byte() {
            byte @ 0..=127 => near.add(u32::from(byte % 4)),
            byte @ 128..=191 => near.sub(u32::from(byte % 16)),
            byte @ 192..=239 => near.add(u32::from(byte % 128)),
            _ => Psn::new(self.bytes.u32()),
        }
    }

    fn len(&mut self) -> u32 {
        let mtu = self.mtu.bytes();
        match self.bytes.byte() % 8 {
            0 => 0,
            1 => 1,
            2 => mtu,
            3 => mtu + 1,
            4 => mtu - 1,
            5 => 3 * mtu,
            6 => u32::from(self.bytes.byte()),
            _ => self.bytes.u32(),
        }
    }

    fn reth(&mut self) -> Reth {
        let bits = self.bytes.byte();
        Reth {
            va: if bits & 1 == 0 {
                0x1000
            } else {
                self.bytes.u64()
            },
            rkey: if bits & 14 != 0 { KEY } else { 8 },
            len: self.len(),
        }
    }

    /// Returns a valid request, mostly with the expected PSN.
    fn good_request(&mut self) -> Packet {
        let expected = self.qp.responder.expected();
        let psn = match self.bytes.byte() {
            0..=199 => expected,
            _ => self.psn(expected),
        };
        let mtu = self.mtu.bytes();
        let end = SendEnd::Imm(1);
        let bits = self.bytes.byte();
        let reth = |len| Reth {
            va: 0x1000,
            rkey: KEY,
            len,
        };
        let (headers, len) = match (self.target.begun, self.target.write) {
            (Some(_), _) if bits & 1 == 0 => (Headers::SendMiddle, mtu),
            (Some(_), _) => (Headers::SendLast(end), 1),
            (None, Some((reth, done))) => match reth.len - done {
                rest if rest > mtu => (Headers::WriteMiddle, mtu),
                rest => (Headers::WriteLast((bits & 1 == 0).then_some(2)), rest),
            },
            (None, None) => match bits % 9 {
                0 => (Headers::SendFirst, mtu),
                1 => (Headers::SendOnly(end), 0),
                2 => (Headers::WriteFirst(reth(3 * mtu + 1)), mtu),
                3 => (Headers::WriteOnly(reth(5), None), 5),
                4 => (Headers::WriteOnly(reth(0), Some(3)), 0),
                5 => (Headers::ReadRequest(reth(3 * mtu)), 0),
                // The range of an earlier request, if there was one.
                6 => {
                    let rest = Reth {
                        va: 0x1000 + u64::from(mtu),
                        ..reth(2 * mtu)
                    };
                    (Headers::ReadRequest(rest), 0)
                }
                7 => (Headers::ReadRequest(reth(0)), 0),
                _ => {
                    let eth = AtomicEth {
                        va: 0x1000,
                        rkey: KEY,
                        swap_add: 1,
                        compare: 0,
                    };
                    (Headers::FetchAdd(eth), 0)
                }
            },
        };
        let mut bth = Bth::new(Qpn::new(1), psn);
        bth.ack_req = bits & 128 == 0;
        Packet::new(bth, headers, len as usize)
    }

    /// Returns the response to a packet that was sent, mostly to the oldest.
    fn good_response(&mut self) -> Option<Packet> {
        let una = self.next.sub(self.qp.requester.in_flight());
        let oldest = self.sent.iter().position(|(psn, ..)| *psn == una)?;
        let skip = match self.bytes.byte() {
            0..=199 => 0,
            byte => usize::from(byte % 8),
        };
        let (psn, answer, len) = *self.sent.get(oldest + skip)?;
        let bth = Bth::new(Qpn::new(1), psn);
        Some(Packet::new(bth, answer, len as usize))
    }

    /// Records the response to a packet that was sent.
    fn keep(&mut self, packet: &Packet) {
        const AETH: Aeth = Aeth {
            syndrome: Syndrome::ACK,
            msn: Psn::new(3),
        };
        let first = packet.bth.psn;
        self.sent.retain(|(psn, ..)| psn.is_before(first));
        let excess = self.sent.len().saturating_sub(128);
        self.sent.drain(..excess);
        let (packets, len) = match packet.headers() {
            Headers::ReadRequest(reth) => (self.mtu.packets(reth.len), reth.len),
            _ => (1, 0),
        };
        for index in 0..packets {
            let answer = match packet.headers() {
                Headers::ReadRequest(_) if index + 1 == packets => Headers::ReadResponseLast(AETH),
                Headers::ReadRequest(_) => Headers::ReadResponseMiddle,
                Headers::CompareSwap(_) | Headers::FetchAdd(_) => {
                    Headers::AtomicAcknowledge(AETH, 1)
                }
                _ => Headers::Acknowledge(AETH),
            };
            let len = self.mtu.payload(len, index);
            self.sent.push((first.add(index), answer, len));
        }
        self.next = first.add(packets);
    }

    /// Returns a packet that is valid or nearly valid.
    fn packet(&mut self) -> Packet {
        let expected = self.qp.responder.expected();
        let request = self.psn(expected);
        // The oldest packet that is not answered.
        let in_flight = self.qp.requester.in_flight();
        let response = self.psn(self.next.sub(in_flight));
        let aeth = Aeth {
            syndrome: match self.bytes.byte() % 8 {
                0..=4 => Syndrome::ACK,
                5 => Syndrome::Rnr(RnrTimer::at_least(1)),
                6 => Syndrome::Nak(Nak::Sequence),
                _ => Syndrome::Nak(Nak::ALL[usize::from(self.bytes.byte() % 4)]),
            },
            msn: Psn::new(3),
        };
        let end = match self.bytes.byte() % 3 {
            0 => SendEnd::Plain,
            1 => SendEnd::Imm(5),
            _ => SendEnd::Invalidate(6),
        };
        let imm = (self.bytes.byte() & 1 == 0).then_some(9);
        let reth = self.reth();
        let eth = AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            swap_add: 3,
            compare: 4,
        };
        let headers = match self.bytes.byte() % 17 {
            0 => Headers::SendFirst,
            1 => Headers::SendMiddle,
            2 => Headers::SendLast(end),
            3 => Headers::SendOnly(end),
            4 => Headers::WriteFirst(reth),
            5 => Headers::WriteMiddle,
            6 => Headers::WriteLast(imm),
            7 => Headers::WriteOnly(reth, imm),
            8 => Headers::ReadRequest(reth),
            9 => Headers::CompareSwap(eth),
            10 => Headers::FetchAdd(eth),
            11 => Headers::ReadResponseFirst(aeth),
            12 => Headers::ReadResponseMiddle,
            13 => Headers::ReadResponseLast(aeth),
            14 => Headers::ReadResponseOnly(aeth),
            15 => Headers::Acknowledge(aeth),
            _ => Headers::AtomicAcknowledge(aeth, 5),
        };
        let is_response = headers.opcode().is_response();
        let psn = if is_response { response } else { request };
        let mut bth = Bth::new(Qpn::new(1), psn);
        bth.ack_req = self.bytes.byte() & 1 == 0;
        let len = self.len();
        Packet::new(bth, headers, len as usize)
    }

    fn receive(&mut self, packet: &Packet) {
        self.target.payload = packet.payload_len() as u32;
        let event = self.qp.receive(self.now, packet, &mut self.target);
        match event {
            Event::Response(Received::Place { wqe, wr_id, offset }) => {
                let request = self.request(wr_id);
                let end = u64::from(offset) + packet.payload_len() as u64;
                assert!(matches!(request.op, Op::Read { .. }));
                assert!(end <= u64::from(request.len));
                if self.bytes.byte() == 0 {
                    self.qp.requester.fail(wqe, Status::LocalProtection);
                    self.qp.follow(&mut self.target);
                }
            }
            Event::Response(Received::Atomic { wr_id, .. }) => {
                assert!(self.request(wr_id).op.is_atomic());
            }
            Event::Request(RequestResult::Refused(_)) => {
                assert_eq!(self.target.begun, None);
                self.target.write = None;
                assert_eq!(self.qp.requester.state(), State::Error);
                assert_eq!(self.qp.state(), State::Error);
            }
            Event::Response(Received::Nothing) | Event::Request(_) => {}
        }
    }

    /// Returns the work request with this ID, which must not have completed.
    fn request(&self, wr_id: u64) -> WorkRequest {
        let mut posted = self.posted.iter();
        *posted
            .find(|request| request.wr_id == wr_id)
            .expect("one that has not ended")
    }

    fn post(&mut self) {
        let reth = self.reth();
        let (va, rkey) = (reth.va, reth.rkey);
        let op = match self.bytes.byte() % 6 {
            0 => Op::Send(SendEnd::Plain),
            1 => Op::Send(SendEnd::Imm(1)),
            2 => Op::Write {
                va,
                rkey,
                imm: Some(2),
            },
            3 | 4 => Op::Read { va, rkey },
            _ => Op::FetchAdd { va, rkey, add: 1 },
        };
        let bits = self.bytes.byte();
        let request = WorkRequest {
            wr_id: self.next_id,
            op,
            len: if op.is_atomic() { 8 } else { reth.len },
            fence: bits & 3 == 0,
            solicited: bits & 4 == 0,
            signaled: bits & 8 == 0,
        };
        if self.qp.requester.post(&request).is_ok() {
            self.next_id += 1;
            self.posted.push_back(request);
        }
    }

    /// Does what the owner does after each event.
    fn drive(&mut self) {
        if self.qp.deadline().is_some_and(|time| time <= self.now) {
            self.qp.expired(self.now, &mut self.target);
        }
        let mut left = POLLS;
        while left > 0 && self.poll() {
            left -= 1;
        }
        while let Some(completion) = self.qp.requester.take() {
            assert_eq!(self.posted.pop_front(), Some(completion.request));
        }
        assert_eq!(self.posted.len() as u32, self.qp.requester.len());
        assert!(self.qp.requester.in_flight() <= self.window);
        assert!(self.qp.requester.window() <= self.window);
        let deadline = self.qp.deadline();
        if left > 0 {
            assert!(deadline.is_none_or(|time| time > self.now));
        }
        match self.qp.requester.state() {
            State::Rts | State::Sqd if !self.posted.is_empty() => {}
            _ => assert_eq!(self.qp.requester.deadline(), None),
        }
    }

    /// Takes a packet to send, if there is one.
    fn poll(&mut self) -> bool {
        if let Some(answering) = self.qp.responder.poll(self.now) {
            self.check(&answering.packet, true);
            if let Some(read) = answering.read {
                assert_eq!(read.len as usize, answering.packet.payload_len());
                let allowed = |reth: &Reth| {
                    let offset = read.va.wrapping_sub(reth.va);
                    let end = offset.checked_add(u64::from(read.len));
                    reth.rkey == read.rkey && end.is_some_and(|end| end <= u64::from(reth.len))
                };
                assert!(self.target.reads.iter().any(allowed));
            }
            match self.bytes.byte() {
                1 => self.qp.responder.not_sent(self.now, &answering.packet),
                2 if answering.read.is_some() => {
                    let psn = answering.packet.bth.psn;
                    self.qp
                        .responder
                        .fail_read(psn, Refusal::Access, &mut self.target);
                    self.qp.follow(&mut self.target);
                    self.target.write = None;
                }
                _ => {}
            }
            return true;
        }
        let Some(outgoing) = self.qp.requester.poll(self.now) else {
            return false;
        };
        self.check(&outgoing.packet, false);
        let request = self.request(outgoing.wr_id);
        self.keep(&outgoing.packet);
        let end = u64::from(outgoing.offset) + outgoing.packet.payload_len() as u64;
        assert!(end <= u64::from(request.len));
        match self.bytes.byte() {
            1 => {
                let psn = outgoing.packet.bth.psn;
                self.qp.requester.not_sent(self.now, psn);
            }
            2 => {
                self.qp
                    .requester
                    .fail(outgoing.wqe, Status::LocalProtection);
                self.qp.follow(&mut self.target);
                self.target.write = None;
            }
            _ => {}
        }
        true
    }

    /// Checks that a sent packet is valid.
    fn check(&self, packet: &Packet, is_response: bool) {
        assert_eq!(packet.opcode().is_response(), is_response);
        assert!(packet.payload_len() as u32 <= self.mtu.bytes());
        let mut buffer = [0; MAX_HEADERS];
        let head = packet.write(&mut buffer);
        assert_eq!(Packet::parse(head, packet.len()), Ok(*packet));
    }

    /// Closes the QP.
    fn finish(&mut self) {
        self.qp.requester.error();
        self.qp.follow(&mut self.target);
        self.drive();
        if self.qp.state() != State::Reset {
            assert_eq!(self.qp.state(), State::Error);
        }
        assert!(self.posted.is_empty());
        assert_eq!(self.target.begun, None);
        assert_eq!(self.qp.requester.deadline(), None);
        assert!(self.qp.requester.poll(self.now).is_none());
    }
}
