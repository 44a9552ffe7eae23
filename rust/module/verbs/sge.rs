// SPDX-License-Identifier: GPL-2.0

//! SGEs: the ranges of memory that a work request names.
//!
//! A list of [`Sge`]s is resolved with the keys of a PD when its request is issued or its message
//! begins, not when it is posted: the request before it may register or invalidate memory. The
//! result, [`Parts`], has a reference to the memory of each SGE, and needs no allocation. It keeps
//! the memory, not the regions.

use core::slice;

use kernel::prelude::*;

use super::{
    keys::{
        BadKey,
        Rights, //
    },
    pd::Pd,
    raw, //
};
use crate::mem::{
    payload::{
        self,
        Payload, //
    },
    MemRef, //
};

pub(super) use raw::kfabric_verbs_sge as Sge;

/// The most SGEs of a work request.
pub(super) const MAX_SGE: usize = raw::KFABRIC_VERBS_MAX_SGE as usize;

/// No memory.
pub(super) const NO_SGE: Sge = Sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

/// The SGEs that a caller in C passes.
///
/// # Safety
///
/// There are `count` SGEs at `sges`, valid for reading and not changed for `'a`. The pointer need
/// not be valid if there are none.
pub(super) unsafe fn sges_of<'a>(sges: *const Sge, count: u32) -> &'a [Sge] {
    if count == 0 {
        return &[];
    }
    // SAFETY: By the requirement above.
    unsafe { slice::from_raw_parts(sges, count as usize) }
}

/// The memory of a work request, in the order of its SGEs.
///
/// It is dropped or cleared in process context, where that may sleep.
pub(super) struct Parts {
    /// Those from `count` on are empty.
    parts: [MemRef; MAX_SGE],
    count: usize,
    len: usize,
}

impl Parts {
    /// No memory.
    pub(super) const fn empty() -> Self {
        Self {
            parts: [const { MemRef::empty() }; MAX_SGE],
            count: 0,
            len: 0,
        }
    }

    /// The memory that a list of SGEs names with the keys of `pd`; with `write`, the request writes
    /// to it. The key of an SGE without bytes is not checked. Process context; may sleep.
    ///
    /// # Errors
    ///
    /// A key does not allow the access, or there are more than [`MAX_SGE`] SGEs.
    pub(super) fn resolve(pd: &Pd, sges: &[Sge], write: bool) -> Result<Self, BadKey> {
        let need = match write {
            true => Rights::LOCAL_WRITE,
            false => Rights::LOCAL_READ,
        };
        let mut resolved = Self::empty();
        for sge in sges.iter().filter(|sge| sge.length != 0) {
            let memory = pd.local(sge.lkey, sge.addr, sge.length.into(), need)?;
            let part = resolved.parts.get_mut(resolved.count).ok_or(BadKey)?;
            // No overflow: at most `MAX_SGE` lengths of 32 bits are added.
            resolved.len += memory.len();
            resolved.count += 1;
            *part = memory;
        }
        Ok(resolved)
    }

    /// Length in bytes. Any context.
    #[cfg(kfi_kunit)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies a payload to the memory from byte `at` on, as far as there is room. Returns the
    /// number of bytes. Process context, also with bottom halves disabled; does not sleep.
    pub(super) fn place(&self, at: usize, payload: &Payload<'_>) -> usize {
        self.copy(at, payload.len(), |part, at, from, to| {
            payload.part(from..to).place(part, at)
        })
    }

    /// Copies `bytes` to the memory from byte `at` on, as far as there is room. Returns the number
    /// of bytes. Process context, also with bottom halves disabled; does not sleep.
    pub(super) fn store(&self, at: usize, bytes: &[u8]) -> usize {
        self.copy(at, bytes.len(), |part, at, from, to| {
            payload::store(part, at, bytes.get(from..to).unwrap_or_default())
        })
    }

    /// Copies `len` bytes to the memory from byte `at` on. `put(part, at, from, to)` copies the
    /// bytes `from..to` to `part`, from its byte `at` on, and returns how many it has copied.
    fn copy(
        &self,
        mut at: usize,
        len: usize,
        put: impl Fn(&MemRef, usize, usize, usize) -> usize,
    ) -> usize {
        let mut done = 0usize;
        for part in self.parts.iter().take(self.count) {
            let Some(room) = part.len().checked_sub(at) else {
                at -= part.len();
                continue;
            };
            let end = len.min(done.saturating_add(room));
            done += put(part, at, done, end);
            if done < end || done == len {
                break;
            }
            at = 0;
        }
        done
    }

    /// All of it as one reference. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    /// - `E2BIG`: more than [`SEGMENTS_MAX`](crate::mem::segments::SEGMENTS_MAX) segments, in
    ///   several parts.
    pub(super) fn into_memory(mut self) -> Result<MemRef> {
        match self.parts.get_mut(..self.count) {
            None | Some([]) => Ok(MemRef::empty()),
            Some([only]) => Ok(only.take()),
            Some(parts) => MemRef::gather_up_to(self.len, parts),
        }
    }

    /// Releases the memory. Process context; may sleep.
    #[cfg(kfi_kunit)]
    pub(super) fn clear(&mut self) {
        *self = Self::empty();
    }
}
