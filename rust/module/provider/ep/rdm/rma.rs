// SPDX-License-Identifier: GPL-2.0

//! RMA: reading and writing a peer's memory.
//!
//! The peer's regions say what may be touched; its endpoint only says that RMA is allowed at all
//! and counts it. All pieces are checked before the first byte moves. Bytes move in the poster's
//! process, from or to pages that are pinned on both sides, inside the region, so that its owner
//! cannot close it meanwhile.
//!
//! What the peer does not allow is the operation's error, told by its completion, as it would be
//! over the wire: `EACCES`, and the same `prov_errno` whatever the reason ([`Refusal`]). To a peer on
//! another host it goes over the wire ([`remote`](super::remote)).

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

/// What both kinds of RMA have in common.
pub(super) struct Rma {
    pub(super) kind: OpType,
    pub(super) flags: OpFlags,
    pub(super) context: u64,
    pub(super) remote: Remote,
    pub(super) data: u64,
    pub(super) len: usize,
}

impl Rma {
    /// `EINVAL` the peer's memory has another length.
    fn check_remote(&self) -> Result {
        if self.remote.len() != Some(self.len as u64) {
            return Err(EINVAL);
        }
        Ok(())
    }
}

impl Endpoint {
    /// READ. See [`Poster::post`] for errors. Sleeps.
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

    /// WRITE. See [`Poster::post`] for errors. Sleeps.
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

    /// Moves the bytes of each remote piece with `transfer(offset of the piece, its memory)`, which
    /// has the local memory and is let go of before the operation completes.
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
            // It may fail when bytes have moved, and cannot be refused then.
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
                // Before the program sees it.
                self.ident.refused();
                self.fail_at_once(bound, ticket, Outcome::refused(refusal))
            }
        }
    }

    /// Does an RMA operation on this endpoint's domain, as the target.
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
            // Nothing may move if any piece is refused. What is checked here can only be refused
            // below if its owner closes the region in between.
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
            // The sum of all lengths is the length of a buffer.
            offset = offset.wrapping_add(piece.len as usize);
        }
        // All of it has succeeded: it counts once at each region, however many pieces lie there.
        for (index, piece) in pieces.iter().enumerate() {
            let before = pieces.get(..index).unwrap_or_default();
            if before.iter().all(|other| other.key != piece.key) {
                // Its owner may have closed it meanwhile.
                let _ = self.with_region(piece.key, |region| {
                    region.count(access.contains(Access::REMOTE_WRITE));
                    Ok(())
                });
            }
        }
        Ok(())
    }

    /// Runs `work` inside the region under `key`.
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
