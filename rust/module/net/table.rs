// SPDX-License-Identifier: GPL-2.0

//! All links, and what happens to their interfaces.
//!
//! One table, in order of ids, under one mutex that is taken when links are made, looked for,
//! opened and closed, and when an interface changes; never by operations. There are few links, so
//! the table is a vector and a look-up a walk.
//!
//! The kernel tells of every change of an interface with the RTNL held ([`Changes`]), and [`add`]
//! holds the RTNL from finding the interface until the link is listed: a link is never listed for
//! an interface that has gone. When a namespace ends, its interfaces go one by one, and the links
//! with them. When an interface goes under open domains, the floor above is told
//! ([`LinkEvents::link_gone`]) by a worker, because the RTNL is no lock to call others under.
//!
//! Links are limited per namespace, not in all: who may make links in a namespace of their own
//! cannot use up what others need. Each needs an interface of its own, so what limits interfaces
//! and namespaces limits links too.

use core::net::IpAddr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::addr::SockAddr;

use super::{
    link::{
        Link,
        LinkState, //
    },
    name::{
        IfName,
        LinkName, //
    },
    socket::{
        self,
        Socket, //
    }, //
};
use crate::shim::{
    net::{
        Later,
        NetNs,
        NetNsId,
        NetdevEvent,
        NetdevEvents,
        Notifier,
        Rtnl, //
    },
    work::WorkQueues, //
};

/// Who is to be told what happens to links: the floor above.
pub(crate) trait LinkEvents: Sync {
    /// The interface of `link` has gone, and there were domains open on it. Called once per link,
    /// by a worker: no lock is held, it may sleep and call everything on this floor.
    ///
    /// A domain that is opened just then may not be known above yet: after it is, its maker looks
    /// at [`Link::state`] once more.
    fn link_gone(&self, link: &Arc<Link>);
}

struct Table {
    /// Ascending by id. Links that have gone are in it as long as domains are open on them.
    links: KVec<Arc<Link>>,
    last_id: u32,
    max_links: u32,
    above: Option<Above>,
}

/// How to reach the floor above.
#[derive(Clone)]
struct Above {
    events: &'static dyn LinkEvents,
    teller: Arc<Later>,
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in `start`, which is called before anything else of this floor.
    unsafe(uninit) static LINKS: Mutex<Table> = Table {
        links: KVec::new(),
        last_id: 0,
        max_links: 0,
        above: None,
    };
}

impl Table {
    fn find(&self, wanted: impl Fn(&Link) -> bool) -> Option<&Arc<Link>> {
        self.links.iter().find(|link| wanted(link))
    }

    fn remove(&mut self, link: &Arc<Link>) {
        self.links.retain(|other| !Arc::ptr_eq(other, link));
    }

    /// The socket of a namespace, if it has links.
    fn socket(&self, netns: NetNsId) -> Option<&Arc<Socket>> {
        let alive = |link: &Link| link.netns() == netns && link.state() != LinkState::Gone;
        self.find(alive).map(|link| link.socket())
    }

    /// Ends `link`: takes it off the list, or leaves that to the last domain on it and has the
    /// floor above told. Its QPs are told; the socket is closed if no link there is left.
    fn end(&mut self, link: &Arc<Link>) {
        link.set_gone();
        let inbound = link.socket().receiver();
        let last = self.socket(link.netns()).is_none();
        if last {
            link.socket().close();
        }
        inbound.for_each_qp(|qp| qp.link_gone(link));
        inbound.cm().link_gone(last);
        if link.domains() == 0 {
            self.remove(link);
        } else if let Some(above) = &self.above {
            link.set_untold(true);
            above.teller.schedule();
        }
    }
}

/// Makes the link `name` on the interface `ifname` of `netns`.
///
/// `EPERM` current lacks CAP_NET_ADMIN in the owner of `netns`; `ENODEV` no such interface;
/// `EEXIST` the name is taken, or the interface has a link; `ENOSPC` too many links in `netns`
/// (module parameter `max_links`), or in the life of the module; `EADDRINUSE` it would be the first
/// link of `netns`, and somebody else has UDP port 4791 there; `ENOMEM`. Takes the RTNL and the
/// table's mutex.
pub(crate) fn add(netns: &NetNs, name: LinkName, ifname: IfName) -> Result<Arc<Link>> {
    if !netns.capable_net_admin() {
        return Err(EPERM);
    }
    let rtnl = Rtnl::lock();
    let netdev = rtnl.find(netns, ifname.as_c_str()).ok_or(ENODEV)?;
    let mut table = LINKS.lock();
    let id = netdev.id.netns;
    let taken = |link: &Link| {
        let same_interface = link.netdev() == netdev.id && link.state() != LinkState::Gone;
        link.netns() == id && (*link.name() == name || same_interface)
    };
    if table.find(taken).is_some() {
        return Err(EEXIST);
    }
    let count = table.links.iter().filter(|l| l.netns() == id).count();
    if count >= table.max_links as usize {
        return Err(ENOSPC);
    }
    let next_id = table.last_id.checked_add(1).ok_or(ENOSPC)?;
    table.links.reserve(1, GFP_KERNEL_ACCOUNT)?;
    let socket = match table.socket(id) {
        Some(socket) => socket.clone(),
        // Closed when it is dropped, if the rest fails.
        None => socket::open(netns)?,
    };
    let link = Link::new(next_id, name, &netdev, socket)?;
    table.links.push(link.clone(), GFP_KERNEL_ACCOUNT)?;
    table.last_id = next_id;
    Ok(link)
}

/// Removes the link `name` of `netns`.
///
/// `EPERM` current lacks CAP_NET_ADMIN in the owner of `netns`; `ENODEV` no such link; `EBUSY` a
/// domain is open on it. Takes the table's mutex.
pub(crate) fn del(netns: &NetNs, name: &LinkName) -> Result {
    if !netns.capable_net_admin() {
        return Err(EPERM);
    }
    let id = netns.id();
    let mut table = LINKS.lock();
    let link = table
        .find(|link| link.netns() == id && link.name() == name)
        .ok_or(ENODEV)?
        .clone();
    if link.domains() != 0 {
        return Err(EBUSY);
    }
    table.end(&link);
    Ok(())
}

/// The first link of `netns` with an id above `after`. `ENOENT`: there is none. Takes the table's
/// mutex.
///
/// Ids are never given twice, so a walk meets each link at most once, however links come and go
/// meanwhile.
pub(crate) fn next(netns: NetNsId, after: u32) -> Result<Arc<Link>> {
    LINKS
        .lock()
        .find(|link| link.netns() == netns && link.id() > after)
        .cloned()
        .ok_or(ENOENT)
}

/// Whether `addr` is an address of a link of `netns`. Takes the table's mutex. Sleeps.
pub(crate) fn is_local(netns: NetNsId, addr: &SockAddr) -> bool {
    LINKS
        .lock()
        .find(|link| link.netns() == netns && link.has_address(addr))
        .is_some()
}

/// The first link of all namespaces with an id above `after`; else as [`next`].
pub(crate) fn next_anywhere(after: u32) -> Result<Arc<Link>> {
    let table = LINKS.lock();
    table.find(|link| link.id() > after).cloned().ok_or(ENOENT)
}

/// The socket of `netns`. `ENOENT`: it has no link. Takes the table's mutex.
pub(crate) fn socket(netns: NetNsId) -> Result<Arc<Socket>> {
    LINKS.lock().socket(netns).cloned().ok_or(ENOENT)
}

/// The link `name` of `netns`, in whatever state. `ENODEV`: there is none. Takes the table's mutex.
pub(crate) fn find(netns: NetNsId, name: &LinkName) -> Result<Arc<Link>> {
    LINKS
        .lock()
        .find(|link| link.netns() == netns && link.name() == name)
        .cloned()
        .ok_or(ENODEV)
}

/// Whether a link of the namespace of `socket` has `addr`, whatever its port. Takes the table's mutex.
pub(crate) fn has_address(socket: &Arc<Socket>, addr: &SockAddr) -> bool {
    LINKS
        .lock()
        .find(|link| Arc::ptr_eq(link.socket(), socket) && link.has_address(addr))
        .is_some()
}

/// The link of the namespace of `socket` that has the address `ip`. Takes the table's mutex.
pub(super) fn link_at(socket: &Arc<Socket>, ip: IpAddr) -> Option<Arc<Link>> {
    LINKS
        .lock()
        .find(|link| Arc::ptr_eq(link.socket(), socket) && link.has_ip(ip))
        .cloned()
}

/// Counts a domain on `link`. `ENODEV` it has gone; `EBUSY` there are too many to count.
pub(super) fn open(link: &Arc<Link>) -> Result {
    let _table = LINKS.lock();
    if link.state() == LinkState::Gone {
        return Err(ENODEV);
    }
    link.set_domains(link.domains().checked_add(1).ok_or(EBUSY)?);
    Ok(())
}

/// Counts a domain off `link`.
pub(super) fn close(link: &Arc<Link>) {
    let mut table = LINKS.lock();
    let left = link.domains().saturating_sub(1);
    link.set_domains(left);
    if left == 0 && link.state() == LinkState::Gone {
        table.remove(link);
    }
}

/// What happens to interfaces, as the kernel tells it.
pub(super) struct Changes;

impl NetdevEvents for Changes {
    fn event(event: NetdevEvent) {
        let id = match &event {
            NetdevEvent::Changed(netdev) => netdev.id,
            NetdevEvent::Gone(id) => *id,
        };
        let mut table = LINKS.lock();
        let on_it = |link: &Link| link.netdev() == id && link.state() != LinkState::Gone;
        // At most one: `add` sees to that.
        let Some(link) = table.find(on_it).cloned() else {
            return;
        };
        match event {
            NetdevEvent::Changed(netdev) => link.update(&netdev),
            NetdevEvent::Gone(_) => table.end(&link),
        }
    }
}

/// Tells the floor above of links that have gone; a worker's task.
fn tell() {
    loop {
        let (events, link) = {
            let table = LINKS.lock();
            let Some(above) = &table.above else {
                return;
            };
            let Some(link) = table.find(Link::is_untold) else {
                return;
            };
            link.set_untold(false);
            (above.events, link.clone())
        };
        events.link_gone(&link);
    }
}

/// Changes the limit of links per namespace; gives the one before. For tests.
#[cfg(kfi_kunit)]
pub(super) fn set_max_links(max_links: u32) -> u32 {
    core::mem::replace(&mut LINKS.lock().max_links, max_links)
}

/// The floor at work, until it is dropped.
///
/// To be dropped when nobody can call this floor any more: all domains have been closed, and the
/// faces are gone. Then there is nothing left: no link, no notifier, no work.
pub(crate) struct Registration {
    notifier: Option<Pin<KBox<Notifier<Changes>>>>,
    /// Dropped last: waits for what is still to be done.
    _work: WorkQueues,
}

/// Starts this floor: at most `max_links` links per namespace; `events` is told what happens to
/// them. `ENOMEM`. Takes the RTNL.
///
/// # Safety
///
/// To be called once, before any other function of this floor.
pub(crate) unsafe fn start(
    max_links: u32,
    events: &'static dyn LinkEvents,
) -> Result<Registration> {
    // SAFETY: Called once, by the requirement above.
    unsafe { LINKS.init() };
    let work = WorkQueues::new()?;
    let teller = Later::new(tell)?;
    {
        let mut table = LINKS.lock();
        table.max_links = max_links;
        table.above = Some(Above { events, teller });
    }
    // From here on dropping it undoes all.
    let mut registration = Registration {
        notifier: None,
        _work: work,
    };
    registration.notifier = Some(Notifier::register()?);
    Ok(registration)
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Tells that every interface has gone, so the links go. No call is in flight afterwards,
        // and nobody schedules the teller any more.
        self.notifier = None;
        let (links, above) = {
            let mut table = LINKS.lock();
            // The memory of a static is not given back when the module goes.
            (core::mem::take(&mut table.links), table.above.take())
        };
        drop(links);
        if let Some(above) = above {
            above.teller.flush();
        }
    }
}
