// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_inbox`: the limits of a QP's inbox, and the charge of the packets that wait there
//! to the account of the QP's owner.
//!
//! Needs the loopback interface of the first network namespace, as `kfabric_wire` does.

use super::{
    super::{
        ud::Destination,
        Qp,
        Ud, //
    },
    *, //
};
use crate::{
    kunit::helpers::{
        eventually,
        rx_skb,
        user, //
    },
    mem::{
        self,
        Part,
        Source, //
    },
    net::{
        kunit_rc_pair::{
            default_attr,
            Pair as RcPair,
            REGION,
            WRITE, //
        },
        kunit_wire_pair::{
            at,
            buffer,
            built,
            Pair,
            Slow,
            ONE,
            QKEY,
            TWO, //
        }, //
    }, //
};
use kernel::sync::Arc;
use kfi_roce::rc::Status;

/// Limits above the number of packets in any test.
const MUCH: InboxLimits = InboxLimits {
    packets: 1 << 12,
    bytes: 1 << 24,
};

/// Returns the budget of a user that does not exist, with room for this many loans ([`LOAN`]) in
/// the part for inboxes.
fn owner(n: u32, loans: u32) -> Result<Budget> {
    Budget::of(user(1000 + n), Some(u64::from(4 * loans * LOAN)))
}

/// Returns the number of bytes charged for inboxes. Nothing else is charged to the owners of this
/// suite; if something is, this is `u64::MAX`.
fn charged(owner: &Budget) -> u64 {
    let (all, inboxes) = owner.charged(Part::Inboxes);
    if all == inboxes {
        inboxes
    } else {
        u64::MAX
    }
}

/// Packets that are passed to inboxes as if they had arrived.
struct Packets {
    bytes: KVec<u8>,
    /// The memory of each packet in bytes.
    truesize: u32,
}

impl Packets {
    /// Makes packets with `payload` bytes each.
    fn new(payload: usize) -> Result<Self> {
        let pair = Pair::new(ONE, TWO)?;
        let skb = built(&pair.path, &pair.a, pair.b.qp.number(), payload)?;
        let mut bytes = KVec::new();
        bytes.extend_from_slice(skb.bytes(), GFP_KERNEL)?;
        let mut packets = Self { bytes, truesize: 0 };
        packets.truesize = packets.next()?.truesize();
        Ok(packets)
    }

    fn next(&self) -> Result<RxSkb> {
        rx_skb(&self.bytes, 20, 4096, 1000)
    }

    /// Queues packets until one is refused. Returns the number of queued packets, and the statistic
    /// that counts the refused one.
    fn fill(&self, inbox: &QpInbox) -> Result<(u32, Stat)> {
        let mut waiting = 0;
        loop {
            match inbox.push(self.next()?) {
                Ok(_) => waiting += 1,
                Err((stat, _)) => return Ok((waiting, stat)),
            }
        }
    }

    /// Returns how many packets fit into this many bytes.
    fn in_room(&self, bytes: u32) -> u32 {
        bytes / self.truesize
    }
}

/// A QP whose consumer blocks until `slow` goes on. Dropping it lets it go on, and closes the QP.
struct Target {
    qp: Arc<Qp<Ud>>,
    slow: Arc<Slow>,
}

impl Target {
    fn new(pair: &Pair, owner: &Budget) -> Result<Self> {
        let slow = Slow::new()?;
        let addr = at(TWO, 0)?;
        let qp = Qp::datagrams(&pair.link.0, &addr, QKEY, None, owner, slow.clone())?;
        Ok(Self { qp, slow })
    }

    /// Sends this many datagrams to the QP.
    fn send(&self, pair: &Pair, count: u64) -> Result {
        let payload = buffer(1000)?;
        let to = Destination {
            qp: self.qp.number(),
            ..pair.b.destination()
        };
        for _ in 0..count {
            let source = Source::Mem(payload.clone());
            pair.a.qp.send(&pair.path, &to, &source)?;
        }
        Ok(())
    }

    fn dropped(&self) -> u64 {
        self.qp.stats().get(Stat::DropBudget)
    }

    fn received(&self) -> u64 {
        self.slow.count.get().into()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.slow.go_on();
        self.qp.close();
    }
}

#[kunit_tests(kfabric_inbox)]
mod tests {
    use super::*;

    /// Within the reserve nothing is charged; beyond it a loan is charged until the packets are
    /// taken.
    #[test]
    fn packets_beyond_the_reserve_are_charged_as_loans() -> Result {
        let packets = Packets::new(1000)?;
        let owner = owner(1, 4)?;
        pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&owner), MUCH));
        let free = packets.in_room(RESERVE);
        ensure!(free >= 2);
        for round in 0..3 {
            for number in 0..free {
                ensure!(inbox
                    .push(packets.next()?)
                    .is_ok_and(|first| first == (number == 0)));
            }
            ensure_eq!(charged(&owner), 0);
            ensure!(inbox.push(packets.next()?).is_ok());
            ensure_eq!(charged(&owner), u64::from(LOAN));
            // All packets at once, or one after the other.
            if round == 0 {
                ensure_eq!(inbox.take(free + 1).count(), free as usize + 1);
            } else {
                ensure_eq!(inbox.take(1).count(), 1);
                ensure_eq!(charged(&owner), 0);
                ensure_eq!(inbox.take(u32::MAX).count(), free as usize);
            }
            ensure!(inbox.is_empty());
            ensure_eq!(charged(&owner), 0);
        }
        // Packets that stay in the inbox stay charged, with no more than they use.
        let many = packets.in_room(RESERVE + 2 * LOAN);
        for _ in 0..many {
            ensure!(inbox.push(packets.next()?).is_ok());
        }
        ensure_eq!(charged(&owner), u64::from(2 * LOAN));
        ensure_eq!(inbox.take(1).count(), 1);
        let left = (many - 1) * packets.truesize - RESERVE;
        ensure_eq!(charged(&owner), u64::from(left));
        inbox.close();
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// The inboxes of a user share a part; another user has a part of its own.
    #[test]
    fn inboxes_of_a_user_share_a_part() -> Result {
        let packets = Packets::new(1000)?;
        let (user, other) = (owner(2, 3)?, owner(3, 3)?);
        pin_init::stack_pin_init!(let one = QpInbox::new(Some(&user), MUCH));
        pin_init::stack_pin_init!(let two = QpInbox::new(Some(&user), MUCH));
        pin_init::stack_pin_init!(let others = QpInbox::new(Some(&other), MUCH));
        let (some, most) = (
            packets.in_room(RESERVE + LOAN),
            packets.in_room(RESERVE + 2 * LOAN),
        );
        // One inbox leaves nearly as much free as it has borrowed, and a second one takes that.
        ensure_eq!(packets.fill(&one)?, (most, Stat::DropBudget));
        ensure_eq!(charged(&user), u64::from(2 * LOAN));
        ensure_eq!(packets.fill(&two)?, (some, Stat::DropBudget));
        ensure_eq!(charged(&user), u64::from(3 * LOAN));
        ensure_eq!(packets.fill(&others)?, (most, Stat::DropBudget));
        // A third inbox of the user has its reserve.
        pin_init::stack_pin_init!(let three = QpInbox::new(Some(&user), MUCH));
        let reserve = packets.in_room(RESERVE);
        ensure_eq!(packets.fill(&three)?, (reserve, Stat::DropBudget));
        // Packets that are taken from one inbox make room for the user's other inboxes.
        ensure_eq!(one.take(u32::MAX).count(), most as usize);
        ensure_eq!(charged(&user), u64::from(LOAN));
        ensure_eq!(packets.fill(&two)?, (most - some, Stat::DropBudget));
        ensure_eq!(two.take(u32::MAX).count(), most as usize);
        ensure_eq!(packets.fill(&one)?, (most, Stat::DropBudget));
        Ok(())
    }

    /// The packets and the objects of a user share its limit.
    #[test]
    fn packets_and_objects_share_the_budget() -> Result {
        let packets = Packets::new(1000)?;
        let owner = owner(4, 1)?;
        pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&owner), MUCH));
        let all = u64::from(4 * LOAN);
        let objects = owner.take(all - u64::from(LOAN) + 1)?;
        let reserve = packets.in_room(RESERVE);
        ensure_eq!(packets.fill(&inbox)?, (reserve, Stat::DropBudget));
        drop(objects);
        ensure!(inbox.push(packets.next()?).is_ok());
        ensure_eq!(owner.take(all - u64::from(LOAN) + 1).err(), Some(ENOMEM));
        ensure!(owner.take(all - u64::from(LOAN)).is_ok());
        drop(inbox.take(u32::MAX));
        ensure!(owner.take(all).is_ok());
        Ok(())
    }

    /// Closing an inbox returns all of its charge once, and so does dropping it.
    #[test]
    fn closing_an_inbox_returns_its_charge() -> Result {
        let packets = Packets::new(1000)?;
        let owner = owner(5, 3)?;
        {
            pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&owner), MUCH));
            let (waiting, _) = packets.fill(&inbox)?;
            ensure_eq!(inbox.close().count(), waiting as usize);
            ensure_eq!(charged(&owner), 0);
            ensure_eq!(packets.fill(&inbox)?, (0, Stat::DropState));
            ensure!(inbox.close().is_empty() && inbox.take(1).is_empty());
            ensure_eq!(charged(&owner), 0);
        }
        ensure_eq!(charged(&owner), 0);
        {
            pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&owner), MUCH));
            packets.fill(&inbox)?;
            ensure_eq!(charged(&owner), u64::from(2 * LOAN));
        }
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// The account exists as long as packets wait, even without any other reference.
    #[test]
    fn the_account_outlives_the_packets() -> Result {
        let packets = Packets::new(1000)?;
        {
            let first = owner(6, 3)?;
            pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&first), MUCH));
            drop(first);
            packets.fill(&inbox)?;
            ensure_eq!(charged(&owner(6, 3)?), u64::from(2 * LOAN));
        }
        ensure_eq!(charged(&owner(6, 3)?), 0);
        Ok(())
    }

    /// A packet that uses more than [`LOAN`] bytes is charged with its `truesize`.
    #[test]
    fn large_packets_are_charged_with_their_truesize() -> Result {
        let packets = Packets::new(4096)?;
        let owner = owner(7, 4)?;
        let mut bytes = KVec::new();
        bytes.extend_from_slice(&packets.bytes, GFP_KERNEL)?;
        // Each few bytes are in a page of their own, so the packet uses much more memory than it
        // has bytes.
        let large = || rx_skb(&bytes, 20, 0, 250);
        let truesize = large()?.truesize();
        pin_init::stack_pin_init!(let inbox = QpInbox::new(Some(&owner), MUCH));
        ensure!(truesize > LOAN);
        ensure!(inbox.push(large()?).is_ok());
        ensure_eq!(charged(&owner), u64::from(truesize));
        drop(inbox.take(1));
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// Each inbox also has a limit of its own. An inbox without an owner, such as that of
    /// connection management, has no other limit.
    #[test]
    fn an_inbox_has_limits() -> Result {
        let packets = Packets::new(1000)?;
        let owner = owner(8, 4)?;
        let bytes = RESERVE + LOAN;
        // The packet that reaches the limit may exceed it.
        let most = bytes.div_ceil(packets.truesize);
        let few = InboxLimits { packets: 5, ..MUCH };
        let small = InboxLimits { bytes, ..MUCH };
        for owner in [Some(&owner), None] {
            for (limits, waiting) in [(few, 5), (small, most)] {
                pin_init::stack_pin_init!(let inbox = QpInbox::new(owner, limits));
                for _ in 0..2 {
                    ensure_eq!(packets.fill(&inbox)?, (waiting, Stat::DropInboxFull));
                    ensure_eq!(inbox.take(u32::MAX).count(), waiting as usize);
                }
            }
        }
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// Packets for a flooded QP use at most the part of its user. Other QPs of this user and of
    /// other users work.
    #[test]
    fn a_flood_affects_one_user_only() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let (user, other) = (owner(9, 2)?, owner(10, 16)?);
        let flooded = Target::new(&pair, &user)?;
        let idle = Target::new(&pair, &user)?;
        let others = Target::new(&pair, &other)?;
        // At most a batch of packets is taken before all others wait.
        flooded.send(&pair, 600)?;
        idle.send(&pair, 1)?;
        others.send(&pair, 200)?;
        ensure!(eventually(|| flooded.dropped() > 0));
        ensure!(charged(&user) <= u64::from(2 * LOAN));
        ensure!(pair.link.0.stats().get(Stat::DropBudget) >= flooded.dropped());
        // The part is full at this time.
        idle.send(&pair, 2)?;
        ensure_eq!((idle.dropped(), others.dropped()), (0, 0));
        for target in [&flooded, &idle, &others] {
            target.slow.go_on();
        }
        ensure!(eventually(|| flooded.received() + flooded.dropped() == 600));
        ensure!(eventually(|| idle.received() == 3));
        ensure!(eventually(|| others.received() == 200));
        ensure!(eventually(|| charged(&user) == 0 && charged(&other) == 0));
        // There is room again, and closing at this moment returns everything.
        flooded.send(&pair, 50)?;
        others.send(&pair, 50)?;
        drop((flooded, idle, others));
        ensure_eq!((charged(&user), charged(&other)), (0, 0));
        Ok(())
    }

    /// A reliable connection whose owner has only the reserve gets all data, because RC retransmits
    /// dropped packets.
    #[test]
    fn reliable_connections_recover() -> Result {
        let pair = RcPair::of(ONE, TWO, &default_attr(), &owner(11, 0)?)?;
        let payload = buffer(REGION)?;
        ensure_eq!(pair.a.run(WRITE, &payload)?, Some(Status::Success));
        ensure!(pair.b.stat(Stat::DropBudget) > 0);
        ensure!(mem::memref::equal(&pair.b.peer.region, &payload));
        ensure!(pair.works()?);
        Ok(())
    }
}
