// SPDX-License-Identifier: GPL-2.0

//! The list of providers.
//!
//! ```text
//!             register                register a newer version of the name
//!   (nowhere) --------> available ------------------------------------> replaced
//!                           |                                               |
//!                           '---------------- deregister <------------------'
//! ```
//!
//! Providers are asked in the order of their registration. A replaced provider is not found any
//! more, and is deregistered by its own module.
//!
//! The list knows of a provider its name, its version and its identity. The front end `capi` keeps
//! the list under a mutex, which it holds for a look-up only. It makes the calls of a provider with
//! a reference that [`Providers::next`] or [`Providers::find`] has returned, and with no lock. So
//! the provider may register others, or ask for entries itself. The reference keeps a provider that
//! is deregistered meanwhile: [`Providers::deregister`] returns the list's own, and the front end
//! waits for the others.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/providers.rs"]
mod kunit;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::info::Name;

struct Entry<P> {
    /// Ascends in the order of registration.
    number: u64,
    name: Name,
    version: u32,
    /// A newer version was registered.
    replaced: bool,
    provider: Arc<P>,
}

/// The registered providers. `P` is what a front end needs to call one.
pub(crate) struct Providers<P> {
    entries: KVec<Entry<P>>,
    last_number: u64,
}

impl<P> Providers<P> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            entries: KVec::new(),
            last_number: 0,
        }
    }

    /// Whether a provider is in the list.
    pub(crate) fn contains(&self, is_it: impl Fn(&P) -> bool) -> bool {
        self.entries.iter().any(|entry| is_it(&entry.provider))
    }

    /// Adds a provider that is not in the list. Fails with `EINVAL` without a name; `EEXIST` if a
    /// provider of this name is available and not older, or cannot be replaced; `ENOMEM`. Sleeps.
    ///
    /// `may_replace` tells of a provider in the list whether another one may take its place.
    pub(crate) fn register(
        &mut self,
        name: Name,
        version: u32,
        provider: Arc<P>,
        may_replace: impl Fn(&P) -> bool,
    ) -> Result {
        if name.is_empty() {
            return Err(EINVAL);
        }
        let others = |entry: &&mut Entry<P>| !entry.replaced && entry.name == name;
        self.entries.reserve(1, GFP_KERNEL)?;
        let before = self.entries.iter_mut().find(others);
        if let Some(before) = before {
            if before.version >= version || !may_replace(&before.provider) {
                return Err(EEXIST);
            }
            before.replaced = true;
        }
        let number = self.last_number.wrapping_add(1);
        self.last_number = number;
        // There is room, so this does not fail.
        self.entries.push(
            Entry {
                number,
                name,
                version,
                replaced: false,
                provider,
            },
            GFP_KERNEL,
        )?;
        Ok(())
    }

    /// Removes a provider, and returns the list's reference to it. Fails with `EINVAL` if it is not
    /// in the list.
    pub(crate) fn deregister(&mut self, is_it: impl Fn(&P) -> bool) -> Result<Arc<P>> {
        let found = self.entries.iter().position(|entry| is_it(&entry.provider));
        let index = found.ok_or(EINVAL)?;
        let entry = self.entries.remove(index).map_err(|_| EINVAL)?;
        Ok(entry.provider)
    }

    /// The available provider after `number` (0 to begin), and its number, name and version. With
    /// `name`, only one of this name.
    pub(crate) fn next(
        &self,
        number: u64,
        name: Option<&Name>,
    ) -> Option<(u64, Name, u32, Arc<P>)> {
        self.entries
            .iter()
            .filter(|entry| !entry.replaced && entry.number > number)
            .find(|entry| name.is_none_or(|name| entry.name == *name))
            .map(|entry| {
                (
                    entry.number,
                    entry.name,
                    entry.version,
                    entry.provider.clone(),
                )
            })
    }

    /// The available provider with this name.
    pub(crate) fn find(&self, name: &Name) -> Option<Arc<P>> {
        self.next(0, Some(name)).map(|(.., provider)| provider)
    }
}
