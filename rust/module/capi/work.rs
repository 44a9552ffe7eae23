// SPDX-License-Identifier: GPL-2.0

//! Deferred work: fi_trigger(3). All commands need process context and may sleep.
//!
//! The number by which the provider knows a work is stored in the context of its `struct
//! kfi_deferred_work`, which the consumer leaves as it is until the work has completed or is
//! cancelled.

use core::ptr;

use kernel::prelude::*;

use kfi_core::op::OpType;

use super::{
    atomic::{
        AtomicArgs,
        Values, //
    },
    domain::OpenDomain,
    msg,
    object::of_class,
    raw::{
        self,
        kfi_deferred_work,
        kfid,
        kfid_cntr,
        kfid_ep, //
    },
    rma,
    shared::SharedRx,
    tagged, //
};
use crate::{
    provider::work::Change,
    shim::errno::to_error, //
};

use super::cntr::OpenCntr;

/// The triggering counter of a work. Fails with `EINVAL` for none, or one of another domain or
/// provider.
///
/// # Safety
///
/// By the interface, the counter of `work` is null or an open object.
unsafe fn trigger<'a>(domain: &OpenDomain, work: &kfi_deferred_work) -> Result<&'a OpenCntr> {
    // SAFETY: By the requirement above.
    let cntr = unsafe { of_class::<kfid_cntr>(work.triggering_cntr.cast()) }?;
    if !ptr::eq(&**cntr.cntr.domain(), &*domain.domain) {
        return Err(EINVAL);
    }
    Ok(cntr)
}

/// Queues a work, and returns its number.
///
/// # Safety
///
/// By the interface, `work` and what it points to are valid.
unsafe fn queue_one(domain: &OpenDomain, work: &kfi_deferred_work) -> Result<u64> {
    // SAFETY: By the requirement above, here and below: the member of the union that the type names
    // is null or valid.
    let cntr = &unsafe { trigger(domain, work) }?.cntr;
    let threshold = work.threshold;
    if matches!(work.op_type, raw::KFI_OP_CNTR_ADD | raw::KFI_OP_CNTR_SET) {
        if !work.completion_cntr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: See above.
        let change = unsafe { work.op.cntr.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: See above.
        let changed = unsafe { of_class::<kfid_cntr>(change.cntr.cast()) }?;
        if !ptr::eq(&**changed.cntr.domain(), &*domain.domain) {
            return Err(EINVAL);
        }
        let what = match work.op_type {
            raw::KFI_OP_CNTR_ADD => Change::Add(change.value),
            _ => Change::Set(change.value),
        };
        return cntr.queue_change(threshold, &changed.cntr, what);
    }
    let kind = OpType::try_from(work.op_type).map_err(to_error)?;
    let completion = match work.completion_cntr.is_null() {
        true => None,
        // SAFETY: See above.
        false => Some(&unsafe { of_class::<kfid_cntr>(work.completion_cntr.cast()) }?.cntr),
    };
    let begin = |ep: *mut kfid_ep, flags| {
        // SAFETY: See above.
        let ep =
            unsafe { of_class::<kfid_ep>(ep.cast()).or_else(|_| of_class::<SharedRx>(ep.cast())) }?;
        let call = ep.begin_deferred(kind, flags, (cntr, threshold), completion)?;
        Ok::<_, Error>((ep, call))
    };
    match kind {
        OpType::Send | OpType::Recv => {
            // SAFETY: See above.
            let op = unsafe { work.op.msg.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            // SAFETY: See above.
            let local = unsafe { msg::local(&op.msg) }?;
            match kind {
                OpType::Send => ep.post_send(call, &local, &msg::send_args(&op.msg)),
                _ => ep.post_receive(call, &local, &msg::receive_args(&op.msg)),
            }
        }
        OpType::TSend | OpType::TRecv => {
            // SAFETY: See above.
            let op = unsafe { work.op.tagged.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            // SAFETY: See above.
            let local = unsafe { tagged::local(&op.msg) }?;
            match kind {
                OpType::TSend => ep.post_send(call, &local, &tagged::send_args(&op.msg)),
                _ => ep.post_receive(call, &local, &tagged::receive_args(&op.msg)),
            }
        }
        OpType::Read | OpType::Write => {
            // SAFETY: See above.
            let op = unsafe { work.op.rma.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            // SAFETY: See above.
            let (local, args) = unsafe { (rma::local(&op.msg)?, rma::args(&op.msg)?) };
            match kind {
                OpType::Read => ep.post_read(call, &local, &args),
                _ => ep.post_write(call, &local, &args),
            }
        }
        OpType::Atomic => {
            // SAFETY: See above.
            let op = unsafe { work.op.atomic.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            // SAFETY: See above.
            let args = unsafe { AtomicArgs::of_msg(kind, &op.msg, Values::None, Values::None) };
            ep.post_atomic(call, &args)
        }
        OpType::FetchAtomic => {
            // SAFETY: See above.
            let op = unsafe { work.op.fetch_atomic.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            let result = Values::List(op.fetch.msg_iov, op.fetch.iov_count);
            // SAFETY: See above.
            let args = unsafe { AtomicArgs::of_msg(kind, &op.msg, Values::None, result) };
            ep.post_atomic(call, &args)
        }
        OpType::CompareAtomic => {
            // SAFETY: See above.
            let op = unsafe { work.op.compare_atomic.as_ref() }.ok_or(EINVAL)?;
            let (ep, call) = begin(op.ep, op.flags)?;
            let compare = Values::List(op.compare.msg_iov, op.compare.iov_count);
            let result = Values::List(op.fetch.msg_iov, op.fetch.iov_count);
            // SAFETY: See above.
            let args = unsafe { AtomicArgs::of_msg(kind, &op.msg, compare, result) };
            ep.post_atomic(call, &args)
        }
    }
}

/// KFI_QUEUE_WORK.
///
/// # Safety
///
/// By the interface, `work` is null, or it and what it points to are valid, and its context belongs
/// to the provider.
pub(super) unsafe fn queue(domain: &OpenDomain, work: *mut kfi_deferred_work) -> Result {
    // SAFETY: By the requirement above.
    let work = unsafe { work.as_mut() }.ok_or(EINVAL)?;
    // SAFETY: By the requirement above.
    let number = unsafe { queue_one(domain, work) }.map_err(|error| match error {
        // Deferred work has one errno for everything that is not supported.
        EOPNOTSUPP => ENOSYS,
        error => error,
    })?;
    work.context.internal[0] = ptr::without_provenance_mut(number as usize);
    Ok(())
}

/// KFI_CANCEL_WORK.
///
/// # Safety
///
/// By the interface, `work` is null, or was queued.
pub(super) unsafe fn cancel(domain: &OpenDomain, work: *mut kfi_deferred_work) -> Result {
    // SAFETY: By the requirement above.
    let work = unsafe { work.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: By the requirement above.
    let cntr = &unsafe { trigger(domain, work) }?.cntr;
    let number = work.context.internal[0].addr() as u64;
    cntr.cancel_work(work.threshold, number)
}

/// KFI_FLUSH_WORK.
///
/// # Safety
///
/// By the interface, `cntr` is null or an open object.
pub(super) unsafe fn flush(domain: &OpenDomain, cntr: *mut kfid) -> Result {
    if cntr.is_null() {
        domain.domain.flush_work();
        return Ok(());
    }
    // SAFETY: By the requirement above.
    let cntr = &unsafe { of_class::<kfid_cntr>(cntr) }?.cntr;
    if !ptr::eq(&**cntr.domain(), &*domain.domain) {
        return Err(EINVAL);
    }
    cntr.flush_work();
    Ok(())
}
