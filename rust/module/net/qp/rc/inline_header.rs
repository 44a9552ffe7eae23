// SPDX-License-Identifier: GPL-2.0

//! Inline headers: bytes that are sent before a work request's memory, in the same message.
//!
//! A user with its own protocol over a QP begins each SEND with a header, and has the bytes of the
//! message elsewhere. The inline header (`InlineHeader`) is copied when the work request is posted. It may
//! be changed until the work request has completed ([`Qp::rewrite`](super::Qp::rewrite)).

use crate::{
    mem::{
        wire,
        MemRef, //
    },
    shim::skb::Room, //
};
use kernel::prelude::*;

/// Size of the longest inline header in bytes.
pub(crate) const INLINE_HEADER_MAX: usize = 56;

/// The inline header of one work request.
#[derive(Clone, Copy)]
pub(super) struct InlineHeader {
    bytes: [u8; INLINE_HEADER_MAX],
    len: usize,
}

impl InlineHeader {
    const EMPTY: Self = Self {
        bytes: [0; INLINE_HEADER_MAX],
        len: 0,
    };

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The inline headers of a QP's work requests, by place; empty for a QP that was created without
/// them.
pub(super) struct InlineHeaders(KVec<InlineHeader>);

impl InlineHeaders {
    /// Room for `len` inline headers. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(len: usize) -> Result<Self> {
        Ok(Self(super::filled(len, InlineHeader::EMPTY)?))
    }

    /// Bytes of memory for `len` inline headers.
    pub(super) const fn bytes(len: usize) -> usize {
        len.saturating_mul(size_of::<InlineHeader>())
    }

    /// Whether an inline header of `len` bytes can be stored: an empty one always can.
    pub(super) fn fits(&self, len: usize) -> bool {
        len == 0 || (len <= INLINE_HEADER_MAX && !self.0.is_empty())
    }

    /// Sets the inline header at `place` to `bytes`, which [fit](Self::fits).
    pub(super) fn set(&mut self, place: usize, bytes: &[u8]) {
        if let Some(inline_header) = self.0.get_mut(place) {
            if let Some(room) = inline_header.bytes.get_mut(..bytes.len()) {
                room.copy_from_slice(bytes);
                inline_header.len = bytes.len();
            }
        }
    }

    /// The inline header at `place`, to be changed.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut [u8]> {
        let inline_header = self.0.get_mut(place)?;
        inline_header.bytes.get_mut(..inline_header.len)
    }

    /// Copies a part of a message to `room`: the inline header at `place` followed by `memory`,
    /// from byte `offset` on.
    pub(super) fn gather(&self, place: usize, memory: &MemRef, offset: usize, room: &mut Room<'_>) {
        let inline_header = self.0.get(place).map_or(&[][..], InlineHeader::as_slice);
        let Some(rest) = inline_header.get(offset..) else {
            wire::gather_mem(room, memory, offset.wrapping_sub(inline_header.len()));
            return;
        };
        room.put(rest);
        wire::gather_mem(room, memory, 0);
    }
}
