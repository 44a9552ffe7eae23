// SPDX-License-Identifier: GPL-2.0

//! Domain: the objects on one link.
//!
//! Endpoints, address vectors, memory regions, CQs, counters and poll sets are made from a domain,
//! and objects of different domains are never bound to each other. A domain holds its link in use
//! and its namespace's directory; it owns the table of memory keys, because a key means the same
//! region to every endpoint of the domain.
//!
//! The table is an ordered tree under a spin lock, a leaf, held for one look-up: an RMA operation
//! takes a reference to the region there and works outside.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

use kfi_core::{
    errno::Errno,
    mr::Refusal, //
};

use super::{
    directory::{
        Directory,
        DirectoryUse, //
    },
    eq::Eq,
    fabric::Fabric,
    mr::Mr,
    object::{
        Ident,
        Object,
        Used,
        Uses, //
    }, //
};
use crate::{
    mem::Allowance,
    net::{
        Figure,
        Link,
        LinkUse, //
    },
    shim::{
        errno::to_error,
        random::random_u32, //
    }, //
};

/// Random keys that are tried for a region. Each is one in use with a chance of one in 65536 at
/// most, as an open file has no more regions than handles.
const KEY_TRIES: u32 = 16;

/// How a domain's memory is addressed and who chooses keys (`mr_mode`).
#[derive(Clone, Copy)]
pub(crate) struct MrMode {
    /// Peers name bytes by their owner's virtual address instead of by offset.
    pub(crate) virt_addr: bool,
    /// The domain chooses keys instead of the caller.
    pub(crate) prov_key: bool,
}

type Keys = RBTree<u32, Arc<Mr>>;

/// See the module's story.
#[pin_data]
pub(crate) struct Domain {
    fabric: Used<Fabric>,
    link: LinkUse,
    directory: DirectoryUse,
    mr_mode: MrMode,
    uses: Uses,
    #[pin]
    keys: SpinLock<Keys>,
    /// The EQ that reports registrations, and whether it was bound with KFI_REG_MR.
    #[pin]
    eq: Mutex<Option<(Used<Eq>, bool)>>,
    /// What it takes of its owner's budget.
    _memory: Allowance,
}

impl Domain {
    /// Opens a domain on `link`, which must belong to the fabric's namespace.
    ///
    /// `EBADF` the fabric is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(
        fabric: &Arc<Fabric>,
        link: LinkUse,
        mr_mode: MrMode,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let fabric = Used::new(fabric.clone())?;
        let directory = DirectoryUse::of(fabric.netns())?;
        Arc::pin_init(
            try_pin_init!(Self {
                fabric,
                link,
                directory,
                mr_mode,
                uses: Uses::new(),
                keys <- new_spinlock!(RBTree::new(), "Domain::keys"),
                eq <- new_mutex!(None, "Domain::eq"),
                _memory: ident.budget.take_for::<Self>(0)?,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds the domain to an EQ; with `reg_mr`, registration is asynchronous and reports there.
    ///
    /// `EINVAL` it is bound already, or the EQ belongs to another fabric; `EBADF` it or the EQ is
    /// closed. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>, reg_mr: bool) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.fabric.arc()) {
            return Err(EINVAL);
        }
        let mut bound = self.eq.lock();
        // Under the mutex, which teardown takes after the domain was marked closed: a use that came
        // later would stay.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if bound.is_some() {
            return Err(EINVAL);
        }
        *bound = Some((Used::new(eq.clone())?, reg_mr));
        Ok(())
    }

    /// Calls `report` with the EQ that registrations report to, if there is one. Sleeps.
    pub(super) fn with_mr_eq(&self, report: impl FnOnce(&Eq)) {
        if let Some((eq, true)) = &*self.eq.lock() {
            report(eq);
        }
    }

    /// The fabric that it was made from.
    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.fabric.arc()
    }

    /// The link that it is on.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Where its endpoints find their peers.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How its memory is addressed.
    pub(crate) fn mr_mode(&self) -> MrMode {
        self.mr_mode
    }

    /// Enters `region` under `requested`, or under a key of the domain's choice: a random one, as a
    /// key is what peers must have been told to reach the region.
    ///
    /// `KFI_ENOKEY` the key is in use, `ENOMEM`. Sleeps.
    pub(super) fn enter_key(&self, requested: Option<u32>, region: &Arc<Mr>) -> Result<u32> {
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        for _ in 0..KEY_TRIES {
            let key = requested.unwrap_or_else(random_u32);
            let mut keys = self.keys.lock();
            if keys.get(&key).is_none() {
                keys.insert(reservation.into_node(key, region.clone()));
                return Ok(key);
            }
            if requested.is_some() {
                break;
            }
        }
        Err(to_error(Errno::KFI_ENOKEY))
    }

    /// Takes the region under `key` out of the table. Does not sleep.
    pub(super) fn leave_key(&self, key: u32) {
        let region = self.keys.lock().remove_node(&key);
        // The last reference may go here, so not under the lock.
        drop(region);
    }

    /// The region under `key`. Does not sleep; dropping the result may.
    pub(super) fn region(&self, key: u64) -> Option<Arc<Mr>> {
        let key = u32::try_from(key).ok()?;
        self.keys.lock().get(&key).cloned()
    }

    /// A peer was refused access to the domain's memory. Any context.
    pub(super) fn count_refusal(&self) {
        self.link().count(Figure::MrRefused);
    }

    /// Runs `work` inside the region under `key`; gives its answer, or [`Refusal::Key`]. Does not
    /// sleep if `work` does not.
    pub(super) fn in_region<T>(
        &self,
        key: u64,
        work: impl FnOnce(&Mr) -> core::result::Result<T, Refusal>,
    ) -> core::result::Result<T, Refusal> {
        let region = self.region(key).ok_or(Refusal::Key)?;
        let answer = match region.enter() {
            Some(_inside) => work(&region),
            None => Err(Refusal::Key),
        };
        Mr::let_go(region);
        answer
    }
}

impl Object for Domain {
    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn teardown(&self) {
        let eq = self.eq.lock().take();
        drop(eq);
        self.link.release();
        self.fabric.release();
    }
}
