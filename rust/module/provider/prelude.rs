// SPDX-License-Identifier: GPL-2.0

//! The names that most files of the provider use. `use crate::provider::prelude::*` imports them.

pub(in crate::provider) use super::object::{
    Ident,
    Object,
    UseCount,
    UseGuard,
    UseRef, //
};
pub(in crate::provider) use crate::{
    mem::Allowance,
    shim::errno::to_error, //
};
pub(in crate::provider) use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
pub(in crate::provider) use kfi_core::{
    addr::SockAddr,
    errno::Errno, //
};
