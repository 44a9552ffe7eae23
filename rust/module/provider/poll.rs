// SPDX-License-Identifier: GPL-2.0

//! Poll set: reports which of several CQs and counters have something to read, as specified by
//! fi_poll(3).
//!
//! A task queries a poll set and does not sleep on it. A CQ has something to read while an entry or
//! an error is queued. A counter has something to read if a value was written since the last poll
//! that reported it, or since it was added. The members belong to the domain of the set, and the
//! set holds them in use.
//!
//! If a poll has no room for all members, the next poll continues after the last one that was
//! reported. So busy members do not hide others.
//!
//! # Locks
//!
//! `PollSet::members` is a mutex. It is held while contexts are copied out; the copy does not fault
//! pages in. The spin lock of a member is taken under it.

use kfi_core::cntr::Seen;

use super::{
    cntr::Cntr,
    cq::Cq,
    object,
    object_list::StatsSource,
    prelude::*,
    wait::Readable, //
};
use crate::shim::{
    sched::heed_signals,
    user::PagefaultDisabled, //
};

/// The most members of a poll set.
pub(crate) const MAX_MEMBERS: usize = 1024;

enum Member {
    Cq(UseRef<Cq>),
    /// With the values that were reported last.
    Cntr(UseRef<Cntr>, Seen),
}

impl Member {
    fn is_cq(&self, cq: &Arc<Cq>) -> bool {
        matches!(self, Self::Cq(member) if Arc::ptr_eq(member.arc(), cq))
    }

    fn is_cntr(&self, cntr: &Arc<Cntr>) -> bool {
        matches!(self, Self::Cntr(member, _) if Arc::ptr_eq(member.arc(), cntr))
    }

    /// Reports the member's context to `sink` if it has something to read. Returns whether it has.
    fn report(&mut self, sink: &mut impl FnMut(u64) -> Result) -> Result<bool> {
        match self {
            Self::Cq(cq) => {
                if !cq.is_ready() {
                    return Ok(false);
                }
                sink(cq.ident().context)?;
            }
            Self::Cntr(cntr, seen) => {
                let Some(now) = cntr.changed(seen) else {
                    return Ok(false);
                };
                sink(cntr.ident().context)?;
                *seen = now;
            }
        }
        Ok(true)
    }
}

struct Members {
    list: KVVec<Member>,
    /// The member at which the next poll begins.
    next: usize,
}

/// The progress of a poll.
#[derive(Default)]
struct PollPass {
    /// The number of members that were checked, and of those that had something to read.
    visited: usize,
    reported: usize,
    /// The member at which it began, once it has.
    start: Option<usize>,
}

impl Members {
    /// Continues `pass`: gives `sink` the contexts of members that have something to read, until
    /// `count` have been reported or all checked. Fails with the error of `sink`.
    fn poll(
        &mut self,
        pass: &mut PollPass,
        count: usize,
        sink: &mut impl FnMut(usize, u64) -> Result,
    ) -> Result {
        // Members may have been added and removed since it began.
        let len = self.list.len();
        let next = if self.next < len { self.next } else { 0 };
        let start = *pass.start.get_or_insert(next);
        while pass.reported < count && pass.visited < len {
            let index = start.wrapping_add(pass.visited);
            let index = if index < len {
                index
            } else {
                index.wrapping_sub(len)
            };
            let Some(member) = self.list.get_mut(index) else {
                break;
            };
            let number = pass.reported;
            if member.report(&mut |context| sink(number, context))? {
                pass.reported = pass.reported.saturating_add(1);
                self.next = index.wrapping_add(1);
            }
            pass.visited = pass.visited.saturating_add(1);
        }
        Ok(())
    }
}

/// A poll set of a domain.
#[pin_data]
pub(crate) struct PollSet {
    domain: UseRef<Domain>,
    uses: UseCount,
    #[pin]
    members: Mutex<Members>,
    _memory: Allowance,
}

impl PollSet {
    /// Opens a poll set of `domain`. Fails with `EBADF` if the domain is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, ident: Ident) -> Result<Arc<Self>> {
        let domain = UseRef::new(domain.clone())?;
        Arc::pin_init(
            try_pin_init!(Self {
                domain,
                uses: UseCount::new(),
                members <- new_mutex!(
                    Members {
                        list: KVVec::new(),
                        next: 0,
                    },
                    "PollSet::members"
                ),
                _memory: ident.budget.take_for::<Self>(MAX_MEMBERS * size_of::<Member>())?,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds a CQ. Fails with `EINVAL` if it belongs to another domain; `EEXIST` if it is a member;
    /// `ENOSPC` if the set has [`MAX_MEMBERS`]; `EBADF` if the CQ or the set is closed; `ENOMEM`.
    /// Sleeps.
    pub(crate) fn add_cq(&self, cq: &Arc<Cq>) -> Result {
        self.check_domain(cq.domain())?;
        self.add(
            |member| member.is_cq(cq),
            || Ok(Member::Cq(UseRef::new(cq.clone())?)),
        )
    }

    /// Adds a counter. Otherwise as [`add_cq`](Self::add_cq).
    pub(crate) fn add_cntr(&self, cntr: &Arc<Cntr>) -> Result {
        self.check_domain(cntr.domain())?;
        self.add(
            |member| member.is_cntr(cntr),
            || Ok(Member::Cntr(UseRef::new(cntr.clone())?, cntr.seen())),
        )
    }

    /// Removes a CQ. Fails with `EINVAL` if it belongs to another domain, `ENOENT` if it is not a
    /// member. Sleeps.
    pub(crate) fn remove_cq(&self, cq: &Arc<Cq>) -> Result {
        self.check_domain(cq.domain())?;
        self.remove(|member| member.is_cq(cq))
    }

    /// Removes a counter. Otherwise as [`remove_cq`](Self::remove_cq).
    pub(crate) fn remove_cntr(&self, cntr: &Arc<Cntr>) -> Result {
        self.check_domain(cntr.domain())?;
        self.remove(|member| member.is_cntr(cntr))
    }

    fn check_domain(&self, domain: &Arc<Domain>) -> Result {
        if Arc::ptr_eq(domain, self.domain.arc()) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    fn add(
        &self,
        is_it: impl Fn(&Member) -> bool,
        make: impl FnOnce() -> Result<Member>,
    ) -> Result {
        let mut members = self.members.lock();
        // Teardown takes this mutex after the set was marked closed.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if members.list.iter().any(is_it) {
            return Err(EEXIST);
        }
        if members.list.len() >= MAX_MEMBERS {
            return Err(ENOSPC);
        }
        members.list.push(make()?, GFP_KERNEL_ACCOUNT)?;
        Ok(())
    }

    fn remove(&self, is_it: impl Fn(&Member) -> bool) -> Result {
        let mut members = self.members.lock();
        let index = members.list.iter().position(is_it).ok_or(ENOENT)?;
        members.list.remove(index).map_err(|_| ENOENT)?;
        Ok(())
    }

    /// Closes the set if it has no members, as fi_poll(3) specifies. Fails with `EBUSY` if it has;
    /// otherwise as [`close`](object::close). Sleeps.
    pub(crate) fn close_empty(&self) -> Result {
        if !self.members.lock().list.is_empty() {
            return Err(EBUSY);
        }
        object::close(self)
    }

    /// Gives `sink` the contexts of at most `count` members that have something to read, each with
    /// its number in the order of this call. Returns how many there were. Fails with `EBADF` if the
    /// set is closed, the error of `sink` if it took none. Sleeps. The call is a use of the set.
    ///
    /// `sink` does not fault pages of the program in: it returns `EFAULT`, and then `fault_in`
    /// faults them in while no lock is held.
    pub(crate) fn poll(
        &self,
        count: usize,
        mut sink: impl FnMut(usize, u64) -> Result,
        mut fault_in: impl FnMut(usize) -> Result,
    ) -> Result<usize> {
        let _using = UseGuard::new(self)?;
        let mut pass = PollPass::default();
        loop {
            let mut result = {
                let mut members = self.members.lock();
                let _no_faults = PagefaultDisabled::new();
                members.poll(&mut pass, count, &mut sink)
            };
            if result == Err(EFAULT) {
                result = heed_signals().and_then(|()| fault_in(pass.reported));
                if result.is_ok() {
                    continue;
                }
            }
            return match result {
                Err(error) if pass.reported == 0 => Err(error),
                _ => Ok(pass.reported),
            };
        }
    }
}

impl Object for PollSet {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        let members = {
            let mut members = self.members.lock();
            core::mem::replace(&mut members.list, KVVec::new())
        };
        drop(members);
        self.domain.release();
    }
}
