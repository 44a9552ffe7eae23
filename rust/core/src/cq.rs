// SPDX-License-Identifier: GPL-2.0

//! The completion queue (CQ): credits, entries and error entries.
//!
//! **Credits.** An operation whose success makes an entry takes a [`Credit`] when it is posted. A
//! credit is room for one completion, which becomes an entry, an error entry or nothing. The sum of
//! queued entries, error entries with room and outstanding credits never exceeds the size; a post
//! that would exceed it is refused with EAGAIN. So a completion with a credit always finds room,
//! and no completion of a posted operation is lost.
//!
//! An operation whose success is silent takes no credit, so a full CQ does not refuse it. If it
//! fails, its error entry takes room in the CQ if there is some. Otherwise the entry is queued in
//! the operation's record, memory that belongs to the operation
//! ([`CompletionQueue::push_err_recorded`]). Such entries do not count towards the size.
//!
//! Completions without an operation on this side (remote CQ data, the messages in a multi-receive
//! buffer) have neither a credit nor a record. If there is no room for them, they are lost and
//! counted, and reported once as KFI_EOVERRUN after the queued entries have been read. A reader of
//! the mapped ring that has reported the loss itself records that in the ring; the CQ then does not
//! report it again, and the loss no longer makes the CQ ready.
//!
//! **Two queues.** Entries go to a [`ring`](crate::ring) in memory of the caller. Error entries go
//! to a separate queue, in slots that the caller lent or in records, and are read in the order of
//! their arrival. While an error entry is queued, a read returns KFI_EAVAIL; only a read that has
//! already copied entries returns their number instead ([`CompletionQueue::more`]).
//!
//! A read returns the first of these that applies: EIO if the mapped head is invalid; KFI_EAVAIL if
//! there is an error entry; entries; KFI_EOVERRUN once; EAGAIN.
//!
//! **Sleepers, callbacks and signals** are in `cq/sleep.rs`.
//!
//! Each operation takes O(1), and O(log n) in the number of sleepers for each that is armed or
//! released. Context: any, under the CQ's lock.
//!
//! Source: fi_cq(3).

use crate::{
    due::{
        Due,
        DueMap, //
    },
    errno::{
        Errno,
        Result, //
    },
    fifo::Fifo,
    ring::{
        Batch,
        Producer,
        Words, //
    },
    word::Word,
};
use core::ops::DerefMut;

mod entry;
mod sleep;
#[cfg(any(test, kfi_kunit))]
mod tests;

pub use crate::fifo::Push;
pub use entry::{
    Entry,
    ErrEntry,
    Format, //
};
pub use sleep::{
    Armed,
    BlockingRead,
    CallbackCondition,
    Woken, //
};

/// Room for one completion in the CQ that issued the credit. It must be returned to the same CQ,
/// with a completion or by [`CompletionQueue::release`]. A credit that is dropped reduces the room
/// for the life of the CQ.
#[must_use = "a credit that is dropped reduces the room of the CQ for ever"]
#[derive(Debug)]
pub struct Credit(());

impl Credit {
    /// Makes the credit of an operation whose room was taken with
    /// [`CompletionQueue::reserve_many`], or by a credit that became part of such room.
    pub const fn of_pool() -> Self {
        Self(())
    }

    /// Makes the credit part of a pool, whose owner counts it.
    pub const fn into_pool(self) {
        let Self(()) = self;
    }
}

/// The error entries in records, which are memory of the operations. In the module this is a
/// red-black tree whose nodes were allocated with the operations.
pub trait Records {
    /// The memory for one error entry.
    type Record;

    /// The remains of a record after its entry was read.
    type Spent;

    /// Inserts an entry. Numbers ascend.
    fn insert(&mut self, number: u64, entry: ErrEntry, record: Self::Record);

    /// Returns the entry with the lowest number.
    fn first(&self) -> Option<(u64, &ErrEntry)>;

    /// Removes the entry with the lowest number.
    fn pop_first(&mut self) -> Option<Self::Spent>;
}

/// A completion queue. `W`: the shared words; `E`: slots for error entries; `M`: the map of
/// sleepers; `R`: error entries in records.
///
/// # Invariants
///
/// `ring.queued() + errors.len() + reserved <= ring.size() <= errors.capacity()`.
/// `errors` and `records` together contain the error entries with the numbers
/// `errors_read..errors_ever`; those in `errors` are in order.
pub struct CompletionQueue<W: Word, E, M: DueMap, R: Records> {
    ring: Producer<W>,
    errors: Fifo<E>,
    records: R,
    /// The number of error entries that were ever queued.
    errors_ever: u64,
    /// The number of error entries that were ever read.
    errors_read: u64,
    reserved: u32,
    /// The number of signals.
    signals: u64,
    /// A signal is kept, because no thread was inside.
    kept: bool,
    /// The number of threads inside a blocking read.
    inside: u32,
    sleepers: Due<M>,
}

impl<W: Word, E: DerefMut<Target = [ErrEntry]>, M: DueMap, R: Records> CompletionQueue<W, E, M, R> {
    /// Makes an empty CQ of `size` entries. `errors` must have at least as many slots, and
    /// `records` must be empty. Writes all words.
    ///
    /// Errors: EINVAL if `size` is not a power of two, or there are too few slots.
    pub fn new(words: Words<W>, size: u32, errors: E, records: R, sleepers: M) -> Result<Self> {
        if errors.len() < size as usize {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            ring: Producer::new(words, size)?,
            errors: Fifo::new(errors),
            records,
            errors_ever: 0,
            errors_read: 0,
            reserved: 0,
            signals: 0,
            kept: false,
            inside: 0,
            sleepers: Due::new(sleepers),
        })
    }

    // ---- Credits --------------------------------------------------------------

    /// Takes room for one completion.
    ///
    /// Errors: EAGAIN if there is none; the caller reads completions and tries again.
    #[inline]
    pub fn reserve(&mut self) -> Result<Credit> {
        if !self.has_room() {
            return Err(Errno::EAGAIN);
        }
        // INVARIANT: there is room for one more.
        self.reserved = self.reserved.wrapping_add(1);
        Ok(Credit(()))
    }

    /// Returns an unused credit: the operation made no completion.
    #[inline]
    pub fn release(&mut self, credit: Credit) {
        let Credit(()) = credit;
        // Only `reserve` makes credits.
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Takes room for `count` completions, or none. The caller counts the room, and makes the
    /// credits when it needs them ([`Credit::of_pool`]).
    ///
    /// Errors: EAGAIN if there is not so much room.
    pub fn reserve_many(&mut self, count: u32) -> Result {
        self.update_head();
        let free = self.ring.size().saturating_sub(self.used());
        if count > free {
            return Err(Errno::EAGAIN);
        }
        // INVARIANT: there is room for so many more.
        self.reserved = self.reserved.wrapping_add(count);
        Ok(())
    }

    /// Returns room of [`Self::reserve_many`] for which no credits were made.
    pub fn release_many(&mut self, count: u32) {
        self.reserved = self.reserved.saturating_sub(count);
    }

    /// Returns the room that is taken: entries, error entries that are not in records, and credits.
    #[inline]
    fn used(&self) -> u32 {
        // INVARIANT: each term is at most the size, and so is the sum, which therefore does not
        // overflow.
        self.ring
            .queued()
            .wrapping_add(self.errors.len() as u32)
            .wrapping_add(self.reserved)
    }

    /// Returns whether there is room for one more. Reads the head only if necessary.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.used() < self.ring.size() {
            return true;
        }
        self.update_head();
        self.used() < self.ring.size()
    }

    /// Updates the head of a reader of the mapped ring.
    fn update_head(&mut self) {
        // The ring remembers an invalid head and keeps the last valid one.
        let _ = self.ring.observe();
    }

    // ---- Completions ----------------------------------------------------------

    /// Queues a completion that has a credit. `write` writes the entry to the slot with the given
    /// number before readers can see it. `wake` is called for each sleeper to wake.
    pub fn push(
        &mut self,
        credit: Credit,
        write: impl FnOnce(u32),
        wake: impl FnMut(M::Token, Woken),
    ) {
        self.release(credit);
        self.append(write, wake);
    }

    /// Queues a completion of no posted operation, if there is room.
    #[inline(always)]
    pub fn push_uncredited(
        &mut self,
        write: impl FnOnce(u32),
        wake: impl FnMut(M::Token, Woken),
    ) -> Push {
        if !self.has_room() {
            self.overrun(wake);
            return Push::Overrun;
        }
        self.append(write, wake);
        Push::Queued
    }

    /// Queues an error entry that has a credit.
    pub fn push_err(&mut self, credit: Credit, entry: ErrEntry, wake: impl FnMut(M::Token, Woken)) {
        self.release(credit);
        self.append_err(entry, wake);
    }

    /// Queues an error entry of no posted operation, if there is room.
    pub fn push_err_uncredited(
        &mut self,
        entry: ErrEntry,
        wake: impl FnMut(M::Token, Woken),
    ) -> Push {
        if !self.has_room() {
            self.overrun(wake);
            return Push::Overrun;
        }
        self.append_err(entry, wake);
        Push::Queued
    }

    /// Queues the error entry of an operation without a credit: in the CQ's room, or else in
    /// `record`, which is consumed only then. Returns false if there is neither; the entry is not
    /// queued.
    pub fn push_err_recorded(
        &mut self,
        record: &mut Option<R::Record>,
        entry: ErrEntry,
        wake: impl FnMut(M::Token, Woken),
    ) -> bool {
        if self.has_room() {
            self.append_err(entry, wake);
            return true;
        }
        let Some(record) = record.take() else {
            return false;
        };
        self.records.insert(self.errors_ever, entry, record);
        self.count_err(wake);
        true
    }

    #[inline(always)]
    fn append(&mut self, write: impl FnOnce(u32), mut wake: impl FnMut(M::Token, Woken)) {
        // INVARIANT: the caller has checked that there is room.
        self.ring.push(write);
        if self.sleepers.is_empty() {
            return;
        }
        // A sleeper waits for entries that are present now, so the head must be up to date.
        self.update_head();
        let queued = u64::from(self.ring.queued());
        while let Some((_, token)) = self.sleepers.pop_due(queued) {
            wake(token, Woken::Ready);
        }
    }

    fn append_err(&mut self, entry: ErrEntry, wake: impl FnMut(M::Token, Woken)) {
        // INVARIANT: the caller has checked that there is room.
        self.errors.push_with(|slot| *slot = entry);
        self.count_err(wake);
    }

    /// Counts a queued error entry, and wakes all sleepers.
    fn count_err(&mut self, wake: impl FnMut(M::Token, Woken)) {
        // INVARIANT: `errors` or `records` has one more. The number never reaches 2^64.
        self.errors_ever = self.errors_ever.wrapping_add(1);
        self.ring.publish_errors(self.errors());
        self.wake_all(Woken::Ready, wake);
    }

    fn overrun(&mut self, wake: impl FnMut(M::Token, Woken)) {
        self.ring.count_lost();
        self.wake_all(Woken::Ready, wake);
    }

    // ---- Reading --------------------------------------------------------------

    /// Returns the oldest entries, at most `want`. The reader copies them and then calls
    /// [`take`](Self::take). `want` 0 asks whether there are any.
    ///
    /// Errors, the first that applies: EIO if the mapped head is invalid; KFI_EAVAIL if an error
    /// entry must be read first; KFI_EOVERRUN once, if completions were lost and no entry is left;
    /// EAGAIN if there is nothing to read.
    pub fn peek(&mut self, want: u32) -> Result<Batch> {
        if self.ring.observe().is_err() {
            return Err(Errno::EIO);
        }
        if self.has_errors() {
            return Err(Errno::KFI_EAVAIL);
        }
        if self.ring.queued() > 0 {
            return Ok(self.ring.batch(want));
        }
        if self.ring.lost() {
            self.ring.report_lost();
            return Err(Errno::KFI_EOVERRUN);
        }
        Err(Errno::EAGAIN)
    }

    /// Like [`Self::peek`], for a reader that has copied entries and released the lock in between.
    /// Returns no entries in place of an error; the next read reports the error.
    pub fn more(&mut self, want: u32) -> Batch {
        let sound = self.ring.observe().is_ok();
        let want = if sound && !self.has_errors() { want } else { 0 };
        self.ring.batch(want)
    }

    /// Frees the room of the first `n` entries of `batch`, which have been read. The caller
    /// serialises readers from [`Self::peek`] to here.
    pub fn take(&mut self, batch: &Batch, n: u32) {
        self.ring.take(batch, n);
    }

    /// Returns the oldest error entry without removing it.
    ///
    /// Errors: EAGAIN if there is none.
    pub fn peek_err(&self) -> Result<ErrEntry> {
        self.first_err().map(|(entry, _)| entry)
    }

    /// Removes the oldest error entry. Also returns the remains of its record, if it was in one.
    ///
    /// Errors: EAGAIN if there is none.
    pub fn read_err(&mut self) -> Result<(ErrEntry, Option<R::Spent>)> {
        let (entry, recorded) = self.first_err()?;
        let spent = if recorded {
            self.records.pop_first()
        } else {
            self.errors.pop();
            None
        };
        // INVARIANT: the entry with this number was removed.
        self.errors_read = self.errors_read.wrapping_add(1);
        self.ring.publish_errors(self.errors());
        Ok((entry, spent))
    }

    /// Returns the oldest error entry, and whether it is in a record.
    fn first_err(&self) -> Result<(ErrEntry, bool)> {
        match self.records.first() {
            // INVARIANT: all entries with lower numbers have been read.
            Some((number, entry)) if number == self.errors_read => Ok((*entry, true)),
            _ => {
                let entry = *self.errors.front().ok_or(Errno::EAGAIN)?;
                Ok((entry, false))
            }
        }
    }

    /// Returns whether an error entry is queued.
    #[inline]
    fn has_errors(&self) -> bool {
        self.errors_read != self.errors_ever
    }

    /// Returns whether a read would return something other than EAGAIN. poll(2) on the CQ's file
    /// descriptor and poll sets use this.
    pub fn ready(&mut self) -> bool {
        self.holds(1)
    }

    // ---- Statistics -----------------------------------------------------------

    /// Returns the maximum number of entries.
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Returns the number of queued entries, by the last head that was read.
    pub fn queued(&self) -> u32 {
        self.ring.queued()
    }

    /// Returns the number of queued error entries, in records or not.
    #[inline]
    pub fn errors(&self) -> u32 {
        // There is not enough memory for 2^32 records.
        self.errors_ever.wrapping_sub(self.errors_read) as u32
    }

    /// Returns the number of outstanding credits.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Returns the number of entries that were ever queued.
    pub fn entries_ever(&self) -> u64 {
        self.ring.tail()
    }

    /// Returns the number of completions that were ever lost.
    pub fn overruns(&self) -> u64 {
        self.ring.overruns()
    }

    /// Returns the number of sleepers and armed callbacks.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.len()
    }

    /// Returns the number of threads inside a blocking read, asleep or not.
    pub fn inside(&self) -> u32 {
        self.inside
    }
}
