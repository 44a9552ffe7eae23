// SPDX-License-Identifier: GPL-2.0
//! READs and WRITEs of no bytes over connections to the listener, with arbitrary keys. InfiniBand
//! lets them succeed, but they must not raise the counters of the victim, which start deferred work:
//! the listener checks them.

use super::{
    B,
    attacks::{Attack, ip_header},
    evidence::Evidence,
    field::{Attacker, Facts, crowd},
    packet::{Captured, Way},
    peer::Peer,
};
use crate::rng::Rng;
use kfi_roce::{
    cm::ServiceId,
    headers::{Headers, Reth},
};
use std::time::{Duration, Instant};

/// Number of connections at a time.
const PEERS: usize = 4;

/// Number of requests that are sent before they are acknowledged.
const AHEAD: u32 = 8;

/// How long the attacker waits before it makes another connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Accesses to no bytes. The attacker does not acknowledge the victim's message, which therefore
/// gives it up after some time.
pub(super) struct NoBytes {
    number: u8,
    peers: Vec<Peer>,
    next: Instant,
    /// Requests that were acknowledged.
    acknowledged: u64,
}

impl NoBytes {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            peers: Vec::new(),
            next: Instant::now(),
            acknowledged: 0,
        }
    }
}

impl Attack for NoBytes {
    fn name(&self) -> &'static str {
        "accesses to no bytes"
    }

    fn evidence(&self) -> Option<Evidence> {
        None
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        self.peers.retain(|peer| !peer.is_dead());
        for peer in self.peers.iter().filter(|peer| peer.is_up()) {
            for number in peer.acknowledged..peer.acknowledged + AHEAD {
                let any = rng.next() as u32;
                let reth = Reth {
                    va: rng.edge(),
                    rkey: rng.pick(&[any, at.key, 0, u32::MAX]),
                    len: 0,
                };
                let headers = if rng.one_in(2) {
                    Headers::WriteOnly(reth, None)
                } else {
                    Headers::ReadRequest(reth)
                };
                peer.request(attacker, number, headers, &[]);
            }
        }
        if self.peers.len() == PEERS || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAUSE;
        let way = Way::new(crowd(self.number, rng), B);
        let private = ip_header(way, rng.next() as u16);
        let service_id = ServiceId::tcp(at.listener);
        let peer = Peer::ask(attacker, rng, way, service_id, &private, |req| {
            req.retry_count = 1;
        });
        self.peers.push(peer);
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.is_for(captured)) {
            let before = peer.acknowledged;
            peer.receive(attacker, captured);
            self.acknowledged += u64::from(peer.acknowledged - before);
        }
    }

    fn leave(&mut self, attacker: &mut Attacker) {
        for mut peer in self.peers.drain(..) {
            peer.leave(attacker);
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match std::mem::take(&mut self.acknowledged) {
            0 => Err("no access was acknowledged".into()),
            _ => Ok(()),
        }
    }
}
