// SPDX-License-Identifier: GPL-2.0

//! Domain: the objects on one link.
//!
//! Endpoints, address vectors, memory regions, CQs, counters and poll sets are made from a domain.
//! Objects of different domains are never bound to each other. A domain holds its link and the
//! directory of its namespace in use. It owns the table of memory keys, because a key names the
//! same region for every endpoint of the domain.
//!
//! The table is an ordered tree under a spin lock. The lock is a leaf and is held for one look-up:
//! an RMA operation takes a reference to the region under it and accesses the region outside.

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use kfi_core::{
    limits,
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
    prelude::*,
    work::WorkQueue, //
};
use crate::{
    net::{
        Link,
        LinkUse,
        Stat, //
    },
    shim::random::random_u32, //
};

/// The number of random keys that are tried for a region. The chance that a key is in use is at
/// most one in 65536, because an open file has no more regions than handles.
const KEY_TRIES: u32 = 16;

/// How the memory of a domain is addressed, and whether it chooses keys (`mr_mode`).
#[derive(Clone, Copy)]
pub(crate) struct MrMode {
    /// Peers address bytes by the owner's virtual address instead of by offset.
    pub(crate) virt_addr: bool,
    /// The domain chooses the keys instead of the caller.
    pub(crate) prov_key: bool,
}

type Keys = RBTree<u32, Arc<Mr>>;

/// A domain on a link.
#[pin_data]
pub(crate) struct Domain {
    fabric: UseRef<Fabric>,
    link: LinkUse,
    directory: DirectoryUse,
    mr_mode: MrMode,
    uses: UseCount,
    #[pin]
    keys: SpinLock<Keys>,
    /// The number of its completion counters.
    comp_cntrs: Atomic<u32>,
    /// The EQ that the domain is bound to, and whether it was bound with KFI_REG_MR.
    #[pin]
    eq: Mutex<Option<(UseRef<Eq>, bool)>>,
    /// Its deferred work and triggered operations.
    work: Arc<WorkQueue>,
    fid: u64,
    _memory: Allowance,
}

impl Domain {
    /// Opens a domain on `link`, which must belong to the fabric's namespace.
    ///
    /// Fails with `EBADF` if the fabric is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(
        fabric: &Arc<Fabric>,
        link: LinkUse,
        mr_mode: MrMode,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let fabric = UseRef::new(fabric.clone())?;
        let directory = DirectoryUse::of(fabric.netns())?;
        let memory = ident
            .budget
            .take_for::<Self>(size_of::<WorkQueue>() + WorkQueue::POOL_BYTES)?;
        let fid = ident.fid;
        let work = WorkQueue::new(ident.owner, ident.budget)?;
        Arc::pin_init(
            pin_init!(Self {
                fabric,
                link,
                directory,
                mr_mode,
                uses: UseCount::new(),
                keys <- new_spinlock!(RBTree::new(), "Domain::keys"),
                comp_cntrs: Atomic::new(0),
                eq <- new_mutex!(None, "Domain::eq"),
                work,
                fid,
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds the domain to an EQ. With `reg_mr`, registration is asynchronous and is reported to
    /// the EQ.
    ///
    /// Fails with `EINVAL` if the domain is bound to an EQ, or the EQ belongs to another fabric;
    /// `EBADF` if the domain or the EQ is closed. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>, reg_mr: bool) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.fabric.arc()) {
            return Err(EINVAL);
        }
        let mut bound = self.eq.lock();
        // Teardown takes this mutex after the domain was marked closed. A use that is added later
        // would never be released.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if bound.is_some() {
            return Err(EINVAL);
        }
        *bound = Some((UseRef::new(eq.clone())?, reg_mr));
        Ok(())
    }

    /// Calls `report` with the EQ for registrations, if there is one. Sleeps.
    pub(super) fn with_mr_eq(&self, report: impl FnOnce(&Eq)) {
        if let Some((eq, true)) = &*self.eq.lock() {
            report(eq);
        }
    }

    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.fabric.arc()
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Its deferred work and triggered operations.
    #[inline]
    pub(super) fn work(&self) -> &Arc<WorkQueue> {
        &self.work
    }

    /// Its identifier for its owner. Does not sleep.
    #[inline]
    pub(crate) fn fid(&self) -> u64 {
        self.fid
    }

    /// The directory in which its endpoints find their peers.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How its memory is addressed.
    pub(crate) fn mr_mode(&self) -> MrMode {
        self.mr_mode
    }

    /// Enters `region` under `requested`, or under a random key. The key is random because a peer
    /// that knows it can access the region.
    ///
    /// Fails with `KFI_ENOKEY` if the key is in use, `ENOMEM`. Sleeps.
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

    /// Removes the region under `key` from the table. Does not sleep.
    pub(super) fn leave_key(&self, key: u32) {
        let region = self.keys.lock().remove_node(&key);
        // This may be the last reference, so it is not dropped under the lock.
        drop(region);
    }

    /// Counts one more completion counter, until [`remove_comp_cntr`](Self::remove_comp_cntr).
    /// Fails with `ENOMEM` if the domain has [`limits::MAX_COMP_CNTR`]. Does not sleep.
    pub(super) fn add_comp_cntr(&self) -> Result {
        let mut now = self.comp_cntrs.load(Relaxed);
        while now < limits::MAX_COMP_CNTR {
            match self.comp_cntrs.cmpxchg(now, now.wrapping_add(1), Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
        Err(ENOMEM)
    }

    /// Counts one completion counter less. Does not sleep.
    pub(super) fn remove_comp_cntr(&self) {
        self.comp_cntrs.fetch_sub(1, Relaxed);
    }

    /// The region under `key`. Does not sleep. Dropping the result may sleep.
    pub(super) fn region(&self, key: u64) -> Option<Arc<Mr>> {
        let key = u32::try_from(key).ok()?;
        self.keys.lock().get(&key).cloned()
    }

    /// Counts that a peer was refused access to the domain's memory. Any context.
    pub(super) fn count_refusal(&self) {
        self.link().count(Stat::MrRefused);
    }

    /// Calls `work` inside the region under `key` and returns its result, or [`Refusal::Key`]. Does
    /// not sleep if `work` does not. If the region is closed meanwhile, a worker releases its
    /// memory.
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
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.end_work();
        let eq = self.eq.lock().take();
        drop(eq);
        self.link.release();
        self.fabric.release();
    }
}
