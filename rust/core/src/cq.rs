// SPDX-License-Identifier: GPL-2.0

//! The completion queue: credits, entries, error entries, sleepers.
//!
//! **Nothing is lost that was asked for.** An operation whose success makes an entry
//! takes a [`Credit`] when it is posted: room for one completion, which becomes an
//! entry, an error entry or nothing. Entries queued + error entries with room +
//! credits out never exceed the size; where they would, the post is refused with
//! EAGAIN. So a completion that brings its credit always finds room.
//!
//! An operation whose success is silent takes no credit, so a full CQ does not refuse
//! it. If it fails, its error entry takes room if there is some; if not, it is queued
//! in memory that belongs to the operation, its record
//! ([`CompletionQueue::push_err_recorded`]). Such entries are beyond the size.
//!
//! Completions without an operation here (remote CQ data, the messages in a
//! multi-receive buffer) have neither: if they find no room they are lost, counted,
//! and reported once as KFI_EOVERRUN, when what is queued has been read. A reader of
//! the mapped ring that has reported the loss itself says so in the ring; then the CQ
//! does not report it again, and is not ready for it any more.
//!
//! **Two queues.** Entries go to a [`ring`](crate::ring), whose memory the caller
//! has; error entries to a queue of their own, in slots that were lent or in records.
//! Error entries are read in the order in which they came, wherever they are. While an
//! error entry is queued, a read gives KFI_EAVAIL; only a read that goes on after
//! it has copied entries ends with their number instead ([`CompletionQueue::more`]).
//!
//! What a read answers, first match: EIO a spoilt head; KFI_EAVAIL an error entry;
//! entries; KFI_EOVERRUN once; EAGAIN.
//!
//! **Sleepers** wait for a number of entries (KFI_CQ_COND_THRESHOLD; 1 without).
//! All whose number is there are released; who then finds the queue emptied by
//! another arms itself again. An error entry and an overrun release everybody.
//! [`CompletionQueue::signal`] releases every thread that is inside a blocking read
//! with EAGAIN, from [`enter`](CompletionQueue::enter) to
//! [`leave`](CompletionQueue::leave): those that sleep, and those that are on their
//! way to sleep or between two sleeps. The number of signals that a thread found
//! when it entered tells. If no thread is inside, the signal is kept, one at most,
//! for the next thread that would sleep: a thread that looked at a stop flag, found
//! it clear and is about to call must not miss the signal that follows the setting
//! of the flag. A read that finds something leaves a kept signal.
//!
//! Everything is O(1), and O(log n) in the number of sleepers for each that is
//! armed or released. Context: any, under the CQ's lock.
//!
//! Source: fi_cq(3).

use crate::{
    due::{
        Due,
        DueMap,
        Key, //
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
#[cfg(any(test, kfi_kunit))]
mod tests;

pub use crate::fifo::Push;
pub use entry::{
    Entry,
    ErrEntry,
    Format, //
};

/// Room for one completion in the CQ that gave it. It goes back to that CQ: with
/// a completion or by [`CompletionQueue::release`]. One that is dropped is room
/// lost for as long as the CQ lives.
#[must_use = "a credit that is dropped is never given back"]
#[derive(Debug)]
pub struct Credit(());

/// Error entries in records: memory that operations brought. In the module it is a
/// red-black tree whose nodes were allocated with the operations.
pub trait Records {
    /// Memory for one error entry.
    type Record;

    /// What remains of the record when its entry has been read.
    type Spent;

    /// Puts an entry in. Numbers ascend.
    fn insert(&mut self, number: u64, entry: ErrEntry, record: Self::Record);

    /// The entry with the lowest number.
    fn first(&self) -> Option<(u64, &ErrEntry)>;

    /// Takes that entry out.
    fn pop_first(&mut self) -> Option<Self::Spent>;
}

/// Why a sleeper was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is something to read; if another was faster, to arm again.
    Ready,
    /// A signal: the read returns EAGAIN.
    Signalled,
}

/// A thread inside a blocking read of the CQ that gave this. It goes back to that
/// CQ by [`CompletionQueue::leave`]. While one is out, no signal is kept.
#[must_use = "no signal is kept while a thread is inside"]
#[derive(Debug, PartialEq, Eq)]
pub struct Inside {
    /// Signals before the thread entered.
    signals: u64,
}

impl Inside {
    /// The number that [`CompletionQueue::enter_again`] takes; not 0.
    pub fn number(&self) -> u64 {
        // 2^64 signals do not happen.
        self.signals.wrapping_add(1)
    }
}

/// What came of arming a sleeper.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// The condition holds: read. The slot comes back.
    Ready(S),
    /// A signal came since the thread entered, or one was kept: return EAGAIN. The
    /// slot comes back.
    Signalled(S),
    /// To sleep until the token is released; the key is for
    /// [`CompletionQueue::disarm`].
    Waiting(Key),
}

/// A completion queue. `W`: the shared words; `E`: slots for error entries; `M`:
/// the map of sleepers; `R`: error entries in records.
///
/// # Invariants
///
/// `ring.queued() + errors.len() + reserved <= ring.size() <= errors.capacity()`.
/// `errors` and `records` have the error entries `errors_read..errors_ever`; those of
/// `errors` are in order.
pub struct CompletionQueue<W: Word, E, M: DueMap, R: Records> {
    ring: Producer<W>,
    errors: Fifo<E>,
    records: R,
    /// Error entries ever queued.
    errors_ever: u64,
    /// Error entries ever read.
    errors_read: u64,
    reserved: u32,
    /// Signals ever.
    signals: u64,
    /// A signal that found no thread inside.
    kept: bool,
    /// Threads inside a blocking read.
    inside: u32,
    sleepers: Due<M>,
}

impl<W: Word, E: DerefMut<Target = [ErrEntry]>, M: DueMap, R: Records> CompletionQueue<W, E, M, R> {
    /// An empty CQ of `size` entries; `errors` has at least as many slots, and
    /// `records` is empty. Writes all words.
    ///
    /// Errors: EINVAL `size` is not a power of two, or too few slots.
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
    /// Errors: EAGAIN there is none; read completions and try again.
    #[inline]
    pub fn reserve(&mut self) -> Result<Credit> {
        if !self.has_room() {
            return Err(Errno::EAGAIN);
        }
        // INVARIANT: there is room for one more.
        self.reserved = self.reserved.wrapping_add(1);
        Ok(Credit(()))
    }

    /// Gives a credit back unused: the operation left no completion.
    #[inline]
    pub fn release(&mut self, credit: Credit) {
        let Credit(()) = credit;
        // Credits come from `reserve` only.
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Room taken: entries, error entries that are not in records, credits.
    #[inline]
    fn used(&self) -> u32 {
        // INVARIANT: each term is at most the size, which is a u32's half at most
        // in any CQ that can exist; the sum is at most the size.
        self.ring
            .queued()
            .wrapping_add(self.errors.len() as u32)
            .wrapping_add(self.reserved)
    }

    /// Whether one more fits. Looks at the head only if it matters.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.used() < self.ring.size() {
            return true;
        }
        self.look();
        self.used() < self.ring.size()
    }

    /// Looks where a reader of the mapped ring is.
    fn look(&mut self) {
        // A spoilt head is remembered by the ring; the last good one stands.
        let _ = self.ring.observe();
    }

    // ---- Completions ----------------------------------------------------------

    /// Queues a completion that has a credit. `write` writes the entry to the slot
    /// it is given, before readers can see it; `wake` is called for each sleeper
    /// to wake.
    pub fn push(
        &mut self,
        credit: Credit,
        write: impl FnOnce(u32),
        wake: impl FnMut(M::Token, Woken),
    ) {
        self.release(credit);
        self.append(write, wake);
    }

    /// Queues a completion that nobody posted for, if there is room.
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

    /// Queues an error entry that nobody posted for, if there is room.
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

    /// Queues the error entry of an operation that has no credit: where there is room,
    /// or in `record`, which is taken only then. False: neither, and the entry is not
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
        // INVARIANT: the caller saw to the room.
        self.ring.push(write);
        if self.sleepers.is_empty() {
            return;
        }
        // Who sleeps wants a number of entries that are there now.
        self.look();
        let queued = u64::from(self.ring.queued());
        while let Some((_, token)) = self.sleepers.pop_due(queued) {
            wake(token, Woken::Ready);
        }
    }

    fn append_err(&mut self, entry: ErrEntry, wake: impl FnMut(M::Token, Woken)) {
        // INVARIANT: the caller saw to the room.
        self.errors.push_with(|slot| *slot = entry);
        self.count_err(wake);
    }

    /// An error entry was queued.
    fn count_err(&mut self, wake: impl FnMut(M::Token, Woken)) {
        // INVARIANT: one more in `errors` or `records`. 2^64 do not happen.
        self.errors_ever = self.errors_ever.wrapping_add(1);
        self.ring.tell_errors(self.errors());
        self.wake_all(Woken::Ready, wake);
    }

    fn overrun(&mut self, wake: impl FnMut(M::Token, Woken)) {
        self.ring.lose();
        self.wake_all(Woken::Ready, wake);
    }

    // ---- Reading --------------------------------------------------------------

    /// The oldest entries, at most `want`, to be copied and then
    /// [`taken`](Self::take). `want` 0 asks whether there are any.
    ///
    /// Errors, first match: EIO the mapped head is spoilt; KFI_EAVAIL an error
    /// entry is to be read first; KFI_EOVERRUN completions were lost, told once,
    /// when there is no entry left; EAGAIN nothing there.
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
            self.ring.tell_lost();
            return Err(Errno::KFI_EOVERRUN);
        }
        Err(Errno::EAGAIN)
    }

    /// [`Self::peek`] for a reader that has copied entries and let go of the lock
    /// in between: where that would be an error, nothing more; the next read
    /// will tell.
    pub fn more(&mut self, want: u32) -> Batch {
        let sound = self.ring.observe().is_ok();
        let want = if sound && !self.has_errors() { want } else { 0 };
        self.ring.batch(want)
    }

    /// The first `n` entries of `batch` are read: their room is free. Readers
    /// are one after the other from [`Self::peek`] to here; the caller sees to it.
    pub fn take(&mut self, batch: &Batch, n: u32) {
        self.ring.take(batch, n);
    }

    /// The oldest error entry, which stays.
    ///
    /// Errors: EAGAIN there is none.
    pub fn peek_err(&self) -> Result<ErrEntry> {
        self.first_err().map(|(entry, _)| entry)
    }

    /// Takes the oldest error entry; gives what remains of its record, if it was in one.
    ///
    /// Errors: EAGAIN there is none.
    pub fn read_err(&mut self) -> Result<(ErrEntry, Option<R::Spent>)> {
        let (entry, recorded) = self.first_err()?;
        let spent = if recorded {
            self.records.pop_first()
        } else {
            self.errors.pop();
            None
        };
        // INVARIANT: the entry with this number has been taken out.
        self.errors_read = self.errors_read.wrapping_add(1);
        self.ring.tell_errors(self.errors());
        Ok((entry, spent))
    }

    /// The oldest error entry, and whether it is in a record.
    fn first_err(&self) -> Result<(ErrEntry, bool)> {
        match self.records.first() {
            // INVARIANT: all numbers before this one have been read.
            Some((number, entry)) if number == self.errors_read => Ok((*entry, true)),
            _ => {
                let entry = *self.errors.front().ok_or(Errno::EAGAIN)?;
                Ok((entry, false))
            }
        }
    }

    /// Whether an error entry is queued.
    #[inline]
    fn has_errors(&self) -> bool {
        self.errors_read != self.errors_ever
    }

    /// Whether a read would give something other than EAGAIN: what poll(2) on
    /// the CQ's fd and a poll set ask.
    pub fn ready(&mut self) -> bool {
        self.holds(1)
    }

    // ---- Sleeping -------------------------------------------------------------

    /// A thread enters a blocking read: every signal from now on releases it.
    pub fn enter(&mut self) -> Inside {
        // As many threads as there can be tasks.
        self.inside = self.inside.wrapping_add(1);
        Inside {
            signals: self.signals,
        }
    }

    /// A thread enters again whose read was interrupted, with the
    /// [`number`](Inside::number) of its first entry: signals since then count. Any
    /// other number can release that thread alone, and at once.
    pub fn enter_again(&mut self, number: u64) -> Inside {
        self.inside = self.inside.wrapping_add(1);
        Inside {
            signals: number.wrapping_sub(1),
        }
    }

    /// A thread leaves.
    pub fn leave(&mut self, inside: Inside) {
        let Inside { signals: _ } = inside;
        // They come from `enter` and `enter_again` only.
        self.inside = self.inside.saturating_sub(1);
    }

    /// Puts a sleeper in line, unless there is a reason not to sleep. `want`:
    /// entries to wait for, taken as at least 1 and at most the size.
    pub fn arm(&mut self, inside: &Inside, want: u64, slot: M::Slot) -> Armed<M::Slot> {
        if self.holds(want) {
            return Armed::Ready(slot);
        }
        // One that was kept is taken too: this thread is the next that would sleep.
        let kept = core::mem::replace(&mut self.kept, false);
        if kept || inside.signals != self.signals {
            return Armed::Signalled(slot);
        }
        Armed::Waiting(self.sleepers.insert(self.wanted(want), slot))
    }

    /// Takes a sleeper out of the line, when its time is over or a signal of
    /// the system's came. `None`: it was released before. O(log n).
    pub fn disarm(&mut self, key: &Key) -> Option<M::Token> {
        self.sleepers.remove(key)
    }

    /// Releases every thread that is inside a blocking read; if there is none, the
    /// next that would sleep (fi_cq_signal).
    pub fn signal(&mut self, wake: impl FnMut(M::Token, Woken)) {
        self.signals = self.signals.wrapping_add(1);
        if self.inside == 0 {
            self.kept = true;
        }
        self.wake_all(Woken::Signalled, wake);
    }

    /// Whether who wants this many entries is not to sleep; `want` as in
    /// [`Self::arm`].
    pub fn holds(&mut self, want: u64) -> bool {
        self.look();
        self.ring.spoilt()
            || self.has_errors()
            || self.ring.lost()
            || u64::from(self.ring.queued()) >= self.wanted(want)
    }

    /// Entries to wait for: as many as there can be, and not none.
    fn wanted(&self, want: u64) -> u64 {
        want.max(1).min(u64::from(self.ring.size()))
    }

    /// Takes all sleepers out of the line, for a CQ that is closed by force.
    /// Nothing else changes.
    pub fn release_all(&mut self, mut release: impl FnMut(M::Token)) {
        while let Some((_, token)) = self.sleepers.pop() {
            release(token);
        }
    }

    fn wake_all(&mut self, why: Woken, mut wake: impl FnMut(M::Token, Woken)) {
        while let Some((_, token)) = self.sleepers.pop() {
            wake(token, why);
        }
    }

    // ---- Figures --------------------------------------------------------------

    /// Entries it holds at most.
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Entries queued, as far as the reader's head was looked at.
    pub fn queued(&self) -> u32 {
        self.ring.queued()
    }

    /// Error entries queued, in records or not.
    #[inline]
    pub fn errors(&self) -> u32 {
        // There is not the memory for 2^32 records.
        self.errors_ever.wrapping_sub(self.errors_read) as u32
    }

    /// Credits out.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Entries ever queued.
    pub fn entries_ever(&self) -> u64 {
        self.ring.tail()
    }

    /// Completions ever lost.
    pub fn overruns(&self) -> u64 {
        self.ring.overruns()
    }

    /// How many sleep.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.len()
    }

    /// How many are inside a blocking read, asleep or not.
    pub fn inside(&self) -> u32 {
        self.inside
    }
}
