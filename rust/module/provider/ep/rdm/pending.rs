// SPDX-License-Identifier: GPL-2.0

//! A message that waits at its peer for a receive.
//!
//! A small message that nobody waits for is copied into a buffer at the peer and its send is done.
//! A large one, or one whose sender wants to know of its delivery, stays where it is: the sender
//! keeps it in its transmit queue, and the peer has it in its queue of unexpected messages. Both
//! hold the same [`WaitingSend`], and whoever first takes its [`Cargo`] out decides its fate:
//!
//! ```text
//!   the peer's receive     takes the cargo   copies it, completes both sides
//!   kfi_cancel             takes the cargo   completes the send with ECANCELED
//!   the peer closes        takes the cargo   completes the send with EHOSTUNREACH
//!   the sender closes      takes the cargo   gives the ticket back, no completion
//! ```
//!
//! Those who come later find nothing and go on. The lock around the cargo is a leaf.

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

/// What exactly one party may have.
pub(in crate::provider::ep) struct Cargo {
    /// The bytes.
    pub(in crate::provider::ep) from: MemRef,
    /// The sender's right to a completion.
    pub(in crate::provider::ep) ticket: Ticket,
}

impl Cargo {
    /// Lets go of the bytes, which may be all that the sender can pin, and gives what is completed
    /// then. Sleeps.
    pub(in crate::provider::ep) fn into_ticket(self) -> Ticket {
        drop(self.from);
        self.ticket
    }
}

/// See the module's story.
#[pin_data]
pub(in crate::provider::ep) struct WaitingSend {
    /// Who sent it.
    pub(in crate::provider::ep) sender: Arc<Endpoint>,
    /// Where it waits.
    pub(in crate::provider::ep) target: Arc<Endpoint>,
    /// The context of the operation, for cancelling.
    pub(in crate::provider::ep) context: u64,
    /// Its place in the sender's transmit side.
    pub(in crate::provider::ep) number: u64,
    #[pin]
    cargo: SpinLock<Option<Cargo>>,
}

impl WaitingSend {
    /// Makes one. `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn new(
        sender: &Arc<Endpoint>,
        target: &Arc<Endpoint>,
        context: u64,
        number: u64,
        cargo: Cargo,
    ) -> core::result::Result<Arc<Self>, (Error, Cargo)> {
        // The cargo must come back if there is no memory, so it moves in after the allocation.
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

    /// Takes the cargo, if nobody has. Does not sleep.
    pub(in crate::provider::ep) fn take(&self) -> Option<Cargo> {
        self.cargo.lock().take()
    }

    /// Whether the cargo is still there. Does not sleep.
    pub(in crate::provider::ep) fn is_waiting(&self) -> bool {
        self.cargo.lock().is_some()
    }

    /// Delivers the message: `put` places its bytes, then the send completes. `false`, without
    /// calling `put`, if its fate was decided otherwise. Called by the target. Sleeps.
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

    /// Decides the send's fate for the target, unless it has been decided. A sender that is closing
    /// takes its cargo itself.
    fn end(&self, end: impl FnOnce(&Endpoint, &Bound, Cargo)) -> bool {
        let (Some(_inside), Some(bound)) = (self.sender.run.enter(), self.sender.bound.as_ref())
        else {
            return false;
        };
        let Some(cargo) = self.take() else {
            return false;
        };
        // Before the completion, so that whoever sees that finds the place free.
        self.sender.tx.remove(self.number);
        end(&self.sender, bound, cargo);
        true
    }
}
