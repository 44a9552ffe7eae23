// SPDX-License-Identifier: GPL-2.0

//! The names that most files of an endpoint use, in addition to those of the provider's prelude.

pub(in crate::provider::ep) use super::{
    bound::Bound,
    complete::{
        Outcome,
        Ticket, //
    },
    post::Poster,
    Endpoint, //
};
pub(in crate::provider::ep) use crate::{
    mem::MemRef,
    provider::{
        cq::Record,
        prelude::*, //
    }, //
};
pub(in crate::provider::ep) use kfi_core::{
    flags::OpFlags,
    op::OpType, //
};
