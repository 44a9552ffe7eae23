// SPDX-License-Identifier: GPL-2.0

//! Context: what the objects of a program on a device belong to, or those of its kernel callers.
//!
//! A program gets one when it opens the device. All its objects are below it, belong to the user
//! who opened it, and are charged to that user. A program uses a device only from the network
//! namespace of the device's interface, also where the RDMA subsystem shows all devices in all
//! namespaces: it would send with addresses of another namespace otherwise.
//!
//! The objects of kernel callers are below a context of the device. They belong to the user who
//! added the device, and are charged to that user's account for kernel consumers.
//!
//! Counters are objects of the provider. They belong to a domain, which a context gets with its
//! first counter and which ends with it.
//!
//! All functions need process context and may sleep, unless their documentation says otherwise.

use core::ptr::NonNull;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    types::ForeignOwnable, //
};

use super::{
    callbacks::Callbacks,
    declared,
    device::Device,
    handle,
    map::Maps,
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
        DeviceUse,
        Link,
        LinkState,
        NetNsId, //
    },
    provider::{
        domain::{
            Domain,
            MrMode, //
        },
        fabric::Fabric,
        object::{
            self,
            Ident, //
        }, //
    },
    shim::{
        cred::{
            MemCgroup,
            Owner, //
        },
        reclaim::OwnerKind, //
    }, //
};

/// The domain of a context's counters. Closed when it is dropped, which sleeps.
struct Counting {
    fabric: Arc<Fabric>,
    domain: Arc<Domain>,
    owner: Arc<Owner>,
}

impl Counting {
    /// A domain on `link`, of the current task. Fails with `ENODEV` if the link has gone, `ENOMEM`.
    /// Sleeps.
    fn new(link: &Arc<Link>, budget: &Budget) -> Result<Self> {
        let owner = Owner::current(budget.principal().kind())?;
        let ident = Ident {
            fid: NO_HANDLE,
            context: 0,
            owner: owner.clone(),
            budget: budget.clone(),
        };
        let fabric = Fabric::open(link.netns(), ident.clone())?;
        // There is no memory region in the domain.
        let mode = MrMode {
            virt_addr: true,
            prov_key: true,
        };
        let domain = Domain::open(&fabric, link.open()?, mode, ident)?;
        Ok(Self {
            fabric,
            domain,
            owner,
        })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        object::force_close(&*self.domain);
        object::force_close(&*self.fabric);
    }
}

/// What the provider gets as the handle of an object of this front end. No object of another front
/// end has it.
const NO_HANDLE: u64 = u64::MAX;

/// What the objects of a program on a device belong to, or those of its kernel callers.
#[pin_data]
pub(super) struct Context {
    link: Arc<DeviceUse>,
    callbacks: Callbacks,
    budget: Budget,
    memcg: MemCgroup,
    #[pin]
    maps: Maps,
    /// `None` before the first counter, and when the context has ended. Held while a domain is
    /// opened.
    #[pin]
    counting: Mutex<Option<Counting>>,
    _memory: Allowance,
}

impl Context {
    /// A context of the current task, which is a program.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the task is in another network namespace than the device's interface.
    /// - `ENODEV`: the interface has gone.
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    pub(super) fn of_program(device: &Device) -> Result<Arc<Self>> {
        if NetNsId::current()? != device.link().netns() {
            return Err(EPERM);
        }
        if device.link().state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let link = device.link_use().clone();
        Self::new(link, device.callbacks(), OwnerKind::Program)
    }

    /// The context of the kernel callers of a new device. They belong to the current task's user.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn of_kernel(link: Arc<DeviceUse>, callbacks: Callbacks) -> Result<Arc<Self>> {
        Self::new(link, callbacks, OwnerKind::Consumer)
    }

    fn new(link: Arc<DeviceUse>, callbacks: Callbacks, kind: OwnerKind) -> Result<Arc<Self>> {
        let budget = Budget::current(kind)?;
        let memory = budget.take_for::<Self>(0)?;
        Arc::pin_init(
            pin_init!(Self {
                link,
                callbacks,
                budget,
                memcg: MemCgroup::current(),
                maps <- Maps::new(),
                counting <- new_mutex!(None, "verbs::Context::counting"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Ends the domain of the counters. No other call is running.
    pub(super) fn close(&self) {
        let counting = self.counting.lock().take();
        drop(counting);
    }

    /// The domain of its counters, and their identity. Fails with `ENODEV` if the interface has
    /// gone, `ENOMEM`.
    pub(super) fn domain(&self) -> Result<(Arc<Domain>, Ident)> {
        let mut counting = self.counting.lock();
        let counting = match &mut *counting {
            Some(counting) => counting,
            none => none.insert(Counting::new(self.link(), &self.budget)?),
        };
        let ident = Ident {
            fid: NO_HANDLE,
            context: 0,
            owner: counting.owner.clone(),
            budget: self.budget.clone(),
        };
        Ok((counting.domain.clone(), ident))
    }

    /// The context with this handle, or without one that of the device's kernel callers. Any
    /// context.
    ///
    /// # Safety
    ///
    /// The handle is valid by the interface.
    pub(super) unsafe fn of(
        device: &Device,
        handle: Option<NonNull<kfabric_verbs_context>>,
    ) -> Arc<Self> {
        match handle {
            None => device.kernel().clone(),
            // SAFETY: By the requirement above.
            Some(handle) => unsafe { Arc::<Self>::borrow(handle.as_ptr().cast()) }.into(),
        }
    }

    /// What its program can map. Any context.
    pub(super) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The link of its device. Any context.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The functions that its objects call. Any context.
    pub(super) fn callbacks(&self) -> Callbacks {
        self.callbacks
    }

    /// The budget to which its objects are charged. Any context.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The memory control group of the task that opened it. Any context.
    pub(super) fn memcg(&self) -> &MemCgroup {
        &self.memcg
    }

    /// Whether it is a program's. Any context.
    pub(super) fn is_program(&self) -> bool {
        self.budget.principal().kind() == OwnerKind::Program
    }
}

declared! {
    kfabric_verbs_context_alloc: fn(*mut kfabric_verbs_device) -> *mut kfabric_verbs_context;
    kfabric_verbs_context_free: fn(*mut kfabric_verbs_context);
}

/// A context of the current task. Fails as [`Context::of_program`]. Sleeps.
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
    handle(Context::of_program(&device))
}

/// Ends a context. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_context_free(context: *mut kfabric_verbs_context) {
    // SAFETY: By the requirement above.
    let context = unsafe { Arc::<Context>::from_foreign(context.cast()) };
    context.close();
}
