// SPDX-License-Identifier: GPL-2.0

//! The share of a peer in the part of an account that peers use up ([`Part::Peers`]).
//!
//! Connections that a peer requests, and answers that are due to it, take memory of the owner of
//! the endpoint for as long as the peer wants. So each peer has a share, by its address, proven or
//! not. A host with several addresses has several. A peer must leave a quarter as many bytes of the
//! part free for others as it has itself. So one peer alone can have four fifths; peers that all take
//! what they can end up with equal shares; and another one always finds a fifth of such a share. The
//! rule is the same for every owner: users with and without a limit, and kernel consumers.
//!
//! An account has a tree of the addresses that have sessions or requests with objects of its user.
//! A [`PeerShare`] keeps its address in the tree. A charge changes two atomic numbers, and takes no
//! lock.

use core::net::IpAddr;
use kernel::{
    prelude::*,
    rbtree::RBTreeNode,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    account::{
        charge,
        AccountRef,
        Part, //
    },
    budget::{
        Budget,
        PartAllowance, //
    }, //
};

/// A peer leaves free what it has, divided by this.
pub(crate) const LEFT: u64 = 4;

/// What the peer at an address has.
pub(super) struct PeerUse {
    /// Bytes of [`Part::Peers`].
    pub(super) bytes: Atomic<u64>,
    /// The number of [`PeerShare`]s. Changes under the lock of the tree.
    refs: Atomic<u64>,
}

/// The share of the peer at an address. Only process context may drop it.
pub(crate) struct PeerShare {
    account: AccountRef,
    ip: IpAddr,
    used: Arc<PeerUse>,
}

impl Budget {
    /// The share of the peer at `ip` in the account of this budget. Sleeps. Fails with `ENOMEM`.
    pub(crate) fn share_of(&self, ip: IpAddr) -> Result<PeerShare> {
        let new = PeerUse {
            bytes: Atomic::new(0),
            refs: Atomic::new(0),
        };
        let new = Arc::new(new, GFP_KERNEL_ACCOUNT)?;
        let node = RBTreeNode::new(ip, new.clone(), GFP_KERNEL_ACCOUNT)?;
        let used = {
            let mut peers = self.account.0.peer_uses.lock();
            let used = match peers.get(&ip) {
                Some(known) => known.clone(),
                None => {
                    peers.insert(node);
                    new
                }
            };
            used.refs.fetch_add(1, Relaxed);
            used
        };
        Ok(PeerShare {
            account: self.account.clone(),
            ip,
            used,
        })
    }
}

impl PeerShare {
    /// Counts `bytes`, which the caller charges separately, in [`Part::Peers`] and in the share.
    /// `budget` is one of the account. Does not sleep. Fails with `ENOMEM` if the peer would not
    /// leave enough bytes free for others.
    pub(crate) fn take(&self, budget: &Budget, bytes: u64) -> Result<PartAllowance> {
        let has = self.used.bytes.fetch_add(bytes, Relaxed);
        let most = budget.part_limit(Part::Peers).saturating_sub(has / LEFT);
        let of_all = self.account.0.part(Part::Peers);
        charge(of_all, bytes, most).inspect_err(|_| {
            self.used.bytes.fetch_sub(bytes, Relaxed);
        })?;
        let used = Some(self.used.clone());
        Ok(PartAllowance::new(&self.account, Part::Peers, bytes, used))
    }
}

impl Drop for PeerShare {
    fn drop(&mut self) {
        let removed = {
            let mut peers = self.account.0.peer_uses.lock();
            if self.used.refs.fetch_sub(1, Relaxed) == 1 {
                peers.remove_node(&self.ip)
            } else {
                None
            }
        };
        drop(removed);
    }
}
