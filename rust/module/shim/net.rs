// SPDX-License-Identifier: GPL-2.0

//! Networking: namespaces and interfaces.
//!
//! | type | content |
//! |---|---|
//! | [`NetNs`] | a reference to a network namespace, which keeps it alive |
//! | [`NetNsId`] | the identity of a namespace, which does not keep it alive |
//! | [`Rtnl`] | a guard of the RTNL: interfaces are neither added nor removed |
//! | [`NetdevId`] | an interface by namespace and index |
//! | [`Notifier`] | a registration for events of interfaces |
//!
//! An identity keeps neither the interface nor its namespace alive: both may have gone. The
//! addresses of an interface are looked up through the namespace's [sockets](super::udp). All
//! functions need process context and may sleep, unless their documentation says otherwise.

use crate::shim::bindings as shim;
use core::{
    marker::PhantomData,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

/// The identity of a network namespace: its net cookie, which is never reused.
///
/// It keeps nothing alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NetNsId(u64);

impl NetNsId {
    /// The net cookie.
    pub(crate) fn cookie(self) -> u64 {
        self.0
    }

    /// The identity of the current task's network namespace. Does not sleep.
    ///
    /// Fails with `ESRCH` in a task that has no namespaces any more: the last release of a file in
    /// an exiting task.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: Process context.
        match unsafe { shim::kfabric_shim_net_current_cookie() } {
            0 => Err(ESRCH),
            cookie => Ok(Self(cookie)),
        }
    }
}

/// A reference to a network namespace, which keeps the namespace alive.
///
/// # Invariants
///
/// `net` points to a namespace to which this value owns a reference.
pub(crate) struct NetNs {
    net: NonNull<bindings::net>,
}

// SAFETY: Any task may use the reference count of a namespace and the fields that are read here.
unsafe impl Send for NetNs {}
// SAFETY: As above.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// The current task's network namespace. Fails as [`NetNsId::current`]. Does not sleep.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: Process context.
        let net = unsafe { shim::kfabric_shim_net_get_current() };
        // INVARIANT: The function has taken a reference for this value.
        Ok(Self {
            net: NonNull::new(net).ok_or(ESRCH)?,
        })
    }

    /// A reference to a namespace of a caller in C. Any context.
    ///
    /// # Safety
    ///
    /// `net` is valid, and the caller keeps it alive during the call.
    pub(crate) unsafe fn of(net: NonNull<bindings::net>) -> Self {
        // SAFETY: By the requirement above.
        unsafe { shim::kfabric_shim_net_get(net.as_ptr()) };
        // INVARIANT: The function has taken a reference for this value.
        Self { net }
    }

    /// Its identity. Any context.
    pub(crate) fn id(&self) -> NetNsId {
        // SAFETY: By the type invariant the namespace is alive.
        NetNsId(unsafe { shim::kfabric_shim_net_cookie(self.net.as_ptr()) })
    }

    /// The namespace, for C functions while this value exists.
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.net.as_ptr()
    }

    /// Whether the current task has CAP_NET_ADMIN in the user namespace that owns this namespace.
    /// Does not sleep.
    pub(crate) fn capable_net_admin(&self) -> bool {
        // SAFETY: By the type invariant the namespace is alive; process context.
        unsafe { shim::kfabric_shim_net_admin(self.net.as_ptr()) }
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value owns the reference.
        unsafe { shim::kfabric_shim_net_put(self.net.as_ptr()) }
    }
}

/// A guard of the RTNL: no interface is added, removed or changed meanwhile.
///
/// The RTNL is a mutex of the kernel, which callers of notifiers hold too: a lock that is taken in
/// [`NetdevEvents::event`] is below it.
///
/// # Invariants
///
/// The task that created it holds the RTNL.
pub(crate) struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes the RTNL.
    pub(crate) fn lock() -> Self {
        // SAFETY: Process context, may sleep.
        unsafe { shim::kfabric_shim_rtnl_lock() };
        // INVARIANT: The RTNL was just taken.
        Self(NotThreadSafe)
    }

    /// Finds the interface called `name` in `netns`.
    pub(crate) fn find(&self, netns: &NetNs, name: &CStr) -> Option<Netdev> {
        let mut raw = shim::kfabric_shim_netdev::default();
        // SAFETY: The RTNL is held by the invariant of this type, the namespace is alive by that of
        // `NetNs`; `name` and `raw` are valid for the call.
        let found = unsafe {
            shim::kfabric_shim_netdev_find(netns.net.as_ptr(), name.as_char_ptr(), &raw mut raw)
        };
        found.then(|| Netdev::from_raw(&raw))
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this task holds it.
        unsafe { shim::kfabric_shim_rtnl_unlock() }
    }
}

/// Size of an interface's name, with the NUL.
pub(crate) const IFNAMSIZ: usize = shim::KFABRIC_SHIM_IFNAMSIZ as usize;

/// An interface by namespace and index. Keeps nothing alive.
///
/// The kernel reuses an index only if a user asks for that index, so a holder of one must watch for
/// [`NetdevEvent::Gone`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NetdevId {
    /// The namespace.
    pub(crate) netns: NetNsId,
    /// The index in it.
    pub(crate) ifindex: u32,
}

/// The properties of an interface at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Netdev {
    /// The identity of the interface.
    pub(crate) id: NetdevId,
    /// MTU in bytes.
    pub(crate) mtu: u32,
    /// The index of its VRF (its L3 master device, which may be the interface itself); 0: none.
    pub(crate) vrf: u32,
    /// Whether it is administratively up.
    pub(crate) up: bool,
    /// Its name, padded with NULs, at least one.
    pub(crate) name: [u8; IFNAMSIZ],
}

impl Netdev {
    fn from_raw(raw: &shim::kfabric_shim_netdev) -> Self {
        Self {
            id: NetdevId {
                netns: NetNsId(raw.netns),
                ifindex: raw.ifindex,
            },
            mtu: raw.mtu,
            vrf: raw.vrf,
            up: raw.up,
            name: raw.name,
        }
    }
}

/// An event of an interface.
pub(crate) enum NetdevEvent {
    /// Its state, MTU, VRF or name may have changed to this.
    Changed(Netdev),
    /// It was removed, or is about to leave its namespace for another.
    Gone(NetdevId),
}

/// The receiver of events of interfaces.
pub(crate) trait NetdevEvents: 'static {
    /// Called with the RTNL held, and possibly the lock of the interface: may sleep, must not take
    /// the RTNL, nor wait for a task that takes it.
    fn event(event: NetdevEvent);
}

/// A registration for the events of the interfaces of all namespaces, until it is dropped.
///
/// Dropping it first reports every interface as gone; no call is running afterwards, so the module
/// may be unloaded. It must not be registered or dropped with the RTNL held, or with a lock held
/// that [`NetdevEvents::event`] takes.
///
/// # Invariants
///
/// `nb` is registered for `T` while the value exists.
#[pin_data(PinnedDrop)]
pub(crate) struct Notifier<T: NetdevEvents> {
    #[pin]
    nb: Opaque<bindings::notifier_block>,
    _events: PhantomData<fn(T)>,
}

// SAFETY: The notifier block belongs to the kernel while it is registered; any task may unregister
// it.
unsafe impl<T: NetdevEvents> Send for Notifier<T> {}
// SAFETY: A shared reference has no methods.
unsafe impl<T: NetdevEvents> Sync for Notifier<T> {}

impl<T: NetdevEvents> Notifier<T> {
    /// Registers `T`. Fails with `ENOMEM`.
    pub(crate) fn register() -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                // INVARIANT: Registered here, unregistered in `drop`.
                nb <- Opaque::try_ffi_init(|nb: *mut bindings::notifier_block| {
                    // SAFETY: `nb` is valid for a write. It is pinned, so it does not move until
                    // `drop` has unregistered it.
                    unsafe {
                        nb.write(bindings::notifier_block {
                            notifier_call: Some(Self::call),
                            ..Default::default()
                        });
                        to_result(shim::kfabric_shim_netdev_notifier_register(nb))
                    }
                }),
                _events: PhantomData,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The callback of the notifier.
    ///
    /// # Safety
    ///
    /// `event` and `info` are the arguments of a netdevice notifier.
    unsafe extern "C" fn call(
        _nb: *mut bindings::notifier_block,
        event: usize,
        info: *mut c_void,
    ) -> c_int {
        let mut raw = shim::kfabric_shim_netdev::default();
        // SAFETY: By the requirement of this function; `raw` is valid for the call.
        let what = unsafe { shim::kfabric_shim_netdev_event(event, info, &raw mut raw) };
        let netdev = Netdev::from_raw(&raw);
        match what {
            shim::KFABRIC_SHIM_NETDEV_CHANGED => {
                T::event(NetdevEvent::Changed(netdev));
            }
            shim::KFABRIC_SHIM_NETDEV_GONE => {
                T::event(NetdevEvent::Gone(netdev.id));
            }
            _ => {}
        }
        // NOTIFY_DONE.
        0
    }
}

#[pinned_drop]
impl<T: NetdevEvents> PinnedDrop for Notifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered.
        unsafe { shim::kfabric_shim_netdev_notifier_unregister(self.nb.get()) }
    }
}
