// SPDX-License-Identifier: GPL-2.0

//! Completion queue: `kfi_cq`, as specified by fi_cq(3).
//!
//! A [`Cq`] is a [`Queue`] that belongs to a domain, has a wait object, and can be closed.
//! Endpoints are bound to it and hold it in use. An operation whose success makes an entry takes a
//! [`Credit`] when it is posted and uses it when it completes. An operation whose success is silent
//! takes no credit; if it may be kept after its call, it has a [`Record`] for its error entry. So
//! no requested completion and no error is lost.
//!
//! | file | topic |
//! |---|---|
//! | [`queue`] | the queue: ring, error entries, credits, waking |
//! | [`read`] | reads by a call, with and without sleeping |
//! | [`record`] | memory for the error entries of silent operations |
//! | `callback` | callbacks of kernel consumers |

#[cfg(kfi_kunit)]
mod callback;
mod queue;
mod read;
mod record;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cq.rs"]
mod kunit;

use kfi_core::{
    cq::{
        Entry,
        ErrEntry,
        Format, //
    },
    enums::CqWaitCond,
    limits,
    prov_errno, //
};

use self::queue::Queue;
use super::{
    object_list::{
        Class,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    },
    prelude::*,
    wait::{
        self,
        handler::{
            ConsumerSide,
            Handler, //
        },
        Readable,
        WaitObj, //
    }, //
};
use crate::{
    mem::SharedPages,
    shim::anon_file::PendingFd, //
};

pub(crate) use self::{
    read::Sink,
    record::{
        Record,
        RecordPool, //
    }, //
};
pub(crate) use kfi_core::cq::Credit;

/// The attributes of a CQ.
pub(crate) struct CqAttr {
    entries: u32,
    format: Format,
    wait: WaitObj,
    cond: CqWaitCond,
    consumer: Option<ConsumerSide>,
}

impl CqAttr {
    /// Checks the attributes that a caller gave: the number of completions to hold (0: the
    /// default), `enum kfi_cq_format`, the wait object, `enum kfi_cq_wait_cond`.
    ///
    /// Fails with `EINVAL` for more than `KFABRIC_MAX_CQ` completions, an unknown format or an
    /// unknown condition. The condition is ignored with `KFI_WAIT_NONE`. Does not sleep.
    pub(crate) fn new(entries: u32, format: u32, wait: WaitObj, cond: u32) -> Result<Self> {
        Ok(Self {
            entries: match entries {
                0 => limits::DEFAULT_CQ,
                entries if entries <= limits::MAX_CQ => entries,
                _ => return Err(EINVAL),
            },
            format: Format::from_abi(format).map_err(to_error)?,
            cond: match wait {
                WaitObj::None => CqWaitCond::None,
                _ => CqWaitCond::try_from(cond).map_err(to_error)?,
            },
            wait,
            consumer: None,
        })
    }

    /// Attributes of the CQ of a kernel consumer, with its handler.
    pub(crate) fn of_consumer(self, handler: Option<Arc<Handler>>) -> Self {
        Self {
            consumer: Some(ConsumerSide::new(handler)),
            ..self
        }
    }
}

/// A completion queue of a domain.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    queue: Queue,
    wait: WaitObj,
    cond: CqWaitCond,
    uses: UseCount,
    domain: UseRef<Domain>,
    ident: Ident,
    list_entry: ObjectListEntry,
    _memory: Allowance,
}

impl Cq {
    /// Opens a CQ of `domain`. Fails with `EINVAL` if the wait set belongs to another fabric;
    /// `EBADF` if the domain is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: CqAttr, ident: Ident) -> Result<Arc<Self>> {
        attr.wait.check_fabric(domain.fabric())?;
        let domain = UseRef::new(domain.clone())?;
        // A kernel consumer has no descriptors.
        let pollable = attr.wait.is_pollable() && attr.consumer.is_none();
        let memory = ident
            .budget
            .take_for::<Self>(Queue::error_queue_bytes(attr.entries))?;
        let ring_memory = ident.budget.take(Queue::ring_bytes(attr.entries) as u64)?;
        let queue = Queue::new(attr.entries, attr.format, pollable, attr.consumer)?;
        let cq = Arc::pin_init(
            pin_init!(Self {
                queue <- queue,
                wait: attr.wait,
                cond: attr.cond,
                uses: UseCount::new(),
                domain,
                ident,
                list_entry: ObjectListEntry::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // A program may map the ring and keep it after the CQ was closed.
        cq.ring().keep(ring_memory);
        cq.list_entry.enter(cq.clone())?;
        Ok(cq)
    }

    /// The number of completions that it holds.
    pub(crate) fn entries(&self) -> u32 {
        self.queue.size()
    }

    pub(crate) fn format(&self) -> Format {
        self.queue.format
    }

    /// Its ring: `struct kfabric_cq_ring` and the entries. Programs map it for reading and writing.
    pub(crate) fn ring(&self) -> &Arc<SharedPages> {
        self.queue.ring()
    }

    /// Reserves room for a completion. [`push`](Self::push), [`push_err`](Self::push_err) or
    /// [`unreserve`](Self::unreserve) uses the credit up. Fails with `EAGAIN` if there is no room.
    /// Does not sleep.
    #[inline]
    pub(crate) fn reserve(&self) -> Result<Credit> {
        self.queue.reserve()
    }

    /// Returns an unused credit. Does not sleep.
    #[inline]
    pub(crate) fn unreserve(&self, credit: Credit) {
        self.queue.unreserve(credit);
    }

    /// Takes room for so many completions ([`Credit::of_pool`]). Fails with `EAGAIN` if there is
    /// not so much room. Does not sleep.
    pub(crate) fn reserve_many(&self, count: u32) -> Result {
        self.queue.reserve_many(count)
    }

    /// Returns room of [`reserve_many`](Self::reserve_many). Does not sleep.
    pub(crate) fn release_many(&self, count: u32) {
        self.queue.release_many(count);
    }

    /// Queues the completion of an operation that took a credit. Does not sleep.
    #[inline]
    pub(crate) fn push(&self, credit: Credit, entry: &Entry) {
        self.queue.push(credit, entry);
        self.wait.signal();
    }

    /// Queues the error of an operation that took a credit. Does not sleep.
    pub(crate) fn push_err(&self, credit: Credit, entry: &ErrEntry) {
        self.queue.push_err(credit, entry);
        self.wait.signal();
    }

    /// Queues the error of an operation that has a record instead of a credit. Does not sleep.
    pub(crate) fn push_err_recorded(&self, record: Record, entry: &ErrEntry) {
        self.queue.push_err_recorded(record, entry);
        self.wait.signal();
    }

    /// Queues a completion that belongs to no posted operation. If there is no room, the completion
    /// is lost; the CQ counts that and reports it to its readers. Does not sleep.
    #[inline(always)]
    pub(crate) fn push_unposted(&self, entry: &Entry) {
        let _ = self.queue.push_unposted(entry);
        self.wait.signal();
    }

    /// Queues an error that belongs to no posted operation. Otherwise as
    /// [`push_unposted`](Self::push_unposted).
    pub(crate) fn push_err_unposted(&self, entry: &ErrEntry) {
        let _ = self.queue.push_err_unposted(entry);
        self.wait.signal();
    }

    /// Whether calls can wait: not with `KFI_WAIT_NONE` and `KFI_WAIT_SET`. Any context.
    pub(crate) fn can_wait(&self) -> bool {
        self.wait.is_pollable()
    }

    /// Whether waits have a condition of their own (KFI_CQ_COND_THRESHOLD).
    pub(crate) fn has_threshold(&self) -> bool {
        matches!(self.cond, CqWaitCond::Threshold)
    }

    /// What the CQ of a kernel consumer has for it.
    #[inline]
    pub(crate) fn consumer(&self) -> Option<&ConsumerSide> {
        self.queue.consumer.as_ref()
    }

    /// Whether a read of a kernel consumer has found the CQ empty and nothing has arrived since.
    /// Any context.
    #[inline]
    pub(crate) fn is_found_empty(&self) -> bool {
        self.consumer().is_some_and(ConsumerSide::is_empty)
    }

    /// [`sread`](Self::sread) that does not wait (kfi_cq_read, kfi_cq_readfrom). For the CQ of a
    /// kernel consumer: process context or softirq, does not sleep.
    #[inline]
    pub(crate) fn read(&self, count: usize, sink: impl Sink) -> Result<usize> {
        self.queue.read(count, sink)
    }

    /// Takes at most `count` entries (kfi_cq_sread, kfi_cq_sreadfrom). Waits until there are some,
    /// with `KFI_CQ_COND_THRESHOLD` at least `cond` of them, or until there is an error entry. With
    /// [`Deadline::Poll`] it does not wait (kfi_cq_read, kfi_cq_readfrom). `sink` gets, for each
    /// entry, the words of the format and the source address. An entry that `sink` refuses stays
    /// queued. With `count` 0 the call takes nothing and only waits. `began` is 0, or the value
    /// that an interrupted call left there, which this call continues.
    ///
    /// Fails with `EIO` if the program wrote an impossible head to the mapped ring; `KFI_EAVAIL` if
    /// an error entry must be read first; `KFI_EOVERRUN` if completions were lost, reported once;
    /// `EAGAIN` if the queue is empty, also at the deadline, and after [`signal`](Self::signal)
    /// ended the wait; the error of `sink` if it took nothing; `EINVAL` for a wait with
    /// `KFI_WAIT_NONE` or `KFI_WAIT_SET`; `ERESTARTSYS`; `EBADF` if the CQ was closed before or
    /// during the wait; `ENOSPC` if [`MAX_WAITERS`](kfi_core::limits::MAX_WAITERS) tasks sleep
    /// here; `ENOMEM`. Sleeps. A wait is a use of the CQ.
    pub(crate) fn sread(
        self: &Arc<Self>,
        count: usize,
        cond: u32,
        deadline: Deadline,
        began: &mut u64,
        sink: impl Sink,
    ) -> Result<usize> {
        let cond = match self.cond {
            CqWaitCond::None => 0,
            CqWaitCond::Threshold => cond,
        };
        if deadline == Deadline::Poll {
            return self.queue.read(count, sink);
        }
        if !self.can_wait() {
            return Err(EINVAL);
        }
        let _using = UseGuard::new(&**self)?;
        self.queue.sread(count, cond, deadline, began, sink)
    }

    /// Takes the oldest error entry after `sink` has accepted it (kfi_cq_readerr). `sink` does not
    /// fault pages in: it returns `EFAULT`, and then `fault_in` faults them in, as for a [`Sink`].
    /// Fails with `EAGAIN` if there is no error entry; the error of `sink`, after which the entry
    /// stays. Sleeps. For the CQ of a kernel consumer: `sink` is called under the lock; process
    /// context or softirq, does not sleep.
    pub(crate) fn readerr(
        &self,
        sink: impl FnMut(&ErrEntry) -> Result,
        fault_in: impl FnMut() -> Result,
    ) -> Result {
        self.queue.readerr(sink, fault_in)
    }

    /// Ends the waits of all threads in [`sread`](Self::sread). If there is none, the next one that
    /// would sleep there does not (kfi_cq_signal). Fails with `EINVAL` if the CQ has
    /// `KFI_WAIT_NONE`. Does not sleep.
    pub(crate) fn signal(&self) -> Result {
        if matches!(self.wait, WaitObj::None) {
            return Err(EINVAL);
        }
        self.queue.signal();
        self.wait.signal();
        Ok(())
    }

    /// The text for a `prov_errno` of an error entry (kfi_cq_strerror). See
    /// [`prov_errno`](kfi_core::prov_errno). Does not sleep.
    pub(crate) fn strerror(&self, number: u32) -> &'static CStr {
        prov_errno::text(number)
    }

    /// The wait queue for a kernel consumer. See [`WaitObj::queue`].
    pub(crate) fn wait_queue(&self) -> Result<&WaitQueue> {
        self.wait.queue()
    }

    /// Makes a descriptor, which is a use of the CQ. See [`WaitObj::getwait`]. Also fails with
    /// `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
    pub(crate) fn getwait(self: &Arc<Self>) -> Result<PendingFd> {
        self.wait.getwait(&**self, || wait::open_fd(self))
    }
}

impl Object for Cq {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.list_entry.leave();
        self.queue.close();
        self.wait.release();
        self.domain.release();
    }
}

impl Readable for Cq {
    const NAME: &'static CStr = c"[kfabric-cq]";

    fn readable(&self) -> &WaitQueue {
        self.queue.readable()
    }

    fn is_ready(&self) -> bool {
        self.queue.is_ready()
    }
}

impl StatsSource for Cq {
    fn class(&self) -> Class {
        Class::Cq
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    fn stats(&self) -> ObjectStats {
        ObjectStats {
            addr: None,
            values: self.queue.stats(),
        }
    }
}
