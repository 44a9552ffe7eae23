// SPDX-License-Identifier: GPL-2.0

//! The requests of a connected endpoint's peer, and the events of its QP.
//!
//! The QP calls all of these functions, one after the other. They run inside the endpoint's
//! drain. A message begins with its first packet, which takes the oldest receive; the bytes of
//! each packet are placed there. A write with CQ data takes no receive. It reserves room for its
//! entry in the CQ, so that the entry cannot be lost; if there is no room, the peer tries again.
//! Without a CQ the data are dropped.
//!
//! The peer accesses memory through regions, by their keys. A region is looked up for each packet,
//! because its owner may close it at any time. An atomic reads and writes, so it needs both rights.
//! It changes the word with one atomic instruction of this CPU. It counts as a read, as fi_cntr(3)
//! specifies for atomics that fetch.

use kfi_core::{
    flags::{
        Access,
        CompFlags, //
    },
    matching::Envelope,
    mr, //
};
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
    super::{
        atomic::{
            change_word,
            RC_ACCESS, //
        },
        bound::CqBinding,
        complete::Failure,
        prelude::*,
        receive::Single,
        wire::Wire, //
    },
    connect::Lost,
    Msg, //
};
use crate::{
    mem::payload,
    net::qp::{
        rc::Consumer,
        Payload, //
    },
    provider::{
        cq::Credit,
        drain::DrainGuard,
        mr::Mr, //
    },
    shim::skb::Room, //
};

/// The result of a request of the peer, or the reason of its refusal.
type RequestResult<T = ()> = core::result::Result<T, Refusal>;

/// A message, or a write with CQ data, that is being received.
pub(super) enum Incoming {
    /// A message, and the receive that it goes to.
    Message {
        into: Single,
        /// Bytes that were placed, and bytes that did not fit.
        placed: u64,
        lost: u64,
    },
    /// A write, and room for its entry; `None` without a CQ.
    Write(Option<Credit>),
}

impl Incoming {
    /// Gives back its ticket or credit. For teardown.
    pub(super) fn give_back(self, endpoint: &Endpoint, bound: &Bound) {
        match self {
            Self::Message { into, .. } => endpoint.give_back(bound, into.into_ticket()),
            Self::Write(credit) => give_back_credit(bound, credit),
        }
    }
}

fn give_back_credit(bound: &Bound, credit: Option<Credit>) {
    if let (Some(binding), Some(credit)) = (bound.cq(Side::Receive), credit) {
        binding.cq.unreserve(credit);
    }
}

/// An endpoint that a function below is inside of.
struct Inside<'a> {
    msg: &'a Msg,
    bound: &'a Bound,
    _inside: DrainGuard<'a>,
}

impl Endpoint {
    /// Enters the endpoint and notes that the peer is ready, because it has sent a packet. `None`:
    /// the endpoint is closing. Sleeps.
    fn enter_connected(&self) -> Option<Inside<'_>> {
        let inside = self.enter_silently()?;
        inside.msg.packet_received(self, inside.bound);
        Some(inside)
    }

    /// Enters the endpoint without noting that the peer is ready. Does not sleep.
    fn enter_silently(&self) -> Option<Inside<'_>> {
        let (Some(Wire::Msg(msg)), Some(inside), Some(bound)) =
            (&self.wire, self.drain.enter(), self.bound.as_ref())
        else {
            return None;
        };
        Some(Inside {
            msg,
            bound,
            _inside: inside,
        })
    }

    /// Calls `work` inside the region under `rkey`.
    fn with_rkey<T>(
        &self,
        rkey: u32,
        work: impl FnOnce(&Mr) -> core::result::Result<T, mr::Refusal>,
    ) -> RequestResult<T> {
        let _inside = self.enter_connected().ok_or(Refusal::Operation)?;
        self.in_named_region(rkey, work)
    }

    /// Calls `work` inside the region under `rkey`. The caller is inside the endpoint. Does not
    /// sleep if `work` does not.
    fn in_named_region<T>(
        &self,
        rkey: u32,
        work: impl FnOnce(&Mr) -> core::result::Result<T, mr::Refusal>,
    ) -> RequestResult<T> {
        let done = self.domain.in_region(u64::from(rkey), work);
        done.map_err(|refusal| {
            self.domain.count_refusal();
            // The peer does not cause contention: it needs only one round.
            let by_peer = refusal != mr::Refusal::Contention;
            if let Some(peer) = self.peer_addr().ok().filter(|_| by_peer) {
                self.ident.budget.refused_peer(peer.ip());
            }
            Refusal::Access
        })
    }

    /// Checks that the peer may read the memory that `reth` names, or write it with `WRITE`. Each
    /// has a function of its own, so that no call is added.
    #[inline(always)]
    fn check_access<const WRITE: bool>(&self, reth: &Reth) -> RequestResult {
        if reth.len == 0 {
            // InfiniBand does not check the key of an access to no bytes. The call notes that the
            // peer is ready.
            drop(self.enter_connected());
            return Ok(());
        }
        self.with_rkey(reth.rkey, |region| {
            let access = if WRITE {
                Access::REMOTE_WRITE
            } else {
                Access::REMOTE_READ
            };
            let memory = region.remote(reth.va, u64::from(reth.len), access)?;
            drop(memory);
            Ok(())
        })
    }

    /// Counts an operation of the peer on `len` bytes at its end. An access to no bytes with a key
    /// that does not allow it succeeds, and counts nowhere. Does not sleep.
    fn count_access(&self, kind: OpType, reth: &Reth, len: u64) {
        let Some(inside) = self.enter_silently() else {
            return;
        };
        // The region may have been closed meanwhile. If no byte was accessed, the access is checked
        // here for the first time.
        let counted = self.domain.in_region(u64::from(reth.rkey), |region| {
            region.remote(reth.va, u64::from(reth.len), kind.target_access())?;
            region.count(kind == OpType::Write);
            Ok(())
        });
        if len == 0 && counted.is_err() {
            return;
        }
        self.complete_remote(inside.bound, kind, OpFlags::EMPTY, 0, len);
    }
}

impl Consumer for Endpoint {
    fn begin_receive(&self, wanted: Wanted, _payload: &Payload<'_>) -> RequestResult {
        let inside = self.enter_connected().ok_or(Refusal::Operation)?;
        let incoming = match wanted {
            Wanted::Send { .. } => {
                let envelope = Envelope {
                    src: inside.bound.name,
                    tag: 0,
                };
                Incoming::Message {
                    into: self.take_single(&envelope).ok_or(Refusal::NotReady)?,
                    placed: 0,
                    lost: 0,
                }
            }
            Wanted::WriteImm => {
                let reserve = |binding: &CqBinding| binding.cq.reserve();
                let credit = inside.bound.cq(Side::Receive).map(reserve).transpose();
                Incoming::Write(credit.map_err(|_| Refusal::NotReady)?)
            }
        };
        *inside.msg.incoming.lock() = Some(incoming);
        Ok(())
    }

    fn place(&self, offset: u32, payload: &Payload<'_>) -> RequestResult {
        let inside = self.enter_connected().ok_or(Refusal::Operation)?;
        match &mut *inside.msg.incoming.lock() {
            Some(Incoming::Message { into, placed, lost }) => {
                // A message that is too long is refused at its end, when its length is known.
                let fits = payload.place(&into.into, offset as usize);
                *placed = placed.saturating_add(fits as u64);
                *lost = lost.saturating_add(payload.len().saturating_sub(fits) as u64);
                Ok(())
            }
            _ => Err(Refusal::Operation),
        }
    }

    fn end_receive(&self, ended: Ended) -> RequestResult {
        let data = match ended.end {
            SendEnd::Plain => None,
            SendEnd::Imm(imm) => Some(u64::from(imm)),
            // A peer cannot invalidate a region of this module.
            SendEnd::Invalidate(_) => return Err(Refusal::Access),
        };
        let inside = self.enter_connected().ok_or(Refusal::Operation)?;
        let incoming = {
            let mut incoming = inside.msg.incoming.lock();
            if let Some(Incoming::Message { lost: 1.., .. }) = &*incoming {
                // Longer than its receive. `abort_receive` ends it.
                return Err(Refusal::Invalid);
            }
            incoming.take()
        };
        let len = u64::from(ended.len);
        match incoming {
            Some(Incoming::Message { into, .. }) => {
                self.count_rx(len);
                let mut outcome = Outcome::done(len);
                if let Some(data) = data {
                    outcome.flags = CompFlags::REMOTE_CQ_DATA;
                    outcome.data = data;
                }
                self.complete(inside.bound, into.into_ticket(), outcome);
                Ok(())
            }
            Some(Incoming::Write(credit)) => {
                self.complete_remote_data(inside.bound, credit, data.unwrap_or(0));
                Ok(())
            }
            None => Err(Refusal::Operation),
        }
    }

    fn abort_receive(&self, why: Option<Refusal>) {
        let Some(inside) = self.enter_connected() else {
            return;
        };
        let incoming = inside.msg.incoming.lock().take();
        match incoming {
            Some(Incoming::Message { into, placed, lost }) => {
                let status = match why {
                    None => Status::Flushed,
                    Some(Refusal::Invalid) if lost > 0 => Status::LocalLength,
                    Some(_) => Status::LocalOperation,
                };
                let mut outcome = Outcome::done(placed);
                outcome.error = prov_errno::of_status(status).map(|(errno, prov_errno)| Failure {
                    errno,
                    prov_errno,
                    olen: if status == Status::LocalLength {
                        lost
                    } else {
                        0
                    },
                });
                self.complete(inside.bound, into.into_ticket(), outcome);
            }
            Some(Incoming::Write(credit)) => give_back_credit(inside.bound, credit),
            None => {}
        }
    }

    fn check_write(&self, reth: &Reth) -> RequestResult {
        self.check_access::<true>(reth)
    }

    fn write(&self, reth: &Reth, offset: u32, payload: &Payload<'_>) -> RequestResult {
        let placed = self.with_rkey(reth.rkey, |region| {
            let memory = region.remote(reth.va, u64::from(reth.len), Access::REMOTE_WRITE)?;
            Ok(payload.place(&memory, offset as usize))
        })?;
        if placed == payload.len() {
            Ok(())
        } else {
            Err(Refusal::Operation)
        }
    }

    fn end_write(&self, reth: &Reth) {
        self.count_access(OpType::Write, reth, u64::from(reth.len));
    }

    fn check_read(&self, reth: &Reth) -> RequestResult {
        self.check_access::<false>(reth)
    }

    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> RequestResult {
        // Connection management has mutexes, and this function must not sleep. `check_read` has
        // noted before that the peer is ready.
        let _inside = self.enter_silently().ok_or(Refusal::Operation)?;
        self.in_named_region(reth.rkey, |region| {
            let memory = region.remote(reth.va, u64::from(reth.len), Access::REMOTE_READ)?;
            // The caller of `work` holds another reference to the region, so its pages are not
            // unpinned here.
            payload::gather_mem(room, &memory, 0);
            Ok(())
        })
    }

    fn end_read(&self, reth: &Reth, more: bool) {
        let Ok(msg) = self.msg() else {
            return;
        };
        let len = u64::from(reth.len).saturating_add(msg.read_bytes.load(Relaxed));
        msg.read_bytes.store(if more { len } else { 0 }, Relaxed);
        if !more {
            self.count_access(OpType::Read, reth, len);
        }
    }

    fn atomic(&self, atomic: Atomic, eth: &AtomicEth) -> RequestResult<u64> {
        let (len, access) = RC_ACCESS;
        let found = self.with_rkey(eth.rkey, |region| {
            let memory = region.remote(eth.va, len, access)?;
            change_word(&memory, atomic, eth)
        })?;
        let reth = Reth {
            va: eth.va,
            rkey: eth.rkey,
            len: len as u32,
        };
        self.count_access(OpType::FetchAtomic, &reth, len);
        Ok(found)
    }

    fn completed(&self, context: u64, status: Status) {
        if let Some(inside) = self.enter_connected() {
            inside.msg.ended(self, inside.bound, context, status);
        }
    }

    fn failed(&self) {
        if let Some(inside) = self.enter_connected() {
            inside
                .msg
                .lost(self, inside.bound, &Lost::Failed(Errno::EIO));
        }
    }
}
