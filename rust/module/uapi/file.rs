// SPDX-License-Identifier: GPL-2.0

//! The device node `/dev/kfabric`, and its open files.
//!
//! The kernel creates the node with mode 0600 and owner root. The administrator gives other users
//! access by mode and group (a udev rule such as `KERNEL=="kfabric", GROUP="rdma", MODE="0660"`, or
//! chmod(1)). A user with access can do everything with their own objects and nothing with those of
//! others; adding and removing links also requires `CAP_NET_ADMIN`.
//!
//! Calls on one file may run in parallel. They share the table of handles and the objects, which
//! have their own locks. The file belongs to no network namespace: calls that look for links look
//! in the caller's namespace, and a fabric belongs to the namespace in which it was opened.
//!
//! The structures of the interface are the same for 32-bit programs, so one handler serves both.
//! The node has no poll operation: wait objects have their own descriptors (`KFABRIC_IOC_GETWAIT`).
//! The module cannot be unloaded while a file is open.
//!
//! # Mappings
//!
//! mmap(2) maps the ring of a CQ (read and write) or the values of a counter or a completion
//! counter (read-only). The offset selects the object: each handle has its own range of offsets, so
//! an offset needs no allocation and reveals nothing. Offsets are below 2^44, which 32-bit programs
//! can still pass.
//!
//! ```text
//!   44            24          0
//!    |   handle    |     0    |
//! ```
//!
//! # Release
//!
//! A file is released when the last reference to it is dropped: by close(2), by exit, or by a kill
//! at any moment. No call runs on the file any more and it has no mappings, because each holds a
//! reference to the file. Other tasks may still use its objects: peers that send to an endpoint or
//! access a region, and pollers of a descriptor from `KFABRIC_IOC_GETWAIT`, which outlives the
//! file. `object::force_close` lets no further operation of a peer begin, and pollers find the
//! object closed.
//!
//! Objects are closed before the objects that they use ([`Class::IN_ORDER`]), so nothing new refers
//! to a closed one. The time is bounded: one walk over a table of at most 65535 handles to announce
//! the end, and one for each class. No close waits for a task of another user: a peer that is
//! copying goes on, with references to the objects that it uses
//! ([`object`](crate::provider::object)). An endpoint disconnects from peers on other hosts, which
//! may not answer, and waits for them for a bounded time. So all endpoints begin to disconnect
//! before the first one waits.

use kernel::{
    fs::File,
    miscdevice::{
        MiscDevice,
        MiscDeviceOptions,
        MiscDeviceRegistration, //
    },
    mm::virt::VmaNew,
    page::PAGE_SHIFT, //
};

use super::{
    dispatch::dispatch,
    handles::Table,
    objects::{
        Class,
        Entry,
        Named, //
    },
    prelude::*, //
};
use crate::{
    mem::{
        Budget,
        MapAccess, //
    },
    shim::{
        bindings::KFABRIC_MAX_HANDLES,
        cred::Owner,
        reclaim::OwnerKind,
        sched::cond_resched, //
    }, //
};

/// Bits of an offset below the handle. The largest ring, 65536 entries of 64 bytes and its head, is
/// smaller than 2^24 bytes.
const WINDOW_BITS: u32 = 24;

/// Handles that are checked between two calls of `cond_resched()`.
const STRIDE: u32 = 1024;

/// An open file of the device.
#[pin_data(PinnedDrop)]
pub(crate) struct OpenFile {
    owner: Arc<Owner>,
    budget: Budget,
    #[pin]
    handles: Table<Entry>,
}

impl OpenFile {
    /// A file opened by the current process. Fails with `ENOMEM`. Sleeps.
    fn new() -> Result<Pin<KBox<Self>>> {
        let owner = Owner::current(OwnerKind::Program)?;
        let budget = Budget::current(OwnerKind::Program)?;
        KBox::pin_init(
            try_pin_init!(Self {
                owner,
                handles <- Table::new(KFABRIC_MAX_HANDLES, budget.clone()),
                budget,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn handles(&self) -> &Table<Entry> {
        &self.handles
    }

    /// The object that `handle` names. Fails with `EBADF` if there is none. Does not sleep.
    #[inline]
    pub(super) fn entry(&self, handle: u32) -> Result<Entry> {
        self.handles.get(handle).ok_or(EBADF)
    }

    /// The object of class `T` that `handle` names. Fails with `EBADF` if there is none, or if it
    /// is of another class. Does not sleep.
    #[inline]
    pub(super) fn object<T: Named>(&self, handle: u32) -> Result<Arc<T>> {
        T::from_entry(self.entry(handle)?).ok_or(EBADF)
    }

    /// As [`object`](Self::object); `None` if `handle` is 0.
    pub(super) fn optional<T: Named>(&self, handle: u32) -> Result<Option<Arc<T>>> {
        if handle == 0 {
            return Ok(None);
        }
        self.object(handle).map(Some)
    }

    /// The identity of an object with this handle and context.
    pub(super) fn ident(&self, handle: u32, context: u64) -> Ident {
        Ident {
            fid: u64::from(handle),
            context,
            owner: self.owner.clone(),
            budget: self.budget.clone(),
        }
    }
}

#[pinned_drop]
impl PinnedDrop for OpenFile {
    /// Closes all objects, in order of dependence. Sleeps.
    fn drop(self: Pin<&mut Self>) {
        let bound = self.handles.bound();
        for handle in 1..=bound {
            if handle % STRIDE == 0 {
                cond_resched();
            }
            if let Some(entry) = self.handles.get(handle) {
                entry.farewell();
            }
        }
        for &class in Class::IN_ORDER {
            for handle in 1..=bound {
                if handle % STRIDE == 0 {
                    cond_resched();
                }
                match self.handles.get(handle) {
                    Some(entry) if entry.class() == class => {
                        entry.force_close();
                        self.handles.remove(handle);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The offset at which the memory of the object `handle` is mapped.
pub(super) fn offset_of(handle: u64) -> u64 {
    handle << WINDOW_BITS
}

/// Registers the node. It is removed when the registration is dropped.
pub(crate) fn register() -> impl PinInit<MiscDeviceRegistration<OpenFile>, Error> {
    MiscDeviceRegistration::register(MiscDeviceOptions { name: c"kfabric" })
}

#[vtable]
impl MiscDevice for OpenFile {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, _device: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        Self::new()
    }

    #[link_section = ".text.hot"]
    fn ioctl(me: Pin<&Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        dispatch(&me, cmd, UserPtr::from_addr(arg)).map(|()| 0)
    }

    /// Maps the memory that the offset of `vma` selects, from its first byte.
    ///
    /// Fails with `EINVAL` if the offset selects no object that can be mapped, if the mapping is
    /// longer than its memory, or if the mapping of a CQ is not shared; `EACCES` if the mapping is
    /// executable, or writable for a counter. Process context, with the caller's `mmap_lock` held.
    fn mmap(me: Pin<&Self>, _file: &File, vma: &VmaNew) -> Result {
        // SAFETY: `vma` is a valid area that is being created, and nothing else uses it yet.
        let pages = unsafe { (*vma.as_ptr()).vm_pgoff } as u64;
        let window = WINDOW_BITS - PAGE_SHIFT as u32;
        let handle = u32::try_from(pages >> window).map_err(|_| EINVAL)?;
        if pages & ((1 << window) - 1) != 0 {
            return Err(EINVAL);
        }
        match me.entry(handle).map_err(|_| EINVAL)? {
            Entry::Cq(cq) => cq.ring().map(vma, MapAccess::ReadWrite),
            Entry::Cntr(cntr) => cntr.page().map(vma, MapAccess::ReadOnly),
            Entry::CompCntr(cntr) => cntr.page().map(vma, MapAccess::ReadOnly),
            _ => Err(EINVAL),
        }
    }
}
