// SPDX-License-Identifier: GPL-2.0

//! The call for memory regions: `KFABRIC_IOC_MR_REG`.

use kfi_core::flags::{
    Access,
    KFI_RMA_EVENT, //
};

use super::{
    parse::user_ranges,
    prelude::*, //
};
use crate::{
    mem::{
        MemRef,
        Pinned, //
    },
    provider::mr::{
        self,
        Mr, //
    }, //
};

/// `KFABRIC_IOC_MR_REG`.
pub(super) fn reg(file: &OpenFile, arg: &mut kfabric_mr_reg, ident: Ident) -> Result<Arc<Mr>> {
    let access = Access::from_bits(arg.access).map_err(to_error)?;
    if access.is_empty() || arg.offset != 0 || arg.flags & !KFI_RMA_EVENT != 0 || arg.iov_count == 0
    {
        return Err(EINVAL);
    }
    let domain = file.object::<Domain>(arg.domain)?;
    let (ranges, len) = user_ranges(arg.iov, arg.iov_count)?;
    if len == 0 || len > limits::MAX_MSG_SIZE {
        return Err(EINVAL);
    }
    let pinned = Pinned::new(&ranges, mr::pin_access(access))?;
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
