// SPDX-License-Identifier: GPL-2.0

//! The work requests of a QP for the requests of the protocol.

use kfi_core::rdm::{
    header::{
        Header,
        MAX_HEADER, //
    },
    session::Request, //
};
use kfi_roce::{
    headers::SendEnd,
    rc::Op as WireOp, //
};

use super::{
    super::super::prelude::*,
    conn::Connection,
    op::TargetAccess,
    session::Core, //
};

/// A work request for a QP.
pub(super) struct SendRequest {
    pub(super) op: WireOp,
    /// READs of the same operation follow.
    pub(super) more: bool,
    /// The header that is sent before the memory; empty for READs, WRITEs and atomics of RC.
    pub(super) inline_header: [u8; MAX_HEADER],
    pub(super) header_len: usize,
    pub(super) memory: MemRef,
}

impl SendRequest {
    /// A SEND of `header`, followed by `memory`.
    fn send(header: &Header, memory: MemRef) -> Self {
        let mut inline_header = [0; MAX_HEADER];
        let header_len = header.put(&mut inline_header).unwrap_or(0);
        Self {
            op: WireOp::Send(SendEnd::Plain),
            more: false,
            inline_header,
            header_len,
            memory,
        }
    }

    /// An operation of RC on `memory`, without a header.
    fn plain(op: WireOp, memory: MemRef) -> Self {
        Self {
            op,
            more: false,
            inline_header: [0; MAX_HEADER],
            header_len: 0,
            memory,
        }
    }

    /// The work request for a request of the protocol; `None` if its operation has ended.
    pub(super) fn of(core: &Core, connection: &Connection, request: &Request) -> Option<Self> {
        Some(match *request {
            Request::Send(header) => {
                let memory = match header {
                    Header::Eager(message) | Header::Atomic(message, _) => {
                        core.op(message.id)?.memory.clone()
                    }
                    _ => MemRef::empty(),
                };
                Self::send(&header, memory)
            }
            Request::Result { answer, id, len } => {
                let memory = core.receive(answer)?.memory(0, len);
                Self::send(&Header::Result { id, len }, memory)
            }
            Request::Bye => {
                let last = connection.shut();
                Self::send(&Header::Bye { last }, MemRef::empty())
            }
            Request::Read {
                answer,
                offset,
                len,
                va,
                rkey,
            } => {
                let memory = core.receive(answer)?.memory(offset, len);
                Self::plain(WireOp::Read { va, rkey }, memory)
            }
            Request::Rma {
                number,
                piece,
                counts,
            } => {
                let transmit = core.op(number)?;
                let (range, memory) = transmit.piece(piece)?;
                let (va, rkey) = (range.addr, u32::try_from(range.key).ok()?);
                let target = transmit.target.as_ref()?;
                match target.access {
                    TargetAccess::Read => {
                        let pieces = target.remote.pieces().len();
                        Self {
                            more: (piece as usize).wrapping_add(1) < pieces,
                            ..Self::plain(WireOp::Read { va, rkey }, memory)
                        }
                    }
                    TargetAccess::Write => {
                        let imm = counts.then_some(0);
                        Self::plain(WireOp::Write { va, rkey, imm }, memory)
                    }
                    TargetAccess::Atomic(op) => Self::plain(op, memory),
                }
            }
        })
    }
}
