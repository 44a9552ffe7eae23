// SPDX-License-Identifier: GPL-2.0
//! Requests for connections that are accepted and never confirmed, of many hosts or of one.

use super::{
    A, B,
    attacks::{Asked, Attack, any_service, ask_service, rejection},
    field::{Attacker, Facts, Field, crowd, member},
    packet::{Captured, Way, request, to_gsi},
    peer::with_cookie,
};
use crate::rng::Rng;
use kfi_core::rdm::{hello::Refusal, service_id};
use kfi_roce::cm::{Body, CommId, Message, Reason, Req, ServiceId};
use std::{collections::HashMap, net::Ipv4Addr};

/// Requests of a burst.
const BURST: usize = 8;

/// How many of its requests the sender remembers.
const REMEMBERED: usize = 1024;

/// Requests that are accepted and never confirmed. The sender receives the answers at its
/// addresses, and repeats a request with the cookie that the endpoint asks for.
pub(super) struct HalfOpen {
    number: u8,
    /// All requests come from one address, and go to endpoints for reliable datagrams.
    is_one_host: bool,
    /// Number of REPs received, and of requests that were refused because a limit is reached.
    accepted: u64,
    busy: u32,
    /// The last requests, by communication ID.
    asked: HashMap<CommId, Asked>,
}

impl HalfOpen {
    pub(super) fn of_many_hosts(number: u8) -> Self {
        Self {
            number,
            is_one_host: false,
            accepted: 0,
            busy: 0,
            asked: HashMap::new(),
        }
    }

    pub(super) fn of_one_host(number: u8) -> Self {
        Self {
            is_one_host: true,
            ..Self::of_many_hosts(number)
        }
    }

    /// The sender and the service of the next request.
    fn next(&self, at: &Facts, rng: &mut Rng) -> (Ipv4Addr, ServiceId) {
        if self.is_one_host {
            let port = rng.pick(&[at.open, at.keeper, at.greeter]);
            return (member(self.number, 1), service_id(port));
        }
        let from = match rng.below(8) {
            0 => A,
            _ => crowd(self.number, rng),
        };
        (from, any_service(at, rng))
    }
}

impl Attack for HalfOpen {
    fn name(&self) -> &'static str {
        if self.is_one_host {
            "unconfirmed requests of one host"
        } else {
            "half-open requests"
        }
    }

    fn begin(&mut self, _field: &Field) {
        (self.accepted, self.busy) = (0, 0);
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            let (from, service_id) = self.next(at, rng);
            let (id, asked) = ask_service(attacker, at, rng, Way::new(from, B), service_id);
            if self.asked.len() == REMEMBERED {
                self.asked.clear();
            }
            self.asked.insert(id, asked);
        }
    }

    fn receive(&mut self, attacker: &mut Attacker, captured: &Captured) {
        let Some(message) = captured.message() else {
            return;
        };
        let Some(rej) = rejection(&message, &mut self.accepted) else {
            return;
        };
        let asked = self.asked.remove(&rej.remote_id);
        let refusal = Refusal::parse(rej.private.get());
        let is_busy = refusal == Some(Refusal::Busy) || rej.reason == Reason::NO_RESOURCES;
        self.busy += u32::from(is_busy);
        if let (Some(Refusal::Retry(cookie)), Some(asked)) = (refusal, asked) {
            let private = with_cookie(&asked.private, cookie);
            let req = Req {
                local_id: CommId(rej.remote_id.0.wrapping_add(1)),
                ca_guid: u64::from(rej.remote_id.0),
                qpn: asked.qpn,
                ..request(asked.way, asked.service_id, &private)
            };
            let (tid, body) = (message.tid, Body::Req(req));
            attacker.send(&to_gsi(asked.way, 0, &Message { tid, body }));
        }
    }

    fn wants_more(&self) -> bool {
        self.is_one_host && self.busy == 0
    }

    fn end(&mut self) -> Result<(), String> {
        if self.is_one_host {
            let (accepted, busy) = (self.accepted, self.busy);
            println!("  one host: {accepted} requests accepted, {busy} refused as too many");
        }
        if self.accepted == 0 {
            return Err("no request was accepted".into());
        }
        Ok(())
    }

    fn may_bar_newcomers(&self) -> bool {
        // One host can be distinguished from the newcomers.
        !self.is_one_host
    }
}
