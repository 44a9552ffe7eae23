// SPDX-License-Identifier: GPL-2.0

//! Listeners for a service ID at an address, and the delivery of requests to them.
//!
//! Each listener has a work item that calls it ([`ListenerEntry::ask`]), so a slow listener delays
//! only the requests to itself. Undelivered requests wait in an array with room for the backlog,
//! which is allocated when listening begins.

use super::{
    super::{
        socket::Socket,
        stats::Stat, //
    },
    request::Request,
    service::Cm, //
};
use crate::shim::{
    sched::cond_resched,
    work, //
};
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        SpinLock, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kfi_roce::cm::ServiceId;

/// A rejection of a REQ by a listener, with the reason "consumer defined".
pub(crate) struct Rejection {
    /// The private data of the REJ.
    pub(crate) private: [u8; Self::PRIVATE_LEN],
    /// The statistic in which the REQ is counted.
    pub(crate) figure: Option<Stat>,
}

impl Rejection {
    /// The length of the private data in bytes.
    pub(crate) const PRIVATE_LEN: usize = 16;
}

/// What a listener knows about the source address of a REQ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The peer has proven that it receives packets at the address.
    Proven,
    /// The address may be forged.
    Unproven,
}

/// The user of a listener: a passive endpoint, or an endpoint for reliable datagrams.
pub(crate) trait Listener: Send + Sync {
    /// A peer requests a connection. Called in process context without locks; may sleep, and call
    /// every function of [`cm`](super). The requests to one listener come in order, one at a time.
    fn request(&self, request: Request);

    /// Decides whether a REQ becomes a request, from its source address and its private data.
    /// `must_prove`: the REQ would end another connection of this peer. No memory has been allocated
    /// for the REQ. The error is the rejection. Called by the worker of QP 1 under a spin lock: does
    /// not sleep, and takes leaf locks only.
    fn screen(
        &self,
        _from: IpAddr,
        _private: &[u8],
        _must_prove: bool,
    ) -> core::result::Result<Source, Rejection> {
        Ok(Source::Unproven)
    }

    /// The last link of the namespace has gone: no request comes any more. Called like
    /// [`request`](Self::request).
    fn gone(&self) {}
}

/// Listens for `service_id` in the namespace of `socket` at `ip`, or at all addresses of the family
/// of `ip` if that is the unspecified address. At most `backlog` requests may be unanswered at a
/// time.
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
    let waiting = Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?;
    let asked = Asked {
        requests: KVVec::with_capacity(backlog as usize, GFP_KERNEL_ACCOUNT)?,
        spare: KVVec::with_capacity(backlog as usize, GFP_KERNEL_ACCOUNT)?,
        in_delivery: 0,
        gone: false,
        listener: Some(listener),
    };
    let entry = Arc::pin_init(
        pin_init!(ListenerEntry {
            service_id,
            ip,
            backlog,
            waiting,
            asked <- new_spinlock!(asked, "ListenerEntry::asked"),
            work <- new_work!("kfabric::ListenerEntry"),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    cm.listen(&entry)?;
    Ok(Listening { cm, entry })
}

/// Returns the bytes of kernel memory that a listener with this backlog uses.
pub(crate) const fn listening_bytes(backlog: usize) -> usize {
    size_of::<ListenerEntry>()
        .saturating_add(backlog.saturating_mul(2 * size_of::<KBox<Request>>()))
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

/// A listener with this many undelivered requests, or with its whole backlog undelivered, is passed
/// no more.
const MAX_UNDELIVERED: usize = 256;

/// The requests to pass to a listener.
struct Asked {
    /// Undelivered requests, in order. The capacity is the backlog.
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
    backlog: u32,
    /// The number of unanswered requests. Each of them has a reference to this number and not to
    /// the listener, because the listener may own them.
    waiting: Arc<Atomic<u32>>,
    /// A leaf lock, except that [`Listener::screen`] is called under it.
    #[pin]
    asked: SpinLock<Asked>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ListenerEntry { self.work }
}

impl WorkItem for ListenerEntry {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.deliver();
    }
}

impl ListenerEntry {
    /// The service ID and the address at which it listens.
    pub(super) fn at(&self) -> (ServiceId, IpAddr) {
        (self.service_id, self.ip)
    }

    /// Reserves room for an unanswered request; `None` if the backlog is used up. Any context.
    pub(super) fn room(&self) -> Option<BacklogSlot> {
        // Dropping it undoes the increment below, also if there is no room.
        let place = BacklogSlot(self.waiting.clone());
        (self.waiting.fetch_add(1, Full) < self.backlog).then_some(place)
    }

    /// Whether so many requests are undelivered that further REQs are ignored. So the peers of a
    /// flood repeat their REQs, instead of being rejected because of each other. Does not sleep.
    pub(super) fn is_overloaded(&self) -> bool {
        let asked = self.asked.lock();
        let undelivered = asked.requests.len().saturating_add(asked.in_delivery);
        undelivered >= MAX_UNDELIVERED.min(self.backlog as usize)
    }

    /// See [`Listener::screen`]. Does not sleep.
    pub(super) fn screen(
        &self,
        from: IpAddr,
        private: &[u8],
        must_prove: bool,
    ) -> core::result::Result<Source, Rejection> {
        match &self.asked.lock().listener {
            Some(listener) => listener.screen(from, private, must_prove),
            None => Ok(Source::Unproven),
        }
    }

    /// Queues a request for the listener. Returns the request if the listener is closed. Does not
    /// sleep.
    pub(super) fn ask(self: &Arc<Self>, request: KBox<Request>) -> Option<KBox<Request>> {
        {
            let mut asked = self.asked.lock();
            // The capacity is the backlog, which limits the unanswered requests.
            if asked.listener.is_none() || asked.requests.len() >= asked.requests.capacity() {
                return Some(request);
            }
            let _ = asked.requests.push_within_capacity(request);
        }
        self.wake();
        None
    }

    /// Has the work item call [`Listener::gone`] after the queued requests. Does not sleep.
    pub(super) fn gone(self: &Arc<Self>) {
        self.asked.lock().gone = true;
        self.wake();
    }

    /// Ends the calls of the listener; one call may still run. Undelivered requests are rejected.
    /// Sleeps.
    fn close(&self) {
        let left = {
            let mut asked = self.asked.lock();
            (asked.listener.take(), core::mem::take(&mut asked.requests))
        };
        drop(left);
    }

    fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::slow_queue().enqueue(self.clone());
    }

    /// Delivers requests to the listener. Called by the work item, which never runs twice at once.
    fn deliver(&self) {
        loop {
            let (mut requests, gone) = {
                let mut asked = self.asked.lock();
                if asked.requests.is_empty() && !asked.gone {
                    return;
                }
                let spare = core::mem::take(&mut asked.spare);
                let requests = core::mem::replace(&mut asked.requests, spare);
                asked.in_delivery = requests.len();
                (requests, core::mem::take(&mut asked.gone))
            };
            for request in requests.drain_all() {
                // Dropping a request rejects it.
                if let Some(listener) = self.listener() {
                    listener.request(KBox::into_inner(request));
                }
                {
                    let mut asked = self.asked.lock();
                    asked.in_delivery = asked.in_delivery.saturating_sub(1);
                }
                cond_resched();
            }
            if let Some(listener) = self.listener().filter(|_| gone) {
                listener.gone();
            }
            // The replaced value is empty and has no memory to free.
            self.asked.lock().spare = requests;
        }
    }

    /// The listener; `None` if it is closed.
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.asked.lock().listener.clone()
    }
}

/// The share of an unanswered request in its listener's backlog.
pub(super) struct BacklogSlot(Arc<Atomic<u32>>);

impl Drop for BacklogSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Full);
    }
}
