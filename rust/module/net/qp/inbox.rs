// SPDX-License-Identifier: GPL-2.0

//! The inbox of a QP: packets that wait for a turn, bounded, and charged to the QP's owner.
//!
//! Each inbox has a limit of its own, in packets and in bytes of memory (`truesize`). Besides, what waits
//! for all QPs of a user is charged to the user's account, and takes at most a part of its limit
//! ([`Part::Inboxes`](crate::mem::Part)). A packet beyond either is dropped, and counted by the cause; RC
//! sends it again.
//!
//! # The charge
//!
//! [`RESERVE`] bytes of each inbox are charged with the QP, by whoever opens the endpoint or makes the
//! connection that it is for ([`Qp::BYTES`](super::Qp), `Qp::bytes`). Packets beyond these are charged when
//! they wait, [`LOAN`] bytes at once, and given back when they are taken. To charge the largest inbox with each
//! QP would need no atomics, but then 64 idle connections would use up the limit of a user. The reserve
//! keeps a QP going while the other QPs of its owner have taken all of the part.
//!
//! # Its cost
//!
//! A packet that finds room takes the lock of its inbox, which it needs anyway, and touches nothing of the
//! account. The reserve always has room if one packet waits at a time. Beyond it one packet in a loan takes
//! the lock twice and does two atomic operations on the owner's account, and two more for each user
//! namespace between the owner's and the first one. A packet of a path MTU of 4096 bytes takes some 8 KiB, so
//! that is one packet in eight; of small packets it is one in eighty. A turn gives all loans of the packets
//! that it takes back with two atomic operations. The charge exceeds the memory of the packets by less than
//! a loan for each CPU that receives packets for the QP.
//!
//! Packets that a turn has taken are not charged any more: they are at most `BUDGET`, and are dealt with at
//! once.
//!
//! The QP of connection management has no owner. Its inbox has the limit of its own alone.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/inbox.rs"]
mod kunit;

use super::super::stats::Figure;
use crate::{
    mem::Budget,
    shim::skb::{
        Inbox,
        InboxLimits,
        NoRoom,
        RxBatch,
        RxSkb, //
    }, //
};
use kernel::prelude::*;

/// Bytes of memory that packets in an inbox may take without being charged: the QP was. Two packets of the
/// largest path MTU, or some twenty small ones.
pub(super) const RESERVE: u32 = 16 << 10;

/// Bytes that are charged at once for packets beyond the reserve; more for a packet that takes more.
const LOAN: u32 = 64 << 10;

/// See the module's story.
#[pin_data(PinnedDrop)]
pub(super) struct QpInbox {
    /// The budget that is charged; none for connection management.
    owner: Option<Budget>,
    limits: InboxLimits,
    #[pin]
    packets: Inbox,
}

impl QpInbox {
    /// An empty one of a QP of `owner`, who has been charged the [`RESERVE`]; or of nobody's.
    pub(super) fn new(owner: Option<&Budget>, limits: InboxLimits) -> impl PinInit<Self> {
        let owner = owner.cloned();
        // Without an owner, the limits alone bound the room.
        let reserve = owner.as_ref().map_or(u32::MAX, |_| RESERVE);
        pin_init!(Self {
            owner,
            limits,
            packets <- Inbox::new(reserve),
        })
    }

    /// Has `skb` wait. Whether it is the first, so that nobody knows yet that something waits; or why it
    /// does not. Softirq or process context.
    pub(super) fn push(&self, skb: RxSkb) -> Result<bool, (Figure, RxSkb)> {
        let (why, skb) = match self.packets.push(skb, self.limits, 0) {
            Ok(first) => return Ok(first),
            Err(refused) => refused,
        };
        match (why, &self.owner) {
            (NoRoom::Room, Some(owner)) => self.push_with_loan(owner, skb),
            (why, _) => Err((cause(why), skb)),
        }
    }

    /// The same, with room for it that `owner` is charged.
    #[cold]
    fn push_with_loan(&self, owner: &Budget, skb: RxSkb) -> Result<bool, (Figure, RxSkb)> {
        let loan = skb.truesize().max(LOAN);
        if owner.charge_inbox(loan.into()).is_err() {
            return Err((Figure::DropBudget, skb));
        }
        self.packets
            .push(skb, self.limits, loan)
            .map_err(|(why, skb)| {
                owner.uncharge_inbox(loan.into());
                (cause(why), skb)
            })
    }

    /// Takes those that wait, the first `max` of them. Process context.
    pub(super) fn take(&self, max: u32) -> RxBatch {
        let (batch, surplus) = self.packets.take(max);
        self.give_back(surplus);
        batch
    }

    /// Whether none waits, at some moment of the call. Any context.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Lets no packet wait any more, and takes those that do. Process context.
    pub(super) fn close(&self) -> RxBatch {
        let (batch, surplus) = self.packets.close();
        self.give_back(surplus);
        batch
    }

    fn give_back(&self, bytes: u32) {
        if let (1.., Some(owner)) = (bytes, &self.owner) {
            owner.uncharge_inbox(bytes.into());
        }
    }
}

/// What a packet is counted as that cannot wait.
fn cause(why: NoRoom) -> Figure {
    match why {
        NoRoom::Full => Figure::DropInboxFull,
        NoRoom::Room => Figure::DropBudget,
        NoRoom::Closed => Figure::DropState,
    }
}

#[pinned_drop]
impl PinnedDrop for QpInbox {
    fn drop(self: Pin<&mut Self>) {
        drop(self.close());
    }
}
