// SPDX-License-Identifier: GPL-2.0

//! QP: a queue pair of InfiniBand's transport, at an address of a link.
//!
//! What all kinds have in common is a [`Qp`]: number, address, inbox, worker, timer, figures. What a
//! kind does with packets is a [`Kind`]: [`Ud`] or [`Rc`].
//!
//! # The way of a packet
//!
//! ```text
//! wire -> softirq: Inbound finds the QP -> Qp::arrive: service, addresses, ICRC -> inbox
//!      -> a run:   all that waits -> Kind::work: the state machine, the consumer above
//! ```
//!
//! The ICRC is verified before a packet waits: what was changed on the way, or is of somebody who
//! cannot even compute it, neither fills the inbox nor wakes the worker.
//!
//! A QP is run by one task at a time, so its packets are processed in order, and those of different QPs
//! on different CPUs. The task is the QP's worker, a work item of its own; or, if a task of the QP's
//! [`Principal`] on the same host has just sent the packets, that task (run to completion), which saves
//! waking the worker ([`InlineList`]). If the task does not begin in time, the worker does
//! ([`Deadline`]). A task that finds the QP running leaves the packets to the task that runs it, which
//! looks into the inbox again after the run, and wakes the worker if that found the QP running. Nothing
//! runs when nothing arrives. The inbox is bounded, and what
//! waits in it is charged to the QP's owner ([`inbox`]); what does not fit is a lost packet.
//!
//! # The end
//!
//! [`Qp::close`] takes the QP out of the table, empties and closes its inbox, tells the kind, and
//! waits for the run to end, which is done with at most one inbox of packets. Afterwards the consumer
//! above is not called any more. A QP is not closed by its link's going: its worker runs once more
//! and sees it, and what it sends is lost. **Every QP is to be closed**; one that is only dropped
//! stays in the table for ever.
//!
//! | file | what |
//! |---|---|
//! | [`ud`] | unreliable datagrams |
//! | [`rc`] | reliable connections |
//! | [`inbox`] | packets that wait, and who is charged for them |
//! | [`payload`] | what a packet brings |

mod inbox;
mod payload;
pub(crate) mod rc;
pub(crate) mod ud;

pub(crate) use self::{
    payload::Payload,
    rc::Rc,
    ud::Ud, //
};

use self::inbox::QpInbox;
use super::{
    link::{
        Link,
        LinkState, //
    },
    packet,
    socket::{
        Number,
        Socket,
        Way, //
    },
    stats::{
        Figure,
        Figures,
        Holder,
        QpFigures,
        Tally, //
    }, //
};
use crate::{
    mem::Budget,
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
        skb::{
            InboxLimits,
            RxBatch,
            RxSkb, //
        },
        work, //
    }, //
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
        barrier::smp_mb,
        Arc,
        Mutex,
        MutexGuard,
        SetOnce, //
    },
    time::hrtimer::HrTimer,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kfi_roce::{
    headers::Qpn,
    opcode::Service,
    packet::Packet, //
};

/// The first UDP source port of packets that are sent; the bits below say which QP sent them, so
/// that networks with several ways keep those of one QP on one.
const SOURCE_PORTS: u16 = 0xc000;

/// Packets that a QP takes from its inbox in one run. The worker serves other QPs before it takes more;
/// it also runs at most two QPs of the same principal to which the run has sent something.
const BUDGET: u32 = 256;

/// What a kind of QP does.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// The transport service whose packets it takes.
    const SERVICE: Service;

    /// Whether it takes the packets of one peer only, see [`Qp::connect`].
    const CONNECTED: bool;

    /// The same QP as one of any kind.
    fn any(qp: Arc<Qp<Self>>) -> AnyQp;

    /// The limits of one QP's inbox, besides that of its owner's account.
    const INBOX: InboxLimits;

    /// The QP has its number, and is about to be found by packets.
    fn started(qp: &Qp<Self>, number: Qpn);

    /// Deals with packets that arrived and, if it was woken, with all else: the timer, the link's
    /// going, what was posted and cannot be sent. A run: process context, no lock is held, never
    /// twice at once. There may be no packets. What it sends may add work to `inline`.
    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch, cause: Cause, inline: &InlineList);

    /// Lets go of the consumer and of the timer. Called once, when the QP is closed; process
    /// context. The QP may still be run, and finds nobody to call then.
    fn detach(qp: &Qp<Self>);

    /// Lets go of all memory. Called once, behind `detach`, when the last run has ended.
    fn release(qp: &Qp<Self>);
}

/// Why a QP runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Packets have arrived.
    Arrived,
    /// It was woken, for whatever reason.
    Woken,
}

/// Where a QP is.
pub(super) enum Home {
    /// At an address of a link.
    Link(Arc<Link>, IpAddr),
    /// At all addresses of all links of a namespace: that of connection management.
    Namespace,
}

/// A QP of some kind, as the table has it.
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

    /// A packet to its number has arrived. Softirq.
    pub(super) fn arrive(&self, packet: &Packet, way: &Way, skb: RxSkb) {
        match self {
            Self::Ud(qp) => qp.arrive(packet, way, skb),
            Self::Rc(qp) => qp.arrive(packet, way, skb),
        }
    }

    /// A link has gone; perhaps it was this QP's. Process context.
    pub(super) fn link_gone(&self, link: &Link) {
        match self {
            Self::Ud(qp) => qp.told_gone(link),
            Self::Rc(qp) => qp.told_gone(link),
        }
    }
}

/// See the module's story.
#[pin_data]
pub(crate) struct Qp<K: Kind> {
    /// 0 until the QP has one.
    number: Atomic<u32>,
    socket: Arc<Socket>,
    home: Home,
    /// Whose packets it takes, if its kind is connected.
    peer: SetOnce<IpAddr>,
    closed: Atomic<bool>,
    /// For whom it works; `None` for connection management.
    principal: Option<Arc<Principal>>,
    figures: Holder,
    /// When `timer` rings.
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    inbox: QpInbox,
    #[pin]
    work: Work<Self>,
    /// Until when a task should begin a run that it has accepted. Otherwise the worker does.
    #[pin]
    deadline: Deadline<Self>,
    /// Held during a run. Outermost but for those of who closes.
    ///
    /// Its holder may be a task that is preempted for a long time. So no worker waits for it: it leaves
    /// its run to the holder (see `left`), and tries again when the deadline expires. The holder is a worker or a task of the QP's own principal,
    /// and so are the holders of the locks of the kind, which are taken in runs and in calls of the
    /// owner. So a caller of [`close`](Self::close) or [`settle`](Self::settle), which wait for this lock,
    /// waits for no task of another user.
    #[pin]
    running: Mutex<()>,
    /// The worker has found the QP running. The task that runs it wakes the worker afterwards.
    left: Atomic<bool>,
    #[pin]
    kind: K,
}

impl_has_work! {
    impl{K: Kind} HasWork<Self> for Qp<K> { self.work }
}

impl<K: Kind> WorkItem for Qp<K> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let inline = InlineList::of_worker(this.principal.as_ref());
        this.deadline.begin();
        let worker = match this.inbox.owner() {
            Some(owner) => owner.enter_worker().ok_or(()).map(Some),
            None => Ok(None),
        };
        let Ok(_worker) = worker else {
            // Its locks may be held by tasks that are not scheduled, as many as workers wait for.
            Deadline::offer(&this);
            return;
        };
        match &this.home {
            Home::Link(..) => {
                let Some(running) = this.try_run() else {
                    // The holder wakes the worker when its run has ended. If it is preempted between
                    // both, it holds no lock any more: the worker tries again without it.
                    Deadline::offer(&this);
                    return;
                };
                this.process(running, Cause::Woken, &inline);
                if this.missed() {
                    this.wake();
                }
            }
            // This work item alone runs such a QP.
            Home::Namespace => {
                K::work(&this, this.inbox.take(BUDGET), Cause::Woken, &inline);
                if this.missed() {
                    this.wake();
                }
            }
        }
        inline.run();
    }
}

impl<K: Kind> InlineWork for Qp<K> {
    fn run(self: Arc<Self>, list: &InlineList) {
        self.deadline.begin();
        for _ in 0..list.runs() {
            // Pairs with the barrier in `missed`: either this task gets the lock, or the task that
            // has it sees there what has arrived.
            smp_mb(Full);
            let Some(running) = self.running.try_lock() else {
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
    impl{K: Kind} Alarm for Qp<K> {
        timer: self.timer, due: self.due, rings: Self::wake
    }
}

impl<K: Kind> Qp<K> {
    /// The lock of a run, for the worker. `None`: another task runs the QP, and wakes the worker when
    /// it ends.
    fn try_run(&self) -> Option<MutexGuard<'_, ()>> {
        if let Some(running) = self.running.try_lock() {
            return Some(running);
        }
        // Pairs with the barrier in `missed`: either the run has ended by now, or its task sees this.
        self.left.xchg(true, Full);
        let running = self.running.try_lock()?;
        self.left.store(false, Relaxed);
        Some(running)
    }

    /// Runs the QP. [`missed`](Self::missed) is to be called afterwards.
    fn process(self: &Arc<Self>, running: MutexGuard<'_, ()>, cause: Cause, inline: &InlineList) {
        K::work(self, self.inbox.take(BUDGET), cause, inline);
        drop(running);
    }

    /// Whether packets wait after a run: there were more than a run takes, or they have arrived meanwhile,
    /// and another task may have left them to this one. Wakes the worker if it has left its run.
    fn missed(self: &Arc<Self>) -> bool {
        // The end of the run comes before the look: see `InlineWork::run` and `try_run`.
        smp_mb(Full);
        if self.left.load(Relaxed) && self.left.xchg(false, Full) {
            self.wake();
        }
        !self.inbox.is_empty()
    }

    /// Makes a QP, and lets packets find it. `ENODEV` the link has gone; `EBUSY` there are too many
    /// in the namespace, or it has one with this number; `ENOMEM`. Sleeps. It counts in `figures`, and
    /// `owner` is charged for the packets that wait in its inbox.
    fn new(
        socket: &Arc<Socket>,
        home: Home,
        number: Number,
        figures: Holder,
        owner: Option<&Budget>,
        kind: impl PinInit<K, Error>,
    ) -> Result<Arc<Self>> {
        let link = match &home {
            Home::Link(link, _) => Some(link.clone()),
            Home::Namespace => None,
        };
        let qp = Arc::pin_init(
            try_pin_init!(Self {
                number: Atomic::new(0),
                socket: socket.clone(),
                home,
                peer: SetOnce::new(),
                closed: Atomic::new(false),
                principal: owner.map(|owner| owner.principal().clone()),
                figures,
                due: Due::never(),
                timer <- HrTimer::new(),
                inbox <- QpInbox::new(owner, K::INBOX),
                work <- new_work!("kfabric::Qp"),
                deadline <- Deadline::new(),
                running <- new_mutex!((), "Qp::running"),
                left: Atomic::new(false),
                kind <- kind,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let number = socket.receiver().enter(K::any(qp.clone()), number)?;
        K::started(&qp, number);
        // Release pairs with the acquire in `number`: who finds the QP finds it whole.
        qp.number.store(number.get(), Release);
        // A link that went before the QP was in the table has told it nothing.
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

    /// What it counted, or all of its owner. Any context.
    pub(crate) fn figures(&self) -> &QpFigures {
        &self.figures
    }

    /// The figures in which all is counted once more.
    fn outer_figures(&self) -> &Figures {
        match &self.home {
            Home::Link(link, _) => link.figures(),
            Home::Namespace => self.socket.receiver().figures(),
        }
    }

    /// Counts what becomes of packets.
    fn tally(&self) -> Tally<'_> {
        Tally::new(&self.figures, self.outer_figures())
    }

    /// The UDP source port of what it sends: one of 2^14, by its number.
    fn source_port(&self) -> u16 {
        // A multiplicative hash: numbers that follow each other are spread.
        let hash = self.number().get().wrapping_mul(0x9e37_79b1) >> 18;
        SOURCE_PORTS | hash as u16
    }

    /// Says whose packets it takes from now on. `EISCONN` it was said before. Any context.
    fn connect(&self, peer: IpAddr) -> Result {
        self.peer.populate(peer).then_some(()).ok_or(EISCONN)
    }

    /// Whether a packet may wait for the worker. What costs most comes last.
    fn judge(&self, packet: &Packet, way: &Way, skb: &RxSkb) -> Result<(), Figure> {
        if packet.opcode().service() != K::SERVICE {
            return Err(Figure::DropService);
        }
        if let Home::Link(_, ip) = &self.home {
            if way.to != *ip {
                return Err(Figure::DropDestination);
            }
        }
        if K::CONNECTED {
            let peer = self.peer.copy().ok_or(Figure::DropState)?;
            if way.from != peer {
                return Err(Figure::DropSource);
            }
        }
        packet::verify(skb, packet)
    }

    /// A packet to this QP has arrived. Softirq.
    fn arrive(self: &Arc<Self>, packet: &Packet, way: &Way, skb: RxSkb) {
        let refused = match self.judge(packet, way, &skb) {
            Ok(()) => match self.inbox.push(skb) {
                Ok(true) => return self.due(),
                Ok(false) => return,
                Err(refused) => refused,
            },
            Err(cause) => (cause, skb),
        };
        let (cause, skb) = refused;
        self.figures.add(cause, 1);
        self.outer_figures().add(cause, 1);
        packet::reject(skb, cause);
    }

    /// Something has arrived: the QP is to run. Softirq.
    fn due(self: &Arc<Self>) {
        let offered = match (&self.home, &self.principal) {
            (Home::Link(..), Some(principal)) => InlineList::offer(self.clone(), principal).is_ok(),
            _ => false,
        };
        if offered {
            // The task does not go on before this softirq is over.
            Deadline::offer(self);
        } else {
            self.wake();
        }
    }

    /// Has the worker run soon. Any context.
    fn wake(self: &Arc<Self>) {
        let queue = match &self.home {
            Home::Link(..) => work::queue(),
            Home::Namespace => work::control_queue(),
        };
        // Refused if it is due already.
        let _ = queue.enqueue(self.clone());
    }

    /// `link` has gone; it may be another QP's.
    fn told_gone(self: &Arc<Self>, link: &Link) {
        if matches!(&self.home, Home::Link(own, _) if core::ptr::eq(&raw const **own, link)) {
            self.wake();
        }
    }

    /// Waits until the packets that have arrived before have been processed: what the peer has said
    /// before it disconnected. As [`close`](Self::close), it is neither for consumers that are being
    /// called nor for holders of locks that they take. Sleeps.
    pub(crate) fn settle(self: &Arc<Self>) {
        // Work that it causes is left to workers.
        let inline = InlineList::of_worker(None);
        for _ in 0..K::INBOX.packets.div_ceil(BUDGET) {
            if self.inbox.is_empty() {
                break;
            }
            self.process(self.running.lock(), Cause::Woken, &inline);
        }
        // Another task may have taken the last packets.
        drop(self.running.lock());
        if self.missed() {
            self.wake();
        }
    }

    /// Ends it: when this returns, its consumer is not called any more, and will not be. What was
    /// under way is lost. Idempotent; waits for a run to end, so it is neither for consumers that are
    /// being called nor for holders of locks that they take. Sleeps.
    pub(crate) fn close(&self) {
        if self.closed.xchg(true, Full) {
            return;
        }
        self.socket.receiver().leave(self.number());
        drop(self.inbox.close());
        K::detach(self);
        self.deadline.end();
        work::flush(&self.work);
        // Another task may run it; the next one finds nothing.
        drop(self.running.lock());
        K::release(self);
    }

    /// Whether [`close`](Self::close) has begun. Any context.
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
}
