// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_PEP_*`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::limits;

use super::{
    file::OpenFile,
    parse::{
        own_sockaddr,
        private, //
    }, //
};
use crate::{
    provider::{
        fabric::Fabric,
        object::Ident,
        pep::{
            Pep,
            PepAttr, //
        }, //
    },
    shim::bindings::*, //
};

/// `KFABRIC_IOC_PEP_OPEN`.
pub(super) fn open(file: &OpenFile, arg: &mut kfabric_pep_open, ident: Ident) -> Result<Arc<Pep>> {
    let attr = PepAttr {
        addr: own_sockaddr(&arg.addr)?,
        backlog: arg.backlog,
    };
    let pep = Pep::open(&file.object::<Fabric>(arg.fabric)?, attr, ident)?;
    arg.backlog = pep.backlog();
    Ok(pep)
}

/// `KFABRIC_IOC_PEP_LISTEN`.
pub(super) fn listen(file: &OpenFile, arg: &kfabric_pep_listen) -> Result {
    file.object::<Pep>(arg.pep)?.listen()
}

/// `KFABRIC_IOC_PEP_REJECT`.
pub(super) fn reject(file: &OpenFile, arg: &kfabric_pep_reject) -> Result {
    let mut room = [0; limits::MAX_REJECT_DATA];
    let private = private(&mut room, arg.param, arg.param_len)?;
    file.object::<Pep>(arg.pep)?.reject(arg.connreq, private)
}
