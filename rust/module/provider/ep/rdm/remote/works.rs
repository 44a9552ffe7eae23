// SPDX-License-Identifier: GPL-2.0

//! The work that is with a QP, in the order in which it was handed over.
//!
//! Each piece is known to the QP by a number, which counts up. A QP ends its work requests in that
//! order, and holds at most [`DEPTH`], so they stand in a ring.

use kernel::prelude::*;

use kfi_core::rdm::{
    session::Work,
    times::DEPTH, //
};

/// A piece of work that is with a QP.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) work: Work,
    /// It is a message that has been made void since.
    pub(super) void: bool,
}

/// See the module's story.
pub(super) struct Works {
    ring: KVec<Option<Posted>>,
    next: u64,
}

impl Works {
    /// Bytes that one takes.
    pub(super) const BYTES: usize = DEPTH as usize * size_of::<Option<Posted>>();

    /// Room for all that a QP holds. `ENOMEM`. Sleeps.
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

    /// Work that is about to be handed over; gives its number.
    pub(super) fn put(&mut self, work: Work) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if let Some(place) = self.place(number) {
            *place = Some(Posted { work, void: false });
        }
        number
    }

    /// Takes work out that has ended.
    pub(super) fn take(&mut self, number: u64) -> Option<Posted> {
        self.place(number)?.take()
    }

    /// Work of this number, to be changed.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Posted> {
        self.place(number)?.as_mut()
    }
}
