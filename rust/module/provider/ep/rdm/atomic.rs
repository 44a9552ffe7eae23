// SPDX-License-Identifier: GPL-2.0

//! Atomics: changing a peer's memory atomically.
//!
//! An atomic to a peer on this host is executed by a function call in the poster's process, inside
//! the peer's region, like an RMA operation ([`rma`](super::rma)). An access that the peer does not
//! allow is an error of the operation. An atomic to a peer on another host goes over the network
//! ([`remote`](super::remote)).

use super::super::{
    op::Atomic,
    post::Peer,
    prelude::*, //
};
use crate::mem::atomic::Values;

impl Endpoint {
    /// ATOMIC, FETCH_ATOMIC, COMPARE_ATOMIC. Errors: see [`Poster::post`]. With `EAGAIN`, `op`
    /// still has its memory. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn atomic(
        self: &Arc<Self>,
        bound: &Bound,
        op: &mut Atomic<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let flags = self.check_atomic(op)?;
        match self.peer(bound, op.peer, &mut poster.last)? {
            Peer::Local(target) => self.atomic_here(bound, flags, op, target, &mut poster.spare),
            Peer::Remote(session) => {
                let session = session.clone();
                let spare = &mut poster.spare;
                let session = self.atomic_remote(bound, session, flags, op, spare)?;
                poster.queued_to(session);
                Ok(())
            }
        }
    }

    /// Executes an atomic at a peer on this host, and completes it. The local memory is released
    /// before. Sleeps.
    fn atomic_here(
        &self,
        bound: &Bound,
        flags: OpFlags,
        op: &mut Atomic<'_>,
        target: &Arc<Self>,
        spare: &mut Option<Record>,
    ) -> Result {
        let Some((_at_target, target_bound)) = target.enter() else {
            return Err(EHOSTUNREACH);
        };
        if flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let (kind, len) = (op.kind(), op.len() as u64);
        let mut ticket = self.ticket_at_once(bound, kind, flags, op.context, len, spare)?;
        let pieces = op.remote.pieces();
        if pieces.len() > 1 || op.len() > op.function.datatype().size() {
            // With several elements, some may have changed before the operation fails. It cannot be
            // refused then.
            self.keep(bound, &mut ticket, spare)?;
        }
        let values = Values {
            operand: &op.operand,
            compare: &op.compare,
            result: op.function.fetches().then_some(&op.result),
        };
        let executed = target.execute(&op.function, pieces, &values);
        op.release();
        match executed {
            Ok(()) => {
                target.complete_remote(target_bound, kind, flags, op.data, len);
                self.complete_transmit_at_once(bound, ticket);
                Ok(())
            }
            Err(refusal) => {
                target.domain.count_refusal();
                // Counted before the program sees the completion. The initiator causes no
                // contention.
                if refusal != kfi_core::mr::Refusal::Contention {
                    self.ident.refused();
                }
                self.fail_at_once(bound, ticket, Outcome::refused(refusal), spare)
            }
        }
    }
}
