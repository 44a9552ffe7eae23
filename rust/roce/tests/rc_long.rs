// SPDX-License-Identifier: GPL-2.0
//! The longest messages: 2^31 bytes in packets of 256, which use half of all PSNs. The bytes
//! themselves are not stored.

use kfi_roce::{
    headers::{
        AtomicEth,
        Bth,
        Headers,
        Qpn,
        Reth,
        SendEnd, //
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
        Attr,
        Op,
        Qp,
        Received,
        Refusal,
        Replay,
        Requester,
        Responder,
        Status,
        Target,
        WorkRequest,
        Wqe,
        MAX_LEN, //
    },
    state::{
        Mask,
        State, //
    }, //
};

const MTU: u32 = 256;

/// The first PSN: the message wraps around.
const FIRST: Psn = Psn::new(Psn::MASK - 1000);

/// A target that counts the bytes.
#[derive(Default)]
struct Count {
    bytes: u64,
    ended: u32,
    reads: u64,
}

impl Target for Count {
    fn begin_receive(&mut self, _: Incoming) -> Result<(), Refusal> {
        assert_eq!(self.bytes, 0);
        Ok(())
    }

    fn place(&mut self, offset: u32) -> Result<(), Refusal> {
        assert_eq!(u64::from(offset), self.bytes);
        self.bytes += u64::from(MTU);
        Ok(())
    }

    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal> {
        assert_eq!(u64::from(ended.len), self.bytes);
        self.ended += 1;
        Ok(())
    }

    fn abort_receive(&mut self, _: Option<Refusal>) {
        panic!("aborted");
    }

    fn check_write(&mut self, _: &Reth) -> Result<(), Refusal> {
        Ok(())
    }

    fn write(&mut self, _: &Reth, offset: u32) -> Result<(), Refusal> {
        self.place(offset)
    }

    fn end_write(&mut self, reth: &Reth) {
        assert_eq!(u64::from(reth.len), self.bytes);
        self.ended += 1;
    }

    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal> {
        self.reads += u64::from(reth.len);
        Ok(())
    }

    fn atomic(&mut self, _: Atomic, _: &AtomicEth) -> Result<u64, Refusal> {
        Ok(0)
    }
}

type RcQp = Qp<Vec<Wqe>, Vec<Psn>, Vec<Replay>>;

/// Returns a QP that is connected to another one of its kind.
fn qp() -> RcQp {
    let requester = Requester::new(vec![Wqe::EMPTY; 4], vec![Psn::default(); 16], 256);
    let responder = Responder::new(vec![Replay::EMPTY; 16], AckPolicy::AT_ONCE);
    let mut qp = Qp::new(requester, responder);
    let mut attr = Attr {
        path_mtu: PathMtu::Mtu256,
        rq_psn: FIRST,
        sq_psn: FIRST,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        access: Access {
            write: true,
            read: true,
            atomic: true,
        },
        retry_cnt: 7,
        rnr_retry: 7,
        ..Attr::default()
    };
    for (state, mask) in [
        (State::Init, Mask::RC_TO_INIT),
        (State::Rtr, Mask::RC_TO_RTR),
        (State::Rts, Mask::RC_TO_RTS),
    ] {
        attr.state = state;
        qp.modify(&attr, mask, &mut Count::default()).unwrap();
    }
    qp
}

/// Executes one operation of the longest length between two QPs. Returns the number of packets
/// sent, what the target counted, and the number of bytes read.
fn exchange(op: Op) -> (u64, Count, u64) {
    let (mut one, mut two) = (qp(), qp());
    let mut target = Count::default();
    let request = WorkRequest {
        wr_id: 1,
        op,
        len: MAX_LEN,
        fence: false,
        solicited: false,
        signaled: true,
    };
    one.requester.post(&request).unwrap();
    let (mut packets, mut read) = (0, 0);
    // Loses a packet now and then, at positions that do not repeat.
    let mut lose = 1_000_003;
    let mut now = 0;
    loop {
        now += 10_000;
        let mut moved = false;
        while let Some(outgoing) = one.requester.poll(now) {
            moved = true;
            packets += 1;
            lose -= 1;
            if lose == 0 {
                lose = 2_000_003;
                continue;
            }
            two.receive(now, &outgoing.packet, &mut target);
        }
        while let Some(answering) = two.responder.poll(now) {
            moved = true;
            lose -= 1;
            if lose == 0 {
                lose = 2_000_003;
                continue;
            }
            if let Received::Place { offset, .. } = one.requester.receive(now, &answering.packet) {
                assert_eq!(u64::from(offset), read);
                read += answering.packet.payload_len() as u64;
            }
        }
        if let Some(completion) = one.requester.take() {
            assert_eq!(completion.status, Status::Success);
            return (packets, target, read);
        }
        if !moved {
            now = one.requester.deadline().unwrap();
            one.requester.expired(now);
        }
    }
}

#[test]
fn a_send_of_the_maximum_length_succeeds() {
    let (packets, target, _) = exchange(Op::Send(SendEnd::Plain));
    assert_eq!((target.bytes, target.ended), (u64::from(MAX_LEN), 1));
    assert!(packets < u64::from(MAX_LEN / MTU) + 10_000);
}

#[test]
fn a_write_of_the_maximum_length_succeeds() {
    let op = Op::Write {
        va: u64::MAX,
        rkey: 0,
        imm: None,
    };
    let (_, target, _) = exchange(op);
    assert_eq!((target.bytes, target.ended), (u64::from(MAX_LEN), 1));
}

#[test]
fn a_read_of_the_maximum_length_succeeds() {
    let (packets, target, read) = exchange(Op::Read { va: 0, rkey: 0 });
    assert_eq!(read, u64::from(MAX_LEN));
    assert_eq!(target.reads, read);
    assert!(packets < u64::from(MAX_LEN / MTU / 16));
}

/// Other implementations read everything with one request.
#[test]
fn read_in_one_request() {
    let mut qp = qp();
    let reth = Reth {
        va: 5,
        rkey: 6,
        len: MAX_LEN,
    };
    let packets = MAX_LEN / MTU;
    assert_eq!(packets, Psn::HALF);
    let request = Packet::new(Bth::new(Qpn::new(1), FIRST), Headers::ReadRequest(reth), 0);
    let mut target = Count::default();
    qp.receive(0, &request, &mut target);
    assert_eq!(qp.responder.expected(), FIRST.add(packets));
    for round in 0..2 {
        for index in 0..packets {
            let answering = qp.responder.poll(0).unwrap();
            assert_eq!(answering.packet.bth.psn, FIRST.add(index));
            assert_eq!(answering.packet.payload_len(), MTU as usize);
            let read = answering.read.unwrap();
            assert_eq!(read.va, 5 + u64::from(index) * u64::from(MTU));
            let completes = round == 0 && index == packets - 1;
            assert_eq!(answering.completes.is_some(), completes);
        }
        assert!(qp.responder.poll(0).is_none());
        // The same request again.
        qp.receive(0, &request, &mut target);
    }
    assert_eq!(target.reads, u64::from(MAX_LEN));
}
