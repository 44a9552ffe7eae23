// SPDX-License-Identifier: GPL-2.0

//! Conn: one end of a connection, and the delivery of its events.
//!
//! Each connection has a work item that delivers its events to its consumer. Events wait for it in
//! memory of the connection ([`Conn::queue_event`]). So a slow consumer delays only the further
//! events of that connection.

use super::{
    super::{
        link::{
            Link,
            LinkState, //
        },
        path::Path, //
    },
    service::Cm, //
};
use crate::mem::{
    Budget,
    PeerPlace,
    PeerWork, //
};
use crate::shim::{
    cred::Owner,
    random::random_u64,
    reclaim::OwnerKind,
    sched::{
        cond_resched,
        now_ns, //
    },
    work::{
        self,
        impl_work, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work, //
    }, //
};
use kfi_roce::{
    cm::{
        self,
        CommId,
        Connection,
        Event,
        PendingEvents,
        Private,
        Reason,
        Rej,
        Rep,
        ServiceId,
        Side,
        State,
        StoredEvent, //
    },
    mtu::PathMtu, //
};

/// What a consumer has done with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// It has handled the event.
    Done,
    /// It needs a lock that another task holds. The event stays the next one, and the holder of the
    /// lock calls [`Conn::deliver_again`] when it has released it.
    Later,
}

/// The user of a connection, for example an endpoint.
pub(crate) trait Consumer: Send + Sync {
    /// Handles an event of a connection. Called in process context without locks; may sleep, and
    /// call every function of [`cm`](super). The events of one connection come in order, one at a
    /// time; those of different connections may come at the same time. It does not wait for a lock
    /// that calls of the owner hold, and returns [`Delivery::Later`] instead. It may wait for the
    /// end of a run of the QP ([`Qp::settle`](crate::net::qp::Qp::settle)).
    ///
    /// The consumer answers [`Event::Reply`] with [`Conn::confirm`] or [`Conn::reject`], now or
    /// later. The last event is `Rejected`, `Unreachable`, `Disconnected` or `Released`; one of
    /// them comes unless the consumer closes the connection before. `Closed` is not delivered. When
    /// the link of a connection goes, the last event is `Disconnected` if the connection was
    /// established, `Released` if it was being disconnected, else `Unreachable`.
    fn event(&self, conn: &Arc<Conn>, event: &Event<'_>) -> Delivery;

    /// The owner on whose behalf it handles events: where they are delivered. Always the same. Any
    /// context.
    fn owner_kind(&self) -> OwnerKind;

    /// The owner, and the budget that limits the workers which deliver events. `None`: there is no
    /// limit. Any context.
    fn owner(&self) -> Option<(&Owner, &Budget)> {
        None
    }
}

/// The parameters of a connection that this end requests.
#[derive(Clone, Copy)]
pub(crate) struct Connect<'a> {
    /// The link.
    pub(crate) link: &'a Arc<Link>,
    /// This end's address, an address of the link.
    pub(crate) local: IpAddr,
    /// The peer's address.
    pub(crate) remote: IpAddr,
    /// The service that is requested.
    pub(crate) service_id: ServiceId,
    /// This end's QP.
    pub(crate) side: Side,
    /// The path MTU. `None`: the largest that the path carries, or less if the peer supports less.
    pub(crate) mtu: Option<PathMtu>,
    /// How often the peer's requester shall retry: 0 to 7.
    pub(crate) retry_count: u8,
    /// The private data, at most 92 bytes.
    pub(crate) private: &'a [u8],
    /// A value by which the consumer recognizes the connection.
    pub(crate) context: u64,
}

/// Requests a connection. `consumer` gets its events, possibly before this returns.
///
/// Fails with `EINVAL` if the addresses are of two families, if the peer address is not a host's,
/// if there is too much private data, or if the path does not carry the MTU; `EADDRNOTAVAIL`,
/// `ENETUNREACH`, `EHOSTUNREACH` and `EMSGSIZE` as [`Path::mtu`]; `ENODEV` if the link has gone;
/// `EBUSY` if the namespace has too many connections; `ENOMEM`. Sleeps.
pub(crate) fn connect(connect: &Connect<'_>, consumer: Arc<dyn Consumer>) -> Result<Arc<Conn>> {
    let cm = Cm::of(connect.link.socket())?;
    let path = Path::new(connect.link, connect.local, connect.remote)?;
    let path_mtu = path.mtu()?;
    let mtu = connect.mtu.unwrap_or(path_mtu);
    if mtu > path_mtu {
        return Err(EINVAL);
    }
    let private = Private::new(connect.private).ok_or(EINVAL)?;
    let device = cm.device(connect.local, path_mtu);
    cm.connect(&path, connect.context, &consumer, |local_id| {
        let request = cm::Connect {
            local_id,
            tid: random_u64(),
            remote: connect.remote,
            service_id: connect.service_id,
            side: connect.side,
            mtu,
            least_mtu: connect.mtu.unwrap_or(PathMtu::Mtu256),
            retry_count: connect.retry_count,
            private,
        };
        Connection::connect(now_ns(), &device, &request)
    })
}

/// The events to deliver, and the consumer that gets them.
struct EventQueue {
    /// `None` before the connection is accepted, after its last event has been handled, and after
    /// the consumer has rejected or closed it.
    consumer: Option<Arc<dyn Consumer>>,
    /// Empty without a consumer.
    pending: PendingEvents,
    /// The budget that limits the workers, of the consumer or of its predecessor.
    budget: Option<Budget>,
}

impl EventQueue {
    /// Without an event. Sleeps.
    fn new(consumer: Option<Arc<dyn Consumer>>) -> Self {
        Self {
            budget: consumer.as_deref().and_then(budget_of),
            consumer,
            pending: PendingEvents::new(),
        }
    }

    /// The next event, with the consumer that gets it. It stays in the queue.
    fn next(&self) -> Option<(Arc<dyn Consumer>, StoredEvent)> {
        Some((self.consumer.clone()?, self.pending.next()?))
    }

    /// Removes an event that was handled. If it is the last one, returns the consumer, which the
    /// caller must not drop under the lock.
    fn handled(&mut self, event: &StoredEvent) -> Option<Arc<dyn Consumer>> {
        self.pending.remove(event);
        if event.is_last() {
            self.consumer.take()
        } else {
            None
        }
    }
}

/// The budget that limits the workers of a consumer.
fn budget_of(consumer: &dyn Consumer) -> Option<Budget> {
    Some(consumer.owner()?.1.clone())
}

/// One end of a connection, see [`cm`](super). **Its consumer must close it.**
#[pin_data]
pub(crate) struct Conn {
    cm: Arc<Cm>,
    id: CommId,
    path: Arc<Path>,
    /// The owner of its consumer.
    kind: OwnerKind,
    context: Atomic<u64>,
    /// A leaf lock. Taken under the lock of the table, so that events are queued in the order in
    /// which they happen.
    #[pin]
    events: SpinLock<EventQueue>,
    /// See [`PeerWork`].
    place: PeerPlace,
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for Conn { self.work, run: Self::deliver }
}

impl PeerWork for Conn {
    fn queue(self: Arc<Self>) {
        self.wake();
    }

    fn place(&self) -> &PeerPlace {
        &self.place
    }
}

/// Delivery of events.
impl Conn {
    /// Queues an event, if there is a consumer. Returns whether events are queued: then the caller
    /// calls [`wake`](Self::wake). Does not sleep.
    pub(super) fn queue_event(&self, event: &Event<'_>) -> bool {
        let mut events = self.events.lock();
        if events.consumer.is_some() {
            events.pending.add(event);
        }
        !events.pending.is_empty()
    }

    /// Queues the work item, which delivers the queued events. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::peer_queue(self.kind).enqueue(self.clone());
    }

    /// Delivers the next event again, for a consumer that has returned [`Delivery::Later`]. Any
    /// context.
    pub(crate) fn deliver_again(self: &Arc<Self>) {
        self.wake();
    }

    /// The consumer. Without one the work item has nothing to do, and returns the slot that was
    /// kept for it.
    fn consumer_or_return_slot(&self) -> Option<Arc<dyn Consumer>> {
        let events = self.events.lock();
        if let Some(consumer) = &events.consumer {
            return Some(consumer.clone());
        }
        let budget = events.budget.clone();
        drop(events);
        if let Some(budget) = budget {
            budget.return_peer_slot(&self.place);
        }
        None
    }

    /// Delivers all queued events. Called by the work item, which never runs twice at once. Sleeps.
    fn deliver(self: &Arc<Self>) {
        let Some(consumer) = self.consumer_or_return_slot() else {
            return;
        };
        let worker = match consumer.owner() {
            Some((owner, budget)) => budget.enter_peer_worker(owner, self.clone()).map(Some),
            None => Some(None),
        };
        let Some(_worker) = worker else {
            return;
        };
        let _scope = self.kind.scope();
        loop {
            let next = self.events.lock().next();
            let Some((consumer, event)) = next else {
                return;
            };
            if consumer.event(self, &event.event()) == Delivery::Later {
                return;
            }
            let ended = self.events.lock().handled(&event);
            drop((ended, consumer));
            cond_resched();
        }
    }

    /// Discards queued and later events. Returns the consumer, which the caller must not drop under
    /// a lock. Does not sleep.
    pub(super) fn take_consumer(&self) -> Option<Arc<dyn Consumer>> {
        let mut events = self.events.lock();
        events.pending = PendingEvents::new();
        events.consumer.take()
    }
}

impl Conn {
    pub(super) fn new(
        cm: &Arc<Cm>,
        id: CommId,
        path: Arc<Path>,
        kind: OwnerKind,
        context: u64,
        consumer: Option<Arc<dyn Consumer>>,
    ) -> Result<Arc<Self>> {
        let events = EventQueue::new(consumer);
        Arc::pin_init(
            pin_init!(Self {
                cm: cm.clone(),
                id,
                path,
                kind,
                context: Atomic::new(context),
                events <- new_spinlock!(events, "Conn::events"),
                place: PeerPlace::new(),
                work <- new_work!("kfabric::Conn"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn id(&self) -> CommId {
        self.id
    }

    /// The value that the consumer gave it. Any context.
    pub(crate) fn context(&self) -> u64 {
        self.context.load(Relaxed)
    }

    /// Its link. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.path.link()
    }

    /// The path to the peer. Any context.
    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The link's address. Any context.
    pub(crate) fn local(&self) -> IpAddr {
        self.path.addrs().from
    }

    /// The peer's address. Any context.
    pub(crate) fn remote(&self) -> IpAddr {
        self.path.addrs().to
    }

    /// The state. Process context; does not sleep.
    pub(crate) fn state(&self) -> State {
        self.cm.state(self).unwrap_or(State::Closed)
    }

    /// Whether its link has gone. Any context.
    pub(super) fn is_gone(&self) -> bool {
        self.link().state() == LinkState::Gone
    }

    /// Calls `act` with the state machine and the time, see [`Cm::act`]. Fails with `ENOTCONN` if
    /// the state does not allow the step, or if the connection has left the table. Sleeps.
    fn step(
        &self,
        act: impl FnOnce(&mut Connection, u64) -> core::result::Result<(), State>,
    ) -> Result {
        let stepped = self.cm.act(self, |entry| act(&mut entry.machine, now_ns()));
        stepped.and_then(|result| result.ok()).ok_or(ENOTCONN)
    }

    /// For the passive end: see [`Request::accept`](super::Request::accept). Fails with
    /// `ECONNABORTED`. Sleeps.
    pub(super) fn accept(
        &self,
        side: &Side,
        private: Private<'_, { Rep::PRIVATE_LEN }>,
        context: u64,
        consumer: Arc<dyn Consumer>,
    ) -> Result {
        // Dropped here, outside the lock, if the connection cannot be accepted.
        let mut queue = Some(EventQueue::new(Some(consumer)));
        let accepted = self.step(|machine, now| {
            machine.accept(now, side, private)?;
            self.context.store(context, Relaxed);
            if let Some(queue) = queue.take() {
                // The former one is empty: there was no consumer.
                *self.events.lock() = queue;
            }
            Ok(())
        });
        accepted.map_err(|_| ECONNABORTED)
    }

    /// For the active end: sends an RTU, when the QP is ready to send. Fails with `EINVAL` for more
    /// than 224 bytes of private data, `ENOTCONN` if the connection has ended or has no reply.
    /// Sleeps.
    pub(crate) fn confirm(&self, private: &[u8]) -> Result {
        let private = Private::new(private).ok_or(EINVAL)?;
        self.step(|machine, now| machine.confirm(now, private))
    }

    /// Rejects the connection instead of accepting or confirming it: sends a REJ. Private data
    /// beyond 148 bytes is cut off. The consumer gets no further event. Fails with `ENOTCONN` in
    /// any other state. Sleeps.
    pub(crate) fn reject(&self, reason: Reason, private: &[u8]) -> Result {
        let private = private.get(..Rej::PRIVATE_LEN).unwrap_or(private);
        let private = Private::new(private).unwrap_or(Private::NONE);
        let none = Private::NONE;
        let mut consumer = None;
        let rejected = self.step(|machine, now| {
            machine.reject(now, reason, none, private)?;
            consumer = self.take_consumer();
            Ok(())
        });
        drop(consumer);
        rejected
    }

    /// For the passive end: drops the request, see [`Request::ignore`](super::Request::ignore), and
    /// removes it from the table. Sleeps.
    pub(super) fn ignore(&self) {
        // It fails if the peer has given up: then there is nothing to ignore.
        let _ = self.step(|machine, now| machine.ignore(now, Reason::NO_RESOURCES));
        self.forget();
    }

    /// For the passive end: the QP has received a packet of the peer, which proves that the peer is
    /// ready although its RTU was not received. Returns whether this call establishes the
    /// connection; then there is no event for that. Sleeps.
    pub(crate) fn communication_established(&self) -> bool {
        self.cm
            .act(self, |entry| entry.machine.communication_established())
            .unwrap_or(false)
    }

    /// Disconnects an established connection by a DREQ. Fails with `EINVAL` for more than 220 bytes
    /// of private data, `ENOTCONN` in any other state. Sleeps.
    pub(crate) fn disconnect(&self, private: &[u8]) -> Result {
        let private = Private::new(private).ok_or(EINVAL)?;
        self.step(|machine, now| machine.disconnect(now, private))
    }

    /// Ends the consumer's use of the connection, in any state: withdraws a request of this end,
    /// rejects an unanswered request of the peer, disconnects an established connection. No call of
    /// [`Consumer::event`] begins after this; one may still run. Idempotent. Sleeps.
    pub(crate) fn close(&self) {
        let _ = self.cm.act(self, |entry| entry.machine.abandon(now_ns()));
        // Even if it has left the table: consumer and connection may have references to each other.
        drop(self.take_consumer());
    }

    /// Removes it from the table without a message or an event. Sleeps.
    pub(super) fn forget(&self) {
        self.cm.remove(self);
        drop(self.take_consumer());
    }
}
