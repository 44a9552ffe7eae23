// SPDX-License-Identifier: GPL-2.0

//! Admitted operations: operations that are valid and have everything that they need to start.
//!
//! [`Endpoint::admit`] checks an operation and acquires its memory, the memory of its entry in the
//! submission queue and its means to report an error. Only this can refuse the operation. The
//! result is one value, [`Admitted`], which its owner keeps as long as it likes: until a counter
//! reaches a threshold, or until a context in which posting is not possible has ended. Then it is
//! started, or cancelled, or dropped.
//!
//! ```text
//!   admit ----> Admitted ---- start ----> submission queue ----> posted, completes
//!     |             |---- cancel ---> completes with ECANCELED
//!     '- errno      '---- drop -----> no completion
//! ```
//!
//! A start cannot fail: whatever goes wrong later is a completion of the operation. An operation
//! that waits for its start takes memory, which is charged to the owner of its endpoint, and
//! nothing else: no room in the CQ, none among `tx_size` or `rx_size`, no timer.
//!
//! An admitted operation owns its bytes, also with KFI_INJECT. So an injected message that finds no
//! receive waits at its peer, where a posted one is refused. The bytes of other operations, and the
//! operands of atomics, are read when the operation is posted.
//!
//! # Context
//!
//! | function | context |
//! |---|---|
//! | [`Endpoint::admit`] | any for [`Context::Atomic`]; may sleep for [`Context::MaySleep`] |
//! | [`Admitted::start`] | any, also under a spin lock and in hard interrupts |
//! | [`Admitted::start_here`], [`Admitted::cancel`], drop | process, sleeps |
//!
//! Deferred work ([`work`](crate::provider::work)) is an admitted operation whose record says to
//! whom it reports.
//!
//! An owner that has to drop an operation where it may not sleep starts it instead, or leaves the
//! drop to a worker. The lock of the queue is a `spinlock_t`. So contexts that stay hard interrupts
//! with `PREEMPT_RT` (`IRQF_NO_THREAD`, timers with a hard mode, a raw spin lock) are not possible.

use kernel::alloc::Flags as AllocFlags;

use kfi_core::flags::CompFlags;

use super::{
    op::{
        Flags,
        Op, //
    },
    post::Origin,
    prelude::*,
    submit::{
        self,
        CALL_BUDGET, //
    }, //
};
use crate::{
    mem::Kept,
    provider::work::Deferral,
    shim::{
        errno::number,
        trace,
        work, //
    }, //
};

/// Bytes that the kernel's allocator adds to an entry and its record.
const OVERHEAD: usize = 128;

/// The flags of operations that cannot be deferred work.
const NOT_DEFERRED: OpFlags = OpFlags::MULTI_RECV
    .union(OpFlags::PEEK)
    .union(OpFlags::CLAIM)
    .union(OpFlags::DISCARD);

/// An admitted operation, as the submission queue has it.
pub(super) struct Entry {
    /// The next entry of its list.
    pub(super) next: Option<KBox<Entry>>,
    pub(super) endpoint: Charged,
    pub(super) op: Op<'static>,
    /// Memory for its error entry; `None` if its side has no CQ.
    pub(super) record: Option<Record>,
    origin: Origin,
    /// Memory of injected bytes that were copied where it cannot be released.
    _replaced: Kept,
}

// So that the allocator takes the entry from its cache for 256 bytes, and not from the next larger
// one.
kernel::static_assert!(size_of::<Entry>() <= 256);

/// The endpoint of an entry. Its owner is charged for the memory of the entry.
pub(super) struct Charged {
    endpoint: Arc<Endpoint>,
    bytes: u64,
}

impl Charged {
    /// Charges the owner of `endpoint`. Fails with `ENOMEM`. Any context.
    fn new(endpoint: &Arc<Endpoint>, bytes: u64) -> Result<Self> {
        endpoint.ident.budget.charge(bytes)?;
        Ok(Self {
            endpoint: endpoint.clone(),
            bytes,
        })
    }
}

impl core::ops::Deref for Charged {
    type Target = Arc<Endpoint>;

    #[inline]
    fn deref(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }
}

impl Drop for Charged {
    #[inline]
    fn drop(&mut self) {
        self.endpoint.ident.budget.uncharge(self.bytes);
    }
}

/// Whether an operation is admitted where the caller may sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// Process context without a spin lock. Allocations wait for memory.
    MaySleep,
    /// Any other context.
    Atomic,
}

impl Context {
    /// The flags of small allocations.
    pub(crate) fn alloc(self) -> AllocFlags {
        match self {
            Self::MaySleep => GFP_KERNEL_ACCOUNT,
            Self::Atomic => (GFP_KERNEL_ACCOUNT & !GFP_KERNEL) | GFP_ATOMIC,
        }
    }
}

/// An operation that has everything it needs to start. See the module documentation.
#[must_use = "a dropped operation has no completion"]
pub(crate) struct Admitted(KBox<Entry>);

impl Admitted {
    /// Starts the operation: a worker posts it after the operations that were started before. Any
    /// context.
    pub(crate) fn start(self) {
        let entry = self.0;
        trace::post(|| entry.trace_fields());
        let endpoint = Arc::clone(&entry.endpoint);
        submit::push(&endpoint, entry);
        endpoint.put();
    }

    /// Starts the operation, which is one of `endpoint`, and posts it in the caller's context, with
    /// the operations that were started before, until their bytes exceed `budget` or
    /// [`CALL_BUDGET`]. For the rest, if one of them finds no room, or if another task posts them,
    /// the worker goes on. Process context, sleeps.
    pub(crate) fn start_here(self, endpoint: &Arc<Endpoint>, budget: usize) {
        let entry = self.0;
        trace::post(|| entry.trace_fields());
        // If another task posts them, that task finds it, or wakes the worker.
        if let Some(run) = submit::push_and_begin(endpoint, entry) {
            let _ = Poster::new(endpoint).post_started(run, budget.min(CALL_BUDGET));
        }
    }

    /// The length of its local memory in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.op.len()
    }

    /// Whether it is an operation of `endpoint` with this context.
    pub(crate) fn is(&self, endpoint: &Endpoint, context: u64) -> bool {
        core::ptr::eq(&**self.0.endpoint, endpoint) && self.0.op.kind_and_context().1 == context
    }

    /// Completes the operation with ECANCELED instead of starting it. Process context, sleeps.
    pub(crate) fn cancel(self) {
        let endpoint = Arc::clone(&self.0.endpoint);
        let Some((_inside, bound)) = endpoint.enter() else {
            // A closed endpoint reports nothing.
            return;
        };
        endpoint.fail_admitted(bound, self.0, ECANCELED);
    }
}

impl Entry {
    /// The endpoint, the kind and the context of the operation, for a trace.
    fn trace_fields(&self) -> (u64, u32, u64) {
        let (kind, context) = self.op.kind_and_context();
        (self.endpoint.ident.fid, kind as u32, context)
    }
}

impl Endpoint {
    /// Admits an operation. It takes the memory out of `op`, unless it fails. With
    /// [`Context::Atomic`] it neither sleeps nor waits for memory, and can be called in any
    /// context.
    ///
    /// Fails with `KFI_EOPBADSTATE` if the endpoint is not enabled; `ENOMEM`, also if the owner's
    /// budget is used up; and with the errors of [`Poster::post`] that do not depend on the peer,
    /// the connection, or the room in a queue.
    pub(crate) fn admit(self: &Arc<Self>, op: &mut Op<'_>, context: Context) -> Result<Admitted> {
        self.admit_as(op, context, None)
    }

    /// Checks that operations of the endpoint can be triggered (KFI_TRIGGER). Fails with
    /// `EOPNOTSUPP` without the capability. Does not sleep.
    pub(crate) fn check_trigger(&self) -> Result {
        if !self.caps.contains(Caps::TRIGGER) {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    /// Checks that the endpoint belongs to `domain`. Fails with `EINVAL`. Does not sleep.
    pub(crate) fn check_domain(&self, domain: &Arc<Domain>) -> Result {
        if !Arc::ptr_eq(domain, self.domain.arc()) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// [`admit`](Self::admit) for a triggered operation. Sleeps.
    pub(crate) fn admit_waiting(self: &Arc<Self>, op: &mut Op<'_>) -> Result<Admitted> {
        self.admit_as(op, Context::MaySleep, None)
    }

    /// Admits a transfer of deferred work, which reports to `deferral` and waits in a tree of a
    /// counter. As [`admit`](Self::admit) with [`Context::MaySleep`]; also fails with `ENOSYS` for
    /// an operation that has more than one completion, or none by a counter, and for a receive of a
    /// shared context.
    pub(crate) fn admit_deferred(
        self: &Arc<Self>,
        op: &mut Op<'_>,
        deferral: Deferral,
    ) -> Result<Admitted> {
        self.admit_as(op, Context::MaySleep, Some(deferral))
    }

    fn admit_as(
        self: &Arc<Self>,
        op: &mut Op<'_>,
        context: Context,
        deferral: Option<Deferral>,
    ) -> Result<Admitted> {
        let Some((_inside, bound)) = self.enter() else {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        };
        let flags = self.check(bound, op)?;
        if deferral.is_some() && (self.is_srx || flags.intersects(NOT_DEFERRED)) {
            return Err(ENOSYS);
        }
        let bytes = (size_of::<Entry>() + OVERHEAD) as u64 + op.own_bytes(flags);
        let endpoint = Charged::new(self, bytes)?;
        let budget = &self.ident.budget;
        // The CQ of a receive of a shared context is known when the receive ends.
        let has_cq = self.is_srx || bound.cq(op.side()).is_some();
        let record = match (deferral, has_cq) {
            (Some(deferral), true) => Some(self.records.take(budget)?.with(deferral)),
            (Some(deferral), false) => Some(Record::without_memory(deferral)),
            (None, true) => Some(Record::new(budget, context.alloc())?),
            (None, false) => None,
        };
        let entry = KBox::new_uninit(context.alloc())?;
        // So the post need not charge them, which could fail.
        op.charge_lists(budget)?;
        // In `Context::Atomic` nothing may fail after this step: dropping its result may sleep.
        let replaced = op.own(flags, self.wire.is_some(), context == Context::MaySleep)?;
        let mut op = op.take();
        // The default flags of the endpoint may change before the start.
        op.set_flags(Flags {
            own: flags,
            explicit: true,
        });
        Ok(Admitted(KBox::write(
            entry,
            Entry {
                next: None,
                endpoint,
                op,
                record,
                origin: Origin::Started { turn: None },
                _replaced: match context {
                    Context::MaySleep => Kept::nothing(),
                    Context::Atomic => replaced,
                },
            },
        )))
    }

    /// Checks what can be checked before an operation starts, and returns its flags. Any context.
    fn check(&self, bound: &Bound, op: &Op<'_>) -> Result<OpFlags> {
        if let Op::Receive(op) = op {
            // The CQ of a receive of a shared context is not known, and the lock of its queues must
            // not be taken in any context.
            return match self.is_srx {
                true => self.receive_flags(op),
                false => self.check_receive(bound, op),
            };
        }
        if let Some(wire) = &self.wire {
            return wire.check(self, op);
        }
        match op {
            Op::Send(op) => self.check_send(op),
            Op::Read(op) => self.check_read(op),
            Op::Write(op) => self.check_write(op),
            Op::Atomic(op) => self.check_atomic(op),
            // Checked above.
            Op::Receive(_) => Err(EOPNOTSUPP),
        }
    }

    /// Completes an admitted operation with an error. Process context, sleeps.
    pub(super) fn fail_admitted(&self, bound: &Bound, entry: KBox<Entry>, error: Error) {
        let reporter = self.reporter();
        let bound = reporter.as_deref().unwrap_or(bound);
        let Entry { op, record, .. } = KBox::into_inner(entry);
        let (kind, context) = op.kind_and_context();
        let flags = self.flags_of(kind, op.flags());
        // Before the completion: a program that sees the completion finds the memory free.
        drop(op);
        let errno = Errno::from_number(number(error)).unwrap_or(Errno::EINVAL);
        let mut outcome = Outcome::failed(errno);
        if flags.contains(OpFlags::MULTI_RECV) {
            // The error is the release of the buffer, too.
            outcome.flags = CompFlags::MULTI_RECV;
        }
        let ticket = Ticket::of_admitted(kind, flags, context, record);
        if flags.contains(OpFlags::PEEK) {
            self.complete_uncounted(bound, ticket, outcome);
        } else {
            self.complete(bound, ticket, outcome);
        }
    }

    /// Drops a reference in any context. The worker drops the last one, because that sleeps.
    pub(super) fn put(self: Arc<Self>) {
        if let Some(last) = Arc::into_unique_or_drop(self) {
            // The queue takes it: an item that is queued already would have another reference.
            let queue = work::submit_queue(last.ident.owner.kind());
            let _ = queue.enqueue::<_, 0>(Arc::from(last));
        }
    }
}

impl Poster<'_> {
    /// Posts a started operation. With `EAGAIN`, `entry` is as before. Errors: see
    /// [`post`](Self::post). Sleeps.
    pub(super) fn post_admitted(&mut self, entry: &mut Entry) -> Result {
        // The poster has no record, and the origin of a call, before and after.
        core::mem::swap(&mut self.spare, &mut entry.record);
        core::mem::swap(&mut self.origin, &mut entry.origin);
        let result = self.run(&mut entry.op);
        core::mem::swap(&mut self.origin, &mut entry.origin);
        if self.spare.is_some() {
            core::mem::swap(&mut self.spare, &mut entry.record);
        }
        if result.is_ok() {
            // The operation reports its success in a credit, or failed without a ticket.
            if let Some(record) = entry.record.take() {
                self.endpoint.keep_record(record);
            }
        }
        result
    }
}
