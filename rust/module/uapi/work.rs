// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_QUEUE_WORK`, `KFABRIC_IOC_CANCEL_WORK` and `KFABRIC_IOC_FLUSH_WORK`. The
//! provider has no deferred work yet.

use super::prelude::*;

pub(super) fn queue(file: &OpenFile, arg: &mut kfabric_queue_work) -> Result {
    file.object::<Domain>(arg.domain)?;
    Err(ENOSYS)
}

pub(super) fn cancel(_file: &OpenFile, _arg: &kfabric_cancel_work) -> Result {
    Err(ENOSYS)
}

pub(super) fn flush(file: &OpenFile, arg: &mut kfabric_flush_work) -> Result {
    file.object::<Domain>(arg.domain)?;
    Err(ENOSYS)
}
