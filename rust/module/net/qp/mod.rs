// SPDX-License-Identifier: GPL-2.0

//! QP: a queue pair of InfiniBand's transport, on a link.
//!
//! [`Qp`] is the common part: number, address, inbox, worker, timer, statistics. A [`Kind`], [`Ud`]
//! or [`Rc`], processes the packets. A QP is created with a number, in state RESET. It takes its
//! address and its attributes by changes of its state ([`modify`]), and can return to RESET and be
//! used again.
//!
//! # Receiving a packet
//!
//! ```text
//! wire -> softirq: Inbound finds the QP -> Qp::arrive: service, addresses, ICRC -> inbox
//!      -> a run:   all waiting packets -> Kind::work: the state machine, the consumer above
//! ```
//!
//! The ICRC is verified before a packet is queued. So a packet that was damaged, or whose sender
//! does not compute the ICRC, neither fills the inbox nor wakes the worker.
//!
//! One task at a time runs a QP, so its packets are processed in order, and those of different QPs
//! on different CPUs. The task is the QP's worker (a work item of its own) or, if a task of the
//! QP's [`Principal`] on the same host has just sent the packets, that task: it runs the receive
//! work to completion, which saves waking the worker ([`InlineList`]). If the task does not begin
//! in time, the worker does ([`Deadline`]). A task that finds the QP running leaves the packets to
//! the task that runs it. That task checks the inbox again after the run, and wakes the worker if
//! the worker has found the QP running. Nothing runs when no packets arrive. The inbox is bounded,
//! and the packets in it are charged to the QP's owner ([`inbox`]); a packet that does not fit is
//! lost.
//!
//! # Closing
//!
//! [`Qp::close`] removes the QP from the table, empties and closes its inbox, notifies the kind,
//! and waits for the current run, which processes at most [`BUDGET`] packets. Afterwards the
//! consumer is not called any more. A QP is not closed when its link goes: its worker runs once
//! more and sees that, and packets that it sends are lost. **Every QP must be closed**; one that is
//! only dropped stays in the table for ever.
//!
//! | file | content |
//! |---|---|
//! | [`ud`] | unreliable datagrams |
//! | [`rc`] | reliable connections |
//! | [`modify`] | changes of the state |
//! | [`accepted`] | the addresses of the packets that a QP accepts |
//! | [`inbox`] | waiting packets, and their charge |
//! | [`waiting`] | the worker of a QP whose user has as many as are allowed |

mod accepted;
mod inbox;
mod modify;
pub(crate) mod rc;
pub(crate) mod ud;
mod waiting;

pub(crate) use self::{
    rc::Rc,
    ud::Ud, //
};
pub(crate) use crate::mem::payload::Payload;

use self::{
    accepted::Accepted,
    inbox::QpInbox, //
};
use super::{
    link::{
        Link,
        LinkState, //
    },
    packet,
    socket::{
        AddrPair,
        Number,
        Socket, //
    },
    stats::{
        LinkStats,
        PacketCounter,
        QpStats,
        Stat,
        StatsRef, //
    }, //
};
use crate::{
    mem::{
        Budget,
        Place, //
    },
    shim::{
        alarm::{
            impl_alarm,
            Due, //
        },
        cred::Principal,
        deadline::{
            impl_has_deadline,
            Deadline, //
        },
        inline_work::{
            InlineList,
            InlineWork, //
        },
        reclaim::{
            NoIo,
            OwnerKind, //
        },
        skb::{
            InboxLimits,
            RxBatch,
            RxSkb, //
        },
        work::{
            self,
            impl_work, //
        }, //
    }, //
};
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
        barrier::smp_mb,
        Arc,
        Mutex,
        MutexGuard, //
    },
    time::hrtimer::HrTimer,
    workqueue::{
        new_work,
        Queue,
        Work, //
    }, //
};
use kfi_roce::{
    headers::Qpn,
    opcode::Service,
    packet::Packet, //
};

/// The first UDP source port of sent packets. The bits below depend on the QP, so that a network
/// with several routes uses one of them for all packets of a QP.
const SOURCE_PORTS: u16 = 0xc000;

/// Packets that a QP takes from its inbox in one run. The worker serves other QPs before it takes
/// more. It also runs at most two QPs of the same principal to which the run has sent packets.
const BUDGET: u32 = 256;

/// The behaviour of a kind of QP.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// The transport service of the packets that it accepts.
    const SERVICE: Service;

    /// Converts to the type for any kind.
    fn any(qp: Arc<Qp<Self>>) -> AnyQp;

    /// The limits of a QP's inbox, in addition to that of its owner's account.
    const INBOX: InboxLimits;

    /// The QP has its number; packets will find it soon.
    fn started(_qp: &Qp<Self>, _number: Qpn) {}

    /// Processes received packets and, if the QP was woken, everything else: the timer, a link that
    /// has gone, work requests that were posted and cannot be sent. Called for each run: process
    /// context, only the lock of the run held, never twice at once. There may be no packets. The
    /// packets that it sends may add work to `inline`.
    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch, cause: Cause, inline: &InlineList);

    /// Called for each packet that arrives and whose service, addresses and ICRC are valid, before
    /// it is queued: softirq, on several CPUs at the same time.
    #[inline]
    fn arrived(_qp: &Qp<Self>, _packet: &Packet, _addrs: &AddrPair, _skb: &RxSkb) {}

    /// Drops the consumer and stops the timer. Called once, when the QP is closed; process context.
    /// The QP may still run afterwards, and then has no consumer to call.
    fn detach(qp: &Qp<Self>);

    /// Frees all memory. Called once, after `detach`, when the last run has ended.
    fn release(_qp: &Qp<Self>) {}
}

/// The reason for a run of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Packets have arrived.
    Arrived,
    /// The worker was woken, for any reason.
    Woken,
}

/// The addresses that a QP can use.
pub(super) enum QpAddress {
    /// Those of a link.
    Link(Arc<Link>),
    /// Those of all links of a namespace: the QP of connection management.
    Namespace,
}

/// A QP of any kind, for the table.
#[derive(Clone)]
pub(crate) enum AnyQp {
    /// Unreliable datagrams.
    Ud(Arc<Qp<Ud>>),
    /// A reliable connection.
    Rc(Arc<Qp<Rc>>),
}

impl AnyQp {
    /// Its number. Any context.
    pub(super) fn number(&self) -> Qpn {
        match self {
            Self::Ud(qp) => qp.number(),
            Self::Rc(qp) => qp.number(),
        }
    }

    /// Receives a packet to its number. Softirq.
    pub(super) fn arrive(&self, packet: &Packet, addrs: &AddrPair, skb: RxSkb) {
        match self {
            Self::Ud(qp) => qp.arrive(packet, addrs, skb),
            Self::Rc(qp) => qp.arrive(packet, addrs, skb),
        }
    }

    /// Handles the end of a link, which may be that of another QP. Process context.
    pub(super) fn link_gone(&self, link: &Link) {
        match self {
            Self::Ud(qp) => qp.link_gone(link),
            Self::Rc(qp) => qp.link_gone(link),
        }
    }
}

/// A queue pair, see the module documentation.
#[pin_data]
pub(crate) struct Qp<K: Kind> {
    /// 0 until the QP has a number.
    number: Atomic<u32>,
    socket: Arc<Socket>,
    address: QpAddress,
    /// The addresses of the packets that it accepts. Changed under `modifying`.
    accepted: Accepted,
    /// The addresses have changed since the first were set, so packets that wait are checked again.
    address_changed: Atomic<bool>,
    closed: Atomic<bool>,
    /// The user and memory control group for which it works; `None` for connection management.
    principal: Option<Arc<Principal>>,
    stats: StatsRef,
    /// The time at which `timer` expires.
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    inbox: QpInbox,
    #[pin]
    work: Work<Self>,
    /// The time until which a task should begin a run that it has accepted. Then the worker begins
    /// it.
    #[pin]
    deadline: Deadline<Self>,
    /// Held during a run. Outermost, except for locks of a caller that closes the QP.
    ///
    /// The holder may be a task that is preempted for a long time. So no worker waits for this
    /// lock: it leaves its run to the holder (see `rerun`), and tries again when the deadline
    /// expires. The holder is a worker or a task of the QP's own principal, and so are the holders
    /// of the locks of the kind, which are taken in runs and in calls of the owner. So a caller of
    /// [`close`](Self::close) or [`settle`](Self::settle), which wait for this lock, waits for no
    /// task of another user.
    #[pin]
    running: Mutex<()>,
    /// Held during a change of the state, by a task of the QP's owner. Below `running`, above the
    /// locks of the kind. Process context only.
    #[pin]
    modifying: Mutex<()>,
    /// The worker has found the QP running. The task that runs the QP wakes the worker afterwards.
    rerun: Atomic<bool>,
    /// The place of the worker among those of the user that wait.
    place: Place,
    #[pin]
    kind: K,
}

impl_work! {
    impl{K: Kind} Work for Qp<K> { self.work, run: Self::run_worker }
}

impl<K: Kind> InlineWork for Qp<K> {
    fn run(self: Arc<Self>, list: &InlineList) {
        self.deadline.begin();
        for _ in 0..list.runs() {
            // Pairs with the barrier in `missed`: either this task gets the lock, or the task that
            // holds it sees the new packets there.
            smp_mb(Full);
            let Some(running) = self.running.try_lock() else {
                // As in `run_worker`: `begin` may have withdrawn the offer of a worker.
                Deadline::offer(&self);
                return;
            };
            self.process(running, Cause::Arrived, list);
            if !self.missed() {
                return;
            }
        }
        self.wake();
    }

    fn queue(self: Arc<Self>) {
        self.wake();
    }
}

impl_has_deadline! {
    impl{K: Kind} HasDeadline for Qp<K> { self.deadline, expired: Self::wake }
}

impl_alarm! {
    impl{K: Kind} Alarm for Qp<K> { timer: self.timer, due: self.due, expired: Self::wake }
}

impl<K: Kind> Qp<K> {
    /// Runs the QP, and then other QPs to which this run has sent packets. Called by the worker.
    fn run_worker(self: &Arc<Self>) {
        // Its queue has a rescuer, which runs one item after another: an item must not wait for
        // I/O.
        let _no_io = NoIo::enter();
        let inline = InlineList::of_worker(self.principal.as_ref());
        self.deadline.begin();
        let Ok(_worker) = self.enter_worker() else {
            return;
        };
        match &self.address {
            QpAddress::Link(_) => {
                let Some(running) = self.try_run() else {
                    // The holder wakes the worker when its run has ended. If it is preempted
                    // between both, it holds no lock any more: the worker tries again without it.
                    Deadline::offer(self);
                    return;
                };
                self.process(running, Cause::Woken, &inline);
            }
            // Only this work item runs such a QP.
            QpAddress::Namespace => {
                K::work(self, self.inbox.take(BUDGET), Cause::Woken, &inline);
            }
        }
        if self.missed() {
            self.wake();
        }
        inline.run();
    }

    /// Takes the lock of a run, for the worker. `None`: another task runs the QP, and wakes the
    /// worker when its run ends.
    fn try_run(&self) -> Option<MutexGuard<'_, ()>> {
        if let Some(running) = self.running.try_lock() {
            return Some(running);
        }
        // Pairs with the barrier in `missed`: either the run has ended by now, or its task sees
        // this.
        self.rerun.xchg(true, Full);
        let running = self.running.try_lock()?;
        self.rerun.store(false, Relaxed);
        Some(running)
    }

    /// Runs the QP. The caller calls [`missed`](Self::missed) afterwards.
    fn process(self: &Arc<Self>, running: MutexGuard<'_, ()>, cause: Cause, inline: &InlineList) {
        K::work(self, self.inbox.take(BUDGET), cause, inline);
        drop(running);
    }

    /// Whether packets wait after a run: there were more than a run takes, or more have arrived,
    /// and another task may have left them to this one. Wakes the worker if it has left its run to
    /// this task.
    fn missed(self: &Arc<Self>) -> bool {
        // The run must end before the checks: see `InlineWork::run` and `try_run`.
        smp_mb(Full);
        if self.rerun.load(Relaxed) && self.rerun.xchg(false, Full) {
            self.wake();
        }
        !self.inbox.is_empty()
    }

    /// Creates a QP in state RESET and inserts it into the table. It counts in `stats`. `owner` is
    /// charged for the packets that wait in its inbox.
    ///
    /// Fails with `ENODEV` if the link has gone, `EBUSY` if the namespace has too many QPs or one
    /// with this number, `ENOMEM`. Sleeps.
    fn new(
        socket: &Arc<Socket>,
        address: QpAddress,
        number: Number,
        stats: StatsRef,
        owner: Option<&Budget>,
        kind: impl PinInit<K, Error>,
    ) -> Result<Arc<Self>> {
        let link = match &address {
            QpAddress::Link(link) => Some(link.clone()),
            QpAddress::Namespace => None,
        };
        let qp = Arc::pin_init(
            try_pin_init!(Self {
                number: Atomic::new(0),
                socket: socket.clone(),
                address,
                accepted: Accepted::nothing(),
                address_changed: Atomic::new(false),
                closed: Atomic::new(false),
                principal: owner.map(|owner| owner.principal().clone()),
                stats,
                due: Due::never(),
                timer <- HrTimer::new(),
                inbox <- QpInbox::new(owner, K::INBOX),
                work <- new_work!("kfabric::Qp"),
                deadline <- Deadline::new(),
                running <- new_mutex!((), "Qp::running"),
                modifying <- new_mutex!((), "Qp::modifying"),
                rerun: Atomic::new(false),
                place: Place::new(),
                kind <- kind,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let number = socket.receiver().enter(K::any(qp.clone()), number)?;
        K::started(&qp, number);
        // Release pairs with the acquire in `number`: a caller that reads it sees a complete QP.
        qp.number.store(number.get(), Release);
        // A link that went before the QP was in the table has not notified it.
        if link.is_some_and(|link| link.state() == LinkState::Gone) {
            qp.close();
            return Err(ENODEV);
        }
        Ok(qp)
    }

    /// Its number. Any context.
    pub(crate) fn number(&self) -> Qpn {
        Qpn::new(self.number.load(Acquire))
    }

    /// The statistics of this QP, or those of its owner that it counts in. Any context.
    pub(crate) fn stats(&self) -> &QpStats {
        &self.stats
    }

    /// The kind of the QP's owner. QP 1, which has no owner, gives `Program`; its items are in
    /// [`control_queue`](work::control_queue). Any context.
    fn owner_kind(&self) -> OwnerKind {
        match &self.principal {
            Some(principal) => principal.kind(),
            None => OwnerKind::Program,
        }
    }

    /// The statistics of the link or namespace, which count everything a second time.
    fn outer_stats(&self) -> &LinkStats {
        match &self.address {
            QpAddress::Link(link) => link.stats(),
            QpAddress::Namespace => self.socket.receiver().stats(),
        }
    }

    /// A counter for sent and received packets.
    fn counter(&self) -> PacketCounter<'_> {
        PacketCounter::new(&self.stats, self.outer_stats())
    }

    /// The UDP source port of its packets: one of 2^14, a hash of its number.
    fn source_port(&self) -> u16 {
        // A multiplicative hash: it spreads consecutive numbers.
        let hash = self.number().get().wrapping_mul(0x9e37_79b1) >> 18;
        SOURCE_PORTS | hash as u16
    }

    /// Whether a packet may be queued. The most expensive check comes last.
    fn check_packet(&self, packet: &Packet, addrs: &AddrPair, skb: &RxSkb) -> Result<(), Stat> {
        if packet.opcode().service() != K::SERVICE {
            return Err(Stat::DropService);
        }
        self.check_addresses(addrs)?;
        packet::verify(skb, packet)
    }

    /// Receives a packet to this QP. Softirq.
    fn arrive(self: &Arc<Self>, packet: &Packet, addrs: &AddrPair, skb: RxSkb) {
        let refused = match self.check_packet(packet, addrs, &skb) {
            Ok(()) => {
                K::arrived(self, packet, addrs, &skb);
                match self.inbox.push(skb) {
                    Ok(true) => return self.schedule(),
                    Ok(false) => return,
                    Err(refused) => refused,
                }
            }
            Err(cause) => (cause, skb),
        };
        let (cause, skb) = refused;
        self.stats.add(cause, 1);
        self.outer_stats().add(cause, 1);
        packet::reject(skb, cause);
    }

    /// Schedules a run after packets have arrived. Softirq.
    fn schedule(self: &Arc<Self>) {
        let offered = match (&self.address, &self.principal) {
            (QpAddress::Link(_), Some(principal)) => {
                InlineList::offer(self.clone(), principal).is_ok()
            }
            _ => false,
        };
        if offered {
            // The task cannot take the work before this softirq ends.
            Deadline::offer(self);
        } else {
            self.wake();
        }
    }

    /// Queues the worker, which calls the consumer at least once afterwards
    /// ([`run_ended`](rc::Consumer::run_ended)). Any context.
    pub(crate) fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = self.queue_of_worker().enqueue(self.clone());
    }

    /// The workqueue of its worker. Any context.
    fn queue_of_worker(&self) -> &'static Queue {
        match &self.address {
            QpAddress::Link(_) => work::packet_queue(self.owner_kind()),
            QpAddress::Namespace => work::control_queue(),
        }
    }

    /// Handles the end of `link`, which may be that of another QP.
    fn link_gone(self: &Arc<Self>, link: &Link) {
        if matches!(&self.address, QpAddress::Link(own) if core::ptr::eq(&raw const **own, link)) {
            self.wake();
        }
    }

    /// Waits until all packets that arrived before the call are processed, for example those that
    /// the peer sent before it disconnected. A consumer must not call it while it is being called,
    /// and no caller may hold a lock that consumers take (as for [`close`](Self::close)). Sleeps.
    pub(crate) fn settle(self: &Arc<Self>) {
        // Leave the work that this causes to workers.
        let inline = InlineList::of_worker(None);
        for _ in 0..K::INBOX.packets.div_ceil(BUDGET) {
            if self.inbox.is_empty() {
                break;
            }
            self.process(self.running.lock(), Cause::Woken, &inline);
        }
        // Another task may have taken the last packets: wait for its run.
        drop(self.running.lock());
        if self.missed() {
            self.wake();
        }
    }

    /// Waits for the work item's run, if it runs or is queued. For the QP of connection management,
    /// which nothing else runs: afterwards its consumer is not being called for a datagram that
    /// arrived before. Sleeps; the conditions are those of [`close`](Self::close).
    pub(super) fn wait_for_work(&self) {
        work::flush(&self.work);
    }

    /// Closes the QP: when this returns, its consumer is not being called, and will not be called
    /// any more. Operations in progress are lost. Idempotent. It waits for a run to end, so a
    /// consumer must not call it while it is being called, and no caller may hold a lock that
    /// consumers take. Sleeps.
    pub(crate) fn close(&self) {
        if self.closed.xchg(true, Full) {
            return;
        }
        self.socket.receiver().leave(self.number());
        drop(self.inbox.close());
        K::detach(self);
        self.deadline.end();
        self.wait_no_more();
        work::flush(&self.work);
        // Another task may be running it; a later run finds no packets.
        drop(self.running.lock());
        K::release(self);
    }

    /// Whether [`close`](Self::close) has begun. Any context.
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
}
