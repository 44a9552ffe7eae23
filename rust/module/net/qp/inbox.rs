// SPDX-License-Identifier: GPL-2.0

//! The inbox of a QP: received packets that wait for a run of the QP.
//!
//! Each inbox has a limit in packets and one in bytes of memory (`truesize`). In addition, the
//! packets in the inboxes of all QPs of a user are charged to the user's account, and use at most a
//! part of its limit ([`Part::Inboxes`](crate::mem::Part)). A packet that exceeds one of these is
//! dropped, and counted by the cause; RC sends it again.
//!
//! # The charge
//!
//! [`RESERVE`] bytes of each inbox are charged together with the QP, when the endpoint is opened or
//! the connection is created ([`Qp::BYTES`](super::Qp), `Qp::bytes`). Memory beyond the reserve is
//! charged while packets wait, in loans: a loan is [`LOAN`] bytes that are charged to the account
//! in advance. What the remaining packets do not need is returned when packets are taken. Charging
//! the largest inbox (4 MiB) with each QP would need no atomic operations, but then 64 idle
//! connections would use up the limit of a user (256 MiB). With the reserve a QP continues to work
//! when the other QPs of its owner have used up the part. A packet that alone uses more than the
//! reserve (for example from a NIC with receive buffers of 64 KiB) needs a loan then.
//!
//! An inbox that has borrowed some bytes gets another loan only if as many bytes of the part stay
//! free. So N flooded inboxes leave one share in N + 1 to all others, and a peer that keeps one QP
//! from taking its packets does not use up the shares of the others.
//!
//! # Cost
//!
//! A packet that finds room takes the lock of its inbox, which it needs anyway, and does not access
//! the account. The reserve has room if one packet waits at a time, with buffers of up to 20 KiB.
//! Beyond the reserve, the packet that needs a loan takes the lock twice and performs two atomic
//! operations on the owner's account, and two more for each user namespace between the owner's and
//! the initial one. A packet of a path MTU of 4096 bytes uses about 8 KiB, so one packet in eight
//! needs a loan; of small packets one in eighty does. A run returns the loans of all packets that
//! it takes with two atomic operations for each of these accounts. The charge exceeds the memory of
//! the packets by less than a loan for each CPU that receives packets for the QP.
//!
//! Packets that a run has taken are no longer charged: there are at most `BUDGET` of them, and the
//! run processes them at once.
//!
//! The QP of connection management has no owner. Only the limits of its own inbox bound it.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/inbox.rs"]
mod kunit;

use super::super::stats::Stat;
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

/// Bytes of memory for packets in an inbox that are charged with the QP. Two packets of the largest
/// path MTU fit, or about twenty small ones.
pub(super) const RESERVE: u32 = 20 << 10;

/// Bytes of a loan: memory that is charged in advance for packets beyond the reserve. A packet that
/// uses more gets a loan of its `truesize`.
const LOAN: u32 = 64 << 10;

/// The inbox of a QP, see the documentation of this module.
#[pin_data(PinnedDrop)]
pub(super) struct QpInbox {
    /// The budget that is charged; `None` for connection management.
    owner: Option<Budget>,
    limits: InboxLimits,
    #[pin]
    packets: Inbox,
}

impl QpInbox {
    /// An empty inbox of a QP of `owner`, which has been charged the [`RESERVE`]; or of a QP
    /// without an owner.
    pub(super) fn new(owner: Option<&Budget>, limits: InboxLimits) -> impl PinInit<Self> {
        let owner = owner.cloned();
        // Without an owner, only the limits bound the room.
        let reserve = owner.as_ref().map_or(u32::MAX, |_| RESERVE);
        pin_init!(Self {
            owner,
            limits,
            packets <- Inbox::new(reserve),
        })
    }

    /// Appends `skb`. Returns whether it is the first packet, so that the QP must be scheduled.
    /// Fails with the packet and the statistic that counts the drop. Softirq or process context.
    pub(super) fn push(&self, skb: RxSkb) -> Result<bool, (Stat, RxSkb)> {
        let (why, skb) = match self.packets.push(skb, self.limits, 0) {
            Ok(first) => return Ok(first),
            Err(refused) => refused,
        };
        match (why, &self.owner) {
            (NoRoom::Room, Some(owner)) => self.push_with_loan(owner, skb),
            (why, _) => Err((cause(why), skb)),
        }
    }

    /// The same, with a loan that is charged to `owner`.
    #[cold]
    fn push_with_loan(&self, owner: &Budget, skb: RxSkb) -> Result<bool, (Stat, RxSkb)> {
        let loan = skb.truesize().max(LOAN);
        let borrowed = self.packets.borrowed();
        if owner.charge_inbox(loan.into(), borrowed.into()).is_err() {
            return Err((Stat::DropBudget, skb));
        }
        self.packets
            .push(skb, self.limits, loan)
            .map_err(|(why, skb)| {
                owner.uncharge_inbox(loan.into());
                (cause(why), skb)
            })
    }

    /// The budget that is charged; `None` for connection management. Any context.
    pub(super) fn owner(&self) -> Option<&Budget> {
        self.owner.as_ref()
    }

    /// Takes the waiting packets, at most the first `max`. Process context.
    pub(super) fn take(&self, max: u32) -> RxBatch {
        let (batch, surplus) = self.packets.take(max);
        self.give_back(surplus);
        batch
    }

    /// Whether no packet waits, at some moment of the call. Any context.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Closes the inbox to further packets, and takes the waiting ones. Process context.
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

/// The statistic that counts a packet for which there is no room.
fn cause(why: NoRoom) -> Stat {
    match why {
        NoRoom::Full => Stat::DropInboxFull,
        NoRoom::Room => Stat::DropBudget,
        NoRoom::Closed => Stat::DropState,
    }
}

#[pinned_drop]
impl PinnedDrop for QpInbox {
    fn drop(self: Pin<&mut Self>) {
        drop(self.close());
    }
}
