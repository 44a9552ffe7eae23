// SPDX-License-Identifier: GPL-2.0
//! Tests of the requester alone, packet by packet. This file holds what the suites share.

mod receive;
mod recover;
mod send;

pub(super) use super::{
    super::{
        super::{
            headers::{
                Aeth,
                AtomicEth,
                Bth,
                Credits,
                Headers,
                Nak,
                Qpn,
                Reth,
                RnrTimer,
                SendEnd,
                Syndrome, //
            },
            opcode::{
                Opcode,
                Position, //
            },
            packet::Packet,
            psn::Psn,
            state::State, //
        },
        attr::AckTimeout,
        queue::Op,
        rtt, //
    },
    *, //
};

pub(super) type Lent<'a> = Requester<&'a mut [Wqe], &'a mut [Slot]>;

pub(super) const MTU: u32 = 256;
pub(super) const PEER: Qpn = Qpn::new(0x12_3456);

/// Returns a PSN close to the wrap-around.
pub(super) const fn psn(n: u32) -> Psn {
    Psn::new(Psn::MASK - 1).add(n)
}

/// Returns the attributes of a requester in RTS.
pub(super) fn attr() -> Attr {
    Attr {
        state: State::Rts,
        path_mtu: PathMtu::Mtu256,
        dest_qpn: PEER,
        sq_psn: psn(0),
        max_rd_atomic: 4,
        retry_cnt: 7,
        rnr_retry: 7,
        ..Attr::default()
    }
}

/// Brings a requester to RTS.
pub(super) fn start(requester: &mut Lent<'_>, attr: &Attr) -> Result {
    for (state, mask) in [
        (State::Init, Mask::RC_TO_INIT),
        (State::Rtr, Mask::RC_TO_RTR),
        (State::Rts, Mask::RC_TO_RTS),
    ] {
        requester.modify(&Attr { state, ..*attr }, mask)?;
    }
    Ok(())
}

/// Runs `test` with a requester in RTS.
pub(super) fn with(attr: &Attr, window: u32, test: impl FnOnce(&mut Lent<'_>) -> Result) -> Result {
    let mut wqes = [Wqe::EMPTY; 8];
    let mut slots = [Psn::default(); 4];
    let mut requester = Requester::new(&mut wqes[..], &mut slots[..], window);
    start(&mut requester, attr)?;
    test(&mut requester)
}

pub(super) const SEND: Op = Op::Send(SendEnd::Plain);
pub(super) const WRITE: Op = Op::Write {
    va: 0x1000,
    rkey: 7,
    imm: None,
};
pub(super) const READ: Op = Op::Read {
    va: 0x1000,
    rkey: 7,
};
pub(super) const ADD: Op = Op::FetchAdd {
    va: 0x1000,
    rkey: 7,
    add: 5,
};

pub(super) fn request(wr_id: u64, op: Op, len: u32) -> WorkRequest {
    WorkRequest {
        wr_id,
        op,
        len,
        fence: false,
        solicited: false,
        signaled: true,
    }
}

/// A packet: its opcode, its PSN, and whether it requests an acknowledgement.
pub(super) type Sent = (Opcode, u32, bool);

/// Returns the next packet.
pub(super) fn sent(requester: &mut Lent<'_>, now: u64) -> Option<Sent> {
    let packet = requester.poll(now)?.packet;
    let number = packet.bth.psn.since(psn(0));
    Some((packet.opcode(), number, packet.bth.ack_req))
}

/// Returns the number of packets that can be sent, and the PSN of the first.
pub(super) fn flight(requester: &mut Lent<'_>, now: u64) -> (u32, Option<u32>) {
    let first = sent(requester, now).map(|(_, number, _)| number);
    let mut count = u32::from(first.is_some());
    while count < 1000 && requester.poll(now).is_some() {
        count += 1;
    }
    (count, first)
}

pub(super) fn response(number: u32, headers: Headers, len: usize) -> Packet {
    Packet::new(Bth::new(Qpn::new(1), psn(number)), headers, len)
}

pub(super) const fn aeth(syndrome: Syndrome) -> Aeth {
    Aeth {
        syndrome,
        msn: Psn::new(0),
    }
}

pub(super) fn response_with(number: u32, syndrome: Syndrome) -> Packet {
    response(number, Headers::Acknowledge(aeth(syndrome)), 0)
}

pub(super) fn ack(number: u32) -> Packet {
    response_with(number, Syndrome::ACK)
}

pub(super) fn nak(number: u32, nak: Nak) -> Packet {
    response_with(number, Syndrome::Nak(nak))
}

/// Returns a packet of READ data.
pub(super) fn data(number: u32, position: Position, len: usize) -> Packet {
    let aeth = aeth(Syndrome::ACK);
    let headers = match position {
        Position::First => Headers::ReadResponseFirst(aeth),
        Position::Middle => Headers::ReadResponseMiddle,
        Position::Last => Headers::ReadResponseLast(aeth),
        Position::Only => Headers::ReadResponseOnly(aeth),
    };
    response(number, headers, len)
}

pub(super) fn taken(requester: &mut Lent<'_>) -> Option<(u64, Status)> {
    let completion = requester.take()?;
    Some((completion.request.wr_id, completion.status))
}

/// Returns the destination of a response: the work request and the offset.
pub(super) fn place(requester: &mut Lent<'_>, now: u64, packet: &Packet) -> Option<(u64, u32)> {
    match requester.receive(now, packet) {
        Received::Place { wr_id, offset, .. } => Some((wr_id, offset)),
        _ => None,
    }
}
