// SPDX-License-Identifier: GPL-2.0

//! Atomics: fi_atomic(3).

use kernel::prelude::*;

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype,
        EpType, //
    },
    op::OpType, //
};

use super::{
    code,
    raw::{
        kfi_atomic_attr,
        kfi_datatype,
        kfi_op,
        kfid_domain, //
    }, //
};
use crate::{
    provider::ep::atomic,
    shim::errno::to_error, //
};

/// The operation in the form that has the fewest operands and results. kfi_query_atomic() has no
/// flags that tell the form. Fails with `EOPNOTSUPP` if it is not defined for the type.
fn plain(op: AtomicOp, datatype: Datatype) -> Result<Function> {
    let form = |kind| Function::new(kind, op, datatype);
    form(OpType::Atomic)
        .or_else(|_| form(OpType::FetchAtomic))
        .or_else(|_| form(OpType::CompareAtomic))
        .map_err(to_error)
}

/// kfi_query_atomic(): what endpoints for reliable datagrams have. Any context.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn query(
    _domain: *mut kfid_domain,
    datatype: kfi_datatype,
    op: kfi_op,
    attr: *mut kfi_atomic_attr,
    flags: u64,
) -> c_int {
    let ask = || {
        if flags != 0 || attr.is_null() {
            return Err(EINVAL);
        }
        let op = AtomicOp::try_from(op).map_err(to_error)?;
        let datatype = Datatype::try_from(datatype).map_err(to_error)?;
        let count = atomic::max_count(EpType::Rdm, &plain(op, datatype)?)?;
        let size = datatype.size();
        // SAFETY: By the interface, `attr` can be written.
        unsafe { *attr = kfi_atomic_attr { count, size } };
        Ok(())
    };
    code(ask())
}
