// SPDX-License-Identifier: GPL-2.0
//! Recorded packets, changed and sent again.
//!
//! RoCE has no authentication: an attacker that sees the packets of a connection can end it and
//! write into it. So the attacker records packets of sacrificial (spare) connections, between
//! addresses of their own. These may fail, and are made again when they do; the kernel and the
//! good flow must not fail.

use super::{
    attacks::{Attack, some_part},
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, Field, SPARE_A, SPARE_B},
    packet::{Capture, Captured, datagram, seal},
};
use crate::{
    connected::{connect, open_region},
    host::{Host, Options, buffer, domain_on},
    rng::Rng,
};
use kfi::{AtomicOp, Buffer, Caps, Datatype, Domain, EpType, FiAddr, Mr, Op, OpFlags, QpOption};
use kfi_roce::{
    headers::{Bth, Qpn},
    icrc::{IPV4_LEN, UDP_LEN},
    opcode::Opcode,
    packet::ICRC_LEN,
};
use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Packets of a burst.
const BURST: usize = 8;

/// Number of packets kept: of connections, and of connection management.
const KEPT: usize = 256;
const KEPT_CM: usize = 64;

/// Half of the chosen packets are among this number of the last ones.
const FRESH: u64 = 8;

/// The largest body with which a packet has room on the wire.
const LONGEST: usize = 1500 - IPV4_LEN - UDP_LEN - ICRC_LEN;

/// Bytes of headers in which fields are changed: BTH, extended headers, those of reliable
/// datagrams.
const HEADERS: u64 = 72;

/// Operations of a sacrificial pair before it is made again.
const OPERATIONS: u32 = 200;

/// Longest time of one of them.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of an operation that takes more than one packet, and of one that its receiver reads.
const LONG: usize = 5000;
const VERY_LONG: usize = 32 << 10;

/// Mutations of recorded packets, see the top of the file.
pub(super) struct Mutations {
    capture: Option<Capture>,
    spare: Option<Spare>,
    kept: VecDeque<Captured>,
    kept_cm: VecDeque<Captured>,
    sent: u64,
}

impl Mutations {
    pub(super) fn new() -> Self {
        Self {
            capture: None,
            spare: None,
            kept: VecDeque::new(),
            kept_cm: VecDeque::new(),
            sent: 0,
        }
    }

    /// Keeps the captured packets.
    fn record(&mut self) {
        while let Some(captured) = self.capture.as_ref().and_then(Capture::next) {
            let (kept, most) = if captured.message().is_some() {
                (&mut self.kept_cm, KEPT_CM)
            } else {
                (&mut self.kept, KEPT)
            };
            if kept.len() == most {
                kept.pop_front();
            }
            kept.push_back(captured);
        }
    }

    /// One of the kept packets.
    fn pick(&self, rng: &mut Rng) -> Option<&Captured> {
        let from = match rng.below(4) {
            0 if !self.kept_cm.is_empty() => &self.kept_cm,
            _ => &self.kept,
        };
        let len = from.len() as u64;
        if len == 0 {
            return None;
        }
        let back = match rng.below(2) {
            0 => rng.below(len.min(FRESH)),
            _ => rng.below(len),
        };
        from.get((len - 1 - back) as usize)
    }
}

impl Attack for Mutations {
    fn name(&self) -> &'static str {
        "mutations of recorded packets"
    }

    fn evidence(&self) -> Option<Evidence> {
        // The rest are good packets, which a QP takes.
        Some(Evidence::new(Counter::Drops, some_part()))
    }

    fn begin(&mut self, field: &Field) {
        self.capture = Some(Capture::of_module(&field.b, [SPARE_A, SPARE_B]));
        self.spare = Some(Spare::begin(field));
    }

    /// The sacrificial connections.
    fn has_load(&self) -> bool {
        true
    }

    fn burst(&mut self, attacker: &mut Attacker, _at: &Facts, rng: &mut Rng) {
        self.record();
        for _ in 0..BURST {
            if let (Some(one), Some(other)) = (self.pick(rng), self.pick(rng)) {
                let packet = mutation(one, other, rng);
                attacker.send(&packet);
                self.sent += 1;
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.capture = None;
        let done = self.spare.take().map_or(0, Spare::end);
        if done == 0 || self.sent == 0 || self.kept_cm.is_empty() {
            let (sent, cm) = (self.sent, self.kept_cm.len());
            return Err(format!(
                "{done} sacrificial operations, {cm} messages of connection management recorded, \
                 {sent} packets sent"
            ));
        }
        Ok(())
    }
}

/// Writes the bytes of `word` at `at`, as far as `body` reaches.
fn set_word(body: &mut [u8], at: usize, word: u32) {
    for (place, byte) in body.iter_mut().skip(at).zip(word.to_be_bytes()) {
        *place = byte;
    }
}

fn flip(body: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(body.len() as u64) as usize;
        body[at] ^= 1 << rng.below(8);
    }
}

/// A packet made from a recorded one, perhaps with parts of `other`.
fn mutation(of: &Captured, other: &Captured, rng: &mut Rng) -> Vec<u8> {
    let mut body = of.body().to_vec();
    if body.len() < Bth::LEN {
        return datagram(of.way, of.port, &body);
    }
    let word = |at: usize| {
        let bytes = of.body()[at..].first_chunk().copied();
        bytes.map_or(0, u32::from_be_bytes)
    };
    match rng.below(12) {
        // Sent again, late, or out of order.
        0 => {}
        1 => flip(&mut body, rng),
        2 => {
            // With its old ICRC.
            let mut sealed = seal(of.way, of.port, &body);
            flip(&mut sealed[IPV4_LEN + UDP_LEN..], rng);
            return sealed;
        }
        3 => {
            let len = rng.below(body.len() as u64 + 1) as usize;
            let whole_words = if rng.one_in(4) { len } else { len & !3 };
            body.truncate(whole_words);
        }
        4 => {
            let more = 4 * rng.below(256) as usize;
            let len = (body.len() + more).min(LONGEST);
            body.resize(len, rng.next() as u8);
        }
        5 => body[0] = rng.pick(Opcode::ALL).byte(),
        6 => {
            let psn = match rng.below(4) {
                0 => rng.next() as u32,
                _ => word(8).wrapping_add(rng.below(17) as u32).wrapping_sub(8),
            };
            set_word(&mut body, 8, word(8) & 0xff00_0000 | psn & 0x00ff_ffff);
        }
        7 => {
            let qpn = other.packet().map_or(Qpn::GSI, |other| other.bth.dest_qp);
            set_word(&mut body, 4, qpn.get());
        }
        8 => {
            // The first word behind the BTH: a syndrome, an address, a Q key, a header's kind.
            set_word(&mut body, Bth::LEN, rng.next() as u32);
        }
        9 => {
            let (front, back) = (rng.below(HEADERS) as usize, other.body());
            body.truncate(front);
            body.extend(back.iter().skip(front));
        }
        10 => {
            let fields = (body.len() as u64).min(HEADERS) / 4;
            let at = 4 * rng.below(fields) as usize;
            set_word(&mut body, at, rng.edge() as u32);
        }
        _ => {
            // Anywhere: in a message of connection management, in a payload.
            let at = 4 * rng.below(body.len() as u64 / 4) as usize;
            set_word(&mut body, at, rng.edge() as u32);
        }
    }
    seal(of.way, of.port, &body)
}

/// The sacrificial connections, and the thread that uses them.
struct Spare {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Spare {
    fn begin(field: &Field) -> Self {
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let domains = [&field.a, &field.b].map(|host| host.run(|| domain_on("roce0").1));
        let (over, count) = (stop.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !over.load(SeqCst) {
                let pair = Pair::new(&domains);
                for _ in 0..OPERATIONS {
                    number += 1;
                    if over.load(SeqCst) || pair.operate(number).is_none() {
                        break;
                    }
                    count.fetch_add(1, SeqCst);
                }
            }
        });
        Self { stop, done, thread }
    }

    /// Ends them. Returns the number of operations that succeeded.
    fn end(self) -> u64 {
        self.stop.store(true, SeqCst);
        self.thread.join().expect("the sacrificial connections");
        self.done.load(SeqCst)
    }
}

/// Two endpoints for reliable datagrams and two that are connected, with memory.
struct Pair {
    rdm: [Host; 2],
    peers: [FiAddr; 2],
    msg: [Host; 2],
    from: Buffer,
    into: Buffer,
    /// Regions of the second host, on the domain of each kind of endpoints.
    regions: [Mr; 2],
}

impl Pair {
    fn new(domains: &[Domain; 2]) -> Self {
        let connected = Options::of(EpType::Msg, Caps::MSG | Caps::RMA | Caps::ATOMIC);
        let hosts = |options: &Options| {
            let at = |ip: Ipv4Addr| Some(SocketAddr::from((ip, 0)));
            [
                Host::at(&domains[0], options, at(SPARE_A)),
                Host::at(&domains[1], options, at(SPARE_B)),
            ]
        };
        let (rdm, msg) = (hosts(&Options::default()), hosts(&connected));
        for end in &msg {
            end.ep.set_qp_option(QpOption::Timeout, 14).expect("option");
        }
        connect(&msg[0], &msg[1]);
        let memory = [(); 2].map(|()| buffer(VERY_LONG));
        // Both kinds of endpoints are on one domain, so each region has a key of its own.
        let regions = [
            open_region(&rdm[1], &memory[0], 1),
            open_region(&msg[1], &memory[1], 2),
        ];
        Self {
            peers: [rdm[0].meet(&rdm[1]), rdm[1].meet(&rdm[0])],
            rdm,
            msg,
            from: buffer(VERY_LONG),
            into: buffer(VERY_LONG),
            regions,
        }
    }

    /// Makes an operation. `None`: it failed, or did not complete in time.
    fn operate(&self, number: u64) -> Option<()> {
        let [a, b] = &self.rdm;
        let [to_b, to_a] = self.peers;
        let [c, d] = &self.msg;
        let [over_rdm, over_msg] = self.regions.each_ref().map(|region| region.remote(8));
        let (from, into) = (&self.from, &self.into);
        let unspec = FiAddr::UNSPEC;
        match number % 9 {
            0 => self.send(a, b, Op::send(to_b, from.slice(..100))),
            1 => self.send(b, a, Op::send(to_a, from)),
            2 => {
                let op = Op::send(to_b, from.slice(..LONG));
                self.send(a, b, op.flags(OpFlags::DELIVERY_COMPLETE))
            }
            3 => one(a, Op::write(to_b, from.slice(..LONG), over_rdm)),
            4 => one(a, Op::read(to_b, into.slice(..LONG), over_rdm)),
            5 => self.send(c, d, Op::send(unspec, from.slice(..LONG))),
            6 => one(c, Op::write(unspec, from.slice(..LONG), over_msg)),
            7 => one(c, Op::read(unspec, into.slice(..LONG), over_msg)),
            _ => {
                let (kind, add) = (Datatype::Uint64, AtomicOp::Sum);
                let (word, before) = (from.slice(..8), into.slice(..8));
                let posted =
                    c.ep.fetch_atomic(unspec, word, before, over_msg, kind, add, 1);
                posted.ok()?;
                wait(c)
            }
        }
    }

    fn send(&self, from: &Host, to: &Host, op: Op<'_>) -> Option<()> {
        to.ep.recv(&self.into, 2).ok()?;
        one(from, op)?;
        wait(to)
    }
}

fn one(host: &Host, op: Op<'_>) -> Option<()> {
    host.ep.post_one(&op.context(1)).ok()?;
    wait(host)
}

fn wait(host: &Host) -> Option<()> {
    host.cq.next(PATIENCE).ok()?.map(|_| ())
}
