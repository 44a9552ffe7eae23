// SPDX-License-Identifier: GPL-2.0

//! Fast registration: memory regions whose memory changes by work requests.
//!
//! A kernel caller gives such a region memory in two steps:
//!
//! 1. It maps pages ([`FastMr::map_pages`]), where it may not sleep. No one can access them yet.
//! 2. A work request registers them ([`Mr::register`]): the region grants them, with a key whose
//!    lower 8 bits the caller has chosen.
//!
//! A work request of the owner ([`Mr::invalidate`]) or a message of the peer
//! ([`Mr::invalidate_by_peer`]) ends the grant. It waits for the accesses of peers that have begun.
//! They are made by tasks of the owner's user that copy at most a packet and hold no lock that an
//! invalidation is called with.
//!
//! A region has two lists of pages, so that the caller can map pages while the region still grants
//! others: it posts the invalidation, the registration and the operation for the peer in one list.
//! The list that is granted is not changed. So nothing else may keep a reference to it: a work
//! request that names the region by its local key gets a list of its own ([`detached`]).
//!
//! # Locks
//!
//! `changing` (a mutex), then `Mr::live` or `unused`, which are leaves. `unused` is taken in any
//! context but NMIs.

use core::slice;

use kernel::{
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Mutex,
        SpinLockIrq, //
    },
    types::ForeignOwnable, //
};

use super::{
    code,
    context::Context,
    declared,
    keys::{
        BadKey,
        Rights, //
    },
    mr::{
        pd_of,
        registered,
        Grant,
        Mr,
        OwnedMr, //
    },
    raw::{
        self,
        kfabric_verbs_mr,
        kfabric_verbs_pd, //
    }, //
};
use crate::{
    mem::{
        page_list::{
            detached,
            PageList, //
        },
        MemRef, //
    },
    provider::drain::Drained,
    shim::{
        reclaim::NoIo,
        wait::Signals, //
    }, //
};

/// The most pages of a region.
pub(super) const MAX_PAGES: u32 = raw::KFABRIC_VERBS_MAX_PAGES;

/// Where the pages are that were mapped last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// There are none: nothing was mapped, or the last attempt has failed.
    Nowhere,
    /// In `UnusedLists::next`: a registration takes them.
    Mapped,
    /// In the list that the region grants. When that ends, a registration may grant them again.
    Granted,
}

/// The lists that the region does not grant.
struct UnusedLists {
    /// The list that pages are mapped to.
    next: Option<PageList>,
    /// The other one, when neither is granted.
    other: Option<PageList>,
    last: Last,
}

/// The part of a region that only fast registration needs.
#[pin_data]
pub(super) struct FastMr {
    max_pages: usize,
    /// Held while the grant changes.
    #[pin]
    pub(super) changing: Mutex<()>,
    #[pin]
    unused: SpinLockIrq<UnusedLists>,
}

impl FastMr {
    /// Lists for `max_pages` pages. Fails with `EINVAL` for none or for more than [`MAX_PAGES`];
    /// `ENOMEM`. Sleeps.
    pub(super) fn new(max_pages: u32) -> Result<Pin<KBox<Self>>> {
        if max_pages == 0 || max_pages > MAX_PAGES {
            return Err(EINVAL);
        }
        let max_pages = max_pages as usize;
        let unused = UnusedLists {
            next: Some(PageList::new(max_pages)?),
            other: Some(PageList::new(max_pages)?),
            last: Last::Nowhere,
        };
        KBox::pin_init(
            pin_init!(Self {
                max_pages,
                changing <- new_mutex!((), "FastMr::changing"),
                unused <- new_spinlock_irq!(unused, "FastMr::unused"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Bytes of the lists for `max_pages` pages, including the array of addresses in
    /// `kfabric_ib.ko`.
    pub(super) fn bytes(max_pages: u32) -> usize {
        let max_pages = max_pages as usize;
        let lists = PageList::bytes(max_pages).saturating_mul(2);
        let addresses = size_of::<u64>().saturating_mul(max_pages);
        lists
            .saturating_add(addresses)
            .saturating_add(size_of::<Self>())
    }

    /// Maps pages: the next registration grants `len` bytes from byte `offset` of the first one on.
    /// Each page has `page_size` bytes from its address on. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL`: too many pages, no bytes, or bytes that the pages do not have. Then nothing can be
    /// registered until pages are mapped; what the region grants stays.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, and may be read and written, while the region grants them and while a
    /// work request that names them has not completed.
    pub(super) unsafe fn map_pages(
        &self,
        pages: &[u64],
        page_size: u32,
        offset: u32,
        len: u64,
    ) -> Result {
        let mut unused = self.unused.lock();
        unused.last = Last::Nowhere;
        if pages.len() > self.max_pages {
            return Err(EINVAL);
        }
        // The region has ended if there is none.
        let next = unused.next.as_mut().ok_or(EINVAL)?;
        // SAFETY: By the requirement above.
        unsafe { next.set(pages, page_size, offset, len)? };
        unused.last = Last::Mapped;
        Ok(())
    }

    /// Takes the list with the pages that were mapped last.
    fn take(&self) -> Option<PageList> {
        let mut unused = self.unused.lock();
        if unused.last != Last::Mapped {
            return None;
        }
        unused.last = Last::Granted;
        let other = unused.other.take();
        core::mem::replace(&mut unused.next, other)
    }

    /// Puts a list back. Its pages can be registered again, as with other devices, unless the
    /// caller has mapped others since then, or has tried to.
    fn put(&self, list: PageList) {
        let mut unused = self.unused.lock();
        if unused.last == Last::Granted {
            unused.other = unused.next.replace(list);
            unused.last = Last::Mapped;
        } else {
            unused.other = Some(list);
        }
    }

    /// Drops the lists: nothing is mapped or registered any more. `changing` is held. Process
    /// context.
    pub(super) fn clear(&self) {
        let mut unused = self.unused.lock();
        unused.last = Last::Nowhere;
        let taken = (unused.next.take(), unused.other.take());
        drop(unused);
        drop(taken);
    }
}

impl Mr {
    /// Grants the memory that was mapped, with these rights, under `key`. The first byte has the
    /// address `base`. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// [`BadKey`]: the region is not for fast registration, or grants memory already; nothing was
    /// mapped; the range wraps.
    pub(super) fn register(&self, key: u32, base: u64, rights: Rights) -> Result<(), BadKey> {
        let fast = self.fast().ok_or(BadKey)?;
        let _changing = fast.changing.lock();
        if self.live.lock().is_some() {
            return Err(BadKey);
        }
        let memory = fast.take().ok_or(BadKey)?.into_memory();
        let len = memory.len() as u64;
        if base.checked_add(len).is_none() {
            if let Some(list) = PageList::of_memory(memory) {
                fast.put(list);
            }
            return Err(BadKey);
        }
        *self.live.lock() = Some(Grant {
            key,
            base,
            len,
            rights,
            memory,
        });
        Ok(())
    }

    /// Ends the grant under `key`, for the owner. Waits for the accesses of peers that have begun.
    /// Process context; sleeps.
    ///
    /// # Errors
    ///
    /// [`BadKey`]: the region is not for fast registration, or grants nothing under this key.
    pub(super) fn invalidate(&self, key: u32) -> Result<(), BadKey> {
        self.invalidate_if(|grant| grant.key == key)
    }

    /// As [`invalidate`](Self::invalidate), for the peer. Fails also if the region grants nothing
    /// to peers.
    pub(super) fn invalidate_by_peer(&self, key: u32) -> Result<(), BadKey> {
        self.invalidate_if(|grant| grant.key == key && grant.rights.has_remote())
    }

    fn invalidate_if(&self, allowed: impl Fn(&Grant) -> bool) -> Result<(), BadKey> {
        let fast = self.fast().ok_or(BadKey)?;
        let _changing = fast.changing.lock();
        let grant = {
            let mut live = self.live.lock();
            if !live.as_ref().is_some_and(allowed) {
                return Err(BadKey);
            }
            live.take()
        };
        self.drain().shut();
        // No signal ends this wait.
        let _ = self.drain().wait(Signals::None);
        self.drain().reopen();
        // Only accesses had further references, and all have ended.
        if let Some(list) = grant.and_then(|grant| PageList::of_memory(grant.memory)) {
            fast.put(list);
        }
        Ok(())
    }

    /// A reference to memory of a grant, for a work request of the owner. It stays valid when the
    /// grant ends. Its list is charged to the owner. `None` if there is no memory for the list.
    /// Process context; sleeps.
    pub(super) fn lasting(&self, context: &Context, memory: &MemRef) -> Option<MemRef> {
        // The caller may be a part of memory reclaim, a storage driver for example.
        let _no_io = NoIo::enter();
        let list = || {
            // SAFETY: The kernel caller keeps the memory of a work request until that has
            // completed, as `FastMr::map_pages` requires.
            unsafe { detached(memory) }
        };
        let memory = context.memcg().charge(list).ok()?;
        memory.charge_lists(context.budget()).ok()?;
        Some(memory)
    }
}

declared! {
    kfabric_verbs_mr_fast: fn(*mut kfabric_verbs_pd, u32, *mut u32) -> *mut kfabric_verbs_mr;
    kfabric_verbs_mr_map: fn(*mut kfabric_verbs_mr, *const u64, u32, u32, u32, u64) -> c_int;
}

/// A region for fast registration of at most `max_pages` pages, and its key. Fails as
/// [`OwnedMr::fast`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_fast(
    pd: *mut kfabric_verbs_pd,
    max_pages: u32,
    key: *mut u32,
) -> *mut kfabric_verbs_mr {
    // SAFETY: By the requirement above.
    unsafe { registered(OwnedMr::fast(&pd_of(pd), max_pages), key) }
}

/// Maps pages to a region for fast registration. Fails as [`FastMr::map_pages`]; `EINVAL` for
/// another region. Any context.
///
/// # Safety
///
/// The arguments are valid by the interface: there are `count` addresses at `pages`, and the bytes
/// stay mapped as [`FastMr::map_pages`] requires.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mr_map(
    mr: *mut kfabric_verbs_mr,
    pages: *const u64,
    count: u32,
    page_size: u32,
    offset: u32,
    len: u64,
) -> c_int {
    // SAFETY: By the requirement above.
    let (region, pages) = unsafe {
        (
            KBox::<OwnedMr>::borrow(mr.cast()),
            slice::from_raw_parts(pages, count as usize),
        )
    };
    let Some(fast) = region.mr().fast() else {
        return EINVAL.to_errno();
    };
    // SAFETY: By the requirement above.
    code(unsafe { fast.map_pages(pages, page_size, offset, len) })
}
