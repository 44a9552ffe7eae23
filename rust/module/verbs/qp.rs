// SPDX-License-Identifier: GPL-2.0

//! QP: a queue pair of a PD, with its send queue, its receives and its CQs.
//!
//! The transport is a QP of [`net`](crate::net): a reliable connection or datagrams. It calls the
//! QP here for what arrives ([`rc`](super::rc), [`ud`](super::ud)), and at the end of each of its
//! runs, which [issues](super::issue) posted work requests and flushes receives.
//!
//! Events are noted where they arise, and reported at the end of the run, without a lock.
//!
//! # Locks
//!
//! `modifying`, then the locks of the QP of `net`, then `incoming`; the rings of the queues and the
//! CQs are leaves. Callbacks into C are called without a spin lock. Those of a CQ may be called
//! under `modifying`, and the limit event of an SRQ under a mutex of a QP.

use core::{
    net::IpAddr,
    pin::Pin, //
};

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce,
        SpinLock, //
    },
    types::ForeignOwnable, //
};

use kfi_roce::{
    headers::Qpn,
    rc::Status,
    state::State, //
};

use super::{
    callbacks::Cookie,
    comp_cntr::AttachedCntrs,
    cq::{
        Cq,
        Entry,
        Opcode, //
    },
    declared,
    gsi::GsiQp,
    handle,
    issue::By,
    pd::Pd,
    raw::{
        self,
        kfabric_verbs_pd,
        kfabric_verbs_qp,
        kfabric_verbs_qp_init, //
    },
    rc::Incoming,
    recv::{
        Recv,
        RecvQueue, //
    },
    send::SendQueue,
    srq::Srq, //
};
use crate::{
    mem::{
        Allowance,
        Budget,
        INLINE_MAX, //
    },
    net::{
        flow::FlowTable,
        qp::{
            self as net_qp,
            rc, //
        },
        Link,
        PathCache, //
    }, //
};

/// The most work requests of a send queue.
pub(super) const MAX_WR: u32 = rc::MAX_SENDS as u32;

/// A bit among the events that is not reported: a CQ was full.
const OVERRUN: u32 = 31;

/// The most receives that a run flushes.
const FLUSHED: usize = 256;

/// The most inline bytes of a work request.
pub(super) const MAX_INLINE: u32 = INLINE_MAX as u32;

// What `kfabric_ib.ko` reports.
const _: () = assert!(
    raw::KFABRIC_VERBS_MAX_RD_ATOMIC == rc::MAX_RD_ATOMIC as u32
        && raw::KFABRIC_VERBS_MAX_RECV_WR == MAX_WR
);

/// The transport of a QP.
pub(super) enum Transport {
    /// A reliable connection.
    Rc(Arc<net_qp::Qp<net_qp::Rc>>),
    /// Datagrams.
    Ud(Arc<net_qp::Qp<net_qp::Ud>>),
    /// Datagrams of QP 1.
    Gsi(Arc<GsiQp>),
}

/// What a QP refers to.
pub(super) struct Parents {
    /// Its PD.
    pub(super) pd: Arc<Pd>,
    /// Where its work requests complete.
    pub(super) send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub(super) recv_cq: Arc<Cq>,
    /// Where its receives come from, if not from its own queue.
    pub(super) srq: Option<Arc<Srq>>,
}

/// A queue pair.
#[pin_data]
pub(super) struct Qp {
    parents: Parents,
    cookie: Cookie,
    signal_all: bool,
    /// Set when the QP is created.
    transport: SetOnce<Transport>,
    paths: Option<Pin<KBox<PathCache>>>,
    /// The flows that count its packets: of a program's QP for datagrams.
    flows: Option<Arc<FlowTable>>,
    /// The completion counters that are attached to it, if there are any. Set under `modifying`.
    pub(super) cntrs: SetOnce<KBox<AttachedCntrs>>,
    #[pin]
    pub(super) send: SendQueue,
    pub(super) recv: Arc<RecvQueue>,
    /// The message that is being received.
    #[pin]
    pub(super) incoming: Mutex<Option<Incoming>>,
    /// The address of the peer of a connection. A leaf; process context.
    #[pin]
    peer: SpinLock<Option<IpAddr>>,
    /// Its send queue is being drained, or was when a run has last ended.
    pub(super) draining: Atomic<bool>,
    /// Held during a change of the state.
    #[pin]
    pub(super) modifying: Mutex<()>,
    /// Events that were not reported yet, a bit for each number.
    events: Atomic<u32>,
    /// The next message is the first one since RTR.
    pub(super) awaits_first: Atomic<bool>,
    /// An error of this generation was reported by an entry, so no event reports it.
    reported: Atomic<bool>,
    /// It was reported that the QP takes no more receives of its SRQ.
    last_wqe: Atomic<bool>,
    _memory: Allowance,
}

impl Qp {
    /// A QP in state RESET.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: more work requests, SGEs or bytes than a QP can have; a program's GSI QP.
    /// - `ENODEV`: the interface has gone.
    /// - `EBUSY`: the namespace has too many QPs, or the device has a GSI QP.
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    ///
    /// Sleeps.
    pub(super) fn new(parents: Parents, init: &kfabric_verbs_qp_init) -> Result<Arc<Self>> {
        let max_sge = super::sge::MAX_SGE as u32;
        if init.max_send_wr > MAX_WR
            || init.max_send_sge > max_sge
            || init.max_recv_sge > max_sge
            || init.max_inline > MAX_INLINE
        {
            return Err(EINVAL);
        }
        let sends = init.max_send_wr.max(1);
        let context = parents.pd.context().clone();
        let budget = context.budget();
        let is_connection = init.type_ == raw::KFABRIC_VERBS_QP_RC;
        let is_gsi = init.type_ == raw::KFABRIC_VERBS_QP_GSI;
        if is_gsi && context.is_program() {
            return Err(EINVAL);
        }
        let bytes = if is_connection {
            net_qp::Qp::<net_qp::Rc>::bytes(sends as usize)
        } else {
            net_qp::Qp::<net_qp::Ud>::BYTES
                + size_of::<FlowTable>()
                + size_of::<PathCache>()
                + PathCache::PATH_BYTES
        };
        let queue = SendQueue::bytes(sends, init.max_send_sge, init.max_inline);
        let memory = budget.take_for::<Self>(bytes.saturating_add(queue))?;
        let paths = match is_connection {
            true => None,
            false => Some(KBox::pin_init(PathCache::new(), GFP_KERNEL_ACCOUNT)?),
        };
        let flows = match !is_connection && context.is_program() {
            true => Some(FlowTable::new(budget)?),
            false => None,
        };
        let send = SendQueue::new(sends, init.max_send_sge, init.max_inline)?;
        let recv = RecvQueue::new(budget, init.max_recv_wr, init.max_recv_sge)?;
        let qp = Arc::pin_init(
            try_pin_init!(Self {
                parents,
                cookie: Cookie::new(init.cookie),
                signal_all: init.signal_all,
                transport: SetOnce::new(),
                paths,
                flows,
                cntrs: SetOnce::new(),
                send <- send,
                recv,
                incoming <- new_mutex!(None, "Qp::incoming"),
                peer <- new_spinlock!(None, "verbs::Qp::peer"),
                draining: Atomic::new(false),
                modifying <- new_mutex!((), "verbs::Qp::modifying"),
                events: Atomic::new(0),
                awaits_first: Atomic::new(false),
                reported: Atomic::new(false),
                last_wqe: Atomic::new(false),
                _memory: memory,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let link = context.link();
        let transport = if is_gsi {
            Transport::Gsi(GsiQp::new(link, &qp)?)
        } else if !is_connection {
            let made =
                net_qp::Qp::<net_qp::Ud>::in_reset(link, qp.flows.clone(), budget, qp.clone());
            Transport::Ud(made?)
        } else {
            let sends = qp.send.capacity() as usize;
            let made = net_qp::Qp::<net_qp::Rc>::connection(link, sends, budget, qp.clone());
            Transport::Rc(made?)
        };
        qp.transport.populate(transport);
        Ok(qp)
    }

    /// Ends the QP: nothing arrives and no callback is called after this has returned, and its
    /// entries are gone from its CQs. Waits for a run. Sleeps.
    fn close(&self) {
        match self.transport.as_ref() {
            Some(Transport::Rc(qp)) => qp.close(),
            Some(Transport::Ud(qp)) => qp.close(),
            Some(Transport::Gsi(gsi)) => gsi.close(),
            None => {}
        }
        *self.incoming.lock() = None;
        // No run counts any more.
        self.release_cntrs();
        let Parents {
            send_cq, recv_cq, ..
        } = &self.parents;
        send_cq.forget(self.cookie);
        if !Arc::ptr_eq(send_cq, recv_cq) {
            recv_cq.forget(self.cookie);
        }
    }

    /// The QP of a handle.
    ///
    /// # Safety
    ///
    /// The handle is valid by the interface, for as long as the result is used.
    pub(super) unsafe fn borrow<'a>(qp: *const kfabric_verbs_qp) -> ArcBorrow<'a, Self> {
        // SAFETY: By the requirement above.
        unsafe { Arc::<Self>::borrow(qp.cast_mut().cast()) }
    }

    /// The address of the peer of a connection, if it is known. Process context.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        *self.peer.lock()
    }

    /// Sets the address of the peer of a connection. Process context.
    pub(super) fn set_peer(&self, peer: IpAddr) {
        *self.peer.lock() = Some(peer);
    }

    /// Its transport; `None` only while it is created. Any context.
    pub(super) fn transport(&self) -> Option<&Transport> {
        self.transport.as_ref()
    }

    /// Its number. Any context.
    pub(super) fn number(&self) -> u32 {
        match self.transport() {
            Some(Transport::Rc(qp)) => qp.number().get(),
            Some(Transport::Ud(qp)) => qp.number().get(),
            Some(Transport::Gsi(_)) => Qpn::GSI.get(),
            None => 0,
        }
    }

    /// Its PD. Any context.
    pub(super) fn pd(&self) -> &Pd {
        &self.parents.pd
    }

    /// Where its work requests complete. Any context.
    pub(super) fn send_cq(&self) -> &Arc<Cq> {
        &self.parents.send_cq
    }

    /// Where its receives complete. Any context.
    pub(super) fn recv_cq(&self) -> &Arc<Cq> {
        &self.parents.recv_cq
    }

    /// Where its receives come from, if not from its own queue. Any context.
    pub(super) fn srq(&self) -> Option<&Srq> {
        self.parents.srq.as_deref()
    }

    /// Whether all work requests are signalled. Any context.
    pub(super) fn signal_all(&self) -> bool {
        self.signal_all
    }

    /// The link of its device. Any context.
    pub(super) fn link(&self) -> &Arc<Link> {
        self.pd().context().link()
    }

    /// The budget of its owner. Any context.
    pub(super) fn budget(&self) -> &Budget {
        self.pd().context().budget()
    }

    /// Whether its owner is a program. Any context.
    pub(super) fn is_of_program(&self) -> bool {
        self.pd().context().is_program()
    }

    /// The paths to its recent destinations. Fails with `EINVAL` for a connection, which has one
    /// path.
    pub(super) fn paths(&self) -> Result<&PathCache> {
        self.paths.as_deref().ok_or(EINVAL)
    }

    /// The flows that count its packets. Fails with `EINVAL` for a connection, and for a QP of
    /// kernel callers. Any context.
    pub(super) fn flows(&self) -> Result<&Arc<FlowTable>> {
        self.flows.as_ref().ok_or(EINVAL)
    }

    /// Queues a run. Any context.
    pub(super) fn wake(&self) {
        match self.transport() {
            Some(Transport::Rc(qp)) => qp.wake(),
            Some(Transport::Ud(qp)) => qp.wake(),
            Some(Transport::Gsi(gsi)) => gsi.wake(),
            None => {}
        }
    }

    /// A work request has failed: moves the QP to ERR, or to SQE if it has datagrams. Process
    /// context, no lock held but `modifying`; may sleep.
    pub(super) fn fail(&self) {
        match self.transport() {
            Some(Transport::Rc(qp)) => {
                qp.fail();
                self.send.fail(State::Error);
            }
            Some(Transport::Ud(qp)) => {
                // In this order: where a change to RTS comes between both, the next datagram fails
                // again.
                self.send.fail(State::Sqe);
                qp.fail_send();
            }
            Some(Transport::Gsi(_)) => self.send.fail(State::Sqe),
            None => {}
        }
    }

    /// An entry was lost: moves the QP to ERR. Process context, no lock held but `modifying`; may
    /// sleep.
    pub(super) fn fail_all(&self) {
        match self.transport() {
            Some(Transport::Rc(qp)) => qp.fail(),
            Some(Transport::Ud(qp)) => qp.fail(),
            Some(Transport::Gsi(_)) | None => {}
        }
        self.send.fail(State::Error);
    }

    /// The next receive, and the PD whose keys it has. Process context.
    pub(super) fn next_receive(&self) -> Option<(Recv, &Pd)> {
        match self.srq() {
            Some(srq) => srq.pop().map(|recv| (recv, &**srq.pd())),
            None => self.recv.pop().map(|recv| (recv, self.pd())),
        }
    }

    /// An entry of the QP.
    pub(super) fn entry(&self, wr_id: u64, status: Status, opcode: Opcode) -> Entry {
        Entry {
            wr_id,
            qp: self.cookie,
            qpn: self.number(),
            status,
            opcode,
            ..Entry::EMPTY
        }
    }

    /// Counts a receive that has ended, and adds its entry to its CQ. Process context; calls no
    /// handler.
    pub(super) fn received(&self, entry: &Entry, solicited: bool) {
        self.note_error(entry.status);
        self.count_receive(entry);
        if self.recv_cq().push(entry, solicited).is_err() {
            self.raise(OVERRUN);
        }
    }

    /// Notes the status of an entry. An error that an entry reports has no event; a flushed entry
    /// reports none. A program that has polled an error of a connection finds it in ERR. Any
    /// context.
    pub(super) fn note_error(&self, status: Status) {
        if status != Status::Success && matches!(self.transport(), Some(Transport::Rc(_))) {
            self.send.fail(State::Error);
        }
        if !matches!(status, Status::Success | Status::Flushed) {
            self.reported.store(true, Relaxed);
        }
    }

    /// Notes an event, which the end of the run reports. Any context.
    pub(super) fn raise(&self, event: u32) {
        let mut seen = self.events.load(Relaxed);
        while let Err(now) = self.events.cmpxchg(seen, seen | 1 << event, Full) {
            seen = now;
        }
    }

    /// Forgets events, errors and an RDMA READ that has not ended, because a new generation begins
    /// in RESET. Process context; no run.
    pub(super) fn forget_generation(&self) {
        self.reported.store(false, Relaxed);
        self.events.store(0, Relaxed);
        self.awaits_first.store(false, Relaxed);
        self.last_wqe.store(false, Relaxed);
        self.forget_remote_read();
    }

    /// The transport has entered ERR by itself. Process context, no lock held.
    pub(super) fn has_failed(&self) {
        self.send.fail(State::Error);
        // No event reports the error if an entry of this run does.
        self.raise(raw::KFABRIC_VERBS_EVENT_QP_FATAL);
    }

    /// The end of a run: issues what was posted, flushes receives in ERR, calls handlers. Process
    /// context, no lock held.
    pub(super) fn end_run(&self) {
        let context = self.pd().context();
        context.memcg().charge(|| self.progress(By::Run));
        if self.draining.load(Relaxed) {
            self.draining.store(self.is_draining(), Relaxed);
        }
        if self.send.state() == State::Error {
            self.flush_receives();
        }
        self.recv_cq().notify();
        self.report_events();
    }

    /// Completes all posted receives as flushed. With an SRQ, whose receives stay, reports that the
    /// QP takes none any more.
    fn flush_receives(&self) {
        if self.incoming.lock().is_some() {
            return;
        }
        if self.srq().is_some() {
            if !self.last_wqe.xchg(true, Full) {
                self.raise(raw::KFABRIC_VERBS_EVENT_LAST_WQE);
            }
            return;
        }
        // A program may post as fast as this flushes.
        for _ in 0..FLUSHED {
            let Some(recv) = self.recv.pop() else {
                return;
            };
            let entry = self.entry(recv.wr_id, Status::Flushed, Opcode::Recv);
            self.received(&entry, false);
        }
        self.wake();
    }

    fn report_events(&self) {
        /// Errors: the first one is reported, and none if an entry has reported it.
        const ERRORS: [u32; 2] = [
            raw::KFABRIC_VERBS_EVENT_ACCESS_ERR,
            raw::KFABRIC_VERBS_EVENT_QP_FATAL,
        ];
        let events = self.events.xchg(0, Full);
        if events & 1 << OVERRUN != 0 {
            self.fail_all();
        }
        let report = |event| self.pd().context().callbacks().qp_event(self.cookie, event);
        for event in [
            raw::KFABRIC_VERBS_EVENT_COMM_EST,
            raw::KFABRIC_VERBS_EVENT_SQ_DRAINED,
            raw::KFABRIC_VERBS_EVENT_LAST_WQE,
        ] {
            if events & 1 << event != 0 {
                report(event);
            }
        }
        let error = ERRORS.into_iter().find(|&event| events & 1 << event != 0);
        if let Some(event) = error.filter(|_| !self.reported.xchg(true, Full)) {
            report(event);
        }
    }

    /// The peer has refused access to its memory. Does not sleep.
    pub(super) fn refused(&self) {
        self.budget().refused(self.number().into());
    }
}

declared! {
    kfabric_verbs_qp_create:
        fn(*mut kfabric_verbs_pd, *mut kfabric_verbs_qp_init) -> *mut kfabric_verbs_qp;
    kfabric_verbs_qp_destroy: fn(*mut kfabric_verbs_qp);
    kfabric_verbs_qp_number: fn(*const kfabric_verbs_qp) -> u32;
}

/// Makes a QP, and stores its capacities in `init`. Fails as [`Qp::new`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_create(
    pd: *mut kfabric_verbs_pd,
    init: *mut kfabric_verbs_qp_init,
) -> *mut kfabric_verbs_qp {
    // SAFETY: By the requirement above.
    let (parents, init) = unsafe {
        let init = &mut *init;
        let srq = match init.srq.is_null() {
            true => None,
            false => Some(Arc::<Srq>::borrow(init.srq.cast()).into()),
        };
        let parents = Parents {
            pd: Arc::<Pd>::borrow(pd.cast()).into(),
            send_cq: Arc::<Cq>::borrow(init.send_cq.cast()).into(),
            recv_cq: Arc::<Cq>::borrow(init.recv_cq.cast()).into(),
            srq,
        };
        (parents, init)
    };
    if parents.srq.is_some() {
        (init.max_recv_wr, init.max_recv_sge) = (0, 0);
    }
    let qp = Qp::new(parents, init);
    if let Ok(qp) = &qp {
        init.max_send_wr = qp.send.capacity();
    }
    handle(qp)
}

/// Ends a QP. Waits for a run of it. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_destroy(qp: *mut kfabric_verbs_qp) {
    // SAFETY: By the requirement above.
    let qp = unsafe { Arc::<Qp>::from_foreign(qp.cast()) };
    qp.close();
}

/// The number of a QP. Any context.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_number(qp: *const kfabric_verbs_qp) -> u32 {
    // SAFETY: By the requirement above.
    unsafe { Qp::borrow(qp) }.number()
}
