// SPDX-License-Identifier: GPL-2.0

//! Networking as the module needs it: namespaces, interfaces, per-CPU figures.
//!
//! | type | what |
//! |---|---|
//! | [`NetNs`] | a reference to a network namespace, which keeps it alive |
//! | [`NetNsId`] | the identity of one, which does not |
//! | [`Rtnl`] | holding the RTNL: interfaces neither come nor go |
//! | [`NetdevId`] | an interface by namespace and index |
//! | [`Notifier`] | being told what happens to interfaces |
//! | [`Traffic`] | what passed, counted per CPU |
//!
//! An identity keeps neither the interface nor its namespace alive: both may have gone. The
//! addresses of an interface are looked up through the namespace's [sockets](super::udp). All
//! functions are for process context and may sleep, unless their documentation says otherwise.

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

/// The identity of a network namespace: Linux's net cookie, never given to another namespace.
///
/// Keeps nothing alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NetNsId(u64);

impl NetNsId {
    /// The net cookie.
    pub(crate) fn cookie(self) -> u64 {
        self.0
    }

    /// The identity of current's network namespace.
    ///
    /// `ESRCH` in a task that is past its namespaces: the last release of a file in an exiting
    /// task. Does not sleep.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: Process context.
        match unsafe { shim::kfabric_shim_net_current_cookie() } {
            0 => Err(ESRCH),
            cookie => Ok(Self(cookie)),
        }
    }
}

/// A reference to a network namespace. As long as there is one, the namespace does not end.
///
/// # Invariants
///
/// `net` points to a namespace to which this value owns a reference.
pub(crate) struct NetNs {
    net: NonNull<bindings::net>,
}

// SAFETY: Namespaces are shared between tasks; their reference count and all that is read here may
// be used from any of them.
unsafe impl Send for NetNs {}
// SAFETY: As above.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// Current's network namespace; `ESRCH` as [`NetNsId::current`]. Does not sleep.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: Process context.
        let net = unsafe { shim::kfabric_shim_net_get_current() };
        // INVARIANT: A reference was added for us.
        Ok(Self {
            net: NonNull::new(net).ok_or(ESRCH)?,
        })
    }

    /// Its identity. Any context.
    pub(crate) fn id(&self) -> NetNsId {
        // SAFETY: By the type invariant the namespace is alive.
        NetNsId(unsafe { shim::kfabric_shim_net_cookie(self.net.as_ptr()) })
    }

    /// The namespace, for calls of C while the value exists.
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.net.as_ptr()
    }

    /// Whether current has CAP_NET_ADMIN in the user namespace that owns this namespace. Does not
    /// sleep.
    pub(crate) fn capable_net_admin(&self) -> bool {
        // SAFETY: By the type invariant the namespace is alive; process context.
        unsafe { shim::kfabric_shim_net_admin(self.net.as_ptr()) }
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own the reference that is given back.
        unsafe { shim::kfabric_shim_net_put(self.net.as_ptr()) }
    }
}

/// Evidence that the RTNL is held: no interface comes, goes or changes meanwhile.
///
/// It is a mutex of the kernel, taken by notifiers' callers too: a lock that is taken in
/// [`NetdevEvents::event`] is below it.
///
/// # Invariants
///
/// The task that made it holds the RTNL.
pub(crate) struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes the RTNL.
    pub(crate) fn lock() -> Self {
        // SAFETY: Process context, may sleep.
        unsafe { shim::kfabric_shim_rtnl_lock() };
        // INVARIANT: Just taken.
        Self(NotThreadSafe)
    }

    /// The interface called `name` in `netns`.
    pub(crate) fn find(&self, netns: &NetNs, name: &CStr) -> Option<Netdev> {
        let mut raw = shim::kfabric_shim_netdev::default();
        // SAFETY: The RTNL is held by our invariant, the namespace is alive by its own; `name` and
        // `raw` are valid for the call.
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

/// Bytes of an interface's name, with the NUL.
pub(crate) const IFNAMSIZ: usize = shim::KFABRIC_SHIM_IFNAMSIZ as usize;

/// An interface by namespace and index. Keeps nothing alive.
///
/// An index is not given to another interface of the namespace unless somebody asks for that
/// index, so whoever keeps one watches for [`NetdevEvent::Gone`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NetdevId {
    /// The namespace.
    pub(crate) netns: NetNsId,
    /// The index in it.
    pub(crate) ifindex: u32,
}

/// What there is to know about an interface at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Netdev {
    /// Which one.
    pub(crate) id: NetdevId,
    /// MTU, bytes.
    pub(crate) mtu: u32,
    /// Whether it is administratively up.
    pub(crate) up: bool,
    /// Its name, filled up with NULs, at least one.
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
            up: raw.up,
            name: raw.name,
        }
    }
}

/// What has happened to an interface.
pub(crate) enum NetdevEvent {
    /// Its state, MTU or name may have changed; it is like this now.
    Changed(Netdev),
    /// It was removed, or is about to leave its namespace for another.
    Gone(NetdevId),
}

/// Who wants to be told.
pub(crate) trait NetdevEvents: 'static {
    /// Called with the RTNL held, and perhaps the lock of the interface: may sleep, must not take
    /// the RTNL, nor wait for anybody who does.
    fn event(event: NetdevEvent);
}

/// Being told what happens to interfaces, of all namespaces, until it is dropped.
///
/// Dropping first tells that every interface has gone; no call is in flight afterwards, so the
/// module may be unloaded. Neither making nor dropping one is for holders of the RTNL or of locks
/// that [`NetdevEvents::event`] takes.
///
/// # Invariants
///
/// `nb` is registered for `T`, exactly while the value exists.
#[pin_data(PinnedDrop)]
pub(crate) struct Notifier<T: NetdevEvents> {
    #[pin]
    nb: Opaque<bindings::notifier_block>,
    _events: PhantomData<fn(T)>,
}

// SAFETY: The notifier block belongs to the kernel while it is registered; it may be unregistered
// by any task.
unsafe impl<T: NetdevEvents> Send for Notifier<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: NetdevEvents> Sync for Notifier<T> {}

impl<T: NetdevEvents> Notifier<T> {
    /// Begins to tell `T`. `ENOMEM`.
    pub(crate) fn register() -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                // INVARIANT: Registered here, unregistered in drop.
                nb <- Opaque::try_ffi_init(|nb: *mut bindings::notifier_block| {
                    // SAFETY: `nb` is valid for a write; it stays where it is, being pinned, until
                    // drop has unregistered it.
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

    /// What the kernel calls.
    ///
    /// # Safety
    ///
    /// `event` and `info` are what a netdevice notifier is called with.
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
        // NOTIFY_DONE: of no interest to the caller.
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

/// Figures of one or of all CPUs: operations and bytes, sent and arrived.
pub(crate) type Figures = shim::kfabric_shim_traffic;

/// What passed over a link, counted per CPU.
///
/// All endpoints of a host may share one link, so a figure in one place would be a cache line that
/// every operation of every CPU fights for. Here an operation touches memory of its own CPU only,
/// without a locked instruction, and reading, which is rare, adds up.
///
/// # Invariants
///
/// `percpu` is what `kfabric_shim_traffic_alloc` gave, and is freed in drop.
pub(crate) struct Traffic {
    percpu: NonNull<shim::kfabric_shim_traffic>,
}

// SAFETY: Each CPU counts in its own place; any CPU may read all.
unsafe impl Send for Traffic {}
// SAFETY: As above.
unsafe impl Sync for Traffic {}

impl Traffic {
    /// Figures that are all 0. `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context, may sleep.
        let percpu = unsafe { shim::kfabric_shim_traffic_alloc() };
        // INVARIANT: Allocated just now.
        Ok(Self {
            percpu: NonNull::new(percpu).ok_or(ENOMEM)?,
        })
    }

    /// Counts an operation of `bytes` that was sent. Any context.
    #[inline]
    pub(crate) fn tx(&self, bytes: u64) {
        // SAFETY: By the type invariant.
        unsafe { shim::kfabric_shim_traffic_tx(self.percpu.as_ptr(), bytes) }
    }

    /// Counts an operation of `bytes` that arrived. Any context.
    #[inline]
    pub(crate) fn rx(&self, bytes: u64) {
        // SAFETY: By the type invariant.
        unsafe { shim::kfabric_shim_traffic_rx(self.percpu.as_ptr(), bytes) }
    }

    /// All CPUs together; each figure is right for some moment during the call. Any context.
    pub(crate) fn sum(&self) -> Figures {
        let mut sum = Figures::default();
        // SAFETY: By the type invariant; `sum` is valid for the call.
        unsafe { shim::kfabric_shim_traffic_sum(self.percpu.as_ptr(), &raw mut sum) };
        sum
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nobody can count any more.
        unsafe { shim::kfabric_shim_traffic_free(self.percpu.as_ptr()) }
    }
}
