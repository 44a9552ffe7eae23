// SPDX-License-Identifier: GPL-2.0

//! The work that waits for a counter: triggered operations and deferred work.
//!
//! [`Works`] is another part under the lock of the waiters, beside them. A work has a threshold and
//! compares it with one of two values ([`Compared`]): a triggered operation with the success value,
//! deferred work with the sum of the success and the error value. The sum saturates, and thresholds
//! compare as unsigned.
//!
//! Works become due in the order of their thresholds, then in the order in which they were queued,
//! also if one change of the counter passes several; both kinds take part in one order. A work that
//! is due leaves the map for the list of the works that are due ([`WorkMap::make_due`]), whose
//! owner starts them in the order of the list, after the lock was released.
//!
//! # Reached at any moment
//!
//! A work is due if its threshold was reached at any moment after it was queued, like a waiter
//! ([`crate::cntr`]). The values decrease in three cases: a set, a wrap and a lower error value.
//! Each is a change ([`Changes`]) that notes the values before it, with which the works are
//! released. An error value that is lowered while other tasks add may be counted with the adds that
//! are in progress, as if these had come first.
//!
//! Cost: queueing, cancelling and each release O(log n). An add that reaches no threshold does not
//! come here, however many works wait.
//!
//! Source: fi_trigger(3).

use super::values::NO_WAITER;
use crate::due::Key;

#[cfg(doc)]
use super::Changes;

/// Works that one call makes due while the caller holds the lock, at most. It may be a completion
/// of another user's task. The owner of the works makes the rest due
/// ([`Waiters::release_rest`](super::Waiters::release_rest)), and until then no other call makes
/// any due.
pub const BATCH: u32 = 512;

/// The value that a work compares with its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compared {
    /// The success value (KFI_TRIGGER).
    Success,
    /// The success value plus the error value (deferred work).
    Sum,
}

impl Compared {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Success, Self::Sum];

    /// Returns the one that it is of the success value and the sum.
    #[inline]
    pub(super) fn of(self, (success, sum): (u64, u64)) -> u64 {
        match self {
            Self::Success => success,
            Self::Sum => sum,
        }
    }
}

/// The works that wait for a counter, in memory of the caller: for each kind an ordered map from
/// [`Key`], and the list of the works that are due.
pub trait WorkMap {
    /// The memory for a work and the work itself.
    type Slot;

    /// The form in which a work is returned when it is cancelled.
    type Token;

    /// Inserts a work. No two works have the same key.
    fn insert(&mut self, kind: Compared, key: Key, slot: Self::Slot);

    /// Returns the lowest key of a kind.
    fn first(&self, kind: Compared) -> Option<Key>;

    /// Moves the work with the lowest key of a kind to the end of the list of works that are due.
    fn make_due(&mut self, kind: Compared);

    /// Removes the work with this key, if there is one.
    fn remove(&mut self, kind: Compared, key: &Key) -> Option<Self::Token>;

    /// Notes that works whose thresholds are reached are still in the map, because there are more
    /// than [`BATCH`]. The owner calls [`Waiters::release_rest`](super::Waiters::release_rest)
    /// soon.
    fn leave_rest(&mut self) {}
}

/// The map of a counter for which no work waits, and can wait.
pub struct NoWork;

/// A slot that does not exist.
pub enum NoSlot {}

impl WorkMap for NoWork {
    type Slot = NoSlot;
    type Token = NoSlot;

    fn insert(&mut self, _: Compared, _: Key, slot: NoSlot) {
        match slot {}
    }

    fn first(&self, _: Compared) -> Option<Key> {
        None
    }

    fn make_due(&mut self, _: Compared) {}

    fn remove(&mut self, _: Compared, _: &Key) -> Option<NoSlot> {
        None
    }
}

/// The works that wait for a counter.
///
/// Context: under the lock of the waiters.
pub struct Works<W: WorkMap> {
    map: W,
    next_ticket: u64,
    len: u32,
    due_ever: u64,
    /// The success value and the sum of values that were reached while works that they reach are
    /// still in the map.
    reached: Option<(u64, u64)>,
}

impl<W: WorkMap> Works<W> {
    /// Makes an empty `Works`. `map` must be empty.
    pub const fn new(map: W) -> Self {
        Self {
            map,
            next_ticket: 0,
            len: 0,
            due_ever: 0,
            reached: None,
        }
    }

    /// Returns the map.
    pub fn map(&self) -> &W {
        &self.map
    }

    /// Returns the map. A caller that takes works out of it notes their number with
    /// [`Waiters::taken`](super::Waiters::taken).
    pub fn map_mut(&mut self) -> &mut W {
        &mut self.map
    }

    /// Returns the number of works that wait.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether no work waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of works that have become due, ever.
    pub fn due_ever(&self) -> u64 {
        self.due_ever
    }

    /// Returns the lowest threshold of any work.
    pub fn lowest(&self) -> Option<u64> {
        Compared::ALL
            .iter()
            .filter_map(|kind| self.map.first(*kind))
            .map(|key| key.threshold())
            .min()
    }

    /// Takes a number in the order of submission, for a work that is due already and is never in
    /// the map.
    pub fn pass(&mut self) -> u64 {
        self.due_ever = self.due_ever.wrapping_add(1);
        self.take_ticket()
    }

    /// Returns the number in the order of submission that the next work gets.
    pub fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        ticket
    }

    /// Inserts a work. The caller publishes its threshold and then reads the values.
    pub(super) fn insert(&mut self, kind: Compared, threshold: u64, slot: W::Slot) -> Key {
        let key = Key::new(threshold, self.take_ticket());
        self.map.insert(kind, key, slot);
        self.len = self.len.wrapping_add(1);
        key
    }

    /// Removes a work that is not due yet.
    pub(super) fn remove(&mut self, kind: Compared, key: &Key) -> Option<W::Token> {
        let token = self.map.remove(kind, key)?;
        self.len = self.len.wrapping_sub(1);
        Some(token)
    }

    /// Forgets all works of one kind, `count` in number, which the caller has taken out of the map.
    pub(super) fn forget(&mut self, count: u32) {
        self.len = self.len.wrapping_sub(count);
    }

    /// Returns whether works are in the map whose thresholds were reached. No other work may enter
    /// then: the values that these works have reached do not count for it.
    pub(super) fn has_rest(&self) -> bool {
        self.reached.is_some()
    }

    /// Makes the works due whose thresholds these values reach, in order, at most [`BATCH`] of
    /// them. If works were left before, only notes the values: the owner makes these works due,
    /// however often others change the counter meanwhile.
    #[inline(always)]
    pub(super) fn release(&mut self, success: u64, sum: u64) {
        match &mut self.reached {
            Some(before) => *before = (success.max(before.0), sum.max(before.1)),
            None => self.release_batch(success, sum),
        }
    }

    /// Makes the works due whose thresholds these values reach, or values that were noted, in
    /// order, at most [`BATCH`] of them.
    pub(super) fn release_rest(&mut self, success: u64, sum: u64) {
        let (success, sum) = match self.reached.take() {
            Some(before) => (success.max(before.0), sum.max(before.1)),
            None => (success, sum),
        };
        self.release_batch(success, sum);
    }

    #[inline(always)]
    fn release_batch(&mut self, success: u64, sum: u64) {
        if self.len == 0 {
            return;
        }
        for _ in 0..BATCH {
            let Some(kind) = self.next_due(success, sum) else {
                return;
            };
            self.map.make_due(kind);
            self.len = self.len.wrapping_sub(1);
            self.due_ever = self.due_ever.wrapping_add(1);
            if self.len == 0 {
                return;
            }
        }
        self.leave_rest(success, sum);
    }

    /// Leaves the works whose thresholds these values reach to the owner, if there are any.
    pub(super) fn leave_rest(&mut self, success: u64, sum: u64) {
        if self.next_due(success, sum).is_some() {
            self.reached = Some((success, sum));
            self.map.leave_rest();
        }
    }

    /// Returns the kind of the first work in order whose threshold these values reach.
    #[inline]
    fn next_due(&self, success: u64, sum: u64) -> Option<Compared> {
        let due = |kind, reached| {
            let first = self.map.first(kind);
            first.filter(|key| key.threshold() <= reached)
        };
        match (due(Compared::Success, success), due(Compared::Sum, sum)) {
            (Some(one), Some(other)) if other < one => Some(Compared::Sum),
            (Some(_), _) => Some(Compared::Success),
            (None, Some(_)) => Some(Compared::Sum),
            (None, None) => None,
        }
    }

    /// Returns the success value from which a work is due while the error value is `err`. While
    /// works are left, adders do not come to the lock unless the value wraps: the owner reads the
    /// value.
    #[inline]
    pub(super) fn bound(&self, err: u64) -> u64 {
        if self.len == 0 {
            return NO_WAITER;
        }
        if self.has_rest() {
            return NO_WAITER.wrapping_sub(1);
        }
        let success = self.map.first(Compared::Success);
        let sum = self.map.first(Compared::Sum);
        let success = success.map_or(NO_WAITER, |key| success_of(Compared::Success, &key, err));
        sum.map_or(success, |key| {
            success.min(success_of(Compared::Sum, &key, err))
        })
    }
}

/// Returns the success value at which a work is due while the error value is `err`, as `due`
/// represents it.
#[inline]
pub(super) fn success_of(kind: Compared, key: &Key, err: u64) -> u64 {
    let needed = match kind {
        Compared::Success => key.threshold(),
        Compared::Sum => key.threshold().saturating_sub(err),
    };
    needed.min(NO_WAITER.wrapping_sub(1))
}
