// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_QUEUE_WORK`, `KFABRIC_IOC_CANCEL_WORK` and `KFABRIC_IOC_FLUSH_WORK`:
//! deferred work.
//!
//! Queueing a change of a counter is a step of every collective operation that programs build from
//! deferred work. So a call looks up each object once for consecutive requests that name it.

use core::mem::{
    offset_of,
    MaybeUninit, //
};

use kfi_core::{
    flags::{
        KFI_COMPLETION,
        KFI_TRIGGER, //
    },
    op::OpType, //
};

use super::{
    destination::Admission,
    objects::Named,
    parse::user_ptr,
    post::{
        Reader,
        OP_V1_SIZE, //
    },
    prelude::*, //
};
use crate::{
    provider::{
        cntr::Cntr,
        ep::Endpoint,
        work::{
            Change,
            Deferral, //
        }, //
    },
    shim::{
        errno,
        sched::{
            cond_resched,
            fatal_signal_pending, //
        },
        user::{
            read_element,
            write_words, //
        }, //
    }, //
};

/// Size of the first version of `struct kfabric_work`; it stays when the structure grows.
const WORK_V1_SIZE: usize = 48;

/// Requests that are queued between two calls of `cond_resched()`.
const STRIDE: usize = 64;

/// `KFABRIC_IOC_QUEUE_WORK`. `arg.done` and `arg.error` are valid whatever it returns.
#[link_section = ".text.hot"]
pub(super) fn queue(file: &OpenFile, arg: &mut kfabric_queue_work) -> Result {
    arg.done = 0;
    arg.error = 0;
    let result = queue_all(file, arg);
    if let Err(error) = result {
        arg.error = errno::number(error);
        if arg.done == 0 {
            return Err(error);
        }
    }
    Ok(())
}

/// Queues until the first error, and counts in `arg.done`.
fn queue_all(file: &OpenFile, arg: &mut kfabric_queue_work) -> Result {
    must_be_zero(&[arg.flags])?;
    must_be_zero(&[arg.reserved])?;
    if arg.count == 0 || arg.count > limits::MAX_POST {
        return Err(EINVAL);
    }
    let works = user_ptr(arg.works)?;
    let stride = usize::try_from(arg.work_size)?;
    let mut queue = Queue::new(file, arg)?;
    let mut room = MaybeUninit::uninit();
    for index in 0..arg.count as usize {
        if index % STRIDE == STRIDE - 1 {
            cond_resched();
        }
        if fatal_signal_pending() {
            return Err(EINTR);
        }
        let work = read_element::<kfabric_work>(works, index, stride, WORK_V1_SIZE, &mut room)?;
        // The offset did not wrap when the element was read. The identity is written before the
        // work is queued, too: a request whose identity cannot be written is not queued.
        let id_at =
            works.wrapping_byte_add(index.wrapping_mul(stride) + offset_of!(kfabric_work, id));
        write_words(id_at, &[work.id])?;
        let id = queue.work(work)?;
        arg.done = arg.done.wrapping_add(1);
        // If another thread has unmapped the memory meanwhile, the program does not get the
        // identity of this work. It can flush it.
        let _ = write_words(id_at, &[id]);
    }
    Ok(())
}

/// An object that was looked up.
struct Known<T> {
    handle: u32,
    object: Arc<T>,
}

/// Looks `handle` up, unless it is that of `known`.
#[inline]
fn known<'a, T: Named>(
    file: &OpenFile,
    known: &'a mut Option<Known<T>>,
    handle: u32,
) -> Result<&'a Arc<T>> {
    if !matches!(known, Some(known) if known.handle == handle) {
        *known = Some(Known {
            handle,
            object: file.object::<T>(handle)?,
        });
    }
    known.as_ref().map(|known| &known.object).ok_or(EBADF)
}

/// One call that queues work.
struct Queue<'a> {
    file: &'a OpenFile,
    domain: u32,
    op_size: usize,
    trigger: Option<Known<Cntr>>,
    changed: Option<Known<Cntr>>,
    completion: Option<Known<Cntr>>,
    endpoint: Option<Known<Endpoint>>,
}

impl<'a> Queue<'a> {
    fn new(file: &'a OpenFile, arg: &kfabric_queue_work) -> Result<Self> {
        Ok(Self {
            file,
            domain: arg.domain,
            op_size: usize::try_from(arg.op_size)?,
            trigger: None,
            changed: None,
            completion: None,
            endpoint: None,
        })
    }

    /// Queues one request, and returns its identity. Sleeps.
    fn work(&mut self, work: &kfabric_work) -> Result<u64> {
        let file = self.file;
        let trigger = known(file, &mut self.trigger, work.triggering_cntr)?;
        // Objects of a file are made from domains of the file, so the numbers can be compared.
        if trigger.domain().fid() != u64::from(self.domain) {
            file.object::<Domain>(self.domain)?;
            return Err(EINVAL);
        }
        let change = match work.op_type {
            KFABRIC_OP_CNTR_ADD => Change::Add(work.value),
            KFABRIC_OP_CNTR_SET => Change::Set(work.value),
            _ => return self.transfer(work),
        };
        must_be_zero(&[work.completion_cntr])?;
        must_be_zero(&[work.op])?;
        if work.object == work.triggering_cntr {
            return trigger.queue_change(work.threshold, trigger, change);
        }
        let changed = known(file, &mut self.changed, work.object)?;
        if !Arc::ptr_eq(changed.domain(), trigger.domain()) {
            return Err(EINVAL);
        }
        trigger.queue_change(work.threshold, changed, change)
    }

    /// Queues a transfer.
    fn transfer(&mut self, work: &kfabric_work) -> Result<u64> {
        let file = self.file;
        OpType::try_from(work.op_type).map_err(to_error)?;
        must_be_zero(&[work.value])?;
        let trigger = known(file, &mut self.trigger, work.triggering_cntr)?;
        let endpoint = known(file, &mut self.endpoint, work.object)?;
        endpoint.check_domain(trigger.domain())?;
        let completion = match work.completion_cntr {
            0 => None,
            handle => Some(known(file, &mut self.completion, handle)?),
        };
        if completion.is_some_and(|cntr| !Arc::ptr_eq(cntr.domain(), trigger.domain())) {
            return Err(EINVAL);
        }
        let (ptr, mut room) = (user_ptr(work.op)?, MaybeUninit::uninit());
        let op = read_element::<kfabric_op>(ptr, 0, self.op_size, OP_V1_SIZE, &mut room)?;
        must_be_zero(&[op.trigger_event, op.trigger_cntr])?;
        must_be_zero(&[op.threshold, op.flags & KFI_TRIGGER])?;
        if op.opcode != work.op_type {
            return Err(EINVAL);
        }
        let report = op.flags & KFI_COMPLETION != 0;
        let deferral = Deferral::new(completion, report)?;
        let mut admission = Admission::new(endpoint, Some(deferral));
        // Deferred work has one errno for everything that is not supported.
        Reader::new(file, None)
            .post(op, &mut admission)
            .map_err(|error| match error {
                EOPNOTSUPP => ENOSYS,
                error => error,
            })?;
        trigger.queue_transfer(work.threshold, admission.into_work()?)
    }
}

/// `KFABRIC_IOC_CANCEL_WORK`.
pub(super) fn cancel(file: &OpenFile, arg: &kfabric_cancel_work) -> Result {
    file.object::<Cntr>(arg.triggering_cntr)?
        .cancel_work(arg.threshold, arg.id)
}

/// `KFABRIC_IOC_FLUSH_WORK`.
pub(super) fn flush(file: &OpenFile, arg: &mut kfabric_flush_work) -> Result {
    must_be_zero(&[arg.reserved])?;
    let domain = file.object::<Domain>(arg.domain)?;
    arg.flushed = match file.optional::<Cntr>(arg.triggering_cntr)? {
        Some(cntr) if !Arc::ptr_eq(cntr.domain(), &domain) => return Err(EINVAL),
        Some(cntr) => cntr.flush_work().into(),
        None => domain.flush_work(),
    };
    Ok(())
}
