// SPDX-License-Identifier: GPL-2.0

//! The receive side of an endpoint: where messages and receives meet.
//!
//! It has two pairs of queues, one for plain and one for tagged messages: receives that wait for a
//! message ([`Posted`]), and messages that wait for a receive ([`Unexpected`]). Whoever comes,
//! message or receive, looks into the other queue and, finding nothing there, joins its own, both
//! under one lock. So no posted receive ever matches a message that waits, and order is kept.
//!
//! What is found is taken out under the lock and placed outside it: a [`Place`] is a receive, or a
//! part of a multi-receive buffer, on its way to completion. A message that waits lies here in a
//! buffer ([`Held::Here`], charged to this endpoint's budget) or with its sender
//! ([`Held::There`], [`Held::Remote`]). How a message comes from another host tells [`remote`].
//!
//! Here stands how messages come, from this host; [`post`] is about receives: posting, searching,
//! cancelling, the end.
//!
//! The lock is a spin lock; only that of a multi-receive buffer is taken under it. Nothing that
//! can sleep, dropping memory included, happens under it.

mod post;
pub(super) mod remote;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    flags::{
        Caps,
        CompFlags,
        KFI_ADDR_NOTAVAIL, //
    },
    limits::MAX_UNEXPECTED,
    matching::{
        posted::PostedSlot,
        unexpected::{
            Message as Known,
            UnexpectedSlot, //
        },
        Envelope,
        Placement,
        Posted,
        Unexpected, //
    },
    multi_recv::Part, //
};

use super::{
    bound::Bound,
    complete::{
        Failure,
        Outcome,
        Ticket, //
    },
    multi_recv::{
        End,
        MultiBuffer, //
    },
    rdm::{
        pending::WaitingSend,
        remote::op::Owed, //
    },
    Endpoint, //
};
use crate::mem::{
    self,
    Allowance,
    MemRef,
    Source, //
};

/// A message that comes to this endpoint.
pub(super) struct Message {
    pub(super) tagged: bool,
    pub(super) envelope: Envelope<SockAddr>,
    pub(super) data: Option<u64>,
    pub(super) len: u64,
}

/// Where a message is that waits for its receive.
pub(super) enum Held {
    /// Here.
    Here(Buffered),
    /// With its sender.
    There(Arc<WaitingSend>),
    /// With its sender, on another host.
    Remote(Owed),
}

/// A message that was copied: charged to the endpoint's budget of buffered bytes, and to its
/// owner's of kernel memory.
pub(super) struct Buffered {
    pub(super) copy: MemRef,
    _memory: Allowance,
    /// What its sender is owed, if that is on another host and wants to know.
    owed: Option<Owed>,
}

/// A posted receive for one message.
pub(super) struct Single {
    into: MemRef,
    ticket: Ticket,
}

impl Single {
    /// Lets go of the memory, which may be all that the owner can pin, and gives what is completed
    /// then. Sleeps.
    pub(super) fn into_ticket(self) -> Ticket {
        drop(self.into);
        self.ticket
    }

    /// Where the bytes go.
    pub(super) fn memory(&self) -> &MemRef {
        &self.into
    }
}

/// What waits for messages.
enum Waiting {
    Single(Single),
    Multi(Arc<MultiBuffer>),
}

impl Waiting {
    fn context(&self) -> u64 {
        match self {
            Self::Single(single) => single.ticket.context(),
            Self::Multi(buffer) => buffer.context(),
        }
    }
}

/// Where a message goes.
pub(super) enum Place {
    /// Into a receive of its own.
    Single(Single),
    /// Into a part of a multi-receive buffer.
    Part(Arc<MultiBuffer>, Part, MemRef),
}

impl Place {
    /// Where the bytes go.
    pub(super) fn memory(&self) -> &MemRef {
        match self {
            Self::Single(single) => &single.into,
            Self::Part(_, _, memory) => memory,
        }
    }

    /// How a message of `len` bytes fits.
    pub(super) fn fit(&self, len: u64) -> Placement {
        match self {
            Self::Single(single) => Placement::new(len, single.into.len() as u64),
            Self::Part(_, part, _) => part.placement,
        }
    }
}

/// What a message meets when it comes.
pub(super) enum Offer {
    /// A receive: place it.
    Taken(Place),
    /// No receive, but the budget has been charged for a copy.
    Charged,
    /// No receive, and no copy wanted or no budget for it.
    NoRoom,
}

/// What becomes of a message that shall wait.
pub(super) enum Arrival {
    /// It waits.
    Kept,
    /// A receive has come meanwhile: place it.
    Taken(Place),
    /// There is no slot for it.
    Full,
}

type PostedQueue = Posted<SockAddr, Waiting, KVVec<PostedSlot<SockAddr, Waiting>>>;
type UnexpectedQueue = Unexpected<SockAddr, Held, KVVec<UnexpectedSlot<SockAddr, Held>>>;

/// Unexpected messages that each queue of an endpoint for `rx_size` receives keeps.
fn messages(rx_size: usize) -> usize {
    rx_size.clamp(64, MAX_UNEXPECTED as usize)
}

/// One pair of queues.
struct Pair {
    posted: PostedQueue,
    unexpected: UnexpectedQueue,
    /// How many messages there can be, and how many of these places are kept for messages of which
    /// not all has come yet.
    room: u32,
    reserved: u32,
}

impl Pair {
    fn new(rx_size: usize, budget: u64) -> Result<Self> {
        Self::with_room(rx_size, messages(rx_size), budget)
    }

    fn with_room(rx_size: usize, messages: usize, budget: u64) -> Result<Self> {
        let mut posted = KVVec::with_capacity(rx_size, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..rx_size {
            posted.push(PostedSlot::new(), GFP_KERNEL_ACCOUNT)?;
        }
        let mut unexpected = KVVec::with_capacity(messages, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..messages {
            unexpected.push(UnexpectedSlot::new(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected, budget),
            // At most MAX_UNEXPECTED.
            room: messages as u32,
            reserved: 0,
        })
    }

    /// Whether there is no place for another message.
    fn is_full(&self) -> bool {
        self.unexpected.len().saturating_add(self.reserved) >= self.room
    }

    /// Takes the receive, or the part of one, that `message` goes to.
    #[inline(always)]
    fn take_place(&mut self, message: &Message) -> Option<Place> {
        let mut found = self.posted.match_message(&message.envelope)?;
        let Waiting::Multi(buffer) = found.token()? else {
            let Waiting::Single(single) = found.take()?.token else {
                return None;
            };
            return Some(Place::Single(single));
        };
        let buffer = buffer.clone();
        // A buffer that has closed is not in the queue.
        let (part, memory) = buffer.take(message.len)?;
        if part.closes {
            // The queue's reference goes here; the clone above keeps the buffer, so nothing is
            // freed under the lock.
            let _ = found.take();
        }
        Some(Place::Part(buffer, part, memory))
    }
}

/// Both pairs of queues.
pub(super) struct Queues {
    plain: Pair,
    tagged: Pair,
}

impl Queues {
    /// Queues for `rx_size` receives of each kind, and `budget` bytes of buffered messages of both
    /// together. `ENOMEM`. Sleeps.
    pub(super) fn new(rx_size: usize, budget: u64) -> Result<Self> {
        Ok(Self {
            // The budget is kept by the plain queue for both.
            plain: Pair::new(rx_size, budget)?,
            tagged: Pair::new(rx_size, 0)?,
        })
    }

    /// Bytes that queues for `rx_size` receives of each kind take, without what they buffer.
    pub(super) fn bytes(rx_size: usize) -> usize {
        let unexpected = messages(rx_size) * size_of::<UnexpectedSlot<SockAddr, Held>>();
        Self::wire_bytes(rx_size)
            .saturating_add(unexpected)
            .saturating_mul(2)
    }

    /// Queues of an endpoint of the wire: for `rx_size` plain receives; nothing waits for them.
    /// `ENOMEM`. Sleeps.
    pub(super) fn new_wire(rx_size: usize) -> Result<Self> {
        Ok(Self {
            plain: Pair::with_room(rx_size, 0, 0)?,
            tagged: Pair::with_room(0, 0, 0)?,
        })
    }

    /// Bytes that these take.
    pub(super) fn wire_bytes(rx_size: usize) -> usize {
        rx_size.saturating_mul(size_of::<PostedSlot<SockAddr, Waiting>>())
    }

    fn pair(&mut self, tagged: bool) -> &mut Pair {
        if tagged {
            &mut self.tagged
        } else {
            &mut self.plain
        }
    }
}

/// See the module's story.
#[pin_data]
pub(super) struct RxSide {
    #[pin]
    queues: SpinLock<Queues>,
    /// Messages that may wait for a receive, of all senders.
    pub(super) waiting_max: u32,
}

impl RxSide {
    /// A side with `queues`.
    pub(super) fn new(queues: Queues) -> impl PinInit<Self> {
        let waiting_max = queues.plain.room.saturating_add(queues.tagged.room);
        pin_init!(Self {
            queues <- new_spinlock!(queues, "RxSide::queues"),
            waiting_max,
        })
    }

    /// Receives posted, messages that wait, bytes of them that are buffered. Does not sleep.
    pub(super) fn figures(&self) -> [u64; 3] {
        let queues = self.queues.lock();
        let (plain, tagged) = (&queues.plain, &queues.tagged);
        [
            u64::from(plain.posted.len()).wrapping_add(u64::from(tagged.posted.len())),
            u64::from(plain.unexpected.len()).wrapping_add(u64::from(tagged.unexpected.len())),
            plain.unexpected.charged(),
        ]
    }
}

/// As the target of messages.
impl Endpoint {
    /// Shows a message to the receives that wait; with `eager`, charges the budget for a copy if
    /// there is none for it. Does not sleep.
    #[inline(always)]
    pub(super) fn offer(&self, message: &Message, eager: bool) -> Offer {
        let mut queues = self.rx.queues.lock();
        if let Some(place) = queues.pair(message.tagged).take_place(message) {
            return Offer::Taken(place);
        }
        if eager && queues.plain.unexpected.charge(message.len).is_ok() {
            return Offer::Charged;
        }
        Offer::NoRoom
    }

    /// Takes the receive, or the part of one, that a message goes to; nothing waits for one that
    /// comes later. Does not sleep.
    pub(super) fn take(&self, message: &Message) -> Option<Place> {
        self.rx
            .queues
            .lock()
            .pair(message.tagged)
            .take_place(message)
    }

    /// Takes a receive of its own for a plain message whose length is not known yet. Does not sleep.
    pub(super) fn take_single(&self, envelope: &Envelope<SockAddr>) -> Option<Single> {
        let mut queues = self.rx.queues.lock();
        match queues.plain.posted.match_message(envelope)?.take()?.token {
            Waiting::Single(single) => Some(single),
            // Endpoints that receive so have none.
            Waiting::Multi(_) => None,
        }
    }

    /// Copies a message that [`Offer::Charged`] was said to; `None` if that is more than the owner
    /// may take of the kernel's memory. It is charged to this endpoint's owner, not to who sends.
    /// `ENOMEM`. Sleeps.
    pub(super) fn buffer(&self, from: &Source<'_>) -> Result<Option<Buffered>> {
        let Ok(memory) = self.ident.budget.take(from.len() as u64) else {
            return Ok(None);
        };
        Ok(Some(Buffered {
            copy: self.ident.owner.memcg().charge(|| from.to_buffer())?,
            _memory: memory,
            owed: None,
        }))
    }

    /// Gives back what [`Offer::Charged`] charged. Does not sleep.
    pub(super) fn uncharge(&self, message: &Message) {
        self.uncharge_bytes(message.len);
    }

    fn uncharge_bytes(&self, bytes: u64) {
        self.rx.queues.lock().plain.unexpected.uncharge(bytes);
    }

    /// Lets a message wait, unless a receive has come for it meanwhile. Sleeps (drops `held` if it
    /// is not kept).
    ///
    /// If the endpoint has been closed by force, the message is kept and then fails, unless the
    /// teardown has done that already.
    #[inline(never)]
    pub(super) fn arrive(&self, message: &Message, held: Held) -> Arrival {
        let known = Known {
            envelope: message.envelope,
            len: message.len,
            data: message.data,
            charged: match &held {
                Held::Here(_) => message.len,
                Held::There(_) | Held::Remote(_) => 0,
            },
        };
        let (arrival, not_kept) = {
            let mut queues = self.rx.queues.lock();
            let pair = queues.pair(message.tagged);
            match pair.take_place(message) {
                Some(place) => (Arrival::Taken(place), Some(held)),
                None if pair.is_full() => (Arrival::Full, Some(held)),
                None => match pair.unexpected.arrive(known, held) {
                    Ok(()) => (Arrival::Kept, None),
                    Err(full) => (Arrival::Full, Some(full.0)),
                },
            }
        };
        drop(not_kept);
        // Behind the lock: whoever has emptied the queue before had shut the endpoint.
        if matches!(arrival, Arrival::Kept) && !self.run.is_open() {
            self.fail_unexpected();
        }
        arrival
    }

    /// Places a message and completes its receive. Sleeps.
    #[inline(never)]
    pub(super) fn place(&self, bound: &Bound, place: Place, message: &Message, from: &Source<'_>) {
        self.place_at_once(bound, place, message, from);
    }

    /// [`place`](Self::place), on the way of most messages.
    #[inline(always)]
    pub(super) fn place_at_once(
        &self,
        bound: &Bound,
        place: Place,
        message: &Message,
        from: &Source<'_>,
    ) {
        self.place_by(bound, place, message, |into| {
            mem::copy(into, from);
        });
    }

    /// Has `put` place a message, and completes its receive. Sleeps.
    #[inline(always)]
    pub(super) fn place_by(
        &self,
        bound: &Bound,
        place: Place,
        message: &Message,
        put: impl FnOnce(&MemRef),
    ) {
        match place {
            Place::Single(single) => {
                let fit = Placement::new(message.len, single.into.len() as u64);
                put(&single.into);
                let outcome = self.outcome(bound, message, fit, 0);
                self.tally_rx(fit.len);
                self.complete(bound, single.into_ticket(), outcome);
            }
            Place::Part(buffer, part, memory) => {
                let fit = part.placement;
                put(&memory);
                drop(memory);
                let at = buffer.address(part.offset);
                let outcome = self.outcome(bound, message, fit, at);
                self.tally_rx(fit.len);
                self.complete_multi(bound, &buffer, outcome);
            }
        }
    }

    /// Completes a part of a multi-receive buffer, and the buffer with its last one. Sleeps.
    #[inline(always)]
    fn complete_multi(&self, bound: &Bound, buffer: &MultiBuffer, mut outcome: Outcome) {
        buffer.finish(|end| match end {
            End::Part => {
                self.complete_part(bound, buffer.context(), buffer.reports(), outcome);
            }
            End::Last(ticket) => {
                outcome.flags |= CompFlags::MULTI_RECV;
                self.complete_reported(bound, ticket, outcome);
            }
            End::LastOfCancelled(ticket) => {
                self.complete_part(bound, buffer.context(), buffer.reports(), outcome);
                self.complete(bound, ticket, cancelled_buffer());
            }
        });
    }

    #[inline(always)]
    fn outcome(&self, bound: &Bound, message: &Message, fit: Placement, buf: u64) -> Outcome {
        Outcome {
            flags: match message.data {
                Some(_) => CompFlags::REMOTE_CQ_DATA,
                None => CompFlags::EMPTY,
            },
            len: fit.len,
            buf,
            data: message.data.unwrap_or(0),
            tag: message.envelope.tag,
            src: self.source(bound, &message.envelope.src),
            error: fit.status().err().map(|errno| Failure {
                errno,
                prov_errno: 0,
                olen: fit.olen,
            }),
        }
    }

    #[inline(always)]
    fn source(&self, bound: &Bound, addr: &SockAddr) -> u64 {
        match &bound.av {
            Some(av) if self.caps.contains(Caps::SOURCE) => av.source(addr),
            _ => KFI_ADDR_NOTAVAIL,
        }
    }

    /// Forgets a message that waited here: its sender takes it back. Sleeps.
    pub(super) fn forget(&self, send: &Arc<WaitingSend>) {
        let is_it = |held: &Held| match held {
            Held::There(there) => Arc::ptr_eq(there, send),
            Held::Here(_) | Held::Remote(_) => false,
        };
        let withdrawn = {
            let mut queues = self.rx.queues.lock();
            match queues.plain.unexpected.withdraw(is_it) {
                None => queues.tagged.unexpected.withdraw(is_it),
                found => found,
            }
        };
        drop(withdrawn);
    }
}

/// How a multi-receive buffer that was cancelled completes.
fn cancelled_buffer() -> Outcome {
    let mut outcome = Outcome::failed(Errno::ECANCELED);
    outcome.flags = CompFlags::MULTI_RECV;
    outcome
}
