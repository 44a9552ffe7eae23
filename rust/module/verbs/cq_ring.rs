// SPDX-License-Identifier: GPL-2.0

//! The ring of a CQ: its entries, in the order in which they came, and for which entry the CQ is
//! armed.
//!
//! The entries are in memory of the module ([`PrivateRing`]), or in memory that a program maps
//! ([`MappedRing`]).
//!
//! # Positions
//!
//! A private ring counts all entries that ever came. The number of an entry is its position, which
//! it keeps when the ring gets another size. Its place in the ring is the position modulo the size.
//! So a resize copies entries piece by piece, and an interrupt never waits for the copy of all.
//!
//! [`PrivateRing::forget_piece`] removes entries from the middle, piece by piece, too. It moves
//! those that stay towards the head. The places between these and the rest are the gap.
//!
//! The functions do not sleep; the caller holds the lock of the CQ.

use core::mem::{
    replace,
    size_of, //
};

use kernel::prelude::*;

use kfi_roce::rc::Status;

use super::{
    callbacks::Cookie,
    cq_map::MappedRing,
    raw::{
        self,
        kfabric_verbs_wc, //
    }, //
};

/// Entries that are looked at or moved while the lock is held.
pub(super) const PIECE: u64 = 64;

// The statuses of the protocol are those of `enum ib_wc_status`.
const _: () = {
    assert!(Status::Success as u32 == raw::KFABRIC_VERBS_WC_SUCCESS);
    assert!(Status::LocalLength as u32 == raw::KFABRIC_VERBS_WC_LOC_LEN_ERR);
    assert!(Status::LocalOperation as u32 == raw::KFABRIC_VERBS_WC_LOC_QP_OP_ERR);
    assert!(Status::LocalProtection as u32 == raw::KFABRIC_VERBS_WC_LOC_PROT_ERR);
    assert!(Status::Flushed as u32 == raw::KFABRIC_VERBS_WC_WR_FLUSH_ERR);
    assert!(Status::BadResponse as u32 == raw::KFABRIC_VERBS_WC_BAD_RESP_ERR);
    assert!(Status::LocalAccess as u32 == raw::KFABRIC_VERBS_WC_LOC_ACCESS_ERR);
    assert!(Status::RemoteInvalidRequest as u32 == raw::KFABRIC_VERBS_WC_REM_INV_REQ_ERR);
    assert!(Status::RemoteAccess as u32 == raw::KFABRIC_VERBS_WC_REM_ACCESS_ERR);
    assert!(Status::RemoteOperation as u32 == raw::KFABRIC_VERBS_WC_REM_OP_ERR);
    assert!(Status::RetryExceeded as u32 == raw::KFABRIC_VERBS_WC_RETRY_EXC_ERR);
    assert!(Status::RnrRetryExceeded as u32 == raw::KFABRIC_VERBS_WC_RNR_RETRY_EXC_ERR);
};

/// What kind of work request it was. The numbers are those of `enum ib_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Opcode {
    Send = raw::KFABRIC_VERBS_OP_SEND,
    RdmaWrite = raw::KFABRIC_VERBS_OP_RDMA_WRITE,
    RdmaRead = raw::KFABRIC_VERBS_OP_RDMA_READ,
    CompSwap = raw::KFABRIC_VERBS_OP_COMP_SWAP,
    FetchAdd = raw::KFABRIC_VERBS_OP_FETCH_ADD,
    LocalInv = raw::KFABRIC_VERBS_OP_LOCAL_INV,
    RegMr = raw::KFABRIC_VERBS_OP_REG_MR,
    Recv = raw::KFABRIC_VERBS_OP_RECV,
    RecvRdmaWithImm = raw::KFABRIC_VERBS_OP_RECV_RDMA_WITH_IMM,
}

/// An entry: the end of a work request.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) wr_id: u64,
    pub(super) qp: Cookie,
    /// The number of the QP.
    pub(super) qpn: u32,
    pub(super) status: Status,
    pub(super) opcode: Opcode,
    /// Bytes that a receive has got.
    pub(super) byte_len: u32,
    /// Immediate data in the byte order of the host, or the key of the region that was invalidated.
    pub(super) imm_or_key: u32,
    /// The QP that a datagram came from.
    pub(super) src_qp: u32,
    /// `enum ib_wc_flags`.
    pub(super) flags: u32,
    pub(super) vendor_err: u32,
    /// `enum rdma_network_type`.
    pub(super) network_hdr_type: u8,
}

// The documents name this size.
const _: () = assert!(size_of::<Entry>() == 48);

impl Entry {
    /// A request that has succeeded, without data.
    pub(super) const EMPTY: Self = Self {
        wr_id: 0,
        qp: Cookie::NONE,
        qpn: 0,
        status: Status::Success,
        opcode: Opcode::Send,
        byte_len: 0,
        imm_or_key: 0,
        src_qp: 0,
        flags: 0,
        vendor_err: 0,
        network_hdr_type: 0,
    };

    /// The entry, in the format of `kfabric_ib.ko`.
    pub(super) fn to_wc(self) -> kfabric_verbs_wc {
        kfabric_verbs_wc {
            wr_id: self.wr_id,
            qp: self.qp.address(),
            qpn: self.qpn,
            status: self.status as u32,
            opcode: self.opcode as u32,
            vendor_err: self.vendor_err,
            byte_len: self.byte_len,
            imm_or_key: self.imm_or_key,
            src_qp: self.src_qp,
            flags: self.flags,
            network_hdr_type: self.network_hdr_type,
        }
    }
}

/// The entry was lost, because the CQ is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// The entries for which an armed CQ calls its handler. Each value includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arm {
    /// For none.
    Not,
    /// The next one that is solicited or in error.
    Solicited,
    /// The next one.
    Next,
}

/// The calls that [`notify`](super::cq::Cq::notify) has to make.
#[derive(Clone, Copy, Default)]
pub(super) struct Due {
    pub(super) comp: bool,
    pub(super) error: bool,
}

/// Where the entries of a CQ are.
pub(super) enum Entries {
    /// In memory of the module: they are polled by calls.
    Private(PrivateRing),
    /// In memory that the program maps, which takes them itself.
    Mapped(MappedRing),
}

/// What the lock of a CQ protects.
pub(super) struct Ring {
    pub(super) entries: Entries,
    pub(super) arm: Arm,
    /// Whether the owner was told of an overrun.
    overrun: bool,
    pub(super) due: Due,
    /// Whether a task calls the handlers.
    pub(super) notifying: bool,
}

impl Ring {
    /// A CQ that is not armed.
    pub(super) fn new(entries: Entries) -> Self {
        Self {
            entries,
            arm: Arm::Not,
            overrun: false,
            due: Due::default(),
            notifying: false,
        }
    }

    /// Entries that wait, and the gap if it is among them.
    pub(super) fn len(&mut self) -> u64 {
        match &mut self.entries {
            Entries::Private(ring) => ring.len(),
            Entries::Mapped(ring) => ring.len().into(),
        }
    }

    /// Whether no entry waits.
    pub(super) fn is_empty(&mut self) -> bool {
        match &mut self.entries {
            Entries::Private(ring) => ring.is_empty(),
            Entries::Mapped(ring) => ring.len() == 0,
        }
    }

    /// Adds an entry, or notes that it was lost; notes which calls are due.
    pub(super) fn push(&mut self, entry: &Entry, solicited: bool) -> Result<(), Overrun> {
        let least = match solicited || entry.status != Status::Success {
            true => Arm::Solicited,
            false => Arm::Next,
        };
        // A lost entry wakes the owner, too, which would wait for it otherwise.
        if self.arm >= least {
            self.arm = Arm::Not;
            self.due.comp = true;
        }
        let stored = match &mut self.entries {
            Entries::Private(ring) => ring.push(entry),
            Entries::Mapped(ring) => ring.push(entry),
        };
        if !stored {
            self.due.error |= !replace(&mut self.overrun, true);
            return Err(Overrun);
        }
        Ok(())
    }

    /// Takes the oldest entry of a private ring.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        match &mut self.entries {
            Entries::Private(ring) => ring.pop(),
            Entries::Mapped(_) => None,
        }
    }

    /// Removes the entries of `qp` from the next piece of a private ring. Returns whether it was
    /// the last piece. A program removes entries from a mapped ring itself.
    pub(super) fn forget_piece(&mut self, qp: Cookie) -> bool {
        match &mut self.entries {
            Entries::Private(ring) => ring.forget_piece(qp),
            Entries::Mapped(_) => true,
        }
    }

    /// Copies the next piece from position `from` on to another ring of the same kind. Returns
    /// whether it was the last piece. Fails with `EINVAL` if more entries wait than have room
    /// there.
    pub(super) fn copy_piece(&mut self, from: &mut u64, to: &mut Entries) -> Result<bool> {
        match (&mut self.entries, to) {
            (Entries::Private(ring), Entries::Private(to)) => ring.copy_piece(from, to),
            (Entries::Mapped(ring), Entries::Mapped(to)) => ring.copy_piece(from, to),
            _ => Err(EINVAL),
        }
    }
}

/// Entries in memory of the module.
pub(super) struct PrivateRing {
    /// The entry at each place.
    entries: KVVec<Entry>,
    /// The position of the oldest entry, and that of the next one that comes.
    head: u64,
    tail: u64,
    /// Positions that have no entry, from the first to the one behind the last. Empty unless
    /// [`forget_piece`](Self::forget_piece) has to go on.
    gap: (u64, u64),
}

/// The place of a position in a ring of `size` places, at least one.
pub(super) fn place(position: u64, size: usize) -> usize {
    // CAST: The remainder is less than a `usize`.
    position.checked_rem(size as u64).unwrap_or(0) as usize
}

impl PrivateRing {
    /// A ring without entries, with one place for each element.
    pub(super) fn new(entries: KVVec<Entry>) -> Self {
        Self {
            entries,
            head: 0,
            tail: 0,
            gap: (0, 0),
        }
    }

    /// Moves the head behind the gap if it is in the gap.
    fn skip_gap(&mut self) {
        let (first, end) = self.gap;
        if (first..end).contains(&self.head) {
            self.head = end;
        }
    }

    /// Entries that wait, and the gap if it is among them.
    fn len(&self) -> u64 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether no entry waits.
    fn is_empty(&mut self) -> bool {
        self.skip_gap();
        self.head == self.tail
    }

    /// Adds an entry. Returns whether there was room.
    fn push(&mut self, entry: &Entry) -> bool {
        let size = self.entries.len();
        let has_room = self.len() < size as u64;
        let room = self.entries.get_mut(place(self.tail, size));
        let Some(to) = room.filter(|_| has_room) else {
            return false;
        };
        *to = *entry;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Takes the oldest entry.
    fn pop(&mut self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let entry = *self.entries.get(place(self.head, self.entries.len()))?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Removes the entries of `qp` from the next piece behind the gap. Returns whether it was the
    /// last piece.
    fn forget_piece(&mut self, qp: Cookie) -> bool {
        let size = self.entries.len();
        self.skip_gap();
        let (mut kept, mut seen) = self.gap;
        if seen <= self.head {
            (kept, seen) = (self.head, self.head);
        }
        let end = self.tail.min(seen.saturating_add(PIECE));
        for position in seen..end {
            let entry = self.entries.get(place(position, size)).copied();
            let Some(entry) = entry.filter(|entry| entry.qp != qp) else {
                continue;
            };
            if let Some(to) = self.entries.get_mut(place(kept, size)) {
                *to = entry;
            }
            kept = kept.wrapping_add(1);
        }
        seen = end;
        if seen < self.tail {
            self.gap = (kept, seen);
            return false;
        }
        self.tail = kept;
        self.gap = (0, 0);
        true
    }

    /// Copies the next piece from position `from` on to another ring. Returns whether it was the
    /// last piece. Fails with `EINVAL` if more entries wait than have room there.
    fn copy_piece(&self, from: &mut u64, to: &mut Self) -> Result<bool> {
        let size = to.entries.len();
        if self.len() > size as u64 {
            return Err(EINVAL);
        }
        let first = self.head.max(*from);
        *from = self.tail.min(first.saturating_add(PIECE));
        for position in first..*from {
            let entry = self.entries.get(place(position, self.entries.len()));
            if let (Some(to), Some(entry)) = (to.entries.get_mut(place(position, size)), entry) {
                *to = *entry;
            }
        }
        if *from != self.tail {
            return Ok(false);
        }
        (to.head, to.tail, to.gap) = (self.head, self.tail, self.gap);
        Ok(true)
    }
}
