// SPDX-License-Identifier: GPL-2.0
//! A fixed number of slots, lent by the caller, whose values are kept in an order.
//!
//! The queues of posted receives and unexpected messages need to remove entries from the middle. A
//! [`Slab`] is such a queue without memory of its own. Its [`Slot`]s are a slice that the caller
//! allocated before (in the kernel a `KVVec`, in tests a `Vec`), and the order is a doubly linked
//! list of slot numbers. Free slots form a second list.
//!
//! - [`Slab::push_back`] appends a value, O(1). If no slot is free, it returns the value in
//!   [`Full`].
//! - [`Slab::remove`] removes a value at any position and returns its sequence number, O(1).
//! - [`Slab::put_back`] restores a value at its position: before the first value with a later
//!   number. O(1) at the front of the queue, the usual position; otherwise O(n).
//! - [`Slab::iter`] and the cursor [`Slab::front`], [`Slab::next`] visit the values in order.
//!
//! An [`Id`] identifies a value by its slot number and the generation of the slot, which changes
//! when the value is removed. An old id therefore finds nothing.
//!
//! No function panics: an invalid slot number, which cannot occur, is treated as the end of the
//! list.

use core::ops::DerefMut;

/// The slot number that marks the end of a list.
const END: u32 = u32::MAX;

/// Memory for a [`Slab`]: any type that dereferences to a slice of slots.
///
/// Examples: `Vec<Slot<T>>`, `KVVec<Slot<T>>`, `Box<[Slot<T>]>`, `&mut [Slot<T>]`.
pub trait Storage<T>: DerefMut<Target = [Slot<T>]> {}

impl<T, S: DerefMut<Target = [Slot<T>]>> Storage<T> for S {}

/// A slot for one value.
#[derive(Debug)]
pub struct Slot<T> {
    generation: u32,
    prev: u32,
    next: u32,
    seq: u64,
    value: Option<T>,
}

impl<T> Slot<T> {
    /// Returns an empty slot, to initialise storage.
    pub const fn new() -> Self {
        Self {
            generation: 0,
            prev: END,
            next: END,
            seq: 0,
            value: None,
        }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The identifier of a value in a [`Slab`]. It becomes invalid when the value is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    index: u32,
    generation: u32,
}

/// No slot is free. Returns the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// A removed value with its position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed<T> {
    /// The sequence number, for [`Slab::put_back`].
    pub seq: u64,
    /// The value.
    pub value: T,
}

/// A queue in lent slots.
///
/// # Invariants
///
/// A slot is in exactly one of two lists. Slots with a value are in the list from `head` to `tail`,
/// in which `seq` increases and `prev` and `next` agree. Slots without a value are in the list from
/// `free`, linked by `next`. `len` is the number of values.
#[derive(Debug)]
pub struct Slab<T, S: Storage<T>> {
    slots: S,
    head: u32,
    tail: u32,
    free: u32,
    len: u32,
    next_seq: u64,
    _values: core::marker::PhantomData<T>,
}

impl<T, S: Storage<T>> Slab<T, S> {
    /// Makes a queue with the slots of `slots`, and drops their contents. Slots beyond 2^32 - 2 are
    /// not used.
    pub fn new(slots: S) -> Self {
        let mut slab = Self {
            slots,
            head: END,
            tail: END,
            free: END,
            len: 0,
            next_seq: 0,
            _values: core::marker::PhantomData,
        };
        // INVARIANT: Every slot is put into the free list, the first one at its front.
        for index in (0..slab.capacity()).rev() {
            let free = slab.free;
            if let Some(slot) = slab.slot_mut(index) {
                slot.value = None;
                slot.prev = END;
                slot.next = free;
                slab.free = index;
            }
        }
        slab
    }

    /// Returns the maximum number of values.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(END).min(END - 1)
    }

    /// Returns the number of values.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether no slot is free.
    pub fn is_full(&self) -> bool {
        self.free == END
    }

    /// Appends `value`.
    ///
    /// # Errors
    ///
    /// [`Full`]: no slot is free.
    pub fn push_back(&mut self, value: T) -> Result<Id, Full<T>> {
        let seq = self.next_seq;
        let id = self.fill(seq, value, self.tail)?;
        // The number of values never reaches 2^64.
        self.next_seq = seq.wrapping_add(1);
        Ok(id)
    }

    /// Restores a value at the position from which [`Self::remove`] took it. It gets a new [`Id`].
    ///
    /// # Errors
    ///
    /// [`Full`]: its slot was used for another value in the meantime, and no other is free.
    pub fn put_back(&mut self, removed: Removed<T>) -> Result<Id, Full<Removed<T>>> {
        let mut before = END;
        let mut cursor = self.head;
        while let Some(slot) = self.slot(cursor) {
            if slot.seq > removed.seq {
                break;
            }
            before = cursor;
            cursor = slot.next;
        }
        let Removed { seq, value } = removed;
        self.fill(seq, value, before)
            .map_err(|Full(value)| Full(Removed { seq, value }))
    }

    /// Returns the value with this `id`.
    pub fn get(&self, id: Id) -> Option<&T> {
        self.slot(id.index)
            .filter(|slot| slot.generation == id.generation)?
            .value
            .as_ref()
    }

    /// Returns a mutable reference to the value with this `id`.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slot_mut(id.index)
            .filter(|slot| slot.generation == id.generation)?
            .value
            .as_mut()
    }

    /// Removes the value with this `id`.
    pub fn remove(&mut self, id: Id) -> Option<Removed<T>> {
        let free = self.free;
        let slot = self
            .slot_mut(id.index)
            .filter(|slot| slot.generation == id.generation)?;
        let value = slot.value.take()?;
        let (seq, prev, next) = (slot.seq, slot.prev, slot.next);
        // INVARIANT: The slot leaves the list of values, whose neighbours are linked, and becomes
        // the front of the free list.
        slot.generation = slot.generation.wrapping_add(1);
        slot.prev = END;
        slot.next = free;
        self.free = id.index;
        self.link(prev, next);
        self.len = self.len.wrapping_sub(1);
        Some(Removed { seq, value })
    }

    /// Removes the first value.
    pub fn pop_front(&mut self) -> Option<Removed<T>> {
        let id = self.front()?;
        self.remove(id)
    }

    /// Returns the id of the first value.
    pub fn front(&self) -> Option<Id> {
        self.id(self.head)
    }

    /// Returns the id of the value after `id`; `None` also if the value with `id` was removed.
    pub fn next(&self, id: Id) -> Option<Id> {
        let slot = self
            .slot(id.index)
            .filter(|slot| slot.generation == id.generation && slot.value.is_some())?;
        self.id(slot.next)
    }

    /// Iterates over the values in order.
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter {
            slab: self,
            cursor: self.head,
        }
    }

    /// Returns the id of the first value, in order, for which `want` holds. O(n).
    #[inline(always)]
    pub fn find(&self, mut want: impl FnMut(&T) -> bool) -> Option<Id> {
        // It is usually the first one, if there is any.
        let first = self.slot(self.head)?;
        if first.value.as_ref().is_some_and(&mut want) {
            return self.id(self.head);
        }
        self.find_further(want)
    }

    #[inline(never)]
    fn find_further(&self, mut want: impl FnMut(&T) -> bool) -> Option<Id> {
        self.iter().find(|(_, value)| want(value)).map(|(id, _)| id)
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.slots.get(usize::try_from(index).ok()?)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    fn id(&self, index: u32) -> Option<Id> {
        self.slot(index).map(|slot| Id {
            index,
            generation: slot.generation,
        })
    }

    /// Puts a value into a free slot and inserts it after `before` (`END`: at the front).
    fn fill(&mut self, seq: u64, value: T, before: u32) -> Result<Id, Full<T>> {
        let after = match self.slot(before) {
            Some(slot) => slot.next,
            None => self.head,
        };
        let index = self.free;
        let Some(slot) = self.slot_mut(index) else {
            return Err(Full(value));
        };
        let next_free = slot.next;
        let generation = slot.generation;
        // INVARIANT: The slot leaves the front of the free list and is inserted between `before`
        // and `after`, which were neighbours.
        slot.seq = seq;
        slot.value = Some(value);
        self.free = next_free;
        self.link(before, index);
        self.link(index, after);
        self.len = self.len.wrapping_add(1);
        Ok(Id { index, generation })
    }

    /// Links two slots as neighbours; `END` stands for the end of the list on that side.
    fn link(&mut self, left: u32, right: u32) {
        match self.slot_mut(left) {
            Some(slot) => slot.next = right,
            None => self.head = right,
        }
        match self.slot_mut(right) {
            Some(slot) => slot.prev = left,
            None => self.tail = left,
        }
    }
}

/// An iterator over the values of a [`Slab`] in order, with their ids. Made by [`Slab::iter`].
#[derive(Debug)]
pub struct Iter<'a, T, S: Storage<T>> {
    slab: &'a Slab<T, S>,
    cursor: u32,
}

impl<'a, T, S: Storage<T>> Iterator for Iter<'a, T, S> {
    type Item = (Id, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        let slot = self.slab.slot(self.cursor)?;
        let id = Id {
            index: self.cursor,
            generation: slot.generation,
        };
        self.cursor = slot.next;
        slot.value.as_ref().map(|value| (id, value))
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_slab))]
mod tests {
    use super::*;

    fn slots() -> [Slot<u32>; 3] {
        [Slot::new(), Slot::new(), Slot::new()]
    }

    fn order(slab: &Slab<u32, &mut [Slot<u32>]>) -> [Option<u32>; 4] {
        let mut values = slab.iter().map(|(_, value)| *value);
        [values.next(), values.next(), values.next(), values.next()]
    }

    #[test]
    fn order_is_kept() {
        let mut slots = slots();
        let mut slab = Slab::new(&mut slots[..]);
        assert!(slab.is_empty());
        assert_eq!(slab.capacity(), 3);
        assert!(slab.push_back(10).is_ok());
        let second = slab.push_back(11).ok();
        assert!(slab.push_back(12).is_ok());
        assert!(slab.is_full());
        assert_eq!(slab.push_back(13), Err(Full(13)));
        assert_eq!(order(&slab), [Some(10), Some(11), Some(12), None]);
        assert_eq!(
            second.and_then(|id| slab.remove(id)).map(|r| r.value),
            Some(11)
        );
        assert_eq!(order(&slab), [Some(10), Some(12), None, None]);
        assert!(slab.push_back(14).is_ok());
        assert_eq!(order(&slab), [Some(10), Some(12), Some(14), None]);
        assert_eq!(slab.len(), 3);
        assert_eq!(slab.pop_front().map(|r| r.value), Some(10));
        assert_eq!(slab.pop_front().map(|r| r.value), Some(12));
        assert_eq!(slab.pop_front().map(|r| r.value), Some(14));
        assert_eq!(slab.pop_front(), None);
        assert_eq!(order(&slab), [None; 4]);
        assert!(slab.is_empty());
    }

    #[test]
    fn old_ids_find_nothing() -> Result<(), ()> {
        let mut slots = slots();
        let mut slab = Slab::new(&mut slots[..]);
        let old = slab.push_back(1).map_err(|_| ())?;
        assert!(slab.remove(old).is_some());
        assert!(slab.push_back(2).is_ok());
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.get_mut(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.next(old), None);
        assert_eq!(order(&slab), [Some(2), None, None, None]);
        Ok(())
    }

    #[test]
    fn put_back_to_front_middle_and_end() -> Result<(), ()> {
        let mut slots = slots();
        let mut slab = Slab::new(&mut slots[..]);
        for value in 0..3 {
            assert!(slab.push_back(value).is_ok());
        }
        for value in 0..3 {
            let id = slab.find(|v| *v == value);
            let removed = id.and_then(|id| slab.remove(id)).ok_or(())?;
            assert!(slab.put_back(removed).is_ok());
            assert_eq!(order(&slab), [Some(0), Some(1), Some(2), None]);
        }
        let removed = slab.pop_front().ok_or(())?;
        assert!(slab.push_back(3).is_ok());
        assert_eq!(
            slab.put_back(removed),
            Err(Full(Removed { seq: 0, value: 0 }))
        );
        assert_eq!(order(&slab), [Some(1), Some(2), Some(3), None]);
        Ok(())
    }
}
