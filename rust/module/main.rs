// SPDX-License-Identifier: GPL-2.0

//! kfabric.ko: the kfabric API and a software RoCEv2 device under it.
//!
//! The floors of the module, from the lowest: [`shim`], [`mem`].  Each knows
//! only those below it.  Documentation/design tells what stands where.

use kernel::prelude::*;

mod mem;
mod shim;

module! {
    type: Kfabric,
    name: "kfabric",
    authors: ["The kfabric authors"],
    description: "kfabric: fabric objects over a software RoCEv2 device",
    license: "GPL",
}

/// The loaded module.
struct Kfabric;

impl kernel::Module for Kfabric {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
