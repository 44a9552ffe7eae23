// SPDX-License-Identifier: GPL-2.0

//! MR: memory regions of programs, of DMA-BUFs, of all memory of the kernel, and for fast
//! registration.
//!
//! An [`Mr`] is what the table of keys has. It has a lock around what it grants ([`Grant`]), so
//! that a region can grant other memory later, or none (see [`fast_mr`](super::fast_mr)). An
//! [`OwnedMr`] is what its owner has, and ends the region when it is dropped:
//!
//! 1. The region leaves the table of its PD, and grants nothing.
//! 2. The drop waits for accesses of peers that have begun ([`Access`]). They are made by runs for
//!    the user of the PD only, so that the end of a process waits for no other user.
//! 3. It releases the memory. Work requests that were posted with it have references of their own
//!    and keep it until they have completed.
//!
//! After the second step an `Mr` has nothing whose release could sleep. So the last reference to it
//! can be dropped in any context.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLock, //
    },
    types::ForeignOwnable, //
};

use super::{
    context::Context,
    declared,
    fast_mr::{
        FastMr,
        MAX_PAGES, //
    },
    handle,
    keys::{
        self,
        Access,
        Rights, //
    },
    pd::Pd,
    raw::{
        self,
        kfabric_verbs_mr,
        kfabric_verbs_pd, //
    }, //
};
use crate::{
    mem::{
        self,
        consumer,
        dma_buf::DmaBuf,
        Allowance,
        MemRef,
        Pinned,
        UserRange, //
    },
    provider::drain::{
        Drain,
        Drained,
        Inside, //
    },
    shim::{
        random::random_u32,
        wait::Signals, //
    }, //
};

/// The most bytes of a region of a program.
pub(super) const MAX_MR_SIZE: u64 = raw::KFABRIC_VERBS_MAX_MR_SIZE;

/// What a region grants.
pub(super) struct Grant {
    /// The whole key.
    pub(super) key: u32,
    /// The address of the first byte, for the owner and for peers.
    pub(super) base: u64,
    /// Bytes. The end of the region does not wrap.
    pub(super) len: u64,
    pub(super) rights: Rights,
    pub(super) memory: MemRef,
}

impl Grant {
    /// The part of the memory for an access, if it is allowed.
    fn part(&self, key: u32, addr: u64, len: u64, need: Rights) -> Option<MemRef> {
        if key != self.key || !self.rights.contains(need) {
            return None;
        }
        let offset = addr.checked_sub(self.base)?;
        let behind = self.len.checked_sub(offset)?;
        (len <= behind).then(|| self.memory.slice(offset as usize, len as usize))
    }
}

/// A memory region, as the table of keys has it.
#[pin_data]
pub(super) struct Mr {
    /// What it grants now. A leaf.
    #[pin]
    pub(super) live: SpinLock<Option<Grant>>,
    /// The accesses of peers.
    #[pin]
    drain: Drain,
    /// For fast registration. Without lists when the region has ended.
    fast: Option<Pin<KBox<FastMr>>>,
}

impl Drained for Mr {
    fn drain(&self) -> &Drain {
        &self.drain
    }
}

impl Mr {
    /// A region that grants nothing.
    fn new(fast: Option<Pin<KBox<FastMr>>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                live <- new_spinlock!(None, "Mr::live"),
                drain <- Drain::new(),
                fast,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What it has for fast registration. Any context.
    pub(super) fn fast(&self) -> Option<&FastMr> {
        self.fast.as_deref()
    }

    fn part(&self, key: u32, addr: u64, len: u64, need: Rights) -> Option<MemRef> {
        self.live.lock().as_ref()?.part(key, addr, len, need)
    }

    /// The memory for an access of the owner. See [`Pd::local`].
    pub(super) fn local(
        self: Arc<Self>,
        context: &Context,
        key: u32,
        addr: u64,
        len: u64,
        need: Rights,
    ) -> Option<MemRef> {
        if self.fast.is_none() {
            return self.part(key, addr, len, need);
        }
        let access = self.clone().enter(key, addr, len, need)?;
        self.lasting(context, access.memory())
    }

    /// Enters it for an access of a peer. See [`Pd::enter`].
    pub(super) fn enter(
        self: Arc<Self>,
        key: u32,
        addr: u64,
        len: u64,
        need: Rights,
    ) -> Option<Access> {
        let inside = Inside::enter(self.clone())?;
        // The end of the region waits from here on, so this is not the last reference to the
        // memory.
        let memory = self.part(key, addr, len, need)?;
        Some(Access::new(memory, inside))
    }
}

/// The charges for a region.
struct Charges {
    _object: Allowance,
    /// For the mapping of a DMA-BUF, or the lists for fast registration.
    _more: Option<Allowance>,
}

impl Charges {
    /// Charges the user of `pd` for the region itself. Fails with `ENOMEM`.
    fn new(pd: &Pd, more: Option<Allowance>) -> Result<Self> {
        let budget = pd.context().budget();
        Ok(Self {
            _object: budget.take_for::<Mr>(size_of::<OwnedMr>())?,
            _more: more,
        })
    }
}

/// A region, as its owner has it. Dropping it ends the region, and sleeps until accesses of peers
/// that have begun are over. Process context.
pub(super) struct OwnedMr {
    pd: Arc<Pd>,
    mr: Arc<Mr>,
    number: u32,
    key: u32,
    _charges: Charges,
}

impl OwnedMr {
    /// A region of `len` bytes at `base`, which are those of `memory`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`, also if the lists of the memory exceed the user's memory of the kernel.
    fn new(
        pd: &Arc<Pd>,
        base: u64,
        len: u64,
        rights: Rights,
        memory: MemRef,
        charges: Charges,
    ) -> Result<KBox<Self>> {
        memory.charge_lists(pd.context().budget())?;
        let owned = Self::without_memory(pd, None, charges)?;
        *owned.mr.live.lock() = Some(Grant {
            key: owned.key,
            base,
            len,
            rights,
            memory,
        });
        Ok(owned)
    }

    /// A region that grants nothing. Fails with `ENOMEM`.
    fn without_memory(
        pd: &Arc<Pd>,
        fast: Option<Pin<KBox<FastMr>>>,
        charges: Charges,
    ) -> Result<KBox<Self>> {
        let mr = Mr::new(fast)?;
        let number = pd.keys().add(&mr)?;
        let key = keys::key(number, random_u32());
        let owned = Self {
            pd: pd.clone(),
            mr,
            number,
            key,
            _charges: charges,
        };
        Ok(KBox::new(owned, GFP_KERNEL_ACCOUNT)?)
    }

    /// A region of `len` bytes at `start` of the current process, which have the addresses from
    /// `base` on.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no bytes, or more than [`MAX_MR_SIZE`]; the range wraps at `start` or `base`;
    ///   the owner may not write what peers change.
    /// - `EOPNOTSUPP`: an unknown right.
    /// - `EFAULT`: an address is not mapped, may not be written, or cannot be pinned.
    /// - `ENOMEM`: `RLIMIT_MEMLOCK` would be exceeded, or the user's memory of the kernel
    ///   (`user_memory`); no memory.
    /// - `EINTR`: the process is being killed.
    pub(super) fn user(
        pd: &Arc<Pd>,
        start: u64,
        len: u64,
        base: u64,
        bits: u32,
    ) -> Result<KBox<Self>> {
        let rights = Rights::of_region(bits)?;
        check_range(base, len)?;
        let charges = Charges::new(pd, None)?;
        let range = UserRange { addr: start, len };
        let pinned = Pinned::up_to(MAX_MR_SIZE as usize, &[range], mem_access(rights))?;
        Self::new(pd, base, len, rights, MemRef::pinned(pinned), charges)
    }

    /// A region of `len` bytes at `offset` of the DMA-BUF of descriptor `fd` of the current
    /// process, which have the addresses from `base` on. CPU access to the DMA-BUF begins here, and
    /// ends with the last reference to its memory.
    ///
    /// # Errors
    ///
    /// As [`user`](Self::user) without `EFAULT` and `EINTR`, and
    ///
    /// - `EBADF`: the descriptor is not open.
    /// - `EINVAL`: the descriptor is not that of a DMA-BUF, or the range is outside the DMA-BUF.
    /// - `EACCES`: the DMA-BUF may not be written.
    /// - `EOPNOTSUPP`: its exporter does not map it for the CPU.
    /// - The error of the exporter.
    pub(super) fn dma_buf(
        pd: &Arc<Pd>,
        fd: i32,
        offset: u64,
        len: u64,
        base: u64,
        bits: u32,
    ) -> Result<KBox<Self>> {
        let rights = Rights::of_region(bits)?;
        check_range(base, len)?;
        let access = mem_access(rights);
        let budget = pd.context().budget();
        let (dma_buf, mapping) = DmaBuf::of_fd(fd, offset as usize, len as usize, access, budget)?;
        Self::of_dma_buf(pd, &dma_buf, base, rights, Some(mapping))
    }

    /// A region of a mapped DMA-BUF, whose addresses begin at `base`. `mapping` is the charge for
    /// the mapping.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    /// - The error of the exporter.
    pub(super) fn of_dma_buf(
        pd: &Arc<Pd>,
        dma_buf: &Arc<DmaBuf>,
        base: u64,
        rights: Rights,
        mapping: Option<Allowance>,
    ) -> Result<KBox<Self>> {
        let charges = Charges::new(pd, mapping)?;
        let memory = dma_buf.open(0, dma_buf.len(), mem_access(rights))?;
        let len = memory.len() as u64;
        Self::new(pd, base, len, rights, memory, charges)
    }

    /// A region of all memory of the kernel: the byte at a kernel virtual address has that address,
    /// but for the last one.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the PD is a program's; the owner may not write what peers change.
    /// - `EOPNOTSUPP`: an unknown right.
    /// - `ENOMEM`.
    pub(super) fn all(pd: &Arc<Pd>, bits: u32) -> Result<KBox<Self>> {
        if pd.context().is_program() {
            return Err(EINVAL);
        }
        let rights = Rights::of_region(bits)?;
        let charges = Charges::new(pd, None)?;
        // SAFETY: The key is known to kernel callers only, which keep what they name by an SGE
        // mapped until the work request has completed. A caller that grants rights to peers
        // (`IB_PD_UNSAFE_GLOBAL_RKEY`) trusts them with all memory.
        let memory = unsafe { consumer::kernel_space()? };
        let len = memory.len() as u64;
        Self::new(pd, 0, len, rights, memory, charges)
    }

    /// A region for fast registration of at most `max_pages` pages. It grants nothing until a work
    /// request registers memory under a key with the upper 24 bits of this one's.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the PD is a program's; no pages, or more than [`MAX_PAGES`].
    /// - `ENOMEM`.
    pub(super) fn fast(pd: &Arc<Pd>, max_pages: u32) -> Result<KBox<Self>> {
        if pd.context().is_program() {
            return Err(EINVAL);
        }
        let lists = FastMr::bytes(max_pages.min(MAX_PAGES)) as u64;
        let lists = pd.context().budget().take(lists)?;
        let charges = Charges::new(pd, Some(lists))?;
        Self::without_memory(pd, Some(FastMr::new(max_pages)?), charges)
    }

    /// The region, as the table of keys has it. Any context.
    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Its local and remote key. Any context.
    pub(super) fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for OwnedMr {
    fn drop(&mut self) {
        self.pd.keys().remove(self.number);
        let fast = self.mr.fast();
        // A work request or a peer may be changing the grant.
        let _changing = fast.map(|fast| fast.changing.lock());
        let grant = self.mr.live.lock().take();
        self.mr.drain.shut();
        // No signal ends this wait.
        let _ = self.mr.drain.wait(Signals::None);
        drop(grant);
        if let Some(fast) = fast {
            fast.clear();
        }
    }
}

/// Checks the addresses of a region of a program. Fails with `EINVAL`.
fn check_range(base: u64, len: u64) -> Result {
    if len == 0 || len > MAX_MR_SIZE {
        return Err(EINVAL);
    }
    base.checked_add(len).ok_or(EINVAL)?;
    Ok(())
}

/// The access for which memory with these rights is pinned. Peers change only what the owner may
/// write.
fn mem_access(rights: Rights) -> mem::Access {
    match rights.contains(Rights::LOCAL_WRITE) {
        true => mem::Access::Write,
        false => mem::Access::Read,
    }
}

/// The handle of a new region, whose key is stored at `key`.
///
/// # Safety
///
/// `key` is valid for a write.
pub(super) unsafe fn registered(
    region: Result<KBox<OwnedMr>>,
    key: *mut u32,
) -> *mut kfabric_verbs_mr {
    if let Ok(region) = &region {
        // SAFETY: By the requirement above.
        unsafe { key.write(region.key()) };
    }
    handle(region)
}

/// The PD of a handle.
///
/// # Safety
///
/// The handle is valid by the interface.
pub(super) unsafe fn pd_of(pd: *mut kfabric_verbs_pd) -> Arc<Pd> {
    // SAFETY: By the requirement above.
    let pd: ArcBorrow<'_, Pd> = unsafe { Arc::<Pd>::borrow(pd.cast()) };
    pd.into()
}

declared! {
    kfabric_verbs_mr_user: fn(*mut kfabric_verbs_pd, u64, u64, u64, u32, *mut u32)
        -> *mut kfabric_verbs_mr;
    kfabric_verbs_mr_dma_buf: fn(*mut kfabric_verbs_pd, c_int, u64, u64, u64, u32, *mut u32)
        -> *mut kfabric_verbs_mr;
    kfabric_verbs_mr_dma: fn(*mut kfabric_verbs_pd, u32, *mut u32) -> *mut kfabric_verbs_mr;
    kfabric_verbs_mr_free: fn(*mut kfabric_verbs_mr);
}

/// A region of memory of the current process, and its key. Fails as [`OwnedMr::user`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_user(
    pd: *mut kfabric_verbs_pd,
    start: u64,
    len: u64,
    iova: u64,
    access: u32,
    key: *mut u32,
) -> *mut kfabric_verbs_mr {
    // SAFETY: By the requirement above.
    unsafe { registered(OwnedMr::user(&pd_of(pd), start, len, iova, access), key) }
}

/// A region of memory of a DMA-BUF of the current process, and its key. Fails as
/// [`OwnedMr::dma_buf`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_dma_buf(
    pd: *mut kfabric_verbs_pd,
    fd: c_int,
    offset: u64,
    len: u64,
    iova: u64,
    access: u32,
    key: *mut u32,
) -> *mut kfabric_verbs_mr {
    // SAFETY: By the requirement above.
    unsafe {
        registered(
            OwnedMr::dma_buf(&pd_of(pd), fd, offset, len, iova, access),
            key,
        )
    }
}

/// A region of all memory of the kernel, and its key. Fails as [`OwnedMr::all`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_dma(
    pd: *mut kfabric_verbs_pd,
    access: u32,
    key: *mut u32,
) -> *mut kfabric_verbs_mr {
    // SAFETY: By the requirement above.
    unsafe { registered(OwnedMr::all(&pd_of(pd), access), key) }
}

/// Ends a region. Sleeps until accesses of peers that have begun are over.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_free(mr: *mut kfabric_verbs_mr) {
    // SAFETY: By the requirement above.
    drop(unsafe { KBox::<OwnedMr>::from_foreign(mr.cast()) });
}
