// SPDX-License-Identifier: GPL-2.0

//! The receive side of an endpoint: matches messages with receives.
//!
//! There are two pairs of queues, one for plain and one for tagged messages: posted receives
//! ([`Posted`]) and unexpected messages ([`Unexpected`]). A message or a receive first searches the
//! other queue. If nothing matches, it is added to its own queue, under the same hold of the lock.
//! So a posted receive never matches an unexpected message, and the order is kept.
//!
//! A match is removed under the lock, and its bytes are placed outside it. A [`MatchedReceive`] is
//! a receive, or a part of a multi-receive buffer, between its match and its completion. An
//! unexpected message is in a buffer here ([`Location::Buffer`], charged to this endpoint's budget)
//! or with its sender ([`Location::Sender`], [`Location::RemoteSender`]). [`remote`] receives
//! messages from other hosts.
//!
//! Tagged RMA ([`TaggedRma`]) matches posted receives like a tagged message, but does not wait for
//! one ([`Endpoint::take_for_rma`]).
//!
//! This file has the messages from this host. [`place`] places their bytes and completes receives.
//! [`post`] has the receives: posting, searching, cancelling, teardown.
//!
//! The lock is a spin lock. Only that of a multi-receive buffer is taken under it. No memory is
//! dropped under it, because that can sleep.
//!
//! [`shared`] has the queues that several endpoints share. [`share`] has the shares of sources in
//! the unexpected messages.

mod place;
mod post;
pub(super) mod remote;
pub(super) mod share;
mod shared;

use kfi_core::{
    flags::CompFlags,
    limits::MAX_UNEXPECTED,
    matching::{
        posted::PostedSlot,
        unexpected::{
            Message as UnexpectedMessage,
            UnexpectedSlot, //
        },
        Envelope,
        Placement,
        Posted,
        Unexpected, //
    },
    multi_recv::Part,
    op::TaggedRma, //
};

use self::{
    share::{
        Holding,
        Sources, //
    },
    shared::Sharing, //
};
use super::{
    multi_recv::MultiBuffer,
    prelude::*,
    rdm::{
        remote::op::PendingAnswer,
        transmit::WaitingSend, //
    },
    slots, //
};
use crate::{
    mem::Budget,
    shim::memory::kmalloc_array_size, //
};

/// A message to this endpoint, or tagged RMA.
pub(super) struct Message {
    pub(super) tagged: bool,
    pub(super) envelope: Envelope<SockAddr>,
    pub(super) data: Option<u64>,
    pub(super) len: u64,
    /// The access of tagged RMA to the memory of its receive.
    pub(super) rma: Option<TaggedRma>,
}

impl Message {
    /// The message as the queue of unexpected messages stores it.
    fn as_unexpected(&self, location: &Location) -> UnexpectedMessage<SockAddr> {
        UnexpectedMessage {
            envelope: self.envelope,
            len: self.len,
            data: self.data,
            charged: match location {
                Location::Buffer(_) => self.len,
                Location::Sender(..) | Location::RemoteSender(..) => 0,
            },
        }
    }

    fn from_unexpected(tagged: bool, unexpected: &UnexpectedMessage<SockAddr>) -> Self {
        Self {
            tagged,
            envelope: unexpected.envelope,
            data: unexpected.data,
            len: unexpected.len,
            rma: None,
        }
    }

    /// The flags that the completion of its receive has besides those of the receive.
    #[inline(always)]
    fn comp_flags(&self) -> CompFlags {
        self.rma.map_or(CompFlags::EMPTY, TaggedRma::receive_flags)
    }
}

/// The location of an unexpected message.
pub(super) enum Location {
    /// In a buffer of this endpoint.
    Buffer(Buffered),
    /// With its sender, on this host. It has a share if that is another user.
    Sender(Arc<WaitingSend>, Option<Holding>),
    /// With its sender, on another host.
    RemoteSender(PendingAnswer, Holding),
}

impl Location {
    /// The endpoint of a message in the queues of a shared receive context.
    fn target(&self) -> Option<&Arc<Endpoint>> {
        match self {
            Self::Buffer(buffer) => buffer.target.as_ref(),
            Self::Sender(send, _) => Some(&send.target),
            Self::RemoteSender(answer, _) => Some(answer.endpoint()),
        }
    }

    /// Drops a message because its endpoint closes. If it waits at its sender on this host, the
    /// send fails. Sleeps.
    fn fail(self) {
        match self {
            Self::Buffer(buffer) => drop(buffer),
            Self::Sender(send, holding) => {
                send.fail(Errno::EHOSTUNREACH);
                drop(holding);
            }
            Self::RemoteSender(answer, holding) => drop((answer, holding)),
        }
    }
}

/// A buffered message. Charged to the endpoint's budget of buffered bytes and to its owner's budget
/// of kernel memory.
pub(super) struct Buffered {
    pub(super) copy: MemRef,
    _memory: Allowance,
    /// The answer to its sender, if that is on another host and waits for one.
    answer: Option<PendingAnswer>,
    /// The endpoint, if the message is in the queues of a shared receive context.
    target: Option<Arc<Endpoint>>,
    /// The share of its sender; `None`: the owner, on this host.
    pub(in crate::provider::ep) holding: Option<Holding>,
}

/// A posted receive for one message.
pub(super) struct Single {
    pub(super) into: MemRef,
    ticket: Ticket,
}

impl Single {
    /// Releases the memory and returns the ticket to be completed. The memory goes first because
    /// the owner may be at its limit of pinned memory. Sleeps.
    pub(super) fn into_ticket(self) -> Ticket {
        drop(self.into);
        self.ticket
    }
}

/// A posted receive.
enum PostedReceive {
    Single(Single),
    Multi(Arc<MultiBuffer>),
}

impl PostedReceive {
    fn context(&self) -> u64 {
        match self {
            Self::Single(single) => single.ticket.context,
            Self::Multi(buffer) => buffer.context,
        }
    }
}

/// The destination of a message.
pub(super) enum MatchedReceive {
    /// A receive for one message.
    Single(Single),
    /// A part of a multi-receive buffer.
    Part(Arc<MultiBuffer>, Part, MemRef),
}

impl MatchedReceive {
    /// The destination of the bytes.
    pub(super) fn memory(&self) -> &MemRef {
        match self {
            Self::Single(single) => &single.into,
            Self::Part(_, _, memory) => memory,
        }
    }

    /// The bytes of a message of `len` bytes that fit, and those that do not.
    pub(super) fn fit(&self, len: u64) -> Placement {
        match self {
            Self::Single(single) => Placement::new(len, single.into.len() as u64),
            Self::Part(_, part, _) => part.placement,
        }
    }
}

/// The result of the first search for a message's receive.
pub(super) enum MatchResult {
    /// A receive matches. The caller places the message.
    Taken(MatchedReceive),
    /// No receive matches. The budget has been charged for a copy.
    Charged,
    /// No receive matches. No copy was requested, or the budget has no room.
    NoRoom,
    /// No receive matches, and the sender is another user, who has a share. Nothing was charged.
    Foreign,
}

/// The result of adding a message to the unexpected ones.
pub(super) enum EnqueueResult {
    /// The message was added.
    Kept,
    /// A receive was posted meanwhile. The caller places the message.
    Taken(MatchedReceive),
    /// No slot is free.
    Full,
}

type PostedQueue = Posted<SockAddr, PostedReceive, KVVec<PostedSlot<SockAddr, PostedReceive>>>;
type UnexpectedQueue = Unexpected<SockAddr, Location, KVVec<UnexpectedSlot<SockAddr, Location>>>;

/// The number of unexpected messages in each queue of an endpoint for `rx_size` receives.
fn messages(rx_size: usize) -> usize {
    rx_size.clamp(64, MAX_UNEXPECTED as usize)
}

/// The queues for plain or for tagged messages.
struct Pair {
    posted: PostedQueue,
    unexpected: UnexpectedQueue,
    /// The most unexpected messages, and the number of these slots that are reserved for messages
    /// that have not arrived completely.
    room: u32,
    reserved: u32,
}

impl Pair {
    fn new(rx_size: usize, budget: u64) -> Result<Self> {
        Self::with_room(rx_size, messages(rx_size), budget)
    }

    fn with_room(rx_size: usize, messages: usize, budget: u64) -> Result<Self> {
        Ok(Self {
            posted: Posted::new(slots(rx_size, PostedSlot::new)?),
            unexpected: Unexpected::new(slots(messages, UnexpectedSlot::new)?, budget),
            // At most MAX_UNEXPECTED.
            room: messages as u32,
            reserved: 0,
        })
    }

    /// Whether no slot is free for another message.
    fn is_full(&self) -> bool {
        self.unexpected.len().saturating_add(self.reserved) >= self.room
    }

    /// Removes the receive, or takes the part of a buffer, that `message` matches.
    #[inline(always)]
    fn take_match(&mut self, message: &Message) -> Option<MatchedReceive> {
        let mut found = self.posted.match_message(&message.envelope)?;
        let PostedReceive::Multi(buffer) = found.token()? else {
            let PostedReceive::Single(single) = found.take()?.token else {
                return None;
            };
            return Some(MatchedReceive::Single(single));
        };
        let buffer = buffer.clone();
        // A closed buffer is not in the queue.
        let (part, memory) = buffer.take(message.len)?;
        if part.closes {
            // Drops the reference of the queue. The clone above keeps the buffer, so nothing is
            // freed under the lock.
            let _ = found.take();
        }
        Some(MatchedReceive::Part(buffer, part, memory))
    }
}

/// Both pairs of queues.
pub(super) struct Queues {
    plain: Pair,
    tagged: Pair,
    sharing: Sharing,
}

impl Queues {
    /// Makes queues for `rx_size` receives of each kind, and `budget` bytes of buffered messages of
    /// both kinds together. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(rx_size: usize, budget: u64) -> Result<Self> {
        Ok(Self {
            // The plain queue accounts for the budget of both.
            plain: Pair::new(rx_size, budget)?,
            tagged: Pair::new(rx_size, 0)?,
            sharing: Sharing::default(),
        })
    }

    /// Bytes of the queues for `rx_size` receives of each kind, without buffered messages.
    pub(super) fn bytes(rx_size: usize) -> usize {
        let unexpected = messages(rx_size);
        Self::wire_bytes(rx_size)
            .saturating_add(kmalloc_array_size::<UnexpectedSlot<SockAddr, Location>>(
                unexpected,
            ))
            .saturating_mul(2)
    }

    /// Makes the queues of an endpoint that is one QP: `rx_size` plain receives, and no unexpected
    /// messages. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new_wire(rx_size: usize) -> Result<Self> {
        Ok(Self {
            plain: Pair::with_room(rx_size, 0, 0)?,
            tagged: Pair::with_room(0, 0, 0)?,
            sharing: Sharing::default(),
        })
    }

    /// Bytes of the queues of [`new_wire`](Self::new_wire).
    pub(super) fn wire_bytes(rx_size: usize) -> usize {
        kmalloc_array_size::<PostedSlot<SockAddr, PostedReceive>>(rx_size)
    }

    /// The first result of `search` in the plain and then in the tagged pair.
    fn in_either<T>(&mut self, search: impl Fn(&mut Pair) -> Option<T>) -> Option<T> {
        match search(&mut self.plain) {
            None => search(&mut self.tagged),
            found => found,
        }
    }

    fn pair(&mut self, tagged: bool) -> &mut Pair {
        if tagged {
            &mut self.tagged
        } else {
            &mut self.plain
        }
    }
}

/// The receive side of an endpoint.
#[pin_data]
pub(super) struct RxSide {
    #[pin]
    queues: SpinLock<Queues>,
    sources: Arc<Sources>,
    /// The most unexpected messages of all senders.
    pub(super) waiting_max: u32,
}

impl RxSide {
    /// Makes a receive side with `queues`.
    pub(super) fn new(queues: Queues, sources: Arc<Sources>) -> impl PinInit<Self> {
        let waiting_max = queues.plain.room.saturating_add(queues.tagged.room);
        pin_init!(Self {
            queues <- new_spinlock!(queues, "RxSide::queues"),
            sources,
            waiting_max,
        })
    }

    /// The numbers of posted receives, of unexpected messages, and of their buffered bytes. Does
    /// not sleep.
    pub(super) fn stats(&self) -> [u64; 3] {
        let queues = self.queues.lock();
        let (plain, tagged) = (&queues.plain, &queues.tagged);
        [
            u64::from(plain.posted.len()).wrapping_add(u64::from(tagged.posted.len())),
            u64::from(plain.unexpected.len()).wrapping_add(u64::from(tagged.unexpected.len())),
            plain.unexpected.charged(),
        ]
    }
}

/// The endpoint as the target of messages.
impl Endpoint {
    /// Whether it has the capabilities to receive plain, or tagged, messages. Any context.
    #[inline]
    pub(super) fn receives(&self, tagged: bool) -> bool {
        let kind = if tagged { OpType::TSend } else { OpType::Send };
        self.caps.contains(kind.target_caps())
    }

    /// Searches a receive for a message of the owner of `from`. If there is none and `eager` is
    /// set, charges the budget for a copy. Does not sleep.
    #[inline(always)]
    pub(super) fn offer(&self, message: &Message, eager: bool, from: &Budget) -> MatchResult {
        let mut queues = self.rx_side().queues.lock();
        if let Some(matched) = queues.pair(message.tagged).take_match(message) {
            return MatchResult::Taken(matched);
        }
        if from.source() != self.ident.budget.source() {
            return MatchResult::Foreign;
        }
        if eager && queues.plain.unexpected.charge(message.len).is_ok() {
            return MatchResult::Charged;
        }
        MatchResult::NoRoom
    }

    /// Removes the receive, or takes the part of a buffer, that a message matches. The message
    /// cannot wait if there is none. Does not sleep.
    pub(super) fn take(&self, message: &Message) -> Option<MatchedReceive> {
        self.rx_side()
            .queues
            .lock()
            .pair(message.tagged)
            .take_match(message)
    }

    /// Removes the receive that tagged RMA accesses, if there is one. Its memory begins at the
    /// offset of the access, and is empty if it is shorter. Does not sleep.
    pub(super) fn take_for_rma(&self, message: &Message, rma: TaggedRma) -> Option<MatchedReceive> {
        if !self.caps.contains(rma.target_caps()) {
            return None;
        }
        let mut matched = self.take(message)?;
        if let MatchedReceive::Single(single) = &mut matched {
            single.into = single.into.slice(rma.offset as usize, usize::MAX);
        }
        Some(matched)
    }

    /// Removes the receive for a plain message whose length is not known yet. Multi-receive
    /// buffers, which a shared receive context may have, are passed over: connected endpoints do
    /// not use them. Does not sleep.
    pub(super) fn take_single(&self, envelope: &Envelope<SockAddr>) -> Option<Single> {
        // The receives of a shared context are for endpoints that receive.
        if !self.receives(false) {
            return None;
        }
        let mut queues = self.rx_side().queues.lock();
        let is_single = |receive: &PostedReceive| matches!(receive, PostedReceive::Single(_));
        let found = queues.plain.posted.match_usable(envelope, is_single);
        match found?.take()?.token {
            PostedReceive::Single(single) => Some(single),
            // Unreachable: passed over.
            PostedReceive::Multi(_) => None,
        }
    }

    /// Copies a message after [`MatchResult::Charged`]. `None`: the owner's budget of kernel memory
    /// has no room. The copy is charged to this endpoint's owner, not to the sender. Fails with
    /// `ENOMEM`. Sleeps.
    pub(super) fn buffer(self: &Arc<Self>, from: &Source<'_>) -> Result<Option<Buffered>> {
        let bytes = MemRef::kept_bytes(from.len() as u64);
        let Ok(memory) = self.ident.budget.take(bytes) else {
            return Ok(None);
        };
        Ok(Some(Buffered {
            copy: self.ident.owner.charge(|| from.to_buffer())?,
            _memory: memory,
            answer: None,
            target: self.srx.as_ref().map(|_| self.clone()),
            holding: None,
        }))
    }

    /// Returns the charge of [`MatchResult::Charged`]. Does not sleep.
    pub(super) fn uncharge(&self, message: &Message) {
        self.uncharge_bytes(message.len);
    }

    fn uncharge_bytes(&self, bytes: u64) {
        let mut queues = self.rx_side().queues.lock();
        queues.plain.unexpected.uncharge(bytes);
    }

    /// Adds a message to the unexpected ones, unless a receive was posted for it meanwhile. Drops
    /// `location` if it is not kept. Sleeps.
    ///
    /// If the endpoint has been closed by force, the message is added and then fails, unless the
    /// teardown has failed it already.
    #[inline(never)]
    pub(super) fn arrive(&self, message: &Message, location: Location) -> EnqueueResult {
        let unexpected = message.as_unexpected(&location);
        let (arrival, not_kept) = {
            let mut queues = self.rx_side().queues.lock();
            let pair = queues.pair(message.tagged);
            match pair.take_match(message) {
                Some(matched) => (EnqueueResult::Taken(matched), Some(location)),
                None if pair.is_full() => (EnqueueResult::Full, Some(location)),
                None => match pair.unexpected.arrive(unexpected, location) {
                    Ok(()) => (EnqueueResult::Kept, None),
                    Err(full) => (EnqueueResult::Full, Some(full.0)),
                },
            }
        };
        drop(not_kept);
        // Checked after the message was added: the teardown shuts the endpoint before it empties
        // the queue.
        if matches!(arrival, EnqueueResult::Kept) && !self.drain.is_open() {
            self.fail_unexpected();
        }
        arrival
    }

    /// Removes an unexpected message that its sender takes back. Sleeps.
    pub(super) fn remove_unexpected(&self, send: &Arc<WaitingSend>) {
        let is_it = |location: &Location| match location {
            Location::Sender(other, _) => Arc::ptr_eq(other, send),
            Location::Buffer(_) | Location::RemoteSender(..) => false,
        };
        let withdrawn = {
            let mut queues = self.rx_side().queues.lock();
            queues.in_either(|pair| pair.unexpected.withdraw(is_it))
        };
        drop(withdrawn);
    }
}
