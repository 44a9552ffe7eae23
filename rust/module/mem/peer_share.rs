// SPDX-License-Identifier: GPL-2.0

//! The shares of a peer in the parts of an account that peers use up ([`Part::Peers`] and
//! [`Part::HalfOpen`]).
//!
//! Connections that a peer requests, answers that are due to it, and its messages that no receive
//! waits for take memory of the owner of the endpoint for as long as the peer wants. So each source
//! has a share of both parts ([`kfi_core::share`]): a host by its address, proven or not, and the
//! users of this host. The rule is the same for every owner: users with and without a limit, and
//! kernel consumers.
//!
//! An account has a tree of the sources that have sessions or requests with objects of its user. A
//! [`PeerShare`] keeps its source in the tree, and the network of that. A charge changes two or
//! three atomic numbers, and takes no lock.

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
use kfi_core::share::{
    left,
    Source, //
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

/// What a source has.
pub(super) struct PeerUse {
    /// Bytes of [`Part::HalfOpen`].
    half_open: Atomic<u64>,
    /// Bytes of [`Part::Peers`].
    peers: Atomic<u64>,
    /// The number of [`UseRef`]s. Changes under the lock of the tree.
    refs: Atomic<u64>,
    /// What the network of the source has.
    network: Option<Arc<PeerUse>>,
}

impl PeerUse {
    /// Bytes of a part; `None` if sources have no share of it.
    fn of(&self, part: Part) -> Option<&Atomic<u64>> {
        match part {
            Part::HalfOpen => Some(&self.half_open),
            Part::Peers => Some(&self.peers),
            // Each inbox has a share of it.
            Part::Inboxes => None,
        }
    }

    /// Adds what the source takes of a part. Returns what it leaves free for that. Any context.
    fn add(&self, part: Part, bytes: u64) -> u64 {
        let add = |used: &Self| {
            let of_part = used.of(part);
            of_part.map_or(0, |of_part| of_part.fetch_add(bytes, Relaxed))
        };
        left(add(self), self.network.as_deref().map_or(0, add))
    }

    /// Subtracts what the source has returned. Any context.
    pub(super) fn subtract(&self, part: Part, bytes: u64) {
        for used in [Some(self), self.network.as_deref()] {
            if let Some(of_part) = used.and_then(|used| used.of(part)) {
                of_part.fetch_sub(bytes, Relaxed);
            }
        }
    }
}

/// Keeps a source, or a network, in the tree of an account. Only process context may drop it.
struct UseRef {
    account: AccountRef,
    source: Source,
    used: Arc<PeerUse>,
}

impl UseRef {
    /// Finds or inserts a source. Sleeps. Fails with `ENOMEM`.
    fn new(budget: &Budget, source: Source, network: Option<Arc<PeerUse>>) -> Result<Self> {
        let new = PeerUse {
            half_open: Atomic::new(0),
            peers: Atomic::new(0),
            refs: Atomic::new(0),
            network,
        };
        let new = Arc::new(new, GFP_KERNEL_ACCOUNT)?;
        let node = RBTreeNode::new(source, new.clone(), GFP_KERNEL_ACCOUNT)?;
        let used = {
            let mut peers = budget.account.0.peer_uses.lock();
            let used = match peers.get(&source) {
                Some(known) => known.clone(),
                None => {
                    peers.insert(node);
                    new
                }
            };
            used.refs.fetch_add(1, Relaxed);
            used
        };
        Ok(Self {
            account: budget.account.clone(),
            source,
            used,
        })
    }
}

impl Drop for UseRef {
    fn drop(&mut self) {
        let removed = {
            let mut peers = self.account.0.peer_uses.lock();
            if self.used.refs.fetch_sub(1, Relaxed) == 1 {
                peers.remove_node(&self.source)
            } else {
                None
            }
        };
        drop(removed);
    }
}

/// The share of a source. Only process context may drop it.
pub(crate) struct PeerShare {
    own: UseRef,
    /// Dropped after `own`, which has a reference to its use.
    _network: Option<UseRef>,
}

impl Budget {
    /// The share of `source` in the account of this budget. Sleeps. Fails with `ENOMEM`.
    pub(crate) fn share_of(&self, source: Source) -> Result<PeerShare> {
        let network = source.network();
        let network = network.map(|network| UseRef::new(self, network, None));
        let network = network.transpose()?;
        let used = network.as_ref().map(|network| network.used.clone());
        Ok(PeerShare {
            own: UseRef::new(self, source, used)?,
            _network: network,
        })
    }
}

impl PeerShare {
    /// Counts `bytes`, which the caller charges separately, in a part and in the share of it.
    /// `budget` is one of the account. Does not sleep. Fails with `ENOMEM` if the source would not
    /// leave enough bytes free for others.
    ///
    /// The owner of the result keeps a share of the source until it drops the result. Otherwise a
    /// later share of the source would not count these bytes.
    pub(crate) fn take(&self, budget: &Budget, part: Part, bytes: u64) -> Result<PartAllowance> {
        self.charge_part(budget, part, bytes)?;
        let UseRef { account, used, .. } = &self.own;
        Ok(PartAllowance::new(account, part, bytes, Some(used.clone())))
    }

    /// [`take`](Self::take) of [`Part::Peers`] without references. The caller [returns
    /// it](Self::uncharge).
    pub(crate) fn charge(&self, budget: &Budget, bytes: u64) -> Result {
        self.charge_part(budget, Part::Peers, bytes)
    }

    /// Counts `bytes` in a part and in the share of it; see [`take`](Self::take). Does not sleep.
    fn charge_part(&self, budget: &Budget, part: Part, bytes: u64) -> Result {
        let left = self.own.used.add(part, bytes);
        let most = budget.part_limit(part).saturating_sub(left);
        let of_all = self.own.account.0.part(part);
        charge(of_all, bytes, most).inspect_err(|_| self.own.used.subtract(part, bytes))
    }

    /// Returns what [`charge`](Self::charge) has counted. Any context.
    pub(crate) fn uncharge(&self, bytes: u64) {
        let of_all = self.own.account.0.part(Part::Peers);
        of_all.fetch_sub(bytes, Relaxed);
        self.own.used.subtract(Part::Peers, bytes);
    }
}
