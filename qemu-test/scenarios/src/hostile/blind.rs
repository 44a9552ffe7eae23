// SPDX-License-Identifier: GPL-2.0
//! Attacks on QPs, with a peer's address and without a connection: wrong sequence numbers, wrong
//! numbers of QPs, wrong checksums, and ICMP errors.

use super::{
    A, B,
    attacks::{Attack, MOST, other_qpn},
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, Stream, crowd},
    packet::{PORT, Way, body, datagram, icmp, seal, whole},
};
use crate::rng::Rng;
use kfi::PacketCounter;
use kfi_roce::{
    headers::{Aeth, AtomicEth, Bth, Deth, Headers, Qpn, Reth, SendEnd, Syndrome},
    packet::Packet,
    psn::Psn,
};

/// Packets of a burst.
const BURST: usize = 8;

/// The least distance of the PSNs from those of the connection, in packets: more than a window, and
/// more packets than the good flow sends in a phase.
const FAR: u32 = 1 << 20;

/// The largest payload, in bytes.
const PAYLOAD: u64 = 1024;

/// A sequence number far from `psn`, before or behind it.
fn far_from(psn: Psn, rng: &mut Rng) -> Psn {
    let distance = u64::from(FAR) + rng.below(u64::from(Psn::MASK + 1 - 2 * FAR));
    psn.add(distance as u32)
}

fn any_reth(at: &Facts, rng: &mut Rng) -> Reth {
    Reth {
        va: rng.edge(),
        rkey: rng.pick(&[at.key, at.key ^ 1, 0, u32::MAX]),
        len: rng.edge() as u32,
    }
}

fn any_request(at: &Facts, rng: &mut Rng) -> Headers {
    let atomic = AtomicEth {
        va: rng.edge(),
        rkey: at.key,
        swap_add: rng.next(),
        compare: rng.next(),
    };
    match rng.below(10) {
        0 => Headers::SendFirst,
        1 => Headers::SendMiddle,
        2 => Headers::SendLast(SendEnd::Imm(rng.next() as u32)),
        3 => Headers::WriteFirst(any_reth(at, rng)),
        4 => Headers::WriteMiddle,
        5 => Headers::WriteOnly(any_reth(at, rng), None),
        6 => Headers::ReadRequest(any_reth(at, rng)),
        7 => Headers::CompareSwap(atomic),
        8 => Headers::FetchAdd(atomic),
        _ => Headers::SendOnly(SendEnd::Plain),
    }
}

fn any_response(rng: &mut Rng) -> Headers {
    let syndrome = loop {
        if let Some(syndrome) = Syndrome::from_byte(rng.next() as u8) {
            break syndrome;
        }
    };
    let aeth = Aeth {
        syndrome: rng.pick(&[syndrome, Syndrome::ACK]),
        msn: Psn::new(rng.next() as u32),
    };
    match rng.below(6) {
        0 => Headers::ReadResponseFirst(aeth),
        1 => Headers::ReadResponseMiddle,
        2 => Headers::ReadResponseLast(aeth),
        3 => Headers::ReadResponseOnly(aeth),
        4 => Headers::AtomicAcknowledge(aeth, rng.next()),
        _ => Headers::Acknowledge(aeth),
    }
}

/// A packet of `stream`, with a payload if it can have one.
fn packet(stream: &Stream, psn: Psn, headers: Headers, rng: &mut Rng) -> (Packet, Vec<u8>) {
    let bth = Bth {
        solicited: rng.one_in(2),
        ack_req: rng.one_in(2),
        fecn: rng.one_in(8),
        becn: rng.one_in(8),
        ..Bth::new(stream.qpn, psn)
    };
    let packet = Packet::new(bth, headers, rng.below(PAYLOAD + 1) as usize);
    (packet, vec![rng.next() as u8; packet.payload_len()])
}

/// Requests of the peer, with sequence numbers far from those of the connection; or responses to
/// requests that were never sent.
pub(super) struct Far {
    pub(super) responses: bool,
}

impl Attack for Far {
    fn name(&self) -> &'static str {
        if self.responses {
            "responses to nothing"
        } else {
            "requests outside the window"
        }
    }

    fn evidence(&self) -> Option<Evidence> {
        let counters: &[_] = if self.responses {
            &[PacketCounter::Strays, PacketCounter::Duplicates]
        } else {
            &[PacketCounter::DropPsn, PacketCounter::Duplicates]
        };
        Some(Evidence::new(Counter::Packets(counters), MOST))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            let stream = rng.pick(&at.streams);
            let (near, headers) = if self.responses {
                (stream.response, any_response(rng))
            } else {
                (stream.request, any_request(at, rng))
            };
            let psn = far_from(near, rng);
            let (packet, payload) = packet(&stream, psn, headers, rng);
            attacker.send(&whole(stream.way, &packet, &payload));
        }
    }
}

/// Packets to QP numbers that are not in use, or to QPs of another service.
pub(super) struct Guesses;

impl Attack for Guesses {
    fn name(&self) -> &'static str {
        "guessed QP numbers"
    }

    fn evidence(&self) -> Option<Evidence> {
        let counters = &[PacketCounter::DropNoQp, PacketCounter::DropService];
        Some(Evidence::new(Counter::Packets(counters), MOST))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            let stream = rng.pick(&at.streams);
            let near = Qpn::new(stream.qpn.get() ^ 1 << rng.below(24));
            let qpn = match rng.below(6) {
                0 => Qpn::new(0),
                1 => Qpn::MULTICAST,
                2 if !at.is_good(near) => near,
                _ => other_qpn(at, rng),
            };
            let deth = Deth {
                qkey: rng.edge() as u32,
                src_qp: other_qpn(at, rng),
            };
            let headers = match rng.below(4) {
                0 => any_response(rng),
                1 => Headers::Datagram(deth, None),
                _ => any_request(at, rng),
            };
            let target = match headers {
                // A good QP has another service.
                Headers::Datagram(..) => stream,
                _ => Stream { qpn, ..stream },
            };
            let psn = Psn::new(rng.next() as u32);
            let (packet, payload) = packet(&target, psn, headers, rng);
            attacker.send(&whole(stream.way, &packet, &payload));
        }
    }
}

/// As many packets as possible that are dropped: a wrong ICRC, a wrong source, random bytes.
pub(super) struct Flood {
    pub(super) number: u8,
}

impl Attack for Flood {
    fn name(&self) -> &'static str {
        "a flood of bad packets"
    }

    fn evidence(&self) -> Option<Evidence> {
        Some(Evidence::new(Counter::Drops, MOST))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..2 * BURST {
            let stream = rng.pick(&at.streams);
            let headers = any_request(at, rng);
            let (packet, payload) = packet(&stream, stream.request, headers, rng);
            let bytes = match rng.below(4) {
                0 => {
                    let len = rng.below(PAYLOAD) as usize;
                    let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
                    datagram(stream.way, PORT, &bytes)
                }
                1 => {
                    let way = Way::new(crowd(self.number, rng), stream.way.to);
                    seal(way, PORT, &body(&packet, &payload))
                }
                _ => {
                    let mut bytes = whole(stream.way, &packet, &payload);
                    let last = bytes.last_mut().expect("an ICRC");
                    *last ^= 1 << rng.below(8);
                    bytes
                }
            };
            attacker.send(&bytes);
        }
    }
}

/// ICMP errors about packets of the good flow: fragmentation needed, or destination unreachable.
pub(super) struct Icmp;

impl Attack for Icmp {
    fn name(&self) -> &'static str {
        "ICMP errors"
    }

    fn evidence(&self) -> Option<Evidence> {
        Some(Evidence::new(Counter::Icmp, MOST))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        const UNREACHABLE: u8 = 3;
        const TOO_LONG: u8 = 4;
        for _ in 0..BURST {
            let stream = rng.pick(&at.streams);
            // About a packet to a QP that the attacker has to guess.
            let guess = Stream {
                qpn: other_qpn(at, rng),
                ..stream
            };
            let psn = Psn::new(rng.next() as u32);
            let headers = Headers::SendOnly(SendEnd::Plain);
            let (packet, payload) = packet(&guess, psn, headers, rng);
            let port = 0xc000 | rng.next() as u16;
            let about = seal(stream.way, port, &body(&packet, &payload));
            let quoted = &about[..about.len().min(rng.pick(&[28, 48, 128]))];
            let (code, mtu) = match rng.below(4) {
                0 => (rng.below(16) as u8, 0),
                _ => (TOO_LONG, rng.pick(&[0, 68, 256, 552, 576, 1000, 1499])),
            };
            let router = rng.pick(&[A, B]);
            let from = if router == stream.way.from {
                stream.way.to
            } else {
                router
            };
            let way = Way::new(from, stream.way.from);
            attacker.send(&icmp(way, UNREACHABLE, code, mtu, quoted));
        }
    }
}
