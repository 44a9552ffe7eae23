// SPDX-License-Identifier: GPL-2.0
//! Poll sets, which find the members that have something to read among many CQs
//! and counters.

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    cntr::Cntr,
    cq::Cq,
    domain::Domain,
    error::Result,
    object::{Hold, Inner, object},
};

mod sealed {
    /// The parts of a member that a poll set needs.
    pub trait Member {
        fn member(&self) -> (u32, crate::object::Hold);
    }
}

/// A possible member of a [`PollSet`]: a CQ or a counter.
pub trait Pollable: sealed::Member {}

impl sealed::Member for Cq {
    fn member(&self) -> (u32, Hold) {
        (self.handle(), self.as_hold())
    }
}

impl Pollable for Cq {}

impl sealed::Member for Cntr {
    fn member(&self) -> (u32, Hold) {
        (self.handle(), self.as_hold())
    }
}

impl Pollable for Cntr {}

/// A poll set.  Its members stay open while they are in it.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// let cntr = domain.cntr().context(7).open()?;
/// let set = domain.poll_set()?;
/// set.add(&cntr)?;
/// cntr.add(1)?;
/// assert_eq!(set.poll(16)?, [7]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PollSet {
    inner: Arc<Inner>,
}

object!(PollSet);

impl PollSet {
    pub(crate) fn open(domain: &Domain) -> Result<Self> {
        let mut arg = abi::kfabric_poll_open {
            domain: domain.handle(),
            ..Call::sized()
        };
        let device = domain.device();
        calls::plain(device, &mut arg)?;
        Ok(Self {
            inner: Inner::new(device, arg.handle, vec![domain.as_hold()]),
        })
    }

    /// Adds a member.
    ///
    /// # Errors
    ///
    /// `EINVAL`: of another domain; `EEXIST`: it is there; `ENOSPC`: too many.
    pub fn add(&self, member: &impl Pollable) -> Result<()> {
        let (handle, hold) = member.member();
        self.change(handle, 0)?;
        self.inner.node.hold(hold);
        Ok(())
    }

    /// Removes a member.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not there.
    pub fn remove(&self, member: &impl Pollable) -> Result<()> {
        let (handle, hold) = member.member();
        self.change(handle, 1)?;
        self.inner.node.release(&hold);
        Ok(())
    }

    fn change(&self, handle: u32, remove: u32) -> Result<()> {
        let mut arg = abi::kfabric_poll_change {
            poll: self.handle(),
            handle,
            remove,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// The contexts of members that have something to read, `max` at most: a
    /// CQ, while an entry or error entry is queued; a counter, with values
    /// other than at the last poll.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `max` is 0.
    pub fn poll(&self, max: usize) -> Result<Vec<u64>> {
        let mut contexts = vec![0; max];
        let count = calls::poll(self.device(), self.handle(), &mut contexts)?;
        contexts.truncate(count);
        Ok(contexts)
    }
}
