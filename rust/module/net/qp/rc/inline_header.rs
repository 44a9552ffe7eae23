// SPDX-License-Identifier: GPL-2.0

//! Inline headers: bytes that are stored in a work request and sent before its memory.

use super::filled;
use crate::{
    mem::{
        payload,
        MemRef, //
    },
    shim::{
        memory::kmalloc_array_size,
        skb::Room, //
    }, //
};
use kernel::prelude::*;

/// Size of the longest inline header in bytes.
pub(crate) const INLINE_HEADER_MAX: usize = 56;

/// The inline header of one work request.
#[derive(Clone, Copy)]
struct InlineHeader {
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

/// The inline headers of a QP's work requests, by slot; empty for a QP that was created without
/// them.
pub(super) struct InlineHeaders(KVec<InlineHeader>);

impl InlineHeaders {
    /// Room for `len` inline headers. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(len: usize) -> Result<Self> {
        Ok(Self(filled(len, InlineHeader::EMPTY)?))
    }

    /// Bytes of memory for `len` inline headers.
    pub(super) fn bytes(len: usize) -> usize {
        kmalloc_array_size::<InlineHeader>(len)
    }

    /// Whether an inline header of `len` bytes can be stored: an empty one always can.
    pub(super) fn fits(&self, len: usize) -> bool {
        len == 0 || (len <= INLINE_HEADER_MAX && !self.0.is_empty())
    }

    /// Sets the inline header at `slot` to `bytes`, which [fit](Self::fits).
    pub(super) fn set(&mut self, slot: usize, bytes: &[u8]) {
        if let Some(inline_header) = self.0.get_mut(slot) {
            if let Some(room) = inline_header.bytes.get_mut(..bytes.len()) {
                room.copy_from_slice(bytes);
                inline_header.len = bytes.len();
            }
        }
    }

    /// The inline header at `slot`, to be changed.
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut [u8]> {
        let inline_header = self.0.get_mut(slot)?;
        inline_header.bytes.get_mut(..inline_header.len)
    }

    /// Copies a part of a message to `room`: the inline header at `slot` followed by `memory`,
    /// from byte `offset` on.
    pub(super) fn gather(&self, slot: usize, memory: &MemRef, offset: usize, room: &mut Room<'_>) {
        let inline_header = self.0.get(slot).map_or(&[][..], InlineHeader::as_slice);
        let Some(rest) = inline_header.get(offset..) else {
            payload::gather_mem(room, memory, offset.wrapping_sub(inline_header.len()));
            return;
        };
        room.put(rest);
        payload::gather_mem(room, memory, 0);
    }
}
