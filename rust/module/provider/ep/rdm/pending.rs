// SPDX-License-Identifier: GPL-2.0

//! A message that waits at its peer for a receive.
//!
//! If no receive matches a small message, it is copied into a buffer at the peer, and its send
//! completes. A large message, or one with KFI_DELIVERY_COMPLETE, stays with its sender: it is in
//! the sender's transmit queue and in the peer's queue of unexpected messages. Both refer to the
//! same [`WaitingSend`]. The first party that takes its [`PendingOp`] ends the operation:
//!
//! ```text
//!   the peer's receive     takes the cargo   copies it, completes both sides
//!   kfi_cancel             takes the cargo   completes the send with ECANCELED
//!   the peer closes        takes the cargo   completes the send with EHOSTUNREACH
//!   the sender closes      takes the cargo   gives the ticket back, no completion
//! ```
//!
//! Parties that come later find no cargo and do nothing. The lock around the cargo is a leaf.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::errno::Errno;

use super::super::{
    complete::{
        Outcome,
        Ticket, //
    },
    Bound,
    Endpoint, //
};
use crate::mem::{
    MemRef,
    Source, //
};

/// The memory and the ticket of a waiting send. Exactly one party takes them.
pub(in crate::provider::ep) struct PendingOp {
    /// The bytes.
    pub(in crate::provider::ep) from: MemRef,
    /// The sender's ticket.
    pub(in crate::provider::ep) ticket: Ticket,
}

impl PendingOp {
    /// Releases the memory and returns the ticket to be completed. The memory goes first because
    /// the sender may be at its limit of pinned memory. Sleeps.
    pub(in crate::provider::ep) fn into_ticket(self) -> Ticket {
        drop(self.from);
        self.ticket
    }
}

/// A send that waits at its peer.
#[pin_data]
pub(in crate::provider::ep) struct WaitingSend {
    /// The sending endpoint.
    pub(in crate::provider::ep) sender: Arc<Endpoint>,
    /// The peer at which it waits.
    pub(in crate::provider::ep) target: Arc<Endpoint>,
    /// The context of the operation, for cancelling.
    pub(in crate::provider::ep) context: u64,
    /// Its number in the sender's transmit side.
    pub(in crate::provider::ep) number: u64,
    #[pin]
    cargo: SpinLock<Option<PendingOp>>,
}

impl WaitingSend {
    /// Makes a waiting send. Fails with `ENOMEM` and the cargo. Sleeps.
    pub(in crate::provider::ep) fn new(
        sender: &Arc<Endpoint>,
        target: &Arc<Endpoint>,
        context: u64,
        number: u64,
        cargo: PendingOp,
    ) -> core::result::Result<Arc<Self>, (Error, PendingOp)> {
        // The cargo must be returned if there is no memory, so it is stored after the allocation.
        let made = Arc::pin_init(
            pin_init!(Self {
                sender: sender.clone(),
                target: target.clone(),
                context,
                number,
                cargo <- new_spinlock!(None, "WaitingSend::cargo"),
            }),
            GFP_KERNEL_ACCOUNT,
        );
        match made {
            Ok(waiting) => {
                *waiting.cargo.lock() = Some(cargo);
                Ok(waiting)
            }
            Err(e) => Err((e, cargo)),
        }
    }

    /// Takes the cargo, unless another party has taken it. Does not sleep.
    pub(in crate::provider::ep) fn take(&self) -> Option<PendingOp> {
        self.cargo.lock().take()
    }

    /// Whether the cargo is still there. Does not sleep.
    pub(in crate::provider::ep) fn is_waiting(&self) -> bool {
        self.cargo.lock().is_some()
    }

    /// Delivers the message: `put` places its bytes, then the send completes. Returns `false`
    /// without calling `put` if another party has taken the cargo. Called by the target. Sleeps.
    pub(in crate::provider::ep) fn deliver(&self, put: impl FnOnce(&Source<'_>)) -> bool {
        self.end(|sender, bound, cargo| {
            put(&Source::Mem(cargo.from));
            sender.complete_transmit(bound, cargo.ticket);
        })
    }

    /// Fails the send. Called by the target. Sleeps.
    pub(in crate::provider::ep) fn fail(&self, error: Errno) {
        self.end(|sender, bound, cargo| {
            sender.complete(bound, cargo.into_ticket(), Outcome::failed(error));
        });
    }

    /// Takes the cargo for the target and calls `end` with it, unless another party has taken it. A
    /// sender that is closing takes its cargo itself.
    fn end(&self, end: impl FnOnce(&Endpoint, &Bound, PendingOp)) -> bool {
        let (Some(_inside), Some(bound)) = (self.sender.run.enter(), self.sender.bound.as_ref())
        else {
            return false;
        };
        let Some(cargo) = self.take() else {
            return false;
        };
        // Before the completion: a program that sees the completion finds the place free.
        self.sender.tx.remove(self.number);
        end(&self.sender, bound, cargo);
        true
    }
}
