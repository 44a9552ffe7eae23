// SPDX-License-Identifier: GPL-2.0

//! Accounts: the kernel memory of each user's objects, and its limit. [`budget`](super::budget) has
//! the calls that charge them.
//!
//! An object is charged to the memory control group of the task that creates it. But not every
//! process is in a group with a limit, and a process may open many files and create 65,535 of the
//! largest CQs in each. So each user also has an account. It is charged for each object when the
//! object is created (the object, its rings and queues), for each message that is buffered for the
//! object, and for packets that wait for a QP of the user (`net/qp/inbox.rs`). The charge is
//! returned when the object, message or packet is freed. Programs and kernel consumers of one user
//! have an account each: a program must not use up what a consumer needs to write back dirty pages.
//!
//! ```text
//!   open file -- Budget ----> Account of the user, at most user_memory (a module parameter)
//!   object, buffer -- Allowance --^
//! ```
//!
//! A file that a task with `CAP_SYS_RESOURCE` opens has a budget without a limit: its bytes are
//! counted and never refused. Pinned memory belongs to the program and is charged to
//! `RLIMIT_MEMLOCK` instead ([`Pinned`](super::Pinned)). Memory of kernel consumers belongs to
//! them. The segment lists of regions are charged here.
//!
//! A user namespace gives its owner as many users as are mapped into it. So the account of a user
//! in a user namespace has a parent: the account of the namespace's owner, and so on up to the
//! initial namespace. Each charge goes to the account and to all its ancestors, and each has the
//! limit. The kernel's ucounts, which modules cannot use, work the same way. Namespaces created by
//! root (for containers) are left out: each of their users has an account without a parent.
//!
//! The account also records refused accesses to peers' memory ([`Throttle`]). So a user cannot try
//! keys faster with more processes or more open files. Users without a limit are not delayed. And
//! it records the peers on other hosts that were refused access to the user's memory
//! ([`kfi_core::refusals`]), for users with and without a limit.
//!
//! # Locks
//!
//! `ACCOUNTS` and the locks of an account are spin locks and leaves. `ACCOUNTS` is taken when a
//! file is opened and when the last [`AccountRef`] of an account is dropped. It is not a mutex
//! because the exit of a process may take it, and must not wait for a task that was preempted while
//! holding it. Charging is atomic. An account leaves the tree when no [`AccountRef`] is left, that
//! is, when nothing is charged to it and no budget refers to it. So a user who opens a new file is
//! still charged for what remains of an old one.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/account.rs"]
mod kunit;

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
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    task::Kuid, //
};

use kfi_core::{
    refusals::Peer,
    share::Source,
    throttle::Throttle, //
};

use super::{
    peer_share::PeerUse,
    peer_workers::PeerWorkers,
    workers::Workers, //
};
use crate::shim::{
    memory::total_memory,
    reclaim::OwnerKind, //
};

/// The parts of an account's limit that peers can use up. The rest is left for the owner's own
/// calls.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// Connections that a peer has requested and not confirmed. Each source has a share of it
    /// ([`PeerShare`](super::PeerShare)). The requests may be forged, so this part bounds users
    /// without a limit too: it is computed from the limit of the others.
    HalfOpen,
    /// All connections that peers have requested, answers that are due to peers, and their messages
    /// that no receive waits for. Each source has a share of it. For users without a limit it is
    /// computed from the memory of the machine: servers have thousands of clients.
    Peers,
    /// Packets that wait for the user's QPs, see
    /// [`Budget::charge_inbox`](super::Budget::charge_inbox). They may be forged, so this part
    /// bounds users without a limit too: it is computed from the limit of the others.
    Inboxes,
}

impl Part {
    /// The divisor: a part is the limit divided by this.
    pub(super) const fn share(self) -> u64 {
        match self {
            Self::HalfOpen | Self::Inboxes => 4,
            Self::Peers => 2,
        }
    }
}

/// Number of throttles of an account, a power of two. Each endpoint uses one of them.
const THROTTLES: usize = 16;

/// The number of peers whose refused accesses an account counts.
const REFUSED_PEERS: usize = 64;

/// Delays the accesses to peers' memory of some of a user's endpoints.
#[pin_data]
pub(super) struct AccessThrottle {
    #[pin]
    pub(super) throttle: SpinLock<Throttle>,
    /// [`Throttle::until`] of `throttle`.
    pub(super) until: Atomic<u64>,
}

impl AccessThrottle {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            throttle <- new_spinlock!(Throttle::new(), "AccessThrottle::throttle"),
            until: Atomic::new(0),
        })
    }
}

/// The kernel memory charged to a user's programs or kernel consumers, and the accesses that they
/// were refused.
#[pin_data]
pub(super) struct Account {
    kind: OwnerKind,
    pub(super) user: Kuid,
    /// The parent: the account of the owner of the user's namespace; `None` in the initial
    /// namespace.
    parent: Option<AccountRef>,
    /// Bytes charged.
    pub(super) used: Atomic<u64>,
    /// Bytes charged to each [`Part`].
    half_open: Atomic<u64>,
    peers: Atomic<u64>,
    pub(super) inboxes: Atomic<u64>,
    /// Number of [`AccountRef`]s.
    refs: Atomic<u64>,
    /// The workers that process packets, post started operations and start deferred work, and the
    /// QPs that wait for one: for this kind of the user, and for that of users of namespaces that
    /// it owns.
    #[pin]
    pub(super) workers: Workers,
    /// The workers for sessions, connections and listeners, and the items that wait for one.
    #[pin]
    pub(super) peer_workers: SpinLock<PeerWorkers>,
    /// Refused accesses to peers' memory. Each throttle serves some of the user's endpoints, so a
    /// peer that refuses everything delays few other endpoints.
    #[pin]
    throttles: [AccessThrottle; THROTTLES],
    /// The peers that were refused access to the user's memory: [`REFUSED_PEERS`] entries.
    #[pin]
    pub(super) refused_peers: SpinLock<KVec<Peer>>,
    /// The sources that have shares of [`Part::Peers`] and [`Part::HalfOpen`], and their networks.
    #[pin]
    pub(super) peer_uses: SpinLock<RBTree<Source, Arc<PeerUse>>>,
}

impl Account {
    /// The account and its ancestors, starting with the account itself.
    pub(super) fn with_ancestors(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |account| {
            account.parent.as_ref().map(|parent| &*parent.0)
        })
    }

    /// Calls `charge` for the account and its ancestors. If that fails for one of them, calls
    /// `uncharge` for those that were charged before it.
    pub(super) fn charge_all(
        &self,
        charge: impl Fn(&Self) -> Result,
        uncharge: impl Fn(&Self),
    ) -> Result {
        for (number, account) in self.with_ancestors().enumerate() {
            charge(account).inspect_err(|_| {
                self.with_ancestors().take(number).for_each(&uncharge);
            })?;
        }
        Ok(())
    }

    pub(super) fn part(&self, part: Part) -> &Atomic<u64> {
        match part {
            Part::HalfOpen => &self.half_open,
            Part::Peers => &self.peers,
            Part::Inboxes => &self.inboxes,
        }
    }

    /// Returns the charge for packets that waited in an inbox.
    pub(super) fn uncharge_inbox(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.inboxes.fetch_sub(bytes, Relaxed);
    }

    /// The throttle for the accesses of an endpoint, in the topmost account. `endpoint` is any
    /// value that identifies the endpoint.
    pub(super) fn throttle(&self, endpoint: u64) -> &AccessThrottle {
        // Fibonacci hashing: take the highest bits of the product.
        let hash = endpoint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - THROTTLES.ilog2());
        let throttles = &self.topmost().throttles;
        // The hash has as many bits as the index needs.
        throttles.get(hash as usize).unwrap_or(&throttles[0])
    }

    /// The topmost ancestor; the account itself if it has no parent.
    pub(super) fn topmost(&self) -> &Self {
        self.with_ancestors().last().unwrap_or(self)
    }
}

/// The kind and the user of an account, and the address of its parent, 0 without one. An account in
/// the tree has a reference to its parent, so the address stays that of the parent.
type Key = (OwnerKind, u32, usize);

fn key(kind: OwnerKind, user: Kuid, parent: Option<&AccountRef>) -> Key {
    let parent = parent.map_or(0, |parent| Arc::as_ptr(&parent.0).addr());
    (kind, user.into_raw().val, parent)
}

/// The limit from which the part for peers of a user without a limit is computed: a quarter of the
/// memory of the machine. Any context.
pub(super) fn large_limit() -> u64 {
    LARGE_LIMIT.load(Relaxed)
}

static LARGE_LIMIT: Atomic<u64> = Atomic::new(0);

struct Accounts {
    /// `None` until the first account is added: a tree cannot be created in a constant.
    tree: Option<RBTree<Key, Arc<Account>>>,
    /// Bytes that one account may be charged.
    limit: u64,
}

impl Accounts {
    /// The account with this key.
    fn find(&self, key: &Key) -> Option<AccountRef> {
        Some(AccountRef::new(self.tree.as_ref()?.get(key)?))
    }

    /// Takes an account without references out of the tree. The caller drops the node after
    /// unlocking.
    fn remove(&mut self, account: &Arc<Account>) -> Option<RBTreeNode<Key, Arc<Account>>> {
        let key = key(account.kind, account.user, account.parent.as_ref());
        let tree = self.tree.as_mut()?;
        // Another task may have removed it, and a third may have inserted a new one since.
        match tree.get(&key) {
            Some(other) if Arc::ptr_eq(other, account) => tree.remove_node(&key),
            _ => None,
        }
    }
}

kernel::sync::global_lock! {
    // SAFETY: `init` is called by the module's init before any file is opened.
    unsafe(uninit) static ACCOUNTS: SpinLock<Accounts> = Accounts {
        tree: None,
        limit: 0,
    };
}

/// Prepares the accounts, with a limit of `limit` bytes each.
///
/// # Safety
///
/// Must be called once, before any other function of this file.
pub(crate) unsafe fn init(limit: u64) {
    // SAFETY: Called once, by the requirement above.
    unsafe { ACCOUNTS.init() }
    ACCOUNTS.lock().limit = limit;
    LARGE_LIMIT.store(total_memory() / 4, Relaxed);
}

/// A reference to an account that keeps it in the tree. Dropping may take `ACCOUNTS`, so only
/// process context may drop it.
pub(super) struct AccountRef(pub(super) Arc<Account>);

impl AccountRef {
    fn new(account: &Arc<Account>) -> Self {
        account.refs.fetch_add(1, Full);
        Self(account.clone())
    }

    /// The account of this kind of `user` in a namespace whose owner has the account `parent`,
    /// which is made if there is none; and the limit of users who have one. Sleeps. Fails with
    /// `ENOMEM`.
    pub(super) fn of(
        kind: OwnerKind,
        user: Kuid,
        parent: Option<AccountRef>,
    ) -> Result<(Self, u64)> {
        let key = key(kind, user, parent.as_ref());
        let (common, known) = {
            let accounts = ACCOUNTS.lock();
            (accounts.limit, accounts.find(&key))
        };
        let account = match known {
            Some(account) => account,
            None => Self::insert(key, kind, user, parent)?,
        };
        Ok((account, common))
    }

    /// Inserts an account into the tree, unless another task has done that in the meantime. Sleeps.
    /// Fails with `ENOMEM`.
    fn insert(key: Key, kind: OwnerKind, user: Kuid, parent: Option<AccountRef>) -> Result<Self> {
        let refused_peers = KVec::from_elem(Peer::default(), REFUSED_PEERS, GFP_KERNEL_ACCOUNT)?;
        let account = Arc::pin_init(
            pin_init!(Account {
                kind,
                user,
                parent,
                used: Atomic::new(0),
                half_open: Atomic::new(0),
                peers: Atomic::new(0),
                inboxes: Atomic::new(0),
                refs: Atomic::new(0),
                workers <- Workers::new(),
                peer_workers <- new_spinlock!(PeerWorkers::new(), "Account::peer_workers"),
                throttles <- pin_init::pin_init_array_from_fn(|_| AccessThrottle::new()),
                refused_peers <- new_spinlock!(refused_peers, "Account::refused_peers"),
                peer_uses <- new_spinlock!(RBTree::new(), "Account::peer_uses"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // Dropping an `AccountRef`, or an account that has one, takes the lock. So neither is
        // dropped while the lock is held.
        let new = Self::new(&account);
        let node = RBTreeNode::new(key, account, GFP_KERNEL_ACCOUNT)?;
        let mut accounts = ACCOUNTS.lock();
        if let Some(known) = accounts.find(&key) {
            drop(accounts);
            return Ok(known);
        }
        accounts.tree.get_or_insert_with(RBTree::new).insert(node);
        drop(accounts);
        Ok(new)
    }
}

impl Clone for AccountRef {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for AccountRef {
    fn drop(&mut self) {
        if self.0.refs.fetch_sub(1, Full) != 1 {
            return;
        }
        let mut accounts = ACCOUNTS.lock();
        // A file that was opened in the meantime may refer to the account again.
        let removed = if self.0.refs.load(Relaxed) == 0 {
            accounts.remove(&self.0)
        } else {
            None
        };
        drop(accounts);
        drop(removed);
    }
}

/// Adds `bytes` to `used`, up to `limit`. Fails with `ENOMEM`.
pub(super) fn charge(used: &Atomic<u64>, bytes: u64, limit: u64) -> Result {
    let mut now = used.load(Relaxed);
    loop {
        let sum = now.checked_add(bytes).filter(|sum| *sum <= limit);
        match used.cmpxchg(now, sum.ok_or(ENOMEM)?, Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => now = other,
        }
    }
}
