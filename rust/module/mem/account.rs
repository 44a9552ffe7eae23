// SPDX-License-Identifier: GPL-2.0

//! Accounts: the kernel memory of each user's objects, and its limit.
//!
//! An object is charged to the memory control group of the task that creates it. But not every
//! process is in a group with a limit, and a process may open many files and create 65,535 of the
//! largest CQs in each. So each user also has an account. It is charged for each object when the
//! object is created (the object, its rings and queues), for each message that is buffered for the
//! object, and for packets that wait for a QP of the user (`net/qp/inbox.rs`). The charge is
//! returned when the object, message or packet is freed.
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
//! keys faster with more processes or more open files. Users without a limit are not delayed.
//!
//! # Locks
//!
//! `AccessThrottle::throttle` and `ACCOUNTS` are spin locks and leaves. `ACCOUNTS` is taken when a
//! file is opened and when the last [`AccountRef`] of an account is dropped. It is not a mutex
//! because the exit of a process may take it, and must not wait for a task that was preempted while
//! holding it. Charging is atomic. An account leaves the tree when no [`AccountRef`] is left, that
//! is, when nothing is charged to it and no budget refers to it. So a user who opens a new file is
//! still charged for what remains of an old one.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/account.rs"]
mod kunit;

use kernel::{
    cpu::nr_cpu_ids,
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

use kfi_core::throttle::Throttle;

use crate::shim::{
    cred::{
        may_exceed_limits,
        namespace_owners,
        Principal, //
    },
    errno::to_error,
    sched::{
        now_ns,
        sleep_until, //
    }, //
};

/// Bytes that each object is charged besides its own size: its handle and its list entries.
const OVERHEAD: u64 = 512;

/// The parts of a user's limit that peers can use up. The rest is left for the user's own calls.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// Connections that a peer has requested and not confirmed. The requests may be forged, so this
    /// part bounds users without a limit too: it is computed from the limit of the others.
    HalfOpen,
    /// All connections that peers have requested, and answers that are due to peers.
    Peers,
    /// Packets that wait for the user's QPs, see [`Budget::charge_inbox`]. They may be forged, so
    /// this part bounds users without a limit too: it is computed from the limit of the others.
    Inboxes,
}

impl Part {
    /// The divisor: a part is the limit divided by this.
    const fn share(self) -> u64 {
        match self {
            Self::HalfOpen | Self::Inboxes => 4,
            Self::Peers => 2,
        }
    }
}

/// The least number of workers that run for one user at a time; as many as there are CPUs may, if
/// that is more. A worker may sleep until a task of the user releases a lock, and that task may not
/// be scheduled. The kernel limits the workers of one queue on one CPU (1,024), which all users
/// share. So the limit is far below that, and above what a user needs whose tasks are scheduled.
const MIN_WORKERS: u32 = 64;

/// Number of throttles of a user, a power of two. Each endpoint uses one of them.
const THROTTLES: usize = 16;

/// Delays the accesses to peers' memory of some of a user's endpoints.
#[pin_data]
struct AccessThrottle {
    #[pin]
    throttle: SpinLock<Throttle>,
    /// [`Throttle::until`] of `throttle`.
    until: Atomic<u64>,
}

impl AccessThrottle {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            throttle <- new_spinlock!(Throttle::new(), "AccessThrottle::throttle"),
            until: Atomic::new(0),
        })
    }
}

/// The kernel memory charged to a user, and the accesses that the user was refused.
#[pin_data]
struct Account {
    user: Kuid,
    /// The parent: the account of the owner of the user's namespace; `None` in the initial
    /// namespace.
    parent: Option<AccountRef>,
    /// Bytes charged.
    used: Atomic<u64>,
    /// Bytes charged to each [`Part`].
    half_open: Atomic<u64>,
    peers: Atomic<u64>,
    inboxes: Atomic<u64>,
    /// Number of [`AccountRef`]s.
    refs: Atomic<u64>,
    /// Workers that run for the user, and for the users of namespaces that it owns.
    workers: Atomic<u32>,
    /// Refused accesses to peers' memory. Each throttle serves some of the user's endpoints, so a
    /// peer that refuses everything delays few other endpoints.
    #[pin]
    throttles: [AccessThrottle; THROTTLES],
}

impl Account {
    /// The account and its ancestors, starting with the account itself.
    fn with_ancestors(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |account| {
            account.parent.as_ref().map(|parent| &*parent.0)
        })
    }

    /// Calls `charge` for the account and its ancestors. If that fails for one of them, calls
    /// `uncharge` for those that were charged before it.
    fn charge_all(&self, charge: impl Fn(&Self) -> Result, uncharge: impl Fn(&Self)) -> Result {
        for (number, account) in self.with_ancestors().enumerate() {
            charge(account).inspect_err(|_| {
                self.with_ancestors().take(number).for_each(&uncharge);
            })?;
        }
        Ok(())
    }

    fn part(&self, part: Part) -> &Atomic<u64> {
        match part {
            Part::HalfOpen => &self.half_open,
            Part::Peers => &self.peers,
            Part::Inboxes => &self.inboxes,
        }
    }

    /// Returns the charge for packets that waited in an inbox.
    fn uncharge_inbox(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.inboxes.fetch_sub(bytes, Relaxed);
    }

    /// The throttle for the accesses of an endpoint, in the topmost account. `endpoint` is any
    /// value that identifies the endpoint.
    fn throttle(&self, endpoint: u64) -> &AccessThrottle {
        // Fibonacci hashing: take the highest bits of the product.
        let hash = endpoint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - THROTTLES.ilog2());
        let throttles = &self.topmost().throttles;
        // The hash has as many bits as the index needs.
        throttles.get(hash as usize).unwrap_or(&throttles[0])
    }

    /// The topmost ancestor; the account itself if it has no parent.
    fn topmost(&self) -> &Self {
        self.with_ancestors().last().unwrap_or(self)
    }
}

/// The user of an account and the address of its parent, 0 without one. An account in the tree
/// has a reference to its parent, so the address stays that of the parent.
type Key = (u32, usize);

fn key(user: Kuid, parent: Option<&AccountRef>) -> Key {
    let parent = parent.map_or(0, |parent| Arc::as_ptr(&parent.0).addr());
    (user.into_raw().val, parent)
}

struct Accounts {
    /// `None` until the first account is added: a tree cannot be created in a constant.
    tree: Option<RBTree<Key, Arc<Account>>>,
    /// Bytes that one user may be charged.
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
        let key = key(account.user, account.parent.as_ref());
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
}

/// A reference to an account that keeps it in the tree. Dropping may take `ACCOUNTS`, so only
/// process context may drop it.
struct AccountRef(Arc<Account>);

impl AccountRef {
    fn new(account: &Arc<Account>) -> Self {
        account.refs.fetch_add(1, Full);
        Self(account.clone())
    }

    /// Inserts an account into the tree, unless another task has done that in the meantime. Sleeps.
    /// Fails with `ENOMEM`.
    fn insert(key: Key, user: Kuid, parent: Option<AccountRef>) -> Result<Self> {
        let account = Arc::pin_init(
            pin_init!(Account {
                user,
                parent,
                used: Atomic::new(0),
                half_open: Atomic::new(0),
                peers: Atomic::new(0),
                inboxes: Atomic::new(0),
                refs: Atomic::new(0),
                workers: Atomic::new(0),
                throttles <- pin_init::pin_init_array_from_fn(|_| AccessThrottle::new()),
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
fn charge(used: &Atomic<u64>, bytes: u64, limit: u64) -> Result {
    let mut now = used.load(Relaxed);
    loop {
        let sum = now.checked_add(bytes).filter(|sum| *sum <= limit);
        match used.cmpxchg(now, sum.ok_or(ENOMEM)?, Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => now = other,
        }
    }
}

/// The right to charge an account, up to a limit.
#[derive(Clone)]
pub(crate) struct Budget {
    account: AccountRef,
    limit: u64,
    /// The limit of users who have one; see [`Part`].
    common: u64,
    principal: Arc<Principal>,
}

impl Budget {
    /// The budget of the current task's effective user, in the task's user namespace. Sleeps. Fails
    /// with `ENOMEM`.
    pub(crate) fn current() -> Result<Self> {
        let limit = may_exceed_limits().then_some(u64::MAX);
        let mut parent = None;
        let (owners, count) = namespace_owners();
        for owner in owners.into_iter().take(count) {
            parent = Some(Self::below(parent, owner, limit)?.account);
        }
        Self::below(parent, Kuid::current_euid(), limit)
    }

    /// The budget of `user` in the initial user namespace; `limit` replaces the common limit.
    /// Sleeps. Fails with `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn of(user: Kuid, limit: Option<u64>) -> Result<Self> {
        Self::below(None, user, limit)
    }

    /// The budget of `user` in a namespace whose owner has the account `parent`. Sleeps. Fails with
    /// `ENOMEM`.
    fn below(parent: Option<AccountRef>, user: Kuid, limit: Option<u64>) -> Result<Self> {
        let key = key(user, parent.as_ref());
        let (common, known) = {
            let accounts = ACCOUNTS.lock();
            (accounts.limit, accounts.find(&key))
        };
        let principal = Arc::new(Principal::with_user(user), GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            account: match known {
                Some(account) => account,
                None => AccountRef::insert(key, user, parent)?,
            },
            limit: limit.unwrap_or(common),
            common,
            principal,
        })
    }

    /// The user, and the memory control group of the task that created the budget.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Charges `bytes` to the account and its ancestors. Does not sleep. Fails with `ENOMEM` if one
    /// of them would exceed the limit.
    pub(crate) fn take(&self, bytes: u64) -> Result<Allowance> {
        self.charge(bytes)?;
        Ok(Allowance {
            account: self.account.clone(),
            bytes,
        })
    }

    /// [`take`](Self::take) without a reference to the account. The caller [returns
    /// it](Self::uncharge) while it has this budget or another one of the account.
    pub(crate) fn charge(&self, bytes: u64) -> Result {
        self.account.0.charge_all(
            |account| charge(&account.used, bytes, self.limit),
            |account| {
                account.used.fetch_sub(bytes, Relaxed);
            },
        )
    }

    /// Returns what [`charge`](Self::charge) has charged. Any context.
    #[inline]
    pub(crate) fn uncharge(&self, bytes: u64) {
        for account in self.account.0.with_ancestors() {
            account.used.fetch_sub(bytes, Relaxed);
        }
    }

    /// Bytes that a part may have.
    fn part_limit(&self, part: Part) -> u64 {
        let limit = match part {
            Part::HalfOpen => self.common,
            Part::Peers => self.limit,
            Part::Inboxes => self.limit.min(self.common),
        };
        limit / part.share()
    }

    /// Whether half of a part is in use. Any context.
    pub(crate) fn is_half_used(&self, part: Part) -> bool {
        self.account.0.part(part).load(Relaxed) >= self.part_limit(part) / 2
    }

    /// Counts `bytes`, which the caller charges separately, in a part of the limit. Does not sleep.
    /// Fails with `ENOMEM` if the part is full.
    pub(crate) fn take_part(&self, part: Part, bytes: u64) -> Result<PartAllowance> {
        charge(self.account.0.part(part), bytes, self.part_limit(part))?;
        Ok(PartAllowance {
            account: self.account.clone(),
            part,
            bytes,
        })
    }

    /// Charges `bytes` of packets that wait in an inbox, to the limit and to [`Part::Inboxes`] of
    /// the account and of its ancestors: the users of a namespace get no more than its owner. Any
    /// context.
    ///
    /// `borrowed` is what the inbox has been charged already. The inbox must leave as many bytes of
    /// the part free for others. So inboxes that all take what they can end up with equal shares,
    /// and one more share stays free.
    ///
    /// The charge does not refer to the account, unlike an [`Allowance`]. The caller [returns
    /// it](Self::uncharge_inbox) while it has this budget or another one of the account.
    ///
    /// Fails with `ENOMEM` if one of the accounts would exceed its limit or its part.
    pub(crate) fn charge_inbox(&self, bytes: u64, borrowed: u64) -> Result {
        let part = self.part_limit(Part::Inboxes).saturating_sub(borrowed);
        self.account.0.charge_all(
            |account| {
                charge(&account.inboxes, bytes, part)?;
                charge(&account.used, bytes, self.limit).inspect_err(|_| {
                    account.inboxes.fetch_sub(bytes, Relaxed);
                })
            },
            |account| account.uncharge_inbox(bytes),
        )
    }

    /// Returns all or some of what [`charge_inbox`](Self::charge_inbox) has charged. Any context.
    pub(crate) fn uncharge_inbox(&self, bytes: u64) {
        for account in self.account.0.with_ancestors() {
            account.uncharge_inbox(bytes);
        }
    }

    /// Bytes charged to the user, and how many of them belong to a part.
    #[cfg(kfi_kunit)]
    pub(crate) fn charged(&self, part: Part) -> (u64, u64) {
        let account = &self.account.0;
        (account.used.load(Relaxed), account.part(part).load(Relaxed))
    }

    /// Records that a peer has refused access to its memory to an endpoint (see
    /// [`Account::throttle`]). Does not sleep.
    pub(crate) fn refused(&self, endpoint: u64) {
        if self.limit == u64::MAX {
            return;
        }
        let access = self.account.0.throttle(endpoint);
        let mut throttle = access.throttle.lock();
        throttle.refused(now_ns());
        access.until.store(throttle.until(), Relaxed);
    }

    /// Whether an access of this endpoint to a peer's memory has to call
    /// [`enter_access`](Self::enter_access). Any context.
    #[inline]
    pub(crate) fn is_delayed(&self, endpoint: u64) -> bool {
        self.limit != u64::MAX && self.account.0.throttle(endpoint).until.load(Relaxed) != 0
    }

    /// Delays an access of this endpoint to a peer's memory until its turn. Sleeps only if
    /// `may_sleep`.
    ///
    /// Fails with `EAGAIN` if the turn is too far away, or if the access would have to wait and may
    /// not sleep; with `EINTR` if a signal is pending.
    pub(crate) fn enter_access(&self, endpoint: u64, may_sleep: bool) -> Result {
        let now = now_ns();
        let until = &self.account.0.throttle(endpoint).until;
        if !may_sleep && until.load(Relaxed) > now {
            return Err(EAGAIN);
        }
        let turn = self.access_turn(endpoint)?;
        if turn <= now {
            return Ok(());
        }
        sleep_until(turn)
    }

    /// Takes a turn for an access of this endpoint to a peer's memory, and returns the time at
    /// which the access may begin, in ns. Does not sleep. Fails with `EAGAIN` if that is too far
    /// away.
    pub(crate) fn access_turn(&self, endpoint: u64) -> Result<u64> {
        let access = self.account.0.throttle(endpoint);
        let mut throttle = access.throttle.lock();
        let turn = throttle.enter(now_ns()).map_err(to_error)?;
        access.until.store(throttle.until(), Relaxed);
        Ok(turn)
    }

    /// Counts a worker that runs for the user until the result is dropped. `None`: so many run
    /// already that it should try again later. Does not sleep.
    pub(crate) fn enter_worker(&self) -> Option<RunningWorker<'_>> {
        let workers = &self.account.0.topmost().workers;
        let most = MIN_WORKERS.max(nr_cpu_ids());
        if workers.fetch_add(1, Relaxed) < most {
            return Some(RunningWorker(workers));
        }
        workers.fetch_sub(1, Relaxed);
        None
    }

    /// Charges `bytes` regardless of the limit. For memory that cannot be refused and is bounded in
    /// another way. Does not sleep.
    pub(crate) fn take_anyway(&self, bytes: u64) -> Allowance {
        for account in self.account.0.with_ancestors() {
            account.used.fetch_add(bytes, Relaxed);
        }
        Allowance {
            account: self.account.clone(),
            bytes,
        }
    }

    /// Charges an object of type `T` and `more` bytes of queues and rings; see
    /// [`take`](Self::take).
    pub(crate) fn take_for<T>(&self, more: usize) -> Result<Allowance> {
        self.take(
            (size_of::<T>() as u64)
                .saturating_add(OVERHEAD)
                .saturating_add(more as u64),
        )
    }
}

/// A worker that runs for a user, see [`Budget::enter_worker`].
pub(crate) struct RunningWorker<'a>(&'a Atomic<u32>);

impl Drop for RunningWorker<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Bytes that are charged to an account until this is dropped. Only process context may drop it,
/// see [`AccountRef`].
pub(crate) struct Allowance {
    account: AccountRef,
    bytes: u64,
}

impl Drop for Allowance {
    fn drop(&mut self) {
        for account in self.account.0.with_ancestors() {
            account.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Bytes that are counted in a part of an account's limit until this is dropped. Only process
/// context may drop it, see [`AccountRef`].
pub(crate) struct PartAllowance {
    account: AccountRef,
    part: Part,
    bytes: u64,
}

impl Drop for PartAllowance {
    fn drop(&mut self) {
        let counted = self.account.0.part(self.part);
        counted.fetch_sub(self.bytes, Relaxed);
    }
}
