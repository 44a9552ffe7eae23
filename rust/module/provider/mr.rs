// SPDX-License-Identifier: GPL-2.0

//! Memory region: memory that operations may access, and the accesses that are allowed.
//!
//! A region has memory of any kind ([`Memory`]), the access that it grants, and the address of its
//! first byte for peers. Its key is valid from registration to close. A local operation uses a
//! region to avoid pinning its buffer again. [`Mr::remote`] checks every access of a peer before it
//! touches a byte; no other place does.
//!
//! Closing a region removes its key first, so that no operation can begin. A close by its owner
//! then waits for the operations that are copying: after it has succeeded, no peer accesses the
//! region. After a close by force they continue. Each has a reference to the region, whose pages
//! stay pinned until the last reference is dropped.

use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work,
    WorkItem, //
};

use kfi_core::{
    flags::Access,
    mr::{
        Refusal,
        Region, //
    }, //
};

use super::{
    cntr::Cntr,
    drain::{
        Drain,
        DrainGuard, //
    },
    ep::Endpoint,
    prelude::*, //
};
use crate::{
    mem::{
        self,
        MemRef,
        Memory,
        UserRange, //
    },
    shim::{
        memory::kmalloc_array_size,
        wait::Signals,
        work, //
    }, //
};

/// A memory region of a domain.
#[pin_data]
pub(crate) struct Mr {
    ident: Ident,
    domain: UseRef<Domain>,
    /// Open for access ([`Memory::Open`]) if peers may access the region.
    memory: Memory,
    /// The owner's addresses of the bytes of `memory`, in the same order.
    ranges: KVec<UserRange>,
    region: Region,
    key: SetOnce<u32>,
    uses: UseCount,
    #[pin]
    drain: Drain,
    /// Counters of remote accesses. Set at most once, and read by every remote access.
    remote_read: SetOnce<UseRef<Cntr>>,
    remote_write: SetOnce<UseRef<Cntr>>,
    /// The endpoint that it keeps open. Set at most once.
    endpoint: SetOnce<UseRef<Endpoint>>,
    /// Serialises binding.
    #[pin]
    binding: Mutex<()>,
    /// Drops the last reference. See [`Mr::let_go`].
    #[pin]
    end: Work<Self>,
    _memory: Allowance,
}

impl_has_work! {
    impl HasWork<Self> for Mr { self.end }
}

impl WorkItem for Mr {
    type Pointer = Arc<Self>;

    /// Drops what may be the last reference.
    fn run(_this: Arc<Self>) {}
}

impl Mr {
    /// Registers `memory`, whose bytes have the owner's addresses `ranges`. With rights for peers,
    /// CPU access to DMA-BUFs begins here. The caller calls [`registered`](Self::registered) once
    /// the owner knows the region's handle.
    ///
    /// Fails with `KFI_ENOKEY` if the requested key is in use; `EKEYREJECTED` if it has more than 4
    /// bytes, the size of an RKEY; `EBADF` if the domain is closed; `EACCES` if `access` needs
    /// memory that can be written; `EINVAL` for no bytes or too many, or if `ranges` have another
    /// length; `ENOMEM`, also if the memory's lists exceed the limit of the owner's account; the
    /// error of a DMA-BUF's exporter. Sleeps.
    pub(crate) fn reg(
        domain: &Arc<Domain>,
        memory: impl Into<Memory>,
        ranges: KVec<UserRange>,
        access: Access,
        requested_key: u64,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let mode = domain.mr_mode();
        let requested = if mode.prov_key {
            None
        } else {
            Some(u32::try_from(requested_key).map_err(|_| to_error(Errno::EKEYREJECTED))?)
        };
        let iova = match ranges.first() {
            Some(first) if mode.virt_addr => first.addr,
            _ => 0,
        };
        let memory = memory.into();
        let region = Region::new(iova, memory.len() as u64, access.bits()).map_err(to_error)?;
        let named = ranges.iter().map(|range| range.len);
        if named.fold(0, u64::saturating_add) != region.len() {
            return Err(EINVAL);
        }
        if access.writes_memory() && !memory.writable() {
            return Err(EACCES);
        }
        let domain = UseRef::new(domain.clone())?;
        let list = kmalloc_array_size::<UserRange>(ranges.capacity());
        let bytes = list.saturating_add(memory.mapping_bytes());
        let allowance = ident.budget.take_for::<Self>(bytes)?;
        let memory = if access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE) {
            Memory::Open(memory.open(0, memory.len(), pin_access(access))?)
        } else {
            memory
        };
        // The charge is the memory's, not the region's: operations may keep the memory longer.
        memory.charge_lists(&ident.budget)?;
        let mr = Arc::pin_init(
            try_pin_init!(Self {
                _memory: allowance,
                ident,
                domain,
                memory,
                ranges,
                region,
                key: SetOnce::new(),
                uses: UseCount::new(),
                drain <- Drain::new(),
                remote_read: SetOnce::new(),
                remote_write: SetOnce::new(),
                endpoint: SetOnce::new(),
                binding <- new_mutex!(()),
                end <- new_work!("kfabric::Mr"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let key = mr.domain.enter_key(requested, &mr)?;
        mr.key.populate(key);
        Ok(mr)
    }

    /// Reports KFI_MR_COMPLETE to the EQ for registrations (KFI_REG_MR), if one is bound. A program
    /// can close the region before this is called: then there is no event. Sleeps.
    pub(crate) fn registered(&self) {
        let _binding = self.binding.lock();
        // Teardown takes this mutex after the region was marked closed, and before it removes the
        // events of the region.
        if self.uses.is_closed() {
            return;
        }
        self.domain.with_mr_eq(|eq| eq.mr_complete(&self.ident));
    }

    /// The key that peers use.
    pub(crate) fn key(&self) -> u64 {
        self.key.copy().map_or(u64::MAX, u64::from)
    }

    /// The address of the first byte for peers.
    pub(crate) fn iova(&self) -> u64 {
        self.region.base()
    }

    /// Binds a counter for remote reads, remote writes or both.
    ///
    /// Fails with `EINVAL` if the counter belongs to another domain, or a counter is bound for one
    /// of them already; `EBADF` if the region or the counter is closed. Sleeps.
    pub(crate) fn bind_cntr(&self, cntr: &Arc<Cntr>, read: bool, write: bool) -> Result {
        if !Arc::ptr_eq(cntr.domain(), self.domain.arc()) || !(read || write) {
            return Err(EINVAL);
        }
        let _binding = self.binding.lock();
        // Teardown takes this mutex after the region was marked closed. A use that is added later
        // would never be released.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if (read && self.remote_read.as_ref().is_some())
            || (write && self.remote_write.as_ref().is_some())
        {
            return Err(EINVAL);
        }
        // Both uses are taken before either is set, so that a failure leaves nothing behind.
        let for_read = read.then(|| UseRef::new(cntr.clone())).transpose()?;
        let for_write = write.then(|| UseRef::new(cntr.clone())).transpose()?;
        if let Some(used) = for_read {
            self.remote_read.populate(used);
        }
        if let Some(used) = for_write {
            self.remote_write.populate(used);
        }
        Ok(())
    }

    /// Binds an endpoint, which cannot be closed before the region then. All endpoints of the
    /// domain may use the region in any case.
    ///
    /// Fails with `EINVAL` if the endpoint belongs to another domain, or one is bound already;
    /// `EBADF` if the region or the endpoint is closed. Sleeps.
    pub(crate) fn bind_ep(&self, endpoint: &Arc<Endpoint>) -> Result {
        endpoint.check_domain(self.domain.arc())?;
        let _binding = self.binding.lock();
        // As for a counter.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if self.endpoint.as_ref().is_some() {
            return Err(EINVAL);
        }
        self.endpoint.populate(UseRef::new(endpoint.clone())?);
        Ok(())
    }

    /// Enters the region for the duration of an access to its memory. `None`: it is closing.
    pub(super) fn enter(&self) -> Option<DrainGuard<'_>> {
        self.drain.enter()
    }

    /// Drops a reference where the caller must not sleep. The last reference is dropped by a
    /// worker, because the pages have to be unpinned. Does not sleep.
    pub(super) fn let_go(this: Arc<Self>) {
        if let Some(last) = Arc::into_unique_or_drop(this) {
            // Not refused: this was the last reference, so the work item is not queued already.
            let _ = work::queue().enqueue(Arc::from(last));
        }
    }

    /// The memory at a peer's `addr` and `len`, if the region grants `access` to it.
    ///
    /// See [`Region::check`].
    pub(super) fn remote(
        &self,
        addr: u64,
        len: u64,
        access: Access,
    ) -> core::result::Result<MemRef, Refusal> {
        let offset = self.region.check(addr, len, access)?;
        match &self.memory {
            Memory::Open(memory) => Ok(memory.slice(offset as usize, len as usize)),
            // Unreachable: the memory is open if the region grants a right to peers.
            _ => Err(Refusal::Rights),
        }
    }

    /// The `len` bytes at the owner's address `addr`, for a local operation that needs `access`.
    ///
    /// The result keeps the memory, not the region: closing the region does not wait for local
    /// operations that were posted with it. CPU access to a DMA-BUF begins here, and ends when the
    /// operation drops the result.
    ///
    /// Fails with `EACCES` if the region does not grant the access; `EINVAL` if the bytes are not
    /// within one of the region's ranges; the error of a DMA-BUF's exporter; `ENOMEM`. Sleeps.
    pub(crate) fn local(&self, addr: u64, len: u64, access: Access) -> Result<MemRef> {
        let mut before = 0u64;
        for range in self.ranges.iter() {
            let Some(offset) = addr.checked_sub(range.addr) else {
                before = before.wrapping_add(range.len);
                continue;
            };
            if offset <= range.len && len <= range.len.wrapping_sub(offset) {
                let at = self.region.base().wrapping_add(before).wrapping_add(offset);
                let offset = self
                    .region
                    .check(at, len, access)
                    .map_err(|refusal| to_error(refusal.errno()))?;
                return self
                    .memory
                    .open(offset as usize, len as usize, pin_access(access));
            }
            before = before.wrapping_add(range.len);
        }
        Err(EINVAL)
    }

    /// Counts a remote access of this region.
    pub(super) fn count(&self, write: bool) {
        let cntr = if write {
            &self.remote_write
        } else {
            &self.remote_read
        };
        if let Some(cntr) = cntr.as_ref() {
            cntr.add(1);
        }
    }
}

/// The access for which memory is pinned when an operation or a peer gets `access` to it.
pub(crate) fn pin_access(access: Access) -> mem::Access {
    if access.writes_memory() {
        mem::Access::Write
    } else {
        mem::Access::Read
    }
}

impl Object for Mr {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn shut(&self) {
        // Only on the first call. Another region may have the key afterwards.
        if self.drain.shut() {
            if let Some(key) = self.key.copy() {
                self.domain.leave_key(key);
            }
        }
    }

    fn wait(&self, signals: Signals) -> Result {
        self.drain.wait(signals)
    }

    fn teardown(&self) {
        let _binding = self.binding.lock();
        for cntr in [&self.remote_read, &self.remote_write] {
            if let Some(used) = cntr.as_ref() {
                used.release();
            }
        }
        if let Some(used) = self.endpoint.as_ref() {
            used.release();
        }
        self.domain
            .with_mr_eq(|eq| eq.remove_events_of(&self.ident));
        self.domain.release();
    }
}
