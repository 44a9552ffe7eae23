// SPDX-License-Identifier: GPL-2.0

//! Tickets: the right of an operation to report its completion.
//!
//! An accepted operation has a [`Ticket`], which is taken before the operation does anything else,
//! so that its completion can always be reported. The content of a ticket depends on how the
//! operation can end:
//!
//! ```text
//!   its success makes an entry        a credit: room for one entry in the CQ of its side
//!   silent, and it may be kept        a record: memory for an error entry
//!   silent, and it ends in its call   nothing; before it fails, it gets one of these or is refused
//!   its side has no CQ                nothing; counters count it
//!   deferred work                     a record that says to whom it reports
//!   a receive of a shared context     a place that the queue has reserved (receive/shared.rs)
//! ```
//!
//! A completion ([`complete`](super::complete)) uses the ticket up. The ticket is given back if the
//! operation is refused after all, or its endpoint closes.

use kfi_core::{
    flags::CompFlags,
    op::{
        self,
        TaggedRma, //
    }, //
};

use super::{
    bound::CqBinding,
    prelude::*, //
};
use crate::provider::cq::Credit;

/// The means of an operation to make an entry in the CQ of its side.
pub(super) enum ReservedRoom {
    /// Room for an entry or an error entry.
    Credit(Credit),
    /// Memory for an error entry. Deferred work: also the counter that it reports to, and the
    /// credit if it makes an entry.
    Record(Record),
    /// A place in the CQ of the endpoints that use a shared receive context, if they have one.
    /// [`Endpoint::take_from_pool`] turns it into a credit.
    Pool,
    /// Nothing: there is no CQ, or the operation ends without error before its call returns.
    None,
}

/// The right of one operation to be reported.
pub(super) struct Ticket {
    pub(super) kind: OpType,
    /// Whether success makes an entry; errors always do.
    pub(super) report: bool,
    /// Whether it is tagged RMA.
    pub(super) tagged: bool,
    pub(super) context: u64,
    pub(super) len: u64,
    pub(super) reserved: ReservedRoom,
}

impl Ticket {
    /// The flags of its completion, for success and error.
    #[inline(always)]
    pub(super) fn comp_flags(&self) -> CompFlags {
        let flags = self.kind.comp_flags(false);
        if self.tagged {
            return flags.union(TaggedRma::COMP_FLAGS);
        }
        flags
    }

    /// The ticket of an admitted operation that fails before it is posted.
    pub(super) fn of_admitted(
        kind: OpType,
        flags: OpFlags,
        context: u64,
        record: Option<Record>,
    ) -> Self {
        Self {
            kind,
            report: false,
            tagged: flags.contains(OpFlags::TAGGED),
            context,
            len: 0,
            reserved: record.map_or(ReservedRoom::None, ReservedRoom::Record),
        }
    }

    /// Counts the success of deferred work that only its counter reports, as most is. Returns
    /// whether it is such work. Does not sleep.
    #[inline(always)]
    pub(super) fn count_deferred(&mut self) -> bool {
        let ReservedRoom::Record(record) = &mut self.reserved else {
            return false;
        };
        match record.deferral() {
            Some(deferral) if !deferral.report => {
                deferral.count(true);
                true
            }
            _ => false,
        }
    }
}

impl Bound {
    #[inline]
    pub(super) fn cq(&self, side: Side) -> Option<&CqBinding> {
        match side {
            Side::Transmit => self.tx_cq.as_ref(),
            Side::Receive => self.rx_cq.as_ref(),
        }
    }
}

impl Endpoint {
    /// Takes a ticket for an operation that may be kept after its call returns. `spare` is a record
    /// that is used before others, if there is one. Fails with `EAGAIN` if the CQ has no room for
    /// its entry, `ENOMEM`. Sleeps.
    #[inline(always)]
    pub(super) fn ticket(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        context: u64,
        len: u64,
        spare: &mut Option<Record>,
    ) -> Result<Ticket> {
        let mut ticket = self.ticket_at_once(bound, kind, flags, context, len, spare)?;
        self.keep(bound, &mut ticket, spare)?;
        Ok(ticket)
    }

    /// [`ticket`](Self::ticket) for an operation that ends before its call returns. If it does not,
    /// the caller calls [`keep`](Self::keep). Fails with `EAGAIN` if the CQ has no room for its
    /// entry. Does not sleep.
    #[inline(always)]
    pub(super) fn ticket_at_once(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        context: u64,
        len: u64,
        spare: &mut Option<Record>,
    ) -> Result<Ticket> {
        if spare.as_ref().is_some_and(Record::is_deferred) {
            let tagged = flags.contains(OpFlags::TAGGED);
            return self.deferred_ticket(bound, kind, tagged, context, len, spare);
        }
        let mut ticket = Ticket {
            kind,
            report: false,
            tagged: flags.contains(OpFlags::TAGGED),
            context,
            len,
            reserved: ReservedRoom::None,
        };
        if let Some(binding) = bound.cq(kind.side()) {
            ticket.report = op::reports_success(flags, binding.selective);
            // The release of a multi-receive buffer is always reported.
            if ticket.report || flags.contains(OpFlags::MULTI_RECV) {
                ticket.reserved = ReservedRoom::Credit(binding.cq.reserve()?);
            }
        }
        Ok(ticket)
    }

    /// The ticket of deferred work, whose record is `spare`. Fails with `EAGAIN` if the CQ has no
    /// room for an entry that it makes. Does not sleep.
    #[cold]
    fn deferred_ticket(
        &self,
        bound: &Bound,
        kind: OpType,
        tagged: bool,
        context: u64,
        len: u64,
        spare: &mut Option<Record>,
    ) -> Result<Ticket> {
        if let Some(deferral) = spare.as_mut().and_then(Record::deferral) {
            if let (true, Some(binding)) = (deferral.report, bound.cq(kind.side())) {
                deferral.credit = Some(binding.cq.reserve()?);
            }
        }
        Ok(Ticket {
            kind,
            // It does not complete as an operation that is silent.
            report: true,
            tagged,
            context,
            len,
            reserved: match spare.take() {
                Some(record) => ReservedRoom::Record(record),
                None => ReservedRoom::None,
            },
        })
    }

    /// Prepares a ticket for the failure of its operation, and for being kept after the call
    /// returns. Fails with `ENOMEM`; the caller then refuses the operation. Sleeps.
    #[inline(always)]
    pub(super) fn keep(
        &self,
        bound: &Bound,
        ticket: &mut Ticket,
        spare: &mut Option<Record>,
    ) -> Result {
        match ticket.reserved {
            ReservedRoom::None => self.keep_silent(bound, ticket, spare),
            _ => Ok(()),
        }
    }

    /// [`keep`](Self::keep), for a ticket without room.
    #[inline(never)]
    fn keep_silent(
        &self,
        bound: &Bound,
        ticket: &mut Ticket,
        spare: &mut Option<Record>,
    ) -> Result {
        if bound.cq(ticket.kind.side()).is_some() {
            let record = match spare.take() {
                Some(record) => record,
                None => self.records.take(&self.ident.budget)?,
            };
            ticket.reserved = ReservedRoom::Record(record);
        }
        Ok(())
    }

    /// Keeps an unused record for another operation. Process context, does not sleep.
    pub(super) fn keep_record(&self, record: Record) {
        self.records.put(record);
    }

    /// Gives back the ticket of an operation that is refused in its call. Nothing is reported. A
    /// record becomes the `spare` one again, for the next attempt. Does not sleep.
    #[inline]
    pub(super) fn refuse(&self, bound: &Bound, ticket: Ticket, spare: &mut Option<Record>) {
        match ticket.reserved {
            ReservedRoom::Record(mut record) => {
                self.give_back_credit(bound, ticket.kind, &mut record);
                *spare = Some(record);
            }
            _ => self.give_back(bound, ticket),
        }
    }

    /// Gives back the credit of deferred work, if it has one. Does not sleep.
    pub(super) fn give_back_credit(&self, bound: &Bound, kind: OpType, record: &mut Record) {
        let credit = record
            .deferral()
            .and_then(|deferral| deferral.credit.take());
        if let (Some(binding), Some(credit)) = (bound.cq(kind.side()), credit) {
            binding.cq.unreserve(credit);
        }
    }

    /// Gives back the ticket of an operation that ends without a report. Does not sleep.
    pub(super) fn give_back(&self, bound: &Bound, mut ticket: Ticket) {
        if let ReservedRoom::Pool = ticket.reserved {
            if self.srx.as_ref().is_some() {
                return self.fail_taken(bound, ticket);
            }
            self.take_from_pool(bound, &mut ticket);
        }
        match (bound.cq(ticket.kind.side()), ticket.reserved) {
            (Some(binding), ReservedRoom::Credit(credit)) => binding.cq.unreserve(credit),
            (_, ReservedRoom::Record(mut record)) => {
                self.give_back_credit(bound, ticket.kind, &mut record);
                self.records.put(record);
            }
            _ => {}
        }
    }
}
