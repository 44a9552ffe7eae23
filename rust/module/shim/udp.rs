// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets of a network namespace, and the ways by which packets leave through them.
//!
//! [`UdpSockets`] are two, for IPv4 and IPv6, at one port and all addresses. What arrives goes to
//! their [`Receive`] in softirq. A [`Route`] is the way to one peer: it remembers what routing said
//! as long as that holds.
//!
//! Neither keeps the namespace alive. [`UdpSockets::close`] is called before it ends; afterwards
//! sending fails, and nothing of the namespace is held.

use crate::shim::{
    bindings as shim,
    net::NetNs,
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
        rcu,
        Arc, //
    },
    types::Opaque, //
};

/// So many bytes of a packet that is received, from the UDP header on, are where nobody else writes
/// to, if it has so many.
// rustc 1.85 does not count a use in a static_assert!.
#[allow(dead_code)]
pub(crate) const RX_HEAD: usize = shim::KFABRIC_SHIM_RX_HEAD as usize;

/// Who gets what arrives.
pub(crate) trait Receive: Send + Sync + 'static {
    /// A datagram has arrived. Called in softirq, in an RCU read-side section, on several CPUs at
    /// once.
    fn receive(&self, skb: RxSkb);
}

/// The sockets of a namespace.
///
/// To be dropped in process context: waits for a grace period.
///
/// # Invariants
///
/// `raw` was opened, and has a pointer to what is in `receiver`.
#[pin_data(PinnedDrop)]
pub(crate) struct UdpSockets<T: Receive> {
    #[pin]
    raw: Opaque<shim::kfabric_shim_udp>,
    receiver: Arc<T>,
    closed: Atomic<bool>,
}

// SAFETY: Sockets are used and closed by any task; the routes have a lock of their own.
unsafe impl<T: Receive> Send for UdpSockets<T> {}
// SAFETY: As above.
unsafe impl<T: Receive> Sync for UdpSockets<T> {}

impl<T: Receive> UdpSockets<T> {
    /// Opens the sockets of `netns` at `port`. Without IPv6 in the kernel or the namespace there is
    /// one for IPv4 alone.
    ///
    /// `EADDRINUSE` somebody else has the port; `ENOMEM`; what else opening a socket may give.
    /// Sleeps; the RTNL may be held.
    pub(crate) fn open(netns: &NetNs, port: u16, receiver: Arc<T>) -> Result<Arc<Self>> {
        let data = Arc::as_ptr(&receiver);
        let net = netns.as_ptr();
        Arc::pin_init(
            try_pin_init!(Self {
                raw <- Opaque::try_ffi_init(|raw: *mut shim::kfabric_shim_udp| {
                    // SAFETY: `raw` is valid for writes and pinned; the namespace is alive during
                    // the call. `data` lives as long as `receiver`, which outlives the sockets.
                    // INVARIANT: Opened, with that pointer.
                    unsafe {
                        raw.write(shim::kfabric_shim_udp {
                            receive: Some(Self::receive),
                            data: data.cast_mut().cast(),
                            ..Default::default()
                        });
                        to_result(shim::kfabric_shim_udp_open(raw, net, port))
                    }
                }),
                receiver,
                closed: Atomic::new(false),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What is called with each packet.
    ///
    /// # Safety
    ///
    /// `data` is as `open` gave it, `skb` as [`RxSkb`] wants it, and the caller's to give away.
    unsafe extern "C" fn receive(data: *mut c_void, skb: *mut bindings::sk_buff) {
        if let Some(skb) = NonNull::new(skb) {
            // SAFETY: By the requirements.
            let skb = unsafe { RxSkb::from_raw(skb) };
            // SAFETY: By the type invariant it points to the receiver, which is not dropped before
            // a grace period has passed since the sockets were closed.
            unsafe { &*data.cast::<T>() }.receive(skb);
        }
    }

    /// The receiver.
    pub(crate) fn receiver(&self) -> &Arc<T> {
        &self.receiver
    }

    /// Closes the sockets: nothing is sent any more, and nothing received after a moment. The
    /// first call does it, others do nothing. Sleeps; the RTNL may be held.
    pub(crate) fn close(&self) {
        if !self.closed.xchg(true, Full) {
            // SAFETY: By the type invariant they were opened; this is the only call.
            unsafe { shim::kfabric_shim_udp_close(self.raw.get()) };
        }
    }
}

#[pinned_drop]
impl<T: Receive> PinnedDrop for UdpSockets<T> {
    fn drop(self: Pin<&mut Self>) {
        self.close();
        // Nobody receives any more afterwards.
        rcu::synchronize_rcu();
    }
}

/// The way to a peer through the sockets of a namespace.
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

// SAFETY: What is remembered is changed under the sockets' lock, and read under RCU.
unsafe impl<T: Receive> Send for Route<T> {}
// SAFETY: As above.
unsafe impl<T: Receive> Sync for Route<T> {}

/// The bytes of an address in the order of the wire, filled up with zeros.
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
    /// The way from the own address `from` to `to`, of the same family, leaving by the interface
    /// with `ifindex` or, to an address of this host, staying here. Process context.
    pub(crate) fn new(
        sockets: Arc<UdpSockets<T>>,
        ifindex: u32,
        from: IpAddr,
        to: IpAddr,
    ) -> impl PinInit<Self> {
        let udp = sockets.raw.get();
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

    /// The MTU of the way, bytes of IP packets; `None` if there is no way now. Process context.
    pub(crate) fn mtu(&self) -> Option<u32> {
        // SAFETY: By the type invariant.
        match unsafe { shim::kfabric_shim_route_mtu(self.raw.get()) } {
            0 => None,
            mtu => Some(mtu),
        }
    }

    /// Whether the address is one of many hosts, as routing knows it: broadcast or multicast. Process
    /// context.
    pub(crate) fn is_of_many(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { shim::kfabric_shim_route_check(self.raw.get()) != 0 }
    }

    /// Sends a packet that is complete but for the TTL and the checksum of the IPv4 header.
    ///
    /// An error is what this host's stack says: `ENETDOWN` the sockets are closed; `ENETUNREACH`,
    /// `EINVAL` and others from routing; `ENOBUFS` a full queue; `EMSGSIZE`; `EPERM` a packet
    /// filter. The packet is lost then. Process context, no spin lock that is taken in softirq.
    pub(crate) fn send(&self, skb: TxSkb) -> Result {
        // SAFETY: By the type invariant; the packet is given away.
        to_result(unsafe { shim::kfabric_shim_route_send(self.raw.get(), skb.into_raw()) })
    }
}

#[pinned_drop]
impl<T: Receive> PinnedDrop for Route<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant; nobody uses it any more, and `sockets` are still there.
        unsafe { shim::kfabric_shim_route_exit(self.raw.get()) };
    }
}
