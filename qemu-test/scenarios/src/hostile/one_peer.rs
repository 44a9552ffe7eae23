// SPDX-License-Identifier: GPL-2.0
//! One host that makes connections by hand and keeps them, for tests of other files.

use super::{
    A, B,
    field::Attacker,
    packet::Way,
    peer::{Named, Peer, epoch, greeting},
};
use crate::{
    host::{SOON, within},
    networks::Wire,
    rng::Rng,
};
use kfi::{Device, Errno};
use kfi_core::rdm::service_id;
use std::time::{Duration, Instant};

/// The host of `a` of a [`Wire`], which has no link.
pub(crate) struct OnePeer {
    attacker: Attacker,
    rng: Rng,
    peers: Vec<Peer>,
}

impl OnePeer {
    pub(crate) fn new(wire: &Wire) -> Self {
        wire.a.run(|| {
            let device = Device::open().expect("device");
            device.link_del("roce0").expect("link_del");
        });
        let mut attacker = Attacker::on(&wire.a);
        attacker.is_silent = false;
        Self {
            attacker,
            rng: Rng::new(1),
            peers: Vec::new(),
        }
    }

    /// Connects a new endpoint of this host to the endpoint at this port of the host `b`. Fails
    /// with `EBUSY` if the request is refused.
    pub(crate) fn connect(&mut self, port: u16) -> Result<(), Errno> {
        let own_port = 1 + self.peers.len() as u16;
        let private = greeting(epoch(&mut self.rng), own_port);
        let (way, service_id) = (Way::new(A, B), service_id(port));
        let (attacker, rng) = (&mut self.attacker, &mut self.rng);
        let new = Peer::ask(attacker, rng, way, service_id, &private, |_| ());
        self.peers.push(new);
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            self.receive();
            let new = self.peers.last().expect("the new one");
            if new.is_connected() {
                return Ok(());
            }
            if new.has_failed() {
                self.peers.pop();
                return Err(Errno::EBUSY);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no answer");
    }

    /// Disconnects all, and waits for the answers.
    pub(crate) fn leave(&mut self) {
        for peer in &mut self.peers {
            peer.leave(&mut self.attacker);
        }
        let gone = within(SOON, || {
            self.receive();
            self.peers.retain(|peer| !peer.has_failed());
            self.peers.is_empty()
        });
        assert!(gone, "{} connections remain", self.peers.len());
    }

    /// Handles the packets that have arrived.
    fn receive(&mut self) {
        while let Some(captured) = self.attacker.receive() {
            let named = Named::by(&captured);
            let to = |peer: &&mut Peer| named.is_some_and(|named| peer.is(named));
            if let Some(peer) = self.peers.iter_mut().find(to) {
                peer.receive(&mut self.attacker, &captured);
            }
        }
    }
}
