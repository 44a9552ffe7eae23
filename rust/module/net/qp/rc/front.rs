// SPDX-License-Identifier: GPL-2.0

//! Inline headers: bytes that are sent before a work request's memory, in the same message.
//!
//! A user with its own protocol over a QP begins each SEND with a header, and has the bytes of the
//! message elsewhere. The inline header (`Front`) is copied when the work request is posted. It may
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
pub(crate) const FRONT_MAX: usize = 56;

/// The inline header of one work request.
#[derive(Clone, Copy)]
pub(super) struct Front {
    bytes: [u8; FRONT_MAX],
    len: usize,
}

impl Front {
    const EMPTY: Self = Self {
        bytes: [0; FRONT_MAX],
        len: 0,
    };

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The inline headers of a QP's work requests, by place; empty for a QP that was created without
/// them.
pub(super) struct Fronts(KVec<Front>);

impl Fronts {
    /// Room for `len` inline headers. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(len: usize) -> Result<Self> {
        Ok(Self(super::filled(len, Front::EMPTY)?))
    }

    /// Bytes of memory for `len` inline headers.
    pub(super) const fn bytes(len: usize) -> usize {
        len.saturating_mul(size_of::<Front>())
    }

    /// Whether an inline header of `len` bytes can be stored: an empty one always can.
    pub(super) fn fits(&self, len: usize) -> bool {
        len == 0 || (len <= FRONT_MAX && !self.0.is_empty())
    }

    /// Sets the inline header at `place` to `bytes`, which [fit](Self::fits).
    pub(super) fn set(&mut self, place: usize, bytes: &[u8]) {
        if let Some(front) = self.0.get_mut(place) {
            if let Some(room) = front.bytes.get_mut(..bytes.len()) {
                room.copy_from_slice(bytes);
                front.len = bytes.len();
            }
        }
    }

    /// The inline header at `place`, to be changed.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut [u8]> {
        let front = self.0.get_mut(place)?;
        front.bytes.get_mut(..front.len)
    }

    /// Copies a part of a message to `room`: the inline header at `place` followed by `memory`,
    /// from byte `offset` on.
    pub(super) fn gather(&self, place: usize, memory: &MemRef, offset: usize, room: &mut Room<'_>) {
        let front = self.0.get(place).map_or(&[][..], Front::as_slice);
        let Some(rest) = front.get(offset..) else {
            wire::gather_mem(room, memory, offset.wrapping_sub(front.len()));
            return;
        };
        room.put(rest);
        wire::gather_mem(room, memory, 0);
    }
}
