// SPDX-License-Identifier: GPL-2.0

//! RC: a reliable connection to one peer.
//!
//! The protocol is kfi_roce's: a requester and a responder, each under a mutex of its own, so
//! that somebody can post while the worker places what the peer sends. Here they get packets, time,
//! memory and a [`Consumer`].
//!
//! ```text
//!   queue, push -> Sending: requester, memory of work requests -> packets, sent by the poster itself
//!   a run:  requests  -> Receiving: responder -> Consumer: receives and memory -> answers
//!           responses -> Sending: requester -> packets that had to wait
//!           then, with no lock held, what has ended -> Consumer::completed
//!   timer:  the worker
//! ```
//!
//! What is sent is sent under the lock of its half: so packets leave in the order of their PSNs.
//!
//! A packet that the local stack refuses is lost, and sent again a little later; the QP does not
//! suffer. A QP is connected once: to talk to another peer, make another.
//!
//! # Locks
//!
//! Receiving, then sending. The consumer's locks come below the former. No spin lock is held while
//! either is taken.
//!
//! | file | what |
//! |---|---|
//! | `consumer.rs` | what the floor above has to do |
//! | `front.rs` | bytes before a work request's memory |
//! | `worker.rs` | packets, timers, completions |
//! | `figures.rs` | what is counted |

mod consumer;
mod figures;
mod front;
#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/rc_inline.rs"]
mod kunit;
mod worker;

pub(crate) use self::{
    consumer::Consumer,
    front::FRONT_MAX, //
};

use self::{
    consumer::Asked,
    front::Fronts, //
};

use super::{
    super::{
        link::{
            Link,
            LinkState, //
        },
        path::Path,
        socket::Number,
        stats::{
            Holder,
            QpFigures, //
        },
    },
    inbox,
    AnyQp,
    Cause,
    Home,
    Kind,
    Qp, //
};
use crate::{
    mem::{
        Budget,
        MemRef, //
    },
    shim::{
        alarm::Alarm,
        errno::to_error,
        inline_work::InlineList,
        skb::{
            InboxLimits,
            RxBatch, //
        }, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
use kfi_roce::{
    headers::Qpn,
    mtu::PathMtu,
    opcode::Service,
    rc::{
        outstanding::Slot,
        stats::{
            RequesterStats,
            ResponderStats, //
        },
        window,
        AckPolicy,
        Attr,
        Op,
        Replay,
        Requester,
        Responder,
        WorkRequest,
        Wqe, //
    },
    state::{
        Mask,
        Posting,
        State, //
    }, //
};

/// READs and atomics that a QP may have outstanding, and its peer at it: what fits in a CM's REQ
/// would be 255; more than a few do not make anything faster.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;

/// Most work requests that a QP can have queued.
pub(crate) const MAX_SENDS: usize = 1 << 14;

/// The kind of a QP for a reliable connection.
#[pin_data]
pub(crate) struct Rc {
    /// Under it, [`Sending`] may be taken, and the consumer is asked.
    #[pin]
    receiving: Mutex<Receiving>,
    #[pin]
    sending: Mutex<Sending>,
    /// A leaf but for `Consumer`'s reference count; none when closed.
    #[pin]
    consumer: Mutex<Option<Arc<dyn Consumer>>>,
    path: SetOnce<Arc<Path>>,
    /// The identification of the next IPv4 packet.
    ip_id: Atomic<u32>,
}

/// The half that executes the peer's requests.
struct Receiving {
    responder: Responder<KVec<Replay>>,
    /// What of its counters has been added up.
    settled: ResponderStats,
}

/// The half that has its own requests executed.
struct Sending {
    requester: Requester<KVec<Wqe>, KVec<Slot>>,
    /// As many places as there are WQEs, taken and left in turn: a work request's `wr_id` is its
    /// place.
    works: KVec<Option<Work>>,
    /// By the same places.
    fronts: Fronts,
    /// The place of the next work request.
    next: usize,
    alarm: Alarm<Qp<Rc>>,
    /// What of its counters has been added up.
    settled: RequesterStats,
    /// Whether the consumer knows of the state ERR: it ordered it, or has been told.
    told: bool,
}

/// A work request that has not ended.
struct Work {
    context: u64,
    memory: MemRef,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The operation.
    pub(crate) op: Op,
    /// Begin only when all READs and atomics before it are done.
    pub(crate) fence: bool,
    /// The peer's completion is a solicited event.
    pub(crate) solicited: bool,
}

impl Kind for Rc {
    const SERVICE: Service = Service::Rc;
    const CONNECTED: bool = true;
    /// A window of the largest packets, of which each takes twice its payload, and as much again:
    /// so the window is what keeps a peer back, not loss. 4,096 small packets take no more memory.
    const INBOX: InboxLimits = InboxLimits {
        packets: window::DEFAULT_LARGEST * 16,
        bytes: window::DEFAULT_LARGEST * 4 * PathMtu::Mtu4096.bytes(),
    };

    fn any(qp: Arc<Qp<Self>>) -> AnyQp {
        AnyQp::Rc(qp)
    }

    fn started(_qp: &Qp<Self>, _number: Qpn) {}

    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch, cause: Cause, inline: &InlineList) {
        worker::work(qp, batch, cause, inline);
    }

    fn detach(qp: &Qp<Self>) {
        let consumer = qp.kind.consumer.lock().take();
        let alarm = core::mem::replace(&mut qp.kind.sending.lock().alarm, Alarm::new());
        drop(consumer);
        // Waits for the callback, which takes no lock.
        drop(alarm);
    }

    fn release(qp: &Qp<Self>) {
        let works = {
            let mut sending = qp.kind.sending.lock();
            // Whoever posts now has nobody to keep the memory for, so nothing must be sent.
            sending.requester.error();
            core::mem::take(&mut sending.works)
        };
        drop(works);
    }
}

/// `len` copies of `value`. `ENOMEM`.
fn filled<T: Clone>(len: usize, value: T) -> Result<KVec<T>> {
    Ok(KVec::from_elem(value, len, GFP_KERNEL_ACCOUNT)?)
}

impl Rc {
    /// With room for `sends` work requests, a power of two, and for `fronts` fronts: as many, or none.
    fn new(
        sends: usize,
        fronts: usize,
        consumer: Arc<dyn Consumer>,
    ) -> Result<impl PinInit<Self, Error>> {
        let rd_atomic = usize::from(MAX_RD_ATOMIC);
        let requester = Requester::new(
            filled(sends, Wqe::EMPTY)?,
            filled(rd_atomic, Slot::default())?,
            window::DEFAULT_LARGEST,
        );
        let replays = filled(rd_atomic, Replay::EMPTY)?;
        let responder = Responder::new(replays, AckPolicy::AT_ONCE);
        let mut works = KVec::with_capacity(sends, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..sends {
            works.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        let receiving = Receiving {
            responder,
            settled: ResponderStats::default(),
        };
        let sending = Sending {
            requester,
            works,
            fronts: Fronts::new(fronts)?,
            next: 0,
            alarm: Alarm::new(),
            settled: RequesterStats::default(),
            told: false,
        };
        Ok(try_pin_init!(Self {
            receiving <- new_mutex!(receiving, "Rc::receiving"),
            sending <- new_mutex!(sending, "Rc::sending"),
            consumer <- new_mutex!(Some(consumer), "Rc::consumer"),
            path: SetOnce::new(),
            ip_id: Atomic::new(0),
        }? Error))
    }

    fn consumer(&self) -> Option<Arc<dyn Consumer>> {
        self.consumer.lock().clone()
    }

    fn next_ip_id(&self) -> u16 {
        // The lower half of it.
        self.ip_id.fetch_add(1, Relaxed) as u16
    }
}

impl Qp<Rc> {
    /// A QP for a connection from `ip`, an address of `link`, in state RESET; `sends` work requests
    /// can be queued, a number that is rounded up to a power of two. `owner`, which has been
    /// charged [`bytes`](Self::bytes), is charged for packets that wait.
    ///
    /// `EINVAL` no or more than [`MAX_SENDS`] work requests; `ENODEV` the link has gone; `EBUSY` there
    /// are too many QPs in the namespace; `ENOMEM`. Sleeps.
    pub(crate) fn connection(
        link: &Arc<Link>,
        ip: IpAddr,
        sends: usize,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let figures = Holder::Qp(QpFigures::new());
        Self::make(link, ip, sends, false, figures, owner, consumer)
    }

    /// The same, whose work requests can have fronts. It counts in `figures`, as others may.
    pub(crate) fn connection_with_fronts(
        link: &Arc<Link>,
        ip: IpAddr,
        sends: usize,
        figures: Arc<QpFigures>,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let figures = Holder::Owner(figures);
        Self::make(link, ip, sends, true, figures, owner, consumer)
    }

    fn make(
        link: &Arc<Link>,
        ip: IpAddr,
        sends: usize,
        with_fronts: bool,
        figures: Holder,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        if sends == 0 || sends > MAX_SENDS {
            return Err(EINVAL);
        }
        let home = Home::Link(link.clone(), ip);
        let sends = sends.next_power_of_two();
        let fronts = if with_fronts { sends } else { 0 };
        let kind = Rc::new(sends, fronts, consumer)?;
        Self::new(link.socket(), home, Number::Any, figures, Some(owner), kind)
    }

    /// Bytes of kernel memory that a QP with room for `sends` work requests takes, with the reserve
    /// of its inbox.
    pub(crate) const fn bytes(sends: usize) -> usize {
        const EACH: usize = size_of::<Wqe>() + size_of::<Option<Work>>();
        let rd_atomic = MAX_RD_ATOMIC as usize * (size_of::<Slot>() + size_of::<Replay>());
        size_of::<Self>()
            .saturating_add(inbox::RESERVE as usize)
            .saturating_add(rd_atomic)
            .saturating_add(sends.next_power_of_two().saturating_mul(EACH))
    }

    /// Bytes of kernel memory that fronts for `sends` work requests take besides.
    pub(crate) const fn front_bytes(sends: usize) -> usize {
        Fronts::bytes(sends.next_power_of_two())
    }

    /// Its state. Sleeps.
    pub(crate) fn state(&self) -> State {
        self.kind.sending.lock().requester.state()
    }

    /// Goes to state `attr.state` with those attributes that are in `mask`, as
    /// [`rc::Qp::modify`](kfi_roce::rc::Qp::modify) has it. [`Mask::AV`] goes with `path`, the
    /// way to the peer, from this QP's address.
    ///
    /// To ERR: all that is posted completes as flushed; [`Consumer::failed`] is not called. To RESET:
    /// all that is posted is forgotten, and nobody is told.
    ///
    /// `EINVAL` not from this state, or not with these attributes; `EISCONN` the QP has or had a
    /// peer; `ENODEV` the link has gone. Nothing has changed then. Not for a consumer that is being
    /// called. Sleeps.
    pub(crate) fn modify(
        self: &Arc<Self>,
        attr: &Attr,
        mask: Mask,
        path: Option<&Arc<Path>>,
    ) -> Result {
        let consumer = self.kind.consumer();
        let mut asked = Asked {
            consumer: consumer.as_deref(),
            payload: None,
        };
        if mask.contains(Mask::AV) != path.is_some() {
            return Err(EINVAL);
        }
        let mut forgotten = KVec::new();
        {
            let mut receiving = self.kind.receiving.lock();
            let mut sending = self.kind.sending.lock();
            let rd_atomic = usize::from(MAX_RD_ATOMIC);
            let state = sending.requester.state();
            attr.check(state, mask, rd_atomic, rd_atomic)
                .map_err(to_error)?;
            if self.is_gone() && !matches!(attr.state, State::Error | State::Reset) {
                return Err(ENODEV);
            }
            if let Some(path) = path {
                self.connect(path.way().to)?;
                // Nobody else does, as nobody else has connected it.
                self.kind.path.populate(path.clone());
            }
            if attr.state == State::Reset {
                // All places are free again, in whatever order they are given.
                for work in &mut sending.works {
                    if let Some(work) = work.take() {
                        let _ = forgotten.push(work, GFP_KERNEL);
                    }
                }
            }
            sending.told = matches!(attr.state, State::Error | State::Reset);
            sending.requester.modify(attr, mask).map_err(to_error)?;
            receiving
                .responder
                .modify(attr, mask, &mut asked)
                .map_err(to_error)?;
        }
        drop(forgotten);
        self.wake();
        Ok(())
    }

    /// Posts a work request on `front` and `memory`, one behind the other: what is sent from them, or
    /// where an answer is placed. How it ends is told with [`Consumer::completed`] and `context`.
    ///
    /// Nothing is sent yet: [`push`](Self::push) is to be called soon, so that work requests that come
    /// together are sent together.
    ///
    /// `EINVAL` the state does not allow it, both are longer than a message can be, or their length is
    /// not that of the operation, or the front is longer than [`FRONT_MAX`], or the QP has
    /// [none](Self::connection_with_fronts); `EAGAIN` so much is queued already. No spin lock that is
    /// taken in softirq; may sleep.
    pub(crate) fn queue(
        self: &Arc<Self>,
        request: &Request,
        front: &[u8],
        memory: MemRef,
        context: u64,
    ) -> Result {
        let len = front.len().checked_add(memory.len()).ok_or(EINVAL)?;
        let len = u32::try_from(len).map_err(|_| EINVAL)?;
        let mut sending = self.kind.sending.lock();
        let place = sending.next;
        let work = WorkRequest {
            wr_id: place as u64,
            op: request.op,
            len,
            fence: request.fence,
            solicited: request.solicited,
            signaled: true,
        };
        if !sending.fronts.fits(front.len()) {
            return Err(EINVAL);
        }
        sending.requester.post(&work).map_err(|errno| match errno {
            kfi_roce::Error::Full => EAGAIN,
            errno => to_error(errno),
        })?;
        let places = sending.works.len();
        sending.next = (place + 1) & places.wrapping_sub(1);
        if let Some(slot) = sending.works.get_mut(place) {
            // As there was room for the work request, its place is free.
            *slot = Some(Work { context, memory });
        }
        sending.fronts.set(place, front);
        if sending.requester.state().post_send() == Posting::Flushed {
            drop(sending);
            // Completions are the worker's.
            self.wake();
        }
        Ok(())
    }

    /// Sends what was queued, as much of it as may be sent now, and runs the receive work of a peer of
    /// the same principal on this host to completion ([`InlineList`]). Sleeps; no lock is held, and no
    /// consumer is being called.
    pub(crate) fn push(self: &Arc<Self>) {
        let inline = InlineList::new();
        worker::send(self, &mut self.kind.sending.lock(), Some(&inline));
        inline.run();
    }

    /// The same for who holds locks, or is a consumer that is being called: the peer's worker does the
    /// receive work. Sleeps.
    pub(crate) fn push_only(self: &Arc<Self>) {
        worker::send(self, &mut self.kind.sending.lock(), None);
    }

    /// Has `change` change the fronts of work requests that have not ended, with the context of each:
    /// what is sent from now on, for the first time or again, has the changed ones. Some that have
    /// ended and were not told may be among them. A front keeps its length. Sleeps.
    pub(crate) fn rewrite(&self, mut change: impl FnMut(u64, &mut [u8])) {
        let mut sending = self.kind.sending.lock();
        let Sending { works, fronts, .. } = &mut *sending;
        for (place, work) in works.iter().enumerate() {
            if let (Some(work), Some(front)) = (work, fronts.get_mut(place)) {
                if !front.is_empty() {
                    change(work.context, front);
                }
            }
        }
    }

    /// Whether the link has gone.
    fn is_gone(&self) -> bool {
        matches!(&self.home, Home::Link(link, _) if link.state() == LinkState::Gone)
    }
}
