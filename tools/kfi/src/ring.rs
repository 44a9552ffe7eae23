// SPDX-License-Identifier: GPL-2.0
//! Reads a CQ without a system call, from its mapped ring.
//!
//! # The ring
//!
//! The kernel writes completions into an array of [`Entry`] and counts them in
//! `tail`; the program takes them and counts in `head`.  Entry *n* stands at
//! *n* modulo the size, a power of two.  Both counts run through all of 64 bits
//! and wrap.
//!
//! ```text
//!   kernel                              program
//!   write entry tail                    load tail        (acquire)
//!   store tail + 1   (release)  ----->  read entries head .. tail
//!   ... head frees entries <----------  store head       (release)
//! ```
//!
//! The acquire makes the entries up to the tail visible; the release keeps the
//! kernel from overwriting an entry that is still being read.
//!
//! Error entries are not in the ring.  While `errors` is not 0, a read gives
//! `KFI_EAVAIL`, as a read by call does, and [`Cq::readerr`] takes them.  The
//! reader loads `errors` after `tail`: the kernel counts an error before it
//! counts the entries that come after it, so none of those is shown first.
//!
//! Completions without a posted operation that found no room are counted in
//! `overruns`; when the ring is empty, a read reports the loss once.  The
//! reader stores the number that it has reported in `overruns_told`, so that
//! the kernel neither reports it again nor keeps descriptors and poll sets
//! ready for it.
//!
//! # Layers
//!
//! [`Consumer`] is the protocol over [`RingMem`], free of pointers: the tests
//! drive it with a model, and loom with every interleaving.  [`RawRing`] is the
//! memory.  Programs use [`CqRing`].

use std::{
    mem::offset_of,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::{
    abi,
    cq::{Cq, CqInner, Entry},
    deadline::Deadline,
    errno::Errno,
    error::{Error, Result},
    map::Mapping,
};

/// The call's name in errors of the ring, which makes no call.
const NAME: &str = "CQ ring";

/// The memory of a ring, with the accesses of the consumer.
pub(crate) trait RingMem {
    /// Completions ever written; acquire.
    fn tail(&self) -> u64;
    /// Error entries waiting.
    fn errors(&self) -> u64;
    /// Completions lost.
    fn overruns(&self) -> u64;
    /// Losses that were reported.
    fn reported(&self) -> u64;
    /// Records the number of losses that were reported.
    fn set_told(&self, overruns: u64);
    /// Completions ever taken, written by the consumer alone.
    fn head(&self) -> u64;
    /// Gives entries back; release.
    fn set_head(&self, head: u64);
    /// Reads the entry at this place.  The place is below the size, `tail` says
    /// that the entry is written, and `head` that it is not given back.
    fn entry<R>(&self, place: u64, look: impl FnOnce(&Entry) -> R) -> R;
}

/// The reading side of a ring.
pub(crate) struct Consumer<M> {
    mem: M,
    /// Entries of the ring, a power of two.
    size: u64,
}

impl<M: RingMem> Consumer<M> {
    pub(crate) fn new(mem: M, size: u64) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { mem, size }
    }

    /// Completions that can be taken.
    #[inline]
    fn queued(&self) -> Result<(u64, u64)> {
        let head = self.mem.head();
        let queued = self.mem.tail().wrapping_sub(head);
        if queued > self.size {
            return Err(Error::Nonsense(
                "a ring with more entries than it has room for",
            ));
        }
        Ok((head, queued))
    }

    /// Passes up to `max` completions to `take`, then gives them back.
    ///
    /// A completion that was passed to `take` counts as taken, also if `take`
    /// panics.
    #[inline]
    fn drain(&mut self, max: usize, mut take: impl FnMut(&Entry)) -> Result<usize> {
        let (head, queued) = self.queued()?;
        // After the tail: an error that came before one of these entries is
        // counted by now.
        if self.mem.errors() != 0 {
            return Err(Error::call(NAME, Errno::KFI_EAVAIL));
        }
        if queued == 0 {
            return self.empty();
        }
        let count = queued.min(max as u64);
        let mut back = GiveBack {
            mem: &self.mem,
            head,
        };
        for _ in 0..count {
            let place = back.head & (self.size - 1);
            back.head = back.head.wrapping_add(1);
            self.mem.entry(place, &mut take);
        }
        Ok(count as usize)
    }

    #[cold]
    fn empty(&mut self) -> Result<usize> {
        let overruns = self.mem.overruns();
        if overruns != self.mem.reported() {
            self.mem.set_told(overruns);
            return Err(Error::call(NAME, Errno::KFI_EOVERRUN));
        }
        Ok(0)
    }
}

/// Stores the new head after the entries were read.
struct GiveBack<'a, M: RingMem> {
    mem: &'a M,
    head: u64,
}

impl<M: RingMem> Drop for GiveBack<'_, M> {
    fn drop(&mut self) {
        self.mem.set_head(self.head);
    }
}

/// The memory of a mapped ring.
struct RawRing {
    head: NonNull<abi::kfabric_cq_ring>,
    entries: NonNull<Entry>,
    size: u64,
    /// Keeps the memory there.
    _mapping: Option<Mapping>,
}

// SAFETY: the words are accessed atomically, the entries by the protocol.
unsafe impl Send for RawRing {}
// SAFETY: as above; taking entries needs `&mut Consumer`.
unsafe impl Sync for RawRing {}

impl RawRing {
    /// The ring in this mapping, if its head has valid values.
    fn new(mapping: Mapping) -> Result<Self> {
        // SAFETY: valid for `len` bytes as long as the mapping, which is kept.
        let ring = unsafe { Self::from_memory(mapping.start(), mapping.len()) }?;
        Ok(Self {
            _mapping: Some(mapping),
            ..ring
        })
    }

    /// The ring in `len` bytes from `start`.
    ///
    /// # Safety
    ///
    /// The memory is valid for reads and writes while the value lives, and
    /// accessed only as described at the top of this file.
    unsafe fn from_memory(start: NonNull<u8>, len: usize) -> Result<Self> {
        let nonsense = Error::Nonsense("a ring that does not fit its mapping");
        if len < size_of::<abi::kfabric_cq_ring>() || !start.cast::<Entry>().is_aligned() {
            return Err(nonsense);
        }
        let head = start.cast::<abi::kfabric_cq_ring>();
        // SAFETY: inside the memory; the kernel does not change these two.
        let (size, offset) = unsafe {
            (
                (*head.as_ptr()).entries,
                (*head.as_ptr()).entry_offset as usize,
            )
        };
        let end = (size as usize)
            .checked_mul(size_of::<Entry>())
            .and_then(|bytes| bytes.checked_add(offset));
        let fits = size.is_power_of_two()
            && offset >= size_of::<abi::kfabric_cq_ring>()
            && offset.is_multiple_of(align_of::<Entry>())
            && end.is_some_and(|end| end <= len);
        if !fits {
            return Err(nonsense);
        }
        Ok(Self {
            head,
            // SAFETY: `offset` is inside the memory.
            entries: unsafe { start.add(offset) }.cast(),
            size: u64::from(size),
            _mapping: None,
        })
    }

    /// The word at this offset of the head.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: callers give the offset of a u64 of the head, which is inside
        // the memory and aligned; all code accesses it atomically.
        unsafe { AtomicU64::from_ptr(self.head.as_ptr().byte_add(offset).cast()) }
    }
}

impl RingMem for RawRing {
    #[inline]
    fn tail(&self) -> u64 {
        self.word(offset_of!(abi::kfabric_cq_ring, tail))
            .load(Acquire)
    }

    #[inline]
    fn errors(&self) -> u64 {
        self.word(offset_of!(abi::kfabric_cq_ring, errors))
            .load(Relaxed)
    }

    #[inline]
    fn overruns(&self) -> u64 {
        self.word(offset_of!(abi::kfabric_cq_ring, overruns))
            .load(Relaxed)
    }

    #[inline]
    fn reported(&self) -> u64 {
        self.word(offset_of!(abi::kfabric_cq_ring, overruns_told))
            .load(Relaxed)
    }

    #[inline]
    fn set_told(&self, overruns: u64) {
        self.word(offset_of!(abi::kfabric_cq_ring, overruns_told))
            .store(overruns, Relaxed);
    }

    #[inline]
    fn head(&self) -> u64 {
        self.word(offset_of!(abi::kfabric_cq_ring, head))
            .load(Relaxed)
    }

    #[inline]
    fn set_head(&self, head: u64) {
        self.word(offset_of!(abi::kfabric_cq_ring, head))
            .store(head, Release);
    }

    #[inline]
    fn entry<R>(&self, place: u64, look: impl FnOnce(&Entry) -> R) -> R {
        debug_assert!(place < self.size);
        // SAFETY: `place` is below the size, so inside the memory.  The entry
        // was written before the tail that was loaded with acquire, and is not
        // written again before the head is stored, which `drain` does when the
        // reference has ended.
        look(unsafe { self.entries.add(place as usize).as_ref() })
    }
}

/// The mapped ring of a CQ, to take completions without a system call.
///
/// From [`Cq::ring`].  A ring has one reader, which is why taking completions
/// needs `&mut`; do not read the same CQ by call at the same time.
///
/// ```no_run
/// # fn f(cq: kfi::Cq) -> kfi::Result<()> {
/// use kfi::{Deadline, Entry};
///
/// let mut ring = cq.ring()?;
/// let mut entries = [Entry::default(); 16];
/// let count = ring.sread(&mut entries, Deadline::FOREVER)?;
/// for entry in &entries[..count] {
///     println!("{:#x}: {} bytes", entry.op_context, entry.len);
/// }
/// # Ok(())
/// # }
/// ```
pub struct CqRing {
    consumer: Consumer<RawRing>,
    // After the mapping: the CQ closes when the ring is unmapped.
    cq: Cq,
}

impl CqRing {
    pub(crate) fn new(cq: Cq, mapping: Mapping) -> Result<Self> {
        let ring = RawRing::new(mapping)?;
        let size = ring.size;
        Ok(Self {
            consumer: Consumer::new(ring, size),
            cq,
        })
    }

    /// Takes up to `out.len()` completions; 0: there are none.
    ///
    /// # Errors
    ///
    /// - `KFI_EAVAIL`: an error entry must be read first ([`Cq::readerr`]).
    /// - `KFI_EOVERRUN`: completions without a posted operation were lost;
    ///   reported once, when the ring is empty.
    #[inline]
    pub fn read(&mut self, out: &mut [Entry]) -> Result<usize> {
        let mut places = out.iter_mut();
        self.consumer.drain(places.len(), |entry| {
            if let Some(place) = places.next() {
                *place = *entry;
            }
        })
    }

    /// Passes up to `max` completions to `take` in place, without a copy;
    /// returns their number.
    ///
    /// # Errors
    ///
    /// As [`CqRing::read`].
    #[inline]
    pub fn drain(&mut self, max: usize, take: impl FnMut(&Entry)) -> Result<usize> {
        self.consumer.drain(max, take)
    }

    /// Takes completions, and sleeps while there are none; 0: the deadline has
    /// passed, or [`Cq::signal`] was called.
    ///
    /// # Errors
    ///
    /// As [`CqRing::read`], and as [`Cq::wait`].
    pub fn sread(&mut self, out: &mut [Entry], deadline: impl Into<Deadline>) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let deadline = deadline.into();
        loop {
            match self.read(out)? {
                0 if deadline == Deadline::POLL || !self.cq.wait(deadline)? => {
                    return self.read(out);
                }
                0 => (),
                count => return Ok(count),
            }
        }
    }

    /// Completions that can be taken now.
    pub fn len(&self) -> usize {
        self.consumer
            .queued()
            .map_or(0, |(_, queued)| queued as usize)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completions that the ring has room for.
    pub fn capacity(&self) -> usize {
        self.consumer.size as usize
    }

    /// Error entries that wait for [`Cq::readerr`].
    pub fn errors(&self) -> u64 {
        self.consumer.mem.errors()
    }

    /// Completions that were lost so far.
    pub fn overruns(&self) -> u64 {
        self.consumer.mem.overruns()
    }

    /// The CQ.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }
}

impl Drop for CqRing {
    fn drop(&mut self) {
        let inner: &Arc<CqInner> = &self.cq.inner;
        inner.ring_taken.store(false, Release);
    }
}

impl std::fmt::Debug for CqRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqRing")
            .field("cq", &self.cq)
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod loom_tests;
