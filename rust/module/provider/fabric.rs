// SPDX-License-Identifier: GPL-2.0

//! Fabric: what can be reached from one network namespace.
//!
//! Domains, event queues and wait sets are made from it. It holds no resource of its own beyond
//! the identity of its namespace.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::object::{
    Ident,
    Object,
    Uses, //
};
use crate::net::NetNsId;

/// See the module's story.
pub(crate) struct Fabric {
    netns: NetNsId,
    uses: Uses,
}

impl Fabric {
    /// The name that all fabrics of this provider have.
    pub(crate) const NAME: &'static str = "kfabric";

    /// Opens the fabric of `netns`. `ENOMEM`. Sleeps.
    pub(crate) fn open(netns: NetNsId, _ident: Ident) -> Result<Arc<Self>> {
        let uses = Uses::new();
        Ok(Arc::new(Self { netns, uses }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Its network namespace.
    pub(crate) fn netns(&self) -> NetNsId {
        self.netns
    }
}

impl Object for Fabric {
    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn teardown(&self) {}
}
