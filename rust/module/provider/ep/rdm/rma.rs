// SPDX-License-Identifier: GPL-2.0

//! RMA: reading and writing a peer's memory.
//!
//! The peer's regions determine the bytes that may be accessed. The peer's endpoint only determines
//! whether RMA is allowed, and counts it. All pieces are checked before the first byte is copied.
//! Bytes are copied in the poster's process, between pages that are pinned on both sides. The copy
//! runs inside the region, so that a close by its owner waits for it.
//!
//! An access that the peer does not allow is an error of the operation, reported by its completion,
//! as over the network: `EACCES`, and the same `prov_errno` for all reasons ([`Refusal`]). An
//! operation to a peer on another host goes over the network ([`remote`](super::remote)).

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    flags::{
        Access,
        OpFlags, //
    },
    mr::Refusal,
    op::OpType, //
};

use super::super::{
    complete::Outcome,
    op::{
        Read,
        Remote,
        Write, //
    },
    post::{
        Peer,
        Poster, //
    },
    Bound,
    Endpoint, //
};
use crate::{
    mem::{
        self,
        MemRef, //
    },
    provider::mr::Mr, //
};

/// The common parameters of a READ and a WRITE.
pub(super) struct Rma {
    pub(super) kind: OpType,
    pub(super) flags: OpFlags,
    pub(super) context: u64,
    pub(super) remote: Remote,
    pub(super) data: u64,
    pub(super) len: usize,
}

impl Rma {
    /// Checks the length of the peer's memory. Fails with `EINVAL` if it differs from that of the
    /// local memory.
    fn check_remote(&self) -> Result {
        if self.remote.len() != Some(self.len as u64) {
            return Err(EINVAL);
        }
        Ok(())
    }
}

impl Endpoint {
    /// READ. Errors: see [`Poster::post`]. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn read(
        self: &Arc<Self>,
        bound: &Bound,
        op: Read,
        poster: &mut Poster<'_>,
    ) -> Result {
        let kind = OpType::Read;
        let into = op.into;
        let rma = Rma {
            kind,
            flags: self.checked_flags_of(kind, op.flags, into.len())?,
            context: op.context,
            remote: op.remote,
            data: 0,
            len: into.len(),
        };
        rma.check_remote()?;
        match self.peer(bound, op.peer, &mut poster.last)? {
            Peer::Here(target) => self.rma(bound, &rma, target, move |offset, theirs| {
                mem::copy_mem(&into.slice(offset, theirs.len()), theirs);
            }),
            Peer::There(session) => {
                let session = session.clone();
                let session = self.rma_remote(bound, session, rma, into)?;
                poster.queued_to(session);
                Ok(())
            }
        }
    }

    /// WRITE. Errors: see [`Poster::post`]. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn write(
        self: &Arc<Self>,
        bound: &Bound,
        op: Write<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let kind = OpType::Write;
        let from = op.from;
        let rma = Rma {
            kind,
            flags: self.checked_flags_of(kind, op.flags, from.len())?,
            context: op.context,
            remote: op.remote,
            data: op.data,
            len: from.len(),
        };
        rma.check_remote()?;
        match self.peer(bound, op.peer, &mut poster.last)? {
            Peer::Here(target) => self.rma(bound, &rma, target, move |offset, theirs| {
                mem::copy_part(theirs, &from, offset);
            }),
            Peer::There(session) => {
                let session = session.clone();
                let session = self.rma_remote(bound, session, rma, from.keep()?)?;
                poster.queued_to(session);
                Ok(())
            }
        }
    }

    /// Calls `transfer(offset of the piece, its memory)` for each remote piece, to copy its bytes.
    /// `transfer` owns the local memory and is dropped before the operation completes. Sleeps.
    fn rma(
        &self,
        bound: &Bound,
        rma: &Rma,
        target: &Arc<Self>,
        mut transfer: impl FnMut(usize, &MemRef),
    ) -> Result {
        let (Some(_at_target), Some(target_bound)) = (target.run.enter(), target.bound.as_ref())
        else {
            return Err(EHOSTUNREACH);
        };
        if rma.flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let len = rma.len as u64;
        let mut ticket = self.ticket_at_once(bound, rma.kind, rma.flags, rma.context, len)?;
        if rma.remote.pieces().len() > 1 {
            // The operation may fail after bytes were copied, and then it cannot be refused.
            self.keep(bound, &mut ticket)?;
        }
        let transferred = target.transfer_all(rma, &mut transfer);
        drop(transfer);
        match transferred {
            Ok(()) => {
                target.complete_remote(target_bound, rma.kind, rma.flags, rma.data, len);
                self.complete_transmit_at_once(bound, ticket);
                Ok(())
            }
            Err(refusal) => {
                target.domain.count_refusal();
                // Counted before the program sees the completion.
                self.ident.refused();
                self.fail_at_once(bound, ticket, Outcome::refused(refusal))
            }
        }
    }

    /// Copies the bytes of an RMA operation. `self` is the target.
    fn transfer_all(
        &self,
        rma: &Rma,
        transfer: &mut impl FnMut(usize, &MemRef),
    ) -> core::result::Result<(), Refusal> {
        if !self.caps.contains(rma.kind.target_caps()) {
            return Err(Refusal::Rights);
        }
        let access = rma.kind.target_access();
        let pieces = rma.remote.pieces();
        if pieces.len() > 1 {
            // No byte may be copied if any piece is refused. A piece that passes here is refused
            // below only if its owner closes the region in between.
            for piece in pieces {
                self.with_region(piece.key, |region| {
                    region.remote(piece.addr, piece.len, access).map(|_| ())
                })?;
            }
        }
        let mut offset = 0usize;
        for piece in pieces {
            self.with_region(piece.key, |region| {
                let memory = region.remote(piece.addr, piece.len, access)?;
                transfer(offset, &memory);
                Ok(())
            })?;
            // The sum of all lengths is the length of the local memory.
            offset = offset.wrapping_add(piece.len as usize);
        }
        // The whole operation has succeeded. It counts once at each region, however many pieces are
        // there.
        for (index, piece) in pieces.iter().enumerate() {
            let before = pieces.get(..index).unwrap_or_default();
            if before.iter().all(|other| other.key != piece.key) {
                // The owner may have closed the region meanwhile.
                let _ = self.with_region(piece.key, |region| {
                    region.count(access.contains(Access::REMOTE_WRITE));
                    Ok(())
                });
            }
        }
        Ok(())
    }

    /// Calls `work` inside the region under `key`.
    fn with_region(
        &self,
        key: u64,
        work: impl FnOnce(&Mr) -> core::result::Result<(), Refusal>,
    ) -> core::result::Result<(), Refusal> {
        let region = self.domain.region(key).ok_or(Refusal::Key)?;
        let result = match region.enter() {
            Some(_inside) => work(&region),
            None => Err(Refusal::Key),
        };
        // Its owner may have closed it meanwhile: the pages are the owner's to unpin, not this task's.
        Mr::let_go(region);
        result
    }
}
