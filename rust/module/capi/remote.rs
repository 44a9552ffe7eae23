// SPDX-License-Identifier: GPL-2.0

//! What a consumer passes as memory of a peer: an address and a key, or a list of pieces, in bytes
//! (`struct kfi_rma_iov`) or in elements of an atomic (`struct kfi_rma_ioc`).

use kernel::prelude::*;

use kfi_core::limits::MAX_IOV;

use super::raw::{
    kfi_rma_ioc,
    kfi_rma_iov, //
};
use crate::{
    mem::segments,
    provider::ep::{
        admit::Context,
        op::{
            Remote,
            RemoteRange, //
        }, //
    }, //
};

/// The memory of a peer that an operation names.
///
/// # Invariants
///
/// The elements of a list are valid during the call that made this value.
pub(super) enum Target {
    /// As many bytes as the local memory has.
    One { addr: u64, key: u64 },
    /// Pieces in bytes.
    Bytes(*const kfi_rma_iov, usize),
    /// Pieces in elements of so many bytes.
    Elements(*const kfi_rma_ioc, usize, usize),
}

/// Checks a list. Fails with `EINVAL` for no list or no elements; `E2BIG` for more than
/// [`MAX_IOV`].
fn check<T>(list: *const T, count: usize) -> Result {
    if list.is_null() || count == 0 {
        return Err(EINVAL);
    }
    if count > MAX_IOV {
        return Err(E2BIG);
    }
    Ok(())
}

impl Target {
    /// An address and a key.
    pub(super) const fn one(addr: u64, key: u64) -> Self {
        // INVARIANT: No list.
        Self::One { addr, key }
    }

    /// Pieces in bytes. Fails with `EINVAL` for no list or no elements; `E2BIG` for more than
    /// [`MAX_IOV`].
    ///
    /// # Safety
    ///
    /// The list is null, or its elements are valid during the call of the consumer.
    pub(super) unsafe fn bytes(list: *const kfi_rma_iov, count: usize) -> Result<Self> {
        check(list, count)?;
        // INVARIANT: By the requirement above.
        Ok(Self::Bytes(list, count))
    }

    /// Pieces in elements of `size` bytes. Fails as [`bytes`](Self::bytes).
    ///
    /// # Safety
    ///
    /// As for [`bytes`](Self::bytes).
    pub(super) unsafe fn elements(
        list: *const kfi_rma_ioc,
        count: usize,
        size: usize,
    ) -> Result<Self> {
        check(list, count)?;
        // INVARIANT: By the requirement above.
        Ok(Self::Elements(list, count, size))
    }

    /// The same for the provider; an address without a list has `len` bytes. Fails with `EINVAL` if
    /// the length of a piece overflows; `ENOMEM`. Sleeps with [`Context::MaySleep`].
    pub(super) fn remote(&self, len: usize, call: Context) -> Result<Remote> {
        match *self {
            Self::One { addr, key } => Ok(Remote::One(RemoteRange {
                addr,
                len: len as u64,
                key,
            })),
            Self::Bytes(list, count) => {
                // SAFETY: The elements are valid by the type invariants.
                let list = unsafe { core::slice::from_raw_parts(list, count) };
                collect(list, call, |piece| {
                    Ok(RemoteRange {
                        addr: piece.addr,
                        len: piece.len as u64,
                        key: piece.key,
                    })
                })
            }
            Self::Elements(list, count, size) => {
                // SAFETY: The elements are valid by the type invariants.
                let list = unsafe { core::slice::from_raw_parts(list, count) };
                collect(list, call, |piece| {
                    Ok(RemoteRange {
                        addr: piece.addr,
                        len: piece.count.checked_mul(size).ok_or(EINVAL)? as u64,
                        key: piece.key,
                    })
                })
            }
        }
    }
}

/// Converts the pieces of a list.
fn collect<T>(
    list: &[T],
    call: Context,
    piece: impl Fn(&T) -> Result<RemoteRange>,
) -> Result<Remote> {
    if let [only] = list {
        return Ok(Remote::One(piece(only)?));
    }
    let mut pieces = match call {
        Context::MaySleep => KVVec::with_capacity(list.len(), GFP_KERNEL_ACCOUNT)?,
        Context::Atomic => segments::atomic_vec(list.len())?,
    };
    for element in list {
        // There is room for all.
        drop(pieces.push_within_capacity(piece(element)?));
    }
    Ok(Remote::of_list(pieces))
}
