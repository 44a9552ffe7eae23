// SPDX-License-Identifier: GPL-2.0

//! The object list: the objects whose statistics can be read.
//!
//! Endpoints, CQs, counters of all kinds and flows are entered when they are opened and removed in
//! teardown, so that `kfi top` can show the statistics of all of them. An entry is not a use of the
//! object. Each value of the statistics is exact, but they are not read at one instant.
//!
//! IDs grow and are never reused, so that a walk ([`next`]) meets each object at most once even if
//! the object list changes meanwhile. Its lock is taken when objects are opened and closed and when
//! statistics are read, never by operations. It is a spin lock, because the end of every process
//! takes it: no task is preempted while it holds it.

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use super::prelude::*;
use crate::net::{
    Values,
    STATS, //
};

/// The classes of objects on the object list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Endpoint,
    Cq,
    Cntr,
    Counters,
    Flow,
    CompCntr,
}

/// The current statistics of one object. `struct kfabric_stat` defines them.
pub(crate) struct ObjectStats {
    /// The address of an endpoint that has one.
    pub(crate) addr: Option<SockAddr>,
    pub(crate) values: [u64; 8],
}

/// An object that can be on the object list.
pub(crate) trait StatsSource: Send + Sync {
    fn class(&self) -> Class;
    /// Its identifier in its front end, and its owner.
    fn ident(&self) -> &Ident;
    /// The domain that it belongs to.
    fn domain(&self) -> &Arc<Domain>;
    /// Its current statistics. May take its locks.
    fn stats(&self) -> ObjectStats;
    /// The packet statistics of its QPs; all 0 if it has none.
    fn packets(&self) -> Values {
        [0; STATS]
    }
    /// Handles the removal of its link. Sleeps.
    fn link_gone(&self) {}
}

struct ObjectList {
    last_id: u64,
    /// `None` until the first object is entered, because a tree cannot be made in a constant.
    objects: Option<RBTree<u64, Arc<dyn StatsSource>>>,
}

kernel::sync::global_lock! {
    // SAFETY: `init` is called by the module's init before anything else of the provider.
    unsafe(uninit) static OBJECTS: SpinLock<ObjectList> = ObjectList {
        last_id: 0,
        objects: None,
    };
}

/// Prepares the object list.
///
/// # Safety
///
/// Must be called once, before any other function of the provider.
pub(super) unsafe fn init() {
    // SAFETY: Called once, by the requirement above.
    unsafe { OBJECTS.init() }
}

/// The entry of an object in the object list.
///
/// Dropping it does not remove the object: the object list has a reference to the object, which
/// holds its `ObjectListEntry` and so would never be dropped. Teardown removes it.
pub(crate) struct ObjectListEntry(SetOnce<u64>);

impl ObjectListEntry {
    pub(crate) const fn new() -> Self {
        Self(SetOnce::new())
    }

    /// Enters `object`, whose entry this is. Called once. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn enter(&self, object: Arc<dyn StatsSource>) -> Result {
        // The key is known only under the lock, so the node is preallocated.
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut object_list = OBJECTS.lock();
        let id = object_list.last_id.wrapping_add(1);
        object_list.last_id = id;
        object_list
            .objects
            .get_or_insert_with(RBTree::new)
            .insert(reservation.into_node(id, object));
        self.0.populate(id);
        Ok(())
    }

    /// Removes the object. Idempotent. Sleeps.
    pub(crate) fn leave(&self) {
        let Some(id) = self.0.copy() else {
            return;
        };
        let object = match &mut OBJECTS.lock().objects {
            Some(objects) => objects.remove(&id),
            None => None,
        };
        // This may be the last reference, so it is not dropped under the lock.
        drop(object);
    }
}

/// The number of objects that are checked under one hold of the lock. A user can have many.
const STRIDE: u32 = 64;

/// The first object of `class` with an ID above `after` that `wanted` accepts, with its ID.
/// `wanted` is called under the lock and does not sleep. Sleeps.
pub(crate) fn next(
    class: Class,
    after: u64,
    mut wanted: impl FnMut(&dyn StatsSource) -> bool,
) -> Option<(u64, Arc<dyn StatsSource>)> {
    let mut at = after.checked_add(1)?;
    loop {
        let object_list = OBJECTS.lock();
        let objects = object_list.objects.as_ref()?;
        for _ in 0..STRIDE {
            let cursor = objects.cursor_lower_bound(&at)?;
            let (id, object) = cursor.current();
            if object.class() == class && wanted(&**object) {
                return Some((*id, object.clone()));
            }
            at = id.checked_add(1)?;
        }
        drop(object_list);
        cond_resched();
    }
}
