// SPDX-License-Identifier: GPL-2.0

//! Backlog: the unanswered requests of a listener, counted by their sources.
//!
//! A source has at most as many unanswered requests as the listener's backlog. The listener has
//! room for half as many again ([`room`]), of which each source has a [share](kfi_core::share). So
//! one source alone has the whole backlog, as before others come, and does not take the room of
//! the next one.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/backlog.rs"]
mod kunit;

use super::entry::NODE_BYTES;
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
use kfi_core::share::{
    left,
    Source, //
};

/// Bytes of kernel memory by which an unanswered request is counted.
pub(super) const COUNT_BYTES: usize = 2 * (size_of::<(Source, u32)>() + NODE_BYTES);

/// Returns the most unanswered requests of a listener with this backlog. A source of an IPv6
/// network has the backlog: it leaves twice a quarter of that.
pub(crate) const fn room(backlog: usize) -> usize {
    backlog.saturating_add(2 * backlog.div_ceil(4))
}

/// The counts of unanswered requests.
///
/// # Invariants
///
/// `all` is the number of [`BacklogSlot`]s, and `sources` has their numbers by source and by
/// network, and no zeros.
struct Counts {
    all: u32,
    sources: RBTree<Source, u32>,
}

impl Counts {
    /// The number of a source, and that of its network.
    fn of(&self, source: Source) -> (u32, u32) {
        let of = |source| self.sources.get(&source).copied().unwrap_or(0);
        (of(source), source.network().map_or(0, of))
    }
}

/// The unanswered requests of a listener.
#[pin_data]
pub(super) struct Backlog {
    backlog: u32,
    /// A leaf.
    #[pin]
    counts: SpinLock<Counts>,
}

impl Backlog {
    /// Makes an empty one. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(backlog: u32) -> Result<Arc<Self>> {
        // INVARIANT: There are no slots.
        let counts = Counts {
            all: 0,
            sources: RBTree::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                backlog,
                counts <- new_spinlock!(counts, "Backlog::counts"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Reserves a slot for an unanswered request of `source`; `None` if its share is used up, or
    /// there is no memory. Sleeps.
    pub(super) fn reserve(self: &Arc<Self>, source: Source) -> Option<BacklogSlot> {
        let node = |source: Option<Source>| {
            let node = source.map(|_| RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT));
            node.transpose().ok()
        };
        // Unused nodes are dropped after the lock was released.
        let mut nodes = [node(Some(source))?, node(source.network())?];
        let mut counts = self.counts.lock();
        let (own, network) = counts.of(source);
        let most = room(self.backlog as usize) as u64;
        let wanted = u64::from(counts.all).saturating_add(left(own.into(), network.into()));
        if own >= self.backlog || wanted >= most {
            return None;
        }
        // INVARIANT: One slot more.
        counts.all = counts.all.wrapping_add(1);
        for (source, node) in source.with_network().zip(nodes.iter_mut()) {
            if let Some(count) = counts.sources.get_mut(&source) {
                *count = count.wrapping_add(1);
            } else if let Some(node) = node.take() {
                counts.sources.insert(node.into_node(source, 1));
            }
        }
        drop(counts);
        Some(BacklogSlot(self.clone(), source))
    }

    /// What `source` leaves free, if `undelivered` requests of all sources have not been delivered.
    /// Does not sleep.
    pub(super) fn left(&self, source: Source, undelivered: usize) -> usize {
        let (own, network) = self.counts.lock().of(source);
        let most = |count: u32| u64::from(count).min(undelivered as u64);
        left(most(own), most(network)) as usize
    }
}

/// The place of an unanswered request in its listener's backlog. Only process context may drop it.
pub(super) struct BacklogSlot(Arc<Backlog>, Source);

impl Drop for BacklogSlot {
    fn drop(&mut self) {
        let mut removed = [None, None];
        let mut counts = self.0.counts.lock();
        // INVARIANT: One slot fewer.
        counts.all = counts.all.wrapping_sub(1);
        for (source, removed) in self.1.with_network().zip(removed.iter_mut()) {
            let Some(count) = counts.sources.get_mut(&source) else {
                continue;
            };
            *count = count.wrapping_sub(1);
            if *count == 0 {
                *removed = counts.sources.remove_node(&source);
            }
        }
        drop(counts);
        drop(removed);
    }
}
