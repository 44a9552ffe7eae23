// SPDX-License-Identifier: GPL-2.0
//! Connections of one host that are made and kept, with messages that no receive takes. They use up
//! what one peer may have: connections, sessions, and messages that are kept.

use super::{
    B,
    attacks::Attack,
    bad_atomics::message,
    evidence::Evidence,
    field::{Attacker, Facts, Field, member},
    packet::{Captured, Way},
    peer::{Named, Peer, epoch, greeting},
};
use crate::rng::Rng;
use kfi_core::rdm::{header::Header, service_id};

/// Requests of a burst, and how many may have no answer at a time.
const BURST: usize = 4;
const UNANSWERED: usize = 64;

/// Connections at most. A host that can make so many has no share.
const MOST: usize = 4096;

/// Messages of each connection, every second one tagged, and the bytes of each: with its header it
/// is one packet.
const MESSAGES: u32 = 8;
const MESSAGE: usize = 900;

/// Tags that no receive has.
const TAG: u64 = 1 << 48;

/// One host that makes connections from all its ports, and keeps them.
pub(super) struct Hoard {
    number: u8,
    peers: Vec<Peer>,
    /// The next port.
    port: u16,
    /// Connections that were made, and requests that were refused.
    made: usize,
    refused: usize,
    /// Connections that were there at the end.
    kept: usize,
}

impl Hoard {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            peers: Vec::new(),
            port: 1,
            made: 0,
            refused: 0,
            kept: 0,
        }
    }

    fn fill(peer: &Peer, attacker: &mut Attacker) {
        for number in 0..MESSAGES {
            let tag = (number % 2 == 0).then_some(TAG);
            let message = message(u64::from(number) + 1, tag, MESSAGE as u32, false);
            peer.say(attacker, number, &Header::Eager(message), &[7; MESSAGE]);
        }
    }
}

impl Attack for Hoard {
    fn name(&self) -> &'static str {
        "connections that one host keeps"
    }

    fn begin(&mut self, _field: &Field) {
        (self.made, self.refused) = (0, 0);
    }

    fn evidence(&self) -> Option<Evidence> {
        None
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        // Requests whose answers are lost are given up.
        self.peers
            .retain(|peer| peer.is_connected() || !peer.is_dead());
        let open = self.peers.iter().filter(|peer| !peer.is_connected());
        if self.peers.len() >= MOST || open.count() + BURST > UNANSWERED {
            return;
        }
        for _ in 0..BURST {
            self.port = self.port.wrapping_add(1).max(1);
            let way = Way::new(member(self.number, 1), B);
            let private = greeting(epoch(rng), self.port);
            let service_id = service_id(at.keeper);
            let peer = Peer::ask(attacker, rng, way, service_id, &private, |_| ());
            self.peers.push(peer);
        }
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let Some(named) = Named::by(captured) else {
            return;
        };
        let Some(index) = self.peers.iter().position(|peer| peer.is(named)) else {
            return;
        };
        let peer = &mut self.peers[index];
        let was_up = peer.is_connected();
        peer.receive(attacker, captured);
        if !was_up && peer.is_connected() {
            self.made += 1;
            Self::fill(peer, attacker);
        }
        if peer.has_failed() {
            self.refused += usize::from(!was_up);
            self.peers.swap_remove(index);
        }
    }

    fn wants_more(&self) -> bool {
        self.refused == 0
    }

    fn leave(&mut self, attacker: &mut Attacker) {
        self.kept = self.peers.iter().filter(|peer| peer.is_connected()).count();
        let (kept, made, refused) = (self.kept, self.made, self.refused);
        println!("  one host: {made} connections made, {kept} at the end, {refused} refused");
        for mut peer in self.peers.drain(..) {
            peer.leave(attacker);
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match (self.made, self.kept) {
            (0, _) => Err("no connection of the attacker was accepted".into()),
            (_, 0) => Err("no connection of the attacker was kept".into()),
            (_, MOST..) => Err(format!("one host has {} connections", self.kept)),
            _ => Ok(()),
        }
    }
}
