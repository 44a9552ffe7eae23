// SPDX-License-Identifier: GPL-2.0

//! Decides which connection requests of peers an endpoint handles. Their source addresses may be
//! forged: see [`kfi_core::rdm::unproven`].

use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

use kfi_core::rdm::{
    hello::Refusal,
    unproven::{
        Ends,
        Proof, //
    },
    Cookie,
    Unproven, //
};

use crate::{
    net::cm::Source,
    shim::random::SipKey, //
};

/// The requests without a valid cookie, and the key of the cookies.
#[pin_data]
pub(super) struct Gate {
    key: SipKey,
    /// A leaf.
    #[pin]
    unproven: SpinLock<Unproven>,
}

impl Gate {
    /// Makes the gate of a new endpoint, with a random key.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            key: SipKey::random(),
            unproven <- new_spinlock!(Unproven::new(), "Gate::unproven"),
        })
    }

    /// Decides whether a request is handled at time `now` in ns; with `must_prove` only with a valid
    /// cookie. The error is the refusal if it is not: the peer must repeat the request with a
    /// cookie. Does not sleep.
    pub(super) fn admit(
        &self,
        now: u64,
        ends: &Ends,
        cookie: Option<Cookie>,
        must_prove: bool,
    ) -> core::result::Result<Source, Refusal> {
        let hash = |words: [u64; 4]| self.key.hash(&words);
        let mut unproven = self.unproven.lock();
        match unproven.admit(now, ends, cookie, must_prove, hash) {
            Ok(Proof::Cookie) => Ok(Source::Proven),
            Ok(Proof::None) => Ok(Source::Unproven),
            Err(demand) => Err(Refusal::Retry(demand)),
        }
    }
}
