// SPDX-License-Identifier: GPL-2.0
//! Tests of the responder alone, packet by packet. This file holds what the suites share.

mod receive;
mod reply;

pub(super) use super::{
    super::{
        super::{
            headers::{
                AtomicEth,
                Bth,
                Headers,
                Nak,
                Qpn,
                RnrTimer,
                SendEnd,
                Syndrome, //
            },
            packet::Packet, //
        },
        attr::{
            Access,
            AckTimeout, //
        },
        requester::LOCAL_PAUSE,
        target::{
            Atomic,
            Ended,
            Incoming, //
        },
        window::LARGEST,
        MAX_LEN, //
    },
    *, //
};
pub(super) use crate::{
    error::Error,
    testing::Log, //
};

pub(super) type Lent<'a> = Responder<&'a mut [Replay]>;

pub(super) const MTU: u32 = 256;
pub(super) const PEER: Qpn = Qpn::new(0x12_3456);
pub(super) const WHERE: Reth = Reth {
    va: 0x1000,
    rkey: 7,
    len: 0,
};
pub(super) const WORD: AtomicEth = AtomicEth {
    va: 0x1000,
    rkey: 7,
    swap_add: 2,
    compare: 1,
};

/// Returns a PSN close to the wrap-around.
pub(super) const fn psn(n: u32) -> Psn {
    Psn::new(Psn::MASK - 1).add(n)
}

/// A call of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Call {
    Begin(Incoming),
    Place(u32),
    End(Ended),
    Abort(Option<Refusal>),
    CheckWrite(Reth),
    Write(u32),
    EndWrite(Reth),
    CheckRead(Reth),
    Atomic(Atomic),
}

/// A target that records the calls.
pub(in super::super) struct RecordingTarget {
    pub(in super::super) calls: Log<Call>,
    /// The number of receives available.
    pub(in super::super) receives: u32,
    /// The call that is refused, and the reason.
    pub(in super::super) refuses: Option<(Call, Refusal)>,
    /// The word on which atomics operate.
    pub(in super::super) word: u64,
}

impl RecordingTarget {
    pub(in super::super) const fn new() -> Self {
        Self {
            calls: Log::new(),
            receives: u32::MAX,
            refuses: None,
            word: 40,
        }
    }

    fn call(&mut self, call: Call) -> Result<(), Refusal> {
        self.calls.push(call);
        match self.refuses {
            Some((refused, why)) if refused == call => Err(why),
            _ => Ok(()),
        }
    }

    /// Takes the calls since the last time.
    pub(in super::super) fn taken(&mut self) -> Log<Call> {
        core::mem::replace(&mut self.calls, Log::new())
    }
}

impl Target for RecordingTarget {
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal> {
        self.receives = self.receives.checked_sub(1).ok_or(Refusal::NotReady)?;
        self.call(Call::Begin(incoming))
    }

    fn place(&mut self, offset: u32) -> Result<(), Refusal> {
        self.call(Call::Place(offset))
    }

    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal> {
        self.call(Call::End(ended))
    }

    fn abort_receive(&mut self, why: Option<Refusal>) {
        self.calls.push(Call::Abort(why));
    }

    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal> {
        self.call(Call::CheckWrite(*reth))
    }

    fn write(&mut self, _: &Reth, offset: u32) -> Result<(), Refusal> {
        self.call(Call::Write(offset))
    }

    fn end_write(&mut self, reth: &Reth) {
        self.calls.push(Call::EndWrite(*reth));
    }

    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal> {
        self.call(Call::CheckRead(*reth))
    }

    fn atomic(&mut self, atomic: Atomic, _: &AtomicEth) -> Result<u64, Refusal> {
        self.call(Call::Atomic(atomic))?;
        self.word += 2;
        Ok(self.word)
    }
}

/// Returns the attributes of a responder in RTR.
pub(super) fn attr() -> Attr {
    Attr {
        state: State::Rtr,
        path_mtu: PathMtu::Mtu256,
        dest_qpn: PEER,
        rq_psn: psn(0),
        max_dest_rd_atomic: 2,
        min_rnr_timer: RnrTimer::at_least(100_000),
        access: Access {
            write: true,
            read: true,
            atomic: true,
        },
        ..Attr::default()
    }
}

/// Brings a responder to RTR.
pub(super) fn start(responder: &mut Lent<'_>, attr: &Attr, target: &mut RecordingTarget) -> Result {
    let [init, rtr, _] = start_attr();
    for (Attr { state, .. }, mask) in [init, rtr] {
        responder.modify(&Attr { state, ..*attr }, mask, target)?;
    }
    Ok(())
}

/// Runs a test with a responder in RTR.
pub(super) fn with_attr(
    attr: &Attr,
    policy: AckPolicy,
    test: impl FnOnce(&mut Lent<'_>, &mut RecordingTarget) -> Result,
) -> Result {
    let mut slots = [Replay::EMPTY; 4];
    let mut responder = Responder::new(&mut slots[..], policy);
    let mut target = RecordingTarget::new();
    start(&mut responder, attr, &mut target)?;
    test(&mut responder, &mut target)
}

pub(super) fn with(test: impl FnOnce(&mut Lent<'_>, &mut RecordingTarget) -> Result) -> Result {
    with_attr(&attr(), AckPolicy::AT_ONCE, test)
}

/// Returns a request that asks for an acknowledgement.
pub(super) fn request(number: u32, headers: Headers, len: u32) -> Packet {
    let mut bth = Bth::new(Qpn::new(1), psn(number));
    bth.ack_req = true;
    Packet::new(bth, headers, len as usize)
}

/// Returns a request that does not ask for an acknowledgement.
pub(super) fn quiet(number: u32, headers: Headers, len: u32) -> Packet {
    Packet::new(Bth::new(Qpn::new(1), psn(number)), headers, len as usize)
}

pub(super) fn send(number: u32) -> Packet {
    request(number, Headers::SendOnly(SendEnd::Plain), 1)
}

pub(super) fn read(number: u32, packet: u32, packets: u32) -> Packet {
    let reth = Reth {
        va: WHERE.va + u64::from(packet * MTU),
        len: packets * MTU,
        ..WHERE
    };
    request(number, Headers::ReadRequest(reth), 0)
}

/// An answer: its PSN, its MSN and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Ack(u32, u32),
    Rnr(u32, u32),
    Nak(u32, u32, Nak),
    First(u32, u32),
    Middle(u32),
    Last(u32, u32),
    Only(u32, u32),
    Value(u32, u32, u64),
}

pub(super) fn sent(packet: &Packet) -> Option<Sent> {
    let number = packet.bth.psn.since(psn(0));
    Some(match packet.headers() {
        Headers::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack(_) => Sent::Ack(number, aeth.msn.get()),
            Syndrome::Rnr(_) => Sent::Rnr(number, aeth.msn.get()),
            Syndrome::Nak(nak) => Sent::Nak(number, aeth.msn.get(), nak),
        },
        Headers::ReadResponseFirst(aeth) => Sent::First(number, aeth.msn.get()),
        Headers::ReadResponseMiddle => Sent::Middle(number),
        Headers::ReadResponseLast(aeth) => Sent::Last(number, aeth.msn.get()),
        Headers::ReadResponseOnly(aeth) => Sent::Only(number, aeth.msn.get()),
        Headers::AtomicAcknowledge(aeth, value) => Sent::Value(number, aeth.msn.get(), value),
        _ => return None,
    })
}

/// Returns the next answer.
pub(super) fn answer(responder: &mut Lent<'_>, now: u64) -> Option<Sent> {
    sent(&responder.poll(now)?.packet)
}

/// Returns all pending answers.
pub(super) fn answers(responder: &mut Lent<'_>, now: u64) -> Log<Sent> {
    let mut log = Log::new();
    // A log has room for eight entries.
    for _ in 0..8 {
        let Some(sent) = answer(responder, now) else {
            break;
        };
        log.push(sent);
    }
    log
}

/// Returns the attributes that move a QP to RTS, with retries that are used up at once.
pub(in super::super) fn start_attr() -> [(Attr, Mask); 3] {
    let attr = Attr {
        max_rd_atomic: 2,
        timeout: AckTimeout::from_code(5).unwrap_or_default(),
        ..attr()
    };
    [
        (State::Init, Mask::RC_TO_INIT),
        (State::Rtr, Mask::RC_TO_RTR),
        (State::Rts, Mask::RC_TO_RTS),
    ]
    .map(|(state, mask)| (Attr { state, ..attr }, mask))
}
