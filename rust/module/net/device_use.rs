// SPDX-License-Identifier: GPL-2.0

//! The use of a link by a device of the RDMA subsystem.
//!
//! A link has at most one such device. Like a domain, it keeps commands from removing the link. It
//! counts as a domain in listings.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

use super::{
    link::{
        Link,
        LinkUse, //
    },
    table, //
};

/// Whether a link has a device. A leaf of [`Link`].
pub(super) struct DeviceSlot(Atomic<bool>);

impl DeviceSlot {
    /// Without a device.
    pub(super) fn new() -> Self {
        Self(Atomic::new(false))
    }
}

/// A device's use of a link, until it is dropped, which sleeps and takes the RTNL.
pub(crate) struct DeviceUse {
    link: LinkUse,
    /// Remove the link with the device.
    remove: bool,
}

impl DeviceUse {
    /// Uses a link. Fails with `EEXIST` if it has a device, `ENODEV` if it has gone, `EBUSY` if the
    /// number of its domains would overflow. Does not sleep.
    pub(crate) fn of(link: &Arc<Link>) -> Result<Self> {
        if link.device().0.xchg(true, Full) {
            return Err(EEXIST);
        }
        let opened = link.open().inspect_err(|_| {
            link.device().0.xchg(false, Full);
        });
        Ok(Self {
            link: opened?,
            remove: false,
        })
    }

    /// Uses a link that was added for the device, and is removed with it unless domains are open on
    /// it then. Fails as [`of`](Self::of), and removes the link. Sleeps; takes the RTNL.
    pub(crate) fn of_new(link: Arc<Link>) -> Result<Self> {
        let mut device = Self::of(&link).inspect_err(|_| table::remove_unused(&link))?;
        device.remove = true;
        Ok(device)
    }
}

impl core::ops::Deref for DeviceUse {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.link.release();
        if self.remove {
            table::remove_unused(&self.link);
        }
        // Last: another device finds this link only after it is known whether it stays.
        self.link.device().0.xchg(false, Full);
    }
}
