// SPDX-License-Identifier: GPL-2.0

//! Completion of operations.
//!
//! Every operation, local or of a peer, ends in a function of this file, mostly in
//! [`Endpoint::complete`]. Only this file reports to CQs, counters and completion counters; they
//! signal the wait objects. A completion uses the [`Ticket`] of the operation up.
//!
//! Completions that belong to no posted operation (remote CQ data of a write, the parts of a
//! multi-receive buffer) have no ticket. If such an entry finds no room, the CQ counts an overrun.

use kfi_core::{
    cq::{
        Entry,
        ErrEntry, //
    },
    flags::{
        CntrBind,
        CompCntrOps,
        CompFlags,
        KFI_ADDR_NOTAVAIL, //
    },
    mr::Refusal, //
};

use super::{
    bound::CqBinding,
    prelude::*,
    ticket::ReservedRoom, //
};
use crate::{
    provider::cq::Credit,
    shim::trace, //
};

/// The result of an operation, in addition to the content of its ticket.
pub(super) struct Outcome {
    /// Flags besides those of the operation's kind.
    pub(super) flags: CompFlags,
    /// Bytes placed by a receive; otherwise 0.
    pub(super) len: u64,
    /// Address of the bytes of a multi-receive buffer's part; otherwise 0.
    pub(super) buf: u64,
    /// Remote CQ data, if the flags have KFI_REMOTE_CQ_DATA.
    pub(super) data: u64,
    /// The tag of a received message.
    pub(super) tag: u64,
    /// The source address of a received message.
    pub(super) src: u64,
    /// The error, if the operation failed.
    pub(super) error: Option<Failure>,
}

/// The error of an operation.
#[derive(Clone, Copy)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    /// The provider's own error number (`prov_errno`); 0: none.
    pub(super) prov_errno: u32,
    /// Bytes of the message that did not fit.
    pub(super) olen: u64,
}

impl Outcome {
    /// Success of an operation; `len` are the bytes that a receive placed.
    pub(super) const fn done(len: u64) -> Self {
        Self {
            flags: CompFlags::EMPTY,
            len,
            buf: 0,
            data: 0,
            tag: 0,
            src: KFI_ADDR_NOTAVAIL,
            error: None,
        }
    }

    /// Failure of an operation that moved no bytes. `prov_errno` is 0 for none.
    pub(super) const fn failed_with(errno: Errno, prov_errno: u32) -> Self {
        let mut outcome = Self::done(0);
        outcome.error = Some(Failure {
            errno,
            prov_errno,
            olen: 0,
        });
        outcome
    }

    /// Failure of an operation that moved no bytes.
    pub(super) const fn failed(errno: Errno) -> Self {
        Self::failed_with(errno, 0)
    }

    /// Failure because the target refused access to its memory.
    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self::failed_with(refusal.errno(), prov_errno::REFUSED)
    }

    /// The entry of a write with CQ data at its target.
    fn remote_data(data: u64, flags: CompFlags) -> Entry {
        // fi_cq(3): `len` is for receives only.
        let outcome = Self {
            data,
            ..Self::done(0)
        };
        outcome.entry(0, flags)
    }

    #[inline(always)]
    fn entry(&self, context: u64, flags: CompFlags) -> Entry {
        Entry {
            op_context: context,
            flags: flags.union(self.flags).bits(),
            len: self.len,
            buf: self.buf,
            data: self.data,
            tag: self.tag,
            src_addr: self.src,
            reserved: 0,
        }
    }

    fn err_entry(&self, context: u64, flags: CompFlags, failure: Failure) -> ErrEntry {
        ErrEntry {
            op_context: context,
            flags: flags.union(self.flags).bits(),
            len: self.len,
            buf: self.buf,
            data: self.data,
            tag: self.tag,
            olen: failure.olen,
            src_addr: self.src,
            err: failure.errno.number(),
            prov_errno: failure.prov_errno,
        }
    }
}

impl Endpoint {
    /// Completes an operation. Does not sleep.
    pub(super) fn complete(&self, bound: &Bound, mut ticket: Ticket, outcome: Outcome) {
        if outcome.error.is_none() && ticket.count_deferred() {
            return self.complete_counted(ticket, outcome.len);
        }
        if matches!(&ticket.reserved, ReservedRoom::Record(record) if record.is_deferred()) {
            return self.complete_deferred(bound, ticket, outcome);
        }
        // A program that has read the entry knows that the operation has completed, so the counter
        // must not lag behind (kfi_cntr(3)).
        self.count_completion(bound, &ticket, &outcome);
        self.complete_uncounted(bound, ticket, outcome);
    }

    /// Counts an operation on the counters of the endpoint and on the completion counters that are
    /// attached to it. Does not sleep.
    #[inline(always)]
    fn count_completion(&self, bound: &Bound, ticket: &Ticket, outcome: &Outcome) {
        let (kind, success) = (ticket.kind, outcome.error.is_none());
        self.count(bound, kind.counts(), success);
        self.count_attached(bound, || {
            let len = match kind.side() {
                Side::Transmit => ticket.len,
                Side::Receive => outcome.len,
            };
            (kind.comp_cntr_op(), success, len)
        });
    }

    /// Completes deferred work that has succeeded and makes no entry, and that was counted. Does
    /// not sleep.
    #[inline(always)]
    fn complete_counted(&self, ticket: Ticket, len: u64) {
        self.trace(ticket.context, len, None);
        if let ReservedRoom::Record(record) = ticket.reserved {
            self.records.put(record);
        }
        // See `complete_uncounted`.
        self.submission.kick();
    }

    /// Completes deferred work: on its completion counter and, with KFI_COMPLETION, as any
    /// operation. A failure always makes an error entry. Does not sleep.
    #[cold]
    fn complete_deferred(&self, bound: &Bound, mut ticket: Ticket, outcome: Outcome) {
        let deferral = match &mut ticket.reserved {
            ReservedRoom::Record(record) => record.take_deferral(),
            _ => None,
        };
        let Some(mut deferral) = deferral else {
            return;
        };
        let success = outcome.error.is_none();
        // Before the entry, as in `complete`.
        if deferral.report {
            self.count_completion(bound, &ticket, &outcome);
        }
        deferral.count(success);
        let ticket = match deferral.into_credit() {
            Some(credit) => Ticket {
                reserved: ReservedRoom::Credit(credit),
                ..ticket
            },
            None => ticket,
        };
        self.complete_uncounted(bound, ticket, outcome);
    }

    /// Completes an operation that no counter counts: a search for a message that received none.
    /// Does not sleep.
    pub(super) fn complete_uncounted(&self, bound: &Bound, mut ticket: Ticket, outcome: Outcome) {
        if let ReservedRoom::Pool = ticket.reserved {
            self.take_from_pool(bound, &mut ticket);
        }
        self.trace(ticket.context, outcome.len, outcome.error.as_ref());
        if let Some(binding) = bound.cq(ticket.kind.side()) {
            self.report(binding, ticket, outcome);
        }
        // The operation has left room for a started one that waits for it.
        self.submission.kick();
    }

    /// Reports a completion to the CQ of its side. Does not sleep.
    #[inline(always)]
    fn report(&self, binding: &CqBinding, ticket: Ticket, outcome: Outcome) {
        let flags = ticket.comp_flags();
        match (outcome.error, ticket.reserved) {
            (None, ReservedRoom::Credit(credit)) if ticket.report => {
                let entry = outcome.entry(ticket.context, flags);
                binding.cq.push(credit, &entry);
            }
            (None, ReservedRoom::Credit(credit)) => binding.cq.unreserve(credit),
            (None, ReservedRoom::Record(record)) => self.records.put(record),
            (None, ReservedRoom::None | ReservedRoom::Pool) => {}
            (Some(failure), reserved) => {
                let entry = outcome.err_entry(ticket.context, flags, failure);
                match reserved {
                    ReservedRoom::Credit(credit) => binding.cq.push_err(credit, &entry),
                    ReservedRoom::Record(record) => binding.cq.push_err_recorded(record, &entry),
                    // `keep` prepares a ticket before its operation fails, so this case is a bug.
                    // If the error entry finds no room, it is counted as an overrun.
                    ReservedRoom::None | ReservedRoom::Pool => {
                        kernel::warn_on!(true);
                        binding.cq.push_err_unposted(&entry);
                    }
                }
            }
        }
    }

    /// Completes an operation that is reported even if its success is silent: the release of a
    /// multi-receive buffer. Does not sleep.
    pub(super) fn complete_reported(&self, bound: &Bound, mut ticket: Ticket, outcome: Outcome) {
        ticket.report = true;
        self.complete(bound, ticket, outcome);
    }

    /// Reports the release of a multi-receive buffer with an entry of its own that belongs to no
    /// message. By fi_cq(3) its only flag is KFI_MULTI_RECV. No counter counts it. Does not sleep.
    pub(super) fn release(&self, bound: &Bound, mut ticket: Ticket) {
        if let ReservedRoom::Pool = ticket.reserved {
            self.take_from_pool(bound, &mut ticket);
        }
        if let (Some(binding), ReservedRoom::Credit(credit)) =
            (bound.cq(ticket.kind.side()), ticket.reserved)
        {
            let entry = Outcome::done(0).entry(ticket.context, CompFlags::MULTI_RECV);
            binding.cq.push(credit, &entry);
        }
    }

    /// Completes a successful transmit. Does not sleep.
    pub(super) fn complete_transmit(&self, bound: &Bound, mut ticket: Ticket) {
        let len = ticket.len;
        self.count_tx(len);
        if ticket.count_deferred() {
            return self.complete_counted(ticket, 0);
        }
        // fi_cq(3): `len` is for receives only.
        self.complete(bound, ticket, Outcome::done(0));
    }

    /// [`complete_transmit`](Self::complete_transmit) for a transmit that ends within its call.
    /// Does not sleep.
    #[inline(always)]
    pub(super) fn complete_transmit_at_once(&self, bound: &Bound, ticket: Ticket) {
        if ticket.report {
            return self.complete_transmit(bound, ticket);
        }
        self.trace(ticket.context, ticket.len, None);
        self.count_tx(ticket.len);
        self.count(bound, ticket.kind.counts(), true);
        self.count_attached(bound, || (ticket.kind.comp_cntr_op(), true, ticket.len));
    }

    /// Completes an operation with an error before its call returns and before any bytes have
    /// moved. Fails with `ENOMEM`; the operation is then refused, and the error is not reported.
    /// Sleeps.
    #[cold]
    pub(super) fn fail_at_once(
        &self,
        bound: &Bound,
        mut ticket: Ticket,
        outcome: Outcome,
        spare: &mut Option<Record>,
    ) -> Result {
        if let (Some(binding), ReservedRoom::None) =
            (bound.cq(ticket.kind.side()), &ticket.reserved)
        {
            if let Ok(credit) = binding.cq.reserve() {
                ticket.reserved = ReservedRoom::Credit(credit);
            }
        }
        self.keep(bound, &mut ticket, spare)?;
        self.complete(bound, ticket, outcome);
        Ok(())
    }

    /// Completes a part of a multi-receive buffer that is not the last one. Does not sleep.
    #[inline(always)]
    pub(super) fn complete_part(&self, bound: &Bound, context: u64, report: bool, part: Outcome) {
        self.trace(context, part.len, part.error.as_ref());
        // Before the entry, as in `complete`.
        let success = part.error.is_none();
        self.count(bound, CntrBind::RECV, success);
        self.count_attached(bound, || (CompCntrOps::RECV, success, part.len));
        if let Some(binding) = &bound.rx_cq {
            let flags = OpType::Recv.comp_flags(false);
            match part.error {
                // Those of a shared receive context do not know whether the CQ is selective.
                None if report || !binding.selective => {
                    binding.cq.push_unposted(&part.entry(context, flags));
                }
                None => {}
                Some(failure) => {
                    let entry = part.err_entry(context, flags, failure);
                    binding.cq.push_err_unposted(&entry);
                }
            }
        }
    }

    /// Reports an RMA operation at its target: to the counters, and to the CQ if the operation
    /// brought data. Does not sleep.
    pub(super) fn complete_remote(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        data: u64,
        len: u64,
    ) {
        self.count_rx(len);
        // Before the entry, as in `complete`.
        self.count(bound, kind.counts_at_target(), true);
        self.count_attached(bound, || (kind.comp_cntr_op_at_target(), true, len));
        if let Some(comp_flags) = kind.target_comp_flags(flags) {
            self.count_immediate(bound);
            if let Some(binding) = &bound.rx_cq {
                // If the CQ has no room, it counts an overrun.
                let entry = Outcome::remote_data(data, comp_flags);
                binding.cq.push_unposted(&entry);
            }
        }
    }

    #[inline(always)]
    fn trace(&self, context: u64, len: u64, failure: Option<&Failure>) {
        trace::complete(|| {
            let error = failure.map_or(0, |failure| failure.errno.number());
            (self.ident.fid, context, len, error)
        });
    }

    /// Reports the data of a write at its target, with a credit of the CQ if there is a CQ. Does
    /// not sleep.
    pub(super) fn complete_remote_data(&self, bound: &Bound, credit: Option<Credit>, data: u64) {
        // Before the entry, as in `complete`.
        self.count_immediate(bound);
        if let (Some(credit), Some(binding), Some(flags)) = (
            credit,
            bound.cq(Side::Receive),
            OpType::Write.target_comp_flags(OpFlags::REMOTE_CQ_DATA),
        ) {
            binding.cq.push(credit, &Outcome::remote_data(data, flags));
        }
    }

    #[inline(always)]
    fn count(&self, bound: &Bound, what: CntrBind, success: bool) {
        if let Some(counter) = bound.counters.get(what) {
            if success {
                counter.add(1);
            } else {
                counter.adderr(1);
            }
        }
    }

    /// Counts an operation on the completion counter that is attached for it. `ended` returns the
    /// operation, one or none, whether it succeeded, and its bytes. Most endpoints have no
    /// completion counters, so it is called only if there are some.
    #[inline(always)]
    fn count_attached(&self, bound: &Bound, ended: impl FnOnce() -> (CompCntrOps, bool, u64)) {
        if let Some(attached) = &bound.attached {
            let (op, success, len) = ended();
            attached.count(op, success, len);
        }
    }

    /// Counts immediate data on the completion counter of receives. Verbs receives it with a work
    /// request, which receives no bytes. It takes no receive here, so no other counter counts it.
    #[inline(always)]
    fn count_immediate(&self, bound: &Bound) {
        self.count_attached(bound, || (CompCntrOps::RECV, true, 0));
    }
}
