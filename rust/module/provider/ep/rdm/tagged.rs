// SPDX-License-Identifier: GPL-2.0

//! Tagged RMA: reading and writing the memory of a tagged receive that the peer has posted.
//!
//! The operation matches the posted receives like a tagged message, by its source and its tag,
//! which is the key of its piece. Its address is an offset in the memory of the receive. It
//! completes the receive, whatever the length.
//!
//! It does not wait for a receive, as RMA does not wait for a region: without a matching one it
//! fails with `EREMOTEIO`, and nothing is left at the peer. If the memory from the offset on is
//! shorter than the operation, the bytes that it has are transferred, and both ends fail with
//! `EMSGSIZE`.
//!
//! An operation to a peer on another host goes over the network
//! ([`remote::tagged`](super::remote)).

use kfi_core::{
    matching::Envelope,
    op::TaggedRma, //
};

use super::{
    super::{
        op::{
            Remote,
            RemoteRange, //
        },
        prelude::*, //
    },
    rma::{
        Local,
        Rma, //
    }, //
};

/// The tag and the access of a READ or WRITE with KFI_TAGGED. Fails with `EINVAL` for more than one
/// piece, or for an offset that no receive can have.
pub(super) fn access(kind: OpType, remote: &Remote) -> Result<(u64, TaggedRma)> {
    let [RemoteRange { addr, key, .. }] = remote.pieces() else {
        return Err(EINVAL);
    };
    Ok((*key, TaggedRma::new(kind, *addr).map_err(to_error)?))
}

impl Endpoint {
    /// Copies the bytes of an operation with a peer on this host, and completes both sides. The
    /// local memory is released before. Fails with `EHOSTUNREACH`, `EAGAIN`, `ENOMEM`. Sleeps.
    #[inline(never)]
    pub(super) fn tagged_rma(
        &self,
        bound: &Bound,
        rma: &Rma<'_>,
        target: &Arc<Self>,
        local: Local<'_, '_>,
        spare: &mut Option<Record>,
    ) -> Result {
        let (tag, access) = access(rma.kind, rma.remote)?;
        let Some((_at_target, target_bound)) = target.enter() else {
            return Err(EHOSTUNREACH);
        };
        if rma.flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let len = rma.len as u64;
        let mut ticket =
            self.ticket_at_once(bound, rma.kind, rma.flags, rma.context, len, spare)?;
        // The operation may fail after bytes were copied, and then it cannot be refused.
        self.keep(bound, &mut ticket, spare)?;
        let message = Message {
            tagged: true,
            envelope: Envelope {
                src: bound.source,
                tag,
            },
            data: rma
                .flags
                .contains(OpFlags::REMOTE_CQ_DATA)
                .then_some(rma.data),
            len,
            rma: Some(access),
        };
        let Some(matched) = target.take_for_rma(&message, access) else {
            local.release();
            self.complete(bound, ticket, Outcome::failed(Errno::EREMOTEIO));
            return Ok(());
        };
        let fit = matched.fit(len);
        target.place_by(target_bound, matched, &message, |theirs| {
            // Not longer than the receive.
            local.copy(0, &theirs.slice(0, fit.len as usize));
        });
        local.release();
        if fit.olen > 0 {
            self.complete(bound, ticket, Outcome::failed(Errno::EMSGSIZE));
        } else {
            self.complete_transmit(bound, ticket);
        }
        Ok(())
    }
}
