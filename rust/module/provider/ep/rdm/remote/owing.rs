// SPDX-License-Identifier: GPL-2.0

//! How many answers a session owes to its peer.
//!
//! An answer takes memory from the first packet of the message, or of the CANCEL, until the peer has
//! acknowledged the FIN, and the peer decides when that is. So each holds a [`Share`] for that time: it
//! is counted, which the core limits ([`ANSWERS`](kfi_core::rdm::times::ANSWERS)), and charged to
//! the owner of the endpoint, in the part of the limit that peers can take. A CANCEL is charged whatever
//! the limit: it cannot step aside, and everything else would wait behind it. A peer has at most
//! [`RECALLS`](kfi_core::rdm::times::RECALLS) of them beyond the others.
//!
//! The count is atomic, because it is read under the lock of a QP's responder, below which the lock of
//! the session cannot be taken. One QP's responder adds at a time, or two for the moment in which one
//! connection takes the place of another.

#[cfg(kfi_kunit)]
#[path = "../../../../../../kunit/owing.rs"]
mod kunit;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::mem::{
    Allowance,
    Budget,
    Part,
    PartAllowance, //
};

/// How many answers a session owes. See the module documentation.
pub(super) struct Owing(Arc<Atomic<u32>>);

/// What an answer holds from when it is owed until it is gone.
pub(super) struct Share {
    count: Arc<Atomic<u32>>,
    _memory: Allowance,
    _of_peers: Option<PartAllowance>,
}

impl Owing {
    /// Nothing is owed. `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?))
    }

    /// How many answers are owed. Any context.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// One more is owed for a message, which takes so many bytes. `ENOMEM`: more than the owner may have.
    /// Does not sleep.
    pub(super) fn share(&self, budget: &Budget, bytes: usize) -> Result<Share> {
        let bytes = bytes as u64;
        let of_peers = budget.take_part(Part::Peers, bytes)?;
        Ok(self.count_share(budget.take(bytes)?, Some(of_peers)))
    }

    /// One more is owed for a CANCEL, which takes so many bytes. Does not sleep.
    pub(super) fn share_of_cancel(&self, budget: &Budget, bytes: usize) -> Share {
        self.count_share(budget.take_anyway(bytes as u64), None)
    }

    fn count_share(&self, memory: Allowance, of_peers: Option<PartAllowance>) -> Share {
        self.0.fetch_add(1, Relaxed);
        Share {
            count: self.0.clone(),
            _memory: memory,
            _of_peers: of_peers,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}
