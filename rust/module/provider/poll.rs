// SPDX-License-Identifier: GPL-2.0

//! Poll set: which of many CQs and counters have something to read, as fi_poll(3) has it.
//!
//! A poll set is asked; nobody waits on it. A CQ has something while an entry or an error is
//! queued, a counter if a value was written since the poll that told of it last (or since it was
//! added). Members are of the set's domain, and in use by it.
//!
//! A poll that has no room for all goes on behind the last one it told when it is called again, so
//! that busy members do not hide others.
//!
//! # Locks
//!
//! `PollSet::members` is a mutex, held while contexts are copied out; a member's spin lock is
//! taken under it.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use kfi_core::cntr::Seen;

use super::{
    cntr::Cntr,
    cq::Cq,
    domain::Domain,
    object::{
        Ident,
        Object,
        Used,
        Uses, //
    },
    wait::fd::Readable, //
};
use crate::mem::Allowance;

/// Members that a poll set can have.
pub(crate) const MAX_MEMBERS: usize = 1024;

enum Member {
    Cq(Used<Cq>),
    /// With the values that were told last.
    Cntr(Used<Cntr>, Seen),
}

impl Member {
    fn is_cq(&self, cq: &Arc<Cq>) -> bool {
        matches!(self, Self::Cq(member) if Arc::ptr_eq(member.arc(), cq))
    }

    fn is_cntr(&self, cntr: &Arc<Cntr>) -> bool {
        matches!(self, Self::Cntr(member, _) if Arc::ptr_eq(member.arc(), cntr))
    }

    /// If it has something to read, gives `sink` its context. Whether it had.
    fn tell(&mut self, sink: &mut impl FnMut(u64) -> Result) -> Result<bool> {
        match self {
            Self::Cq(cq) => {
                if !cq.is_ready() {
                    return Ok(false);
                }
                sink(cq.ident().context)?;
            }
            Self::Cntr(cntr, told) => {
                let Some(now) = cntr.changed(told) else {
                    return Ok(false);
                };
                sink(cntr.ident().context)?;
                *told = now;
            }
        }
        Ok(true)
    }
}

struct Members {
    list: KVVec<Member>,
    /// Where the next poll begins.
    next: usize,
}

/// See the module's story.
#[pin_data]
pub(crate) struct PollSet {
    domain: Used<Domain>,
    uses: Uses,
    #[pin]
    members: Mutex<Members>,
    /// What it takes of its owner's budget.
    _memory: Allowance,
}

impl PollSet {
    /// Opens a poll set of `domain`. `EBADF` the domain is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, ident: Ident) -> Result<Arc<Self>> {
        let domain = Used::new(domain.clone())?;
        Arc::pin_init(
            try_pin_init!(Self {
                domain,
                uses: Uses::new(),
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

    /// Adds a CQ. `EINVAL` another domain; `EEXIST` it is there; `ENOSPC` [`MAX_MEMBERS`]; `EBADF`
    /// it, or the set, is closed; `ENOMEM`. Sleeps.
    pub(crate) fn add_cq(&self, cq: &Arc<Cq>) -> Result {
        self.check_domain(cq.domain())?;
        self.add(
            |member| member.is_cq(cq),
            || Ok(Member::Cq(Used::new(cq.clone())?)),
        )
    }

    /// Adds a counter; else as [`add_cq`](Self::add_cq).
    pub(crate) fn add_cntr(&self, cntr: &Arc<Cntr>) -> Result {
        self.check_domain(cntr.domain())?;
        self.add(
            |member| member.is_cntr(cntr),
            || Ok(Member::Cntr(Used::new(cntr.clone())?, cntr.seen())),
        )
    }

    /// Removes a CQ. `EINVAL` another domain; `ENOENT` it is not there. Sleeps.
    pub(crate) fn remove_cq(&self, cq: &Arc<Cq>) -> Result {
        self.check_domain(cq.domain())?;
        self.remove(|member| member.is_cq(cq))
    }

    /// Removes a counter; else as [`remove_cq`](Self::remove_cq).
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
        // Under the mutex, which teardown takes after the set was marked closed.
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
        let place = members.list.iter().position(is_it).ok_or(ENOENT)?;
        members.list.remove(place).map_err(|_| ENOENT)?;
        Ok(())
    }

    /// Gives `sink` the contexts of at most `count` members that have something to read. How many
    /// they were; the error of `sink` if it took none. Sleeps.
    pub(crate) fn poll(&self, count: usize, mut sink: impl FnMut(u64) -> Result) -> Result<usize> {
        let mut members = self.members.lock();
        let len = members.list.len();
        let start = if members.next < len { members.next } else { 0 };
        let mut told = 0usize;
        for place in Iterator::chain(start..len, 0..start) {
            if told >= count {
                break;
            }
            let Some(member) = members.list.get_mut(place) else {
                break;
            };
            match member.tell(&mut sink) {
                Ok(false) => {}
                Ok(true) => {
                    told = told.saturating_add(1);
                    members.next = place.wrapping_add(1);
                }
                Err(error) if told == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(told)
    }
}

impl Object for PollSet {
    fn uses(&self) -> &Uses {
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
