// SPDX-License-Identifier: GPL-2.0
//! Deferred work: operations that the module starts when a counter reaches a
//! threshold, without the program.
//!
//! A [`Work`] names a triggering counter and a threshold, and a transfer of an
//! endpoint, or a change of a counter.  It is due when the success value plus
//! the error value of the counter has reached the threshold.  Works of a counter
//! that are due start in the order of their thresholds, then in the order in
//! which they were queued; works of different counters start in no particular
//! order.
//!
//! A transfer makes no CQ entry, and moves no counter of its endpoint, unless
//! it has [`OpFlags::COMPLETION`](crate::OpFlags::COMPLETION).  It reports to
//! its [completion counter](Work::completion), which can be the triggering
//! counter of other work: so programs build chains, trees and rings of
//! operations that run by themselves.

use std::{fmt, marker::PhantomData};

use crate::{
    abi::{self, Call, calls},
    buffer::Buffer,
    cntr::Cntr,
    domain::Domain,
    ep::Endpoint,
    errno::Errno,
    error::{Error, Result},
    op::Op,
};

/// One request of the deferred work queue, to be queued with
/// [`Domain::queue_work`].
///
/// ```no_run
/// # fn f(domain: kfi::Domain, ep: kfi::Endpoint, peer: kfi::FiAddr) -> kfi::Result<()> {
/// use kfi::{Buffer, Op, Work};
///
/// let (arrived, sent) = (domain.cntr().open()?, domain.cntr().open()?);
/// let message = Buffer::from_bytes(b"all here")?;
/// // When three have arrived, send; when it was sent, begin again.
/// domain.queue_work(&[
///     Work::transfer(&arrived, 3, &ep, Op::send(peer, &message)).completion(&sent),
///     Work::set(&sent, 1, &arrived, 0),
/// ])?.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
#[must_use = "work does nothing until it is queued"]
pub struct Work<'a> {
    /// `op` is 0; the address of the operation is known when it is queued.
    raw: abi::kfabric_work,
    // INVARIANT: that of an `Op<'a>`.
    op: Option<Op<'a>>,
    memory: PhantomData<&'a Buffer>,
}

impl<'a> Work<'a> {
    fn new(trigger: &Cntr, threshold: u64, op_type: u32, object: u32) -> Self {
        Self {
            raw: abi::kfabric_work {
                threshold,
                triggering_cntr: trigger.handle(),
                op_type,
                object,
                ..abi::kfabric_work::default()
            },
            op: None,
            memory: PhantomData,
        }
    }

    /// Posts `op` to `ep` when `trigger` has reached `threshold`.
    pub fn transfer(trigger: &Cntr, threshold: u64, ep: &Endpoint, op: Op<'a>) -> Self {
        Self {
            op: Some(op),
            ..Self::new(trigger, threshold, op.raw().opcode, ep.handle())
        }
    }

    /// Adds `value` to `cntr` when `trigger` has reached `threshold`.
    pub fn add(trigger: &Cntr, threshold: u64, cntr: &Cntr, value: u64) -> Self {
        let mut this = Self::new(trigger, threshold, abi::KFABRIC_OP_CNTR_ADD, cntr.handle());
        this.raw.value = value;
        this
    }

    /// Sets `cntr` to `value` when `trigger` has reached `threshold`.
    pub fn set(trigger: &Cntr, threshold: u64, cntr: &Cntr, value: u64) -> Self {
        let mut this = Self::new(trigger, threshold, abi::KFABRIC_OP_CNTR_SET, cntr.handle());
        this.raw.value = value;
        this
    }

    /// Counts the completion of a transfer: a success in the value of `cntr`, a
    /// failure in its error value.  Changes of counters have no completion, and
    /// are refused with a completion counter.
    pub fn completion(mut self, cntr: &Cntr) -> Self {
        self.raw.completion_cntr = cntr.handle();
        self
    }

    /// The structure of the interface, to look at; without the address of the
    /// operation.
    pub fn raw(&self) -> &abi::kfabric_work {
        &self.raw
    }

    /// The structure of the interface, for a call during which `self` lives.
    fn queued(&self) -> abi::kfabric_work {
        abi::kfabric_work {
            op: self.op.as_ref().map_or(0, |op| {
                std::ptr::from_ref(op.raw()).expose_provenance() as u64
            }),
            ..self.raw
        }
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("raw", &self.raw)
            .field("op", &self.op)
            .finish()
    }
}

/// The identity of queued work, for [`Domain::cancel_work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId {
    /// Handle of the triggering counter.
    pub triggering_cntr: u32,
    /// Threshold.
    pub threshold: u64,
    /// Number among the work of that counter.
    pub id: u64,
}

impl WorkId {
    fn of(raw: &abi::kfabric_work) -> Self {
        Self {
            triggering_cntr: raw.triggering_cntr,
            threshold: raw.threshold,
            id: raw.id,
        }
    }
}

/// Result of [`Domain::queue_work`]: it may have queued only some of the work.
///
/// [`into_result`](QueuedWork::into_result) makes the refusal of one an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only some of the work may have been queued: see `error`, or use `into_result`"]
pub struct QueuedWork {
    /// Identities of the work that was queued, from the first on: one at least.
    pub ids: Vec<WorkId>,
    /// Why the next work was not queued; `None`: all was.
    pub error: Option<Errno>,
}

impl QueuedWork {
    /// Whether all was queued.
    pub fn all(&self) -> bool {
        self.error.is_none()
    }

    /// The identities, if all was queued.
    ///
    /// # Errors
    ///
    /// [`Error::Partial`]: one was refused.  Those before it stay queued.
    pub fn into_result(self) -> Result<Vec<WorkId>> {
        match self.error {
            None => Ok(self.ids),
            Some(errno) => Err(Error::Partial {
                call: "KFABRIC_IOC_QUEUE_WORK",
                done: self.ids.len(),
                errno,
            }),
        }
    }
}

/// Deferred work.
impl Domain {
    /// Queues work, in order, in one call (`KFI_QUEUE_WORK`).  Work that is due
    /// already starts at once, though never ahead of earlier work of the same
    /// counter that is due.
    ///
    /// The result has the identities of the work that was queued, and must be
    /// looked at:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # fn f(domain: kfi::Domain, works: &[kfi::Work<'_>]) -> kfi::Result<()> {
    /// domain.queue_work(works)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```no_run
    /// #![deny(unused_must_use)]
    /// # fn f(domain: kfi::Domain, works: &[kfi::Work<'_>]) -> kfi::Result<()> {
    /// domain.queue_work(works)?.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the first work, if not even that was queued:
    ///
    /// - `EINVAL`: no work; an object of another domain; a completion counter
    ///   of a change of a counter; a set above the counter's
    ///   [maximum](crate::CntrBuilder::max_value); an operation with a
    ///   [trigger](Op::trigger).
    /// - `ENOSYS`: an operation that the endpoint, or its type, does not have; a
    ///   receive into a multi-receive buffer (also if that is a default flag of
    ///   the endpoint), a peek or a claim.
    /// - `ENOSPC`: [`Query::max_work`](crate::Query::max_work) works wait.
    /// - `ENOMEM`: the user's limit.
    /// - For transfers, those of [`Endpoint::post`] that depend neither on the
    ///   peer, nor on the connection, nor on room.  Work that waits takes no room
    ///   in a queue or a CQ; a transfer that has started waits for room.
    pub fn queue_work(&self, works: &[Work<'_>]) -> Result<QueuedWork> {
        let mut raw: Vec<_> = works.iter().map(Work::queued).collect();
        let arg = self.queue_raw(&mut raw)?;
        Ok(QueuedWork {
            ids: (raw.iter().take(arg.done as usize))
                .map(WorkId::of)
                .collect(),
            error: (arg.error != 0).then(|| Errno::from_raw(arg.error as i32)),
        })
    }

    /// Queues one work.
    ///
    /// # Errors
    ///
    /// As [`Domain::queue_work`].
    pub fn queue_one(&self, work: &Work<'_>) -> Result<WorkId> {
        let mut raw = work.queued();
        self.queue_raw(std::slice::from_mut(&mut raw))?;
        Ok(WorkId::of(&raw))
    }

    /// `works` come from [`Work::queued`] of works that are borrowed by the
    /// caller.
    fn queue_raw(&self, works: &mut [abi::kfabric_work]) -> Result<abi::kfabric_queue_work> {
        // SAFETY: The callers borrow the works, so the operations live during the call.
        let (arg, result) = unsafe { calls::queue_work(self.device(), self.handle(), works) };
        result.map(|()| arg)
    }

    /// Cancels queued work (`KFI_CANCEL_WORK`).  Nothing reports it.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it has started or is about to start, or has been cancelled.
    pub fn cancel_work(&self, work: &WorkId) -> Result<()> {
        let mut arg = abi::kfabric_cancel_work {
            triggering_cntr: work.triggering_cntr,
            threshold: work.threshold,
            id: work.id,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// Cancels all queued work of the domain (`KFI_FLUSH_WORK`); gives its
    /// number.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn flush_work(&self) -> Result<u64> {
        self.flush(0)
    }

    /// Cancels all work that waits for a counter; gives its number.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a counter of another domain.
    pub fn flush_work_of(&self, trigger: &Cntr) -> Result<u64> {
        self.flush(trigger.handle())
    }

    fn flush(&self, triggering_cntr: u32) -> Result<u64> {
        let mut arg = abi::kfabric_flush_work {
            domain: self.handle(),
            triggering_cntr,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(arg.flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::FiAddr;

    fn transfer(op: Op<'_>) -> Work<'_> {
        Work {
            raw: abi::kfabric_work {
                threshold: 3,
                triggering_cntr: 7,
                op_type: op.raw().opcode,
                object: 9,
                ..Default::default()
            },
            op: Some(op),
            memory: PhantomData,
        }
    }

    #[test]
    fn a_transfer_names_its_operation_while_it_is_queued() {
        let buffer = Buffer::new(16).unwrap();
        let work = transfer(Op::tsend(FiAddr(2), &buffer, 5));
        assert_eq!(
            (work.raw().op, work.raw().op_type),
            (0, abi::KFABRIC_OP_TSEND)
        );
        let op = work.op.as_ref().unwrap().raw();
        let raw = work.queued();
        assert_eq!(raw.op, std::ptr::from_ref(op).addr() as u64);
        assert_eq!((raw.threshold, raw.triggering_cntr, raw.object), (3, 7, 9));
        assert_eq!((op.tag, op.flags, op.threshold), (5, 0, 0));
    }

    #[test]
    fn refused_work_becomes_an_error() {
        let id = WorkId::of(&abi::kfabric_work::default());
        let good = QueuedWork {
            ids: vec![id],
            error: None,
        };
        assert_eq!(good.clone().into_result().unwrap(), [id]);
        let partial = QueuedWork {
            error: Some(Errno::EINVAL),
            ..good
        };
        let error = partial.into_result().unwrap_err();
        assert!(matches!(error, Error::Partial { done: 1, .. }), "{error}");
        assert!(error.is(Errno::EINVAL));
    }

    #[test]
    fn an_identity_has_the_key_of_the_work() {
        let raw = abi::kfabric_work {
            threshold: 3,
            triggering_cntr: 7,
            id: 11,
            ..Default::default()
        };
        let id = WorkId::of(&raw);
        assert_eq!((id.triggering_cntr, id.threshold, id.id), (7, 3, 11));
    }
}
