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

use kfi_core::{
    flags::Access,
    mr::Refusal, //
};

use super::super::{
    op::{
        Flags,
        Read,
        Remote,
        Write, //
    },
    post::Peer,
    prelude::*, //
};
use super::tagged;
use crate::mem;

/// The common parameters of a READ and a WRITE.
pub(super) struct Rma<'a> {
    pub(super) kind: OpType,
    pub(super) flags: OpFlags,
    pub(super) context: u64,
    /// A refused operation leaves the pieces here.
    pub(super) remote: &'a mut Remote,
    pub(super) data: u64,
    pub(super) len: usize,
}

/// The local memory of an operation.
pub(super) enum Local<'a, 'b> {
    /// The destination of a READ.
    Into(&'a mut MemRef),
    /// The bytes of a WRITE.
    From(&'a mut Source<'b>),
}

impl Local<'_, '_> {
    /// Copies the bytes of a piece, from or to byte `offset` on.
    #[inline(always)]
    pub(super) fn copy(&self, offset: usize, theirs: &MemRef) {
        match self {
            Self::Into(into) => {
                mem::copy_mem(&into.slice(offset, theirs.len()), theirs);
            }
            Self::From(from) => {
                mem::copy_part(theirs, from, offset);
            }
        }
    }

    /// Drops the reference to the memory. May sleep.
    #[inline(always)]
    pub(super) fn release(self) {
        match self {
            Self::Into(into) => drop(into.take()),
            Self::From(from) => from.release(),
        }
    }
}

impl Endpoint {
    /// Checks a READ and returns its flags. Fails with `EINVAL` if the lengths of both sides
    /// differ, or tagged RMA has more than one piece or an offset that no receive can have;
    /// `EOPNOTSUPP`, `EMSGSIZE`. Does not sleep.
    pub(in crate::provider::ep) fn check_read(&self, op: &Read) -> Result<OpFlags> {
        self.check_rma(OpType::Read, op.flags, op.into.len(), &op.remote)
    }

    /// Checks a WRITE and returns its flags. Errors and context as for a READ.
    #[inline]
    pub(in crate::provider::ep) fn check_write(&self, op: &Write<'_>) -> Result<OpFlags> {
        self.check_rma(OpType::Write, op.flags, op.from.len(), &op.remote)
    }

    #[inline(always)]
    fn check_rma(
        &self,
        kind: OpType,
        flags: Flags,
        len: usize,
        remote: &Remote,
    ) -> Result<OpFlags> {
        let flags = self.checked_flags_of(kind, flags, len)?;
        if remote.len() != Some(len as u64) {
            return Err(EINVAL);
        }
        if flags.contains(OpFlags::TAGGED) {
            tagged::access(kind, remote)?;
        }
        Ok(flags)
    }

    /// READ. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its memory. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn read(
        self: &Arc<Self>,
        bound: &Bound,
        op: &mut Read,
        poster: &mut Poster<'_>,
    ) -> Result {
        let rma = Rma {
            kind: OpType::Read,
            flags: self.check_read(op)?,
            context: op.context,
            remote: &mut op.remote,
            data: 0,
            len: op.into.len(),
        };
        self.post_rma(bound, op.peer, rma, Local::Into(&mut op.into), poster)
    }

    /// WRITE. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its bytes. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn write(
        self: &Arc<Self>,
        bound: &Bound,
        op: &mut Write<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let rma = Rma {
            kind: OpType::Write,
            flags: self.check_write(op)?,
            context: op.context,
            remote: &mut op.remote,
            data: op.data,
            len: op.from.len(),
        };
        self.post_rma(bound, op.peer, rma, Local::From(&mut op.from), poster)
    }

    #[inline(always)]
    fn post_rma(
        self: &Arc<Self>,
        bound: &Bound,
        peer: u64,
        rma: Rma<'_>,
        local: Local<'_, '_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        match self.peer(bound, peer, &mut poster.last)? {
            Peer::Local(target) if rma.flags.contains(OpFlags::TAGGED) => {
                self.tagged_rma(bound, &rma, target, local, &mut poster.spare)
            }
            Peer::Local(target) => self.rma(bound, &rma, target, local, &mut poster.spare),
            Peer::Remote(session) => {
                let session = session.clone();
                let memory = match local {
                    Local::Into(into) => into,
                    Local::From(from) => from.own(true)?,
                };
                let spare = &mut poster.spare;
                let session = if rma.flags.contains(OpFlags::TAGGED) {
                    self.tagged_remote(bound, session, &rma, memory, spare)?
                } else {
                    self.rma_remote(bound, session, rma, memory, spare)?
                };
                poster.queued_to(session);
                Ok(())
            }
        }
    }

    /// Copies the bytes of an operation with a peer on this host, and completes it. The local
    /// memory is released before. Sleeps.
    fn rma(
        &self,
        bound: &Bound,
        rma: &Rma<'_>,
        target: &Arc<Self>,
        local: Local<'_, '_>,
        spare: &mut Option<Record>,
    ) -> Result {
        let Some((_at_target, target_bound)) = target.enter() else {
            return Err(EHOSTUNREACH);
        };
        if rma.flags.contains(OpFlags::FENCE) && self.tx.waits_at(target) {
            return Err(EAGAIN);
        }
        let len = rma.len as u64;
        let mut ticket =
            self.ticket_at_once(bound, rma.kind, rma.flags, rma.context, len, spare)?;
        if rma.remote.pieces().len() > 1 {
            // The operation may fail after bytes were copied, and then it cannot be refused.
            self.keep(bound, &mut ticket, spare)?;
        }
        let transferred = target.transfer_all(rma, &local);
        local.release();
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
                self.fail_at_once(bound, ticket, Outcome::refused(refusal), spare)
            }
        }
    }

    /// Copies the bytes of an RMA operation. `self` is the target.
    fn transfer_all(
        &self,
        rma: &Rma<'_>,
        local: &Local<'_, '_>,
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
                self.domain.in_region(piece.key, |region| {
                    region.remote(piece.addr, piece.len, access).map(|_| ())
                })?;
            }
        }
        let mut offset = 0usize;
        for piece in pieces {
            self.domain.in_region(piece.key, |region| {
                let memory = region.remote(piece.addr, piece.len, access)?;
                local.copy(offset, &memory);
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
                let _ = self.domain.in_region(piece.key, |region| {
                    region.count(access.contains(Access::REMOTE_WRITE));
                    Ok(())
                });
            }
        }
        Ok(())
    }
}
