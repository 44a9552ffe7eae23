// SPDX-License-Identifier: GPL-2.0

//! The names that most files of this front end use.

pub(super) use super::{
    file::OpenFile,
    parse::{
        user_slice,
        zero, //
    }, //
};
pub(super) use crate::{
    provider::{
        domain::Domain,
        object::Ident, //
    },
    shim::errno::to_error, //
};
pub(super) use kernel::{
    prelude::*,
    sync::Arc, //
};
pub(super) use kfi_core::limits;
