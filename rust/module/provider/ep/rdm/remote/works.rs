// SPDX-License-Identifier: GPL-2.0

//! The work that a QP has, in the order in which it was queued.
//!
//! The number of a piece of work, which counts up, is the ID of its work request. A QP completes
//! its work requests in this order and holds at most [`DEPTH`], so the pieces are in a ring.

use kernel::prelude::*;

use kfi_core::rdm::{
    session::Work,
    times::DEPTH, //
};

/// A piece of work that was queued to a QP.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) work: Work,
    /// A message that has been marked as void since.
    pub(super) void: bool,
}

/// The work of a QP.
pub(super) struct PostedWork {
    ring: KVec<Option<Posted>>,
    next: u64,
}

impl PostedWork {
    /// Bytes of memory of the ring.
    pub(super) const BYTES: usize = DEPTH as usize * size_of::<Option<Posted>>();

    /// Makes room for all work requests that a QP holds. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            ring: KVec::from_elem(None, DEPTH as usize, GFP_KERNEL_ACCOUNT)?,
            next: 0,
        })
    }

    fn place(&mut self, number: u64) -> Option<&mut Option<Posted>> {
        let index = number & u64::from(DEPTH).wrapping_sub(1);
        self.ring.get_mut(index as usize)
    }

    /// Adds work that is about to be queued. Returns its number.
    pub(super) fn put(&mut self, work: Work) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if let Some(place) = self.place(number) {
            *place = Some(Posted { work, void: false });
        }
        number
    }

    /// Removes work that has completed.
    pub(super) fn take(&mut self, number: u64) -> Option<Posted> {
        self.place(number)?.take()
    }

    /// The work with this number, to be changed.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Posted> {
        self.place(number)?.as_mut()
    }
}
