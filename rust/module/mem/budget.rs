// SPDX-License-Identifier: GPL-2.0

//! Budget: the right to charge an account, and what was charged with it.
//!
//! A budget belongs to an open file or a kernel consumer. It charges the [account](super::account)
//! of the user, up to the limit that the opening task has. The charges end with the values that the
//! calls return ([`Allowance`], [`PartAllowance`]), or with the call that is named there. A budget
//! also gives the turns for accesses to peers' memory.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    task::Kuid, //
};

use core::net::IpAddr;
use kfi_core::{
    refusals,
    share::Source, //
};

use super::{
    account::{
        charge,
        large_limit,
        AccountRef,
        Part, //
    },
    peer_share::PeerUse, //
};
use crate::shim::{
    cred::{
        may_exceed_limits,
        namespace_owners,
        Principal, //
    },
    errno::to_error,
    reclaim::OwnerKind,
    sched::{
        now_ns,
        sleep_until, //
    }, //
};

/// Bytes that each object is charged besides its own size: its handle and its list entries.
const OVERHEAD: u64 = 512;

/// The right to charge an account, up to a limit.
#[derive(Clone)]
pub(crate) struct Budget {
    pub(super) account: AccountRef,
    limit: u64,
    /// The limit of users who have one; see [`Part`].
    common: u64,
    principal: Arc<Principal>,
}

impl Budget {
    /// The budget for objects of this kind of the current task's effective user, in the task's user
    /// namespace. Sleeps. Fails with `ENOMEM`.
    pub(crate) fn current(kind: OwnerKind) -> Result<Self> {
        let limit = may_exceed_limits().then_some(u64::MAX);
        let mut parent = None;
        let (owners, count) = namespace_owners();
        for owner in owners.into_iter().take(count) {
            parent = Some(Self::below(parent, kind, owner, limit)?.account);
        }
        Self::below(parent, kind, Kuid::current_euid(), limit)
    }

    /// The budget for programs of the current task's effective user. Sleeps. Fails with `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn of_program() -> Result<Self> {
        Self::current(OwnerKind::Program)
    }

    /// The budget for programs of `user` in the initial user namespace; `limit` replaces the common
    /// limit. Sleeps. Fails with `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn of(user: Kuid, limit: Option<u64>) -> Result<Self> {
        Self::below(None, OwnerKind::Program, user, limit)
    }

    /// The budget for kernel consumers of `user` in the initial user namespace, without a limit.
    /// Sleeps. Fails with `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn of_consumer(user: Kuid) -> Result<Self> {
        Self::below(None, OwnerKind::Consumer, user, Some(u64::MAX))
    }

    /// The budget for objects of this kind of `user` in a namespace whose owner has the account
    /// `parent`. Sleeps. Fails with `ENOMEM`.
    pub(super) fn below(
        parent: Option<AccountRef>,
        kind: OwnerKind,
        user: Kuid,
        limit: Option<u64>,
    ) -> Result<Self> {
        let (account, common) = AccountRef::of(kind, user, parent)?;
        let principal = Arc::new(Principal::with_user(kind, user), GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            account,
            limit: limit.unwrap_or(common),
            common,
            principal,
        })
    }

    /// The principal on whose behalf work for the objects of this budget is done.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// The user of the account as the source of what its objects send to those of others: the owner
    /// of all its namespaces. Any context.
    pub(crate) fn source(&self) -> Source {
        Source::User(self.account.0.topmost().user.into_raw().val)
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
    pub(super) fn part_limit(&self, part: Part) -> u64 {
        let limit = match part {
            Part::HalfOpen => self.common,
            Part::Peers if self.limit == u64::MAX => self.common.max(large_limit()),
            Part::Peers | Part::Inboxes => self.limit.min(self.common),
        };
        limit / part.share()
    }

    /// Whether half of a part is in use. Any context.
    pub(crate) fn is_half_used(&self, part: Part) -> bool {
        self.account.0.part(part).load(Relaxed) >= self.part_limit(part) / 2
    }

    /// Counts `bytes` in a part of the limit, and in no source's share, for tests. Does not sleep.
    /// Fails with `ENOMEM` if the part is full.
    #[cfg(kfi_kunit)]
    pub(crate) fn take_part(&self, part: Part, bytes: u64) -> Result<PartAllowance> {
        charge(self.account.0.part(part), bytes, self.part_limit(part))?;
        Ok(PartAllowance::new(&self.account, part, bytes, None))
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

    /// Bytes charged to the account, and how many of them belong to a part.
    #[cfg(kfi_kunit)]
    pub(crate) fn charged(&self, part: Part) -> (u64, u64) {
        let account = &self.account.0;
        (account.used.load(Relaxed), account.part(part).load(Relaxed))
    }

    /// Records that a peer has refused access to its memory to an endpoint (see
    /// [`Account::throttle`](super::account::Account::throttle)). Does not sleep.
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

    /// Records that the peer at `from` was refused access to memory of the user. A connected
    /// endpoint of this host is such a peer, too. Does not sleep.
    pub(crate) fn refused_peer(&self, from: IpAddr) {
        let mut peers = self.account.0.topmost().refused_peers.lock();
        refusals::refused(&mut peers, from, now_ns());
    }

    /// Whether the peer at `from` was refused so often that its connections have to wait. Does not
    /// sleep.
    pub(crate) fn is_delayed_peer(&self, from: IpAddr) -> bool {
        let peers = self.account.0.topmost().refused_peers.lock();
        refusals::is_delayed(&peers, from, now_ns())
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

/// Bytes that are counted in a part of an account's limit, and in the share of a peer, until this
/// is dropped. Only process context may drop it, see [`AccountRef`].
pub(crate) struct PartAllowance {
    account: AccountRef,
    part: Part,
    bytes: u64,
    of_peer: Option<Arc<PeerUse>>,
}

impl PartAllowance {
    /// Bytes that were counted in the part, and in what the peer has.
    pub(super) fn new(
        account: &AccountRef,
        part: Part,
        bytes: u64,
        of_peer: Option<Arc<PeerUse>>,
    ) -> Self {
        Self {
            account: account.clone(),
            part,
            bytes,
            of_peer,
        }
    }
}

impl Drop for PartAllowance {
    fn drop(&mut self) {
        let counted = self.account.0.part(self.part);
        counted.fetch_sub(self.bytes, Relaxed);
        if let Some(of_peer) = &self.of_peer {
            of_peer.subtract(self.part, self.bytes);
        }
    }
}
