// SPDX-License-Identifier: GPL-2.0

//! The names that most files of this front end use.

pub(super) use super::{
    file::OpenFile,
    parse::{
        must_be_zero,
        put_sockaddr,
        user_slice, //
    }, //
};
pub(super) use crate::{
    provider::{
        domain::Domain,
        object::Ident, //
    },
    shim::{
        bindings::*,
        errno::to_error,
        user::{
            read_struct,
            write_struct, //
        }, //
    }, //
};
pub(super) use kernel::{
    prelude::*,
    sync::Arc, //
};
pub(super) use kfi_core::limits;
