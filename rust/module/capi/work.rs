// SPDX-License-Identifier: GPL-2.0

//! Deferred work: fi_trigger(3). All commands need process context and may sleep.
//!
//! The number by which the provider knows a work is stored in the context of its `struct
//! kfi_deferred_work` ([`WorkNumber`]), which the consumer leaves as it is until the work has
//! completed or is cancelled. That may be before the call that queues the work returns, so nothing
//! uses the structure after the work can be started.

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

/// Where the number of a work is stored: in its context, 1 more than the provider's number, or 0 if
/// it was not queued.
///
/// # Invariants
///
/// The pointer can be written until the work is started.
#[derive(Clone, Copy)]
pub(super) struct WorkNumber(*mut *mut c_void);

impl WorkNumber {
    /// That of `work`.
    ///
    /// # Safety
    ///
    /// `work` can be written until it has completed or is cancelled.
    unsafe fn of(work: *mut kfi_deferred_work) -> Self {
        // INVARIANT: A member of the structure, by the requirement above.
        // SAFETY: By the requirement above.
        Self(unsafe { &raw mut (*work).context.internal[0] })
    }

    /// Stores that the work is not queued.
    ///
    /// # Safety
    ///
    /// The work is not queued.
    unsafe fn clear(self) {
        // SAFETY: By the type invariants; it is not started by the requirement above.
        unsafe { *self.0 = ptr::null_mut() };
    }

    /// Stores the number of the work.
    ///
    /// # Safety
    ///
    /// No task can start the work before this returns.
    pub(super) unsafe fn store(self, number: u64) {
        // CAST: A usize has 64 bits. The numbers of a counter do not reach the last one.
        let stored = number.wrapping_add(1) as usize;
        // SAFETY: By the type invariants and the requirement above.
        unsafe { *self.0 = ptr::without_provenance_mut(stored) };
    }
}

/// The number that is stored in the context of a work. Fails with `ENOENT` for none.
fn stored(work: &kfi_deferred_work) -> Result<u64> {
    // CAST: A usize has 64 bits.
    let stored = work.context.internal[0].addr() as u64;
    stored.checked_sub(1).ok_or(ENOENT)
}

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

/// Queues a work, of which `work` is a copy, and stores its number before it can be started.
///
/// # Safety
///
/// By the interface, what `work` points to is valid until the work has completed.
unsafe fn queue_one(domain: &OpenDomain, work: &kfi_deferred_work, number: WorkNumber) -> Result {
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
        // SAFETY: The provider calls it before a task can start the work.
        let note = |ticket| unsafe { number.store(ticket) };
        let queued = cntr.queue_change_with(threshold, &changed.cntr, what, note);
        return queued.map(drop);
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
        let call = ep.begin_deferred(kind, flags, (cntr, threshold), completion, number)?;
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
    if work.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above. The consumer keeps the work until it has completed.
    let (copy, number) = unsafe { (work.read(), WorkNumber::of(work)) };
    // SAFETY: By the requirement above.
    unsafe { queue_one(domain, &copy, number) }.map_err(|error| {
        // SAFETY: The work is not queued.
        unsafe { number.clear() };
        match error {
            // Deferred work has one errno for everything that is not supported.
            EOPNOTSUPP => ENOSYS,
            error => error,
        }
    })
}

/// KFI_CANCEL_WORK.
///
/// # Safety
///
/// By the interface, `work` is null or valid, and its context is 0 or was stored by [`queue`].
pub(super) unsafe fn cancel(domain: &OpenDomain, work: *mut kfi_deferred_work) -> Result {
    // SAFETY: By the requirement above.
    let work = unsafe { work.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: By the requirement above.
    let cntr = &unsafe { trigger(domain, work) }?.cntr;
    cntr.cancel_work(work.threshold, stored(work)?)
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
