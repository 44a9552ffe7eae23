// SPDX-License-Identifier: GPL-2.0

//! The transmit side of an endpoint: its sends that wait at their peers.
//!
//! Most sends complete before the call returns and are never entered here. A send that waits takes
//! a slot ([`TxSlot`]) in the order of posting. There are `tx_size` slots, which outstanding
//! operations to other hosts use too. The spin lock is held for one look-up; the lock of a waiting
//! send is taken under it.
//!
//! A waiting send is in the sender's transmit side and in the peer's queue of unexpected messages.
//! Both refer to the same [`WaitingSend`]. The first party that takes its [`PendingOp`] ends the
//! operation. Parties that come later find none and do nothing:
//!
//! | party | effect |
//! |---|---|
//! | the peer's receive | copies the bytes, completes both sides |
//! | `kfi_cancel` | completes the send with ECANCELED |
//! | the peer's close | completes the send with EHOSTUNREACH |
//! | the sender's close | gives the ticket back, no completion |
//!
//! A send stays entered until the party that has taken it has copied the bytes: an operation with
//! KFI_FENCE must not begin before.

#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/fence.rs"]
mod kunit;

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use super::{
    super::prelude::*,
    remote::op::Transmit, //
};
use crate::provider::stx::Stx;

struct WaitingSends {
    sends: RBTree<u64, Arc<WaitingSend>>,
    count: usize,
    last: u64,
}

/// A slot for one waiting send.
#[must_use = "a slot is used or given back"]
pub(in crate::provider::ep) struct TxSlot {
    /// Its number, in the order of posting.
    pub(in crate::provider::ep) number: u64,
    node: RBTreeNodeReservation<u64, Arc<WaitingSend>>,
}

/// The transmit side of an endpoint.
#[pin_data]
pub(in crate::provider::ep) struct TxSide {
    #[pin]
    waiting: SpinLock<WaitingSends>,
    size: usize,
    /// The shared transmit context, set when it is bound.
    pub(in crate::provider::ep) stx: SetOnce<UseRef<Stx>>,
}

impl TxSide {
    /// Makes a transmit side with room for `size` sends.
    pub(in crate::provider::ep) fn new(size: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_spinlock!(
                WaitingSends {
                    sends: RBTree::new(),
                    count: 0,
                    last: 0,
                },
                "TxSide::waiting"
            ),
            size,
            stx: SetOnce::new(),
        })
    }

    /// Takes room in the shared transmit context, if there is one. Fails with `EAGAIN` if it has
    /// none. Any context.
    #[inline]
    pub(in crate::provider::ep) fn take_shared(&self) -> Result {
        self.stx.as_ref().map_or(Ok(()), |stx| stx.take())
    }

    /// Returns the room of [`take_shared`](Self::take_shared). Any context.
    #[inline]
    pub(in crate::provider::ep) fn give_back_shared(&self) {
        if let Some(stx) = self.stx.as_ref() {
            stx.give_back();
        }
    }

    /// Bytes of `size` transmits, to this host or to others.
    pub(in crate::provider::ep) const fn bytes(size: usize) -> usize {
        let (here, there) = (size_of::<WaitingSend>(), Transmit::BYTES);
        size.saturating_mul(if here > there { here } else { there })
    }

    /// Takes the room of a transmit to another host, which is not entered here. Fails with `EAGAIN`
    /// if there is no room, here or in the shared transmit context. Does not sleep.
    pub(in crate::provider::ep) fn take_room(&self) -> Result {
        let mut waiting = self.waiting.lock();
        if waiting.count >= self.size {
            return Err(EAGAIN);
        }
        self.take_shared()?;
        waiting.count = waiting.count.wrapping_add(1);
        Ok(())
    }

    /// Returns the room of a transmit to another host. Does not sleep.
    pub(in crate::provider::ep) fn give_back_room(&self) {
        self.free(&mut self.waiting.lock());
    }

    /// Frees the room of one transmit. Does not sleep.
    fn free(&self, waiting: &mut WaitingSends) {
        waiting.count = waiting.count.wrapping_sub(1);
        self.give_back_shared();
    }

    /// Takes a slot for a send that may have to wait. Fails with `EAGAIN` if no slot is free,
    /// `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn reserve(&self) -> Result<TxSlot> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let number = {
            let mut waiting = self.waiting.lock();
            if waiting.count >= self.size || self.take_shared().is_err() {
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

    /// Returns the slot of a send that did not have to wait. Does not sleep.
    pub(in crate::provider::ep) fn unreserve(&self, _slot: TxSlot) {
        self.give_back_room();
    }

    /// Enters a send that waits at its peer already, unless the peer has ended it and
    /// [released](Self::release) its room. Returns whether it was entered. Does not sleep.
    pub(in crate::provider::ep) fn enter(&self, slot: TxSlot, send: &Arc<WaitingSend>) -> bool {
        let node = slot.node.into_node(slot.number, send.clone());
        let mut waiting = self.waiting.lock();
        if send.is_released.load(Relaxed) {
            // The node is dropped outside the lock.
            drop(waiting);
            return false;
        }
        waiting.sends.insert(node);
        true
    }

    /// Frees the room of a send, and removes it if it was entered. Without effect on a send that
    /// was released before. Does not sleep.
    fn release(&self, send: &WaitingSend) {
        let node = {
            let mut waiting = self.waiting.lock();
            if send.is_released.load(Relaxed) {
                return;
            }
            send.is_released.store(true, Relaxed);
            self.free(&mut waiting);
            waiting.sends.remove_node(&send.number)
        };
        // Outside the lock.
        drop(node);
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

    /// Whether a send waits at `target`, or is being copied there. Does not sleep.
    pub(in crate::provider::ep) fn waits_at(&self, target: &Arc<Endpoint>) -> bool {
        self.find(|send| Arc::ptr_eq(&send.target, target))
            .is_some()
    }
}

impl Endpoint {
    /// Completes a waiting send of this endpoint with an error. Returns `false` if the pending
    /// operation was taken before; the party that has taken it removes the send. Sleeps.
    pub(in crate::provider::ep) fn end_send(
        &self,
        bound: &Bound,
        send: &Arc<WaitingSend>,
        error: Errno,
    ) -> bool {
        let Some(pending) = send.take() else {
            return false;
        };
        self.tx.release(send);
        send.target.remove_unexpected(send);
        self.complete(bound, pending.into_ticket(), Outcome::failed(error));
        true
    }

    /// Cancels the oldest waiting send with `context`. Returns `false` if there is none. Sleeps.
    pub(in crate::provider::ep) fn cancel_send(&self, bound: &Bound, context: u64) -> bool {
        let wanted = |send: &WaitingSend| send.context == context && send.is_waiting();
        while let Some(send) = self.tx.find(wanted) {
            // If it was just taken, there may be another send with the same context.
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
            self.tx.release(&send);
            if let Some(pending) = send.take() {
                send.target.remove_unexpected(&send);
                self.give_back(bound, pending.ticket);
            }
            cond_resched();
        }
    }

    /// Fails all waiting sends because the link was removed. Sleeps.
    pub(in crate::provider::ep) fn fail_sends(&self) {
        let Some((_inside, bound)) = self.enter() else {
            return;
        };
        while let Some(send) = self.tx.find(WaitingSend::is_waiting) {
            self.end_send(bound, &send, Errno::ENODEV);
            cond_resched();
        }
    }
}

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
    pending: SpinLock<Option<PendingOp>>,
    /// Whether its room is free again. Changes under the lock of the sender's transmit side.
    is_released: Atomic<bool>,
}

impl WaitingSend {
    /// Makes a waiting send. Fails with `ENOMEM` and the pending operation. Sleeps.
    pub(in crate::provider::ep) fn new(
        sender: &Arc<Endpoint>,
        target: &Arc<Endpoint>,
        context: u64,
        number: u64,
        pending: PendingOp,
    ) -> core::result::Result<Arc<Self>, (Error, PendingOp)> {
        // The pending operation must be returned if there is no memory, so it is stored after the
        // allocation.
        let made = Arc::pin_init(
            pin_init!(Self {
                sender: sender.clone(),
                target: target.clone(),
                context,
                number,
                pending <- new_spinlock!(None, "WaitingSend::pending"),
                is_released: Atomic::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        );
        match made {
            Ok(waiting) => {
                *waiting.pending.lock() = Some(pending);
                Ok(waiting)
            }
            Err(e) => Err((e, pending)),
        }
    }

    /// Takes the pending operation, unless another party has taken it. Does not sleep.
    pub(in crate::provider::ep) fn take(&self) -> Option<PendingOp> {
        self.pending.lock().take()
    }

    /// Whether the pending operation is still there. Does not sleep.
    pub(in crate::provider::ep) fn is_waiting(&self) -> bool {
        self.pending.lock().is_some()
    }

    /// Delivers the message: `put` places its bytes, then the send completes. Returns `false`
    /// without calling `put` if another party has taken the pending operation. Called by the
    /// target. Sleeps.
    pub(in crate::provider::ep) fn deliver(&self, put: impl FnOnce(&Source<'_>)) -> bool {
        self.end(|sender, bound, pending| {
            put(&Source::Mem(pending.from));
            self.leave();
            sender.complete_transmit(bound, pending.ticket);
        })
    }

    /// Fails the send. Called by the target. Sleeps.
    pub(in crate::provider::ep) fn fail(&self, error: Errno) {
        self.end(|sender, bound, pending| {
            self.leave();
            sender.complete(bound, pending.into_ticket(), Outcome::failed(error));
        });
    }

    /// Takes the pending operation for the target and calls `end` with it, unless another party has
    /// taken it. A sender that is closing takes its pending operation itself.
    fn end(&self, end: impl FnOnce(&Endpoint, &Bound, PendingOp)) -> bool {
        let Some((_inside, bound)) = self.sender.enter() else {
            return false;
        };
        let Some(pending) = self.take() else {
            return false;
        };
        end(&self.sender, bound, pending);
        true
    }

    /// Leaves the transmit side of its sender. Called by the target between the copy and the
    /// completion: a program that sees the completion finds the slot free. Does not sleep.
    fn leave(&self) {
        self.sender.tx.release(self);
    }
}
