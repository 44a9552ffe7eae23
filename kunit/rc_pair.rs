// SPDX-License-Identifier: GPL-2.0

//! Two connected QPs for the suites of reliable connections, with consumers that record calls.

use super::{
    kunit_wire_pair::{
        buffer,
        TestLink,
        ONE,
        TWO, //
    },
    qp::{
        rc::{
            Consumer,
            Rc,
            Request, //
        },
        Payload,
        Qp, //
    },
    Path,
    QpStats,
    Stat, //
};
use crate::{
    kunit::helpers::{
        eventually,
        may_sleep, //
    },
    mem::{
        self,
        Budget,
        MemRef, //
    },
    shim::skb::Room, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_roce::{
    headers::{
        AtomicEth,
        Reth,
        RnrTimer,
        SendEnd, //
    },
    mtu::PathMtu,
    psn::Psn,
    rc::{
        target::{
            Atomic as AtomicOp,
            Ended,
            Incoming, //
        },
        Access,
        AckTimeout,
        Attr,
        Op,
        Refusal,
        Status, //
    },
    state::{
        Mask,
        State, //
    }, //
};

/// The address of an end's region, and its key.
pub(super) const VA: u64 = 0x10_0000;
pub(super) const RKEY: u32 = 0x77;

/// The size of a region and of the buffer that all receives share, in bytes.
pub(super) const REGION: usize = 1 << 20;

/// A consumer with one region, and with receives that all use the same buffer.
#[pin_data]
pub(crate) struct Peer {
    pub(super) region: MemRef,
    pub(super) receive: MemRef,
    /// The number of posted receives.
    pub(super) posted: Atomic<u32>,
    /// The number of receives in progress, at most one.
    pub(super) open: Atomic<u32>,
    pub(super) received: Atomic<u32>,
    pub(super) aborted: Atomic<u32>,
    pub(super) written: Atomic<u32>,
    pub(super) was_read: Atomic<u32>,
    pub(super) failed: Atomic<u32>,
    pub(super) refused: Atomic<u32>,
    pub(super) drained: Atomic<u32>,
    pub(super) runs: Atomic<u32>,
    /// Whether reads of memory fail while a message is being received.
    pub(super) fragile: Atomic<bool>,
    /// The number of calls that may sleep but were made in atomic context.
    pub(super) in_atomic: Atomic<u32>,
    #[pin]
    pub(super) last: Mutex<Option<Ended>>,
    /// The completions, in order.
    #[pin]
    pub(super) done: Mutex<KVec<(u64, Status)>>,
}

impl Peer {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let region = MemRef::buffer(REGION)?;
        let receive = MemRef::buffer(REGION)?;
        let done = KVec::with_capacity(1 << 14, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                region,
                receive,
                posted: Atomic::new(1 << 20),
                open: Atomic::new(0),
                received: Atomic::new(0),
                aborted: Atomic::new(0),
                written: Atomic::new(0),
                was_read: Atomic::new(0),
                failed: Atomic::new(0),
                refused: Atomic::new(0),
                drained: Atomic::new(0),
                runs: Atomic::new(0),
                fragile: Atomic::new(false),
                in_atomic: Atomic::new(0),
                last <- new_mutex!(None),
                done <- new_mutex!(done),
            }),
            GFP_KERNEL,
        )
    }

    /// Called by each function that may sleep. Counts calls in atomic context.
    fn sleeps(&self) {
        if !may_sleep() {
            self.in_atomic.fetch_add(1, Full);
        }
    }

    pub(super) fn received(&self) -> u32 {
        self.received.load(Acquire)
    }

    /// Returns the number of completed work requests.
    pub(super) fn ended(&self) -> usize {
        self.done.lock().len()
    }

    /// Returns the status of the last completion.
    pub(crate) fn status(&self) -> Option<Status> {
        self.done.lock().last().map(|(_, status)| *status)
    }

    /// Returns the part of the region that `reth` names.
    pub(super) fn part(&self, reth: &Reth, offset: u32) -> Result<MemRef, Refusal> {
        let at = reth.va.checked_sub(VA).ok_or(Refusal::Access)?;
        let end = at.checked_add(reth.len.into()).ok_or(Refusal::Access)?;
        if reth.rkey != RKEY || end > REGION as u64 {
            return Err(Refusal::Access);
        }
        let at = at as usize + offset as usize;
        Ok(self.region.slice(at, reth.len as usize - offset as usize))
    }
}

impl Consumer for Peer {
    fn begin_receive(&self, _: Incoming, _: &Payload<'_>) -> Result<(), Refusal> {
        self.sleeps();
        let posted = self.posted.load(Acquire);
        if posted == 0 {
            return Err(Refusal::NotReady);
        }
        self.posted.store(posted - 1, Release);
        self.open.add(1, Relaxed);
        Ok(())
    }

    fn place(&self, offset: u32, payload: &Payload<'_>) -> Result<(), Refusal> {
        let placed = payload.place(&self.receive, offset as usize);
        (placed == payload.len())
            .then_some(())
            .ok_or(Refusal::Invalid)
    }

    fn end_receive(&self, ended: Ended) -> Result<(), Refusal> {
        self.sleeps();
        *self.last.lock() = Some(ended);
        self.open.fetch_sub(1, Full);
        self.received.fetch_add(1, Full);
        Ok(())
    }

    fn abort_receive(&self, _: Option<Refusal>) {
        self.sleeps();
        self.open.fetch_sub(1, Full);
        self.aborted.fetch_add(1, Full);
    }

    fn check_write(&self, reth: &Reth) -> Result<(), Refusal> {
        self.sleeps();
        self.part(reth, 0).map(drop)
    }

    fn write(&self, reth: &Reth, offset: u32, payload: &Payload<'_>) -> Result<(), Refusal> {
        payload.place(&self.part(reth, offset)?, 0);
        Ok(())
    }

    fn end_write(&self, _: &Reth) {
        self.sleeps();
        self.written.fetch_add(1, Full);
    }

    fn check_read(&self, reth: &Reth) -> Result<(), Refusal> {
        self.sleeps();
        self.part(reth, 0).map(drop)
    }

    fn read(&self, reth: &Reth, room: &mut Room<'_>) -> Result<(), Refusal> {
        if self.fragile.load(Acquire) && self.open.load(Acquire) > 0 {
            return Err(Refusal::Access);
        }
        mem::payload::gather_mem(room, &self.part(reth, 0)?, 0);
        Ok(())
    }

    fn end_read(&self, _: &Reth, _: bool) {
        self.was_read.fetch_add(1, Full);
    }

    fn atomic(&self, atomic: AtomicOp, eth: &AtomicEth) -> Result<u64, Refusal> {
        let reth = Reth {
            va: eth.va,
            rkey: eth.rkey,
            len: 8,
        };
        let part = self.part(&reth, 0)?;
        let mut bytes = [0; 8];
        mem::payload::peek(&mut bytes, &part, 0);
        let before = u64::from_ne_bytes(bytes);
        let after = match atomic {
            AtomicOp::CompareSwap if before == eth.compare => eth.swap_add,
            AtomicOp::CompareSwap => before,
            AtomicOp::FetchAdd => before.wrapping_add(eth.swap_add),
        };
        mem::payload::store(&part, 0, &after.to_ne_bytes());
        Ok(before)
    }

    fn completed(&self, context: u64, status: Status) {
        self.sleeps();
        let _ = self.done.lock().push((context, status), GFP_KERNEL);
    }

    fn failed(&self) {
        self.sleeps();
        self.failed.fetch_add(1, Full);
    }

    fn not_ready(&self) {
        self.refused.fetch_add(1, Full);
    }

    fn drained(&self) {
        self.sleeps();
        self.drained.fetch_add(1, Full);
    }

    fn run_ended(&self) {
        self.sleeps();
        self.runs.fetch_add(1, Full);
    }
}

/// A QP with its consumer; dropping it closes the QP.
pub(super) struct End {
    pub(super) qp: Arc<Qp<Rc>>,
    pub(super) peer: Arc<Peer>,
}

impl End {
    pub(super) fn new(link: &TestLink, sends: usize) -> Result<Self> {
        Self::of(link, sends, &Budget::of_program()?)
    }

    /// Like `new`, with a QP that is charged to `owner`.
    pub(super) fn of(link: &TestLink, sends: usize, owner: &Budget) -> Result<Self> {
        let peer = Peer::new()?;
        let stats = QpStats::shared()?;
        let qp = Qp::connection_with_inline_headers(&link.0, sends, stats, owner, peer.clone())?;
        Ok(Self { qp, peer })
    }

    /// Connects the QP to `to`. Both ends must be connected.
    pub(super) fn connect(&self, path: &Arc<Path>, to: &Self, base: &Attr) -> Result {
        let all = Access {
            write: true,
            read: true,
            atomic: true,
        };
        let mut attr = Attr {
            state: State::Init,
            access: all,
            dest_qpn: to.qp.number(),
            // The first PSNs are derived from the numbers of the QPs.
            rq_psn: Psn::new(to.qp.number().get()),
            sq_psn: Psn::new(self.qp.number().get()),
            ..*base
        };
        self.qp.modify(&attr, Mask::RC_TO_INIT, None)?;
        attr.state = State::Rtr;
        self.qp.modify(&attr, Mask::RC_TO_RTR, Some(path))?;
        attr.state = State::Rts;
        self.qp.modify(&attr, Mask::RC_TO_RTS, None)
    }

    /// Sends the inline header `inline_header`, followed by `memory`.
    pub(super) fn send(&self, inline_header: &[u8], memory: &MemRef) -> Result {
        self.post_with_header(SEND, inline_header, memory)
    }

    pub(super) fn post(&self, op: Op, memory: &MemRef) -> Result {
        self.post_with_header(op, &[], memory)
    }

    fn post_with_header(&self, op: Op, inline_header: &[u8], memory: &MemRef) -> Result {
        let context = self.peer.ended() as u64;
        self.qp
            .queue(&plain(op), inline_header, &mut memory.clone(), context)?;
        self.qp.push_only();
        Ok(())
    }

    /// Posts an operation and waits for its completion.
    pub(super) fn run(&self, op: Op, memory: &MemRef) -> Result<Option<Status>> {
        let before = self.peer.ended();
        self.post(op, memory)?;
        Ok(if eventually(|| self.peer.ended() > before) {
            self.peer.status()
        } else {
            None
        })
    }

    pub(super) fn stat(&self, stat: Stat) -> u64 {
        self.qp.stats().get(stat)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.qp.close();
    }
}

/// Two connected QPs.
pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) link: TestLink,
}

/// Returns the attributes that most tests use for a connection.
pub(crate) fn default_attr() -> Attr {
    Attr {
        path_mtu: PathMtu::Mtu1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: RnrTimer::at_least(100_000),
        // The timeout is 1.1 s, so that a QP whose peer is not scheduled fails after half a minute.
        // A lost packet is sent again long before, by a probe.
        timeout: AckTimeout::from_code(18).unwrap_or_default(),
        retry_cnt: 7,
        rnr_retry: 7,
        ..Attr::default()
    }
}

impl Pair {
    pub(super) fn new(from: IpAddr, to: IpAddr, base: &Attr) -> Result<Self> {
        Self::of(from, to, base, &Budget::of_program()?)
    }

    /// Like `new`, with a second QP that is charged to `owner`.
    pub(super) fn of(from: IpAddr, to: IpAddr, base: &Attr, owner: &Budget) -> Result<Self> {
        Self::of_owners(from, to, base, [&Budget::of_program()?, owner])
    }

    /// Like `new`, with the owner of each QP.
    pub(super) fn of_owners(
        from: IpAddr,
        to: IpAddr,
        base: &Attr,
        owners: [&Budget; 2],
    ) -> Result<Self> {
        let link = TestLink::new()?;
        let a = End::of(&link, 64, owners[0])?;
        let b = End::of(&link, 64, owners[1])?;
        let there = Path::new(&link.0, from, to)?;
        let back = Path::new(&link.0, to, from)?;
        a.connect(&there, &b, base)?;
        b.connect(&back, &a, base)?;
        Ok(Self { a, b, link })
    }

    pub(super) fn default() -> Result<Self> {
        Self::new(ONE, TWO, &default_attr())
    }

    /// Returns whether a message gets through in both directions.
    pub(super) fn works(&self) -> Result<bool> {
        let payload = buffer(3000)?;
        let there = self.a.run(SEND, &payload)? == Some(Status::Success);
        let back = self.b.run(SEND, &payload)? == Some(Status::Success);
        Ok(there && back)
    }
}

/// Returns a request for `op` without further options.
pub(crate) fn plain(op: Op) -> Request {
    Request {
        op,
        fence: false,
        solicited: false,
    }
}

pub(super) const SEND: Op = Op::Send(SendEnd::Plain);
pub(super) const WRITE: Op = Op::Write {
    va: VA,
    rkey: RKEY,
    imm: None,
};
pub(super) const READ: Op = Op::Read { va: VA, rkey: RKEY };
