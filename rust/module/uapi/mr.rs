// SPDX-License-Identifier: GPL-2.0

//! The call `KFABRIC_IOC_MR_REG`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    flags::{
        Access,
        KFI_RMA_EVENT, //
    },
    limits, //
};

use super::{
    file::OpenFile,
    parse::user_ranges, //
};
use crate::{
    mem::{
        self,
        MemRef,
        Pinned, //
    },
    provider::{
        domain::Domain,
        mr::Mr,
        object::Ident, //
    },
    shim::{
        bindings::kfabric_mr_reg,
        errno::to_error, //
    }, //
};

/// `KFABRIC_IOC_MR_REG`.
pub(super) fn reg(file: &OpenFile, arg: &mut kfabric_mr_reg, ident: Ident) -> Result<Arc<Mr>> {
    let access = Access::from_bits(arg.access).map_err(to_error)?;
    if access.is_empty() || arg.offset != 0 || arg.flags & !KFI_RMA_EVENT != 0 {
        return Err(EINVAL);
    }
    if arg.iov_count == 0 {
        return Err(EINVAL);
    }
    let domain = file.object::<Domain>(arg.domain)?;
    let (ranges, len) = user_ranges(arg.iov, arg.iov_count)?;
    if len == 0 || len > limits::MAX_MSG_SIZE {
        return Err(EINVAL);
    }
    let pinned = Pinned::new(&ranges, pin_access(access))?;
    let mr = Mr::reg(
        &domain,
        MemRef::pinned(pinned),
        ranges,
        access,
        arg.requested_key,
        ident,
    )?;
    arg.key = mr.key();
    arg.iova = mr.iova();
    Ok(mr)
}

/// The access for which memory is pinned when an operation or a peer gets `access` to it.
pub(super) fn pin_access(access: Access) -> mem::Access {
    if access.writes_memory() {
        mem::Access::Write
    } else {
        mem::Access::Read
    }
}
