// SPDX-License-Identifier: GPL-2.0
//! Hosts that try keys of memory regions: one over as many connections as it can make, and one that
//! tries a key from time to time. The first may be delayed, the second may not.

use super::{
    B,
    attacks::{Attack, some_part},
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, member},
    owned::{Keys, Requests},
    packet::{Captured, Way},
    peer::{Named, Peer, epoch, greeting},
};
use crate::rng::Rng;
use kfi::PacketCounter;
use kfi_core::{
    rdm::service_id,
    refusals::{FREE, PENALTY},
};
use std::time::{Duration, Instant};

/// Connections at a time of each of the two hosts. Each has a port of its own.
const HASTY: usize = 16;
const PATIENT: usize = 1;

/// The pause of the second host: it tries fewer keys than a host may.
const PAUSE: Duration = Duration::from_millis(50);

/// A host that tries keys.
struct Guesser {
    way: Way,
    /// The connections, and whether a key was tried over each. A refusal ends a connection.
    peers: Vec<(Peer, bool)>,
    most: usize,
    pause: Duration,
    next: Instant,
    port: u16,
    /// Accesses that were refused, and those that were acknowledged.
    refused: u64,
    acknowledged: u64,
}

impl Guesser {
    fn new(way: Way, most: usize, pause: Duration) -> Self {
        Self {
            way,
            peers: Vec::new(),
            most,
            pause,
            next: Instant::now(),
            port: 0,
            refused: 0,
            acknowledged: 0,
        }
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        self.peers.retain(|(peer, _)| !peer.is_dead());
        for (peer, tried) in &mut self.peers {
            if peer.is_up() {
                Keys.send(peer, attacker, at, rng);
                *tried = true;
            }
        }
        while self.peers.len() < self.most && Instant::now() >= self.next {
            self.next = Instant::now() + self.pause;
            // The endpoint has a session for each port, so the ports are few.
            self.port = 1 + self.port % (4 * HASTY as u16);
            let private = greeting(epoch(rng), self.port);
            let service_id = service_id(at.open);
            let peer = Peer::ask(attacker, rng, self.way, service_id, &private, |_| ());
            self.peers.push((peer, false));
        }
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let Some(named) = Named::by(captured).filter(|_| captured.way.back() == self.way) else {
            return;
        };
        let of_it = self.peers.iter_mut().find(|(peer, _)| peer.is(named));
        if let Some((peer, tried)) = of_it {
            let (had_failed, before) = (peer.has_failed(), peer.acknowledged);
            peer.receive(attacker, captured);
            self.acknowledged += u64::from(peer.acknowledged - before);
            self.refused += u64::from(*tried && !had_failed && peer.has_failed());
        }
    }
}

/// A hasty host and a patient one.
pub(super) struct Guessers {
    hasty: Guesser,
    patient: Guesser,
    begin: Option<Instant>,
    /// Keys of the patient host that were refused when the phase began.
    before: u64,
}

impl Guessers {
    pub(super) fn new(number: u8) -> Self {
        let way = |host| Way::new(member(number, host), B);
        Self {
            hasty: Guesser::new(way(1), HASTY, Duration::ZERO),
            patient: Guesser::new(way(2), PATIENT, PAUSE),
            begin: None,
            before: 0,
        }
    }
}

impl Attack for Guessers {
    fn name(&self) -> &'static str {
        "keys that two hosts guess"
    }

    fn evidence(&self) -> Option<Evidence> {
        let counters = &[
            PacketCounter::MrRefused,
            PacketCounter::NakInvalidTx,
            PacketCounter::CmDelayed,
        ];
        Some(Evidence::new(Counter::Packets(counters), some_part()))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        self.begin.get_or_insert_with(Instant::now);
        self.patient.burst(attacker, at, rng);
        self.hasty.burst(attacker, at, rng);
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        self.patient.receive(attacker, captured);
        self.hasty.receive(attacker, captured);
    }

    fn end(&mut self) -> Result<(), String> {
        for guesser in [&mut self.hasty, &mut self.patient] {
            guesser.peers.clear();
        }
        let acknowledged = self.hasty.acknowledged + self.patient.acknowledged;
        let time = self.begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        let counted = FREE + time.as_nanos() as u64 / PENALTY + HASTY as u64 + 1;
        // One in eight accesses violates the protocol, which does not count as a refused key.
        let most = counted * 8 / 6;
        let (hasty, patient) = (self.hasty.refused, self.patient.refused - self.before);
        self.before = self.patient.refused;
        println!(
            "  hosts that guess: {hasty} keys refused in {time:.1?}, at most {most}, and {patient}"
        );
        if acknowledged > 0 {
            return Err(format!(
                "{acknowledged} accesses without a key were acknowledged"
            ));
        }
        if hasty == 0 || hasty > most {
            return Err(format!(
                "one host has tried {hasty} keys in {time:?}, and may try {most}"
            ));
        }
        if patient == 0 {
            return Err("a host that seldom tries a key gets no connection".into());
        }
        Ok(())
    }
}
