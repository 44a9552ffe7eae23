// SPDX-License-Identifier: GPL-2.0
//! Connection requests whose source address may be forged.
//!
//! Anyone can send a REQ with the source address of another host. The passive end makes a session,
//! a connection and a QP for it, and the other host rejects the REP. That costs much more than the
//! forged REQ. So an endpoint handles a limited number of *unproven* requests per second
//! ([`Unproven`]). It refuses further ones with a [`Cookie`] and keeps no state for them:
//!
//! ```text
//!   peer                              endpoint
//!    | ------- REQ, no cookie -------> |  too many such requests: no session, no QP
//!    | <--- REJ, Retry, cookie ------- |
//!    | ------- REQ, cookie ----------> |  the peer receives packets at its address
//!    | <------- REP ------------------ |
//! ```
//!
//! The sender of a forged REQ does not get the REJ, so it does not know the cookie. This is the
//! method of the SYN cookies of TCP, HelloVerifyRequest of DTLS and Retry of QUIC. A REJ is not
//! longer than its REQ, so a third host gets no more packets than without the forged source
//! address.
//!
//! A cookie is a hash, with a secret key of the endpoint, of the peer's address, the endpoint's
//! port and a period of [`COOKIE_PERIOD`]. The cookies of the present period and of the previous
//! one are valid. So a cookie is of no use to another peer or at another endpoint, nor after 20 s.
//! A peer may use it for several requests until then: it has only proven that it receives packets
//! at its address.
//!
//! Two cookies are compared as two words in registers, with one instruction. The time of that does
//! not depend on the number of equal bytes, so a comparison in constant time needs no further code.

use super::times::{
    COOKIE_PERIOD,
    UNPROVEN_BURST,
    UNPROVEN_INTERVAL, //
};
use crate::{
    addr::SockAddr,
    token_bucket::TokenBucket, //
};
use core::{
    net::IpAddr,
    num::NonZeroU64, //
};

/// A proof that a peer receives packets at its address. Not 0, which stands for no cookie in a
/// [`Hello`](super::Hello).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(NonZeroU64);

impl Cookie {
    /// Returns the cookie with this value; `None` for 0.
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// Returns its value, which is not 0.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The two ends of a requested connection, which a cookie is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The address of the peer's endpoint: the source address of the REQ, and the port in its
    /// hello.
    pub peer: SockAddr,
    /// The port of this endpoint's address.
    pub port: u16,
}

impl Ends {
    /// Returns the cookie for a period. `hash` is a hash with a secret key of the endpoint.
    fn cookie(&self, period: u64, hash: impl FnOnce([u64; 4]) -> u64) -> Cookie {
        let ip = match self.peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let ip = u128::from(ip);
        let ports = u64::from(self.peer.port()) << 16 | u64::from(self.port);
        let words = [
            (ip >> 64) as u64,
            ip as u64,
            u64::from(self.peer.scope()) << 32 | ports,
            period,
        ];
        Cookie(NonZeroU64::new(hash(words)).unwrap_or(NonZeroU64::MIN))
    }
}

/// The proof of the source address of a request that is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A valid cookie.
    Cookie,
    /// None: the address may be forged.
    None,
}

/// The unproven requests to an endpoint: a token bucket. See the top of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unproven(TokenBucket<UNPROVEN_INTERVAL, { UNPROVEN_BURST as u64 }>);

impl Unproven {
    /// Returns the state before the first request.
    pub const fn new() -> Self {
        Self(TokenBucket::new())
    }

    /// Decides whether a request is handled at time `now`: if its cookie is valid, or, unless it
    /// `must_prove` its address, if there were few requests without a valid one. `hash` is a hash
    /// with a secret key of the endpoint.
    ///
    /// # Errors
    ///
    /// The cookie that the peer must repeat ([`Refusal::Retry`](super::hello::Refusal::Retry)).
    pub fn check(
        &mut self,
        now: u64,
        ends: &Ends,
        cookie: Option<Cookie>,
        must_prove: bool,
        hash: impl Fn([u64; 4]) -> u64,
    ) -> Result<Proof, Cookie> {
        let period = now / COOKIE_PERIOD;
        let is_valid = cookie.is_some_and(|cookie| {
            cookie == ends.cookie(period, &hash)
                || cookie == ends.cookie(period.wrapping_sub(1), &hash)
        });
        if is_valid {
            Ok(Proof::Cookie)
        } else if !must_prove && self.0.take(now) {
            Ok(Proof::None)
        } else {
            Err(ends.cookie(period, &hash))
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_unproven))]
mod tests {
    use super::*;
    use core::net::{
        Ipv4Addr,
        Ipv6Addr, //
    };

    /// The time in ns in which an endpoint that has got a full burst may handle another one.
    const BURST_TIME: u64 = UNPROVEN_BURST as u64 * UNPROVEN_INTERVAL;

    /// The time at which the tests begin: a period begins.
    const START: u64 = 1_000 * COOKIE_PERIOD;

    const ENDS: Ends = Ends {
        peer: SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7471),
        port: 7472,
    };

    /// A hash that differs for each of the words that the tests use. `key` is the secret.
    fn hash_with(key: u64) -> impl Fn([u64; 4]) -> u64 {
        move |words| {
            words.iter().fold(key, |hash, word| {
                (hash ^ word)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29)
            })
        }
    }

    /// Returns the number of `count` requests without a cookie that are handled at `now`.
    fn handled(unproven: &mut Unproven, now: u64, count: u32) -> u32 {
        (0..count)
            .filter(|_| {
                unproven
                    .check(now, &ENDS, None, false, hash_with(1))
                    .is_ok()
            })
            .fold(0, |sum, _| sum + 1)
    }

    /// Returns an endpoint that has just handled a burst, and the cookie that it demands.
    fn exhausted(now: u64) -> (Unproven, Option<Cookie>) {
        let mut unproven = Unproven::new();
        handled(&mut unproven, now, UNPROVEN_BURST);
        let demand = unproven.check(now, &ENDS, None, false, hash_with(1));
        (unproven, demand.err())
    }

    #[test]
    fn a_burst_is_handled_and_then_a_few_requests_per_second() {
        let mut unproven = Unproven::new();
        assert_eq!(handled(&mut unproven, START, 1_000), UNPROVEN_BURST);
        let mut now = START;
        for _ in 0..20 {
            now += UNPROVEN_INTERVAL - 1;
            assert_eq!(handled(&mut unproven, now, 1_000), 0);
            now += 1;
            assert_eq!(handled(&mut unproven, now, 1_000), 1);
        }
        now += 3 * UNPROVEN_INTERVAL;
        assert_eq!(handled(&mut unproven, now, 1_000), 3);
        // Tokens beyond a burst are lost.
        now += 1_000 * BURST_TIME;
        assert_eq!(handled(&mut unproven, now, 1_000), UNPROVEN_BURST);
    }

    #[test]
    fn the_limit_holds_at_the_ends_of_time() {
        for now in [0, u64::MAX - 1] {
            let mut unproven = Unproven::new();
            assert_eq!(handled(&mut unproven, now, UNPROVEN_BURST), UNPROVEN_BURST);
        }
        // A clock that went back a little.
        let (mut unproven, _) = exhausted(START);
        assert_eq!(handled(&mut unproven, START - 1, 10), 0);
    }

    #[test]
    fn a_valid_cookie_takes_no_token() {
        let (mut unproven, cookie) = exhausted(START);
        assert!(cookie.is_some());
        for _ in 0..1_000 {
            assert_eq!(
                unproven.check(START, &ENDS, cookie, false, hash_with(1)),
                Ok(Proof::Cookie)
            );
        }
        let later = START + UNPROVEN_INTERVAL;
        assert_eq!(
            unproven.check(later, &ENDS, cookie, false, hash_with(1)),
            Ok(Proof::Cookie)
        );
        assert_eq!(handled(&mut unproven, later, 10), 1);
    }

    #[test]
    fn a_request_that_must_prove_its_address_needs_a_cookie() {
        let mut unproven = Unproven::new();
        let demand = unproven.check(START, &ENDS, None, true, hash_with(1));
        assert!(demand.is_err());
        let result = unproven.check(START, &ENDS, demand.err(), true, hash_with(1));
        assert_eq!(result, Ok(Proof::Cookie));
        // It has taken no token.
        assert_eq!(handled(&mut unproven, START, 1_000), UNPROVEN_BURST);
        let result = Unproven::new().check(START, &ENDS, None, false, hash_with(1));
        assert_eq!(result, Ok(Proof::None));
    }

    #[test]
    fn a_cookie_is_valid_until_the_end_of_the_next_period() {
        for (age, valid) in [
            (0, true),
            (COOKIE_PERIOD - 1, true),
            (COOKIE_PERIOD, true),
            (2 * COOKIE_PERIOD - 1, true),
            (2 * COOKIE_PERIOD, false),
            (3 * COOKIE_PERIOD, false),
        ] {
            let (_, cookie) = exhausted(START);
            let (mut unproven, _) = exhausted(START + age);
            let result = unproven.check(START + age, &ENDS, cookie, false, hash_with(1));
            assert_eq!(result.is_ok(), valid);
        }
        // Nor is the cookie of a period that has not begun.
        let (_, cookie) = exhausted(START);
        let (mut unproven, _) = exhausted(START - 1);
        let result = unproven.check(START - 1, &ENDS, cookie, false, hash_with(1));
        assert!(result.is_err());
        // The first period has none before it.
        let (mut unproven, cookie) = exhausted(0);
        assert_eq!(
            unproven.check(0, &ENDS, cookie, false, hash_with(1)),
            Ok(Proof::Cookie)
        );
    }

    #[test]
    fn a_cookie_is_of_no_use_to_others() {
        let (mut unproven, cookie) = exhausted(START);
        let at = |ip: Ipv4Addr, port| SockAddr::v4(ip, port);
        let ip = Ipv4Addr::new(192, 0, 2, 1);
        let v6 = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0xc000, 0x201);
        let Ok(v6) = SockAddr::v6(v6, 7471, 0) else {
            panic!("an address");
        };
        for (peer, port) in [
            (at(Ipv4Addr::new(192, 0, 2, 2), 7471), 7472),
            (at(ip, 7470), 7472),
            (at(ip, 7471), 7471),
            (at(ip, 7472), 7471),
            (v6, 7472),
        ] {
            let other = Ends { peer, port };
            assert!(unproven
                .check(START, &other, cookie, false, hash_with(1))
                .is_err());
        }
        // Another endpoint.
        assert!(unproven
            .check(START, &ENDS, cookie, false, hash_with(2))
            .is_err());
        // A wrong one.
        let wrong = cookie.and_then(|cookie| Cookie::new(cookie.get() ^ 1));
        assert!(unproven
            .check(START, &ENDS, wrong, false, hash_with(1))
            .is_err());
        // The cookie that is demanded now.
        let demand = unproven.check(START, &ENDS, wrong, false, hash_with(1));
        assert_eq!(demand.err(), cookie);
    }

    #[test]
    fn a_hash_of_0_is_a_cookie() {
        let mut unproven = Unproven::new();
        for _ in 0..UNPROVEN_BURST {
            assert_eq!(
                unproven.check(START, &ENDS, None, false, |_| 0),
                Ok(Proof::None)
            );
        }
        let cookie = unproven.check(START, &ENDS, None, false, |_| 0).err();
        assert_eq!(cookie, Cookie::new(1));
        assert_eq!(
            unproven.check(START, &ENDS, cookie, false, |_| 0),
            Ok(Proof::Cookie)
        );
    }
}
