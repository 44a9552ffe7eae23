// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets of a network namespace, routes to peers, and the addresses of the namespace's
//! interfaces.
//!
//! [`UdpSockets`] has two sockets, for IPv4 and IPv6, at one port and all addresses, and two more
//! for each VRF with a link, because the others receive nothing from there. It passes received
//! packets to a [`Receive`] in softirq. A [`Route`] is the route to one peer, which is cached as
//! long as it is valid.
//!
//! Neither keeps the namespace alive. [`UdpSockets::close`] is called before the namespace ends;
//! afterwards sending fails, and no reference to the namespace is left.

use crate::shim::{
    bindings as shim,
    net::NetNs,
    rcu::RcuBox,
    skb::{
        RxSkb,
        TxSkb, //
    }, //
};
use core::{
    net::IpAddr,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// Number of bytes of a received packet, from the UDP header on, that only the packet's owner
/// writes, if it has that many.
// rustc 1.85 does not count a use in a static_assert!.
#[allow(dead_code)]
pub(crate) const RX_HEAD: usize = shim::KFABRIC_SHIM_RX_HEAD as usize;

/// The receiver of datagrams, and of changes of addresses.
pub(crate) trait Receive: Send + Sync + 'static {
    /// Takes over a received datagram. Called in softirq, in an RCU read-side section, on several
    /// CPUs at the same time.
    fn receive(&self, skb: RxSkb);

    /// An address of an interface of the namespace was added, changed or removed; a removed one is
    /// not the interface's any more. Called in any context, on several CPUs at the same time:
    /// neither sleeps nor takes a lock.
    fn addrs_changed(&self);
}

/// The registration for changes of addresses, until it is dropped: without one no
/// [`Receive::addrs_changed`] is called.
///
/// # Invariants
///
/// The notifiers of `addr_change.c` are registered while the value exists.
pub(crate) struct AddrNotifier(());

impl AddrNotifier {
    /// Registers the kernel's notifiers. Fails with `EEXIST` if they are registered. Sleeps; the
    /// RTNL is not held.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: Process context, without the RTNL.
        to_result(unsafe { shim::kfabric_shim_addr_notifiers_register() })?;
        // INVARIANT: Registered above, unregistered in `drop`.
        Ok(Self(()))
    }
}

impl Drop for AddrNotifier {
    fn drop(&mut self) {
        // SAFETY: By the type invariant they are registered; process context, without the RTNL.
        unsafe { shim::kfabric_shim_addr_notifiers_unregister() }
    }
}

/// The sockets of a namespace. Dropping closes them if they are open, and does not wait for packets
/// that are being received.
pub(crate) struct UdpSockets<T: Receive> {
    inner: RcuBox<Inner<T>>,
}

/// The sockets and their receiver. Packets that are being received use them under RCU.
///
/// # Invariants
///
/// `raw` is initialised, and has a pointer to the object of `receiver`.
#[pin_data]
struct Inner<T: Receive> {
    #[pin]
    raw: Opaque<shim::kfabric_shim_udp>,
    receiver: Arc<T>,
    closed: Atomic<bool>,
}

// SAFETY: Any task may use and close sockets; the routes have their own lock.
unsafe impl<T: Receive> Send for Inner<T> {}
// SAFETY: As above.
unsafe impl<T: Receive> Sync for Inner<T> {}

impl<T: Receive> UdpSockets<T> {
    /// Opens the sockets of `netns` at `port`. Without IPv6 in the kernel or the namespace, it
    /// opens only the IPv4 socket.
    ///
    /// Fails with `EADDRINUSE` if the port is in use, `ENOMEM`, or another error of opening a
    /// socket. Sleeps; the RTNL may be held.
    pub(crate) fn open(netns: &NetNs, port: u16, receiver: Arc<T>) -> Result<Arc<Self>> {
        let data = Arc::as_ptr(&receiver);
        let inner = RcuBox::pin_init(pin_init!(Inner {
            raw <- Opaque::ffi_init(|raw: *mut shim::kfabric_shim_udp| {
                // SAFETY: `raw` is valid for writes and pinned. `data` lives as long as `receiver`,
                // which is dropped with `raw`. INVARIANT: Initialised, with that pointer.
                unsafe {
                    raw.write(shim::kfabric_shim_udp {
                        receive: Some(Self::receive),
                        addrs_changed: Some(Self::addrs_changed),
                        data: data.cast_mut().cast(),
                        ..Default::default()
                    });
                    shim::kfabric_shim_udp_init(raw);
                }
            }),
            receiver,
            closed: Atomic::new(false),
        }))?;
        let sockets = Arc::new(Self { inner }, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: By the type invariant of `Inner` `raw` is initialised; this is the only call. The
        // namespace is alive during the call. If it fails, the drop closes a socket that is open.
        to_result(unsafe { shim::kfabric_shim_udp_open(sockets.raw(), netns.as_ptr(), port) })?;
        Ok(sockets)
    }

    fn raw(&self) -> *mut shim::kfabric_shim_udp {
        self.inner.raw.get()
    }

    /// The callback for each packet.
    ///
    /// # Safety
    ///
    /// `data` is the pointer that `open` has set. `skb` is as [`RxSkb`] says, and the caller passes
    /// its ownership on.
    unsafe extern "C" fn receive(data: *mut c_void, skb: *mut bindings::sk_buff) {
        if let Some(skb) = NonNull::new(skb) {
            // SAFETY: By the requirements.
            let skb = unsafe { RxSkb::from_raw(skb) };
            // SAFETY: By the type invariant it points to the receiver, which is not dropped before
            // a grace period has passed since the sockets were closed.
            unsafe { &*data.cast::<T>() }.receive(skb);
        }
    }

    /// The callback for each change of an address.
    ///
    /// # Safety
    ///
    /// `data` is the pointer that `open` has set.
    unsafe extern "C" fn addrs_changed(data: *mut c_void) {
        // SAFETY: By the type invariant it points to the receiver, which is not dropped before a
        // grace period has passed since the sockets were closed.
        unsafe { &*data.cast::<T>() }.addrs_changed();
    }

    /// The receiver.
    pub(crate) fn receiver(&self) -> &Arc<T> {
        &self.inner.receiver
    }

    /// Checks that the current task has CAP_NET_RAW in the user namespace that owns the network
    /// namespace of the sockets. Fails with `EPERM`; `ENODEV` if the sockets are closed. Process
    /// context.
    pub(crate) fn check_net_raw(&self) -> Result {
        // SAFETY: By the type invariant of `Inner` `raw` is initialised; process context.
        match unsafe { shim::kfabric_shim_udp_net_raw(self.raw()) } {
            0 => Err(EPERM),
            other => to_result(other),
        }
    }

    /// Checks that the current task may use `port` as the port of a service, or as its own port of
    /// a connection: one below 1,024 needs CAP_NET_BIND_SERVICE in the user namespace that owns the
    /// network namespace of the sockets. Fails with `EACCES`; `ENODEV` if the sockets are closed.
    /// Process context.
    pub(crate) fn check_port(&self, port: u16) -> Result {
        // SAFETY: By the type invariant of `Inner` `raw` is initialised; process context.
        match unsafe { shim::kfabric_shim_udp_may_bind(self.raw(), port) } {
            0 => Err(EACCES),
            other => to_result(other),
        }
    }

    /// Opens the sockets that receive from the VRF with this index, unless they are open. Fails
    /// with `EADDRINUSE` if the port is in use there, `ENOMEM`. Sleeps; the RTNL is held.
    pub(crate) fn open_vrf(&self, ifindex: u32) -> Result {
        // SAFETY: By the type invariant of `Inner` `raw` is initialised; the RTNL is held.
        to_result(unsafe { shim::kfabric_shim_udp_open_vrf(self.raw(), ifindex) })
    }

    /// Closes the sockets of a VRF, if they are open. Sleeps; the RTNL is held.
    pub(crate) fn close_vrf(&self, ifindex: u32) {
        // SAFETY: As in `open_vrf`.
        unsafe { shim::kfabric_shim_udp_close_vrf(self.raw(), ifindex) }
    }

    /// Closes the sockets: nothing is sent after this, and nothing is received after another grace
    /// period. Only the first call has an effect. Sleeps, but does not wait for a grace period; the
    /// RTNL may be held.
    pub(crate) fn close(&self) {
        if !self.inner.closed.xchg(true, Full) {
            // SAFETY: By the type invariant of `Inner` `raw` is initialised; this is the only call.
            unsafe { shim::kfabric_shim_udp_close(self.raw()) };
        }
    }
}

/// The current addresses of the namespace's interfaces, in network byte order. There are none if
/// the sockets are closed, or if the interface does not exist. Process context or softirq; these
/// functions neither sleep nor take a lock.
impl<T: Receive> UdpSockets<T> {
    /// The first IPv4 address of an interface, whether the interface is up or down.
    pub(crate) fn first_ipv4(&self, ifindex: u32) -> Option<[u8; 4]> {
        let mut addr = [0; 4];
        // SAFETY: By the type invariant of `Inner`; not hard irq; `addr` has room for four bytes.
        unsafe { shim::kfabric_shim_udp_first_ipv4(self.raw(), ifindex, addr.as_mut_ptr()) }
            .then_some(addr)
    }

    /// Whether an interface has the address `addr`. A loopback interface has the whole subnet of
    /// each of its addresses (usually 127.0.0.0/8), as in the kernel's own routing.
    pub(crate) fn has_ipv4(&self, ifindex: u32, addr: &[u8; 4]) -> bool {
        // SAFETY: By the type invariant of `Inner`; not hard irq; `addr` has four bytes.
        unsafe { shim::kfabric_shim_udp_has_ipv4(self.raw(), ifindex, addr.as_ptr()) }
    }

    /// The first IPv6 address of an interface that duplicate address detection allows; addresses of
    /// wider scope come first.
    pub(crate) fn first_ipv6(&self, ifindex: u32) -> Option<[u8; 16]> {
        let mut addr = [0; 16];
        // SAFETY: By the type invariant of `Inner`; not hard irq; `addr` has room for sixteen
        // bytes.
        unsafe { shim::kfabric_shim_udp_first_ipv6(self.raw(), ifindex, addr.as_mut_ptr()) }
            .then_some(addr)
    }

    /// Whether an interface has the address `addr`, and duplicate address detection allows it.
    pub(crate) fn has_ipv6(&self, ifindex: u32, addr: &[u8; 16]) -> bool {
        // SAFETY: By the type invariant of `Inner`; not hard irq; `addr` has sixteen bytes.
        unsafe { shim::kfabric_shim_udp_has_ipv6(self.raw(), ifindex, addr.as_ptr()) }
    }

    /// The index of an interface that has `ip`, by the kernel's own look-up, in constant time. If
    /// several interfaces have `ip`, it is one of them. It may be an interface that has `ip` by a
    /// route only.
    pub(crate) fn find(&self, ip: IpAddr) -> Option<u32> {
        let ifindex = match ip {
            IpAddr::V4(ip) => {
                let addr = ip.octets();
                // SAFETY: By the type invariant of `Inner`; not hard irq; `addr` has four bytes.
                unsafe { shim::kfabric_shim_udp_find_ipv4(self.raw(), addr.as_ptr()) }
            }
            IpAddr::V6(ip) => {
                let addr = ip.octets();
                // SAFETY: As above, with sixteen bytes.
                unsafe { shim::kfabric_shim_udp_find_ipv6(self.raw(), addr.as_ptr()) }
            }
        };
        (ifindex != 0).then_some(ifindex)
    }
}

impl<T: Receive> Drop for UdpSockets<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The state of the hardware address of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HardwareAddress {
    /// Nothing; also without a route.
    Unknown,
    /// It is being resolved, or probed.
    Pending,
    /// It is known for the next seconds; or none is needed, on this host for example.
    Known,
}

/// The next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextHop {
    pub(crate) address: HardwareAddress,
    /// Packets go to a router first.
    pub(crate) is_router: bool,
}

/// What a look-up of a route has found.
pub(crate) struct Found {
    /// The MTU in bytes of IP packets.
    pub(crate) mtu: u32,
    /// The destination is an address of this host.
    pub(crate) is_local: bool,
}

/// The route to a peer through the sockets of a namespace.
///
/// # Invariants
///
/// `raw` is initialised, with a pointer to the sockets in `sockets`.
#[pin_data(PinnedDrop)]
pub(crate) struct Route<T: Receive> {
    #[pin]
    raw: Opaque<shim::kfabric_shim_route>,
    sockets: Arc<UdpSockets<T>>,
}

// SAFETY: The cached dst is changed under the sockets' lock, and read under RCU.
unsafe impl<T: Receive> Send for Route<T> {}
// SAFETY: As above.
unsafe impl<T: Receive> Sync for Route<T> {}

/// The bytes of an address in network byte order, padded with zeros.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl<T: Receive> Route<T> {
    /// The route from the local address `from` to `to`, of the same family. Packets leave by the
    /// interface with `ifindex`, or stay on this host if `to` is one of its addresses in the same
    /// VRF. Process context.
    pub(crate) fn new(
        sockets: Arc<UdpSockets<T>>,
        ifindex: u32,
        from: IpAddr,
        to: IpAddr,
    ) -> impl PinInit<Self> {
        let udp = sockets.raw();
        pin_init!(Self {
            raw <- Opaque::ffi_init(move |raw: *mut shim::kfabric_shim_route| {
                // SAFETY: `raw` is valid for writes and pinned; the sockets live as long as
                // `sockets`. INVARIANT: Initialised, with that pointer.
                unsafe {
                    raw.write(shim::kfabric_shim_route {
                        ifindex,
                        ipv6: to.is_ipv6(),
                        from: octets(from),
                        to: octets(to),
                        ..Default::default()
                    });
                    shim::kfabric_shim_route_init(raw, udp);
                }
            }),
            sockets,
        })
    }

    /// Whether the cached route is valid. Looks nothing up, and takes no lock. Any context except
    /// hard irq.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        // SAFETY: `raw` is valid by the type invariant.
        unsafe { shim::kfabric_shim_route_is_valid(self.raw.get()) }
    }

    /// The next hop. `begin`: begins to resolve its hardware address if that is unknown. A stale
    /// address is confirmed in any case. Process context; does not sleep.
    pub(crate) fn next_hop(&self, begin: bool) -> NextHop {
        // SAFETY: `raw` is valid by the type invariant.
        let hop = unsafe { shim::kfabric_shim_route_next_hop(self.raw.get(), begin) };
        NextHop {
            address: match hop & !shim::KFABRIC_SHIM_HOP_ROUTER {
                shim::KFABRIC_SHIM_HOP_KNOWN => HardwareAddress::Known,
                shim::KFABRIC_SHIM_HOP_PENDING => HardwareAddress::Pending,
                _ => HardwareAddress::Unknown,
            },
            is_router: hop & shim::KFABRIC_SHIM_HOP_ROUTER != 0,
        }
    }

    /// The route that packets take now. It is looked up if the cached one is not valid.
    ///
    /// Fails with the error of routing, for example `ENETUNREACH` (no route), `EHOSTUNREACH`
    /// (unreachable), `EACCES` (prohibited), `EINVAL` (a blackhole); `EADDRNOTAVAIL` if the
    /// destination is a broadcast or multicast address; `ENETDOWN` if the sockets are closed.
    /// Process context; does not sleep.
    pub(crate) fn find(&self) -> Result<Found> {
        self.look(false)
    }

    /// [`find`](Self::find), which looks the route up even if the cached one is valid: an IPv6
    /// address that is added to this host makes no route to it invalid.
    pub(crate) fn find_again(&self) -> Result<Found> {
        self.look(true)
    }

    fn look(&self, again: bool) -> Result<Found> {
        let mut mtu = 0;
        // SAFETY: `raw` is valid by the type invariant, `mtu` for the call.
        match unsafe { shim::kfabric_shim_route_find(self.raw.get(), again, &raw mut mtu) } {
            error if error < 0 => Err(Error::from_errno(error)),
            local => Ok(Found {
                mtu,
                is_local: local != 0,
            }),
        }
    }

    /// Sends a packet that is complete except for the TTL and the checksum of the IPv4 header.
    ///
    /// Fails with the error of this host's stack, and the packet is lost: `ENETDOWN` the sockets
    /// are closed; those of [`find`](Self::find) from routing; `ENOBUFS` a full queue;
    /// `EMSGSIZE`; `EPERM` a packet filter. Process context, no spin lock held that is taken in
    /// softirq.
    pub(crate) fn send(&self, skb: TxSkb) -> Result {
        // SAFETY: `raw` is valid by the type invariant; this passes the packet's ownership on.
        to_result(unsafe { shim::kfabric_shim_route_send(self.raw.get(), skb.into_raw()) })
    }
}

#[pinned_drop]
impl<T: Receive> PinnedDrop for Route<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` is valid by the type invariant; nothing uses it any more, and `sockets`
        // still exist.
        unsafe { shim::kfabric_shim_route_exit(self.raw.get()) };
    }
}
