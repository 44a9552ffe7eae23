// SPDX-License-Identifier: GPL-2.0

//! PD: a protection domain. Its QPs use its memory regions and no others.
//!
//! All functions need process context and may sleep, unless their documentation says otherwise.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

use super::{
    code,
    context::Context,
    declared,
    device::Device,
    handle,
    keys::{
        Access,
        BadKey,
        Keys,
        Rights, //
    },
    raw::{
        kfabric_verbs_context,
        kfabric_verbs_device,
        kfabric_verbs_pd, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        MemRef, //
    },
    net::Stat, //
};

/// Bytes that are charged for an address handle and its number, which are memory of the RDMA
/// subsystem.
const AH_BYTES: u64 = 512;

/// A PD.
#[pin_data]
pub(super) struct Pd {
    context: Arc<Context>,
    #[pin]
    keys: Keys,
    _memory: Allowance,
}

impl Pd {
    /// A PD of `context`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    pub(super) fn new(context: Arc<Context>) -> Result<Arc<Self>> {
        let memory = context.budget().take_for::<Self>(0)?;
        Arc::pin_init(
            pin_init!(Self {
                context,
                keys <- Keys::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What it belongs to: a program, or the kernel callers of a device. Any context.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its regions. Any context.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Enters the region under `rkey`, for a peer that needs these rights to `len` bytes at `addr`.
    /// The region does not end until the result is dropped.
    ///
    /// The key is checked also for no bytes. InfiniBand does not ask for that, so the caller need
    /// not call this function then.
    ///
    /// Process context, also with bottom halves disabled, in a run for the user of the PD: the end
    /// of a region waits for the access. Does not sleep.
    pub(super) fn enter(
        &self,
        rkey: u32,
        addr: u64,
        len: u64,
        need: Rights,
    ) -> Result<Access, BadKey> {
        let region = self.keys.find(rkey);
        region
            .and_then(|region| region.enter(rkey, addr, len, need))
            .ok_or_else(|| {
                self.context.link().count(Stat::MrRefused);
                BadKey
            })
    }

    /// The `len` bytes at `addr` of the region under `lkey`, for a work request that needs these
    /// rights. The result keeps the memory, not the region. Fails also if there is no memory for
    /// the list of a part of a region for fast registration.
    ///
    /// Process context; sleeps for such a region only. The result is dropped in process context,
    /// where it may sleep.
    pub(super) fn local(
        &self,
        lkey: u32,
        addr: u64,
        len: u64,
        need: Rights,
    ) -> Result<MemRef, BadKey> {
        let region = self.keys.find(lkey).ok_or(BadKey)?;
        region
            .local(&self.context, lkey, addr, len, need)
            .ok_or(BadKey)
    }

    /// Registers the memory that was mapped to the region of `key`. See
    /// [`Mr::register`](super::mr::Mr::register). Process context; sleeps.
    pub(super) fn register(&self, key: u32, base: u64, rights: Rights) -> Result<(), BadKey> {
        let region = self.keys.find(key).ok_or(BadKey)?;
        region.register(key, base, rights)
    }

    /// Ends what the region of `key` grants, for the owner. See
    /// [`Mr::invalidate`](super::mr::Mr::invalidate). Process context; sleeps.
    pub(super) fn invalidate(&self, key: u32) -> Result<(), BadKey> {
        let region = self.keys.find(key).ok_or(BadKey)?;
        region.invalidate(key)
    }

    /// Ends what the region of `key` grants, for a peer. See
    /// [`Mr::invalidate_by_peer`](super::mr::Mr::invalidate_by_peer). Process context, in a run for
    /// the user of the PD; sleeps.
    pub(super) fn invalidate_by_peer(&self, key: u32) -> Result<(), BadKey> {
        let region = self.keys.find(key);
        region
            .and_then(|region| region.invalidate_by_peer(key).ok())
            .ok_or_else(|| {
                self.context.link().count(Stat::MrRefused);
                BadKey
            })
    }
}

declared! {
    kfabric_verbs_pd_alloc: fn(*mut kfabric_verbs_device, *mut kfabric_verbs_context)
        -> *mut kfabric_verbs_pd;
    kfabric_verbs_pd_free: fn(*mut kfabric_verbs_pd);
    kfabric_verbs_pd_charge_ah: fn(*mut kfabric_verbs_pd) -> c_int;
    kfabric_verbs_pd_uncharge_ah: fn(*mut kfabric_verbs_pd);
}

/// A PD of a program or, if the context is null, of the device's kernel callers. Fails as
/// [`Pd::new`]. Sleeps.
///
/// # Safety
///
/// The handles are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_pd_alloc(
    device: *mut kfabric_verbs_device,
    context: *mut kfabric_verbs_context,
) -> *mut kfabric_verbs_pd {
    // SAFETY: By the requirement above.
    let device = unsafe { Arc::<Device>::borrow(device.cast()) };
    // SAFETY: By the requirement above.
    let context = unsafe { Context::of(&device, NonNull::new(context)) };
    handle(Pd::new(context))
}

/// Ends a PD. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_pd_free(pd: *mut kfabric_verbs_pd) {
    // SAFETY: By the requirement above.
    drop(unsafe { Arc::<Pd>::from_foreign(pd.cast()) });
}

/// Charges the user of a program for an address handle. Fails with `ENOMEM`. Those of kernel
/// callers are not charged: connection management makes them for all users, and has few at a time.
/// Any context.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_pd_charge_ah(pd: *mut kfabric_verbs_pd) -> c_int {
    // SAFETY: By the requirement above.
    let pd = unsafe { Arc::<Pd>::borrow(pd.cast()) };
    if !pd.context.is_program() {
        return 0;
    }
    code(pd.context.budget().charge(AH_BYTES))
}

/// Returns the charge for an address handle. Any context.
///
/// # Safety
///
/// The handle is valid by the interface. An address handle was charged.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_pd_uncharge_ah(pd: *mut kfabric_verbs_pd) {
    // SAFETY: By the requirement above.
    let pd = unsafe { Arc::<Pd>::borrow(pd.cast()) };
    if pd.context.is_program() {
        pd.context.budget().uncharge(AH_BYTES);
    }
}
