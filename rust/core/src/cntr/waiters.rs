// SPDX-License-Identifier: GPL-2.0

//! The half of a counter under the lock: who waits, for what, in which order.
//!
//! The story is in [`crate::cntr`].

use super::gate::{
    Crossed,
    Crossing,
    Gate,
    NOBODY, //
};
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
    word::Word, //
};

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

/// How often the error value had changed when a thread entered a wait
/// ([`Waiters::entered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered(u64);

impl Entered {
    /// The number that [`Self::again`] takes; not 0.
    pub fn number(self) -> u64 {
        // 2^64 changes do not happen.
        self.0.wrapping_add(1)
    }

    /// A thread whose wait was interrupted goes on, with the [`number`](Self::number)
    /// of its entry. Any other number can end that wait alone, and at once.
    pub fn again(number: u64) -> Self {
        Self(number.wrapping_sub(1))
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// The success value reaches this, or the error value changes after the thread
    /// entered. A value above the counter's maximum is never reached.
    AtLeast(u64, Entered),
    /// Anything changes that was not seen in this.
    AnyChange(Seen),
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition was met.
    Reached,
    /// The error value changed since the thread entered.
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
    /// There is nothing to wait for. The slot comes back.
    Over(Outcome, S),
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
    /// Keyed by the value that was seen.
    any_change: Due<M>,
    /// Calls of set, and changes of the error value.
    writes: u64,
    /// Changes of the error value.
    err_changes: u64,
}

impl<M: DueMap> Waiters<M> {
    /// Nobody. Both maps must be empty.
    pub const fn new(at_least: M, any_change: M) -> Self {
        Self {
            at_least: Due::new(at_least),
            any_change: Due::new(any_change),
            writes: 0,
            err_changes: 0,
        }
    }

    /// A thread enters a wait: every change of the error value from now on ends it,
    /// however long the thread takes to arm.
    pub fn entered(&self) -> Entered {
        Entered(self.err_changes)
    }

    /// Whether the error value changed since a thread entered.
    pub fn err_changed(&self, since: Entered) -> bool {
        since.0 != self.err_changes
    }

    /// Puts a waiter in line, unless its condition holds. O(log n).
    pub fn arm<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        cond: Cond,
        slot: M::Slot,
    ) -> Armed<M::Slot> {
        let threshold = match cond {
            Cond::AtLeast(threshold, _) => threshold,
            Cond::AnyChange(seen) => beyond(seen.value),
        };
        // ORDERING: fully ordered: `due` is written before the value is read.
        // An adder writes the value before it reads `due`, so either it sees the
        // threshold or its value is seen here. Done also where a lower threshold
        // stands already: arming is not the fast path.
        gate.due.swap(self.bound().min(announced(threshold)));
        let over = match cond {
            Cond::AtLeast(threshold, _) if gate.read() >= threshold => Some(Outcome::Reached),
            Cond::AtLeast(_, since) if self.err_changed(since) => Some(Outcome::ErrorChanged),
            Cond::AnyChange(seen) if self.changed(gate, &seen) => Some(Outcome::Reached),
            Cond::AtLeast(..) | Cond::AnyChange(_) => None,
        };
        if let Some(outcome) = over {
            self.announce(gate);
            return Armed::Over(outcome, slot);
        }
        let (line, key) = match cond {
            Cond::AtLeast(..) => (Line::AtLeast, self.at_least.insert(threshold, slot)),
            Cond::AnyChange(seen) => (Line::AnyChange, self.any_change.insert(seen.value, slot)),
        };
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
            self.release_reached(gate.max(), &mut release);
            self.release_any_change(&mut release);
        } else {
            // The value did not fall since the add, or a set released who was
            // due by then.
            let value = gate.read();
            self.release_reached(value, &mut release);
            // All who have seen less. (A value of 0 changed from nothing.)
            while let Some((_, token)) = value
                .checked_sub(1)
                .and_then(|less| self.any_change.pop_due(less))
            {
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
        if value > gate.max() {
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
    /// modulo the maximum + 1. Gives whether that is a change: an add of 0, or of all values, is none.
    pub fn add_err<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        n: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> bool {
        let old = gate.err.load();
        let (err, _) = gate.sum(old, n);
        if err == old {
            return false;
        }
        self.write_err(gate, err, release);
        true
    }

    /// Sets the error value (kfi_cntr_seterr). Gives whether that is a change: setting
    /// it to what it was is none.
    ///
    /// Errors: EINVAL above the counter's maximum; nothing is changed.
    pub fn set_err<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        err: u64,
        release: impl FnMut(M::Token, Outcome),
    ) -> Result<bool> {
        if err > gate.max() {
            return Err(Errno::EINVAL);
        }
        if err == gate.err.load() {
            return Ok(false);
        }
        self.write_err(gate, err, release);
        Ok(true)
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
        self.err_changes = self.err_changes.wrapping_add(1);
        // Success is looked at first.
        self.release_reached(gate.read(), &mut release);
        self.release_any_change(&mut release);
        while let Some((_, token)) = self.at_least.pop() {
            release(token, Outcome::ErrorChanged);
        }
        self.announce(gate);
    }

    /// Takes all waiters out of the line, for a counter that is closed by force.
    /// Nothing else changes.
    pub fn release_all<V: Word, D: Word>(
        &mut self,
        gate: &Gate<V, D>,
        mut release: impl FnMut(M::Token),
    ) {
        while let Some((_, token)) = self.at_least.pop() {
            release(token);
        }
        while let Some((_, token)) = self.any_change.pop() {
            release(token);
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

    /// What `due` is to be for those in line.
    #[inline]
    fn bound(&self) -> u64 {
        let at_least = self.at_least.lowest().map_or(NOBODY, announced);
        match self.any_change.lowest() {
            None => at_least,
            Some(seen) => at_least.min(announced(beyond(seen))),
        }
    }

    /// Makes `due` fit who is in line, after somebody left it.
    fn announce<V: Word, D: Word>(&self, gate: &Gate<V, D>) {
        // ORDERING: none needed. This raises `due`, to the lowest threshold at
        // most; an adder that still reads the lower one comes to the lock for
        // nothing. Whoever is in line was written to `due` by its own `arm`.
        gate.due.store(self.bound());
    }
}

/// How a threshold stands in `due`, where the largest stands for nobody.
#[inline]
fn announced(threshold: u64) -> u64 {
    threshold.min(NOBODY.wrapping_sub(1))
}

/// The threshold that any change of this value upwards meets. There is none above
/// 2^64 - 1, but `due` never stands there: an add to it comes to the lock.
fn beyond(seen: u64) -> u64 {
    seen.saturating_add(1)
}

#[cfg(any(test, kfi_kunit))]
mod tests;
