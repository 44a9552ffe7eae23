// SPDX-License-Identifier: GPL-2.0

//! Atomics: their checks when they are posted, and their execution at the target.
//!
//! The same function executes an atomic of a peer on this host and one that came in a SEND
//! ([`Endpoint::execute`]). An atomic of an RC QP changes its word by [`change_word`]. All of them
//! change elements by instructions of this CPU, so they are atomic with respect to each other and
//! to programs ([`kfi_core::atomic`]).

use kfi_core::{
    atomic::{
        contended::{
            Contention,
            Rounds, //
        },
        Function,
        RcAtomic,
        RC_LEN, //
    },
    enums::EpType,
    flags::Access,
    mr::Refusal, //
};
use kfi_roce::{
    headers::AtomicEth,
    rc::{
        target,
        Op as WireOp, //
    }, //
};

use super::{
    op::{
        Atomic,
        RemoteRange, //
    },
    prelude::*,
    wire::Wire, //
};
use crate::{
    mem::{
        atomic::{
            self,
            Values, //
        },
        payload, //
    },
    provider::mr::Mr, //
};

impl Atomic<'_> {
    /// Checks that all lengths are the same, and that the peer's pieces have whole, aligned
    /// elements. Fails with `EINVAL`.
    pub(super) fn check_lengths(&self) -> Result {
        let len = self.len();
        let has = |values: usize, wanted: bool| !wanted || values == len;
        if !has(self.compare.len(), self.function.compares())
            || !has(self.result.len(), self.function.fetches())
            || self.remote.len() != Some(len as u64)
        {
            return Err(EINVAL);
        }
        for piece in self.remote.pieces() {
            self.function
                .check_piece(piece.addr, piece.len)
                .map_err(to_error)?;
        }
        Ok(())
    }

    /// The work request for an atomic of an RC QP on the word at `va`.
    pub(super) fn rc_op(&self, rc: RcAtomic, va: u64, rkey: u32) -> WireOp {
        let operand = self.operand.word();
        match rc {
            RcAtomic::FetchAdd => WireOp::FetchAdd {
                va,
                rkey,
                add: operand,
            },
            RcAtomic::CompareSwap => WireOp::CompareSwap {
                va,
                rkey,
                compare: self.compare.word(),
                swap: operand,
            },
        }
    }
}

/// Executes an atomic of an RC QP on the first word of `memory`, and returns the old value. Fails
/// if the word is not aligned, or not contiguous. Does not sleep.
pub(super) fn change_word(
    memory: &MemRef,
    atomic: target::Atomic,
    eth: &AtomicEth,
) -> core::result::Result<u64, Refusal> {
    payload::change_word(memory, atomic, eth).ok_or(Refusal::Alignment)
}

/// The access and the length of an atomic of an RC QP.
pub(super) const RC_ACCESS: (u64, Access) = (
    RC_LEN as u64,
    Access::REMOTE_READ.union(Access::REMOTE_WRITE),
);

/// The most elements that one atomic of endpoints of a type can have. Fails with `EOPNOTSUPP` if
/// they do not have the function. Any context.
pub(crate) fn max_count(ep_type: EpType, function: &Function) -> Result<usize> {
    function
        .max_count(ep_type, atomic::has_floats())
        .map_err(to_error)
}

impl Endpoint {
    fn ep_type(&self) -> EpType {
        match &self.wire {
            None => EpType::Rdm,
            Some(Wire::Msg(_)) => EpType::Msg,
            Some(Wire::Dgram(_)) => EpType::Dgram,
        }
    }

    /// The most elements of one atomic. Fails with `EOPNOTSUPP` if the endpoint does not have the
    /// function, or not the capability. Any context.
    pub(crate) fn max_count(&self, function: &Function) -> Result<usize> {
        function
            .kind()
            .check_caps(self.caps, OpFlags::EMPTY, false)
            .map_err(to_error)?;
        max_count(self.ep_type(), function)
    }

    /// Checks that the endpoint has a function for `len` bytes of elements. Fails with
    /// `EOPNOTSUPP`, `EINVAL`, `EMSGSIZE`; see [`Function::check`]. Any context.
    pub(crate) fn check_function(&self, function: &Function, len: u64) -> Result {
        function
            .check(self.ep_type(), atomic::has_floats(), len)
            .map_err(to_error)
    }

    /// Checks an atomic of an endpoint for reliable datagrams, and returns its flags. Fails with
    /// the errors of [`Poster::post`] that do not depend on the peer. Any context.
    pub(super) fn check_atomic(&self, op: &Atomic<'_>) -> Result<OpFlags> {
        let len = op.len();
        let flags = self.checked_flags_of(op.kind(), op.flags, len)?;
        self.check_function(&op.function, len as u64)?;
        op.check_lengths()?;
        Ok(flags)
    }

    /// Executes an atomic on the regions of this endpoint, its target. Every piece is checked
    /// before the first element is changed. A piece that passes this check is refused later only if
    /// its owner closes the region in between, or if others change an element in all rounds
    /// ([`Rounds`]). Does not count, except at the regions. Yields if others change elements at the
    /// same time; does not sleep otherwise.
    pub(super) fn execute(
        &self,
        function: &Function,
        pieces: &[RemoteRange],
        values: &Values<'_>,
    ) -> core::result::Result<(), Refusal> {
        if !self.caps.contains(function.target_caps()) {
            return Err(Refusal::Rights);
        }
        let access = function.target_access();
        let memory_of = |region: &Mr, piece: &RemoteRange| {
            let memory = region.remote(piece.addr, piece.len, access)?;
            if !atomic::is_aligned(&memory, function.datatype().align()) {
                return Err(Refusal::Alignment);
            }
            Ok(memory)
        };
        for piece in pieces {
            self.domain
                .in_region(piece.key, |region| memory_of(region, piece).map(|_| ()))?;
        }
        let (mut skip, mut rounds) = (0usize, Rounds::new());
        for piece in pieces {
            self.domain.in_region(piece.key, |region| {
                let memory = memory_of(region, piece)?;
                atomic::apply(function, &memory, values, skip, &mut rounds)
                    .map_err(|Contention| Refusal::Contention)
            })?;
            // The sum of all lengths is that of the elements.
            skip = skip.wrapping_add(piece.len as usize);
        }
        // The whole operation has succeeded. It counts once at each region. `MAX_IOV` limits the
        // time of the comparisons: about 20 us.
        for (index, piece) in pieces.iter().enumerate() {
            let before = pieces.get(..index).unwrap_or_default();
            if before.iter().all(|other| other.key != piece.key) {
                // The owner may have closed the region meanwhile.
                let _ = self.domain.in_region(piece.key, |region| {
                    region.count(!function.fetches());
                    Ok(())
                });
            }
        }
        Ok(())
    }
}
