// SPDX-License-Identifier: GPL-2.0
//! The address vector (AV), which maps `kfi_addr_t` to socket addresses and back.
//!
//! An [`Av`] is a table of addresses with a hash index, both in memory that the caller lends and
//! can replace by larger memory ([`Av::grow`]).
//!
//! # Values
//!
//! - `KFI_AV_TABLE`: the `kfi_addr_t` is the index in the table. An insertion takes the lowest free
//!   index, so insertions into an AV without removals give 0, 1, 2, ... The index of a removed
//!   address is reused, and an old value then refers to the new address.
//! - `KFI_AV_MAP`: the `kfi_addr_t` consists of the index and the generation of the table entry. A
//!   removed value is not found (`ENOENT`), even if its entry is in use again, until the entry has
//!   been reused 2^28 times. Values stay below 2^48, because kfi_rx_addr() puts the number of a
//!   receive context into the upper bits. No value is `KFI_ADDR_UNSPEC`.
//!
//! # Duplicate addresses
//!
//! Each insertion of the same address makes an entry with its own value, which is removed
//! separately. [`Av::reverse`], which finds the value of a message's source, returns the value of
//! the oldest entry.
//!
//! # Removal of several addresses
//!
//! A call removes several addresses or none, although the lock is not held throughout. It first
//! marks each address ([`Av::mark`]). Marking fails if the address is not in the AV or is marked
//! already, so a list that contains an address twice is refused. Then the call removes each
//! address, or, if a mark failed, takes the marks back ([`Av::unmark`]). A mark has no other
//! effect: lookups find a marked address.
//!
//! # Cost
//!
//! The hash index is at most half full and has one slot for each distinct address. Entries with the
//! same address form a ring in the order of insertion. Every operation therefore takes O(1),
//! however often an address is inserted, except for the search for the lowest free index after
//! removals, which can take O(n). The hash is keyed with a secret number (`seed`), so an attacker
//! cannot choose addresses that collide.
//!
//! No function panics. Context: any, under the AV's lock.

mod index;
mod symmetric;

pub use self::{
    index::{
        index_len,
        IndexSlot, //
    },
    symmetric::Symmetric, //
};

use self::index::Index;
use crate::{
    addr::SockAddr,
    enums::AvType,
    errno::Errno,
    flags, //
};
use core::{
    mem,
    net::IpAddr,
    ops::DerefMut, //
};

/// The number of index bits in a `KFI_AV_MAP` value.
const INDEX_BITS: u32 = 20;
/// The number of generation bits in a `KFI_AV_MAP` value.
const GENERATION_BITS: u32 = 28;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(crate::limits::MAX_AV <= 1 << INDEX_BITS);

/// A slot for one address.
#[derive(Clone, Copy, Debug)]
pub struct AvSlot {
    addr: Option<SockAddr>,
    generation: u32,
    /// The address is marked for removal. False if there is no address.
    marked: bool,
    /// The ring of the entries with this address, in the order of insertion.
    next: u32,
    prev: u32,
}

impl AvSlot {
    /// Returns an empty slot, to initialise storage.
    pub const fn new() -> Self {
        Self {
            addr: None,
            generation: 0,
            marked: false,
            next: 0,
            prev: 0,
        }
    }
}

impl Default for AvSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Storage of the wrong size: not [`index_len`] index slots, or fewer address slots than before.
/// Returns the storage to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageMismatch<T, X>(pub T, pub X);

/// An address vector.
///
/// # Invariants
///
/// Each distinct address of `slots` has one slot in `index`, which contains the oldest entry with
/// that address. From that entry `next` leads through all entries with this address in the order of
/// insertion, and back to it; `prev` leads in the other direction. All indices below `lowest` are
/// in use. Only a slot with an address is marked.
#[derive(Debug)]
pub struct Av<T, X> {
    kind: AvType,
    slots: T,
    index: Index<X>,
    seed: u64,
    lowest: u32,
    len: u32,
}

impl<T, X> Av<T, X>
where
    T: DerefMut<Target = [AvSlot]>,
    X: DerefMut<Target = [IndexSlot]>,
{
    /// Makes an empty AV of type `kind` (`Unspec` is a table) with room for as many addresses as
    /// there are `slots`. `seed` is random.
    ///
    /// # Errors
    ///
    /// [`StorageMismatch`]: the length of `index` is not [`index_len`], or there are more than 2^20
    /// slots.
    pub fn new(kind: AvType, slots: T, index: X, seed: u64) -> Result<Self, StorageMismatch<T, X>> {
        if slots.len() > 1 << INDEX_BITS || index.len() != index_len(slots.len()) {
            return Err(StorageMismatch(slots, index));
        }
        let kind = match kind {
            AvType::Map => AvType::Map,
            AvType::Unspec | AvType::Table => AvType::Table,
        };
        let mut av = Self {
            kind,
            slots,
            index: Index::new(index),
            seed,
            lowest: 0,
            len: 0,
        };
        av.slots.fill(AvSlot::new());
        Ok(av)
    }

    /// Returns the type: a table or a map.
    pub fn kind(&self) -> AvType {
        self.kind
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of addresses in the present storage.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether an insertion would fail for lack of room.
    pub fn is_full(&self) -> bool {
        usize::try_from(self.len).is_ok_and(|len| len >= self.slots.len())
    }

    /// Inserts an address. Returns its `kfi_addr_t`.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: there is no room; the AV can [`grow`](Self::grow).
    pub fn insert(&mut self, addr: SockAddr) -> Result<u64, Errno> {
        let free = self
            .indices()
            .skip(usize::try_from(self.lowest).unwrap_or(usize::MAX))
            .find(|index| self.slot(*index).is_some_and(|slot| slot.addr.is_none()))
            .ok_or(Errno::ENOSPC)?;
        self.enter(free, &addr);
        self.slot_mut(free).ok_or(Errno::ENOSPC)?.addr = Some(addr);
        // INVARIANT: All indices up to `free`, included, are in use.
        self.lowest = free.wrapping_add(1);
        self.len = self.len.wrapping_add(1);
        self.value(free).ok_or(Errno::ENOSPC)
    }

    /// Returns the address of a `kfi_addr_t`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the value is not in the AV.
    pub fn lookup(&self, fi_addr: u64) -> Result<SockAddr, Errno> {
        let index = self.index_of(fi_addr)?;
        self.slot(index)
            .and_then(|slot| slot.addr)
            .ok_or(Errno::ENOENT)
    }

    /// Returns the `kfi_addr_t` of an address. If there are several, returns the oldest.
    pub fn reverse(&self, addr: &SockAddr) -> Option<u64> {
        let first = self.first(addr)?;
        self.value(first)
    }

    /// Returns the `kfi_addr_t` of an address, or `KFI_ADDR_NOTAVAIL` if it is not in the AV.
    /// Completions report their source in this form.
    pub fn source(&self, addr: &SockAddr) -> u64 {
        self.reverse(addr).unwrap_or(flags::KFI_ADDR_NOTAVAIL)
    }

    /// Removes a `kfi_addr_t`. Returns its address.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the value is not in the AV.
    pub fn remove(&mut self, fi_addr: u64) -> Result<SockAddr, Errno> {
        let index = self.index_of(fi_addr)?;
        let slot = self.slot_mut(index).ok_or(Errno::ENOENT)?;
        let addr = slot.addr.take().ok_or(Errno::ENOENT)?;
        // INVARIANT: A slot without an address is not marked.
        slot.marked = false;
        let (next, prev) = (slot.next, slot.prev);
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.len = self.len.wrapping_sub(1);
        self.lowest = self.lowest.min(index);
        self.leave(index, &addr, next, prev);
        Ok(addr)
    }

    /// Marks a `kfi_addr_t` for removal. The mark stays until [`remove`](Self::remove) or
    /// [`unmark`](Self::unmark) and does not affect lookups.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the value is not in the AV, or is already marked.
    pub fn mark(&mut self, fi_addr: u64) -> Result<(), Errno> {
        let index = self.index_of(fi_addr)?;
        let slot = self.slot_mut(index).ok_or(Errno::ENOENT)?;
        if slot.addr.is_none() || slot.marked {
            return Err(Errno::ENOENT);
        }
        slot.marked = true;
        Ok(())
    }

    /// Removes the mark of a `kfi_addr_t`, if it has one.
    pub fn unmark(&mut self, fi_addr: u64) {
        if let Ok(index) = self.index_of(fi_addr) {
            if let Some(slot) = self.slot_mut(index) {
                slot.marked = false;
            }
        }
    }

    /// Moves all entries to larger storage. Returns the old storage, which the caller frees without
    /// holding the lock.
    ///
    /// # Errors
    ///
    /// [`StorageMismatch`]: the length of `index` is not [`index_len`], or there are fewer slots
    /// than before or more than 2^20. The AV is unchanged.
    pub fn grow(&mut self, slots: T, index: X) -> Result<(T, X), StorageMismatch<T, X>> {
        let fits = slots.len() >= self.slots.len()
            && slots.len() <= 1 << INDEX_BITS
            && index.len() == index_len(slots.len());
        if !fits {
            return Err(StorageMismatch(slots, index));
        }
        let old_slots = mem::replace(&mut self.slots, slots);
        let old_index = mem::replace(&mut self.index, Index::new(index));
        self.slots.fill(AvSlot::new());
        for (to, from) in self.slots.iter_mut().zip(old_slots.iter()) {
            *to = *from;
        }
        // INVARIANT: The rings are unchanged. The oldest entry of each ring was in the old index
        // and is inserted into the new one.
        for first in old_index.entries() {
            if let Some(addr) = self.slot(first).and_then(|slot| slot.addr) {
                self.index.insert(hash(self.seed, &addr), first);
            }
        }
        Ok((old_slots, old_index.into_slots()))
    }

    /// Iterates over the addresses in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u64, SockAddr)> + '_ {
        self.indices().filter_map(|index| {
            let addr = self.slot(index)?.addr?;
            Some((self.value(index)?, addr))
        })
    }

    fn indices(&self) -> core::ops::Range<u32> {
        // There are at most 2^20 slots.
        0..u32::try_from(self.slots.len()).unwrap_or(0)
    }

    fn slot(&self, index: u32) -> Option<&AvSlot> {
        self.slots.get(usize::try_from(index).ok()?)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut AvSlot> {
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// Returns the `kfi_addr_t` of a slot.
    fn value(&self, index: u32) -> Option<u64> {
        let generation = match self.kind {
            AvType::Map => self.slot(index)?.generation,
            AvType::Unspec | AvType::Table => 0,
        };
        Some(u64::from(generation) << INDEX_BITS | u64::from(index))
    }

    /// Returns the slot index of a `kfi_addr_t`. The slot may be empty.
    fn index_of(&self, fi_addr: u64) -> Result<u32, Errno> {
        let index = match self.kind {
            AvType::Map => fi_addr & ((1 << INDEX_BITS) - 1),
            AvType::Unspec | AvType::Table => fi_addr,
        };
        let index = u32::try_from(index).map_err(|_| Errno::ENOENT)?;
        if self.value(index) != Some(fi_addr) {
            return Err(Errno::ENOENT);
        }
        Ok(index)
    }

    /// Returns the oldest entry with this address.
    fn first(&self, addr: &SockAddr) -> Option<u32> {
        let is = |index| self.slot(index).and_then(|slot| slot.addr) == Some(*addr);
        Some(self.index.find(hash(self.seed, addr), is)?.entry)
    }

    /// Adds an entry to the ring of its address and, if it is the first, to the index. The slot
    /// does not have the address yet.
    fn enter(&mut self, index: u32, addr: &SockAddr) {
        match self.first(addr) {
            None => {
                // INVARIANT: The entry forms a ring of its own.
                self.link(index, index);
                self.index.insert(hash(self.seed, addr), index);
            }
            Some(first) => {
                // INVARIANT: The last entry of a ring precedes the first one; `index` is inserted
                // between them.
                let last = self.slot(first).map_or(first, |slot| slot.prev);
                self.link(last, index);
                self.link(index, first);
            }
        }
    }

    /// Reverts [`Self::enter`]. The slot no longer has the address; `next` and `prev` were its
    /// neighbours in the ring.
    fn leave(&mut self, index: u32, addr: &SockAddr, next: u32, prev: u32) {
        self.link(prev, next);
        let seed = self.seed;
        let Some(position) = self.index.find(hash(seed, addr), |at| at == index) else {
            // The entry was not the oldest of its ring.
            return;
        };
        if next != index {
            self.index.set(position.at, next);
            return;
        }
        let slots = &self.slots;
        self.index.remove(position, |index| {
            let slot = slots.get(usize::try_from(index).ok()?)?;
            Some(hash(seed, &slot.addr?))
        });
    }

    fn link(&mut self, left: u32, right: u32) {
        if let Some(slot) = self.slot_mut(left) {
            slot.next = right;
        }
        if let Some(slot) = self.slot_mut(right) {
            slot.prev = left;
        }
    }
}

/// Returns the keyed hash of an address: three words, each combined by a 128-bit multiplication.
/// The hash is not cryptographic, but its collisions cannot be predicted without the key.
fn hash(seed: u64, addr: &SockAddr) -> u64 {
    let (high, low) = match addr.ip() {
        IpAddr::V4(ip) => (0, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            // The truncation is intended.
            ((bits >> 64) as u64, bits as u64)
        }
    };
    let rest =
        u64::from(addr.scope()) << 32 | u64::from(addr.family()) << 16 | u64::from(addr.port());
    [high, low, rest]
        .iter()
        .fold(seed, |hash, word| fold(hash ^ word, seed))
}

/// Mixes two words: XORs the halves of their product. The constants are bit patterns without
/// regularity. The factor made from `b` is odd, so it is never 0.
fn fold(a: u64, b: u64) -> u64 {
    let a = u128::from(a.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let b = u128::from((b ^ 0xd6e8_feb8_6659_fd93) | 1);
    let product = a.wrapping_mul(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(any(test, kfi_kunit))]
mod tests;
