// SPDX-License-Identifier: GPL-2.0

//! The completion queue itself: ring, error entries, credits, sleepers.
//!
//! What they mean is the core crate's ([`kfi_core::cq`]); here they get memory, locks, and tasks to
//! wake. [`Cq`](super::Cq) is this in a domain.
//!
//! ```text
//!   push:  spin lock; entry into its slot; tail, with release; sleepers whose number is there;
//!          unlock; who polls a descriptor
//!   read:  reader mutex { spin lock, what is there, unlock; copy out; spin lock, head, unlock };
//!          if a page of the program's was not there: bring it in, and once more
//! ```
//!
//! The ring stands in pages that a program maps, `struct kfabric_cq_ring` and then the entries. A
//! reader by call copies entries from there, a chunk at a time, and gives their slots back when
//! they are copied out: if copying fails, what was not copied is still queued. The mutex keeps
//! readers by call apart; a program that reads its mapping at the same time gets some entries
//! twice. What a program writes to the entries it gets back as it is; the head that it writes, and
//! the number of losses that it says it knows of, are believed only where they can be true.
//!
//! A thread that wants a number of entries is woken when they are there. If another reader was faster,
//! so that they are not there any more, it goes to sleep again.
//!
//! # Context
//!
//! Credits and completions: process context, under any lock that is none of these; they neither
//! allocate nor sleep. Reading sleeps.
//!
//! # Locks
//!
//! `Queue::reader` (mutex) -> `Queue::state` (spin lock). The wait queue's lock is taken under
//! neither spin lock.

use core::mem::offset_of;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        Arc,
        Mutex,
        SpinLock, //
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
    provider::wait::{
        fd::READABLE,
        line::{
            Left,
            Line, //
        },
        Wakeup,
        Why, //
    },
    shim::{
        bindings::{
            kfabric_cq_entry,
            kfabric_cq_ring, //
        },
        errno::to_error,
        wait::{
            new_wait_queue,
            WaitQueue,
            Waker, //
        }, //
    }, //
};

/// Where the entries begin in the ring, bytes: behind its head, on a cache line of their own.
const ENTRY_OFFSET: usize = size_of::<kfabric_cq_ring>();

/// Bytes of an entry in the ring; a power of two, so no entry lies across two pages.
const ENTRY_SIZE: usize = size_of::<kfabric_cq_entry>();

const _: () = assert!(ENTRY_SIZE == size_of::<Entry>() && ENTRY_OFFSET % ENTRY_SIZE == 0);

type State = CompletionQueue<SharedWord, KVVec<ErrEntry>, Line<Waker>, Tree>;

/// See the module's story.
#[pin_data]
pub(crate) struct Queue {
    pub(super) format: Format,
    size: u32,
    /// Whether descriptors may poll it.
    pollable: bool,
    /// Set under the lock of `state`, where nobody goes to sleep any more afterwards.
    closed: AtomicFlag,
    ring: Arc<SharedPages>,
    #[pin]
    pub(super) state: SpinLock<State>,
    #[pin]
    pub(super) reader: Mutex<()>,
    #[pin]
    readable: WaitQueue,
}

/// What wakes sleepers, under the lock of the state.
fn waker(wakeup: &mut Wakeup) -> impl FnMut(Left<Waker>, Woken) + '_ {
    |left, woken| {
        let why = match woken {
            Woken::Ready => Why::Ready,
            Woken::Signalled => Why::Signalled,
        };
        wakeup.one(left, why);
    }
}

impl Queue {
    /// An empty queue of `size` completions, rounded up to a power of two. `EINVAL` there is none,
    /// `ENOMEM`. Sleeps.
    pub(crate) fn new(size: u32, format: Format, pollable: bool) -> Result<impl PinInit<Self>> {
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
            told: word(offset_of!(kfabric_cq_ring, overruns_told))?,
        };
        let errors = KVVec::from_elem(ErrEntry::default(), slots, GFP_KERNEL_ACCOUNT)?;
        let state = CompletionQueue::new(words, size, errors, Tree::new(), Line::new())
            .map_err(to_error)?;
        Ok(pin_init!(Self {
            format,
            size,
            pollable,
            closed: AtomicFlag::new(false),
            ring,
            state <- new_spinlock!(state, "cq::Queue::state"),
            reader <- new_mutex!((), "cq::Queue::reader"),
            readable <- new_wait_queue!("cq::Queue::readable"),
        }))
    }

    /// Bytes of a ring of `size` completions.
    pub(crate) const fn ring_bytes(size: u32) -> usize {
        ENTRY_OFFSET + size.next_power_of_two() as usize * ENTRY_SIZE
    }

    /// Bytes of an error queue of `size` completions.
    pub(crate) const fn extra(size: u32) -> usize {
        size.next_power_of_two() as usize * size_of::<ErrEntry>()
    }

    /// Completions it holds.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The pages of the ring, to be mapped for reading and writing.
    pub(crate) fn ring(&self) -> &Arc<SharedPages> {
        &self.ring
    }

    /// Takes room for a completion. `EAGAIN` there is none.
    #[inline]
    #[link_section = ".text.hot"]
    pub(crate) fn reserve(&self) -> Result<Credit> {
        self.state.lock().reserve().map_err(to_error)
    }

    /// Gives a credit back unused.
    #[inline]
    pub(crate) fn unreserve(&self, credit: Credit) {
        self.state.lock().release(credit);
    }

    /// Queues a completion that has a credit.
    #[inline]
    pub(crate) fn push(&self, credit: Credit, entry: &Entry) {
        let mut wakeup = Wakeup::default();
        self.state
            .lock()
            .push(credit, |slot| self.store(slot, entry), waker(&mut wakeup));
        self.arrived();
    }

    /// Queues an error entry that has a credit.
    pub(crate) fn push_err(&self, credit: Credit, entry: &ErrEntry) {
        let mut wakeup = Wakeup::default();
        self.state
            .lock()
            .push_err(credit, *entry, waker(&mut wakeup));
        self.arrived();
    }

    /// Queues the error entry of an operation that has no credit: where there is room, or in its
    /// record.
    pub(crate) fn push_err_recorded(&self, record: Record, entry: &ErrEntry) {
        let mut wakeup = Wakeup::default();
        // A record that is not used is dropped outside the lock.
        let mut record = Some(record);
        self.state
            .lock()
            .push_err_recorded(&mut record, *entry, waker(&mut wakeup));
        self.arrived();
    }

    /// Queues a completion that nobody posted for; if there is no room, it is lost and counted.
    #[inline(always)]
    pub(crate) fn push_unposted(&self, entry: &Entry) -> Push {
        let mut wakeup = Wakeup::default();
        let push = self
            .state
            .lock()
            .push_uncredited(|slot| self.store(slot, entry), waker(&mut wakeup));
        self.arrived();
        push
    }

    /// Queues an error entry that nobody posted for; if there is no room, it is lost and counted.
    pub(crate) fn push_err_unposted(&self, entry: &ErrEntry) -> Push {
        let mut wakeup = Wakeup::default();
        let push = self
            .state
            .lock()
            .push_err_uncredited(*entry, waker(&mut wakeup));
        self.arrived();
        push
    }

    /// Ends the waits of all threads that are inside [`sread`](Self::sread), or of the next that
    /// would sleep there (kfi_cq_signal).
    pub(crate) fn signal(&self) {
        let mut wakeup = Wakeup::default();
        self.state.lock().signal(waker(&mut wakeup));
    }

    /// There is something to read. Outside the lock.
    #[inline]
    fn arrived(&self) {
        // Polling begins with a look at the queue after getting on the wait queue, so either the
        // poller saw what arrived or it is found here.
        if self.pollable && self.readable.has_sleepers() {
            self.readable.wake_poll(READABLE);
        }
    }

    /// Who polls; woken when there is something to read.
    pub(super) fn readable(&self) -> &WaitQueue {
        &self.readable
    }

    /// Whether there is something to read. Does not sleep.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().ready()
    }

    fn offset(slot: u32) -> usize {
        // Slots are below the size, for which there was memory.
        (slot as usize)
            .wrapping_mul(ENTRY_SIZE)
            .wrapping_add(ENTRY_OFFSET)
    }

    #[inline]
    fn store(&self, slot: u32, entry: &Entry) {
        let stored = self.ring.write_words(Self::offset(slot), &entry.words());
        debug_assert!(stored.is_ok());
    }

    /// The words of an entry in the ring, whatever a program has made of them. Does not sleep.
    #[inline]
    pub(super) fn load(&self, slot: u32) -> Result<[u64; Entry::WORDS]> {
        self.ring.read_words(Self::offset(slot))
    }

    /// Ends it by force: all who sleep are woken and get `EBADF`, as does who would go to sleep
    /// later; who polls is told. Idempotent.
    pub(crate) fn close(&self) {
        let mut wakeup = Wakeup::default();
        let mut state = self.state.lock();
        self.closed.store(true, Release);
        state.release_all(|left| wakeup.one(left, Why::Closed));
        drop(state);
        self.readable.wake_all();
    }

    /// Whether it was ended by force.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Its live figures, as `struct kfabric_stat` has them.
    pub(super) fn figures(&self) -> [u64; 8] {
        let mut state = self.state.lock();
        // Looks where the reader of the mapping is.
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
