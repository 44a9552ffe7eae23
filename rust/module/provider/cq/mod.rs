// SPDX-License-Identifier: GPL-2.0

//! Completion queue: `kfi_cq`, as fi_cq(3) has it.
//!
//! [`Cq`] is a [`Queue`] that belongs to a domain, has a wait object, and can be closed. Endpoints
//! are bound to it and hold it in use; an operation that will make an entry takes a [`Credit`] when it
//! is posted and spends it when it completes, and one whose success is silent has a [`Record`] for its
//! error entry. So a completion that was asked for, or that is an error, is never lost.
//!
//! | file | what |
//! |---|---|
//! | [`queue`] | the queue: ring, error entries, credits, waking |
//! | [`read`] | reading it by call, and sleeping |
//! | [`record`] | memory for the error entries of silent operations |

mod queue;
mod read;
mod record;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cq.rs"]
mod kunit;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    }, //
};

use kfi_core::{
    cq::{
        Entry,
        ErrEntry,
        Format, //
    },
    enums::CqWaitCond,
    limits,
    prov_errno,
    wait::Deadline, //
};

use self::queue::Queue;
use super::{
    domain::Domain,
    object::{
        Ident,
        Object,
        Used,
        Uses,
        Using, //
    },
    roster::{
        self,
        Class,
        Figures,
        Listed,
        Place, //
    },
    wait::{
        fd::{
            self,
            Readable, //
        },
        WaitObj, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        SharedPages, //
    },
    shim::{
        anon_file::PendingFd,
        errno::to_error,
        wait::WaitQueue, //
    }, //
};

pub(crate) use self::{
    read::Sink,
    record::Record, //
};
pub(crate) use kfi_core::cq::Credit;

/// What a CQ is to be.
pub(crate) struct CqAttr {
    entries: u32,
    format: Format,
    wait: WaitObj,
    cond: CqWaitCond,
}

impl CqAttr {
    /// Makes one of what a caller gave: completions to hold (0: the default), `enum
    /// kfi_cq_format`, the wait object, `enum kfi_cq_wait_cond`.
    ///
    /// `EINVAL` more than `KFABRIC_MAX_CQ` completions, no such format or condition. The condition
    /// is ignored with `KFI_WAIT_NONE`. Does not sleep.
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
        })
    }
}

/// See the module's story.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    queue: Queue,
    wait: WaitObj,
    cond: CqWaitCond,
    uses: Uses,
    domain: Used<Domain>,
    ident: Ident,
    place: SetOnce<Place>,
    /// What it takes of its owner's budget.
    _memory: Allowance,
}

impl Cq {
    /// Opens a CQ of `domain`. `EINVAL` a wait set of another fabric; `EBADF` the domain is closed;
    /// `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: CqAttr, ident: Ident) -> Result<Arc<Self>> {
        attr.wait.check_fabric(domain.fabric())?;
        let domain = Used::new(domain.clone())?;
        let pollable = attr.wait.is_pollable();
        let memory = ident.budget.take_for::<Self>(Queue::extra(attr.entries))?;
        let ring_memory = ident.budget.take(Queue::ring_bytes(attr.entries) as u64)?;
        let queue = Queue::new(attr.entries, attr.format, pollable)?;
        let cq = Arc::pin_init(
            pin_init!(Self {
                queue <- queue,
                wait: attr.wait,
                cond: attr.cond,
                uses: Uses::new(),
                domain,
                ident,
                place: SetOnce::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // Programs may map the ring, and keep it behind the CQ's end.
        cq.ring().keep(ring_memory);
        cq.place.populate(roster::enter(cq.clone())?);
        Ok(cq)
    }

    /// The domain that it was made from.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    /// Who it is to its owner.
    pub(crate) fn ident(&self) -> &Ident {
        &self.ident
    }

    /// Completions it holds.
    pub(crate) fn entries(&self) -> u32 {
        self.queue.size()
    }

    /// Its format.
    pub(crate) fn format(&self) -> Format {
        self.queue.format
    }

    /// Its ring, to be mapped for reading and writing: `struct kfabric_cq_ring` and the entries.
    pub(crate) fn ring(&self) -> &Arc<SharedPages> {
        self.queue.ring()
    }

    /// Takes room for a completion; it is given back with the completion or by
    /// [`unreserve`](Self::unreserve). `EAGAIN` there is none. Does not sleep.
    #[inline]
    pub(crate) fn reserve(&self) -> Result<Credit> {
        self.queue.reserve()
    }

    /// Gives a credit back unused. Does not sleep.
    #[inline]
    pub(crate) fn unreserve(&self, credit: Credit) {
        self.queue.unreserve(credit);
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

    /// Queues the error of an operation that took no credit, and has a record. Does not sleep.
    pub(crate) fn push_err_recorded(&self, record: Record, entry: &ErrEntry) {
        self.queue.push_err_recorded(record, entry);
        self.wait.signal();
    }

    /// Queues a completion that nobody posted for. If there is no room it is lost, which the CQ
    /// counts and tells its readers. Does not sleep.
    #[inline(always)]
    pub(crate) fn push_unposted(&self, entry: &Entry) {
        let _ = self.queue.push_unposted(entry);
        self.wait.signal();
    }

    /// Queues an error that nobody posted for; else as [`push_unposted`](Self::push_unposted).
    pub(crate) fn push_err_unposted(&self, entry: &ErrEntry) {
        let _ = self.queue.push_err_unposted(entry);
        self.wait.signal();
    }

    /// Takes at most `count` entries when there are some, with `KFI_CQ_COND_THRESHOLD` at least
    /// `cond` of them, or an error entry (kfi_cq_sread, kfi_cq_sreadfrom); with [`Deadline::Poll`] without waiting (kfi_cq_read,
    /// kfi_cq_readfrom). Of each, `sink` is given the words that the format has, and the source;
    /// what it refuses stays queued. `count` 0 takes nothing and only waits. `began`: 0, or what a
    /// call that was interrupted has left there, to go on with it.
    ///
    /// `EIO` the mapped head is spoilt; `KFI_EAVAIL` an error entry is to be read first;
    /// `KFI_EOVERRUN` completions were lost, told once; `EAGAIN` nothing there, or
    /// [`signal`](Self::signal) was called and there is nothing; the error of `sink` if it took
    /// nothing; `EINVAL` a wait with `KFI_WAIT_NONE` or `KFI_WAIT_SET`; `ETIMEDOUT`; `ERESTARTSYS`; `EBADF` closed, before or meanwhile;
    /// `ENOMEM`. Sleeps. Who waits uses the CQ.
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
        if !self.wait.allows_sread() {
            return Err(EINVAL);
        }
        let _using = Using::new(&**self)?;
        self.queue.sread(count, cond, deadline, began, sink)
    }

    /// Takes the oldest error entry, once `sink` has got it (kfi_cq_readerr). `EAGAIN` there is
    /// none, or the error of `sink`, and the entry stays. `sink` does not wait for memory of the
    /// program's, which `bring_in` does after `EFAULT`, as of a [`Sink`]. Sleeps.
    pub(crate) fn readerr(
        &self,
        sink: impl FnMut(&ErrEntry) -> Result,
        bring_in: impl FnMut() -> Result,
    ) -> Result {
        self.queue.readerr(sink, bring_in)
    }

    /// Ends the waits of all threads that are inside [`sread`](Self::sread); if there is none, of the
    /// next that would sleep there (kfi_cq_signal). `EINVAL` the CQ has `KFI_WAIT_NONE`. Does not
    /// sleep.
    pub(crate) fn signal(&self) -> Result {
        if matches!(self.wait, WaitObj::None) {
            return Err(EINVAL);
        }
        self.queue.signal();
        self.wait.signal();
        Ok(())
    }

    /// What a `prov_errno` of an error entry means (kfi_cq_strerror), see
    /// [`prov_errno`](kfi_core::prov_errno). Does not sleep.
    pub(crate) fn strerror(&self, number: u32) -> &'static str {
        prov_errno::text(number)
    }

    /// Makes a descriptor (KFI_GETWAIT), which is a use; with `KFI_WAIT_SET` it is the wait set's.
    /// `EINVAL` it has `KFI_WAIT_NONE`; `EBADF` closed; `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
    pub(crate) fn getwait(self: &Arc<Self>) -> Result<PendingFd> {
        self.wait.getwait(&**self, || fd::open(self))
    }
}

impl Object for Cq {
    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn teardown(&self) {
        if let Some(place) = self.place.copy() {
            place.leave();
        }
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

impl Listed for Cq {
    fn class(&self) -> Class {
        Class::Cq
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Domain {
        &self.domain
    }

    fn figures(&self) -> Figures {
        Figures {
            addr: None,
            values: self.queue.figures(),
        }
    }
}
