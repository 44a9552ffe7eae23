// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_kept_share`: the shares of sources in the unexpected messages of an endpoint.

use super::*;
use crate::{
    kunit::{
        ep_pair::{
            Pair,
            Sizes, //
        },
        fixture::ident_of,
        helpers::user, //
    },
    mem::Part, //
};
use core::net::Ipv4Addr;
use kfi_core::{
    enums::EpType,
    matching::Envelope, //
};

/// The slots of each queue.
const ROOM: usize = 64;

/// The queues of a receive side, with messages that only have a place.
struct Side {
    queues: Queues,
    sources: Arc<Sources>,
    owner: Budget,
}

impl Side {
    fn new(owner: Budget, bytes: u64) -> Result<Self> {
        Ok(Self {
            queues: Queues::new(ROOM, bytes)?,
            sources: Sources::new()?,
            owner,
        })
    }

    fn share(&self, host: u8) -> Result<KeptShare> {
        let ip = Ipv4Addr::new(192, 0, 2, host);
        KeptShare::of(&self.sources, &self.owner, Sender::host(ip.into(), 0))
    }

    /// Takes places for messages of `bytes`, as many as `share` allows.
    fn fill(&mut self, share: &KeptShare, bytes: u64, held: &mut KVec<Holding>) -> Result<usize> {
        let before = held.len();
        while let Some(holding) = self.queues.hold(share, &self.owner, false, bytes) {
            self.queues.plain.reserved += 1;
            held.push(holding, GFP_KERNEL)?;
        }
        Ok(held.len() - before)
    }
}

#[kunit_tests(kfabric_kept_share)]
mod tests {
    use super::*;

    /// A source leaves slots of a queue for others, with any number of sessions, and also after its
    /// sessions have ended.
    #[test]
    fn slots_have_shares() -> Result {
        for (number, limit) in [(130, None), (131, Some(u64::MAX))] {
            let mut side = Side::new(Budget::of(user(number), limit)?, 1 << 20)?;
            let mut held = KVec::new();
            let (first, again, second) = (side.share(1)?, side.share(1)?, side.share(2)?);
            ensure_eq!(side.fill(&first, 0, &mut held)?, 51);
            ensure_eq!(side.fill(&again, 0, &mut held)?, 0);
            drop((first, again));
            let later = side.share(1)?;
            ensure_eq!(side.fill(&later, 0, &mut held)?, 0);
            ensure_eq!(side.fill(&second, 0, &mut held)?, 10);
            // The other queue has slots of its own.
            let tagged = side.queues.hold(&later, &side.owner, true, 0);
            ensure!(tagged.is_some());
            drop((tagged, held, later, second));
            ensure!(side.sources.tree.lock().is_empty());
        }
        Ok(())
    }

    /// A source leaves buffered bytes of the endpoint for others.
    #[test]
    fn buffered_bytes_have_shares() -> Result {
        let mut side = Side::new(Budget::of(user(132), None)?, 1000)?;
        let mut held = KVec::new();
        let (first, second) = (side.share(1)?, side.share(2)?);
        ensure_eq!(side.fill(&first, 100, &mut held)?, 8);
        ensure_eq!(side.fill(&second, 100, &mut held)?, 1);
        ensure_eq!(side.queues.plain.unexpected.charged(), 900);
        // The owner is charged for what the buffers take, not for the bytes alone.
        ensure_eq!(
            side.owner.charged(Part::Peers).1,
            9 * MemRef::kept_bytes(100)
        );
        drop(held);
        ensure_eq!(side.owner.charged(Part::Peers).1, 0);
        Ok(())
    }

    /// A source leaves memory of the owner for others, at all endpoints together.
    #[test]
    fn memory_of_the_owner_has_shares() -> Result {
        let buffer = MemRef::kept_bytes(100);
        let owner = Budget::of(user(133), Some(20 * buffer))?;
        let mut one = Side::new(owner.clone(), 1 << 20)?;
        let mut other = Side::new(owner, 1 << 20)?;
        let mut held = KVec::new();
        ensure_eq!(one.fill(&one.share(1)?, 100, &mut held)?, 8);
        ensure_eq!(other.fill(&other.share(1)?, 100, &mut held)?, 0);
        // Refused messages are not charged.
        ensure_eq!(other.queues.plain.unexpected.charged(), 0);
        ensure_eq!(other.fill(&other.share(2)?, 100, &mut held)?, 1);
        ensure_eq!(one.owner.charged(Part::Peers).1, 9 * buffer);
        drop(held);
        ensure_eq!(one.owner.charged(Part::Peers).1, 0);
        Ok(())
    }

    /// Another user of this host has a share, too. Beyond it sends are refused, and a third user
    /// still has room. The owner has all slots.
    #[test]
    fn other_users_have_shares() -> Result {
        let (one, owner) = (Budget::of(user(134), None)?, Budget::of(user(135), None)?);
        let sizes = Sizes::DEFAULT;
        for (from, most) in [(&one, 51), (&owner, ROOM)] {
            let idents = [ident_of(from, 10)?, ident_of(&owner, 20)?];
            let pair = Pair::owned(EpType::Rdm, sizes, sizes, idents)?;
            let bytes = [0x5a; 8];
            let memory = MemRef::buffer(bytes.len())?;
            let mut sent = 0;
            while sent < 2 * ROOM {
                let posted = pair.a.post(pair.a.send(Source::Mem(memory.clone()), 1));
                if posted == Err(EAGAIN) {
                    break;
                }
                posted?;
                pair.a.complete()?;
                sent += 1;
            }
            ensure_eq!(sent, most);
            ensure_eq!(pair.b.endpoint.rx_side().stats()[1], most as u64);
            let third = Budget::of(user(136), None)?.source();
            let share = pair.b.endpoint.kept_share(third)?;
            let message = Message {
                tagged: false,
                envelope: Envelope {
                    src: pair.a.endpoint.bound.as_ref().ok_or(EBADF)?.name,
                    tag: 0,
                },
                data: None,
                len: 8,
                rma: None,
            };
            let holding = pair.b.endpoint.hold(&share, &message, true);
            ensure_eq!(holding.is_some(), most < ROOM);
            if holding.is_some() {
                pair.b.endpoint.uncharge(&message);
            }
        }
        Ok(())
    }
}
