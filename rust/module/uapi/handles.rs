// SPDX-License-Identifier: GPL-2.0

//! Handles: the numbers by which a program names the objects of its open file.
//!
//! A handle is a number from 1 to a limit. It belongs to one open file. It is assigned in two
//! steps, because an object needs its handle when it is created, and must not be found by the
//! handle before the program knows it:
//!
//! ```text
//!   reserve --> number taken, no object --publish--> names an object --remove--> free
//!                       \----------------- dropped ---------------------------------^
//! ```
//!
//! Numbers are assigned in ascending order, and start again after the largest, or when there is no
//! memory for another one. So a number that was
//! just freed is not reused at once, and a program that uses a stale handle gets an error.
//!
//! The objects are in arrays (chunks) of [`CHUNK`] each, which are allocated when needed and stay:
//! every call looks up a handle, and that takes two loads. The table is charged to the budget of
//! its file: an empty one regardless of the limit, because the number of open files is limited by
//! the kernel, and each chunk up to the limit.
//!
//! # Locks
//!
//! The lock of the chunks is a spin lock and a leaf: a look-up takes it, loads one pointer and
//! increments one reference count. `ids` is a mutex for calls that create and close objects. The
//! chunks' lock may be taken while it is held, not the other way round. Both belong to one open
//! file.
//!
//! The table is generic, so that its tests need no fabric.

use kernel::{
    id_pool::{
        IdPool,
        UnusedId, //
    },
    new_mutex,
    new_spinlock,
    sync::{
        Mutex,
        SpinLock, //
    }, //
};

use super::prelude::*;
use crate::mem::{
    Allowance,
    Budget, //
};

/// Entries of a chunk; they fill about a page.
const CHUNK: usize = 256;

/// A chunk, and its charge.
struct Chunk<E> {
    entries: KBox<[Option<E>; CHUNK]>,
    _memory: Allowance,
}

impl<E> Chunk<E> {
    /// Bytes of kernel memory: the entries, and their bits in the pool of numbers.
    const BYTES: usize = CHUNK * size_of::<Option<E>>() + CHUNK / 8;
}

struct Ids {
    pool: IdPool,
    used: u32,
    /// The start of the search for a free number.
    next: usize,
}

/// A table of handles, see the documentation of this file. `E` is a reference that can be cloned
/// under a spin lock.
///
/// # Invariants
///
/// Number `n` is acquired in `ids` if and only if entry `n` has an object, or a task is about to
/// store or has just removed one. Each acquired number has an entry.
#[pin_data]
pub(crate) struct Table<E: Clone + Send + 'static> {
    /// Chunks are added under the mutex `ids`, within the capacity.
    #[pin]
    chunks: SpinLock<KVec<Chunk<E>>>,
    #[pin]
    ids: Mutex<Ids>,
    limit: u32,
    budget: Budget,
    _memory: Allowance,
}

impl<E: Clone + Send + 'static> Table<E> {
    /// An empty table for `limit` handles, charged to `budget`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(limit: u32, budget: Budget) -> impl PinInit<Self, Error> {
        // Numbers begin at 1, so number `limit` is used.
        let most = (limit as usize / CHUNK).saturating_add(1);
        let bytes = size_of::<Self>().saturating_add(most.saturating_mul(size_of::<Chunk<E>>()));
        let memory = budget.take_anyway(bytes as u64);
        // INVARIANT: No number is acquired, and there is no object.
        try_pin_init!(Self {
            budget,
            _memory: memory,
            chunks <- {
                let chunks = KVec::with_capacity(most, GFP_KERNEL_ACCOUNT)?;
                new_spinlock!(chunks, "kfabric::handles::chunks")
            },
            ids <- new_mutex!(
                Ids {
                    pool: IdPool::new(),
                    used: 0,
                    next: 0,
                },
                "kfabric::handles"
            ),
            limit,
        })
    }

    /// Takes a number. Fails with `EMFILE` if all are in use; `ENOMEM`, also if the budget is used
    /// up. Sleeps.
    pub(crate) fn reserve(&self) -> Result<Reserved<'_, E>> {
        // INVARIANT: From here on this task owns the number, until the result is dropped.
        Ok(Reserved {
            table: self,
            number: self.acquire()?,
        })
    }

    /// The object of `number`, if there is one. Does not sleep.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<E> {
        let (chunk, index) = Self::position(number);
        let chunks = self.chunks.lock();
        chunks.get(chunk)?.entries.get(index)?.clone()
    }

    #[inline]
    fn position(number: u32) -> (usize, usize) {
        (number as usize / CHUNK, number as usize % CHUNK)
    }

    /// Stores `entry` at `number`, and returns the previous one.
    fn replace(&self, number: u32, entry: Option<E>) -> Option<E> {
        let (chunk, index) = Self::position(number);
        let mut chunks = self.chunks.lock();
        core::mem::replace(chunks.get_mut(chunk)?.entries.get_mut(index)?, entry)
    }

    /// Frees the number of an object that has been closed. Only the caller that has closed the
    /// object calls this, so the number is freed once. Sleeps.
    pub(crate) fn remove(&self, number: u32) {
        let entry = self.replace(number, None);
        // This may be the last reference to the object, so drop it without a lock.
        if entry.is_some() {
            drop(entry);
            self.release(number);
        }
    }

    /// An upper bound of the numbers in use, to iterate over all of them. Sleeps.
    pub(crate) fn bound(&self) -> u32 {
        u32::try_from(self.ids.lock().pool.capacity()).unwrap_or(u32::MAX)
    }

    fn acquire(&self) -> Result<u32> {
        let mut ids = self.ids.lock();
        if ids.used >= self.limit {
            return Err(EMFILE);
        }
        let id = loop {
            let next = ids.next;
            let capacity = ids.pool.capacity();
            let start = if next < capacity { next } else { 0 };
            if let Some(id) = free_from(&mut ids.pool, start, self.limit) {
                break id.acquire();
            }
            if let Some(id) = free_from(&mut ids.pool, 0, self.limit) {
                break id.acquire();
            }
            let resizer = ids
                .pool
                .grow_request()
                .ok_or(EMFILE)?
                .realloc(GFP_KERNEL_ACCOUNT)?;
            ids.pool.grow(resizer);
        };
        // INVARIANT: An id that is released below has no entry, or its entry has no object.
        // Ids begin at 0, handles at 1.
        let mut number = id.wrapping_add(1);
        if let Err(error) = self.make_entry(number) {
            ids.pool.release_id(id);
            // A number that was freed has an entry, if it is lower.
            let lower = free_from(&mut ids.pool, 0, self.limit).map(UnusedId::acquire);
            let lower = lower.ok_or(error)?;
            number = lower.wrapping_add(1);
            if self.chunks.lock().len() <= number / CHUNK {
                ids.pool.release_id(lower);
                return Err(error);
            }
        }
        ids.used = ids.used.saturating_add(1);
        ids.next = number;
        u32::try_from(number).map_err(|_| EMFILE)
    }

    /// Allocates chunks until `number` has an entry. Called with the mutex `ids` held.
    fn make_entry(&self, number: usize) -> Result {
        while self.chunks.lock().len() <= number / CHUNK {
            let memory = self.budget.take(Chunk::<E>::BYTES as u64)?;
            let entries = KBox::init(pin_init::init_array_from_fn(|_| None), GFP_KERNEL_ACCOUNT)?;
            let chunk = Chunk {
                entries,
                _memory: memory,
            };
            // The capacity suffices, so this does not allocate.
            self.chunks.lock().push(chunk, GFP_ATOMIC)?;
        }
        Ok(())
    }

    fn release(&self, number: u32) {
        let mut ids = self.ids.lock();
        ids.pool.release_id((number as usize).wrapping_sub(1));
        ids.used = ids.used.saturating_sub(1);
    }
}

/// The first free id, from `start` on, of a handle that is at most `limit`.
fn free_from(pool: &mut IdPool, start: usize, limit: u32) -> Option<UnusedId<'_>> {
    pool.find_unused_id(start).filter(|id| id.as_u32() < limit)
}

/// A number that is taken and has no object yet. Dropping frees the number; it sleeps.
#[must_use]
pub(crate) struct Reserved<'a, E: Clone + Send + 'static> {
    table: &'a Table<E>,
    number: u32,
}

impl<E: Clone + Send + 'static> Reserved<'_, E> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Makes the number name `entry`. Cannot fail.
    pub(crate) fn publish(self, entry: E) {
        // The number stays taken: it now belongs to the entry.
        let this = core::mem::ManuallyDrop::new(self);
        let _none = this.table.replace(this.number, Some(entry));
    }
}

impl<E: Clone + Send + 'static> Drop for Reserved<'_, E> {
    fn drop(&mut self) {
        self.table.release(self.number);
    }
}
