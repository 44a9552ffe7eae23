// SPDX-License-Identifier: GPL-2.0

//! Shared transmit context: a limit of outstanding transmits that several endpoints share.
//!
//! Source: fi_endpoint(3), "Shared contexts". Operations are posted to the endpoints, and complete
//! in the CQs and counters of the endpoints. What the endpoints share is room for `size`
//! outstanding transmits. A transmit takes room when it is posted, in addition to room among the
//! `tx_size` of its endpoint, and returns it when it completes. A transmit that ends within its
//! call takes none. Without room, posting gives `EAGAIN`.
//!
//! A started operation that finds no room is tried again when an operation of its own endpoint
//! completes, and by the timer of the endpoint (`ep/submit/`). Nothing tells it that an operation
//! of another endpoint has returned room.
//!
//! The room is one word that is changed atomically. Functions can be called in any context, unless
//! they say otherwise.

use kfi_core::{
    flags::Caps,
    word::Word, //
};

use super::prelude::*;
use crate::shim::word::AtomicWord;

/// A shared transmit context.
pub(crate) struct Stx {
    domain: UseRef<Domain>,
    uses: UseCount,
    caps: Caps,
    size: u64,
    used: AtomicWord,
    _memory: Allowance,
}

impl Stx {
    /// Opens a context with room for `size` transmits of endpoints whose transmit capabilities are
    /// in `caps`. Fails with `EBADF` if the domain is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(
        domain: &Arc<Domain>,
        caps: Caps,
        size: u64,
        ident: &Ident,
    ) -> Result<Arc<Self>> {
        let memory = ident.budget.take_for::<Self>(0)?;
        let stx = Self {
            domain: UseRef::new(domain.clone())?,
            uses: UseCount::new(),
            caps,
            size,
            used: AtomicWord::new(0),
            _memory: memory,
        };
        Ok(Arc::new(stx, GFP_KERNEL_ACCOUNT)?)
    }

    /// Its domain.
    pub(super) fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    /// The transmit capabilities that its endpoints may have.
    pub(super) fn caps(&self) -> Caps {
        self.caps
    }

    /// Takes room for a transmit. Fails with `EAGAIN` if there is none.
    pub(super) fn take(&self) -> Result {
        let mut seen = self.used.load();
        loop {
            if seen >= self.size {
                return Err(EAGAIN);
            }
            match self.used.compare_exchange(seen, seen.wrapping_add(1)) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Returns the room of a transmit.
    pub(super) fn give_back(&self) {
        self.used.fetch_add(u64::MAX);
    }
}

impl Object for Stx {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.domain.release();
    }
}
