// SPDX-License-Identifier: GPL-2.0

//! RC: a reliable connection to one peer.
//!
//! kfi_roce implements the protocol: a requester and a responder. Each is under its own mutex, so a
//! task can post while the worker places what the peer sends. This module gives them packets, time,
//! memory and a [`Consumer`].
//!
//! ```text
//!   queue, push -> Sending: requester, memory of work requests -> packets, sent by the poster
//!   a run:  requests  -> Receiving: responder -> Consumer: receives and memory -> responses
//!           responses -> Sending: requester -> packets that had to wait
//!           then, with no lock held, completed work requests -> Consumer::completed
//!   timer:  the worker
//! ```
//!
//! Each half sends its packets with its lock held, so they are sent in the order of their PSNs.
//!
//! A packet that the local stack refuses is lost, and sent again a little later; the QP does not
//! fail. A QP has one peer until it returns to RESET ([`modify`](super::modify)).
//!
//! # Inline headers
//!
//! A user with its own protocol over a QP begins each SEND with a header, and has the bytes of the
//! message elsewhere. The inline header is copied when the work request is posted, and is sent
//! before the memory of the work request, in the same message. It may be changed until the work
//! request has completed ([`Qp::rewrite`]).
//!
//! # Locks
//!
//! `receiving`, then `sending`; both below the locks of [`modify`](super::modify). The consumer's
//! locks are below `receiving`. No spin lock is held while either is taken.
//!
//! | file | content |
//! |---|---|
//! | `consumer.rs` | the trait of the layer above |
//! | `inline_header.rs` | headers that are stored in work requests |
//! | `worker.rs` | packets, timers, completions, statistics |

mod consumer;
mod inline_header;
#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/rc_inline.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../../../kunit/rc_modify.rs"]
mod kunit_modify;
mod worker;

pub(crate) use self::{
    consumer::Consumer,
    inline_header::INLINE_HEADER_MAX, //
};

use self::{
    consumer::RequestTarget,
    inline_header::InlineHeaders, //
};

use super::{
    super::{
        link::Link,
        path::Path,
        socket::{
            AddrPair,
            Number, //
        },
        stats::{
            QpStats,
            StatsRef, //
        },
    },
    accepted::Accepts,
    inbox,
    AnyQp,
    Cause,
    Kind,
    Qp,
    QpAddress, //
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
        memory::kmalloc_array_size,
        skb::{
            InboxLimits,
            RxBatch, //
        }, //
    }, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kfi_roce::{
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

/// READs and atomics that a QP, and its peer at the QP, may have outstanding. A REQ of CM could
/// carry up to 255; more than a few do not increase the speed.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;

/// The most work requests that a QP can have queued.
pub(crate) const MAX_SENDS: usize = 1 << 14;

/// The kind of a QP for a reliable connection.
#[pin_data]
pub(crate) struct Rc {
    /// While it is held, [`Sending`] may be taken and the consumer is called.
    #[pin]
    receiving: Mutex<Receiving>,
    #[pin]
    sending: Mutex<Sending>,
    /// A leaf, except for the reference count of `Consumer`; process context only. `None` when
    /// closed.
    #[pin]
    consumer: SpinLock<Option<Arc<dyn Consumer>>>,
    /// The identification of the next IPv4 packet.
    ip_id: Atomic<u32>,
}

/// The half that executes the peer's requests.
struct Receiving {
    responder: Responder<KVec<Replay>>,
    /// The path to the peer. Each half has it, so that each needs its own lock only.
    path: Option<Arc<Path>>,
    /// The part of the machine's statistics that is already added to those of the QP and its link.
    added: ResponderStats,
}

/// The half that sends this QP's requests.
struct Sending {
    requester: Requester<KVec<Wqe>, KVec<Slot>>,
    /// The path to the peer.
    path: Option<Arc<Path>>,
    /// As many slots as there are WQEs, used round-robin: a work request's `wr_id` is its slot.
    works: KVec<Option<Work>>,
    /// Inline headers, by the same slots.
    inline_headers: InlineHeaders,
    /// The slot of the next work request.
    next: usize,
    alarm: Alarm<Qp<Rc>>,
    /// The part of the machine's statistics that is already added to those of the QP and its link.
    added: RequesterStats,
    /// Whether the consumer knows of the state ERR: it asked for it, or was notified.
    error_reported: bool,
}

/// A work request that has not completed.
struct Work {
    context: u64,
    memory: MemRef,
}

/// A work request, as it is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The operation.
    pub(crate) op: Op,
    /// Begin only when all READs and atomics posted before have completed.
    pub(crate) fence: bool,
    /// The peer's completion is a solicited event.
    pub(crate) solicited: bool,
}

impl Kind for Rc {
    const SERVICE: Service = Service::Rc;
    /// A window of the largest packets, each of which uses twice its payload, and as much again. So
    /// the window limits a peer before packets are lost. 4,096 small packets use no more memory.
    const INBOX: InboxLimits = InboxLimits {
        packets: window::DEFAULT_LARGEST * 16,
        bytes: window::DEFAULT_LARGEST * 4 * PathMtu::Mtu4096.bytes(),
    };

    fn any(qp: Arc<Qp<Self>>) -> AnyQp {
        AnyQp::Rc(qp)
    }

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
            // A task that posts from now on cannot store its memory, so nothing may be sent.
            sending.requester.error();
            core::mem::take(&mut sending.works)
        };
        drop(works);
    }
}

/// `len` copies of `value`. Fails with `ENOMEM`. Sleeps.
fn filled<T: Clone>(len: usize, value: T) -> Result<KVec<T>> {
    Ok(KVec::from_elem(value, len, GFP_KERNEL_ACCOUNT)?)
}

impl Rc {
    /// With room for `sends` work requests, a power of two, and for `inline_headers` inline
    /// headers: the same number, or 0.
    fn new(
        sends: usize,
        inline_headers: usize,
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
            path: None,
            added: ResponderStats::default(),
        };
        let sending = Sending {
            requester,
            path: None,
            works,
            inline_headers: InlineHeaders::new(inline_headers)?,
            next: 0,
            alarm: Alarm::new(),
            added: RequesterStats::default(),
            error_reported: false,
        };
        Ok(try_pin_init!(Self {
            receiving <- new_mutex!(receiving, "Rc::receiving"),
            sending <- new_mutex!(sending, "Rc::sending"),
            consumer <- new_spinlock!(Some(consumer), "Rc::consumer"),
            ip_id: Atomic::new(0),
        }? Error))
    }

    /// Drops all work requests. The state is RESET, and stays so during the call: the requester has
    /// none, and none can be posted. Sleeps.
    fn drop_works(&self) {
        /// Work requests that are taken at a time: their memory is dropped without the lock.
        const BATCH: usize = 16;
        let mut begin = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            {
                let mut sending = self.sending.lock();
                let Some(rest) = sending.works.get_mut(begin..) else {
                    return;
                };
                if rest.is_empty() {
                    return;
                }
                for (work, entry) in rest.iter_mut().zip(&mut batch) {
                    *entry = work.take();
                }
            }
            begin = begin.saturating_add(BATCH);
        }
    }

    fn consumer(&self) -> Option<Arc<dyn Consumer>> {
        self.consumer.lock().clone()
    }

    fn next_ip_id(&self) -> u16 {
        // The lower half.
        self.ip_id.fetch_add(1, Relaxed) as u16
    }
}

impl Qp<Rc> {
    /// A QP for a connection on `link`, in state RESET. [`modify`](Self::modify) gives it its
    /// address, which is one of the link. `sends` work requests can be queued; the number is
    /// rounded up to a power of two. `owner`, which has been charged [`bytes`](Self::bytes), is
    /// charged for packets that wait.
    ///
    /// Fails with `EINVAL` for 0 or more than [`MAX_SENDS`] work requests, `ENODEV` if the link has
    /// gone, `EBUSY` if the namespace has too many QPs, `ENOMEM`. Sleeps.
    pub(crate) fn connection(
        link: &Arc<Link>,
        sends: usize,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let stats = StatsRef::Qp(QpStats::new());
        Self::make(link, sends, false, stats, owner, consumer)
    }

    /// The same, for work requests with inline headers. It counts in `stats`, which other QPs may
    /// share.
    pub(crate) fn connection_with_inline_headers(
        link: &Arc<Link>,
        sends: usize,
        stats: Arc<QpStats>,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let stats = StatsRef::Owner(stats);
        Self::make(link, sends, true, stats, owner, consumer)
    }

    fn make(
        link: &Arc<Link>,
        sends: usize,
        with_inline_headers: bool,
        stats: StatsRef,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        if sends == 0 || sends > MAX_SENDS {
            return Err(EINVAL);
        }
        let address = QpAddress::Link(link.clone());
        let sends = sends.next_power_of_two();
        let inline_headers = if with_inline_headers { sends } else { 0 };
        let kind = Rc::new(sends, inline_headers, consumer)?;
        Self::new(
            link.socket(),
            address,
            Number::Any,
            stats,
            Some(owner),
            kind,
        )
    }

    /// Bytes of kernel memory of a QP with room for `sends` work requests, with the reserve of its
    /// inbox.
    pub(crate) fn bytes(sends: usize) -> usize {
        let sends = sends.next_power_of_two();
        let rd_atomic = MAX_RD_ATOMIC as usize * (size_of::<Slot>() + size_of::<Replay>());
        size_of::<Self>()
            .saturating_add(inbox::RESERVE as usize)
            .saturating_add(rd_atomic)
            .saturating_add(kmalloc_array_size::<Wqe>(sends))
            .saturating_add(kmalloc_array_size::<Option<Work>>(sends))
    }

    /// Bytes of kernel memory of the inline headers for `sends` work requests, in addition to
    /// `bytes`.
    pub(crate) fn inline_header_bytes(sends: usize) -> usize {
        InlineHeaders::bytes(sends.next_power_of_two())
    }

    /// Its state. Sleeps.
    pub(crate) fn state(&self) -> State {
        self.kind.sending.lock().requester.state()
    }

    /// Whether it is in SQD, and sends that had begun have not ended. Sleeps.
    pub(crate) fn is_draining(&self) -> bool {
        let sending = self.kind.sending.lock();
        sending.requester.state() == State::Sqd && !sending.requester.is_drained()
    }

    /// Changes to state `attr.state` with the attributes in `mask`, as
    /// [`rc::Qp::modify`](kfi_roce::rc::Qp::modify) defines it. [`Mask::AV`] requires `path`, the
    /// path to the peer, and the other way round. The QP takes its address from the path: it sends
    /// along it, and accepts packets that come the opposite way only.
    ///
    /// - To SQD: sends that have begun end, others wait. [`Consumer::drained`] is called when the
    ///   send queue is drained, if `attr` requests that.
    /// - To ERR: all posted work requests complete as flushed; [`Consumer::failed`] is not called.
    /// - To RESET: all posted work requests are dropped without a completion, and the QP has no
    ///   path and no peer. See [`modify`](super::modify).
    ///
    /// Fails with `EINVAL` if the transition from this state or the attributes are not allowed, if
    /// the send queue is being drained (unless the QP goes to ERR or RESET), or if `path` is not of
    /// the QP's namespace; `ENODEV` if the link has gone (unless the QP goes to ERR or RESET).
    /// Nothing has changed then. A consumer must not call it while it is being called. For RESET,
    /// and for a change of the path in SQD, no caller may hold a lock that consumers take: it waits
    /// for a run, as [`close`](Self::close) does. Sleeps.
    pub(crate) fn modify(
        self: &Arc<Self>,
        attr: &Attr,
        mask: Mask,
        path: Option<&Arc<Path>>,
    ) -> Result {
        if mask.contains(Mask::AV) != path.is_some() {
            return Err(EINVAL);
        }
        if let Some(path) = path {
            self.check_path(path)?;
        }
        let reset = attr.state == State::Reset;
        let consumer = self.kind.consumer();
        let mut target = RequestTarget::new(consumer.as_deref());
        let change = self.begin_change(reset || (path.is_some() && attr.state == State::Sqd));
        let (old_paths, alarm);
        {
            let mut receiving = self.kind.receiving.lock();
            let mut sending = self.kind.sending.lock();
            sending.requester.check(attr, mask).map_err(to_error)?;
            receiving.responder.check(attr, mask).map_err(to_error)?;
            self.check_link(attr.state)?;
            // Nothing fails from here on.
            (old_paths, alarm) = if reset {
                self.accept(&change, Accepts::Nothing);
                let alarm = core::mem::replace(&mut sending.alarm, Alarm::new());
                ((receiving.path.take(), sending.path.take()), Some(alarm))
            } else if let Some(path) = path {
                let addrs = path.addrs();
                let arriving = AddrPair {
                    from: addrs.to,
                    to: addrs.from,
                    vrf: addrs.vrf,
                };
                self.accept(&change, Accepts::Pair(arriving));
                let old = receiving.path.replace(path.clone());
                ((old, sending.path.replace(path.clone())), None)
            } else {
                ((None, None), None)
            };
            sending.error_reported = matches!(attr.state, State::Error | State::Reset);
            sending.requester.modify(attr, mask).map_err(to_error)?;
            receiving
                .responder
                .modify(attr, mask, &mut target)
                .map_err(to_error)?;
        }
        drop(old_paths);
        if let Some(alarm) = alarm {
            // Waits for the callback, which takes no lock. Nothing sets the timer in RESET.
            drop(alarm);
            self.due.clear();
            self.kind.drop_works();
            self.empty_inbox(&change);
        }
        drop(change);
        self.wake();
        Ok(())
    }

    /// Moves the QP to ERR: its owner could not execute a work request, or has lost a completion.
    /// The next run flushes, and calls [`Consumer::failed`]. No effect in RESET. Process context;
    /// may sleep. A consumer may call it where it may post.
    pub(crate) fn fail(self: &Arc<Self>) {
        {
            let mut sending = self.kind.sending.lock();
            if sending.requester.state() == State::Reset {
                return;
            }
            sending.requester.error();
        }
        self.wake();
    }

    /// Posts a work request with `inline_header` and `memory`, which follows it in the message: the
    /// source of a SEND or WRITE, or the destination of a response. It takes the memory,
    /// unless it fails. [`Consumer::completed`] reports its result with `context`.
    ///
    /// This only queues it: the caller calls [`push`](Self::push) soon, so that work requests
    /// posted together are sent together.
    ///
    /// Fails with `EINVAL` if the state does not allow it, if the length is not that of the
    /// operation or longer than a message can be, if the inline header is longer than
    /// [`INLINE_HEADER_MAX`], or if the QP has
    /// [no inline headers](Self::connection_with_inline_headers); `EAGAIN` if the queue is full.
    /// Must not be called with a spin lock held that is taken in softirq; may sleep.
    pub(crate) fn queue(
        self: &Arc<Self>,
        request: &Request,
        inline_header: &[u8],
        memory: &mut MemRef,
        context: u64,
    ) -> Result {
        let len = inline_header
            .len()
            .checked_add(memory.len())
            .ok_or(EINVAL)?;
        let len = u32::try_from(len).map_err(|_| EINVAL)?;
        let mut sending = self.kind.sending.lock();
        let slot = sending.next;
        let work = WorkRequest {
            wr_id: slot as u64,
            op: request.op,
            len,
            fence: request.fence,
            solicited: request.solicited,
            signaled: true,
        };
        if !sending.inline_headers.fits(inline_header.len()) {
            return Err(EINVAL);
        }
        sending.requester.post(&work).map_err(|errno| match errno {
            kfi_roce::Error::Full => EAGAIN,
            errno => to_error(errno),
        })?;
        let slots = sending.works.len();
        sending.next = (slot + 1) & slots.wrapping_sub(1);
        if let Some(work) = sending.works.get_mut(slot) {
            // The requester had room for the work request, so its slot is free.
            let memory = memory.take();
            *work = Some(Work { context, memory });
        }
        sending.inline_headers.set(slot, inline_header);
        if sending.requester.state().post_send() == Posting::Flushed {
            drop(sending);
            // The worker reports completions.
            self.wake();
        }
        Ok(())
    }

    /// Sends queued work requests, as far as the window allows, and runs the receive work of a peer
    /// of the same principal on this host to completion ([`InlineList`]). Sleeps. The caller holds
    /// no lock, and is not a consumer that is being called.
    pub(crate) fn push(self: &Arc<Self>) {
        let inline = InlineList::of_task(self.owner_kind());
        worker::send(self, &mut self.kind.sending.lock(), Some(&inline));
        inline.run();
    }

    /// The same for callers that hold locks, and for consumers that are being called: the peer's
    /// worker does the receive work. Sleeps.
    pub(crate) fn push_only(self: &Arc<Self>) {
        worker::send(self, &mut self.kind.sending.lock(), None);
    }

    /// Calls `change` with the context and the inline header of each work request that has not
    /// completed. Packets sent from now on, for the first time or again, have the changed headers.
    /// The calls may include work requests that have completed and were not reported yet. The
    /// length of an inline header does not change. Sleeps.
    pub(crate) fn rewrite(&self, mut change: impl FnMut(u64, &mut [u8])) {
        let mut sending = self.kind.sending.lock();
        let Sending {
            works,
            inline_headers,
            ..
        } = &mut *sending;
        for (slot, work) in works.iter().enumerate() {
            if let (Some(work), Some(inline_header)) = (work, inline_headers.get_mut(slot)) {
                if !inline_header.is_empty() {
                    change(work.context, inline_header);
                }
            }
        }
    }
}
