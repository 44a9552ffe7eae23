// SPDX-License-Identifier: GPL-2.0

//! The completion counters that are attached to an endpoint.
//!
//! Counters are attached before the endpoint is enabled, and released when it closes. The set does
//! not change in between, so operations read it without a lock. Each attachment is a use of the
//! counter, which therefore cannot be destroyed.

use kfi_core::{
    comp_cntr::AttachedCounters,
    flags::CompCntrOps, //
};

use super::CompCntr;
use crate::{
    mem::Budget,
    provider::prelude::*, //
};

/// The completion counters of an endpoint.
pub(crate) struct Attached {
    counters: AttachedCounters<UseRef<CompCntr>>,
    _memory: Allowance,
}

impl Attached {
    /// An empty set, in memory of its own, because most endpoints have none. The memory is charged
    /// to `budget`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(budget: &Budget) -> Result<KBox<Self>> {
        let attached = Self {
            counters: AttachedCounters::new(),
            _memory: budget.take_for::<Self>(0)?,
        };
        Ok(KBox::new(attached, GFP_KERNEL_ACCOUNT)?)
    }

    /// Attaches a counter for `ops`, of which the QP can count `supported`.
    ///
    /// Nothing is attached if it fails: with `EINVAL` for no operation; `EBUSY` if an operation has
    /// a counter; `EOPNOTSUPP` if an operation cannot be counted; `EBADF` if the counter is
    /// destroyed.
    pub(crate) fn attach(
        &mut self,
        cntr: &Arc<CompCntr>,
        ops: CompCntrOps,
        supported: CompCntrOps,
    ) -> Result {
        let cntr = UseRef::new(cntr.clone())?;
        self.counters.attach(ops, supported, cntr).map_err(to_error)
    }

    /// Whether an operation in `ops` has a counter.
    pub(crate) fn counts(&self, ops: CompCntrOps) -> bool {
        self.counters.ops().intersects(ops)
    }

    /// Counts an operation with `len` bytes that has ended, if `op`, one operation or none, has a
    /// counter. Does not sleep.
    #[cold]
    pub(crate) fn count(&self, op: CompCntrOps, success: bool, len: u64) {
        if let Some(cntr) = self.counters.get(op) {
            cntr.count(success, len);
        }
    }

    /// Releases all counters. Idempotent.
    pub(crate) fn release(&self) {
        self.counters.iter().for_each(UseRef::release);
    }
}
