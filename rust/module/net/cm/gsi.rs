// SPDX-License-Identifier: GPL-2.0

//! Gsi: QP 1 of a link for a second consumer.
//!
//! InfiniBand's QP 1 (the general services interface) takes management datagrams of several
//! classes. Connection management takes those that concern it. The rest goes to the second consumer
//! of the link that has the datagram's destination address, if there is one: a verbs device, which
//! has a GSI QP of its own and its own connection management.
//!
//! | datagram | goes to | without a second consumer |
//! |---|---|---|
//! | a message about a connection of this module, by its IDs and its peer | connection management | connection management |
//! | REQ with a service ID that has a listener at the address | connection management | connection management |
//! | other messages of connection management | second consumer | a REJ or DREP, or dropped |
//! | other management classes, everything else with the Q key of QP 1 | second consumer | dropped |
//!
//! A dropped datagram is counted (`drop_cm`), and so is one that the second consumer has no room for.
//!
//! # Shares
//!
//! The second consumer does not limit what it accepts: `ib_mad` and `ib_cm` allocate memory for each
//! datagram, and `ib_cm` answers them one after another. Each answer can wait up to a second for the
//! hardware address of the sender. So a datagram is dropped if that address is not known; its
//! resolution begins, unless too many have begun, and connection management repeats its messages.
//! In addition, each source has a share of the rate ([`Rates`]).
//!
//! # Locks and contexts
//!
//! The work item of QP 1 calls the consumer without a lock. It serves the connections of all users
//! of the namespace, so a consumer copies the datagram and does everything else in a work item of
//! its own: it must not wait for a lock that a system call holds.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/gsi.rs"]
mod kunit;

use super::{
    super::{
        link::{
            Link,
            LinkState, //
        },
        path::{
            Path,
            Reach, //
        },
        qp::ud::{
            Consumer,
            Datagram,
            Destination, //
        },
        stats::Stat, //
    },
    service::Cm, //
};
use crate::{
    mem::Source,
    shim::{
        random::SipKey,
        sched::now_ns,
        skb::Sender,
        udp::HardwareAddress, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use kfi_core::token_bucket::TokenBucket;
use kfi_roce::cm::MAD_LEN;

/// The rate of a host: one datagram each millisecond, after a burst of 1,024.
type HostRate = TokenBucket<1_000_000, 1024>;

/// The rate of an IPv6 network behind a router, whose addresses one host can use: four times that
/// of a host.
type NetworkRate = TokenBucket<250_000, 4096>;

/// The rate at which resolutions of hardware addresses begin: one each 10 ms, after a burst of 128.
type ResolutionRate = TokenBucket<10_000_000, 128>;

/// Where a source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// This host.
    ThisHost,
    /// The link.
    Link,
    /// Behind a router.
    Routed,
}

impl Origin {
    /// That of a source address with this `reach` in a datagram of `sender`. `None`: it is forged,
    /// because a host does not send from addresses of others. In a VRF that cannot be seen.
    fn of(sender: Sender, reach: Reach, is_router: bool) -> Option<Self> {
        match (sender, reach, is_router) {
            (Sender::ThisHost, Reach::Network, _) | (Sender::OtherHost, Reach::ThisHost, _) => None,
            (_, Reach::ThisHost, _) => Some(Self::ThisHost),
            (_, Reach::Network, false) => Some(Self::Link),
            (_, Reach::Network, true) => Some(Self::Routed),
        }
    }
}

/// The shares of sources in the rate at which the second consumer gets datagrams, and the rate of
/// resolutions for all sources together.
///
/// Sources with the same hash have a share together. Sources behind routers have other shares than
/// those on the link, because one host can forge any address there. The ends on this host have one
/// of their own, because a user of this host can have many addresses.
struct Rates {
    /// Secret: an attacker cannot choose sources with the hash of another one.
    key: SipKey,
    on_link: [HostRate; 1 << Self::BITS],
    routed: [HostRate; 1 << Self::BITS],
    networks: [NetworkRate; 1 << Self::BITS],
    this_host: HostRate,
    resolutions: ResolutionRate,
}

impl Rates {
    const BITS: u32 = 4;

    fn new() -> Self {
        Self {
            key: SipKey::random(),
            on_link: [HostRate::new(); 1 << Self::BITS],
            routed: [HostRate::new(); 1 << Self::BITS],
            networks: [NetworkRate::new(); 1 << Self::BITS],
            this_host: HostRate::new(),
            resolutions: ResolutionRate::new(),
        }
    }

    /// The share of what these words name.
    fn index(&self, words: &[u64; 4]) -> usize {
        // The index has as many bits as there are shares.
        (self.key.hash(words) >> (u64::BITS - Self::BITS)) as usize
    }

    /// Whether a datagram from `source` may pass at time `now` in ns.
    fn admit(&mut self, source: IpAddr, origin: Origin, now: u64) -> bool {
        if origin == Origin::ThisHost {
            return self.this_host.take(now);
        }
        let bits = match source {
            IpAddr::V4(ip) => ip.to_bits().into(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        // CAST: The halves.
        let (network, low) = ((bits >> 64) as u64, bits as u64);
        let host = self.index(&[network, low, 0, 0]);
        if origin == Origin::Link {
            // All hosts on the link may have one network.
            return self
                .on_link
                .get_mut(host)
                .is_some_and(|host| host.take(now));
        }
        // IPv4 addresses, also mapped ones, have no network.
        let network = (network != 0).then(|| self.index(&[network, 0, 1, 0]));
        let Some(host) = self.routed.get_mut(host) else {
            return false;
        };
        let Some(network) = network.and_then(|index| self.networks.get_mut(index)) else {
            return host.take(now);
        };
        // Both or none: a source without one of them uses up no token of others.
        let (mut of_host, mut of_network) = (*host, *network);
        let admitted = of_host.take(now) && of_network.take(now);
        if admitted {
            (*host, *network) = (of_host, of_network);
        }
        admitted
    }
}

/// The second consumer of QP 1 of a link, if there is one.
#[pin_data]
pub(in crate::net) struct GsiSlot {
    /// A leaf, except for the reference count of `Consumer`; process context only.
    #[pin]
    consumer: SpinLock<Option<Arc<dyn Consumer>>>,
    /// A leaf; process context only.
    #[pin]
    rates: SpinLock<Rates>,
}

impl GsiSlot {
    /// No consumer.
    pub(in crate::net) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            consumer <- new_spinlock!(None, "GsiSlot::consumer"),
            rates <- new_spinlock!(Rates::new(), "GsiSlot::rates"),
        })
    }

    /// Sets the consumer. Fails with `EBUSY` if there is one.
    fn set(&self, consumer: Arc<dyn Consumer>) -> Result {
        let mut slot = self.consumer.lock();
        if slot.is_some() {
            return Err(EBUSY);
        }
        *slot = Some(consumer);
        Ok(())
    }

    fn clear(&self) {
        let consumer = self.consumer.lock().take();
        drop(consumer);
    }

    /// Whether a datagram from `sender`, which came the opposite way of `path`, may pass now.
    /// Process context; does not sleep.
    fn admits(&self, path: &Path, sender: Sender) -> bool {
        let Ok(reach) = path.check() else {
            return false;
        };
        let now = now_ns();
        let mut hop = path.next_hop(false);
        // First: a forged source uses up nothing.
        let Some(origin) = Origin::of(sender, reach, hop.is_router) else {
            return false;
        };
        // A router is one address, whose resolution needs no limit.
        if hop.address == HardwareAddress::Unknown
            && (hop.is_router || self.rates.lock().resolutions.take(now))
        {
            hop = path.next_hop(true);
        }
        // In this order: a source that cannot be answered takes no token of others.
        hop.address == HardwareAddress::Known
            && self.rates.lock().admit(path.addrs().to, origin, now)
    }

    /// The consumer, if there is one. Does not sleep.
    pub(super) fn consumer(&self) -> Option<Arc<dyn Consumer>> {
        self.consumer.lock().clone()
    }
}

/// The second consumer's use of QP 1, see the module documentation. Dropping it ends the use, waits
/// for a call of the consumer that is in progress, and sleeps. The consumer is not called
/// afterwards. So it must not be dropped in a call of the consumer, nor under a lock that the
/// consumer takes.
///
/// The link can be removed meanwhile. Then no datagrams are received or sent.
pub(crate) struct Gsi {
    link: Arc<Link>,
    cm: Arc<Cm>,
}

impl Gsi {
    /// Passes the datagrams to QP 1 at addresses of `link` that connection management does not take
    /// to `consumer`. One for which its [`datagram`](Consumer::datagram) fails is dropped.
    ///
    /// Fails with `EBUSY` if the link has a second consumer, `ENODEV` if it has gone. Does not
    /// sleep.
    pub(crate) fn open(link: &Arc<Link>, consumer: Arc<dyn Consumer>) -> Result<Self> {
        let cm = Cm::of(link.socket())?;
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        link.gsi().set(consumer)?;
        Ok(Self {
            link: link.clone(),
            cm,
        })
    }

    /// Sends a datagram from QP 1 along `path`, which begins at an address of the link. If `to` has
    /// a controlled Q key, the datagram has that of QP 1. Errors and context:
    /// [`Qp::<Ud>::send`](super::super::qp::Qp::send). Also fails with `EINVAL` if the path is not
    /// of the link.
    pub(crate) fn send(&self, path: &Path, to: &Destination, payload: &Source<'_>) -> Result {
        if !Arc::ptr_eq(path.link(), &self.link) {
            return Err(EINVAL);
        }
        self.cm.gsi()?.send(path, to, payload)
    }
}

impl Drop for Gsi {
    fn drop(&mut self) {
        self.link.gsi().clear();
        if let Ok(gsi) = self.cm.gsi() {
            gsi.wait_for_work();
        }
    }
}

/// Passes `datagram` to the second consumer of the link that has its destination address, or drops
/// it because its sender has sent too many, or cannot be answered now, or because the consumer has
/// no room. `None` if there is no second consumer, if the datagram has not the length of a MAD, or
/// if `concerns` returns true. `concerns` returns whether the datagram is one for connection
/// management after all; it is called only if there is a second consumer. Sleeps.
pub(super) fn pass_on(
    cm: &Cm,
    datagram: &Datagram<'_>,
    concerns: impl FnOnce() -> bool,
) -> Option<()> {
    let addrs = datagram.addrs()?;
    let link = cm.socket().link_at(addrs.to, addrs.vrf)?;
    let consumer = link.gsi().consumer()?;
    // `ib_mad` takes each datagram for a whole MAD, and never posts a receive again that has ended
    // in error.
    if datagram.payload().len() != MAD_LEN || concerns() {
        return None;
    }
    let path = Path::new(&link, addrs.to, addrs.from);
    let admitted = path.is_ok_and(|path| link.gsi().admits(&path, datagram.sender()));
    // A refusal by connection management would end a connection that the consumer would make when
    // it has room again. A datagram that is dropped is sent again.
    if !admitted || consumer.datagram(datagram).is_err() {
        cm.count(Stat::DropCm);
    }
    Some(())
}
