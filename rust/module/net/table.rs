// SPDX-License-Identifier: GPL-2.0

//! The table of all links, and the events of their interfaces.
//!
//! Links are added and removed with the RTNL held: by [`add`], by [`del`], and by the kernel's
//! notifier for events of interfaces ([`NetdevHandler`]). So no link is added to an interface that
//! has gone, and one task at a time opens or closes the sockets of a namespace. When a namespace
//! ends, its interfaces go one by one, and their links with them. When an interface goes while
//! domains are open on its link, a work item calls [`LinkEvents::link_gone`]: the provider cannot
//! be called with the RTNL held. A link that has gone stays in the table while domains are open on
//! it, so that programs can list it; its name is free.
//!
//! The links are in one tree, by namespace and id, under a spin lock. System calls look for links
//! there, and open and close domains on them. Packets do not use the tree: each namespace's
//! [socket](super::socket) has its own links, which are looked up under RCU. Nothing is allocated,
//! freed or waited for under the spin lock, and no function here waits for a grace period.
//!
//! The limit of links applies to each namespace and not to their total. So a user who may add links
//! in a namespace of their own cannot use up the links of others. Each link needs an interface, so
//! the limits of interfaces and namespaces limit links too.

use core::cell::Cell;

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};

use kfi_core::addr::SockAddr;

use super::{
    link::{
        IfName,
        Link,
        LinkName,
        LinkState, //
    },
    socket::{
        self,
        Socket, //
    }, //
};
use crate::shim::{
    net::{
        NetNs,
        NetNsId,
        Netdev,
        NetdevEvent,
        NetdevEvents,
        Notifier,
        Rtnl, //
    },
    sched::cond_resched,
    udp::AddrNotifier,
    work::WorkQueues, //
};

/// Callbacks for events of links, which the provider implements.
pub(crate) trait LinkEvents: Sync {
    /// The interface of `link` has gone while domains were open on the link. Called once per link,
    /// by a work item without locks; may sleep, and call every function of [`net`](super).
    /// The provider may not know yet of a domain that is being opened at that moment. So the opener
    /// checks [`Link::state`] again after it has inserted the domain.
    fn link_gone(&self, link: &Arc<Link>);
}

/// The key of a link: its namespace and its id.
type Key = (NetNsId, u32);

struct Table {
    /// A link that has gone stays in it while domains are open on the link. `None` before the first
    /// link is added, because a tree cannot be created in a constant.
    links: Option<RBTree<Key, Arc<Link>>>,
    last_id: u32,
    max_links: u32,
    events: Option<&'static dyn LinkEvents>,
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in `start`, which is called before any other function of `net`.
    unsafe(uninit) static LINKS: SpinLock<Table> = Table {
        links: None,
        last_id: 0,
        max_links: 0,
        events: None,
    };
}

/// A link that was removed from the table. It must not be dropped under the lock.
type RemovedLink = RBTreeNode<Key, Arc<Link>>;

fn key(link: &Link) -> Key {
    (link.netns(), link.id())
}

impl Table {
    /// The first link of `netns` with an id above `after` that is `wanted`.
    fn find(
        &self,
        netns: NetNsId,
        mut after: u32,
        wanted: impl Fn(&Link) -> bool,
    ) -> Option<Arc<Link>> {
        let links = self.links.as_ref()?;
        loop {
            let from = (netns, after.checked_add(1)?);
            let cursor = links.cursor_lower_bound(&from)?;
            let (key, link) = cursor.current();
            if key.0 != netns {
                return None;
            }
            if wanted(link) {
                return Some(link.clone());
            }
            after = key.1;
        }
    }

    /// Whether a namespace has `max_links` links. Links that have gone count, because searches pass
    /// them.
    fn is_full(&self, netns: NetNsId) -> bool {
        let count = Cell::new(0u32);
        let reaches_limit = |_: &Link| {
            count.set(count.get().saturating_add(1));
            count.get() >= self.max_links
        };
        self.max_links == 0 || self.find(netns, 0, reaches_limit).is_some()
    }

    /// The link `name` of `netns`. Without one, the last of this name that has gone and is listed.
    fn named(&self, netns: NetNsId, name: &LinkName) -> Option<Arc<Link>> {
        let present = |link: &Link| link.name() == name && link.state() != LinkState::Gone;
        if let Some(link) = self.find(netns, 0, present) {
            return Some(link);
        }
        let (mut last, mut after) = (None, 0);
        while let Some(link) = self.find(netns, after, |link| link.name() == name) {
            after = link.id();
            last = Some(link);
        }
        last
    }

    /// The socket of a namespace, if it has links.
    fn socket(&self, netns: NetNsId) -> Option<Arc<Socket>> {
        let present = |link: &Link| link.state() != LinkState::Gone;
        let link = self.find(netns, 0, present)?;
        Some(link.socket().clone())
    }

    fn remove(&mut self, link: &Link) -> Option<RemovedLink> {
        self.links.as_mut()?.remove_node(&key(link))
    }

    /// Marks `link` as gone, and removes it unless domains are open on it: then the last one
    /// removes it.
    fn gone(&mut self, link: &Arc<Link>) -> Option<RemovedLink> {
        link.set_state(LinkState::Gone);
        if link.domains() == 0 {
            self.remove(link)
        } else {
            None
        }
    }
}

/// Handles a link that has [gone](Table::gone): closes the sockets if it was the last link of the
/// namespace, and notifies connection management. The link's work item [notifies](report_gone) QPs
/// and the provider, which may take long. Sleeps; the RTNL is held.
fn end(link: &Arc<Link>) {
    let socket = link.socket();
    let inbound = socket.receiver();
    if inbound.leave_link(link) {
        socket::close(socket);
    } else {
        // Opens no socket, so it cannot fail.
        let _ = socket.set_vrf(link, link.vrf(), 0);
        inbound.cm().link_gone(false);
    }
    inbound.generation().advance();
    link.wake();
}

/// Adds the link `name` on the interface `ifname` of `netns`, and opens the namespace's sockets if
/// it is the first link there.
///
/// # Errors
///
/// - `EPERM`: the caller lacks CAP_NET_ADMIN in the user namespace that owns `netns`.
/// - `ENODEV`: there is no such interface.
/// - `EEXIST`: a link that has not gone has the name, or is on the interface.
/// - `ENOSPC`: too many links in `netns` (module parameter `max_links`), or all link ids are used.
/// - `EADDRINUSE`: it would be the first link of `netns`, or of a VRF, and UDP port 4791 is in use
///   there.
/// - `ENOMEM`.
///
/// Sleeps; takes the RTNL.
pub(crate) fn add(netns: &NetNs, name: LinkName, ifname: IfName) -> Result<Arc<Link>> {
    if !netns.capable_net_admin() {
        return Err(EPERM);
    }
    let rtnl = Rtnl::lock();
    let netdev = rtnl.find(netns, ifname.as_c_str()).ok_or(ENODEV)?;
    let id = netdev.id.netns;
    let taken = |link: &Link| {
        let same = *link.name() == name || link.netdev() == netdev.id;
        same && link.state() != LinkState::Gone
    };
    let (next_id, open) = {
        let table = LINKS.lock();
        if table.find(id, 0, taken).is_some() {
            return Err(EEXIST);
        }
        if table.is_full(id) {
            return Err(ENOSPC);
        }
        let next_id = table.last_id.checked_add(1).ok_or(ENOSPC)?;
        (next_id, table.socket(id))
    };
    // The RTNL is held, so no link is added or removed meanwhile.
    if let Some(socket) = open {
        return enter(next_id, name, &netdev, &socket);
    }
    let socket = socket::open(netns)?;
    enter(next_id, name, &netdev, &socket).inspect_err(|_| socket::close(&socket))
}

/// Creates a link and inserts it. Fails with `ENOMEM`; `EADDRINUSE` if another socket has the port
/// in the VRF of the interface. Sleeps; the RTNL is held.
fn enter(id: u32, name: LinkName, netdev: &Netdev, socket: &Arc<Socket>) -> Result<Arc<Link>> {
    let link = Link::new(id, name, netdev, socket.clone())?;
    let node = RBTreeNode::new(key(&link), link.clone(), GFP_KERNEL_ACCOUNT)?;
    socket.set_vrf(&link, 0, netdev.vrf)?;
    if let Err(error) = socket.receiver().enter_link(&link) {
        let _ = socket.set_vrf(&link, netdev.vrf, 0);
        return Err(error);
    }
    let mut table = LINKS.lock();
    table.last_id = id;
    table.links.get_or_insert_with(RBTree::new).insert(node);
    Ok(link)
}

/// Removes the link `name` of `netns`.
///
/// Fails with `EPERM` if the caller lacks CAP_NET_ADMIN in the user namespace that owns `netns`,
/// `ENODEV` if there is no such link, or it has gone; `EBUSY` if a domain is open on it. Sleeps;
/// takes the RTNL.
pub(crate) fn del(netns: &NetNs, name: &LinkName) -> Result {
    if !netns.capable_net_admin() {
        return Err(EPERM);
    }
    let rtnl = Rtnl::lock();
    let (link, removed) = {
        let mut table = LINKS.lock();
        let link = table.named(netns.id(), name).ok_or(ENODEV)?;
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        if link.domains() != 0 {
            return Err(EBUSY);
        }
        let removed = table.gone(&link);
        (link, removed)
    };
    end(&link);
    drop(rtnl);
    drop(removed);
    Ok(())
}

/// Removes `link` unless domains are open on it, or it has gone. For a link that was added by the
/// caller: no capability is asked for. Sleeps; takes the RTNL.
pub(super) fn remove_unused(link: &Arc<Link>) {
    let rtnl = Rtnl::lock();
    let removed = {
        let mut table = LINKS.lock();
        if link.state() == LinkState::Gone || link.domains() != 0 {
            return;
        }
        table.gone(link)
    };
    end(link);
    drop(rtnl);
    drop(removed);
}

/// The first link of `netns` with an id above `after`. Fails with `ENOENT` if there is none. Does
/// not sleep.
///
/// An id is never reused, so a walk finds each link at most once, even if links are added and
/// removed meanwhile.
pub(crate) fn next(netns: NetNsId, after: u32) -> Result<Arc<Link>> {
    LINKS.lock().find(netns, after, |_| true).ok_or(ENOENT)
}

/// The link after `after` in the order of all namespaces; the first link without `after`. Fails
/// with `ENOENT` if there is none. Does not sleep.
pub(crate) fn next_anywhere(after: Option<&Link>) -> Result<Arc<Link>> {
    let table = LINKS.lock();
    let links = table.links.as_ref().ok_or(ENOENT)?;
    let cursor = match after {
        None => links.cursor_front(),
        Some(link) => {
            let (netns, id) = key(link);
            links.cursor_lower_bound(&(netns, id.saturating_add(1)))
        }
    };
    let cursor = cursor.ok_or(ENOENT)?;
    let link = cursor.current().1.clone();
    Ok(link)
}

/// The socket of `netns`. Fails with `ENOENT` if it has no link. Does not sleep.
pub(crate) fn socket(netns: NetNsId) -> Result<Arc<Socket>> {
    LINKS.lock().socket(netns).ok_or(ENOENT)
}

/// The link `name` of `netns`; if there is none, one of that name that has gone and is listed.
/// Fails with `ENODEV` if there is none either. Does not sleep.
pub(crate) fn find(netns: NetNsId, name: &LinkName) -> Result<Arc<Link>> {
    LINKS.lock().named(netns, name).ok_or(ENODEV)
}

/// Whether a link of the namespace of `socket` has `addr`, whatever its port. Does not sleep.
pub(crate) fn has_address(socket: &Arc<Socket>, addr: &SockAddr) -> bool {
    socket.link_with(addr).is_some()
}

/// Counts a domain on `link`. Fails with `ENODEV` if it has gone, `EBUSY` if the number would
/// overflow. Does not sleep.
pub(super) fn open(link: &Arc<Link>) -> Result {
    let _table = LINKS.lock();
    if link.state() == LinkState::Gone {
        return Err(ENODEV);
    }
    link.set_domains(link.domains().checked_add(1).ok_or(EBUSY)?);
    Ok(())
}

/// Subtracts a domain from `link`, and removes the link if that was the last one and the link has
/// gone. Sleeps.
pub(super) fn close(link: &Arc<Link>) {
    let removed = {
        let mut table = LINKS.lock();
        let domains = link.domains().saturating_sub(1);
        link.set_domains(domains);
        if domains == 0 && link.state() == LinkState::Gone {
            table.remove(link)
        } else {
            None
        }
    };
    drop(removed);
}

/// Handles the kernel's events of interfaces.
pub(super) struct NetdevHandler;

/// The link on an interface of `netns`. [`add`] adds at most one. Process context; does not sleep.
pub(crate) fn on_interface(netns: NetNsId, ifindex: u32) -> Option<Arc<Link>> {
    let socket = LINKS.lock().socket(netns)?;
    socket.receiver().link(ifindex)
}

/// Updates a link to the state of its interface. Sleeps; the RTNL is held.
fn follow(link: &Link, netdev: &Netdev) {
    // Without the sockets of its VRF the link would receive nothing. The next event tries again.
    let receives = link.socket().set_vrf(link, link.vrf(), netdev.vrf);
    {
        let _table = LINKS.lock();
        if link.state() == LinkState::Gone {
            return;
        }
        link.update(netdev, receives.is_ok());
    }
    // The addresses may have gone with the interface. In another VRF they belong to another
    // network.
    link.socket().receiver().generation().advance();
}

impl NetdevEvents for NetdevHandler {
    fn event(event: NetdevEvent) {
        match event {
            NetdevEvent::Changed(netdev) => {
                let Some(link) = on_interface(netdev.id.netns, netdev.id.ifindex) else {
                    return;
                };
                follow(&link, &netdev);
            }
            NetdevEvent::Gone(id) => {
                let Some(link) = on_interface(id.netns, id.ifindex) else {
                    return;
                };
                let removed = LINKS.lock().gone(&link);
                end(&link);
                drop(removed);
            }
        }
    }
}

/// Notifies QPs that `link` has gone, and the provider if domains are open on it. Called by the
/// work item of the link. Sleeps.
pub(super) fn report_gone(link: &Arc<Link>) {
    let inbound = link.socket().receiver();
    inbound.for_each_qp(|qp| {
        qp.link_gone(link);
        cond_resched();
    });
    let events = LINKS.lock().events;
    if let Some(events) = events.filter(|_| link.domains() != 0) {
        events.link_gone(link);
    }
}

/// Keeps the network layer running until it is dropped.
///
/// The module drops it when no function of [`net`](super) can be called any more: all domains are
/// closed, and the front ends are gone. After the drop no link, notifier or work item is left.
pub(crate) struct Registration {
    notifier: Option<Pin<KBox<Notifier<NetdevHandler>>>>,
    addr_notifier: Option<AddrNotifier>,
    /// Dropped last: waits for the queued work items.
    _work: WorkQueues,
}

/// Starts the network layer, with at most `max_links` links per namespace, and `events` for their
/// events. Fails with `ENOMEM`. Sleeps; takes the RTNL.
///
/// # Safety
///
/// Must be called once, before any other function of [`net`](super).
pub(crate) unsafe fn start(
    max_links: u32,
    events: &'static dyn LinkEvents,
) -> Result<Registration> {
    // SAFETY: Called once, by the requirement of this function.
    unsafe { LINKS.init() };
    let work = WorkQueues::new()?;
    {
        let mut table = LINKS.lock();
        table.max_links = max_links;
        table.events = Some(events);
    }
    // From here on a drop of this value undoes all steps.
    let mut registration = Registration {
        notifier: None,
        addr_notifier: None,
        _work: work,
    };
    registration.addr_notifier = Some(AddrNotifier::register()?);
    registration.notifier = Some(Notifier::register()?);
    Ok(registration)
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Reports every interface as gone, so all links go. No call of `NetdevHandler` runs
        // afterwards.
        self.notifier = None;
        self.addr_notifier = None;
    }
}
