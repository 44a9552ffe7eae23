// SPDX-License-Identifier: GPL-2.0
//! Operations by their number, over memory that the caller brings.
//!
//! A [`Session`](super::Session) has as many operations as there are, in the order of their numbers,
//! and no memory of its own. Who posts one brings a slot, the memory for it, got beforehand; so
//! nothing here can fail. In the module that is a red-black tree and its nodes, in tests a `BTreeMap`.
//!
//! Every function is at most O(log n).

/// An ordered map from numbers to `V`.
pub trait Store<V> {
    /// Memory for one entry.
    type Slot;

    /// Puts an entry in. Its key is not there yet.
    fn insert(&mut self, key: u64, value: V, slot: Self::Slot);

    /// The entry with this key.
    fn get(&self, key: u64) -> Option<&V>;

    /// The entry with this key, to be changed.
    fn get_mut(&mut self, key: u64) -> Option<&mut V>;

    /// Takes the entry with this key out and frees its slot.
    fn remove(&mut self, key: u64) -> Option<V>;

    /// The smallest key that is at least `from`.
    fn next(&self, from: u64) -> Option<u64>;

    /// Whether there is no entry.
    fn is_empty(&self) -> bool {
        self.next(0).is_none()
    }
}

/// What a [`Session`](super::Session) is made over.
pub trait Stores {
    /// An operation, as its endpoint knows it.
    type Op;
    /// A receive that is being filled by reading, likewise.
    type Receive;
    /// Messages to be sent.
    type Sends: Store<super::ops::Send<Self::Op>>;
    /// RMA operations.
    type Rmas: Store<super::ops::Rma<Self::Op>>;
    /// What is owed to the peer.
    type Answers: Store<super::answer::Answer<Self::Receive>>;
}
