// SPDX-License-Identifier: GPL-2.0

//! The fabrics and domains of kernel modules that are open, and those that hints name.
//!
//! A consumer names an open fabric and an open domain in the hints of kfi_getinfo() by their
//! addresses. An address may be of an object of another class or another provider, of one that was
//! closed, or of nothing. So it is compared with those in a list, and not dereferenced.

use kernel::prelude::*;

use super::raw::{
    kfi_info,
    kfid_domain,
    kfid_fabric, //
};
use crate::net::{
    LinkName,
    NetNsId, //
};

kernel::sync::global_lock! {
    // SAFETY: `init` initialises it before the module's init function returns, and nothing can open
    // a fabric before.
    unsafe(uninit) static OPEN: Mutex<KVVec<Open>> = KVVec::new();
}

/// An open fabric or domain.
#[derive(Clone, Copy)]
struct Open {
    /// The address of the object.
    addr: u64,
    /// The address of its fabric; of a fabric its own.
    fabric: u64,
    netns: NetNsId,
    /// The link of a domain.
    link: Option<LinkName>,
}

/// Initialises [`OPEN`].
///
/// # Safety
///
/// Must be called once, before the module's init function returns.
pub(super) unsafe fn init() {
    // SAFETY: By the requirement above.
    unsafe { OPEN.init() };
}

/// Frees the memory of [`OPEN`]. No fabric is open.
pub(super) fn exit() {
    let list = core::mem::replace(&mut *OPEN.lock(), KVVec::new());
    drop(list);
}

/// Keeps a fabric or a domain in the list. It is dropped before the memory of the object is freed.
pub(super) struct Listed {
    addr: u64,
}

impl Listed {
    /// For the fabric at `addr`. Fails with `ENOMEM`. Sleeps.
    pub(super) fn fabric(addr: u64, netns: NetNsId) -> Result<Self> {
        Self::new(Open {
            addr,
            fabric: addr,
            netns,
            link: None,
        })
    }

    /// For the domain at `addr`, of the fabric at `fabric`. Fails with `ENOMEM`. Sleeps.
    pub(super) fn domain(addr: u64, fabric: u64, netns: NetNsId, link: LinkName) -> Result<Self> {
        Self::new(Open {
            addr,
            fabric,
            netns,
            link: Some(link),
        })
    }

    fn new(open: Open) -> Result<Self> {
        OPEN.lock().push(open, GFP_KERNEL_ACCOUNT)?;
        Ok(Self { addr: open.addr })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        OPEN.lock().retain(|open| open.addr != self.addr);
    }
}

/// The object at an address; `None` for null. Fails with `ENODATA` if none is listed. Sleeps.
fn find<T>(object: *mut T) -> Result<Option<Open>> {
    if object.is_null() {
        return Ok(None);
    }
    // CAST: A usize has 64 bits.
    let addr = object.addr() as u64;
    let open = OPEN.lock();
    let found = open.iter().find(|open| open.addr == addr);
    found.copied().map(Some).ok_or(ENODATA)
}

/// The open fabric and the open domain of hints; null if the hints have none.
pub(super) struct OpenObjects {
    pub(super) fabric: *mut kfid_fabric,
    pub(super) domain: *mut kfid_domain,
    /// The network namespace of these objects; `None` without any: that of the caller counts.
    pub(super) netns: Option<NetNsId>,
    /// The link of the domain.
    pub(super) link: Option<LinkName>,
}

impl OpenObjects {
    /// No object.
    pub(super) const NONE: Self = Self {
        fabric: core::ptr::null_mut(),
        domain: core::ptr::null_mut(),
        netns: None,
        link: None,
    };

    /// Finds the open objects of `hints`. Fails with `ENODATA` if one is not an open object of this
    /// provider, or if the domain is not of the fabric. Sleeps.
    ///
    /// # Safety
    ///
    /// The attributes of `hints` are null, or valid.
    pub(super) unsafe fn of(hints: &kfi_info) -> Result<Self> {
        let mut objects = Self::NONE;
        // SAFETY: By the requirement above.
        unsafe {
            if let Some(attr) = hints.fabric_attr.as_ref() {
                objects.fabric = attr.fabric;
            }
            if let Some(attr) = hints.domain_attr.as_ref() {
                objects.domain = attr.domain;
            }
        }
        let (fabric, domain) = (find(objects.fabric)?, find(objects.domain)?);
        if let Some(fabric) = fabric {
            // A domain.
            if fabric.link.is_some() {
                return Err(ENODATA);
            }
            objects.netns = Some(fabric.netns);
        }
        if let Some(domain) = domain {
            // A fabric, or a domain of another one.
            if domain.link.is_none() || fabric.is_some_and(|fabric| fabric.addr != domain.fabric) {
                return Err(ENODATA);
            }
            (objects.netns, objects.link) = (Some(domain.netns), domain.link);
        }
        Ok(objects)
    }
}
