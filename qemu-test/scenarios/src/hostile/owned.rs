// SPDX-License-Identifier: GPL-2.0
//! Attacks over connections that the attacker has made itself. They test how many answers (FINs)
//! the victim keeps for a peer, which accesses it allows, and when it gives up a peer.

use super::{
    B,
    attacks::{Attack, ip_header, some_part},
    bad_atomics::{self, Target, message},
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, crowd},
    packet::{Captured, Way},
    peer::{Peer, epoch, greeting, with_name},
    tagged::{self, NOWHERE},
    victims::{MEMORY, READ_ONLY},
};
use crate::rng::Rng;
use kfi::PacketCounter;
use kfi_core::{
    limits::MAX_UNEXPECTED,
    rdm::{
        header::Header,
        service_id,
        times::{ANSWERS, CANCELS_MAX},
    },
};
use kfi_roce::{
    cm::{ServiceId, Timeout},
    headers::{AtomicEth, Headers, Reth, RnrTimer, SendEnd, Syndrome},
};
use std::time::{Duration, Instant};

/// Number of connections at a time.
const PEERS: usize = 4;

/// Number of requests that are sent before they are acknowledged.
const AHEAD: u32 = 8;

/// The base of the IDs of messages that are never sent.
const NEVER: u64 = 1 << 40;

/// Bytes of a message.
const MESSAGE: usize = 64;

/// An address behind the open memory.
const END: u64 = MEMORY as u64;

/// The most messages of one connection that the victim may leave without an answer. Those that wait
/// for a receive have a limit each for tagged and untagged ones.
const UNANSWERED: u32 = ANSWERS + CANCELS_MAX + 2 * MAX_UNEXPECTED;

/// Bytes of a READ, and packets of its response with the requested path MTU.
const READ: u32 = 64 << 10;
const READ_PACKETS: u32 = READ / 1024;

/// Number of READs under way.
const READS_AHEAD: u32 = 2;

/// The RNR time in the NAKs to an end that sends a FIN, in nanoseconds.
const RNR_TIME: u64 = 1_000_000;

/// How long the attacker waits before it makes a connection in place of one that has failed.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the attacker keeps the state of a connection whose other end must give up.
const WAITED: Duration = Duration::from_millis(500);

/// Connections to the open endpoint, which accepts every peer.
pub(super) struct Peers {
    number: u8,
    peers: Vec<Peer>,
    next: Instant,
    /// Connections that were made.
    made: u64,
    /// Acknowledged packets: of all connections, and the most of one connection.
    acknowledged: u64,
    most: u32,
}

impl Peers {
    fn new(number: u8) -> Self {
        Self {
            number,
            peers: Vec::new(),
            next: Instant::now(),
            made: 0,
            acknowledged: 0,
            most: 0,
        }
    }

    /// Replaces those that have failed.
    fn renew(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        self.peers.retain(|peer| !peer.is_dead());
        if self.peers.len() == PEERS || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAUSE;
        let way = Way::new(crowd(self.number, rng), B);
        let mut private = greeting(epoch(rng), 1 + rng.below(0xffff) as u16);
        if rng.one_in(4) {
            private = with_name(&private, 1 + rng.below(0xffff) as u16);
        }
        let service_id = service_id(at.open);
        let peer = Peer::ask(attacker, rng, way, service_id, &private, |_| ());
        self.peers.push(peer);
    }

    /// Handles a captured packet.
    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.is_for(captured)) else {
            return;
        };
        let (was_up, before) = (peer.is_up(), peer.acknowledged);
        let packet = peer.receive(attacker, captured);
        self.made += u64::from(!was_up && peer.is_up());
        self.acknowledged += u64::from(peer.acknowledged - before);
        self.most = self.most.max(peer.acknowledged);
        // Some connections never acknowledge a FIN, others answer it with RNR NAKs for ever.
        if let Some(packet) = packet.filter(|packet| packet.opcode().is_request())
            && packet.bth.dest_qp.get() & 1 == 0
        {
            peer.answer(
                attacker,
                &packet,
                Syndrome::Rnr(RnrTimer::at_least(RNR_TIME)),
            );
        }
    }

    /// Ends all connections, and checks that some were made and some packets acknowledged.
    fn end(&mut self) -> Result<(), String> {
        self.peers.clear();
        if self.made == 0 {
            return Err("no connection of the attacker was accepted".into());
        }
        if self.acknowledged == 0 {
            return Err("nothing that the attacker sent was acknowledged".into());
        }
        Ok(())
    }

    /// [`end`](Self::end), and checks that no connection had more packets acknowledged than the
    /// victim may leave without an answer.
    fn end_bounded(&mut self) -> Result<(), String> {
        self.end()?;
        let most = self.most;
        if most > UNANSWERED {
            return Err(format!(
                "{most} requests were taken that cannot be answered"
            ));
        }
        Ok(())
    }

    /// Ends all connections, and checks that some were made and no packet was acknowledged.
    fn end_refused(&mut self, what: &str) -> Result<(), String> {
        self.peers.clear();
        if self.made == 0 {
            return Err("no connection of the attacker was accepted".into());
        }
        match self.acknowledged {
            0 => Ok(()),
            some => Err(format!("{some} {what} were acknowledged")),
        }
    }
}

/// What an attack does over connections that are up.
pub(super) trait Requests {
    /// The most of its connections that it uses at a time.
    const USED: usize = PEERS;

    /// See [`Attack`].
    fn name(&self) -> &'static str;

    /// See [`Attack`].
    fn evidence(&self) -> Option<Evidence> {
        None
    }

    /// Sends some packets over a connection.
    fn send(&self, peer: &Peer, attacker: &mut Attacker, at: &Facts, rng: &mut Rng);

    /// Ends the connections, and checks what has come of them.
    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end()
    }
}

/// An attack over connections of the attacker.
pub(super) struct Owned<T> {
    peers: Peers,
    requests: T,
}

impl<T: Requests> Owned<T> {
    pub(super) fn new(number: u8, requests: T) -> Self {
        Self {
            peers: Peers::new(number),
            requests,
        }
    }
}

impl<T: Requests> Attack for Owned<T> {
    fn name(&self) -> &'static str {
        self.requests.name()
    }

    fn evidence(&self) -> Option<Evidence> {
        self.requests.evidence()
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        self.peers.renew(attacker, at, rng);
        let up = self.peers.peers.iter().filter(|peer| peer.is_up());
        for peer in up.take(T::USED) {
            self.requests.send(peer, attacker, at, rng);
        }
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        self.peers.receive(attacker, captured);
    }

    fn end(&mut self) -> Result<(), String> {
        self.requests.end(&mut self.peers)
    }
}

/// CANCELs of messages that were never sent. The victim has to answer each with a FIN, which the
/// attacker never acknowledges.
pub(super) struct Cancels;

impl Requests for Cancels {
    fn name(&self) -> &'static str {
        "CANCELs of what was never sent"
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, _at: &Facts, _rng: &mut Rng) {
        for number in peer.acknowledged..peer.acknowledged + AHEAD {
            let (id, finish) = (NEVER + u64::from(number) + 1, true);
            peer.say(attacker, number, &Header::Cancel { id, finish }, &[]);
        }
    }

    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end_bounded()
    }
}

/// Messages with delivery complete: the victim reports the end of each with a FIN, which the
/// attacker never acknowledges.
pub(super) struct Deliveries;

impl Requests for Deliveries {
    fn name(&self) -> &'static str {
        "deliveries that are never acknowledged"
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, _at: &Facts, _rng: &mut Rng) {
        for number in peer.acknowledged..peer.acknowledged + AHEAD {
            let message = message(u64::from(number) + 1, None, MESSAGE as u32, true);
            peer.say(attacker, number, &Header::Eager(message), &[7; MESSAGE]);
        }
    }

    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end_bounded()
    }
}

/// Accesses to the open endpoint's memory that no key allows.
pub(super) struct Keys;

impl Requests for Keys {
    fn name(&self) -> &'static str {
        "keys that are guessed"
    }

    fn evidence(&self) -> Option<Evidence> {
        // A refused access ends its connection, so few packets of each connection are counted.
        let counters = &[PacketCounter::MrRefused, PacketCounter::NakInvalidTx];
        Some(Evidence::new(Counter::Packets(counters), some_part()))
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let other_key = loop {
            let any = rng.next() as u32;
            let key = rng.pick(&[any, at.key ^ 1, 0, u32::MAX]);
            if key != at.key {
                break key;
            }
        };
        let guess = Reth {
            va: rng.pick(&[0, 8, u64::MAX]),
            rkey: other_key,
            len: 8,
        };
        let right = Reth {
            va: 0,
            rkey: at.key,
            len: 8,
        };
        let (headers, len) = match rng.below(8) {
            0 => (Headers::WriteOnly(guess, None), 8),
            // No bytes, but a key.
            1 => (Headers::WriteOnly(Reth { len: 0, ..guess }, None), 0),
            2 => (Headers::ReadRequest(Reth { len: 0, ..guess }), 0),
            3 => (Headers::ReadRequest(guess), 0),
            // Outside the region.
            4 => (Headers::WriteOnly(Reth { va: END, ..right }, None), 8),
            5 => {
                let len = u32::MAX;
                (Headers::ReadRequest(Reth { len, ..right }), 0)
            }
            // An access that the key does not allow.
            6 => {
                let atomic = AtomicEth {
                    va: 0,
                    rkey: READ_ONLY as u32,
                    swap_add: 1,
                    compare: 0,
                };
                (Headers::FetchAdd(atomic), 0)
            }
            // CQ data of a WRITE that was not made.
            _ => {
                peer.say(attacker, 0, &Header::Note { len: 8, data: 7 }, &[]);
                return;
            }
        };
        peer.request(attacker, 0, headers, &[9; 8][..len]);
    }

    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end_refused("accesses without a key")
    }
}

/// Tagged RMA on the receives of the open endpoint: valid requests, whose bytes the attacker never
/// sends and whose answers it never acknowledges; requests without a receive; and invalid ones.
pub(super) struct TaggedRma;

impl Requests for TaggedRma {
    fn name(&self) -> &'static str {
        "tagged RMA"
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let number = peer.acknowledged;
        // A refused SEND ends its connection, so most are valid.
        if rng.one_in(8) {
            let invalid = tagged::invalid();
            let (_, bytes) = &invalid[rng.below(invalid.len() as u64) as usize];
            let headers = Headers::SendOnly(SendEnd::Plain);
            peer.request(attacker, number, headers, bytes);
            return;
        }
        let tag = rng.pick(&[at.tag, at.tag, at.tag + 1]);
        let len = rng.pick(&[0, 8, MESSAGE as u32, 1 << 30]);
        let message = message(u64::from(number) + 1, Some(tag), len, true);
        let offset = rng.pick(&[0, 8, MESSAGE as u32, 1 << 30]);
        let header = match rng.below(2) {
            0 => Header::TaggedWrite(message, NOWHERE, offset),
            _ => Header::TaggedRead(message, offset),
        };
        peer.say(attacker, number, &header, &[]);
    }

    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end_bounded()
    }
}

/// Atomics, and old values of atomics, that are invalid.
pub(super) struct BadAtomics;

impl Requests for BadAtomics {
    fn name(&self) -> &'static str {
        "invalid atomics"
    }

    fn evidence(&self) -> Option<Evidence> {
        // A refused SEND ends its connection.
        let counters = &[PacketCounter::NakAccessTx, PacketCounter::NakInvalidTx];
        Some(Evidence::new(Counter::Packets(counters), some_part()))
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let all = bad_atomics::all(&Target {
            key: at.key,
            len: END,
            read_only: READ_ONLY as u32,
        });
        let bad = &all[rng.below(all.len() as u64) as usize];
        let headers = Headers::SendOnly(SendEnd::Plain);
        peer.request(attacker, 0, headers, &bad.bytes);
    }

    fn end(&self, peers: &mut Peers) -> Result<(), String> {
        peers.end_refused("invalid atomics")
    }
}

/// READs, one behind the other, and the same ones again.
pub(super) struct Reads;

impl Requests for Reads {
    /// Each further connection would take another CPU, as connections of good peers do.
    const USED: usize = 1;

    fn name(&self) -> &'static str {
        "READs without pause"
    }

    fn send(&self, peer: &Peer, attacker: &mut Attacker, at: &Facts, _rng: &mut Rng) {
        let reth = Reth {
            va: 0,
            rkey: at.key,
            len: READ,
        };
        let first = peer.acknowledged / READ_PACKETS;
        for read in first..first + READS_AHEAD {
            let number = read * READ_PACKETS;
            peer.request(attacker, number, Headers::ReadRequest(reth), &[]);
        }
    }
}

/// Connections that the attacker never acknowledges, whose REQ asks for the longest ACK timeout, or
/// for none.
pub(super) struct Timeouts {
    number: u8,
    peers: Vec<(Peer, Instant)>,
    next: Instant,
    made: u64,
}

impl Timeouts {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            peers: Vec::new(),
            next: Instant::now(),
            made: 0,
        }
    }
}

impl Attack for Timeouts {
    fn name(&self) -> &'static str {
        "peers that never acknowledge"
    }

    fn is_silent(&self) -> bool {
        true
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let is_new = |since: &Instant| since.elapsed() < WAITED;
        self.peers.retain(|(_, since)| is_new(since));
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAUSE;
        let way = Way::new(crowd(self.number, rng), B);
        let private = ip_header(way, rng.next() as u16);
        let timeout = Timeout::new(rng.pick(&[0, 31]));
        let service_id = ServiceId::tcp(at.listener);
        let peer = Peer::ask(attacker, rng, way, service_id, &private, |req| {
            req.primary.ack_timeout = timeout;
            // With more retries it takes longer than the test.
            req.retry_count = 1;
        });
        self.peers.push((peer, Instant::now()));
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let mut peers = self.peers.iter_mut().map(|(peer, _)| peer);
        if let Some(peer) = peers.find(|peer| peer.is_for(captured)) {
            let was_up = peer.is_up();
            peer.receive(attacker, captured);
            self.made += u64::from(!was_up && peer.is_up());
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.peers.clear();
        if self.made == 0 {
            return Err("no connection of the attacker was accepted".into());
        }
        Ok(())
    }
}
