// SPDX-License-Identifier: GPL-2.0

//! Context: what a program has of a device.
//!
//! A program gets one when it opens the device. All its objects are below it, belong to the user
//! who opened it, and are charged to that user. A program uses a device only from the network
//! namespace of the device's interface, also where the RDMA subsystem shows all devices in all
//! namespaces: it would send with addresses of another namespace otherwise.
//!
//! All functions need process context and may sleep.

use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

use super::{
    declared,
    device::Device,
    handle,
    raw::{
        kfabric_verbs_context,
        kfabric_verbs_device, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        Budget, //
    },
    net::{
        LinkState,
        NetNsId, //
    },
    shim::reclaim::OwnerKind, //
};

/// What a program has of a device.
pub(super) struct Context {
    _device: Arc<Device>,
    _memory: Allowance,
}

impl Context {
    /// A context of the current task.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the task is in another network namespace than the device's interface.
    /// - `ENODEV`: the interface has gone.
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        if NetNsId::current()? != device.link().netns() {
            return Err(EPERM);
        }
        if device.link().state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let budget = Budget::current(OwnerKind::Program)?;
        let context = Self {
            _memory: budget.take_for::<Self>(0)?,
            _device: device,
        };
        Ok(Arc::new(context, GFP_KERNEL_ACCOUNT)?)
    }
}

declared! {
    kfabric_verbs_context_alloc: fn(*mut kfabric_verbs_device) -> *mut kfabric_verbs_context;
    kfabric_verbs_context_free: fn(*mut kfabric_verbs_context);
}

/// A context of the current task. Fails as [`Context::new`]. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_context_alloc(
    device: *mut kfabric_verbs_device,
) -> *mut kfabric_verbs_context {
    // SAFETY: By the requirement above.
    let device = unsafe { Arc::<Device>::borrow(device.cast()) };
    handle(Context::new(device.into()))
}

/// Ends a context. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_context_free(context: *mut kfabric_verbs_context) {
    // SAFETY: By the requirement above.
    drop(unsafe { Arc::<Context>::from_foreign(context.cast()) });
}
