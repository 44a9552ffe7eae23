// SPDX-License-Identifier: GPL-2.0

//! One open file of `/dev/kfabric`: its owner, and the handles of its objects.
//!
//! Calls on one file may run in parallel. They share the table of handles and the objects, which
//! have their own locks. The file belongs to no network namespace: calls that look for links look
//! in the caller's namespace, and a fabric belongs to the namespace in which it was opened.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    handles::Table,
    objects::{
        Entry,
        Named, //
    },
    teardown, //
};
use crate::{
    mem::Budget,
    provider::object::Ident,
    shim::{
        bindings::KFABRIC_MAX_HANDLES,
        cred::Owner, //
    }, //
};

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
    pub(super) fn open() -> Result<Pin<KBox<Self>>> {
        let owner = Owner::current()?;
        let budget = Budget::current()?;
        KBox::pin_init(
            try_pin_init!(Self {
                owner,
                budget,
                handles <- Table::new(KFABRIC_MAX_HANDLES),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The handles.
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
    fn drop(self: Pin<&mut Self>) {
        teardown::all(&self.handles);
    }
}
