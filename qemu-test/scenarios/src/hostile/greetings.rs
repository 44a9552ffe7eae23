// SPDX-License-Identifier: GPL-2.0
//! Requests of endpoints that have another authorization key, to endpoints and to the contexts of a
//! scalable endpoint. All are refused, and no memory is kept for them.

use super::{
    B,
    attacks::{Attack, rejection},
    field::{Attacker, Facts, crowd},
    packet::{Captured, Way, request, to_gsi},
    peer::{cookie_of, epoch, greeting, with_cookie, with_key, with_name},
};
use crate::rng::Rng;
use kfi_core::{
    auth_key::AuthKey,
    rdm::{hello::Refusal, service_id},
};
use kfi_roce::{
    cm::{Body, CommId, Message, Req, ServiceId},
    headers::Qpn,
};
use std::collections::HashMap;

/// Requests of a burst.
const BURST: usize = 8;

/// How many of its requests the sender remembers.
const REMEMBERED: usize = 1024;

/// A request that was sent.
struct Asked {
    way: Way,
    service_id: ServiceId,
    private: Vec<u8>,
}

/// Greetings with keys that the victims do not have. The sender receives the answers at its
/// addresses, and repeats a request with the cookie that it is asked for.
pub(super) struct OtherKeys {
    number: u8,
    /// Requests that were refused because of their key, and those that were accepted.
    refused: u64,
    accepted: u64,
    /// The last requests, by communication ID.
    asked: HashMap<CommId, Asked>,
}

impl OtherKeys {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            refused: 0,
            accepted: 0,
            asked: HashMap::new(),
        }
    }

    /// Sends a REQ, with a cookie or without.
    fn ask(&mut self, attacker: &mut Attacker, id: CommId, asked: Asked) {
        let req = Req {
            local_id: id,
            ca_guid: u64::from(id.0),
            qpn: Qpn::new(0x100 + (id.0 & 0xffff)),
            ..request(asked.way, asked.service_id, &asked.private)
        };
        let (tid, body) = (id.0.into(), Body::Req(req));
        attacker.send(&to_gsi(asked.way, 0, &Message { tid, body }));
        if self.asked.len() == REMEMBERED {
            self.asked.clear();
        }
        self.asked.insert(id, asked);
    }
}

impl Attack for OtherKeys {
    fn name(&self) -> &'static str {
        "greetings with another key"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let contexts: Vec<u16> = at.contexts.clone().collect();
        for _ in 0..BURST {
            let port = match rng.below(3) {
                0 => rng.pick(&[at.open, at.greeter, at.good[1]]),
                _ => rng.pick(&contexts),
            };
            // Of an endpoint, or of a context of a scalable endpoint with another name.
            let mut private = greeting(epoch(rng), 1 + rng.below(0x7fff) as u16);
            if rng.one_in(2) {
                private = with_name(&private, 0x8000 + rng.below(0x7fff) as u16);
            }
            let key = 1 + rng.below(u64::from(u32::MAX)) as u32;
            let asked = Asked {
                way: Way::new(crowd(self.number, rng), B),
                service_id: service_id(port),
                private: with_key(&private, AuthKey::new(key.to_be_bytes())).to_vec(),
            };
            self.ask(attacker, CommId(rng.next() as u32 & !1), asked);
        }
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let Some(message) = captured.message() else {
            return;
        };
        let Some(rej) = rejection(&message, &mut self.accepted) else {
            return;
        };
        let private = rej.private.get();
        self.refused += u64::from(Refusal::parse(private) == Some(Refusal::Key));
        let asked = self.asked.remove(&rej.remote_id);
        if let (Some(cookie), Some(mut asked)) = (cookie_of(private), asked) {
            asked.private = with_cookie(&asked.private, cookie).to_vec();
            self.ask(attacker, CommId(rej.remote_id.0 | 1), asked);
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match (self.accepted, self.refused) {
            (0, 0) => Err("no request was refused because of its key".into()),
            (0, _) => Ok(()),
            (some, _) => Err(format!("{some} requests with another key were accepted")),
        }
    }
}
