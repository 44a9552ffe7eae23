// SPDX-License-Identifier: GPL-2.0

//! The last step of a receive: the bytes of the message that it matched are placed, and it
//! completes.

use kfi_core::{
    flags::{
        CompFlags,
        KFI_ADDR_NOTAVAIL, //
    },
    matching::Placement, //
};

use super::{
    super::{
        complete::Failure,
        multi_recv::{
            End,
            MultiBuffer, //
        },
        prelude::*, //
    },
    MatchedReceive, //
};
use crate::mem;

impl Endpoint {
    /// Places the bytes of a message and completes its receive. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn place(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: &Message,
        from: &Source<'_>,
    ) {
        self.place_at_once(bound, matched, message, from);
    }

    /// [`place`](Self::place), inlined for the path of most messages.
    #[inline(always)]
    pub(in crate::provider::ep) fn place_at_once(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: &Message,
        from: &Source<'_>,
    ) {
        self.place_by(bound, matched, message, |into| {
            mem::copy(into, from);
        });
    }

    /// Calls `put` to place a message, and completes its receive. Sleeps.
    #[inline(always)]
    pub(in crate::provider::ep) fn place_by(
        &self,
        bound: &Bound,
        matched: MatchedReceive,
        message: &Message,
        put: impl FnOnce(&MemRef),
    ) {
        match matched {
            MatchedReceive::Single(single) => {
                let fit = Placement::new(message.len, single.into.len() as u64);
                put(&single.into);
                let outcome = self.outcome(bound, message, fit, 0);
                self.count_rx(fit.len);
                self.complete(bound, single.into_ticket(), outcome);
            }
            MatchedReceive::Part(buffer, part, memory) => {
                let fit = part.placement;
                put(&memory);
                drop(memory);
                let at = buffer.address(part.offset);
                let outcome = self.outcome(bound, message, fit, at);
                self.count_rx(fit.len);
                self.complete_multi(bound, &buffer, outcome);
            }
        }
    }

    /// Completes a part of a multi-receive buffer, and releases the buffer with its last one.
    /// Sleeps.
    #[inline(always)]
    pub(super) fn complete_multi(&self, bound: &Bound, buffer: &MultiBuffer, mut outcome: Outcome) {
        buffer.finish(|end| match end {
            End::Part => {
                self.complete_part(bound, buffer.context, buffer.reports, outcome);
            }
            End::Last(ticket) => {
                outcome.flags |= CompFlags::MULTI_RECV;
                self.complete_reported(bound, ticket, outcome);
            }
            End::LastOfCancelled(ticket) => {
                self.complete_part(bound, buffer.context, buffer.reports, outcome);
                self.complete(bound, ticket, cancelled_buffer());
            }
        });
    }

    /// The outcome of the receive of a message. `buf`: the address of a part of a multi-receive
    /// buffer.
    #[inline(always)]
    pub(super) fn outcome(
        &self,
        bound: &Bound,
        message: &Message,
        fit: Placement,
        buf: u64,
    ) -> Outcome {
        let flags = match message.data {
            Some(_) => CompFlags::REMOTE_CQ_DATA,
            None => CompFlags::EMPTY,
        };
        Outcome {
            flags: flags | message.comp_flags(),
            len: fit.len,
            buf,
            data: message.data.unwrap_or(0),
            tag: message.envelope.tag,
            src: self.source(bound, &message.envelope.src),
            error: fit.status().err().map(|errno| Failure {
                // Both ends of tagged RMA have the same error.
                errno: message.rma.map_or(errno, |_| Errno::EMSGSIZE),
                prov_errno: 0,
                olen: fit.olen,
            }),
        }
    }

    /// The number of a message's sender in the AV, if the endpoint tells sources.
    #[inline(always)]
    pub(super) fn source(&self, bound: &Bound, addr: &SockAddr) -> u64 {
        match &bound.av {
            Some(av) if self.caps.contains(Caps::SOURCE) => av.source(addr),
            _ => KFI_ADDR_NOTAVAIL,
        }
    }
}

/// The outcome of a multi-receive buffer that was cancelled.
pub(super) fn cancelled_buffer() -> Outcome {
    let mut outcome = Outcome::failed(Errno::ECANCELED);
    outcome.flags = CompFlags::MULTI_RECV;
    outcome
}
