// SPDX-License-Identifier: GPL-2.0

//! The completion queue itself: ring, error entries, credits, sleepers.
//!
//! The core defines their behaviour ([`kfi_core::cq`]). This file adds memory, locks, and tasks to
//! wake. A [`Cq`](super::Cq) is a queue in a domain.
//!
//! ```text
//!   push:  spin lock; write the entry into its slot; store-release the tail; wake the sleepers
//!          whose number is reached; unlock; wake the pollers of descriptors
//!   read:  reader mutex { spin lock, find entries, unlock; copy out; spin lock, move the head,
//!          unlock }; if a page of the program was not present: fault it in, and repeat
//! ```
//!
//! Programs map the pages of the ring: `struct kfabric_cq_ring`, followed by the entries. A reader
//! by a call copies entries from there, a chunk at a time, and frees their slots after they were
//! copied out. If copying fails, the rest stays queued. The mutex serialises readers by a call. A
//! program that reads its mapping at the same time gets some entries twice. If a program overwrites
//! entries, it reads what it wrote. The module uses the head that a program writes, and the number
//! of losses that it claims to know, only if they are possible values.
//!
//! The ring of a kernel consumer is not mapped, and its memory is always present. A read copies
//! under the spin lock instead of the mutex, so softirqs can read too ([`ConsumerSide`]).
//!
//! A thread that waits for a number of entries is woken when they are queued. If another reader has
//! taken them meanwhile, the thread sleeps again.
//!
//! # Context
//!
//! Credits and completions: process context, under any lock that is not one of the queue's. These
//! functions neither allocate nor sleep. Reading sleeps. A queue of a kernel consumer is read in
//! softirqs too, so its spin lock is held with softirqs off.
//!
//! # Locks
//!
//! `Queue::reader` (mutex) -> `Queue::state` (spin lock) -> the lock of a callback, or of the queue
//! of handlers. The wait queue's lock is not taken under the spin lock.

use core::{
    mem::offset_of,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

use kernel::{
    static_lock_class,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        SpinLockGuard, //
    }, //
};

use kfi_core::{
    cq::{
        CompletionQueue,
        Credit,
        Entry,
        ErrEntry,
        Format,
        Push,
        Woken, //
    },
    ring::Words, //
};

use super::record::{
    Record,
    Tree, //
};
use crate::{
    mem::{
        SharedPages,
        SharedWord, //
    },
    provider::{
        prelude::*,
        wait::{
            handler::ConsumerSide,
            line::{
                Line,
                Memory,
                RemovedWaiter, //
            },
            Wake,
            WakeReason,
            Wakeup,
            READABLE, //
        }, //
    },
    shim::{
        bindings::{
            kfabric_cq_entry,
            kfabric_cq_ring, //
        },
        cpu::SoftirqsOff,
        memory::kmalloc_array_size,
        wait::Waker, //
    }, //
};

#[cfg(kfi_kunit)]
use super::Cq;
#[cfg(kfi_kunit)]
use crate::provider::wait::callback::Callback;

/// Offset of the entries in the ring in bytes. They begin on a cache line after the head's.
const ENTRY_OFFSET: usize = size_of::<kfabric_cq_ring>();

/// Bytes of an entry in the ring. A power of two, so no entry crosses a page boundary.
const ENTRY_SIZE: usize = size_of::<kfabric_cq_entry>();

const _: () = assert!(ENTRY_SIZE == size_of::<Entry>() && ENTRY_OFFSET % ENTRY_SIZE == 0);

/// A waiter of a queue.
pub(crate) enum Token {
    /// A task that sleeps in a call.
    Sleeper(Waker),
    /// A callback of a kernel consumer.
    #[cfg(kfi_kunit)]
    Callback(Arc<Callback<Cq>>),
}

impl Wake for Token {
    #[inline]
    fn wake(left: RemovedWaiter<Self>, why: WakeReason) -> Option<Memory<Self>> {
        let RemovedWaiter { token, memory } = left;
        match token {
            Self::Sleeper(waker) => {
                waker.wake(why.reason());
                memory
            }
            #[cfg(kfi_kunit)]
            Self::Callback(callback) => {
                callback.fire(why, memory);
                None
            }
        }
    }
}

pub(super) type State = CompletionQueue<SharedWord, KVVec<ErrEntry>, Line<Token>, Tree>;

/// Ring, error entries and waiters of a CQ.
#[pin_data]
pub(crate) struct Queue {
    pub(super) format: Format,
    size: u32,
    /// Whether descriptors may poll the queue.
    pollable: bool,
    /// Set under the lock of `state`. No thread goes to sleep there afterwards.
    closed: AtomicFlag,
    ring: Arc<SharedPages>,
    /// Of a queue of a kernel consumer.
    pub(super) consumer: Option<ConsumerSide>,
    #[pin]
    state: SpinLock<State>,
    /// Serialises readers that copy to a program.
    #[pin]
    pub(super) reader: Mutex<()>,
    #[pin]
    readable: WaitQueue,
}

/// The state of a queue, locked.
pub(super) struct Locked<'a> {
    // Dropped in this order.
    state: SpinLockGuard<'a, State>,
    _softirqs: Option<SoftirqsOff>,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Returns the function that wakes waiters. It is called under the lock of `state`.
fn waker(wakeup: &mut Wakeup<Token>) -> impl FnMut(RemovedWaiter<Token>, Woken) + '_ {
    |left, woken| {
        let why = match woken {
            Woken::Ready => WakeReason::Ready,
            Woken::Signalled => WakeReason::Signalled,
        };
        wakeup.one(left, why);
    }
}

impl Queue {
    /// Makes an empty queue of `size` completions, rounded up to a power of two, for a program or a
    /// kernel consumer. Fails with `EINVAL` if no such power of two exists, `ENOMEM`. Sleeps.
    pub(crate) fn new(
        size: u32,
        format: Format,
        pollable: bool,
        consumer: Option<ConsumerSide>,
    ) -> Result<impl PinInit<Self>> {
        let size = size.max(1).checked_next_power_of_two().ok_or(EINVAL)?;
        let slots = size as usize;
        let bytes = slots.checked_mul(ENTRY_SIZE).ok_or(EINVAL)?;
        let ring = SharedPages::new(bytes.checked_add(ENTRY_OFFSET).ok_or(EINVAL)?)?;
        ring.write(offset_of!(kfabric_cq_ring, entries), &size)?;
        ring.write(
            offset_of!(kfabric_cq_ring, entry_offset),
            &u32::try_from(ENTRY_OFFSET)?,
        )?;
        let word = |offset| ring.word(offset).ok_or(EINVAL);
        let words = Words {
            tail: word(offset_of!(kfabric_cq_ring, tail))?,
            errors: word(offset_of!(kfabric_cq_ring, errors))?,
            overruns: word(offset_of!(kfabric_cq_ring, overruns))?,
            head: word(offset_of!(kfabric_cq_ring, head))?,
            reported: word(offset_of!(kfabric_cq_ring, overruns_told))?,
        };
        let errors = KVVec::from_elem(ErrEntry::default(), slots, GFP_KERNEL_ACCOUNT)?;
        let state = CompletionQueue::new(words, size, errors, Tree::new(), Line::new())
            .map_err(to_error)?;
        // The lock is also taken in softirqs if the queue is a consumer's, so it has another class.
        let (name, class) = match consumer {
            None => (c"cq::Queue::state", static_lock_class!()),
            Some(_) => (c"cq::Queue::state of a consumer", static_lock_class!()),
        };
        Ok(pin_init!(Self {
            format,
            size,
            pollable,
            closed: AtomicFlag::new(false),
            ring,
            consumer,
            state <- SpinLock::new(state, name, class),
            reader <- new_mutex!((), "cq::Queue::reader"),
            readable <- new_wait_queue!("cq::Queue::readable"),
        }))
    }

    /// Bytes of memory that the ring of a queue of `size` completions takes.
    pub(crate) fn ring_bytes(size: u32) -> usize {
        SharedPages::bytes_taken(ENTRY_OFFSET + size.next_power_of_two() as usize * ENTRY_SIZE)
    }

    /// Bytes of memory that the error queue of a queue of `size` completions takes.
    pub(crate) fn error_queue_bytes(size: u32) -> usize {
        kmalloc_array_size::<ErrEntry>(size.next_power_of_two() as usize)
    }

    /// The number of completions that it holds.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The pages of the ring. Programs map them for reading and writing.
    pub(crate) fn ring(&self) -> &Arc<SharedPages> {
        &self.ring
    }

    /// Locks the state.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        let softirqs = self.consumer.as_ref().map(|_| SoftirqsOff::new());
        Locked {
            state: self.state.lock(),
            _softirqs: softirqs,
        }
    }

    /// Locks the state, to which something is added.
    #[inline]
    fn lock_for_arrival(&self) -> Locked<'_> {
        let state = self.lock();
        if let Some(consumer) = &self.consumer {
            consumer.arrives();
        }
        state
    }

    /// Reserves room for a completion. Fails with `EAGAIN` if there is no room.
    #[inline]
    #[link_section = ".text.hot"]
    pub(crate) fn reserve(&self) -> Result<Credit> {
        self.lock().reserve().map_err(to_error)
    }

    /// Returns an unused credit.
    #[inline]
    pub(crate) fn unreserve(&self, credit: Credit) {
        self.lock().release(credit);
    }

    /// Takes room for so many completions. Fails with `EAGAIN` if there is not so much room.
    pub(crate) fn reserve_many(&self, count: u32) -> Result {
        self.lock().reserve_many(count).map_err(to_error)
    }

    /// Returns room of [`reserve_many`](Self::reserve_many).
    pub(crate) fn release_many(&self, count: u32) {
        self.lock().release_many(count);
    }

    /// Queues a completion that has a credit.
    #[inline]
    pub(crate) fn push(&self, credit: Credit, entry: &Entry) {
        let mut wakeup = Wakeup::new();
        self.lock_for_arrival()
            .push(credit, |slot| self.store(slot, entry), waker(&mut wakeup));
        self.arrived();
    }

    /// Queues an error entry that has a credit.
    pub(crate) fn push_err(&self, credit: Credit, entry: &ErrEntry) {
        self.add_err(|state, wakeup| state.push_err(credit, *entry, waker(wakeup)));
    }

    /// Queues the error entry of an operation without a credit: in the error queue if it has room,
    /// otherwise in the operation's record.
    pub(crate) fn push_err_recorded(&self, record: Record, entry: &ErrEntry) {
        // A record that was not used is dropped outside the lock.
        let mut record = Some(record);
        self.add_err(|state, wakeup| state.push_err_recorded(&mut record, *entry, waker(wakeup)));
    }

    /// Queues a completion that belongs to no posted operation. If there is no room, it is lost and
    /// counted.
    #[inline(always)]
    pub(crate) fn push_unposted(&self, entry: &Entry) -> Push {
        let mut wakeup = Wakeup::new();
        let push = self
            .lock_for_arrival()
            .push_uncredited(|slot| self.store(slot, entry), waker(&mut wakeup));
        self.arrived();
        push
    }

    /// Queues an error entry that belongs to no posted operation. If there is no room, it is lost
    /// and counted.
    pub(crate) fn push_err_unposted(&self, entry: &ErrEntry) -> Push {
        self.add_err(|state, wakeup| state.push_err_uncredited(*entry, waker(wakeup)))
    }

    /// See [`Cq::signal`](super::Cq::signal).
    pub(crate) fn signal(&self) {
        let mut wakeup = Wakeup::new();
        self.lock().signal(waker(&mut wakeup));
    }

    /// Adds an error entry with `push` under the lock, and wakes the waiters and pollers.
    fn add_err<R>(&self, push: impl FnOnce(&mut State, &mut Wakeup<Token>) -> R) -> R {
        let mut wakeup = Wakeup::new();
        let result = push(&mut self.lock_for_arrival(), &mut wakeup);
        self.arrived();
        result
    }

    /// Wakes pollers, because there is something to read. The caller does not hold the lock.
    #[inline]
    fn arrived(&self) {
        // A poller enters the wait queue before it looks at the queue. So either it saw the new
        // entry, or this check finds it on the wait queue.
        if self.pollable && self.readable.has_sleepers() {
            self.readable.wake_poll(READABLE);
        }
    }

    /// The wait queue of pollers. They are woken when there is something to read.
    pub(super) fn readable(&self) -> &WaitQueue {
        &self.readable
    }

    /// Whether there is something to read. Does not sleep.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().ready()
    }

    fn offset(slot: u32) -> usize {
        // Slots are below the size, and the ring was allocated for the size.
        (slot as usize)
            .wrapping_mul(ENTRY_SIZE)
            .wrapping_add(ENTRY_OFFSET)
    }

    #[inline]
    fn store(&self, slot: u32, entry: &Entry) {
        let stored = self.ring.write_words(Self::offset(slot), &entry.words());
        debug_assert!(stored.is_ok());
    }

    /// The words of an entry in the ring. A program may have overwritten them. Does not sleep.
    #[inline]
    pub(super) fn load(&self, slot: u32) -> Result<[u64; Entry::WORDS]> {
        self.ring.read_words(Self::offset(slot))
    }

    /// Closes the queue by force. All sleepers, and threads that would sleep later, get `EBADF`.
    /// Pollers are woken. Idempotent.
    pub(crate) fn close(&self) {
        let mut wakeup = Wakeup::new();
        let mut state = self.lock();
        self.closed.store(true, Release);
        state.release_all(|left| wakeup.one(left, WakeReason::Closed));
        drop(state);
        self.readable.wake_all();
    }

    /// Whether the queue was closed by force.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Its current statistics, in the order of `struct kfabric_stat`.
    pub(super) fn stats(&self) -> [u64; 8] {
        let mut state = self.lock();
        // Reads the head that the program wrote to the mapped ring.
        state.ready();
        [
            u64::from(state.size()),
            u64::from(state.queued()),
            u64::from(state.errors()),
            state.entries_ever(),
            state.overruns(),
            u64::from(state.reserved()),
            u64::from(state.sleepers()),
            0,
        ]
    }
}
