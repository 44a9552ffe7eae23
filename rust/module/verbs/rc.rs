// SPDX-License-Identifier: GPL-2.0

//! The requests of a connected QP's peer, and the results of its own.
//!
//! A message begins with its first packet, which takes the oldest receive and finds its memory by
//! the keys of its SGEs; the bytes of each packet are placed there. A WRITE with immediate data
//! takes a receive, too, and uses no memory of it.
//!
//! The peer accesses memory through the regions of the QP's PD, by their keys. A region is looked
//! up for each packet, because its owner may close it at any time. InfiniBand does not check the
//! key of an access to no bytes.

use kernel::sync::atomic::{
    Full,
    Relaxed, //
};

use kfi_core::flags::CompCntrOps;
use kfi_roce::{
    headers::{
        AtomicEth,
        Reth,
        SendEnd, //
    },
    rc::{
        target::{
            Atomic,
            Ended,
            Incoming as Wanted, //
        },
        Refusal,
        Status, //
    }, //
};

use super::{
    cq::{
        Entry,
        Opcode, //
    },
    keys::{
        Access,
        Rights, //
    },
    qp::Qp,
    raw,
    send::Place,
    sge::Parts, //
};
use crate::{
    mem::payload,
    net::qp::{
        rc::Consumer,
        Payload, //
    },
    shim::skb::Room, //
};

/// The result of a request of the peer, or the reason of its refusal.
type RequestResult<T = ()> = core::result::Result<T, Refusal>;

/// A message, or a WRITE with immediate data, that is being received.
pub(super) struct Incoming {
    /// The receive that it has taken.
    wr_id: u64,
    /// The memory of the receive; none for a WRITE.
    parts: Parts,
    /// Bytes that did not fit.
    lost: u64,
}

impl Qp {
    /// A message or an access of the peer has come: the first one establishes the communication.
    fn heard(&self) {
        if self.awaits_first.load(Relaxed) && self.awaits_first.xchg(false, Full) {
            self.raise(raw::KFABRIC_VERBS_EVENT_COMM_EST);
        }
    }

    /// Enters the memory that the peer names.
    fn enter(&self, rkey: u32, va: u64, len: u32, need: Rights) -> RequestResult<Access> {
        self.pd()
            .enter(rkey, va, len.into(), need)
            .map_err(|_| self.refuse())
    }

    /// The peer was refused access. An entry may report that, too, in place of the event.
    fn refuse(&self) -> Refusal {
        self.raise(raw::KFABRIC_VERBS_EVENT_ACCESS_ERR);
        if let Some(peer) = self.peer() {
            self.budget().refused_peer(peer);
        }
        Refusal::Access
    }

    /// An entry of the receive that has ended.
    fn end(&self, incoming: &Incoming, status: Status, opcode: Opcode) -> Entry {
        self.entry(incoming.wr_id, status, opcode)
    }
}

impl Consumer for Qp {
    fn begin_receive(&self, wanted: Wanted, _payload: &Payload<'_>) -> RequestResult {
        self.heard();
        let (recv, pd) = self.next_receive().ok_or(Refusal::NotReady)?;
        let parts = match wanted {
            Wanted::Send { .. } => match Parts::resolve(pd, recv.sges(), true) {
                Ok(parts) => parts,
                Err(_) => {
                    let entry = self.entry(recv.wr_id, Status::LocalProtection, Opcode::Recv);
                    self.received(&entry, false);
                    return Err(Refusal::Operation);
                }
            },
            Wanted::WriteImm => Parts::empty(),
        };
        *self.incoming.lock() = Some(Incoming {
            wr_id: recv.wr_id,
            parts,
            lost: 0,
        });
        Ok(())
    }

    fn place(&self, offset: u32, payload: &Payload<'_>) -> RequestResult {
        let mut incoming = self.incoming.lock();
        let Some(incoming) = &mut *incoming else {
            return Err(Refusal::Operation);
        };
        // A message that is too long is refused at its end, when its length is known.
        let placed = incoming.parts.place(offset as usize, payload);
        let lost = payload.len().saturating_sub(placed);
        incoming.lost = incoming.lost.saturating_add(lost as u64);
        Ok(())
    }

    fn end_receive(&self, ended: Ended) -> RequestResult {
        let is_too_long = |incoming: &Incoming| incoming.lost > 0;
        if self.incoming.lock().as_ref().is_some_and(is_too_long) {
            // `abort_receive` ends it.
            return Err(Refusal::Invalid);
        }
        if let SendEnd::Invalidate(key) = ended.end {
            let ended = self.pd().invalidate_by_peer(key);
            ended.map_err(|_| self.refuse())?;
        }
        let incoming = self.incoming.lock().take().ok_or(Refusal::Operation)?;
        let opcode = match ended.write {
            true => Opcode::RecvRdmaWithImm,
            false => Opcode::Recv,
        };
        let mut entry = self.end(&incoming, Status::Success, opcode);
        entry.byte_len = ended.len;
        (entry.imm_or_key, entry.flags) = match ended.end {
            SendEnd::Plain => (0, 0),
            SendEnd::Imm(imm) => (imm, raw::KFABRIC_VERBS_WC_WITH_IMM),
            SendEnd::Invalidate(key) => (key, raw::KFABRIC_VERBS_WC_WITH_INVALIDATE),
        };
        self.received(&entry, ended.solicited);
        Ok(())
    }

    fn abort_receive(&self, why: Option<Refusal>) {
        let Some(incoming) = self.incoming.lock().take() else {
            return;
        };
        let status = match why {
            None => Status::Flushed,
            Some(Refusal::Invalid) if incoming.lost > 0 => Status::LocalLength,
            Some(_) => Status::LocalOperation,
        };
        let entry = self.end(&incoming, status, Opcode::Recv);
        self.received(&entry, false);
    }

    fn check_write(&self, reth: &Reth) -> RequestResult {
        self.heard();
        if reth.len == 0 {
            return Ok(());
        }
        self.enter(reth.rkey, reth.va, reth.len, Rights::REMOTE_WRITE)
            .map(drop)
    }

    fn write(&self, reth: &Reth, offset: u32, payload: &Payload<'_>) -> RequestResult {
        let access = self.enter(reth.rkey, reth.va, reth.len, Rights::REMOTE_WRITE)?;
        if payload.place(access.memory(), offset as usize) == payload.len() {
            Ok(())
        } else {
            Err(Refusal::Operation)
        }
    }

    fn end_write(&self, reth: &Reth) {
        self.count(CompCntrOps::REMOTE_RDMA_WRITE, Status::Success, reth.len);
    }

    fn check_read(&self, reth: &Reth) -> RequestResult {
        self.heard();
        if reth.len == 0 {
            return Ok(());
        }
        self.enter(reth.rkey, reth.va, reth.len, Rights::REMOTE_READ)
            .map(drop)
    }

    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> RequestResult {
        let access = self.enter(reth.rkey, reth.va, reth.len, Rights::REMOTE_READ)?;
        payload::gather_mem(room, access.memory(), 0);
        Ok(())
    }

    fn end_read(&self, reth: &Reth, more: bool) {
        self.count_remote_read(reth.len, more);
    }

    fn atomic(&self, atomic: Atomic, eth: &AtomicEth) -> RequestResult<u64> {
        self.heard();
        let access = self.enter(eth.rkey, eth.va, 8, Rights::REMOTE_ATOMIC)?;
        payload::change_word(access.memory(), atomic, eth).ok_or(Refusal::Invalid)
    }

    fn completed(&self, context: u64, status: Status) {
        self.send.store(Place::from_context(context), status);
    }

    fn failed(&self) {
        self.has_failed();
    }

    fn drained(&self) {
        self.raise(raw::KFABRIC_VERBS_EVENT_SQ_DRAINED);
    }

    fn run_ended(&self) {
        self.end_run();
    }
}
