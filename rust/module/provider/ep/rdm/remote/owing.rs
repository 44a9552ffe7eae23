// SPDX-License-Identifier: GPL-2.0

//! The count of the answers that a session owes to its peer.
//!
//! An answer takes memory from the first packet of the message, or of the CANCEL, until the peer
//! has acknowledged the FIN. The peer decides when that is. So each answer holds a [`Share`] for
//! that time. It is counted, and the core limits the count
//! ([`ANSWERS`](kfi_core::rdm::times::ANSWERS)). It is charged to the owner of the endpoint, in the
//! part of the limit that peers can use. The answer to a CANCEL is charged even above the limit,
//! because a CANCEL cannot be sent again later like a message, and everything else would wait
//! behind it. A peer has at most [`CANCELS_MAX`](kfi_core::rdm::times::CANCELS_MAX) of them in addition.
//!
//! The count is atomic because it is read under the lock of a QP's responder, where the lock of the
//! session cannot be taken. The responder of one QP adds at a time, or of two while one connection
//! replaces another.

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

/// The count of a session's answers. See the module documentation.
pub(super) struct Owing(Arc<Atomic<u32>>);

/// The count and the charge of an answer, for its lifetime.
pub(super) struct Share {
    count: Arc<Atomic<u32>>,
    _memory: Allowance,
    _of_peers: Option<PartAllowance>,
}

impl Owing {
    /// Makes a count of 0. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?))
    }

    /// The number of answers. Any context.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Counts and charges the answer to a message. Fails with `ENOMEM` above the owner's limit.
    /// Does not sleep.
    pub(super) fn share(&self, budget: &Budget, bytes: usize) -> Result<Share> {
        let bytes = bytes as u64;
        let of_peers = budget.take_part(Part::Peers, bytes)?;
        Ok(self.count_share(budget.take(bytes)?, Some(of_peers)))
    }

    /// Counts and charges the answer to a CANCEL. Does not sleep.
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
