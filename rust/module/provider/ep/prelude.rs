// SPDX-License-Identifier: GPL-2.0

//! The names that most files of an endpoint use, and those of the provider's prelude.

pub(in crate::provider::ep) use super::{
    bound::Bound,
    complete::Outcome,
    post::Poster,
    receive::Message,
    ticket::Ticket,
    Endpoint, //
};
pub(in crate::provider::ep) use crate::{
    mem::{
        MemRef,
        Source, //
    },
    net::LinkState,
    provider::{
        cq::Record,
        prelude::*, //
    }, //
};
pub(in crate::provider::ep) use kfi_core::{
    flags::{
        Caps,
        OpFlags, //
    },
    op::{
        OpType,
        Side, //
    },
    prov_errno, //
};
