// SPDX-License-Identifier: GPL-2.0

//! What the objects of one user take of the kernel's memory, and the limit of that.
//!
//! Objects are charged to the memory control group of who makes them, but not every process is in
//! one with a limit, and 65,535 of the largest CQs in each of many open files would be all that a
//! machine has. So each user has an account: what an object takes when it is opened (itself,
//! its rings, its queues), and each message that is buffered for it, is charged there, and given
//! back with it. Packets that wait for a QP of the user are charged there as well, while they wait
//! (`net/qp/inbox.rs`).
//!
//! ```text
//!   open file -- Budget ----> Account of the user, at most user_memory (a module parameter)
//!   object, buffer -- Allowance --^
//! ```
//!
//! The budget of who opens the file with `CAP_SYS_RESOURCE` has no limit: its bytes are counted and
//! never refused. Pinned memory is the program's own and stands against `RLIMIT_MEMLOCK` instead
//! ([`Pinned`](super::Pinned)); memory of kernel consumers is theirs. The segment lists of regions are
//! charged here.
//!
//! A user namespace gives its owner more users, as many as are mapped into it. So the account of a user in
//! a user namespace stands below that of the owner of the namespace, and so on up to the first one: what
//! is charged to it is charged to all above it, and each has the limit. That is how the kernel's ucounts
//! work, which are not there for modules. Namespaces that root has made, for containers, are left out:
//! each of their users stands for itself.
//!
//! The account is also where refused accesses to peers' memory are remembered, because more processes
//! or more open files of a user must not try keys faster ([`Throttle`]). Who has no limit is not
//! delayed.
//!
//! # Locks
//!
//! A gate's `throttle` is a spin lock and a leaf, and so is `ACCOUNTS`, which is taken when a file is
//! opened, and when the last that holds an account goes: it is no mutex, so that no task is preempted
//! while it holds it, because the end of a process may take it. Charging is atomic. An account leaves
//! the tree when nothing is charged to it and nobody can charge any more: who opens a new file does
//! not begin at nothing while something of the old one is still there.

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

/// What every object takes besides itself, in bytes: its handle, its place in lists.
const OVERHEAD: u64 = 512;

/// The parts of a user's limit that peers can use up: the rest is for what the user does.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// Connections that a peer has asked for and not confirmed: they may be forged. Users without a limit
    /// have the others' one here.
    HalfOpen,
    /// All connections that peers have asked for, and answers that they are owed.
    Peers,
    /// Packets that wait for the user's QPs, see [`Budget::charge_inbox`]. They may be forged, so
    /// this part also bounds users without a limit: it is computed from the limit of the others.
    Inboxes,
}

impl Part {
    /// One part in so many of the limit.
    const fn share(self) -> u64 {
        match self {
            Self::HalfOpen | Self::Inboxes => 4,
            Self::Peers => 2,
        }
    }
}

/// The least number of workers that run for one user at a time; as many as there are CPUs may, if that
/// is more. A worker may sleep until a task of the user releases a lock, and that task may not be
/// scheduled. The kernel limits the workers of one queue on one CPU (1,024), which all users share. So the
/// limit is far below that, and above what a user needs whose tasks are scheduled.
const MIN_WORKERS: u32 = 64;

/// Parts of a user's endpoints that are delayed apart; a power of two.
const GATES: usize = 16;

/// Where accesses to peers' memory wait, of a part of a user's endpoints.
#[pin_data]
struct Gate {
    #[pin]
    throttle: SpinLock<Throttle>,
    /// [`Throttle::until`] of `throttle`.
    until: Atomic<u64>,
}

impl Gate {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            throttle <- new_spinlock!(Throttle::new(), "Gate::throttle"),
            until: Atomic::new(0),
        })
    }
}

/// What one user's objects take, and what the user was refused.
#[pin_data]
struct Account {
    user: Kuid,
    /// The account of the owner of the user's namespace; none in the first namespace.
    above: Option<Hold>,
    /// Bytes.
    used: Atomic<u64>,
    /// Those of them that belong to a [`Part`].
    half_open: Atomic<u64>,
    peers: Atomic<u64>,
    inboxes: Atomic<u64>,
    /// How many [`Hold`]s there are.
    holders: Atomic<u64>,
    /// How many workers run for the user, and for the users of namespaces that it owns.
    workers: Atomic<u32>,
    /// Refused accesses to peers' memory: each for a part of the user's endpoints, so that a peer that
    /// refuses everything delays few others.
    #[pin]
    gates: [Gate; GATES],
}

impl Account {
    /// The account and all above it, from below.
    fn and_above(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |account| {
            account.above.as_ref().map(|above| &*above.0)
        })
    }

    fn part(&self, part: Part) -> &Atomic<u64> {
        match part {
            Part::HalfOpen => &self.half_open,
            Part::Peers => &self.peers,
            Part::Inboxes => &self.inboxes,
        }
    }

    /// Gives back bytes of packets that waited in an inbox.
    fn uncharge_inbox(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.inboxes.fetch_sub(bytes, Relaxed);
    }

    /// Where the accesses of an endpoint wait: that of the account that has none above it. `number` is
    /// the endpoint's, whatever it is.
    fn gate(&self, number: u64) -> &Gate {
        // Fibonacci hashing: its highest bits.
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - GATES.ilog2());
        let gates = &self.first().gates;
        // There are as many as the bits can name.
        gates.get(hash as usize).unwrap_or(&gates[0])
    }

    /// The account that has none above it.
    fn first(&self) -> &Self {
        self.and_above().last().unwrap_or(self)
    }
}

/// The user of an account, and the account above it: its address, 0 for none. While an account is in
/// the tree it holds the one above it, so the address is that account's.
type Key = (u32, usize);

fn key(user: Kuid, above: &Option<Hold>) -> Key {
    let above = above.as_ref();
    (
        user.into_raw().val,
        above.map_or(0, |above| (&raw const *above.0).addr()),
    )
}

struct Accounts {
    /// `None` until the first account comes: a tree cannot be made in a constant.
    tree: Option<RBTree<Key, Arc<Account>>>,
    /// Bytes that one user may have.
    limit: u64,
}

impl Accounts {
    /// The account with this key.
    fn find(&self, key: &Key) -> Option<Hold> {
        Some(Hold::new(self.tree.as_ref()?.get(key)?))
    }

    /// Takes an account out that nobody holds; it is not to be dropped under the lock.
    fn remove(&mut self, account: &Arc<Account>) -> Option<RBTreeNode<Key, Arc<Account>>> {
        let key = key(account.user, &account.above);
        let tree = self.tree.as_mut()?;
        // Somebody else may have taken it out, and a third have entered another one.
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

/// Prepares the accounts, of at most `limit` bytes each.
///
/// # Safety
///
/// To be called once, before any other function of this file.
pub(crate) unsafe fn init(limit: u64) {
    // SAFETY: Called once, by the requirement above.
    unsafe { ACCOUNTS.init() }
    ACCOUNTS.lock().limit = limit;
}

/// Keeps an account in the tree.
struct Hold(Arc<Account>);

impl Hold {
    fn new(account: &Arc<Account>) -> Self {
        account.holders.fetch_add(1, Full);
        Self(account.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.holders.fetch_sub(1, Full) != 1 {
            return;
        }
        let mut accounts = ACCOUNTS.lock();
        // Unless a file was opened meanwhile.
        let left = if self.0.holders.load(Relaxed) == 0 {
            accounts.remove(&self.0)
        } else {
            None
        };
        drop(accounts);
        drop(left);
    }
}

/// Adds `bytes` to what is `used`, up to `limit`. `ENOMEM`.
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

/// Who can charge an account, up to a limit.
pub(crate) struct Budget {
    hold: Hold,
    limit: u64,
    /// The limit of users who have one.
    common: u64,
    principal: Arc<Principal>,
}

impl Budget {
    /// That of the current task's effective user, in the task's user namespace. `ENOMEM`. Sleeps.
    pub(crate) fn current() -> Result<Self> {
        let limit = may_exceed_limits().then_some(u64::MAX);
        let mut above = None;
        let (owners, count) = namespace_owners();
        for owner in owners.into_iter().take(count) {
            above = Some(Self::below(above, owner, limit)?.hold);
        }
        Self::below(above, Kuid::current_euid(), limit)
    }

    /// That of `user` in the first user namespace, with another limit than everybody's. `ENOMEM`.
    /// Sleeps.
    #[cfg(kfi_kunit)]
    pub(crate) fn of(user: Kuid, limit: Option<u64>) -> Result<Self> {
        Self::below(None, user, limit)
    }

    /// That of `user` in a namespace whose owner has the account `above`; else as `of`.
    fn below(above: Option<Hold>, user: Kuid, limit: Option<u64>) -> Result<Self> {
        // A hold that goes takes the lock, and so does an account that has one: neither is dropped
        // under it.
        let key = key(user, &above);
        let (limit, common, known) = {
            let accounts = ACCOUNTS.lock();
            let common = accounts.limit;
            let limit = limit.unwrap_or(accounts.limit);
            (limit, common, accounts.find(&key))
        };
        let principal = Arc::new(Principal::with_user(user), GFP_KERNEL_ACCOUNT)?;
        if let Some(hold) = known {
            return Ok(Self {
                hold,
                limit,
                common,
                principal,
            });
        }
        let account = Arc::pin_init(
            pin_init!(Account {
                user,
                above,
                used: Atomic::new(0),
                half_open: Atomic::new(0),
                peers: Atomic::new(0),
                inboxes: Atomic::new(0),
                holders: Atomic::new(0),
                workers: Atomic::new(0),
                gates <- pin_init::pin_init_array_from_fn(|_| Gate::new()),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let hold = Hold::new(&account);
        let mut node = Some(RBTreeNode::new(key, account, GFP_KERNEL_ACCOUNT)?);
        let mut accounts = ACCOUNTS.lock();
        // Somebody else may have entered one meanwhile.
        let known = accounts.find(&key);
        if known.is_none() {
            if let Some(node) = node.take() {
                accounts.tree.get_or_insert_with(RBTree::new).insert(node);
            }
        }
        drop(accounts);
        drop(node);
        Ok(Self {
            hold: known.unwrap_or(hold),
            limit,
            common,
            principal,
        })
    }

    /// The user, and the memory control group of the task that made the budget.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Charges `bytes`, to all accounts above as well. `ENOMEM` over the limit of one. Does not sleep.
    pub(crate) fn take(&self, bytes: u64) -> Result<Allowance> {
        let account = &self.hold.0;
        for (number, charged) in account.and_above().enumerate() {
            if let Err(error) = charge(&charged.used, bytes, self.limit) {
                for charged in account.and_above().take(number) {
                    charged.used.fetch_sub(bytes, Relaxed);
                }
                return Err(error);
            }
        }
        Ok(Allowance {
            hold: Hold::new(account),
            bytes,
        })
    }

    /// Bytes of the limit that a part may have.
    fn part_limit(&self, part: Part) -> u64 {
        let limit = match part {
            Part::HalfOpen => self.common,
            Part::Peers => self.limit,
            Part::Inboxes => self.limit.min(self.common),
        };
        limit / part.share()
    }

    /// Counts `bytes`, which are charged besides, in a part of the limit. `ENOMEM`: it is full.
    /// Does not sleep.
    pub(crate) fn take_part(&self, part: Part, bytes: u64) -> Result<PartAllowance> {
        let account = &self.hold.0;
        charge(account.part(part), bytes, self.part_limit(part))?;
        Ok(PartAllowance {
            hold: Hold::new(account),
            part,
            bytes,
        })
    }

    /// Charges `bytes` for packets that wait in an inbox, in [`Part::Inboxes`] as well, to this
    /// account and to all above it: the users of a namespace have no more than its owner. `ENOMEM`
    /// over the limit of one of them, or over its part. An inbox that has `borrowed` bytes already
    /// leaves as many free to others: so many inboxes as there are that take all they can, each has
    /// an equal share, and one more share is left. The caller [gives them
    /// back](Self::uncharge_inbox) while it has this budget, or another of the account; so the
    /// charge does not hold the account, as an [`Allowance`] does. Any context.
    pub(crate) fn charge_inbox(&self, bytes: u64, borrowed: u64) -> Result {
        let part = self.part_limit(Part::Inboxes).saturating_sub(borrowed);
        let account = &self.hold.0;
        for (number, charged) in account.and_above().enumerate() {
            let result = charge(&charged.inboxes, bytes, part).and_then(|()| {
                charge(&charged.used, bytes, self.limit).inspect_err(|_| {
                    charged.inboxes.fetch_sub(bytes, Relaxed);
                })
            });
            if result.is_err() {
                for charged in account.and_above().take(number) {
                    charged.uncharge_inbox(bytes);
                }
                return result;
            }
        }
        Ok(())
    }

    /// Gives back what [`charge_inbox`](Self::charge_inbox) has charged, or a part of it. Any
    /// context.
    pub(crate) fn uncharge_inbox(&self, bytes: u64) {
        for charged in self.hold.0.and_above() {
            charged.uncharge_inbox(bytes);
        }
    }

    /// Bytes that are charged to the user, and how many of them are in a part.
    #[cfg(kfi_kunit)]
    pub(crate) fn charged(&self, part: Part) -> (u64, u64) {
        let account = &self.hold.0;
        (account.used.load(Relaxed), account.part(part).load(Relaxed))
    }

    /// A peer has refused access to its memory to an endpoint (see [`Account::gate`]). Does not sleep.
    pub(crate) fn refused(&self, endpoint: u64) {
        if self.limit == u64::MAX {
            return;
        }
        let gate = self.hold.0.gate(endpoint);
        let mut throttle = gate.throttle.lock();
        throttle.refused(now_ns());
        gate.until.store(throttle.until(), Relaxed);
    }

    /// Whether an access of that endpoint to a peer's memory has to [enter](Self::enter_access). Any
    /// context.
    #[inline]
    pub(crate) fn is_delayed(&self, endpoint: u64) -> bool {
        self.limit != u64::MAX && self.hold.0.gate(endpoint).until.load(Relaxed) != 0
    }

    /// Waits for the turn of an access of that endpoint to a peer's memory. Only one that may sleep does.
    ///
    /// `EAGAIN` its turn is too far away, or it may not sleep; `EINTR` a signal is pending.
    pub(crate) fn enter_access(&self, endpoint: u64, may_sleep: bool) -> Result {
        let gate = self.hold.0.gate(endpoint);
        let now = now_ns();
        let turn = {
            let mut throttle = gate.throttle.lock();
            if !may_sleep && throttle.until() > now {
                return Err(EAGAIN);
            }
            let turn = throttle.enter(now).map_err(to_error)?;
            gate.until.store(throttle.until(), Relaxed);
            turn
        };
        if turn <= now {
            return Ok(());
        }
        sleep_until(turn)
    }

    /// Counts a worker that runs for the user until the result is dropped. `None`: so many run already
    /// that it should try again later. Does not sleep.
    pub(crate) fn enter_worker(&self) -> Option<RunningWorker<'_>> {
        let workers = &self.hold.0.first().workers;
        let most = MIN_WORKERS.max(nr_cpu_ids());
        if workers.fetch_add(1, Relaxed) < most {
            return Some(RunningWorker(workers));
        }
        workers.fetch_sub(1, Relaxed);
        None
    }

    /// Charges `bytes` whatever the limit, for what cannot be refused and is bounded otherwise. Does not
    /// sleep.
    pub(crate) fn take_anyway(&self, bytes: u64) -> Allowance {
        let account = &self.hold.0;
        for charged in account.and_above() {
            charged.used.fetch_add(bytes, Relaxed);
        }
        Allowance {
            hold: Hold::new(account),
            bytes,
        }
    }

    /// Charges an object of type `T` with `more` bytes of queues and rings; see
    /// [`take`](Self::take).
    pub(crate) fn take_for<T>(&self, more: usize) -> Result<Allowance> {
        self.take(
            (size_of::<T>() as u64)
                .saturating_add(OVERHEAD)
                .saturating_add(more as u64),
        )
    }
}

impl Clone for Budget {
    fn clone(&self) -> Self {
        Self {
            hold: Hold::new(&self.hold.0),
            limit: self.limit,
            common: self.common,
            principal: self.principal.clone(),
        }
    }
}

/// A worker that runs for a user, see [`Budget::enter_worker`].
pub(crate) struct RunningWorker<'a>(&'a Atomic<u32>);

impl Drop for RunningWorker<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Bytes that are charged to an account, and given back when this is dropped. Dropping sleeps.
pub(crate) struct Allowance {
    hold: Hold,
    bytes: u64,
}

impl Drop for Allowance {
    fn drop(&mut self) {
        for charged in self.hold.0.and_above() {
            charged.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Bytes that are counted in a part of an account's limit. Dropping sleeps.
pub(crate) struct PartAllowance {
    hold: Hold,
    part: Part,
    bytes: u64,
}

impl Drop for PartAllowance {
    fn drop(&mut self) {
        let counted = self.hold.0.part(self.part);
        counted.fetch_sub(self.bytes, Relaxed);
    }
}
