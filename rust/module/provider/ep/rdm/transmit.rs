// SPDX-License-Identifier: GPL-2.0

//! The transmit side of an endpoint: its sends that wait at their peers.
//!
//! Most sends complete before the call returns and are never entered here. A send that waits takes
//! a place ([`TxSlot`]) in the order of posting. There are `tx_size` places, which outstanding
//! operations to other hosts use too. The spin lock is a leaf and is held for one look-up.

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::errno::Errno;

use super::{
    super::{
        bound::Bound,
        complete::Outcome,
        Endpoint, //
    },
    pending::WaitingSend,
    remote::op::Transmit, //
};
use crate::shim::sched::cond_resched;

struct Waiting {
    sends: RBTree<u64, Arc<WaitingSend>>,
    count: usize,
    last: u64,
}

/// A place for one waiting send.
#[must_use = "a place is used or given back"]
pub(in crate::provider::ep) struct TxSlot {
    /// Its number, in the order of posting.
    pub(in crate::provider::ep) number: u64,
    node: RBTreeNodeReservation<u64, Arc<WaitingSend>>,
}

/// The transmit side of an endpoint.
#[pin_data]
pub(in crate::provider::ep) struct TxSide {
    #[pin]
    waiting: SpinLock<Waiting>,
    size: usize,
}

impl TxSide {
    /// Makes a transmit side with room for `size` sends.
    pub(in crate::provider::ep) fn new(size: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_spinlock!(
                Waiting {
                    sends: RBTree::new(),
                    count: 0,
                    last: 0,
                },
                "TxSide::waiting"
            ),
            size,
        })
    }

    /// Bytes of `size` transmits, to this host or to others.
    pub(in crate::provider::ep) const fn bytes(size: usize) -> usize {
        let (here, there) = (size_of::<WaitingSend>(), Transmit::BYTES);
        size.saturating_mul(if here > there { here } else { there })
    }

    /// Takes the room of a transmit to another host, which is not entered here. Fails with `EAGAIN`
    /// if there is no room. Does not sleep.
    pub(in crate::provider::ep) fn take_room(&self) -> Result {
        let mut waiting = self.waiting.lock();
        if waiting.count >= self.size {
            return Err(EAGAIN);
        }
        waiting.count = waiting.count.wrapping_add(1);
        Ok(())
    }

    /// Returns the room of a transmit to another host. Does not sleep.
    pub(in crate::provider::ep) fn give_back_room(&self) {
        let mut waiting = self.waiting.lock();
        waiting.count = waiting.count.wrapping_sub(1);
    }

    /// Takes a place for a send that may have to wait. Fails with `EAGAIN` if no place is free,
    /// `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn reserve(&self) -> Result<TxSlot> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let number = {
            let mut waiting = self.waiting.lock();
            if waiting.count >= self.size {
                None
            } else {
                let number = waiting.last.wrapping_add(1);
                waiting.last = number;
                waiting.count = waiting.count.wrapping_add(1);
                Some(number)
            }
        };
        // Without a number the node is dropped here, outside the lock.
        let number = number.ok_or(EAGAIN)?;
        Ok(TxSlot { number, node })
    }

    /// Returns the place of a send that did not have to wait. Does not sleep.
    pub(in crate::provider::ep) fn unreserve(&self, _slot: TxSlot) {
        let mut waiting = self.waiting.lock();
        waiting.count = waiting.count.wrapping_sub(1);
    }

    /// Enters a send that waits at its peer already. Does not sleep.
    ///
    /// Its cargo may have been taken before; the caller checks that, and removes the send.
    pub(in crate::provider::ep) fn enter(&self, slot: TxSlot, send: Arc<WaitingSend>) {
        let node = slot.node.into_node(slot.number, send);
        self.waiting.lock().sends.insert(node);
    }

    /// Removes a send, if it is still there. Does not sleep.
    pub(in crate::provider::ep) fn remove(&self, number: u64) -> Option<Arc<WaitingSend>> {
        let node = {
            let mut waiting = self.waiting.lock();
            let node = waiting.sends.remove_node(&number)?;
            waiting.count = waiting.count.wrapping_sub(1);
            node
        };
        Some(node.to_key_value().1)
    }

    /// The oldest send for which `wanted` holds. Does not sleep.
    fn find(&self, wanted: impl Fn(&WaitingSend) -> bool) -> Option<Arc<WaitingSend>> {
        let waiting = self.waiting.lock();
        let found = waiting.sends.values().find(|send| wanted(send)).cloned();
        found
    }

    /// The number of outstanding sends. Does not sleep.
    pub(in crate::provider::ep) fn waiting(&self) -> u64 {
        self.waiting.lock().count as u64
    }

    /// Whether a send waits at `target`. Does not sleep.
    pub(in crate::provider::ep) fn waits_at(&self, target: &Arc<Endpoint>) -> bool {
        self.find(|send| Arc::ptr_eq(&send.target, target))
            .is_some()
    }
}

impl Endpoint {
    /// Completes a waiting send of this endpoint with an error. Returns `false` if its cargo was
    /// taken before. Sleeps.
    pub(in crate::provider::ep) fn end_send(
        &self,
        bound: &Bound,
        send: &Arc<WaitingSend>,
        error: Errno,
    ) -> bool {
        self.tx.remove(send.number);
        let Some(cargo) = send.take() else {
            return false;
        };
        send.target.forget(send);
        self.complete(bound, cargo.into_ticket(), Outcome::failed(error));
        true
    }

    /// Cancels the oldest waiting send with `context`. Returns `false` if there is none. Sleeps.
    pub(in crate::provider::ep) fn cancel_send(&self, bound: &Bound, context: u64) -> bool {
        while let Some(send) = self.tx.find(|send| send.context == context) {
            // If its cargo was just taken, there may be another send with the same context.
            if self.end_send(bound, &send, Errno::ECANCELED) {
                return true;
            }
        }
        false
    }

    /// For teardown: removes all waiting sends without completions and gives back their tickets. No
    /// posting call is inside. A send whose bytes a peer is copying is completed by the peer.
    /// Sleeps.
    pub(in crate::provider::ep) fn take_back_sends(&self, bound: &Bound) {
        while let Some(send) = self.tx.find(|_| true) {
            self.tx.remove(send.number);
            if let Some(cargo) = send.take() {
                send.target.forget(&send);
                self.give_back(bound, cargo.ticket);
            }
            cond_resched();
        }
    }

    /// Fails all waiting sends because the link was removed. Sleeps.
    pub(in crate::provider::ep) fn fail_sends(&self) {
        let Some(_inside) = self.run.enter() else {
            return;
        };
        let Some(bound) = self.bound.as_ref() else {
            return;
        };
        while let Some(send) = self.tx.find(|_| true) {
            self.end_send(bound, &send, Errno::ENODEV);
            cond_resched();
        }
    }
}
