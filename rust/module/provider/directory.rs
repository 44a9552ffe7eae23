// SPDX-License-Identifier: GPL-2.0

//! The directory: the enabled endpoints of a network namespace, by address.
//!
//! The domains of a network namespace share its directory. The first domain creates it and the last
//! one frees it. An endpoint enters when it is enabled, and leaves as the first step of closing. A
//! message finds its peer here: if the address is in the directory, the peer is on this host and
//! delivery is a function call. Any other address is reached over the network.
//!
//! An entry stays when the interface loses the address, because it may come back. So who finds an
//! endpoint asks whether it still has its address ([`Endpoint::is_local_to`]); if not, the message
//! goes where routing sends it.
//!
//! The receive contexts of a scalable endpoint have consecutive ports, which are reserved when the
//! scalable endpoint gets its name ([`Directory::reserve`]). A context enters at its port when it
//! is enabled, and leaves it reserved when it closes.
//!
//! A hash of the address selects one of several buckets. Each is an ordered tree under its own spin
//! lock, so that senders to different endpoints do not contend. The locks of the buckets are leaves
//! and are held for one look-up.

use core::net::IpAddr;

use kernel::rbtree::{
    RBTree,
    RBTreeNode, //
};

use super::{
    ep::Endpoint,
    prelude::*, //
};
use crate::net::NetNsId;

/// The number of buckets of a directory. A power of two.
const BUCKETS: usize = 64;

/// The ports for endpoints and passive endpoints that do not request one: the dynamic range of RFC
/// 6335.
pub(super) const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;

/// The number of ports that are tried between two calls of `cond_resched()`.
const STRIDE: u32 = 256;

/// Bytes that a port of a passive endpoint, a scalable endpoint, or a transmit context is charged
/// for. Its entry takes less. But all users of a network namespace share the ports, and what has a
/// port costs at least as much: with the default limit of a user's memory, one user has at most
/// half of [`DYNAMIC_PORTS`].
pub(super) const PORT_BYTES: usize = 32 << 10;

/// The endpoint at an address; `None`: the address is reserved for a context, and peers find no
/// endpoint there.
type Place = Option<Arc<Endpoint>>;

type Bucket = SpinLock<RBTree<SockAddr, Place>>;

/// The directory of one network namespace.
#[pin_data]
pub(crate) struct Directory {
    netns: NetNsId,
    #[pin]
    buckets: [Bucket; BUCKETS],
    /// The index of the next port to try among [`DYNAMIC_PORTS`]. It is no lock, so a task that is
    /// preempted in its search delays no other task.
    next_port: Atomic<u32>,
}

struct DirectoryEntry {
    users: usize,
    directory: Arc<Directory>,
}

/// `None` until the first directory is made, because a tree cannot be made in a constant.
type Directories = Option<RBTree<NetNsId, DirectoryEntry>>;

kernel::sync::global_lock! {
    // A spin lock, because the end of a process may take it: no task is preempted while it holds
    // it. The lock is a leaf.
    // SAFETY: `init` is called by the module's init before anything else of the provider.
    unsafe(uninit) static DIRECTORIES: SpinLock<Directories> = None;
}

/// Prepares the directories.
///
/// # Safety
///
/// Must be called once, before any other function of the provider.
pub(super) unsafe fn init() {
    // SAFETY: Called once, by the requirement above.
    unsafe { DIRECTORIES.init() }
}

/// A domain's use of its namespace's directory.
pub(crate) struct DirectoryUse(Arc<Directory>);

impl DirectoryUse {
    /// Uses the directory of `netns` and makes it if there is none yet. Fails with `ENOMEM`.
    /// Sleeps.
    pub(crate) fn of(netns: NetNsId) -> Result<Self> {
        if let Some(known) = Self::known(&mut DIRECTORIES.lock(), netns) {
            return Ok(known);
        }
        let directory = Arc::pin_init(Directory::new(netns), GFP_KERNEL)?;
        let entry = DirectoryEntry {
            users: 1,
            directory: directory.clone(),
        };
        let node = RBTreeNode::new(netns, entry, GFP_KERNEL)?;
        let mut directories = DIRECTORIES.lock();
        // Another task may have made the directory meanwhile.
        if let Some(known) = Self::known(&mut directories, netns) {
            // The new directory is not dropped under the lock.
            drop(directories);
            return Ok(known);
        }
        directories.get_or_insert_with(RBTree::new).insert(node);
        Ok(Self(directory))
    }

    /// Takes one more use of the directory of `netns`, if there is one.
    fn known(directories: &mut Directories, netns: NetNsId) -> Option<Self> {
        let entry = directories.as_mut()?.get_mut(&netns)?;
        entry.users = entry.users.wrapping_add(1);
        Some(Self(entry.directory.clone()))
    }
}

impl core::ops::Deref for DirectoryUse {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.0
    }
}

impl Drop for DirectoryUse {
    fn drop(&mut self) {
        let mut directories = DIRECTORIES.lock();
        let Some(tree) = &mut *directories else {
            return;
        };
        let left = match tree.get_mut(&self.0.netns) {
            Some(entry) if entry.users == 1 => tree.remove_node(&self.0.netns),
            Some(entry) => {
                entry.users = entry.users.wrapping_sub(1);
                None
            }
            None => None,
        };
        // The directory is not dropped under the lock.
        drop(directories);
        drop(left);
    }
}

impl Directory {
    fn new(netns: NetNsId) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            netns,
            buckets <- pin_init::pin_init_array_from_fn(|_| new_spinlock!(RBTree::new(), "directory")),
            next_port: Atomic::new(0),
        })
    }

    fn bucket(&self, addr: &SockAddr) -> &Bucket {
        // Endpoints of one host differ mostly in their ports.
        let low = match addr.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        let index = (low ^ u32::from(addr.port())) as usize % BUCKETS;
        // `index` is below BUCKETS, so the fallback is never used. Without it the compiler would
        // keep a panic.
        self.buckets.get(index).unwrap_or(&self.buckets[0])
    }

    /// Enters `place` under `addr`, whose port is not 0. Fails with `EADDRINUSE`, `ENOMEM`. Sleeps.
    fn enter_at(&self, addr: SockAddr, place: Place) -> Result {
        let node = RBTreeNode::new(addr, place, GFP_KERNEL_ACCOUNT)?;
        let mut tree = self.bucket(&addr).lock();
        if tree.get(&addr).is_some() {
            // The lock is released before the node is freed.
            drop(tree);
            return Err(EADDRINUSE);
        }
        tree.insert(node);
        Ok(())
    }

    /// Enters `endpoint` under `addr` and returns the address. If the port is 0, the directory
    /// chooses one. Fails with `EADDRINUSE`, `ENOMEM`. Sleeps.
    pub(crate) fn enter(&self, addr: SockAddr, endpoint: &Arc<Endpoint>) -> Result<SockAddr> {
        if addr.port() != 0 {
            return self.enter_at(addr, Some(endpoint.clone())).map(|()| addr);
        }
        self.choose(addr, 1, |candidate| {
            self.enter_at(candidate, Some(endpoint.clone()))
        })
    }

    /// Reserves `count` consecutive ports from that of `addr` on, for the contexts of a scalable
    /// endpoint. Returns `addr`; if its port is 0, with the first of the ports, which the
    /// directory chooses. Fails with `EADDRINUSE` if one of the ports is in use or is no port,
    /// `ENOMEM`. Sleeps.
    pub(super) fn reserve(&self, addr: SockAddr, count: u16) -> Result<SockAddr> {
        if addr.port() != 0 {
            return self.reserve_at(addr, count).map(|()| addr);
        }
        self.choose(addr, count, |candidate| self.reserve_at(candidate, count))
    }

    /// [`reserve`](Self::reserve) for a port that is not 0.
    fn reserve_at(&self, first: SockAddr, count: u16) -> Result {
        for index in 0..count {
            let reserved = match PeerAddr::context(first, index) {
                Ok(context) => self.enter_at(*context.addr(), None),
                Err(_) => Err(EADDRINUSE),
            };
            if let Err(error) = reserved {
                self.release(first, index);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Releases ports that were reserved. No endpoint is there any more, or it is about to close.
    /// Does not sleep.
    pub(super) fn release(&self, first: SockAddr, count: u16) {
        for index in 0..count {
            if let Ok(context) = PeerAddr::context(first, index) {
                self.leave(context.addr());
            }
        }
    }

    /// Enters `endpoint` under an address that is reserved for it. Fails with `EBADF` if it is not
    /// any more. Does not sleep.
    pub(super) fn occupy(&self, addr: &SockAddr, endpoint: &Arc<Endpoint>) -> Result {
        let mut tree = self.bucket(addr).lock();
        let place = tree.get_mut(addr).ok_or(EBADF)?;
        if place.is_some() {
            return Err(EADDRINUSE);
        }
        *place = Some(endpoint.clone());
        Ok(())
    }

    /// Removes the endpoint from an address, which stays reserved, if it is there. Does not sleep.
    pub(super) fn vacate(&self, addr: &SockAddr, endpoint: &Endpoint) {
        let is_it = |other: &mut Arc<Endpoint>| core::ptr::eq(&**other, endpoint);
        let removed = match self.bucket(addr).lock().get_mut(addr) {
            // A scalable endpoint that was closed by force may have given the address away.
            Some(place) => place.take_if(is_it),
            None => None,
        };
        // See `leave`.
        drop(removed);
    }

    /// Calls `enter` for `addr` with one port after the other of those that begin a row of `count`
    /// free ports, until it does not fail with `EADDRINUSE`. Returns the address for which it
    /// succeeded. Looks at each port about once. Sleeps.
    fn choose(
        &self,
        addr: SockAddr,
        count: u16,
        mut enter: impl FnMut(SockAddr) -> Result,
    ) -> Result<SockAddr> {
        let begin = self.next_port.load(Relaxed);
        let (mut tried, mut attempts) = (0, 0u32);
        while tried < DYNAMIC_PORTS.len() as u32 {
            attempts = attempts.wrapping_add(1);
            if attempts % STRIDE == 0 {
                cond_resched();
            }
            let index = begin.wrapping_add(tried) % DYNAMIC_PORTS.len() as u32;
            let candidate = addr.with_port(DYNAMIC_PORTS.start().wrapping_add(index as u16));
            // No row begins before the port that is in use, or crosses the last port.
            let skip = match self.last_in_use(&candidate, count) {
                Some(skip) => skip,
                None => match enter(candidate) {
                    Err(e) if e == EADDRINUSE => 0,
                    result => {
                        // Another task may store another index; both are suitable.
                        let next = index.wrapping_add(count.into());
                        self.next_port.store(next, Relaxed);
                        return result.map(|()| candidate);
                    }
                },
            };
            tried = tried.saturating_add(skip).saturating_add(1);
        }
        Err(EADDRINUSE)
    }

    /// The last of the `count` ports from that of `first` on that is in use, as its distance from
    /// the first one; `None`: they are free. If there are not so many ports, the distance of the
    /// last port. Does not sleep.
    fn last_in_use(&self, first: &SockAddr, count: u16) -> Option<u32> {
        let behind = u16::MAX.wrapping_sub(first.port());
        if count > behind.saturating_add(1) {
            return Some(behind.into());
        }
        let is_in_use = |index: &u16| {
            let addr = first.with_port(first.port().wrapping_add(*index));
            let in_use = self.bucket(&addr).lock().get(&addr).is_some();
            in_use
        };
        (0..count).rev().find(is_in_use).map(u32::from)
    }

    /// Removes the entry of `addr`, also a reserved one. Does not sleep.
    pub(crate) fn leave(&self, addr: &SockAddr) {
        let endpoint = self.bucket(addr).lock().remove_node(addr);
        // This may be the last reference, so it is not dropped under the lock.
        drop(endpoint);
    }

    /// The endpoint at `addr`, if it is on this host. Does not sleep.
    #[link_section = ".text.hot"]
    pub(crate) fn find(&self, addr: &SockAddr) -> Option<Arc<Endpoint>> {
        self.bucket(addr).lock().get(addr)?.clone()
    }
}
