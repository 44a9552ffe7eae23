// SPDX-License-Identifier: GPL-2.0

//! The shares of sources in the unexpected messages of an endpoint.
//!
//! An unexpected message takes a slot here, and memory if it is buffered. Both are limited, and its
//! sender decides how long: it sends what no receive takes. So each source has a
//! [share](kfi_core::share) of the slots of each queue, of the endpoint's buffered bytes, and, with
//! all endpoints of the owner, of the memory for peers ([`PeerShare`]). A source is a host, or a
//! user of this host other than the owner. The owner's own messages on this host have no share:
//! they count in the limits of all.
//!
//! A message beyond the share is treated like one without room: it waits at its sender (RNR NAK;
//! `EAGAIN` on this host, or the send waits for memory).
//!
//! A [`KeptShare`] is one source's at one receive side. A session has one, and so has each
//! [`Holding`], the place of one message. The numbers change under the lock of the queues, except
//! that a [`Holding`] returns its place without a lock.

#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/kept_share.rs"]
mod kunit;

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::atomic::Full, //
};
use kfi_core::share::{
    left,
    Source as Sender, //
};

use super::{
    super::prelude::*,
    Queues, //
};
use crate::mem::{
    Budget,
    PeerShare, //
};

/// The sources that have sessions or messages at a receive side, and their networks.
#[pin_data]
pub(in crate::provider::ep) struct Sources {
    /// A leaf.
    #[pin]
    tree: SpinLock<RBTree<Sender, Arc<KeptUse>>>,
}

impl Sources {
    /// Makes an empty one. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                tree <- new_spinlock!(RBTree::new(), "Sources::tree"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn find(&self, source: &Sender) -> Option<KeptShare> {
        self.tree.lock().get(source).map(KeptShare::new)
    }
}

/// What a source, or a network, has at a receive side.
struct KeptUse {
    sources: Arc<Sources>,
    source: Sender,
    /// The number of [`KeptShare`]s.
    refs: Atomic<u64>,
    /// The numbers of plain and of tagged messages.
    messages: [Atomic<u64>; 2],
    /// Bytes of buffered messages.
    bytes: Atomic<u64>,
    network: Option<KeptShare>,
    /// `None`: it is a network.
    peer: Option<PeerShare>,
}

impl KeptUse {
    fn number(&self, tagged: bool) -> &Atomic<u64> {
        let [plain, of_tagged] = &self.messages;
        if tagged {
            of_tagged
        } else {
            plain
        }
    }

    /// What a source leaves free of what `number` counts.
    fn left(&self, number: impl Fn(&Self) -> &Atomic<u64>) -> u64 {
        let network = self.network.as_ref();
        let of_network = network.map_or(0, |network| number(&network.0).load(Relaxed));
        left(number(self).load(Relaxed), of_network)
    }

    /// The source, and its network.
    fn with_network(&self) -> impl Iterator<Item = &Self> {
        let network = self.network.as_ref().map(|network| &*network.0);
        [Some(self), network].into_iter().flatten()
    }
}

/// The share of a source. Only process context may drop it, without locks.
pub(in crate::provider::ep) struct KeptShare(Arc<KeptUse>);

impl KeptShare {
    /// Bytes of kernel memory of the share of a host, with its network.
    pub(in crate::provider::ep) const BYTES: usize = 2 * (size_of::<KeptUse>() + 64);

    fn new(used: &Arc<KeptUse>) -> Self {
        used.refs.fetch_add(1, Full);
        Self(used.clone())
    }

    /// The share of `source` at a receive side, whose memory is charged to `budget`. Sleeps. Fails
    /// with `ENOMEM`.
    fn of(sources: &Arc<Sources>, budget: &Budget, source: Sender) -> Result<Self> {
        if let Some(known) = sources.find(&source) {
            return Ok(known);
        }
        let network = match source.network() {
            Some(network) => Some(Self::insert(sources, network, None, None)?),
            None => None,
        };
        let peer = budget.share_of(source)?;
        Self::insert(sources, source, network, Some(peer))
    }

    /// Inserts a source, unless another task has done that in the meantime.
    fn insert(
        sources: &Arc<Sources>,
        source: Sender,
        network: Option<Self>,
        peer: Option<PeerShare>,
    ) -> Result<Self> {
        let used = KeptUse {
            sources: sources.clone(),
            source,
            refs: Atomic::new(0),
            messages: [const { Atomic::new(0) }; 2],
            bytes: Atomic::new(0),
            network,
            peer,
        };
        let used = Arc::new(used, GFP_KERNEL_ACCOUNT)?;
        // Dropping a share takes the lock. So none is dropped while the lock is held.
        let new = Self::new(&used);
        let node = RBTreeNode::new(source, used, GFP_KERNEL_ACCOUNT)?;
        let mut tree = sources.tree.lock();
        if let Some(known) = tree.get(&source).map(Self::new) {
            drop(tree);
            return Ok(known);
        }
        tree.insert(node);
        drop(tree);
        Ok(new)
    }
}

impl Clone for KeptShare {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        let used = &self.0;
        if used.refs.fetch_sub(1, Full) != 1 {
            return;
        }
        let removed = {
            let mut tree = used.sources.tree.lock();
            // A new session or message may have one by now, also of a new entry.
            let is_it = |other: &Arc<KeptUse>| Arc::ptr_eq(other, used);
            let is_unused = used.refs.load(Relaxed) == 0;
            match tree.get(&used.source).is_some_and(is_it) && is_unused {
                true => tree.remove_node(&used.source),
                false => None,
            }
        };
        drop(removed);
    }
}

/// The place of an unexpected message, from its arrival until it is received or dropped. Only
/// process context may drop it, without locks.
pub(in crate::provider::ep) struct Holding {
    share: KeptShare,
    tagged: bool,
    /// The bytes of the message if it is buffered, at most `EAGER_SIZE`; otherwise 0.
    bytes: u32,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let used = &self.share.0;
        let bytes = u64::from(self.bytes);
        for used in used.with_network() {
            used.number(self.tagged).fetch_sub(1, Relaxed);
            used.bytes.fetch_sub(bytes, Relaxed);
        }
        if let Some(peer) = &used.peer {
            peer.uncharge(MemRef::kept_bytes(bytes));
        }
    }
}

impl Queues {
    /// Takes the place of a message for a source, and charges for a buffer of `bytes`, as
    /// [`MatchResult::Charged`](super::MatchResult::Charged) does. `budget` is the owner's. `None`:
    /// the source would not leave enough to others. Does not sleep.
    pub(super) fn hold(
        &mut self,
        share: &KeptShare,
        budget: &Budget,
        tagged: bool,
        bytes: u64,
    ) -> Option<Holding> {
        let used = &share.0;
        let pair = self.pair(tagged);
        let taken = pair.unexpected.len().saturating_add(pair.reserved);
        let left = used.left(|used| used.number(tagged));
        if u64::from(taken).saturating_add(left) >= u64::from(pair.room) {
            return None;
        }
        let unexpected = &mut self.plain.unexpected;
        if bytes > 0 {
            let left = used.left(|used| &used.bytes);
            unexpected.charge(bytes.saturating_add(left)).ok()?;
            unexpected.uncharge(left);
            let memory = MemRef::kept_bytes(bytes);
            let charged = used.peer.as_ref().map(|peer| peer.charge(budget, memory));
            if charged != Some(Ok(())) {
                unexpected.uncharge(bytes);
                return None;
            }
        }
        for used in used.with_network() {
            used.number(tagged).fetch_add(1, Relaxed);
            used.bytes.fetch_add(bytes, Relaxed);
        }
        Some(Holding {
            share: share.clone(),
            tagged,
            bytes: bytes as u32,
        })
    }
}

impl Endpoint {
    /// The share of `source` in the unexpected messages of this endpoint, or of its shared receive
    /// context. Fails with `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn kept_share(&self, source: Sender) -> Result<KeptShare> {
        KeptShare::of(&self.rx_side().sources, &self.ident.budget, source)
    }

    /// Takes the place of a message from this host, whose sender is another user; if `eager`, also
    /// for a copy. `None`: the share of that user is used up. Does not sleep.
    pub(in crate::provider::ep) fn hold(
        &self,
        share: &KeptShare,
        message: &Message,
        eager: bool,
    ) -> Option<Holding> {
        let bytes = if eager { message.len } else { 0 };
        let mut queues = self.rx_side().queues.lock();
        queues.hold(share, &self.ident.budget, message.tagged, bytes)
    }
}
