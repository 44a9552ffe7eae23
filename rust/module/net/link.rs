// SPDX-License-Identifier: GPL-2.0

//! Link: the software device on one network interface.
//!
//! A link has a name, and an id that increases and is never reused. An open domain uses the link
//! ([`LinkUse`]). The link counts its endpoints, operations and bytes for statistics. It has a copy
//! of the interface's state, MTU, VRF and name, which [`table`](super::table) updates on events of
//! the interface. Addresses are read from the interface when a caller asks for them.
//!
//! `state` and `domains` change under the table's lock only, so that "gone" and "in use" are
//! decided together; both may be read at any time.
//!
//! # Names
//!
//! Names of links and of interfaces have at most 15 bytes. A link's name is also the name of
//! domains and part of command lines and file names, so it is printable ASCII and neither "." nor
//! "..". The kernel decides which names an interface may have; [`IfName`] refuses only names that
//! no interface can have.

use core::net::IpAddr;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    share::Source, //
};

use super::{
    cm::GsiSlot,
    device_use::DeviceSlot,
    socket::Socket,
    stats::{
        LinkStats,
        Stat, //
    },
    table, //
};
use crate::shim::{
    bindings::{
        KFABRIC_LINK_DOWN,
        KFABRIC_LINK_GONE,
        KFABRIC_LINK_NAME_MAX,
        KFABRIC_LINK_UP, //
    },
    net::{
        NetNsId,
        Netdev,
        NetdevId,
        IFNAMSIZ, //
    },
    percpu::PerCpu,
    work::{
        self,
        impl_work, //
    }, //
};

/// The index in the traffic of a link that counts the operations sent; the next one counts their
/// bytes.
const TX: usize = 0;

/// The same for the operations that arrived.
const RX: usize = 2;

/// The state of a link, numbered as `KFABRIC_LINK_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum LinkState {
    /// The interface is administratively down, or in a VRF from which nothing can be received.
    Down = KFABRIC_LINK_DOWN,
    /// The interface is administratively up.
    Up = KFABRIC_LINK_UP,
    /// The interface or the link was removed. Final.
    Gone = KFABRIC_LINK_GONE,
}

impl LinkState {
    fn of(netdev: &Netdev) -> Self {
        if netdev.up {
            Self::Up
        } else {
            Self::Down
        }
    }
}

/// All properties of a link at one moment, for `struct kfabric_link_get`.
pub(crate) struct LinkInfo {
    /// See [`Link::id`].
    pub(crate) id: u32,
    /// See [`Link::name`].
    pub(crate) name: LinkName,
    /// See [`Link::ifname`].
    pub(crate) ifname: IfName,
    /// See [`Link::state`].
    pub(crate) state: LinkState,
    /// See [`Link::mtu`].
    pub(crate) mtu: u32,
    /// See [`Link::first_ipv4`].
    pub(crate) ipv4: Option<SockAddr>,
    /// See [`Link::first_ipv6`].
    pub(crate) ipv6: Option<SockAddr>,
    /// Domains open on it.
    pub(crate) domains: u32,
    /// Endpoints enabled on it.
    pub(crate) endpoints: u32,
    /// Operations that its endpoints sent.
    pub(crate) tx_ops: u64,
    /// Bytes of these.
    pub(crate) tx_bytes: u64,
    /// Operations that arrived for its endpoints.
    pub(crate) rx_ops: u64,
    /// Bytes of these.
    pub(crate) rx_bytes: u64,
}

/// A link, see the module documentation.
#[pin_data]
pub(crate) struct Link {
    id: u32,
    name: LinkName,
    netdev: NetdevId,
    /// A [`LinkState`]. Written under the table's lock; `Gone` is final.
    state: Atomic<u32>,
    /// Written under the table's lock.
    mtu: Atomic<u32>,
    /// The index of its interface's VRF; 0: none. Written under the table's lock.
    vrf: Atomic<u32>,
    /// Interfaces can be renamed. A leaf; process context only.
    #[pin]
    ifname: SpinLock<IfName>,
    /// Domains open on it. Written under the table's lock.
    domains: Atomic<u32>,
    endpoints: Atomic<u32>,
    /// Operations and bytes of endpoints, from [`TX`] and [`RX`] on.
    traffic: PerCpu<4>,
    /// The socket of its namespace; closed when the last link of the namespace goes.
    socket: Arc<Socket>,
    stats: LinkStats,
    /// The second consumer of QP 1.
    #[pin]
    gsi: GsiSlot,
    device: DeviceSlot,
    /// Notifies QPs and the provider that the link has gone.
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for Link { self.work, run: table::report_gone }
}

impl Link {
    /// A link on `interface`, in the namespace of `socket`. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(
        id: u32,
        name: LinkName,
        interface: &Netdev,
        socket: Arc<Socket>,
    ) -> Result<Arc<Self>> {
        let traffic = PerCpu::new()?;
        let stats = LinkStats::new()?;
        Arc::pin_init(
            pin_init!(Self {
                id,
                name,
                netdev: interface.id,
                state: Atomic::new(LinkState::of(interface) as u32),
                mtu: Atomic::new(interface.mtu),
                vrf: Atomic::new(interface.vrf),
                ifname <- new_spinlock!(IfName::from_kernel(&interface.name), "Link::ifname"),
                domains: Atomic::new(0),
                endpoints: Atomic::new(0),
                traffic,
                socket,
                stats,
                gsi <- GsiSlot::new(),
                device: DeviceSlot::new(),
                work <- new_work!("kfabric::Link"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its id: never 0, larger than those of all links added before. Any context.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Its name, unique in its namespace among the links that have not gone. Any context.
    pub(crate) fn name(&self) -> &LinkName {
        &self.name
    }

    /// Its network namespace. Any context.
    pub(crate) fn netns(&self) -> NetNsId {
        self.netdev.netns
    }

    /// Its interface, valid while the state is not [`LinkState::Gone`]. Any context.
    pub(super) fn netdev(&self) -> NetdevId {
        self.netdev
    }

    /// The socket of its namespace, through which its QPs send and receive. Any context.
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Counts an event that belongs to no QP. Any context.
    pub(crate) fn count(&self, stat: Stat) {
        self.stats.add(stat, 1);
    }

    /// The sums of its QPs' statistics. Any context.
    pub(crate) fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// The second consumer of QP 1 at its addresses. Any context.
    pub(super) fn gsi(&self) -> &GsiSlot {
        &self.gsi
    }

    /// Whether it has a device of the RDMA subsystem. Any context.
    pub(super) fn device(&self) -> &DeviceSlot {
        &self.device
    }

    /// The name of its interface; if that has gone, its last name. Process context.
    pub(crate) fn ifname(&self) -> IfName {
        *self.ifname.lock()
    }

    /// Its state. Any context.
    pub(crate) fn state(&self) -> LinkState {
        // Acquire pairs with the release in `set_state`: a reader that sees Gone sees everything
        // before it.
        match self.state.load(Acquire) {
            KFABRIC_LINK_UP => LinkState::Up,
            KFABRIC_LINK_DOWN => LinkState::Down,
            _ => LinkState::Gone,
        }
    }

    /// Checks that it can send. Fails with `ENETDOWN`, `ENODEV`. Any context.
    #[inline]
    pub(crate) fn check(&self) -> Result {
        match self.state() {
            LinkState::Up => Ok(()),
            LinkState::Down => Err(ENETDOWN),
            LinkState::Gone => Err(ENODEV),
        }
    }

    /// The error of an operation whose address the link does not have: `EADDRNOTAVAIL`, or
    /// `ENETDOWN` or `ENODEV` if the link has gone down or was removed, also if that has happened
    /// since the caller looked. Any context.
    #[cold]
    pub(crate) fn no_address(&self) -> Error {
        self.check().err().unwrap_or(EADDRNOTAVAIL)
    }

    /// The MTU of its interface in bytes. Any context.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Relaxed)
    }

    /// The index of the VRF (the L3 master device) of its interface, which may be the interface
    /// itself; 0 if it is in none. Any context.
    #[inline]
    pub(crate) fn vrf(&self) -> u32 {
        self.vrf.load(Relaxed)
    }

    /// Whether `peer` can be reached from the link by its scope: a link-local address belongs to
    /// one interface. An address without a scope belongs to any. Any context.
    pub(crate) fn is_in_scope(&self, peer: &SockAddr) -> bool {
        peer.scope() == 0 || peer.scope() == self.netdev.ifindex
    }

    /// The interface's first IPv4 address, with port 0; `None` if it has none or has gone. Process
    /// context or softirq.
    pub(crate) fn first_ipv4(&self) -> Option<SockAddr> {
        let netdev = self.present()?;
        let addr = self.socket.first_ipv4(netdev.ifindex)?;
        Some(SockAddr::v4(addr.into(), 0))
    }

    /// The interface's first usable IPv6 address, with port 0; `None` if it has none or has gone. A
    /// link-local address has the interface as its scope. Process context or softirq.
    pub(crate) fn first_ipv6(&self) -> Option<SockAddr> {
        let netdev = self.present()?;
        let addr = self.socket.first_ipv6(netdev.ifindex)?;
        // The scope is dropped for all but link-local addresses.
        SockAddr::v6(addr.into(), 0, netdev.ifindex).ok()
    }

    /// Whether `addr` is an address of the interface; its port is ignored.
    ///
    /// A link-local IPv6 address needs the interface as its scope. A loopback interface has all
    /// addresses of the subnet of its IPv4 address (usually 127.0.0.0/8), as in the kernel's
    /// routing. A wildcard address belongs to no interface. Process context or softirq; does not
    /// sleep.
    pub(crate) fn has_address(&self, addr: &SockAddr) -> bool {
        let Some(netdev) = self.present() else {
            return false;
        };
        match addr.ip() {
            IpAddr::V4(ip) => {
                !ip.is_unspecified() && self.socket.has_ipv4(netdev.ifindex, &ip.octets())
            }
            IpAddr::V6(ip) => {
                let other_scope = ip.is_unicast_link_local() && addr.scope() != netdev.ifindex;
                !other_scope && self.socket.has_ipv6(netdev.ifindex, &ip.octets())
            }
        }
    }

    /// Whether the interface has the address `ip`. A link-local `ip` gets the interface as its
    /// scope. Process context or softirq.
    pub(super) fn has_ip(&self, ip: IpAddr) -> bool {
        self.peer(ip).is_some_and(|addr| self.has_address(&addr))
    }

    /// The socket address of a peer at `ip`, with port 0; `None` if the link has gone, or `ip`
    /// cannot be an address. Any context.
    pub(crate) fn peer(&self, ip: IpAddr) -> Option<SockAddr> {
        let netdev = self.present()?;
        // The scope is dropped for all but link-local addresses.
        SockAddr::new(ip, 0, netdev.ifindex).ok()
    }

    /// The peer at `ip`, as what has a [share](kfi_core::share). Any context.
    pub(crate) fn source(&self, ip: IpAddr) -> Source {
        Source::host(ip, self.netdev.ifindex)
    }

    /// The interface, unless it has gone.
    fn present(&self) -> Option<NetdevId> {
        (self.state() != LinkState::Gone).then_some(self.netdev)
    }

    /// All its properties. Process context.
    pub(crate) fn info(&self) -> LinkInfo {
        LinkInfo {
            id: self.id,
            name: self.name,
            ifname: self.ifname(),
            state: self.state(),
            mtu: self.mtu(),
            ipv4: self.first_ipv4(),
            ipv6: self.first_ipv6(),
            domains: self.domains(),
            endpoints: self.endpoints.load(Relaxed),
            tx_ops: self.traffic.sum(TX),
            tx_bytes: self.traffic.sum(TX + 1),
            rx_ops: self.traffic.sum(RX),
            rx_bytes: self.traffic.sum(RX + 1),
        }
    }

    /// Opens it for a domain. Fails with `ENODEV` if it has gone, `EBUSY` if the number of domains
    /// would overflow. Does not sleep.
    pub(crate) fn open(self: &Arc<Self>) -> Result<LinkUse> {
        table::open(self)?;
        Ok(LinkUse {
            link: self.clone(),
            open: Atomic::new(true),
        })
    }

    /// Counts an endpoint as enabled, until the result is dropped. Any context.
    pub(crate) fn add_endpoint(self: &Arc<Self>) -> EndpointCount {
        self.endpoints.add(1, Relaxed);
        EndpointCount { link: self.clone() }
    }

    /// Counts an operation of `bytes` that an endpoint sent. Any context; accesses memory of this
    /// CPU only.
    #[inline]
    pub(crate) fn count_tx(&self, bytes: u64) {
        self.traffic.count(TX, bytes);
    }

    /// Counts an operation of `bytes` that arrived for an endpoint. Any context; accesses memory of
    /// this CPU only.
    #[inline]
    pub(crate) fn count_rx(&self, bytes: u64) {
        self.traffic.count(RX, bytes);
    }
}

/// Functions for [`table`] alone, which calls them under its lock.
impl Link {
    /// Domains open on it. May be read without the lock.
    pub(super) fn domains(&self) -> u32 {
        self.domains.load(Relaxed)
    }

    pub(super) fn set_domains(&self, domains: u32) {
        self.domains.store(domains, Relaxed);
    }

    /// Copies the state of the interface. `receives`: the sockets of its VRF are open, if it has
    /// one.
    pub(super) fn update(&self, netdev: &Netdev, receives: bool) {
        self.set_state(match receives {
            true => LinkState::of(netdev),
            false => LinkState::Down,
        });
        self.mtu.store(netdev.mtu, Relaxed);
        self.vrf.store(netdev.vrf, Relaxed);
        *self.ifname.lock() = IfName::from_kernel(&netdev.name);
    }

    pub(super) fn set_state(&self, state: LinkState) {
        // Release: see `state`.
        self.state.store(state as u32, Release);
    }

    /// Queues the work item that notifies QPs and the provider that the link has gone. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // It is not refused: a link goes once.
        let _ = work::slow_queue().enqueue(self.clone());
    }
}

/// A domain's use of a link, until it is released or dropped. While it lasts, the link cannot be
/// removed by a command, but its interface can go.
pub(crate) struct LinkUse {
    link: Arc<Link>,
    open: Atomic<bool>,
}

impl LinkUse {
    /// Ends the use now; the value may live on. Idempotent. Sleeps.
    pub(crate) fn release(&self) {
        if self.open.xchg(false, Full) {
            table::close(&self.link);
        }
    }
}

impl core::ops::Deref for LinkUse {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for LinkUse {
    fn drop(&mut self) {
        self.release();
    }
}

/// Counts an enabled endpoint at its link, until it is dropped.
pub(crate) struct EndpointCount {
    link: Arc<Link>,
}

impl Drop for EndpointCount {
    fn drop(&mut self) {
        let _ = self.link.endpoints.fetch_sub(1, Relaxed);
    }
}

/// Size of a name of either kind in the ABI, with the NUL.
pub(crate) const NAME_MAX: usize = KFABRIC_LINK_NAME_MAX as usize;

const _: () = assert!(NAME_MAX == IFNAMSIZ);

/// A name padded with NULs.
///
/// # Invariants
///
/// The first byte is not NUL, the last one is, and all bytes after the first NUL are NULs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name([u8; NAME_MAX]);

impl Name {
    /// Takes the bytes up to the first NUL. Fails with `EINVAL` if there is no NUL, nothing before
    /// it, or a byte that `allowed` rejects.
    fn new(raw: &[u8; NAME_MAX], allowed: impl Fn(u8) -> bool) -> Result<Self> {
        let len = raw.iter().position(|&byte| byte == 0).ok_or(EINVAL)?;
        let mut name = [0; NAME_MAX];
        for (to, &from) in name.iter_mut().zip(raw).take(len) {
            if !allowed(from) {
                return Err(EINVAL);
            }
            *to = from;
        }
        if len == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: `len` bytes that are not NUL. `len` is at least 1 and, since a NUL follows
        // them, at most NAME_MAX - 1. The rest is 0.
        Ok(Self(name))
    }

    /// Whether it is "." or "..", which are not names of files.
    fn is_dots(&self) -> bool {
        matches!(self.as_bytes(), b"." | b"..")
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.split(|&b| b == 0).next().unwrap_or_default()
    }
}

/// The name of a link: printable ASCII without blanks and '/', neither "." nor "..".
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkName(Name);

impl LinkName {
    /// A name in the format of the ABI. Fails with `EINVAL` if it is empty, not terminated, has a
    /// byte that is not allowed, or is "." or "..".
    pub(crate) fn new(raw: &[u8; NAME_MAX]) -> Result<Self> {
        let name = Name::new(raw, |byte| byte.is_ascii_graphic() && byte != b'/')?;
        if name.is_dots() {
            return Err(EINVAL);
        }
        Ok(Self(name))
    }

    /// The bytes, without NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name in the format of the ABI.
    pub(crate) fn to_array(self) -> [u8; NAME_MAX] {
        self.0 .0
    }
}

/// The name of a network interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IfName(Name);

impl IfName {
    /// A name in the format of the ABI. Fails with `EINVAL` if it is empty, not terminated, or has
    /// a byte that no interface can have in its name, or is "." or "..". The kernel's
    /// `dev_valid_name()` has the same rule.
    pub(crate) fn new(raw: &[u8; NAME_MAX]) -> Result<Self> {
        let allowed = |byte: u8| !byte.is_ascii_whitespace() && !b"\x0b/:".contains(&byte);
        let name = Name::new(raw, allowed)?;
        if name.is_dots() {
            return Err(EINVAL);
        }
        Ok(Self(name))
    }

    /// A name from the kernel; "?" if it is not valid.
    fn from_kernel(raw: &[u8; IFNAMSIZ]) -> Self {
        // INVARIANT: One byte, then NULs.
        const UNKNOWN: Name = Name([b'?', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        Self(Name::new(raw, |_| true).unwrap_or(UNKNOWN))
    }

    /// The bytes, without NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name in the format of the ABI.
    pub(crate) fn to_array(self) -> [u8; NAME_MAX] {
        self.0 .0
    }

    /// The name for a look-up.
    pub(super) fn as_c_str(&self) -> &CStr {
        // By the invariant there is a NUL, so the default is never used.
        CStr::from_bytes_until_nul(&self.0 .0).unwrap_or_default()
    }
}
