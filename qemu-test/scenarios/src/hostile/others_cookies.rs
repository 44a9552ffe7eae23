// SPDX-License-Identifier: GPL-2.0
//! Requests in the name of endpoints that are about to connect, with cookies that other hosts were
//! given, with guessed cookies, and with none. They must not displace the requests of the endpoints
//! themselves, which are proven.

use super::{
    A, B,
    attacks::{Attack, ask, ask_service, other_qpn},
    field::{Attacker, Facts, crowd},
    packet::{Captured, Way},
    peer::{cookie_of, epoch, greeting, with_cookie},
};
use crate::rng::Rng;
use kfi_core::rdm::{Cookie, service_id};
use kfi_roce::cm::Body;

/// Requests of a burst in the name of others, and those of the attacker itself.
const BURST: usize = 6;
const OWN: usize = 2;

/// How many cookies the attacker keeps.
const KEPT: usize = 64;

/// Requests with the addresses of others.
pub(super) struct OthersCookies {
    number: u8,
    /// The last cookies that the attacker was given.
    cookies: Vec<Cookie>,
    /// The number of cookies that it was given in this phase.
    given: usize,
}

impl OthersCookies {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            cookies: Vec::new(),
            given: 0,
        }
    }

    fn cookie(&self, rng: &mut Rng) -> Option<Cookie> {
        match rng.below(3) {
            0 => None,
            1 => Cookie::new(rng.next()),
            _ if self.cookies.is_empty() => None,
            _ => Some(rng.pick(&self.cookies)),
        }
    }
}

impl Attack for OthersCookies {
    fn name(&self) -> &'static str {
        "cookies of other hosts"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..OWN {
            let way = Way::new(crowd(self.number, rng), B);
            ask_service(attacker, at, rng, way, service_id(at.greeter));
        }
        let ports: Vec<u16> = at.newcomers.clone().chain([at.good[0]]).collect();
        for _ in 0..BURST {
            let mut epoch = epoch(rng);
            if rng.one_in(2) {
                // One that takes precedence.
                epoch.incarnation = u64::MAX - rng.below(4);
            }
            let way = Way::new(A, B);
            let (from, to) = (rng.pick(&ports), rng.pick(&[at.greeter, at.good[1]]));
            let mut private = greeting(epoch, from);
            if let Some(cookie) = self.cookie(rng) {
                private = with_cookie(&private, cookie);
            }
            let qpn = other_qpn(at, rng);
            ask(
                attacker,
                rng,
                way,
                service_id(to),
                &private,
                at.guids[0],
                qpn,
            );
        }
    }

    fn receive(&mut self, _attacker: &mut Attacker, captured: &Captured) {
        let Some(Body::Rej(rej)) = captured.message().map(|message| message.body) else {
            return;
        };
        if let Some(cookie) = cookie_of(rej.private.get()) {
            if self.cookies.len() == KEPT {
                self.cookies.remove(0);
            }
            self.cookies.push(cookie);
            self.given += 1;
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match std::mem::take(&mut self.given) {
            0 => Err("the attacker was given no cookie".into()),
            _ => Ok(()),
        }
    }
}
