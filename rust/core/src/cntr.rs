// SPDX-License-Identifier: GPL-2.0

//! The counter: two values, and who waits for them.
//!
//! One primitive under kfi_cntr, and later under verbs' completion counters and
//! triggered operations. It has a half without a lock and a half with one.
//!
//! [`Gate`] is the half without: the success value, the error value and `due`,
//! the lowest threshold that anybody waits for. The values live where a program
//! can map them, read-only. Reading is a load. Adding is one fully ordered
//! atomic add and one compare with `due`; in most adds nobody is due, and that
//! was all. An add that gets to `due` gives back [`Crossed`], and the caller
//! takes the counter's lock and hands it to the other half.
//!
//! [`Waiters`] is the half under the lock: who waits for what ([`Cond`]), in
//! [`Due`] order. There are two conditions. *At least*: the success value reaches a
//! threshold (kfi_cntr_wait); any call that writes the error value ends it too,
//! with [`Outcome::ErrorChanged`]. *Any change* since a [`Seen`]: what a
//! pollable fd and a wait set want.
//!
//! # No wake-up is lost
//!
//! A waiter writes `due` and then reads the value; an adder writes the value and
//! then reads `due`. Each has a full barrier between the two, so it cannot be
//! that both read the old: either the adder sees the threshold and comes to the
//! lock, or the waiter sees the value and does not sleep. While anybody waits,
//! `due` never stands above the lowest threshold, so a raise of it, after a
//! release, hides nobody.
//!
//! The value falls in two ways only. [`Waiters::set`] swaps it under the lock and
//! releases whoever waited for what it was: all adds before it are in the old
//! value, so who waits for 3 is released by a set to 3 followed by a set to 1,
//! and by an add to 3 followed by a set to 1 even if the adder has not come to
//! the lock yet. And it wraps. A counter with a maximum of its own wraps under
//! the lock only ([`Gate::add`] hands the add itself over). The full 64 bits wrap
//! in the atomic add, and the adder then releases everybody: all thresholds were
//! passed. A waiter that comes between that add and its lock is released with
//! them, early; nobody is ever released late.
//!
//! # What counts as a change
//!
//! Every call that writes (set, adderr, seterr) is a change, also if it writes
//! what was there: a sequence number of such calls goes with the values, so
//! adderr followed by seterr(0) is not missed. An add of 0 is none. Success is
//! looked at before the error. An error from before the wait does not count.
//!
//! # What comes later
//!
//! A trigger queue is one more [`Due`] beside these waiters: of work instead of
//! waiters, released into the endpoint. KFI_TRIGGER compares with the success
//! value and joins as it is. Deferred work compares with success + error: the
//! error value changes under the lock only, so its lowest threshold less the
//! error value joins in what `due` is made from.
//!
//! Costs: reading and adding O(1); arming, disarming and each release O(log n) in
//! the number of waiters.
//!
//! Source: kfi_cntr(3), fi_trigger(3), ibv_create_comp_cntr(3).

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
    word::Word,
};

/// `due` while nobody waits. A threshold of the same value is announced as one
/// less: `due` may stand below the lowest threshold, never above.
const NOBODY: u64 = u64::MAX;

/// The values of a counter and the lowest threshold waited for.
///
/// `V` is a word that user space may map, read-only; `D` is the module's own.
pub struct Gate<V: Word, D: Word> {
    value: V,
    err: V,
    due: D,
    max: u64,
}

/// An add met a threshold, or has to be done under the lock: hand it to
/// [`Waiters::fire`].
#[must_use = "whoever is due would sleep on"]
#[derive(Debug, PartialEq, Eq)]
pub struct Crossed(Crossing);

#[derive(Debug, PartialEq, Eq)]
enum Crossing {
    /// The value got to `due` or beyond.
    Reached,
    /// The value went past 2^64 - 1: everything was passed.
    Wrapped,
    /// This much is still to be added: it would wrap at the counter's maximum.
    ToAdd(u64),
}

impl<V: Word, D: Word> Gate<V, D> {
    /// A counter of (0, 0) that wraps after `max`; `max` 0 is 2^64 - 1, as
    /// `max_value` of KFABRIC_IOC_CNTR_OPEN. Writes the three words.
    pub fn new(value: V, err: V, due: D, max: u64) -> Self {
        value.store(0);
        err.store(0);
        due.store(NOBODY);
        Self {
            value,
            err,
            due,
            max: if max == 0 { u64::MAX } else { max },
        }
    }

    /// The largest value; the next is 0.
    #[inline]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The success value. What happened before it was added is seen after.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read(&self) -> u64 {
        self.value.load_acquire()
    }

    /// The error value, likewise.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn read_err(&self) -> u64 {
        self.err.load_acquire()
    }

    /// Adds to the success value. What it gives goes to [`Waiters::fire`], under
    /// the lock, without delay; mostly it is nothing.
    ///
    /// Context: any, no lock.
    #[inline]
    pub fn add(&self, n: u64) -> Option<Crossed> {
        if self.max != u64::MAX {
            return self.add_bounded(n);
        }
        // ORDERING: fully ordered. What was done before the add is seen by who
        // reads the value; and the value is written before `due` is read, see
        // `Waiters::arm` for the other side.
        let old = self.value.fetch_add(n);
        let due = self.due.load();
        // One compare for all cases. `due` above the old value: it lies
        // `due - old` ahead, and a wrap goes past it. `due` at or below: another
        // adder is on its way to the lock, and so do we go, since thresholds
        // between its value and ours are not in `due` yet.
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::crossing(old, n, due)
    }

    #[cold]
    fn crossing(old: u64, n: u64, due: u64) -> Option<Crossed> {
        // Nobody waited, and who comes later reads our value.
        if due == NOBODY || n == 0 {
            return None;
        }
        Some(Crossed(match old.checked_add(n) {
            Some(_) => Crossing::Reached,
            None => Crossing::Wrapped,
        }))
    }

    /// [`Self::add`] modulo `max + 1`: the same, but by compare and exchange, and
    /// a wrap is left to the lock.
    fn add_bounded(&self, n: u64) -> Option<Crossed> {
        let mut old = self.value.load();
        loop {
            if n > self.max.wrapping_sub(old) {
                return Some(Crossed(Crossing::ToAdd(n)));
            }
            // ORDERING: fully ordered, as `fetch_add` above.
            match self.value.compare_exchange(old, old.wrapping_add(n)) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        let due = self.due.load();
        if n < due.saturating_sub(old) {
            return None;
        }
        Self::crossing(old, n, due)
    }

    /// Adds modulo `max + 1` under the lock. True: it wrapped.
    fn add_modulo(&self, n: u64) -> bool {
        let mut old = self.value.load();
        loop {
            let (new, wrapped) = self.sum(old, n);
            match self.value.compare_exchange(old, new) {
                Ok(_) => return wrapped,
                Err(now) => old = now,
            }
        }
    }

    /// `old + n` modulo `max + 1`, and whether that wrapped. `old <= max`.
    fn sum(&self, old: u64, n: u64) -> (u64, bool) {
        let room = self.max.wrapping_sub(old);
        if n <= room {
            return (old.wrapping_add(n), false);
        }
        // n > room: take the steps to the maximum and the one to 0 away.
        let rest = n.wrapping_sub(room).wrapping_sub(1);
        match self.max.checked_add(1) {
            Some(modulus) => (rest.checked_rem(modulus).unwrap_or(0), true),
            None => (rest, true),
        }
    }
}

/// The values of a counter as somebody saw them, and how many writing calls
/// there had been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Success value.
    pub value: u64,
    /// Error value.
    pub err: u64,
    writes: u64,
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// The success value reaches this, or the error value changes from now on.
    /// A value above the counter's maximum is never reached.
    AtLeast(u64),
    /// Anything changes that was not seen in this.
    AnyChange(Seen),
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition was met.
    Reached,
    /// The error value was written while waiting.
    ErrorChanged,
}

impl Outcome {
    /// What kfi_cntr_wait() returns: KFI_EAVAIL for a changed error value.
    pub const fn into_result(self) -> Result {
        match self {
            Self::Reached => Ok(()),
            Self::ErrorChanged => Err(Errno::KFI_EAVAIL),
        }
    }
}

/// A waiter in line, for [`Waiters::disarm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    line: Line,
    key: Key,
}

/// The line a waiter stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    AtLeast,
    AnyChange,
}

/// What came of arming a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// The condition holds already. The slot comes back.
    Reached(S),
    /// To sleep until the token is released.
    Waiting(Waiter),
}

/// Who waits on a counter. One per [`Gate`], under one lock; each call is given
/// the gate, always the same.
///
/// Context: under the counter's lock. Where a call wants a `release`, it is called
/// for each who is to be woken, under that lock, in the order in which they
/// became due.
pub struct Waiters<M: DueMap> {
    at_least: Due<M>,
    /// Keyed by the first value that was not seen.
    any_change: Due<M>,
    /// Calls of set, adderr and seterr.
    writes: u64,
}

impl<M: DueMap> Waiters<M> {
    /// Nobody. Both maps must be empty.
    pub const fn new(at_least: M, any_change: M) -> Self {
        Self {
            at_least: Due::new(at_least),
            any_change: Due::new(any_change),
            writes: 0,
        }
    }

    /// Puts a waiter in line, unless its condition holds. O(log n).
    pub fn arm<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        cond: Cond,
        slot: M::Slot,
    ) -> Armed<M::Slot> {
        let (line, threshold) = match cond {
            Cond::AtLeast(threshold) => (Line::AtLeast, threshold),
            Cond::AnyChange(seen) => (Line::AnyChange, seen.value.saturating_add(1)),
        };
        // ORDERING: fully ordered: `due` is written before the value is read.
        // An adder writes the value before it reads `due`, so either it sees the
        // threshold or its value is seen here. Done also where a lower threshold
        // stands already: arming is not the fast path.
        gate.due.swap(self.bound_with(Some(threshold)));
        let holds = match cond {
            Cond::AtLeast(threshold) => gate.read() >= threshold,
            Cond::AnyChange(seen) => self.changed(gate, &seen),
        };
        if holds {
            self.announce(gate);
            return Armed::Reached(slot);
        }
        let due = match line {
            Line::AtLeast => &mut self.at_least,
            Line::AnyChange => &mut self.any_change,
        };
        let key = due.insert(threshold, slot);
        Armed::Waiting(Waiter { line, key })
    }

    /// Takes a waiter out of the line, when its time is over or a signal came.
    /// `None`: it was released before; what it was released with counts.
    /// O(log n).
    pub fn disarm<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        waiter: &Waiter,
    ) -> Option<M::Token> {
        let token = match waiter.line {
            Line::AtLeast => self.at_least.remove(&waiter.key),
            Line::AnyChange => self.any_change.remove(&waiter.key),
        };
        self.announce(gate);
        token
    }

    /// Releases who is due after an add. O(log n) for each.
    pub fn fire<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        crossed: Crossed,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        let wrapped = match crossed.0 {
            Crossing::Reached => false,
            Crossing::Wrapped => true,
            Crossing::ToAdd(n) => gate.add_modulo(n),
        };
        if wrapped {
            // Passed: all that a counter with this maximum can reach.
            self.writes = self.writes.wrapping_add(1);
            self.release_reached(gate.max, &mut release);
            self.release_any_change(&mut release);
        } else {
            // The value did not fall since the add, or a set released who was
            // due by then.
            let value = gate.read();
            self.release_reached(value, &mut release);
            while let Some((_, token)) = self.any_change.pop_due(value) {
                release(token, Outcome::Reached);
            }
        }
        self.announce(gate);
    }

    /// Sets the success value (kfi_cntr_set).
    ///
    /// Errors: EINVAL above the counter's maximum; nothing is changed.
    pub fn set<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        value: u64,
        mut release: impl FnMut(M::Token, Outcome),
    ) -> Result {
        if value > gate.max {
            return Err(Errno::EINVAL);
        }
        // ORDERING: an exchange, so that no add before it goes unseen: who it
        // made due is released here, whatever its adder finds later. Ordered
        // before what the caller does next, as an add is.
        let old = gate.value.swap(value);
        self.writes = self.writes.wrapping_add(1);
        self.release_reached(old.max(value), &mut release);
        self.release_any_change(&mut release);
        self.announce(gate);
        Ok(())
    }

    /// Adds to the error value (kfi_cntr_adderr, and each failed operation),
    /// modulo the maximum + 1.
    pub fn add_err<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        n: u64,
        release: impl FnMut(M::Token, Outcome),
    ) {
        let (err, _) = gate.sum(gate.err.load(), n);
        self.write_err(gate, err, release);
    }

    /// Sets the error value (kfi_cntr_seterr).
    ///
    /// Errors: EINVAL above the counter's maximum; nothing is changed.
    pub fn set_err<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        err: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> Result {
        if err > gate.max {
            return Err(Errno::EINVAL);
        }
        self.write_err(gate, err, release);
        Ok(())
    }

    fn write_err<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        err: u64,
        mut release: impl FnMut(M::Token, Outcome),
    ) {
        // ORDERING: release: what was done before is seen by who reads the error
        // value. There is no other writer, we are under the lock.
        gate.err.store_release(err);
        self.writes = self.writes.wrapping_add(1);
        // Success is looked at first.
        self.release_reached(gate.read(), &mut release);
        self.release_any_change(&mut release);
        while let Some((_, token)) = self.at_least.pop() {
            release(token, Outcome::ErrorChanged);
        }
        self.announce(gate);
    }

    /// Both values as they are now, to be compared with later ones.
    pub fn seen<V: Word, D: Word>(&self, gate: &Gate<V, D>) -> Seen {
        Seen {
            value: gate.read(),
            err: gate.read_err(),
            writes: self.writes,
        }
    }

    /// Whether anything changed since: what poll(2) on the counter's fd and a
    /// poll set ask.
    pub fn changed<V: Word, D: Word>(&self, gate: &Gate<V, D>, since: &Seen) -> bool {
        self.seen(gate) != *since
    }

    /// How many wait.
    pub fn len(&self) -> u32 {
        self.at_least.len().wrapping_add(self.any_change.len())
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lowest threshold that somebody waits for.
    pub fn lowest(&self) -> Option<u64> {
        self.at_least.lowest()
    }

    fn release_reached(&mut self, reached: u64, release: &mut impl FnMut(M::Token, Outcome)) {
        while let Some((_, token)) = self.at_least.pop_due(reached) {
            release(token, Outcome::Reached);
        }
    }

    fn release_any_change(&mut self, release: &mut impl FnMut(M::Token, Outcome)) {
        while let Some((_, token)) = self.any_change.pop() {
            release(token, Outcome::Reached);
        }
    }

    /// What `due` is to be for those in line and one more.
    fn bound_with(&self, one_more: Option<u64>) -> u64 {
        let lines = [
            self.at_least.lowest(),
            self.any_change.lowest(),
            one_more, //
        ];
        match lines.into_iter().flatten().min() {
            Some(lowest) => lowest.min(NOBODY.wrapping_sub(1)),
            None => NOBODY,
        }
    }

    /// Makes `due` fit who is in line, after somebody left it.
    fn announce<V: Word, D: Word>(&self, gate: &Gate<V, D>) {
        // ORDERING: none needed. This raises `due`, to the lowest threshold at
        // most; an adder that still reads the lower one comes to the lock for
        // nothing. Whoever is in line was written to `due` by its own `arm`.
        gate.due.store(self.bound_with(None));
    }
}
