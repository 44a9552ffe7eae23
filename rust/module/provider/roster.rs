// SPDX-License-Identifier: GPL-2.0

//! The roster: objects that can be looked at from outside.
//!
//! Endpoints, CQs and counters put themselves on the roster when they open and take themselves off
//! in teardown, so that `kfi top` can show live figures of all of them. Being on the roster is no
//! use of an object, and a look takes figures that are each right but not taken at one instant.
//!
//! Ids grow and are never given twice, so that a walk ([`next`]) meets each object at most once
//! however the roster changes meanwhile. A lock guards it; it is taken when objects open and
//! close and when somebody looks, never by operations. It is a spin lock, so that no task is
//! preempted while it holds it: the end of every process takes it.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};

use kfi_core::addr::SockAddr;

use super::{
    domain::Domain,
    object::Ident, //
};
use crate::{
    net::{
        Values,
        FIGURES, //
    },
    shim::sched::cond_resched, //
};

/// The classes of objects that are on the roster, numbered as `KFI_CLASS_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// An endpoint.
    Endpoint,
    /// A completion queue.
    Cq,
    /// A counter.
    Cntr,
}

/// The live figures of one object; what they are stands with `struct kfabric_stat`.
pub(crate) struct Figures {
    /// The address of an endpoint that has one.
    pub(crate) addr: Option<SockAddr>,
    /// The figures.
    pub(crate) values: [u64; 8],
}

/// An object that can be on the roster.
pub(crate) trait Listed: Send + Sync {
    /// Its class.
    fn class(&self) -> Class;
    /// Its name at its face, and its owner.
    fn ident(&self) -> &Ident;
    /// The domain that it belongs to.
    fn domain(&self) -> &Domain;
    /// Its figures now. May take its locks.
    fn figures(&self) -> Figures;
    /// What became of the packets of its QPs; all 0 if it has none.
    fn packets(&self) -> Values {
        [0; FIGURES]
    }
    /// Its link's interface has gone. Sleeps.
    fn link_gone(&self) {}
}

struct Roster {
    last_id: u64,
    /// `None` until the first object comes: a tree cannot be made in a constant.
    objects: Option<RBTree<u64, Arc<dyn Listed>>>,
}

kernel::sync::global_lock! {
    // SAFETY: `init` is called by the module's init before anything else of the provider.
    unsafe(uninit) static ROSTER: SpinLock<Roster> = Roster {
        last_id: 0,
        objects: None,
    };
}

/// Prepares the roster.
///
/// # Safety
///
/// To be called once, before any other function of the provider.
pub(super) unsafe fn init() {
    // SAFETY: Called once, by the requirement above.
    unsafe { ROSTER.init() }
}

/// A place on the roster; given up with [`Place::leave`].
///
/// It does not leave by itself when dropped: the roster holds a reference to the object, so the
/// object, which holds its place, would never be dropped. Teardown leaves.
#[derive(Clone, Copy)]
pub(crate) struct Place(u64);

impl Place {
    /// Takes the object off the roster. Idempotent. Sleeps.
    pub(crate) fn leave(self) {
        let object = match &mut ROSTER.lock().objects {
            Some(objects) => objects.remove(&self.0),
            None => None,
        };
        // The last reference may go here, so not under the lock.
        drop(object);
    }
}

/// Puts `object` on the roster. `ENOMEM`. Sleeps.
pub(crate) fn enter(object: Arc<dyn Listed>) -> Result<Place> {
    // The key is not known before the lock is held, so the node is made from a reservation.
    let reservation = kernel::rbtree::RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
    let mut roster = ROSTER.lock();
    let id = roster.last_id.wrapping_add(1);
    roster.last_id = id;
    let node: RBTreeNode<_, _> = reservation.into_node(id, object);
    roster.objects.get_or_insert_with(RBTree::new).insert(node);
    Ok(Place(id))
}

/// Objects that are looked at before others may have the lock: one user can have a great many.
const STRIDE: u32 = 64;

/// The first object of `class` with an id above `after` that `wanted` accepts, with its id. `wanted`
/// is called under the lock, and does not sleep. Sleeps.
pub(crate) fn next(
    class: Class,
    after: u64,
    mut wanted: impl FnMut(&dyn Listed) -> bool,
) -> Option<(u64, Arc<dyn Listed>)> {
    let mut at = after.checked_add(1)?;
    loop {
        let roster = ROSTER.lock();
        let objects = roster.objects.as_ref()?;
        for _ in 0..STRIDE {
            let cursor = objects.cursor_lower_bound(&at)?;
            let (id, object) = cursor.current();
            if object.class() == class && wanted(&**object) {
                return Some((*id, object.clone()));
            }
            at = id.checked_add(1)?;
        }
        drop(roster);
        cond_resched();
    }
}
