// SPDX-License-Identifier: GPL-2.0

//! Fabric: the links of the network namespace of the process that opens it.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain,
    eq,
    listed::Listed,
    object::{
        fid_ops,
        impl_head,
        Inner,
        Slot, //
    },
    pep,
    raw::{
        self,
        kfi_fabric_attr,
        kfi_ops_fabric,
        kfid_fabric, //
    },
    wait,
    Opener, //
};
use crate::{
    net::NetNsId,
    provider::{
        fabric::Fabric,
        object, //
    }, //
};

/// Keeps the module loaded.
struct ModuleUse;

impl ModuleUse {
    /// For a caller that keeps the module loaded during this call.
    fn new() -> Self {
        // SAFETY: A consumer that calls an exported function keeps the module loaded.
        unsafe { raw::kfabric_capi_module_get() };
        Self
    }
}

impl Drop for ModuleUse {
    fn drop(&mut self) {
        // SAFETY: `new` took the reference that ends here.
        unsafe { raw::kfabric_capi_module_put() };
    }
}

/// The value behind a `struct kfid_fabric`.
pub(super) struct OpenFabric {
    pub(super) fabric: Arc<Fabric>,
    pub(super) opener: Opener,
    _listed: Listed,
    _module: ModuleUse,
}

impl Inner for OpenFabric {
    fn close(&self) -> Result {
        object::close(&*self.fabric).inspect_err(|error| {
            if *error == EBUSY {
                self.opener.opened.tell();
            }
        })
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_fabric {
        type Inner = OpenFabric;
        CLASS = raw::KFI_CLASS_FABRIC;
        fid_ops = fid_ops::<kfid_fabric>(None);
    }
}

/// kfi_fabric() of this provider. Fails with `EINVAL` for another name than that of the fabric;
/// `ENOMEM`. Sleeps.
///
/// # Safety
///
/// `attr` and what it points to are valid.
pub(super) unsafe fn open(
    attr: *const kfi_fabric_attr,
    context: *mut c_void,
) -> Result<*mut kfid_fabric> {
    // SAFETY: By the requirement above.
    let (name, version) = unsafe { (super::info::text((*attr).name)?, (*attr).api_version) };
    if !name.is_empty() && name.as_bytes() != Fabric::NAME.as_bytes() {
        return Err(EINVAL);
    }
    let opener = Opener::current()?;
    let slot = Slot::<kfid_fabric>::new(&opener)?;
    let netns = NetNsId::current()?;
    let listed = Listed::fabric(slot.addr(), netns)?;
    let inner = OpenFabric {
        fabric: Fabric::open(netns, opener.ident(slot.addr(), context))?,
        opener,
        _listed: listed,
        _module: ModuleUse::new(),
    };
    Ok(slot.fill(context, inner, |head| {
        head.ops = ptr::from_ref(&OPS).cast_mut();
        head.api_version = version;
    }))
}

static OPS: kfi_ops_fabric = kfi_ops_fabric {
    size: size_of::<kfi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: Some(pep::open),
    eq_open: Some(eq::open),
    wait_open: Some(wait::open),
};
