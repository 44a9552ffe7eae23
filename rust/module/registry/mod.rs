// SPDX-License-Identifier: GPL-2.0

//! The registry: the providers and getinfo.
//!
//! [`getinfo`] asks the providers in order; each makes the entries that fit the caller's request
//! and hints. There is one provider, [`own`], the module's own. Providers of other modules, which
//! will register through the C interface, will be asked after it through the same trait.
//!
//! Process context. No lock is held while a provider is asked or an entry is passed on.

mod own;

use kernel::prelude::*;

use kfi_core::info::{
    Info,
    Request, //
};

use crate::net::NetNsId;

/// `KFI_VERSION(1, 0)`: the version of the module and of its provider.
pub(crate) const VERSION: u32 = 1 << 16;

/// A provider of endpoints.
trait Provider: Sync {
    /// Passes each entry that fits to `found`, best first; stops with the error that `found`
    /// returns. Sleeps.
    fn getinfo(
        &self,
        netns: NetNsId,
        request: &Request,
        hints: &Info,
        found: &mut dyn FnMut(&Info) -> Result,
    ) -> Result;
}

/// The providers, in the order in which they are asked.
static PROVIDERS: [&dyn Provider; 1] = [&own::BuiltinProvider];

/// Passes every entry in `netns` that fits `request` and `hints` to `found`, as kfi_getinfo().
///
/// Fails with `ENODATA` if nothing fits, or with the error that `found` returns. Sleeps.
pub(crate) fn getinfo(
    netns: NetNsId,
    request: &Request,
    hints: &Info,
    mut found: impl FnMut(&Info) -> Result,
) -> Result {
    let mut any = false;
    for provider in PROVIDERS {
        provider.getinfo(netns, request, hints, &mut |info| {
            any = true;
            found(info)
        })?;
    }
    if any {
        Ok(())
    } else {
        Err(ENODATA)
    }
}
