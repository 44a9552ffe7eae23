// SPDX-License-Identifier: GPL-2.0

//! The registry: the providers of this host, and what the module's own provider offers.
//!
//! | file | topic |
//! |---|---|
//! | [`offers`] | getinfo of the module's own provider, for programs and kernel modules |
//! | [`providers`] | the list of providers, in which a kernel module finds one by its name |
//!
//! Programs reach the module's own provider only: `/dev/kfabric` has its objects. Kernel modules
//! reach all providers, because each object brings its own operations.

mod offers;
pub(crate) mod providers;

pub(crate) use self::offers::{
    getinfo,
    kind_of,
    NAME,
    VERSION, //
};
