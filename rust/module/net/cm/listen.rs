// SPDX-License-Identifier: GPL-2.0

//! Listeners for a service ID at an address, the requests of peers, and their delivery.
//!
//! Each listener has a work item that calls it ([`ListenerEntry::enqueue`]), so a slow listener
//! delays only the requests to itself. Undelivered requests wait in an array with room for all
//! unanswered ones ([`backlog`](super::backlog)), which is allocated when listening begins.

use super::{
    super::{
        link::Link,
        path::Path,
        socket::Socket,
        stats::Stat, //
    },
    backlog::{
        room,
        Backlog,
        BacklogSlot, //
    },
    conn::{
        Conn,
        Consumer, //
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
    reclaim::OwnerKind,
    sched::cond_resched,
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
        atomic::Atomic,
        Arc,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work, //
    }, //
};
use kfi_core::share::Source;
use kfi_roce::{
    cm::{
        self,
        Private,
        Reason,
        Req,
        ServiceId,
        Side,
        Timeout, //
    },
    headers::Qpn,
    mtu::PathMtu,
    psn::Psn, //
};

/// A rejection of a REQ by a listener, with the reason "consumer defined".
pub(crate) struct Rejection {
    /// The private data of the REJ.
    pub(crate) private: [u8; Self::PRIVATE_LEN],
    /// The statistic in which the REQ is counted.
    pub(crate) stat: Option<Stat>,
}

impl Rejection {
    /// The length of the private data in bytes.
    pub(crate) const PRIVATE_LEN: usize = 16;
}

/// Whether the source address of a REQ is proven.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceProof {
    /// The peer has proven that it receives packets at the address.
    Proven,
    /// The listener asks for proofs, and the REQ has none: the address may be forged.
    Unproven,
    /// The listener does not ask for proofs.
    Unknown,
}

/// The user of a listener: a passive endpoint, or an endpoint for reliable datagrams.
pub(crate) trait Listener: Send + Sync {
    /// A peer requests a connection. Called in process context without locks; may sleep, and call
    /// every function of [`cm`](super). The requests to one listener come in order, one at a time.
    fn request(&self, request: Request);

    /// Decides whether a REQ becomes a request, from its source address and its private data.
    /// `must_prove`: the REQ would end another connection of this peer, or there is no room for
    /// another request with this address unless it is proven. Only the path of the answer has been
    /// allocated. Returns whether the source address is proven. The error is the rejection. Called
    /// by the worker of QP 1 under a spin lock: does not sleep, and takes leaf locks only.
    fn screen(
        &self,
        _from: IpAddr,
        _private: &[u8],
        _must_prove: bool,
    ) -> core::result::Result<SourceProof, Rejection> {
        Ok(SourceProof::Unknown)
    }

    /// Whether requests of the peer at this address are ignored, because it was refused access to
    /// the memory of the listener's user too often. Context as for [`screen`](Self::screen).
    fn is_delayed(&self, _from: IpAddr) -> bool {
        false
    }

    /// The last link of the namespace has gone: no request comes any more. Called like
    /// [`request`](Self::request).
    fn gone(&self) {}

    /// The owner on whose behalf it handles requests, and the connections that it accepts: where
    /// both are delivered. Always the same. Any context.
    fn owner_kind(&self) -> OwnerKind;

    /// The owner, and the budget that limits the workers which deliver requests. `None`: there is
    /// no limit. Any context.
    fn owner(&self) -> Option<(&Owner, &Budget)> {
        None
    }
}

/// Listens for `service_id` in the namespace of `socket` at `ip`, or at all addresses of the family
/// of `ip` if that is the unspecified address. At most `backlog` requests of one source, and
/// [`room`] of all, may be unanswered at a time.
///
/// Fails with `EADDRINUSE` if another listener has this service ID at such an address, `ENODEV` if
/// the namespace has no link any more, `ENOMEM`. Sleeps.
pub(crate) fn listen(
    socket: &Arc<Socket>,
    ip: IpAddr,
    service_id: ServiceId,
    backlog: u32,
    listener: Arc<dyn Listener>,
) -> Result<Listening> {
    let cm = Cm::of(socket)?;
    let kind = listener.owner_kind();
    let budget = listener.owner().map(|(_, budget)| budget.clone());
    let room = room(backlog as usize);
    let backlog = Backlog::new(backlog)?;
    let queue = RequestQueue {
        requests: KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?,
        spare: KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?,
        in_delivery: 0,
        gone: false,
        listener: Some(listener),
    };
    let entry = Arc::pin_init(
        pin_init!(ListenerEntry {
            service_id,
            ip,
            kind,
            budget,
            room,
            backlog,
            queue <- new_spinlock!(queue, "ListenerEntry::queue"),
            place: PeerPlace::new(),
            work <- new_work!("kfabric::ListenerEntry"),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    cm.listen(&entry)?;
    Ok(Listening { cm, entry })
}

/// Returns the bytes of kernel memory that a listener with this backlog uses.
pub(crate) const fn listening_bytes(backlog: usize) -> usize {
    (size_of::<ListenerEntry>() + size_of::<Backlog>())
        .saturating_add(room(backlog).saturating_mul(2 * size_of::<KBox<Request>>()))
}

/// A registered listener. Dropping it ends the registration; a call of [`Listener::request`] may
/// still run after that.
pub(crate) struct Listening {
    cm: Arc<Cm>,
    entry: Arc<ListenerEntry>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.cm.unlisten(&self.entry);
        self.entry.close();
    }
}

/// A listener with this many undelivered requests, or with all its room taken by them, gets no
/// further requests. Each source has a [share](kfi_core::share) of them.
const MAX_UNDELIVERED: usize = 256;

/// The requests to pass to a listener.
struct RequestQueue {
    /// Undelivered requests, in order. The capacity is the room for unanswered ones.
    requests: KVVec<KBox<Request>>,
    /// Replaces `requests` while the work item delivers those: empty, with the same capacity. Only
    /// the work item takes it.
    spare: KVVec<KBox<Request>>,
    /// The number of requests that the work item has taken and not delivered yet.
    in_delivery: usize,
    /// [`Listener::gone`] must be called.
    gone: bool,
    /// `None`: the listener is not called any more. The workers that process messages and timeouts
    /// do not drop it, because that may take long.
    listener: Option<Arc<dyn Listener>>,
}

/// A listener in the table.
#[pin_data]
pub(super) struct ListenerEntry {
    service_id: ServiceId,
    ip: IpAddr,
    /// The owner of the listener.
    kind: OwnerKind,
    /// The budget that limits the workers. `None`: there is no limit.
    budget: Option<Budget>,
    /// The most unanswered requests.
    room: usize,
    /// The unanswered requests. Each of them has a reference to this and not to the listener,
    /// because the listener may own them.
    backlog: Arc<Backlog>,
    /// A leaf lock, except that [`Listener::screen`] and [`Listener::is_delayed`] are called under
    /// it.
    #[pin]
    queue: SpinLock<RequestQueue>,
    /// See [`PeerWork`].
    place: PeerPlace,
    #[pin]
    work: Work<Self>,
}

impl_work! {
    impl Work for ListenerEntry { self.work, run: Self::deliver }
}

impl PeerWork for ListenerEntry {
    fn queue(self: Arc<Self>) {
        self.wake();
    }

    fn place(&self) -> &PeerPlace {
        &self.place
    }
}

impl ListenerEntry {
    /// The service ID and the address at which it listens.
    pub(super) fn at(&self) -> (ServiceId, IpAddr) {
        (self.service_id, self.ip)
    }

    /// The owner of the listener. Any context.
    pub(super) fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// Reserves a slot for an unanswered request of `source`; `None` if its share is used up, or
    /// there is no memory. Sleeps.
    pub(super) fn reserve(&self, source: Source) -> Option<BacklogSlot> {
        self.backlog.reserve(source)
    }

    /// Whether so many requests are undelivered that further REQs of `source` are ignored. So the
    /// peers of a flood repeat their REQs, instead of being rejected because of each other. Does
    /// not sleep.
    pub(super) fn is_overloaded(&self, source: Source) -> bool {
        let undelivered = {
            let queue = self.queue.lock();
            queue.requests.len().saturating_add(queue.in_delivery)
        };
        let left = self.backlog.left(source, undelivered);
        undelivered.saturating_add(left) >= MAX_UNDELIVERED.min(self.room)
    }

    /// See [`Listener::is_delayed`]. Does not sleep.
    pub(super) fn is_delayed(&self, from: IpAddr) -> bool {
        let queue = self.queue.lock();
        let listener = queue.listener.as_ref();
        listener.is_some_and(|listener| listener.is_delayed(from))
    }

    /// See [`Listener::screen`]. Does not sleep.
    pub(super) fn screen(
        &self,
        from: IpAddr,
        private: &[u8],
        must_prove: bool,
    ) -> core::result::Result<SourceProof, Rejection> {
        match &self.queue.lock().listener {
            Some(listener) => listener.screen(from, private, must_prove),
            None => Ok(SourceProof::Unknown),
        }
    }

    /// Queues a request for the listener. Returns the request if the listener is closed. Does not
    /// sleep.
    pub(super) fn enqueue(self: &Arc<Self>, request: KBox<Request>) -> Option<KBox<Request>> {
        {
            let mut queue = self.queue.lock();
            // The capacity is the room for unanswered requests.
            if queue.listener.is_none() || queue.requests.len() >= queue.requests.capacity() {
                return Some(request);
            }
            let _ = queue.requests.push_within_capacity(request);
        }
        self.wake();
        None
    }

    /// Has the work item call [`Listener::gone`] after the queued requests. Does not sleep.
    pub(super) fn gone(self: &Arc<Self>) {
        self.queue.lock().gone = true;
        self.wake();
    }

    /// Ends the calls of the listener; one call may still run. Undelivered requests are rejected.
    /// Sleeps.
    fn close(&self) {
        let removed = {
            let mut queue = self.queue.lock();
            (queue.listener.take(), core::mem::take(&mut queue.requests))
        };
        drop(removed);
    }

    fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::peer_queue(self.kind).enqueue(self.clone());
    }

    /// Delivers requests to the listener. Called by the work item, which never runs twice at once.
    fn deliver(self: &Arc<Self>) {
        // The requests of a listener that is closed were taken out.
        let Some(listener) = self.listener() else {
            if let Some(budget) = &self.budget {
                budget.return_peer_slot(&self.place);
            }
            return;
        };
        let worker = match listener.owner() {
            Some((owner, budget)) => budget.enter_peer_worker(owner, self.clone()).map(Some),
            None => Some(None),
        };
        let Some(_worker) = worker else {
            return;
        };
        let _scope = self.kind.scope();
        loop {
            let (mut requests, gone) = {
                let mut queue = self.queue.lock();
                if queue.requests.is_empty() && !queue.gone {
                    return;
                }
                let spare = core::mem::take(&mut queue.spare);
                let requests = core::mem::replace(&mut queue.requests, spare);
                queue.in_delivery = requests.len();
                (requests, core::mem::take(&mut queue.gone))
            };
            for request in requests.drain_all() {
                // Dropping a request rejects it.
                if let Some(listener) = self.listener() {
                    listener.request(KBox::into_inner(request));
                }
                {
                    let mut queue = self.queue.lock();
                    queue.in_delivery = queue.in_delivery.saturating_sub(1);
                }
                cond_resched();
            }
            if let Some(listener) = self.listener().filter(|_| gone) {
                listener.gone();
            }
            // The replaced value is empty and has no memory to free.
            self.queue.lock().spare = requests;
        }
    }

    /// The listener; `None` if it is closed.
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.queue.lock().listener.clone()
    }
}

/// The attributes that this end's QP needs for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    /// The peer's QP.
    pub(crate) qpn: Qpn,
    /// The first PSN that this end sends.
    pub(crate) starting_psn: Psn,
    /// The path MTU.
    pub(crate) mtu: PathMtu,
    /// READs and atomics that the peer may have outstanding.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this end may have outstanding.
    pub(crate) initiator_depth: u8,
    /// How often an unacknowledged packet is sent again.
    pub(crate) retry_count: u8,
    /// How often a SEND is repeated after an RNR NAK; 7: without limit.
    pub(crate) rnr_retry_count: u8,
    /// The time after which an unacknowledged packet is sent again.
    pub(crate) ack_timeout: Timeout,
}

impl Params {
    pub(super) fn new(request: &cm::Request<'_>) -> Self {
        Self {
            qpn: request.qpn,
            starting_psn: request.starting_psn,
            mtu: request.mtu,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            ack_timeout: request.ack_timeout,
        }
    }
}

/// A request of a peer. If it is dropped without an answer, it is rejected with the reason
/// "consumer defined" and without private data.
///
/// A peer that repeats its REQ is asked to wait (MRA). It gives up after about 30 s without
/// an answer.
pub(crate) struct Request {
    /// The passive end of the requested connection.
    pub(super) conn: Arc<Conn>,
    pub(super) service_id: ServiceId,
    pub(super) params: Params,
    pub(super) private: [u8; Req::PRIVATE_LEN],
    /// Whether its source address is proven.
    pub(super) proof: SourceProof,
    /// Its connection is in the table and has no answer: a drop rejects it.
    pub(super) open: bool,
    pub(super) _slot: BacklogSlot,
}

impl Request {
    /// The link that received it. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.conn.link()
    }

    /// The address that it was sent to. Any context.
    pub(crate) fn local(&self) -> IpAddr {
        self.conn.local()
    }

    /// The address that it was sent from. Any context.
    pub(crate) fn remote(&self) -> IpAddr {
        self.conn.remote()
    }

    /// The path to the peer. Any context.
    pub(crate) fn path(&self) -> &Arc<Path> {
        self.conn.path()
    }

    /// The requested service. Any context.
    pub(crate) fn service_id(&self) -> ServiceId {
        self.service_id
    }

    /// The attributes that the QP needs. Any context.
    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// Whether its source address is proven. Any context.
    pub(crate) fn proof(&self) -> SourceProof {
        self.proof
    }

    /// The private data, padded with zeros. Any context.
    pub(crate) fn private(&self) -> &[u8; Req::PRIVATE_LEN] {
        &self.private
    }

    /// Accepts the request. The QP can already receive. `consumer` gets the events from now on;
    /// `context` is the value by which it recognizes the connection. The READs and atomics in
    /// `side` are at most those of [`params`](Self::params).
    ///
    /// Fails with `EINVAL` for more than 196 bytes of private data; `ECONNABORTED` if the peer has
    /// given up or the link has gone. The request is used up, also on failure. Sleeps.
    pub(crate) fn accept(
        mut self,
        side: &Side,
        private: &[u8],
        context: u64,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Conn>> {
        let private = Private::new(private).ok_or(EINVAL)?;
        self.conn.accept(side, private, context, consumer)?;
        self.open = false;
        Ok(self.conn.clone())
    }

    /// Rejects the request. Private data beyond 148 bytes is cut off. Sleeps.
    pub(crate) fn reject(mut self, reason: Reason, private: &[u8]) {
        // It fails if the peer has given up: then there is nothing to reject.
        let _ = self.conn.reject(reason, private);
        self.open = false;
    }

    /// Rejects the request and removes the connection from the table, so that the rejection uses no
    /// memory. If the REJ is lost, the peer's repeated REQ is a new request. For requests that the
    /// listener refuses itself, without its user. Private data beyond 148 bytes is cut off. Sleeps.
    pub(crate) fn refuse(mut self, reason: Reason, private: &[u8]) {
        // As in `reject`.
        let _ = self.conn.reject(reason, private);
        self.conn.forget();
        self.open = false;
    }

    /// Removes the connection: the REQ that the peer repeats is a new request. There is no answer,
    /// except to a peer that was asked to wait (MRA). It would repeat the REQ after seconds only,
    /// so it gets a REJ with the reason "no resources". Sleeps.
    pub(crate) fn ignore(mut self) {
        self.conn.ignore();
        self.open = false;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.open {
            self.conn.close();
        }
    }
}
