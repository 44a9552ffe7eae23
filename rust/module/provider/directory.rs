// SPDX-License-Identifier: GPL-2.0

//! The directory: which endpoint has which address.
//!
//! One directory per network namespace, shared by its domains; it comes with the first of them and
//! goes with the last. An endpoint enters when it is enabled and leaves first thing when it
//! closes. A message finds its peer here: an address that is in the directory is on this host, and
//! delivery is a function call; any other address belongs to the wire.
//!
//! Entries are spread over buckets by a hash of the address, each an ordered tree under a spin
//! lock of its own, so that senders to different endpoints do not meet. The buckets' locks are
//! leaves, held for a look-up.

use core::net::IpAddr;

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::addr::SockAddr;

use super::ep::Endpoint;
use crate::{
    net::NetNsId,
    shim::sched::cond_resched, //
};

/// How many buckets a directory has; a power of two.
const BUCKETS: usize = 64;

/// Ports that are given to endpoints which do not ask for one: the dynamic range of RFC 6335.
const EPHEMERAL: core::ops::RangeInclusive<u16> = 49152..=65535;

/// How many ports are tried before other tasks may run.
const STRIDE: u32 = 256;

type Bucket = SpinLock<RBTree<SockAddr, Arc<Endpoint>>>;

/// The directory of one network namespace.
#[pin_data]
pub(crate) struct Directory {
    netns: NetNsId,
    #[pin]
    buckets: [Bucket; BUCKETS],
    /// Where the search for a free port goes on, counted from the first of them. It is no lock: a task
    /// that is preempted in its search delays nobody.
    next_port: Atomic<u32>,
}

struct Space {
    users: usize,
    directory: Arc<Directory>,
}

/// `None` until the first directory comes: a tree cannot be made in a constant.
type Spaces = Option<RBTree<NetNsId, Space>>;

kernel::sync::global_lock! {
    // A spin lock, so that no task is preempted while it holds it: the end of a process may take it. A
    // leaf.
    // SAFETY: `init` is called by the module's init before anything else of the provider.
    unsafe(uninit) static SPACES: SpinLock<Spaces> = None;
}

/// Prepares the directories.
///
/// # Safety
///
/// To be called once, before any other function of the provider.
pub(super) unsafe fn init() {
    // SAFETY: Called once, by the requirement above.
    unsafe { SPACES.init() }
}

/// A domain's use of its namespace's directory.
pub(crate) struct DirectoryUse(Arc<Directory>);

impl DirectoryUse {
    /// The directory of `netns`, made if there is none yet. `ENOMEM`. Sleeps.
    pub(crate) fn of(netns: NetNsId) -> Result<Self> {
        if let Some(known) = Self::known(&mut SPACES.lock(), netns) {
            return Ok(known);
        }
        let directory = Arc::pin_init(Directory::new(netns), GFP_KERNEL)?;
        let space = Space {
            users: 1,
            directory: directory.clone(),
        };
        let node = RBTreeNode::new(netns, space, GFP_KERNEL)?;
        let mut spaces = SPACES.lock();
        // Somebody else may have made one meanwhile.
        if let Some(known) = Self::known(&mut spaces, netns) {
            // What was made is not dropped under the lock.
            drop(spaces);
            return Ok(known);
        }
        spaces.get_or_insert_with(RBTree::new).insert(node);
        Ok(Self(directory))
    }

    /// One more use of the directory of `netns`, if there is one.
    fn known(spaces: &mut Spaces, netns: NetNsId) -> Option<Self> {
        let space = spaces.as_mut()?.get_mut(&netns)?;
        space.users = space.users.wrapping_add(1);
        Some(Self(space.directory.clone()))
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
        let mut spaces = SPACES.lock();
        let Some(tree) = &mut *spaces else {
            return;
        };
        let left = match tree.get_mut(&self.0.netns) {
            Some(space) if space.users == 1 => tree.remove_node(&self.0.netns),
            Some(space) => {
                space.users = space.users.wrapping_sub(1);
                None
            }
            None => None,
        };
        // Not under the lock.
        drop(spaces);
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
        // Endpoints of one host differ in their ports above all.
        let low = match addr.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        let index = (low ^ u32::from(addr.port())) as usize % BUCKETS;
        // `index` is below BUCKETS, so the fallback is never taken; it stands for a panic that the
        // compiler would have to keep otherwise.
        self.buckets.get(index).unwrap_or(&self.buckets[0])
    }

    /// Enters `endpoint` under `addr`, whose port is not 0. `EADDRINUSE`, `ENOMEM`. Sleeps.
    fn enter_at(&self, addr: SockAddr, endpoint: &Arc<Endpoint>) -> Result {
        let node = RBTreeNode::new(addr, endpoint.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut tree = self.bucket(&addr).lock();
        if tree.get(&addr).is_some() {
            drop(tree);
            return Err(EADDRINUSE);
        }
        tree.insert(node);
        Ok(())
    }

    /// Enters `endpoint` under `addr`, with a port of the directory's choice if that has none;
    /// gives the address as entered. `EADDRINUSE`, `ENOMEM`. Sleeps.
    pub(crate) fn enter(&self, addr: SockAddr, endpoint: &Arc<Endpoint>) -> Result<SockAddr> {
        if addr.port() != 0 {
            return self.enter_at(addr, endpoint).map(|()| addr);
        }
        let begin = self.next_port.load(Relaxed);
        for tried in 0..EPHEMERAL.len() as u32 {
            if tried % STRIDE == STRIDE - 1 {
                cond_resched();
            }
            let at = begin.wrapping_add(tried) % EPHEMERAL.len() as u32;
            let candidate = addr.with_port(EPHEMERAL.start().wrapping_add(at as u16));
            if self.bucket(&candidate).lock().get(&candidate).is_some() {
                continue;
            }
            match self.enter_at(candidate, endpoint) {
                Err(e) if e == EADDRINUSE => {}
                result => {
                    // Another task may store its own place: either one is as good.
                    self.next_port.store(at.wrapping_add(1), Relaxed);
                    return result.map(|()| candidate);
                }
            }
        }
        Err(EADDRINUSE)
    }

    /// Takes the entry at `addr` out. Sleeps not.
    pub(crate) fn leave(&self, addr: &SockAddr) {
        let endpoint = self.bucket(addr).lock().remove_node(addr);
        // The last reference may go here, so not under the lock.
        drop(endpoint);
    }

    /// The endpoint at `addr`, if it is on this host. Sleeps not.
    #[link_section = ".text.hot"]
    pub(crate) fn find(&self, addr: &SockAddr) -> Option<Arc<Endpoint>> {
        self.bucket(addr).lock().get(addr).cloned()
    }
}
