// SPDX-License-Identifier: GPL-2.0

//! Fabric: the links and peers that can be reached from one network namespace.
//!
//! Domains, event queues and wait sets are made from a fabric. It has no resource besides the
//! identity of its namespace.

use super::prelude::*;
use crate::net::NetNsId;

/// The fabric of a network namespace.
pub(crate) struct Fabric {
    netns: NetNsId,
    uses: UseCount,
    _memory: Allowance,
}

impl Fabric {
    /// The name of all fabrics of this provider.
    pub(crate) const NAME: &'static str = "kfabric";

    /// Opens the fabric of `netns`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn open(netns: NetNsId, ident: Ident) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                netns,
                uses: UseCount::new(),
                _memory: ident.budget.take_for::<Self>(0)?,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    pub(crate) fn netns(&self) -> NetNsId {
        self.netns
    }
}

impl Object for Fabric {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {}
}
