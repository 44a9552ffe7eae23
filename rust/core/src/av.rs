// SPDX-License-Identifier: GPL-2.0
//! The address vector: `kfi_addr_t` to socket address, and back.
//!
//! An [`Av`] is a table of addresses and a hash index over it, both in memory that the caller
//! lends and can replace by larger ([`Av::grow`]).
//!
//! # Values
//!
//! - `KFI_AV_TABLE`: the `kfi_addr_t` is the index in the table. An insertion takes the lowest
//!   index that is free, so insertions into an AV from which nothing was removed give 0, 1, 2, ...
//!   A removed index is given again, and an old value then names the new address: that is what a
//!   table is.
//! - `KFI_AV_MAP`: index and generation of the table's entry. A value that was removed names
//!   nothing (`ENOENT`), though its entry be in use again, until the entry has been reused 2^28
//!   times. Values stay below 2^48: the upper bits are those in which kfi_rx_addr() puts the number
//!   of a receive context, and no value is `KFI_ADDR_UNSPEC`.
//!
//! # The same address twice
//!
//! is two entries with two values; each is removed by itself. [`Av::reverse`], which names the
//! sources of messages, gives the one that was inserted first of those there are.
//!
//! # Several at once
//!
//! Removal of several addresses, all or none, under a lock that is not held throughout: each is
//! marked first ([`Av::mark`]), which fails for one that is not there and for one marked already,
//! so that a list with an address twice is refused; then each is removed, or, if a mark failed,
//! those made are taken back ([`Av::unmark`]). A mark changes nothing else: a marked address is
//! found as before.
//!
//! # Cost
//!
//! The hash index, at most half full, has one place for each different address; entries with the
//! same address hang on the first of them in a ring, in the order of insertion. So all that is done
//! here takes O(1), however often one address is inserted, but for the search for the lowest free
//! index after removals, which can take O(n). The hash is keyed with a number that a stranger
//! cannot know (`seed`), lest it choose addresses that collide.
//!
//! Nothing here panics. Context: any, under the AV's lock.

mod index;

pub use self::index::{
    index_len,
    IndexSlot, //
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

/// Bits of a `KFI_AV_MAP` value that are the index.
const INDEX_BITS: u32 = 20;
/// Bits of a `KFI_AV_MAP` value that are the generation.
const GENERATION_BITS: u32 = 28;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(crate::limits::MAX_AV <= 1 << INDEX_BITS);

/// Room for one address.
#[derive(Clone, Copy, Debug)]
pub struct AvSlot {
    addr: Option<SockAddr>,
    generation: u32,
    /// To be removed. Never if there is no address.
    marked: bool,
    /// Ring of the entries with this address, in the order of insertion.
    next: u32,
    prev: u32,
}

impl AvSlot {
    /// Returns an empty slot, to fill storage with.
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

/// Storage that does not fit: not [`index_len`] places, or fewer slots than there are. Gives it
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit<T, X>(pub T, pub X);

/// An address vector.
///
/// # Invariants
///
/// Each different address of `slots` has one place in `index`, which names the entry that was
/// inserted first; from that entry, `next` leads through all with this address in the order of
/// insertion, and back; `prev` the other way. All indices below `lowest` are in use. Only a slot
/// with an address is marked.
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
    /// Makes an empty AV of the type `kind` (`Unspec` is a table) with room for as many addresses
    /// as there are `slots`; `seed` is random.
    ///
    /// # Errors
    ///
    /// [`Misfit`]: `index` is not [`index_len`] long, or more than 2^20 slots.
    pub fn new(kind: AvType, slots: T, index: X, seed: u64) -> Result<Self, Misfit<T, X>> {
        if slots.len() > 1 << INDEX_BITS || index.len() != index_len(slots.len()) {
            return Err(Misfit(slots, index));
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

    /// Returns how many addresses there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many addresses there is room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether an insertion would fail for want of room.
    pub fn is_full(&self) -> bool {
        usize::try_from(self.len).is_ok_and(|len| len >= self.slots.len())
    }

    /// Inserts an address; returns its `kfi_addr_t`.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no room; the AV can [`grow`](Self::grow).
    pub fn insert(&mut self, addr: SockAddr) -> Result<u64, Errno> {
        let free = self
            .indices()
            .skip(usize::try_from(self.lowest).unwrap_or(usize::MAX))
            .find(|index| self.slot(*index).is_some_and(|slot| slot.addr.is_none()))
            .ok_or(Errno::ENOSPC)?;
        self.enter(free, &addr);
        self.slot_mut(free).ok_or(Errno::ENOSPC)?.addr = Some(addr);
        // INVARIANT: Up to and including `free` all are in use.
        self.lowest = free.wrapping_add(1);
        self.len = self.len.wrapping_add(1);
        self.value(free).ok_or(Errno::ENOSPC)
    }

    /// Returns the address of a `kfi_addr_t`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not in the AV.
    pub fn lookup(&self, fi_addr: u64) -> Result<SockAddr, Errno> {
        let index = self.index_of(fi_addr)?;
        self.slot(index)
            .and_then(|slot| slot.addr)
            .ok_or(Errno::ENOENT)
    }

    /// Returns the `kfi_addr_t` of an address: of several the one inserted first.
    pub fn reverse(&self, addr: &SockAddr) -> Option<u64> {
        let first = self.first(addr)?;
        self.value(first)
    }

    /// Returns the `kfi_addr_t` of an address, `KFI_ADDR_NOTAVAIL` if it is not there: what a
    /// completion says of its source.
    pub fn source(&self, addr: &SockAddr) -> u64 {
        self.reverse(addr).unwrap_or(flags::KFI_ADDR_NOTAVAIL)
    }

    /// Removes a `kfi_addr_t`; returns its address.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not in the AV.
    pub fn remove(&mut self, fi_addr: u64) -> Result<SockAddr, Errno> {
        let index = self.index_of(fi_addr)?;
        let slot = self.slot_mut(index).ok_or(Errno::ENOENT)?;
        let addr = slot.addr.take().ok_or(Errno::ENOENT)?;
        // INVARIANT: Without an address no mark.
        slot.marked = false;
        let (next, prev) = (slot.next, slot.prev);
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.len = self.len.wrapping_sub(1);
        self.lowest = self.lowest.min(index);
        self.leave(index, &addr, next, prev);
        Ok(addr)
    }

    /// Marks a `kfi_addr_t` as one to be removed, until it is removed or
    /// [`unmark`](Self::unmark)ed. What looks addresses up does not see it.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not in the AV, or marked already.
    pub fn mark(&mut self, fi_addr: u64) -> Result<(), Errno> {
        let index = self.index_of(fi_addr)?;
        let slot = self.slot_mut(index).ok_or(Errno::ENOENT)?;
        if slot.addr.is_none() || slot.marked {
            return Err(Errno::ENOENT);
        }
        slot.marked = true;
        Ok(())
    }

    /// Takes back the mark of a `kfi_addr_t`, if it has one.
    pub fn unmark(&mut self, fi_addr: u64) {
        if let Ok(index) = self.index_of(fi_addr) {
            if let Some(slot) = self.slot_mut(index) {
                slot.marked = false;
            }
        }
    }

    /// Moves everything to larger storage; returns the old, to be freed when the lock is not held.
    ///
    /// # Errors
    ///
    /// [`Misfit`]: `index` is not [`index_len`] long, fewer slots than there are, or more than
    /// 2^20; nothing has changed.
    pub fn grow(&mut self, slots: T, index: X) -> Result<(T, X), Misfit<T, X>> {
        let fits = slots.len() >= self.slots.len()
            && slots.len() <= 1 << INDEX_BITS
            && index.len() == index_len(slots.len());
        if !fits {
            return Err(Misfit(slots, index));
        }
        let old_slots = mem::replace(&mut self.slots, slots);
        let old_index = mem::replace(&mut self.index, Index::new(index));
        self.slots.fill(AvSlot::new());
        for (to, from) in self.slots.iter_mut().zip(old_slots.iter()) {
            *to = *from;
        }
        // INVARIANT: The rings moved as they are; the first entry of each was in the old index and
        // is put in the new.
        for first in old_index.entries() {
            if let Some(addr) = self.slot(first).and_then(|slot| slot.addr) {
                self.index.insert(hash(self.seed, &addr), first);
            }
        }
        Ok((old_slots, old_index.into_places()))
    }

    /// Goes through the addresses, lowest index first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, SockAddr)> + '_ {
        self.indices().filter_map(|index| {
            let addr = self.slot(index)?.addr?;
            Some((self.value(index)?, addr))
        })
    }

    fn indices(&self) -> core::ops::Range<u32> {
        // At most 2^20 of them.
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

    /// Returns the slot of a `kfi_addr_t`, which may be empty.
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

    /// Returns the entry with this address that was inserted first.
    fn first(&self, addr: &SockAddr) -> Option<u32> {
        let is = |index| self.slot(index).and_then(|slot| slot.addr) == Some(*addr);
        let place = self.index.find(hash(self.seed, addr), is)?;
        Some(place.entry)
    }

    /// Makes an entry known under its address, which it has not got yet.
    fn enter(&mut self, index: u32, addr: &SockAddr) {
        match self.first(addr) {
            None => {
                // INVARIANT: A ring by itself.
                self.link(index, index);
                self.index.insert(hash(self.seed, addr), index);
            }
            Some(first) => {
                // INVARIANT: Before the first of a ring comes its last; `index` goes between them.
                let last = self.slot(first).map_or(first, |slot| slot.prev);
                self.link(last, index);
                self.link(index, first);
            }
        }
    }

    /// Undoes [`Self::enter`]. The entry has its address no longer; its neighbours in the ring were
    /// `next` and `prev`.
    fn leave(&mut self, index: u32, addr: &SockAddr, next: u32, prev: u32) {
        self.link(prev, next);
        let seed = self.seed;
        let Some(place) = self.index.find(hash(seed, addr), |at| at == index) else {
            // Not the first of its ring.
            return;
        };
        if next != index {
            self.index.replace(place, next);
            return;
        }
        let slots = &self.slots;
        self.index.remove(place, |index| {
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

/// Hashes an address with a key: three words, each folded in by a multiplication to 128 bits. Not a
/// cryptographic hash; without the key its collisions cannot be told beforehand.
fn hash(seed: u64, addr: &SockAddr) -> u64 {
    let (high, low) = match addr.ip() {
        IpAddr::V4(ip) => (0, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            // The cuts are wanted.
            ((bits >> 64) as u64, bits as u64)
        }
    };
    let rest =
        u64::from(addr.scope()) << 32 | u64::from(addr.family()) << 16 | u64::from(addr.port());
    [high, low, rest]
        .iter()
        .fold(seed, |hash, word| fold(hash ^ word, seed))
}

/// Mixes two words: the two halves of a product, added bit by bit. The constants are bits without a
/// pattern; the factor made of `b` is odd and so never 0.
fn fold(a: u64, b: u64) -> u64 {
    let a = u128::from(a.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let b = u128::from((b ^ 0xd6e8_feb8_6659_fd93) | 1);
    let product = a.wrapping_mul(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(any(test, kfi_kunit))]
mod tests;
