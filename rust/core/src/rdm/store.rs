// SPDX-License-Identifier: GPL-2.0
//! The interface to the maps of a session, which are in memory of the caller.
//!
//! A [`Session`](super::Session) has any number of operations, ordered by their numbers, and no
//! memory of its own. The caller provides a slot, the memory for an entry, with each operation, so
//! insertion cannot fail. In the module the map is a red-black tree and the slots are its nodes; in
//! tests it is a `BTreeMap`.
//!
//! Each function takes at most O(log n).

/// An ordered map from numbers to `V`.
pub trait Store<V> {
    /// The memory for one entry.
    type Slot;

    /// Inserts an entry. There is no entry with this key.
    fn insert(&mut self, key: u64, value: V, slot: Self::Slot);

    /// Returns the entry with this key.
    fn get(&self, key: u64) -> Option<&V>;

    /// Returns a mutable reference to the entry with this key.
    fn get_mut(&mut self, key: u64) -> Option<&mut V>;

    /// Removes the entry with this key and frees its slot.
    fn remove(&mut self, key: u64) -> Option<V>;

    /// Returns the smallest key that is at least `from`.
    fn next(&self, from: u64) -> Option<u64>;

    /// Returns whether there is no entry.
    fn is_empty(&self) -> bool {
        self.next(0).is_none()
    }
}

/// The types of a [`Session`](super::Session).
pub trait Stores {
    /// The data of an operation for the endpoint.
    type Op;
    /// The data of a receive that is being filled by READs, or of an atomic whose old values are
    /// sent.
    type Receive;
    /// The messages to be sent.
    type Sends: Store<super::ops::Send<Self::Op>>;
    /// The RMA operations.
    type Rmas: Store<super::ops::Rma<Self::Op>>;
    /// The answers to messages of the peer.
    type Answers: Store<super::answer::Answer<Self::Receive>>;
}
